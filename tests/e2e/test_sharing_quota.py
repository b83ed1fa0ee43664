"""What queues that share may have, on whole fleets: cohorts and trees of them, limits on both sides, and quota that
changes while Jobs run.
"""

from decimal import Decimal

import pytest

from multimirror.api import COHORTS, MIRROR_QUEUES
from multimirror.kube.resources import PODS
from tests.e2e.dispatching import Stage, running, until
from tests.e2e.sharing import Cohort, Json, is_marked, pods_at_once

pytestmark = pytest.mark.usefixtures("impatient")


async def numbers(stage: Stage, queue: str, **wanted: str | int) -> Json:
    """What a queue's status says, when it is that."""

    def so(obj: Json) -> bool:
        status = obj.get("status") or {}
        found = {name: status.get(name, {}).get("cpu", "0") for name in ("own", "used", "borrowed", "lent")}
        return all(
            (found | status if name in ("share", "fairShare") else found).get(name) == wanted[name] for name in wanted
        )

    return await until(stage.management, MIRROR_QUEUES, None, queue, so)


async def test_what_is_used_borrowed_and_lent_stands_in_the_status_of_both_queues(stage: Stage, cohort: Cohort) -> None:
    await cohort.share("2")
    async with stage.dispatcher():
        await cohort.run("b-1", cohort.b, cpu="3")
        await numbers(stage, cohort.b, own="2", used="3", borrowed="1", share=250)
        await numbers(stage, cohort.a, own="2", used="0", lent="1", share=0)
        said = await cohort.queue_condition(cohort.b, "Borrowing")
        assert "uses 3 cpu, 2 its own" in said
        await cohort.finish("b-1")
        await numbers(stage, cohort.b, used="0", borrowed="0")
        await cohort.queue_condition(cohort.b, "Borrowing", "False")


async def test_two_cohorts_do_not_touch_each_other(stage: Stage, cohort: Cohort) -> None:
    """The other has two cpu that nobody uses, and one that borrows: neither is looked at."""
    await cohort.share()
    others = f"{cohort.name}-other"
    lends = await cohort.another("c", "2", cohort=others)
    borrows = await cohort.another("d", "0", cohort=others)
    async with stage.dispatcher():
        await cohort.run("d-1", borrows)
        await cohort.b_borrows()
        await cohort.submit("b-3", cohort.b)
        told = await cohort.told("Waiting", f"cohort {cohort.name} has 0 left", "b-3")
        assert others not in told
        await cohort.run("owner", cohort.a)
        assert len(await cohort.waiting("b-1", "b-2")) == 1
        assert running(await stage.job("d-1"))
        await cohort.run("c-1", lends)
        assert running(await stage.job("d-1"))
        await cohort.finish("d-1", "c-1", "owner", "b-1", "b-2", "b-3")


async def test_a_queue_without_a_cohort_neither_lends_nor_borrows(stage: Stage, cohort: Cohort) -> None:
    await cohort.share()
    alone = await cohort.another("alone", "1")
    async with stage.dispatcher():
        await cohort.run("x-1", alone)
        await cohort.submit("x-2", alone)
        await cohort.told("Waiting", rf"queue {alone} has 0 cpu left of its quota, it asks for 1", "x-2")
        await cohort.b_borrows()
        await cohort.finish("x-1", "x-2", "b-1", "b-2")


async def test_what_a_queue_does_not_lend_is_there_for_it_at_once(stage: Stage, cohort: Cohort) -> None:
    """a lends one of its two; b has three at most, and nobody has to be stopped for the other."""
    await cohort.share("2")
    await cohort.change(cohort.a, quota={"lend": {"cpu": "1"}})
    async with stage.dispatcher():
        await cohort.run("b-1", cohort.b, cpu="3")
        await cohort.submit("b-2", cohort.b)
        await cohort.told("Waiting", f"cohort {cohort.name} has 0 left", "b-2")
        await cohort.submit("b-huge", cohort.b, cpu="4")
        await cohort.told("Waiting", rf"queue {cohort.b} can have 3 at most", "b-huge")
        await cohort.run("a-1", cohort.a)
        assert running(await stage.job("b-1"))
        await cohort.change(cohort.a, quota={"lend": {"cpu": "2"}})
        await cohort.finish("a-1")
        await stage.until(running, "b-2")
        await cohort.finish("b-1", "b-2", "b-huge")


async def test_in_a_tree_a_whole_branch_takes_back_what_is_its_own(stage: Stage, cohort: Cohort) -> None:
    """Two cohorts of one company with a pool of one each, and queues that have nothing: the right one uses both."""
    company = f"{cohort.name}-company"
    left, right = f"{cohort.name}-left", f"{cohort.name}-right"
    await cohort.pool("0", company)
    for name in (left, right):
        await cohort.pool("1", name, parent=company)
    ours = await cohort.another("left", "0", cohort=left, preempts=["Reclaim"])
    theirs = await cohort.another("right", "0", cohort=right, preempts=["Reclaim"])
    async with stage.dispatcher():
        for name in ("r-1", "r-2"):
            await cohort.run(name, theirs)
        await cohort.submit("l-1", ours)
        victim = await cohort.victim("r-1", "r-2")
        await cohort.told(
            "Preempted",
            rf"to give cohort {left} its own quota back \(Reclaim\): cohort {left} uses 0 of its 1 cpu and needs 1, "
            rf"cohort {right} uses 2 of its 1",
            victim,
        )
        await stage.until(running, "l-1")
        await cohort.submit("l-2", ours)
        await cohort.told("Waiting", rf"cohort {company} has 0 left", "l-2")
        assert len(await cohort.waiting("r-1", "r-2")) == 1, "what is the right one's own stays there"
        await cohort.finish("l-1", "l-2", "r-1", "r-2")


async def test_cohorts_that_are_each_others_parents_place_nothing_until_that_is_mended(
    stage: Stage, cohort: Cohort
) -> None:
    other = f"{cohort.name}-other"
    await cohort.pool("1", cohort.name, parent=other)
    await cohort.pool("1", other, parent=cohort.name)
    await cohort.share()
    async with stage.dispatcher():
        await cohort.submit("a-1", cohort.a)
        await cohort.told("Waiting", rf"{other}", "a-1")
        await cohort.head(cohort.a, "Cycle")
        await stage.management.patch(COHORTS, other, {"spec": {"parent": None}})
        await cohort.finish("a-1")


async def test_quota_that_is_lowered_stops_nobody_and_says_that_more_is_used(stage: Stage, cohort: Cohort) -> None:
    """Overused: nothing more is placed until less is used."""
    await cohort.share("2", preempts=[])
    async with stage.dispatcher():
        for name in ("a-1", "a-2"):
            await cohort.run(name, cohort.a)
        for name in ("b-1", "b-2"):
            await cohort.run(name, cohort.b)
        for queue in (cohort.a, cohort.b):
            await cohort.change(queue, quota={"resources": {"cpu": "1"}})
        said = await cohort.queue_condition(cohort.b, "Overused")
        assert f"cohort {cohort.name}" in said
        assert "uses 4 cpu and may have 2" in said
        await stage.finish("b-1")
        await cohort.submit("b-3", cohort.b)
        await cohort.told("Waiting", "it asks for 1 cpu", "b-3")
        assert not any([is_marked(await stage.job(name)) for name in ("a-1", "a-2", "b-2")])
        await cohort.finish("a-1", "a-2")
        await stage.until(running, "b-3")
        await cohort.queue_condition(cohort.b, "Overused", "False")
        await cohort.finish("b-2", "b-3")


async def test_the_number_of_jobs_is_never_borrowed(stage: Stage, cohort: Cohort) -> None:
    await cohort.share("2", quota={"jobs": 1})
    async with stage.dispatcher():
        await cohort.run("b-1", cohort.b)
        await cohort.submit("b-2", cohort.b)
        await cohort.told("Waiting", rf"queue {cohort.b} runs 1 Jobs?, as many as its quota allows", "b-2")
        await cohort.finish("b-1", "b-2")


async def test_what_indexes_have_given_back_is_lent_to_others(stage: Stage, cohort: Cohort) -> None:
    """An indexed Job of two uses all of its queue's own; when one index is done the other queue borrows that cpu."""
    await cohort.share("2", preempts=[])
    async with stage.dispatcher():
        await cohort.submit("wide", cohort.a, change=pods_at_once(2))
        await stage.until(lambda job: (job.get("status") or {}).get("ready") == 2, "wide")
        await cohort.submit("b-1", cohort.b, cpu="3")
        await cohort.told("Waiting", rf"it asks for 3 cpu; .*queue {cohort.a} uses 2 of its 2", "b-1")
        worker, _ = await stage.copy(name="wide")
        pods = (await stage.workers[worker].list(PODS, stage.namespace, label_selector="job-name=wide")).items
        done = {"metadata": {"annotations": {"node.multimirror.dev/finish": "true"}}}
        await stage.workers[worker].patch(PODS, pods[0]["metadata"]["name"], done, stage.namespace)
        await stage.until(running, "b-1")
        await numbers(stage, cohort.a, used="1", lent="1")
        await cohort.finish("b-1", "wide")


async def test_a_job_that_grows_beyond_the_quota_keeps_its_size_and_hears_why(stage: Stage, cohort: Cohort) -> None:
    def one_of_two(job: Json) -> None:
        job["spec"] |= {"completions": 2, "parallelism": 1}

    await cohort.share(preempts=[])
    async with stage.dispatcher():
        await cohort.run("b-1", cohort.b)
        await cohort.run("grows", cohort.a, change=one_of_two)
        await stage.patch("grows", {"spec": {"parallelism": 2}})
        await cohort.told(
            "Waiting",
            rf"with room for 1 pod, and waits to grow to 2: it asks for 1 cpu; .*cohort {cohort.name} has 0 left: "
            rf"queue {cohort.b} uses 1 of its 1",
            "grows",
        )
        _, copy = await stage.copy(name="grows")
        assert copy["spec"]["parallelism"] == 1
        await stage.finish("b-1")
        await stage.copy(lambda copy: copy["spec"]["parallelism"] == 2, name="grows")
        await cohort.finish("grows")


async def test_a_queue_of_weight_0_has_what_nobody_else_wants(stage: Stage, cohort: Cohort) -> None:
    """And gives all of it to whoever shares fairly."""
    await cohort.pool("2")
    await cohort.share("0", preempts=["FairShare"])
    await cohort.change(cohort.b, weight=0)
    async with stage.dispatcher():
        await cohort.b_borrows()
        for name in ("a-1", "a-2"):
            await cohort.run(name, cohort.a)
        assert len(await cohort.waiting("b-1", "b-2")) == 2
        await cohort.finish("a-1", "a-2", "b-1", "b-2")


async def past_use(stage: Stage, queue: str, using: str) -> Json:
    """What a queue's status says that it used before, once it uses that."""

    def found(obj: Json) -> Json:
        return (obj.get("status") or {}).get("pastUse") or {}

    obj = await until(stage.management, MIRROR_QUEUES, None, queue, lambda each: found(each).get("using") == using)
    return found(obj)


async def test_who_used_much_before_comes_after_who_used_nothing_also_after_a_restart(
    stage: Stage, cohort: Cohort
) -> None:
    """By priority b's Job would be first. What b used before, the second dispatcher has from its status alone."""
    await cohort.pool("1", halfLife="60s")
    await cohort.share("0", preempts=[], maxPriority=100)
    async with stage.dispatcher():
        await cohort.run("b-1", cohort.b)
        await past_use(stage, cohort.b, "1")
        await cohort.finish("b-1")
        assert Decimal((await past_use(stage, cohort.b, "0"))["value"]) > 0
    await cohort.submit("b-2", cohort.b, priority=100)
    await cohort.submit("a-1", cohort.a)
    async with stage.dispatcher():
        await stage.until(running, "a-1")
        assert await cohort.waiting("b-2")
        await cohort.told(
            "Waiting",
            rf"queue {cohort.a} was next for what is shared: its share is 1000 of 1000 and 0 of 1000 for what it used "
            rf"before, that of queue {cohort.b} would be 1000 of 1000 and \d+ of 1000; what was used before decided",
            "b-2",
        )
        await cohort.finish("a-1", "b-2")
