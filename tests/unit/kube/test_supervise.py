"""Tasks that somebody watches: an unexpected end is told, seen by health, and ends whoever relies on the task."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from multimirror.kube.errors import LeadershipLost
from multimirror.kube.supervise import Supervisor, TaskEnded
from tests.unit.kube.virtual_time import virtual_time


async def for_ever() -> None:
    await asyncio.Event().wait()


async def failing() -> None:
    await asyncio.sleep(1)
    raise ZeroDivisionError("a bug")


async def relying_on(name: str, coroutine: Coroutine[Any, Any, None]) -> None:
    async with Supervisor() as tasks:
        tasks.start(name, coroutine)
        await for_ever()


@virtual_time
async def test_what_still_runs_is_stopped_when_the_body_has_come_to_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    async with Supervisor() as tasks:
        first, second = tasks.start("first", for_ever()), tasks.start("second", for_ever())
        await asyncio.sleep(1)
    assert first.cancelled()
    assert second.cancelled()
    assert (first.get_name(), tasks.why_unhealthy()) == ("first", None)
    assert "unexpectedly" not in capsys.readouterr().out


@virtual_time
async def test_a_task_that_failed_is_told_with_its_name_and_trace_and_ends_the_body(
    capsys: pytest.CaptureFixture[str],
) -> None:
    story: list[str] = []

    async def other() -> None:
        try:
            await for_ever()
        finally:
            story.append("stopped")

    async def body() -> None:
        async with Supervisor() as tasks:
            tasks.start("other", other())
            tasks.start("informer jobs", failing())
            await for_ever()

    with pytest.raises(TaskEnded, match=r"^informer jobs ended unexpectedly: ZeroDivisionError: a bug$") as raised:
        await body()
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    assert raised.value.name == "informer jobs"
    assert story == ["stopped"]
    assert asyncio.get_running_loop().time() == 1
    told = capsys.readouterr().out
    assert told.count("task ended unexpectedly") == 1
    assert "task='informer jobs'" in told
    assert "in failing" in told


@virtual_time
async def test_a_task_that_returned_too_early_is_as_bad_as_one_that_failed() -> None:
    with pytest.raises(TaskEnded, match=r"^brief ended unexpectedly: it returned$"):
        await relying_on("brief", asyncio.sleep(1))


@virtual_time
async def test_a_task_that_may_return_gives_its_result_and_ends_nobody() -> None:
    async with Supervisor() as tasks:
        brief = tasks.start("brief", asyncio.sleep(1, "result"), may_return=True)
        assert await brief == "result"
        await asyncio.sleep(1)
    with pytest.raises(TaskEnded, match="ZeroDivisionError"):
        async with Supervisor() as tasks:
            await tasks.start("failing", failing(), may_return=True)


@virtual_time
async def test_a_task_that_is_cancelled_on_purpose_is_no_fault() -> None:
    async with Supervisor() as tasks:
        task, unborn = tasks.start("task", for_ever()), tasks.start("unborn", for_ever())
        unborn.cancel()
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.sleep(1)
        assert tasks.why_unhealthy() is None
    assert asyncio.get_running_loop().time() == 2


@virtual_time
async def test_a_cancellation_that_nobody_asked_for_is_a_fault() -> None:
    async def relies_on_somebody_else() -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(1, future.cancel)
        await future

    with pytest.raises(TaskEnded, match="reporter ended unexpectedly: CancelledError"):
        await relying_on("reporter", relies_on_somebody_else())


@virtual_time
async def test_an_error_while_it_is_being_stopped_is_told_and_hides_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    async def untidy() -> None:
        try:
            await for_ever()
        finally:
            raise ZeroDivisionError

    async def body() -> None:
        async with Supervisor() as tasks:
            tasks.start("untidy", untidy())
            await asyncio.sleep(1)
            raise KeyError("the body's own")

    with pytest.raises(KeyError, match="the body's own"):
        await body()
    assert "task failed while it was being stopped" in capsys.readouterr().out


@virtual_time
async def test_a_body_that_is_cancelled_stays_cancelled() -> None:
    task = asyncio.create_task(relying_on("task", for_ever()))
    await asyncio.sleep(1)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


@virtual_time
async def test_what_is_started_while_all_is_being_stopped_is_stopped_too() -> None:
    async def starts_another(tasks: Supervisor) -> None:
        try:
            await for_ever()
        finally:
            tasks.start("another", for_ever())

    async with asyncio.timeout(10), Supervisor() as tasks:
        tasks.start("task", starts_another(tasks))
        await asyncio.sleep(1)


@virtual_time
async def test_lost_leadership_is_no_fault_of_the_task_that_met_it() -> None:
    async def loses() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(refused())

    async def refused() -> None:
        await asyncio.sleep(1)
        raise LeadershipLost("one lost it")

    with pytest.raises(LeadershipLost, match=r"^one lost it$"):
        await relying_on("work", relying_on("scheduler", loses()))


@virtual_time
async def test_the_outermost_says_which_task_died_while_the_way_up_takes_long() -> None:
    async def cluster() -> None:
        async with Supervisor() as inner:
            inner.start("informer jobs", failing())
            try:
                await for_ever()
            finally:
                await asyncio.sleep(60)

    async def body() -> None:
        async with Supervisor() as process:
            process.start("workers", cluster())
            await asyncio.sleep(0.5)
            assert process.why_unhealthy() is None
            await asyncio.sleep(30)
            assert process.why_unhealthy() == "informer jobs ended unexpectedly: ZeroDivisionError: a bug"
            await for_ever()

    with pytest.raises(TaskEnded, match=r"^workers ended unexpectedly: informer jobs ended unexpectedly: Zero"):
        await body()
    assert asyncio.get_running_loop().time() == 61


@virtual_time
async def test_an_end_that_was_dealt_with_does_not_stay_in_the_health() -> None:
    async def cluster(again: asyncio.Event) -> None:
        with pytest.raises(TaskEnded):
            await relying_on("informer jobs", failing())
        again.set()
        await for_ever()

    async with Supervisor() as process:
        again = asyncio.Event()
        process.start("worker", cluster(again))
        await again.wait()
        assert process.why_unhealthy() is None


@virtual_time
async def test_what_is_opened_in_the_body_belongs_to_it() -> None:
    async def body() -> None:
        async with Supervisor() as process, Supervisor() as inner:
            inner.start("failing", failing())
            try:
                await for_ever()
            finally:
                assert process.why_unhealthy() == "failing ended unexpectedly: ZeroDivisionError: a bug"

    with pytest.raises(TaskEnded):
        await body()
    async with Supervisor() as later:
        assert later.why_unhealthy() is None
