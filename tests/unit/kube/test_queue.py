"""The work queue and its workers, on virtual time."""

import asyncio
import itertools
from typing import NamedTuple

import pytest
from structlog.testing import capture_logs

from multimirror.kube import Controller, RequeueAfter, WorkQueue
from multimirror.kube.controller import NotYet, TerminalError
from multimirror.kube.queue import BULK, LIVE, QueueClosed
from tests.unit.kube.virtual_time import virtual_time


async def drain(queue: WorkQueue) -> list[str]:
    keys = []
    while len(queue):
        keys.append(await queue.get())
        queue.done(keys[-1])
    return keys


@virtual_time
async def test_a_key_waits_once_however_often_it_is_added() -> None:
    queue = WorkQueue("q")
    for key in ("a", "b", "a", "a"):
        queue.add(key)
    assert len(queue) == 2
    assert await drain(queue) == ["a", "b"]


@virtual_time
async def test_a_key_is_never_worked_on_twice_at_once_and_comes_back_when_it_changed_meanwhile() -> None:
    queue = WorkQueue("q")
    queue.add("a")
    assert await queue.get() == "a"
    queue.add("a")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(5):
            await queue.get()
    queue.done("a")
    assert await queue.get() == "a"
    queue.done("a")
    assert len(queue) == 0


@virtual_time
async def test_live_changes_go_before_the_flood_at_start_up() -> None:
    queue = WorkQueue("q")
    for number in range(5):
        queue.add(f"old-{number}", priority=BULK)
    queue.add("news", priority=LIVE)
    queue.add("old-3")  # something happened to it: it is news now
    assert await drain(queue) == ["news", "old-3", "old-0", "old-1", "old-2", "old-4"]


@virtual_time
async def test_a_delayed_key_comes_at_its_time_and_the_earliest_wish_counts() -> None:
    queue = WorkQueue("q")
    loop = asyncio.get_running_loop()
    queue.add_after("slow", 30)
    queue.add_after("a", 20)
    queue.add_after("a", 10)
    queue.add_after("a", 15)
    assert await queue.get() == "a"
    assert loop.time() == pytest.approx(10)
    queue.done("a")
    assert await queue.get() == "slow"
    assert loop.time() == pytest.approx(30)


@virtual_time
async def test_a_failing_key_waits_longer_each_time_until_it_succeeds() -> None:
    queue = WorkQueue("q", backoff_initial=1, backoff_maximum=60)
    waits = [queue.retry("a") for _ in range(10)]
    for attempt, wait in enumerate(waits):
        most = min(60, 2**attempt)
        assert most / 2 <= wait <= most
    assert queue.retry("b") <= 1
    queue.forget("a")
    assert queue.retry("a") <= 1


@virtual_time
async def test_a_cancelled_worker_passes_its_key_on() -> None:
    queue = WorkQueue("q")
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(queue.get())
        second = tasks.create_task(queue.get())
        await asyncio.sleep(1)
        queue.add("a")
        first.cancel()
    assert second.result() == "a"


@virtual_time
async def test_a_closed_queue_takes_nothing_and_ends_its_workers() -> None:
    queue = WorkQueue("q")
    queue.add("a")
    queue.add_after("b", 10)
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(queue.idle())
        queue.close()
        queue.add("c")
        queue.add_after("d", 1)
        with pytest.raises(QueueClosed):
            await queue.get()
    assert waiting.done()
    await asyncio.sleep(60)
    assert len(queue) == 0


@virtual_time
async def test_stopping_lets_the_reconciles_that_run_come_to_their_end() -> None:
    finished: list[str] = []

    async def reconcile(key: str) -> None:
        await asyncio.sleep(5)
        finished.append(key)

    controller = Controller("c", reconcile, concurrency=2)
    for key in ("a", "b", "c"):
        controller.queue.add(key)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(controller.run())
        await asyncio.sleep(1)
        controller.stop()
    assert sorted(finished) == ["a", "b"]
    assert asyncio.get_running_loop().time() == pytest.approx(5)


@virtual_time
async def test_draining_finishes_what_waits_too() -> None:
    finished: list[str] = []

    async def reconcile(key: str) -> None:
        finished.append(key)

    controller = Controller("c", reconcile, concurrency=2)
    for number in range(20):
        controller.queue.add(str(number))
    controller.stop(drain=True)
    await controller.run()
    assert sorted(finished, key=int) == [str(number) for number in range(20)]


@virtual_time
async def test_no_more_reconciles_run_at_once_than_allowed() -> None:
    now = most = 0

    async def reconcile(_: str) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(1)
        now -= 1

    controller = Controller("c", reconcile, concurrency=3)
    for number in range(10):
        controller.queue.add(str(number))
    controller.stop(drain=True)
    await controller.run()
    assert most == 3
    assert asyncio.get_running_loop().time() == pytest.approx(4)


@virtual_time
async def test_the_result_of_a_reconcile_says_when_the_key_comes_back() -> None:
    times: dict[str, list[float]] = {}

    async def reconcile(key: str) -> RequeueAfter | None:
        mine = times.setdefault(key, [])
        mine.append(asyncio.get_running_loop().time())
        match key:
            case "later":
                return RequeueAfter(60)
            case "broken":
                raise RuntimeError("a bug")
            case "hopeless":
                raise TerminalError("spec.x: must not be empty")
            case "stuck" if len(mine) == 1:
                await asyncio.sleep(3600)
        return None

    controller = Controller("c", reconcile, timeout=30)
    for key in ("fine", "later", "broken", "hopeless", "stuck"):
        controller.queue.add(key)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(controller.run())
        await asyncio.sleep(130)
        controller.stop()
    assert times["fine"] == [0.0]
    assert times["hopeless"] == [0.0]
    assert times["later"] == pytest.approx([0.0, 60.0, 120.0])
    assert len(times["stuck"]) == 2
    assert times["stuck"][1] > 30
    gaps = [b - a for a, b in itertools.pairwise(times["broken"])]
    assert 8 < len(times["broken"]) < 16
    assert gaps[-1] > 100 * gaps[0]


@virtual_time
async def test_who_comes_too_early_comes_back_and_nobody_is_warned() -> None:
    calls = 0

    async def reconcile(_: str) -> None:
        nonlocal calls
        calls += 1
        if calls < 3:
            raise NotYet("the cache is behind")

    controller = Controller("c", reconcile)
    controller.queue.add("k")
    with capture_logs() as logs:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(controller.run())
            await asyncio.sleep(10)
            controller.stop()
    assert calls == 3
    assert "warning" not in {entry["log_level"] for entry in logs}


def test_keys_that_are_due_almost_at_once_come_on_the_fast_event_loop_too() -> None:
    """For such short waits uvloop gives handles that do not say when they are due."""
    uvloop = pytest.importorskip("uvloop")

    async def work() -> int:
        queue = WorkQueue("fast")
        for number in range(500):
            queue.add_after(str(number), 0.0001 * (number % 7))
        done = 0
        async with asyncio.timeout(30):
            while done < 500:
                queue.done(await queue.get())
                done += 1
        return done

    assert uvloop.run(work()) == 500


@virtual_time
async def test_a_reconcile_whose_future_somebody_else_cancelled_costs_no_worker() -> None:
    tries: list[float] = []

    async def reconcile(_: str) -> None:
        tries.append(asyncio.get_running_loop().time())
        if len(tries) < 5:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_later(1, future.cancel)
            await future

    controller = Controller("c", reconcile, concurrency=2)
    controller.queue.add("a")
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(controller.run())
        await asyncio.sleep(60)
        controller.stop()
    assert len(tries) == 5


class Ref(NamedTuple):
    """A key that is no text."""

    kind: object
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"


@virtual_time
async def test_keys_are_anything_hashable_and_never_compared(capsys: pytest.CaptureFixture[str]) -> None:
    done: list[Ref] = []

    async def reconcile(ref: Ref) -> RequeueAfter | None:
        done.append(ref)
        if ref.name == "broken" and done.count(ref) == 1:
            raise ValueError("a bug")
        return RequeueAfter(5) if done.count(ref) == 1 else None

    controller = Controller("typed", reconcile, concurrency=1)
    jobs, pods = object(), object()  # two that have no order
    refs = [Ref(jobs, "a"), Ref(pods, "a"), Ref(jobs, "broken"), Ref(jobs, "b")]
    for ref in refs:
        controller.queue.add(ref)
        controller.queue.add_after(ref, 1)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(controller.run())
        await asyncio.sleep(60)
        controller.stop()
    assert done[:4] == refs
    assert set(done[4:]) == set(refs)
    assert f"{jobs}/broken" in capsys.readouterr().out


def tenant(key: str) -> str:
    return key.split("/", maxsplit=1)[0]


@virtual_time
async def test_groups_take_turns_and_within_a_group_the_first_goes_first() -> None:
    queue = WorkQueue("q", group=tenant)
    for key in ("a/1", "a/2", "a/3", "b/1", "c/1", "b/2"):
        queue.add(key)
    assert await drain(queue) == ["a/1", "b/1", "c/1", "a/2", "b/2", "a/3"]


@virtual_time
async def test_a_newcomer_waits_behind_one_key_of_each_other_group_however_many_there_are() -> None:
    queue = WorkQueue("q", group=tenant)
    for number in range(1000):
        queue.add(f"crowd/{number}")
    queue.add("quiet/1")
    first, second = await queue.get(), await queue.get()
    assert (first, second) == ("crowd/0", "quiet/1")
    queue.done(first)
    queue.done(second)
    queue.add("quiet/2")
    assert await queue.get() == "crowd/1"
    assert await queue.get() == "quiet/2"


@virtual_time
async def test_a_higher_priority_goes_before_the_turns_of_groups_and_a_key_that_moves_up_is_there_once() -> None:
    queue = WorkQueue("q", group=tenant)
    for key in ("a/1", "a/2", "b/1"):
        queue.add(key, priority=BULK)
    queue.add("a/2")
    queue.add("a/2")
    assert len(queue) == queue.unfinished == 3
    assert await drain(queue) == ["a/2", "a/1", "b/1"]
    assert queue.unfinished == 0


@virtual_time
async def test_a_key_comes_back_to_its_group_after_it_failed() -> None:
    queue = WorkQueue("q", group=tenant, backoff_initial=1)
    queue.add("a/1")
    key = await queue.get()
    queue.retry(key)
    queue.done(key)
    assert queue.unfinished == 0, "what comes back later is not counted"
    await asyncio.sleep(2)
    for number in (2, 3):
        queue.add(f"a/{number}")
    queue.add("b/1")
    assert await drain(queue) == ["a/1", "b/1", "a/2", "a/3"]


@virtual_time
async def test_a_stream_of_changes_that_never_ends_does_not_starve_what_was_there_before() -> None:
    queue = WorkQueue("q")
    for number in range(5):
        queue.add(f"old-{number}", priority=BULK)
    handed_out = []
    for number in range(48):
        queue.add(f"news-{number}")
        key = await queue.get()
        queue.done(key)
        handed_out.append(key)
    assert [key for key in handed_out if key.startswith("old")] == [f"old-{number}" for number in range(5)]
