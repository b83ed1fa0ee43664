"""What is found once, and given to all of whom it is true: it has to be what each of them would be told by itself."""

import gc
import weakref
from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from multimirror.scheduling.heads import Head, HeadOrder
from multimirror.scheduling.quota import QuotaTree, QuotaUsage
from multimirror.scheduling.sharing import PassQuota
from multimirror.scheduling.victims import Preemptor
from multimirror.scheduling.waiting import Waiter, Waiting
from tests.unit.scheduling.builders import a_candidate
from tests.unit.scheduling.trees import RECLAIM, job, of, queue, random_jobs, random_tree, usage

RESOURCES = ("cpu", "gpu")


def waiters(waiting: Waiting) -> dict[str, Waiter]:
    lines = (line for queue in waiting.snapshot().queues.values() for line in queue.lines.values())
    return {waiter.name: waiter for line in lines for waiter in line.waiters}


def asks(uid: str, queue: str, size: dict[str, int], *, own_quota_only: bool = False) -> Preemptor:
    return Preemptor(uid=uid, queue=queue, requests=size, preempts=frozenset({RECLAIM}), own_quota_only=own_quota_only)


# --- shapes


def test_those_that_get_the_same_answer_have_one_shape() -> None:
    found = waiters(Waiting([a_candidate("a", cpu=1), a_candidate("bb", cpu=1, priority=3, queue="p")]))
    assert found["a"].shape is found["bb"].shape
    assert found["a"].candidate.requests is found["bb"].candidate.requests


def test_whatever_an_answer_depends_on_makes_another_shape() -> None:
    others = [
        a_candidate("aa", cpu=2),
        a_candidate("aaa", cpu=1, namespace="others"),
        a_candidate("aaaa", cpu=1, clusters=frozenset({"w1"})),
        a_candidate("aaaaa", cpu=1, avoid={"w1": "it was refused there"}),
        a_candidate("aaaaaa", cpu=1, problem="its priority is no number"),
        a_candidate("aaaaaaa", cpu=1, preemptible=False),
        a_candidate("aaaaaaaa", cpu=1, preemptions=1),
    ]
    found = waiters(Waiting([a_candidate("a", cpu=1), *others]))
    assert len({waiter.shape for waiter in found.values()}) == 1 + len(others)


def test_one_that_waits_is_the_one_that_was_put() -> None:
    put = a_candidate("a", requests={"gpu": 0, "cpu": 1}, avoid={})
    waiting = Waiting([a_candidate("bb", requests={"cpu": 1, "gpu": 0}), put])
    found = waiting.get(put.ref)
    assert found == put
    assert found is not None
    assert list(found.requests) == ["gpu", "cpu"], "the order in which it asks is its own"
    assert not waiting.put(put), "and it is no news"


def test_a_shape_that_nobody_has_any_more_is_forgotten() -> None:
    waiting = Waiting([a_candidate("a", cpu=12345)])
    shape = weakref.ref(waiters(waiting)["a"].shape)
    assert shape() is not None
    waiting.remove(a_candidate("a").ref)
    gc.collect()
    assert shape() is None


# --- what is left


@settings(max_examples=80)
@given(st.integers(0, 10**6))
def test_what_is_left_for_a_queue_is_what_each_of_its_jobs_is_told(seed: int) -> None:
    """While Jobs are placed, leave, wait for those, and keep what is their queue's own."""
    random = Random(seed)
    queues, cohorts = random_tree(random, RESOURCES)
    running = [
        replace(job(each.name, each.queue, 0), requests=_size(random))
        for each in random_jobs(random, queues, RESOURCES, 6)
    ]
    found = QuotaUsage(QuotaTree(queues, cohorts))
    for each in running:
        found.add(each.queue, each.requests)
    leaving = [each for each in running if random.random() < 0.3]
    books = PassQuota(found, leaving)
    for number in range(20):
        one = asks(f"j{number}", random.choice(sorted(queues)), _size(random), own_quota_only=random.random() < 0.2)
        room = books.room(one.uid, one.queue)
        if room is not None and not one.own_quota_only:
            assert room.fits(one.requests) == books.fits(one)
            assert room.fits_later(one.requests) == books.fits_later(one)
            assert room.is_within(one.requests) == books.may_stop_others(one)
            charged = books.charged()
            assert room.short(one.requests, charged) == next(iter(charged.short(one.queue, one.requests)), None)
        if books.fits(one):
            books.place(one)
        elif random.random() < 0.3:
            books.wait(one)
        else:
            books.keep(Preemptor(uid=one.uid, queue=one.queue, requests=one.requests))


def _size(random: Random) -> dict[str, int]:
    return of({name: random.randint(0, 4) for name in random.sample(RESOURCES, random.randint(0, 2))})


def test_one_that_waits_for_others_is_told_by_itself() -> None:
    """What is kept for it is its own; and who may only have its queue's own keeps that from others of the queue."""
    books = PassQuota(usage({"a": queue(2), "b": queue(2)}, a=2, b=2))
    books.wait(asks("waits", "a", of(1)))
    assert books.room("waits", "a") is None
    assert books.room("another", "a") is not None
    books.wait(asks("own", "b", of(1), own_quota_only=True))
    assert books.room("another", "b") is None


@settings(max_examples=60)
@given(st.integers(0, 10**6))
def test_what_a_node_may_have_on_top_is_what_adding_says(seed: int) -> None:
    random = Random(seed)
    found = QuotaUsage(QuotaTree(*random_tree(random, RESOURCES)))
    for each in random_jobs(random, found.tree.queues, RESOURCES, 12):
        reaching = dict(found.reaching(each.queue, each.requests))
        path = found.tree.queues[each.queue].path
        for node in path:
            assert found.adding(each.queue, each.requests, node) == reaching[node]
        for name, asked in each.requests.items():
            most = list(found.left_within(path[0], name))
            assert len(most) == len(path) - 1
            for node, left in zip(path, most, strict=False):
                within = found.over(node, name) + reaching[node].get(name, 0) <= 0
                assert not asked or within == (asked <= left)
        found.add(each.queue, each.requests)


# --- the order


@settings(max_examples=60)
@given(st.integers(0, 10**6))
def test_queues_that_begin_together_are_in_the_order_of_those_that_were_put_one_by_one(seed: int) -> None:
    random = Random(seed)
    found = QuotaUsage(QuotaTree(*random_tree(random, RESOURCES)))
    first: dict[str, Head] = {}
    for each in random_jobs(random, found.tree.queues, RESOURCES, 8):
        first.setdefault(each.queue, Head(each.queue, each.requests, each.order))
    together, one_by_one = HeadOrder(found), HeadOrder(found)
    for name, head in first.items():
        together.begin(name, head)
        one_by_one.put(name, head)
    for _ in together.settle():
        pass
    while (best := one_by_one.best()) is not None:
        assert together.best() is best
        for order in (together, one_by_one):
            order.put(best.queue, None)
    assert together.best() is None
