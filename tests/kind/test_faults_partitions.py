"""A worker that is out of reach for longer than its queue has patience, and what users do to Jobs that are cut off.

Without a fence a Job may run in two places then, for as long as nobody can tell the old one; with a fence it never
does. The record of each test is checked for that, and the containers themselves have noted when they ran (ticking.py).
"""

from collections.abc import Sequence
from typing import Any, Final

from multimirror.batch import find_condition
from multimirror.kube.resources import JOBS
from tests.kind.disturbed import cut_off, frozen, lost, usable
from tests.kind.installation import Installation, Stage, a_stage
from tests.kind.ticking import Crowd
from tests.waiting import eventually

Json = dict[str, Any]
PATIENCE: Final = {"after": "5s", "action": "Redispatch"}
FENCE: Final = {"timeout": "20s", "grace": "3s"}


async def spread(crowd: Crowd) -> tuple[str, list[str]]:
    """A worker, and the Jobs that run there for as long as it takes; others run elsewhere, or have ended."""
    worker, *_ = workers = crowd.stage.installation.workers
    for each in workers:
        await usable(crowd.stage, each)
    held = await crowd.send(held=6)
    short = await crowd.send(short=6)
    await crowd.running(held)
    await crowd.complete(short)
    there = crowd.on(worker, held)
    assert there, "both workers have room, and the queue spreads its Jobs"
    return worker, there


async def moved(crowd: Crowd, names: Sequence[str], away_from: str) -> None:
    """Until all of them run as a second attempt, elsewhere."""

    async def attempts() -> set[str]:
        return {crowd.attempt(name) for name in names}

    await eventually(attempts, lambda found: found == {"2"})
    await crowd.running(names)
    assert not crowd.on(away_from, names)
    for name in names:
        await crowd.ticks(name, crowd.place(name))


async def gone(stage: Stage, worker: str, names: Sequence[str]) -> None:
    """Until there is neither a copy of them on that worker, nor a pod."""

    async def left() -> list[str]:
        last = stage.history.record.last
        copies = [job["metadata"]["name"] for job in last("Job", worker).values()]
        pods = [pod["metadata"]["name"].rpartition("-")[0] for pod in last("Pod", worker).values()]
        return [name for name in (*copies, *pods) if name in names]

    await eventually(left, lambda found: not found)


async def test_without_a_fence_a_job_that_is_cut_off_runs_twice_until_its_old_worker_can_be_told(
    installation: Installation,
) -> None:
    async with a_stage(installation, {"retention": "0s", "onWorkerLost": PATIENCE}) as stage:
        crowd = Crowd(stage)
        worker, there = await spread(crowd)
        async with cut_off(stage, worker):
            await crowd.send(short=6)
            await moved(crowd, there, worker)
            for name in there:
                await crowd.ticks(name, worker)
        await gone(stage, worker, there)
        stale = {ran for ran in await crowd.ran_on(worker) if ran.job in there}
        await crowd.release()
        await crowd.complete()
        found = await crowd.ran()
        assert {ran for ran in found if ran.job in there and ran.worker == worker} == stale, "nothing went on there"
        assert sorted(ran.job for ran in found if ran.worker != worker and ran.job in there) == sorted(there)
        await crowd.ran_once([name for name in crowd.names if name not in there], stayed=False)


async def test_with_a_fence_a_job_that_is_cut_off_has_ended_there_before_it_runs_elsewhere(
    installation: Installation,
) -> None:
    async with a_stage(installation, {"retention": "0s", "onWorkerLost": PATIENCE, "fence": FENCE}) as stage:
        crowd = Crowd(stage)
        worker, there = await spread(crowd)
        async with cut_off(stage, worker):
            await crowd.send(short=6)
            await moved(crowd, there, worker)
            for name in there:
                first, second = sorted((ran for ran in await crowd.ran() if ran.job == name), key=lambda ran: ran.first)
                assert first.worker == worker != second.worker
                assert first.last < second.first, f"{name} ran in two places"
                condition = find_condition((await stage.status(name, worker))["conditions"], "Failed")
                assert condition is not None
                assert condition["reason"] == "DeadlineExceeded", (
                    "its own Job controller ended it: nobody could tell it to"
                )
        await gone(stage, worker, there)
        await crowd.release()
        await crowd.complete()
        assert len([ran for ran in await crowd.ran() if ran.job in there]) == 2 * len(there), "nothing started again"
        await crowd.ran_once([name for name in crowd.names if name not in there], stayed=False)


async def test_jobs_leave_a_worker_that_stands_still_for_long_and_its_old_copies_are_stopped_when_it_goes_on(
    installation: Installation,
) -> None:
    async with a_stage(installation, {"retention": "0s", "onWorkerLost": PATIENCE}) as stage:
        crowd = Crowd(stage)
        worker, there = await spread(crowd)
        async with frozen(stage, worker):
            await crowd.send(short=6)
            await moved(crowd, there, worker)
        await gone(stage, worker, there)
        await crowd.release()
        await crowd.complete()
        assert sorted(ran.job for ran in await crowd.ran() if ran.job in there) == sorted(2 * there)
        assert {crowd.attempt(name) for name in there} == {"2"}


async def test_a_partition_that_the_queue_has_patience_for_moves_nothing_and_what_users_said_meanwhile_counts(
    installation: Installation,
) -> None:
    worker, *_ = installation.workers
    only = {"workers": {"names": [worker]}, "retention": "0s", "onWorkerLost": {"after": "30m"}}
    async with a_stage(installation, only) as stage:
        crowd = Crowd(stage)
        left_alone, suspended, both, deleted = held = await crowd.send(held=4)
        await crowd.running(held)
        async with cut_off(stage, worker):
            await lost(stage, worker)
            for name in (suspended, both):
                await stage.management.patch(JOBS, name, {"spec": {"suspend": True}}, stage.namespace)
            await stage.management.delete(JOBS, deleted, stage.namespace, propagation="Background")
            late = await crowd.send(short=4)
            await stage.management.patch(JOBS, both, {"spec": {"suspend": False}}, stage.namespace)
            for name in held:
                await crowd.ticks(name, worker)
        await gone(stage, worker, [deleted])
        crowd.names.remove(deleted)
        await crowd.until("gone", [deleted])
        await eventually(lambda: stage.pods(suspended, worker), lambda found: not found)
        await crowd.until("Suspended", [suspended])
        await crowd.release()
        await crowd.complete([left_alone, both, *late])
        await crowd.ran_once([left_alone, *late])
        await stage.management.patch(JOBS, suspended, {"spec": {"suspend": False}}, stage.namespace)
        await crowd.complete()
