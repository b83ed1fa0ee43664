"""Whoever is being stopped while something breaks, on whole fleets: workers that are lost, dispatchers that die.

Two queues of one cohort; team b borrows, and team a takes its own back. Each test's history is checked for
all promises: that nothing runs twice is one of them.
"""

import asyncio
import contextlib

import pytest

from faults.record import MANAGEMENT
from multimirror.api import ATTEMPT_ANNOTATION, PREEMPTIONS_ANNOTATION
from multimirror.kube.errors import LeadershipLost
from multimirror.kube.resources import JOBS
from multimirror.kube.write_guard import WriteGuard
from tests.e2e.dispatching import Stage, cluster_of, finished, running, until
from tests.e2e.sharing import Cohort, is_marked, note, stops_after, stops_at_once, waits
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("impatient")
REDISPATCH = {"after": "0s", "action": "Redispatch"}


class Mortal:
    """The guard of a dispatcher that dies with its next write about Jobs: nothing that it decides then is done."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._before = self._writes()

    def _writes(self) -> int:
        writes = self._stage.history.record.writes("dispatcher")
        return sum(each.took_effect and each.call.resource.startswith("jobs") for each in writes)

    @property
    def is_dead(self) -> bool:
        return self._writes() > self._before

    def __call__(self) -> None:
        if self.is_dead:
            raise LeadershipLost("it has died")


async def test_a_dispatcher_that_dies_after_every_single_write_stops_one_and_starts_the_other(
    stage: Stage, cohort: Cohort
) -> None:
    """Whatever was written last, the next one goes on from there, and stops nobody else."""
    await cohort.share()
    async with stage.dispatcher():
        borrowers = await cohort.b_borrows()
    await cohort.submit("owner", cohort.a)
    deaths = 0
    while not running(await stage.job("owner")):
        mortal = Mortal(stage)

        async def over(mortal: Mortal = mortal) -> bool:
            return mortal.is_dead or running(await stage.job("owner"))

        async with stage.dispatcher(guard=WriteGuard(mortal)):
            await eventually(over)
        deaths += mortal.is_dead
    async with stage.dispatcher():
        (victim,) = await cohort.waiting(*borrowers)
        (other,) = set(borrowers) - {victim}
        assert note(await stage.job(victim), PREEMPTIONS_ANNOTATION) == "1"
        assert not any(is_marked(job) for job in cohort.lives_of(other))
        assert deaths >= 6, (
            "the mark, the suspension, the worker given back, the copy deleted, the owner placed, its copy"
        )
        await cohort.finish("owner", *borrowers)


async def test_after_a_restart_what_a_victim_frees_is_still_for_whom_it_was_stopped(
    stage: Stage, cohort: Cohort
) -> None:
    """Of what is shared by weight team c would be next; but for team a somebody is being stopped."""
    await cohort.pool("2")
    await cohort.share("0", preempts=["FairShare"])
    heavy = await cohort.another("c", "0", cohort=cohort.name, weight=5, preempts=[])
    async with stage.dispatcher():
        borrowers = await cohort.b_borrows(change=stops_after(2))
        await cohort.submit("a-1", cohort.a)
        victim = await cohort.victim(*borrowers)
        await cohort.submit("c-1", heavy)
        await cohort.told("Waiting", "cpu", "c-1")
    async with stage.dispatcher():
        await stage.until(running, "a-1")
        assert await cohort.waiting(*borrowers, "c-1") == [victim, "c-1"]
        await cohort.finish("a-1", "c-1", *borrowers)


async def test_another_dispatcher_that_takes_over_while_a_victim_stops_goes_on(stage: Stage, cohort: Cohort) -> None:
    await cohort.share()
    async with contextlib.AsyncExitStack() as first:
        await first.enter_async_context(stage.candidate("dispatcher-one"))
        await stage.leads("dispatcher-one")
        async with stage.candidate("dispatcher-two"):
            borrowers = await cohort.b_borrows(change=stops_after(2))
            await cohort.submit("owner", cohort.a)
            victim = await cohort.victim(*borrowers)
            await first.aclose()
            await stage.leads("dispatcher-two")
            await stage.until(running, "owner")
            assert await cohort.waiting(*borrowers) == [victim]
            await cohort.finish("owner", *borrowers)


async def test_a_mark_that_was_written_and_nobody_said_so_stops_nobody_else(stage: Stage, cohort: Cohort) -> None:
    await cohort.share()
    async with stage.dispatcher():
        borrowers = await cohort.b_borrows()
        stage.history.lose_answer("patch", "jobs")
        await cohort.run("owner", cohort.a)
        assert len(await cohort.waiting(*borrowers)) == 1
        assert sum(any(is_marked(job) for job in cohort.lives_of(name)) for name in borrowers) == 1
        await cohort.finish("owner", *borrowers)


async def test_a_management_cluster_that_is_cut_off_while_a_victim_stops_is_waited_for(
    stage: Stage, cohort: Cohort
) -> None:
    await cohort.share()
    async with stage.dispatcher():
        victim, other, worker = await cohort.a_takes_back(change=stops_after(1))
        stage.cut(MANAGEMENT)

        async def no_pods() -> bool:
            return not await cohort.live_pods(worker, victim)

        await eventually(no_pods)
        assert cluster_of(await stage.job(victim)) == worker, "nobody could write down that it is gone"
        stage.mend(MANAGEMENT)
        await stage.until(running, "owner")
        assert await cohort.waiting(victim, other) == [victim]
        await cohort.finish("owner", victim, other)


async def test_a_victim_on_a_worker_that_is_lost_makes_room_when_it_is_started_elsewhere(
    stage: Stage, cohort: Cohort
) -> None:
    """Without a fence the queue's onWorkerLost decides; who waits for it goes to the worker that is there."""
    await cohort.share(onWorkerLost=REDISPATCH)
    async with stage.dispatcher():
        victim, other, lost = await cohort.a_takes_back(change=stops_after(3))
        stage.cut(lost)
        job = await stage.until(running, "owner")
        assert cluster_of(job) != lost
        await cohort.told("WorkerLost", rf"{lost}.*started elsewhere", victim)
        stage.mend(lost)
        await stage.cluster_condition(lost, "Ready", "True")
        await cohort.finish("owner", victim, other)


async def test_a_victim_on_a_worker_that_is_waited_for_keeps_its_quota_until_it_is_back(
    stage: Stage, cohort: Cohort
) -> None:
    """It may run there: what it uses is nobody else's before its pods are seen to be gone."""
    await cohort.share(onWorkerLost={"action": "Wait"})
    async with stage.dispatcher() as dispatcher:
        victim, other, lost = await cohort.a_takes_back(change=stops_after(2))
        stage.cut(lost)
        await cohort.told("WorkerLost", "the queue says to wait for it", victim)
        await dispatcher.idle()
        assert waits(await stage.job("owner"))
        assert cluster_of(await stage.job(victim)) == lost
        assert not is_marked(await stage.job(other)), "nobody is stopped a second time for the same room"
        stage.mend(lost)
        await stage.until(running, "owner")
        assert await cohort.live_pods(lost, victim) == []
        await cohort.finish("owner", victim, other)


async def test_room_on_a_worker_that_is_lost_is_looked_for_elsewhere_at_once(stage: Stage, cohort: Cohort) -> None:
    """There is quota, and room for one on each worker. The first victim was told in vain."""
    await cohort.share("2", onWorkerLost={"action": "Wait"})
    await cohort.change(cohort.b, quota={"resources": {"cpu": "0"}})
    await cohort.change(cohort.a, quota={"resources": {"cpu": "4"}})
    for worker in stage.workers:
        await stage.set_worker(worker, capacity={"mode": "Declared", "resources": {"cpu": "1"}})
    async with stage.dispatcher():
        victim, other, lost = await cohort.a_takes_back(change=stops_after(3))
        stage.cut(lost)
        job = await stage.until(running, "owner")
        assert cluster_of(job) != lost
        assert waits(await stage.job(other))
        stage.mend(lost)
        await stage.until(waits, victim)
        await cohort.finish("owner", victim, other)


async def test_a_worker_that_is_removed_while_a_victim_stops_there_is_not_waited_for(
    stage: Stage, cohort: Cohort
) -> None:
    await cohort.share(onWorkerLost=REDISPATCH)
    async with stage.dispatcher():
        victim, other, lost = await cohort.a_takes_back(change=stops_after(2))
        await stage.remove(lost)
        job = await stage.until(running, "owner")
        assert cluster_of(job) != lost
        await cohort.finish("owner", victim, other)


@pytest.mark.parametrize("told", ["after", pytest.param("before", marks=pytest.mark.real_server)])
async def test_with_a_fence_a_victim_that_is_cut_off_gives_its_quota_when_its_worker_must_have_ended_it(
    stage: Stage, cohort: Cohort, monkeypatch: pytest.MonkeyPatch, told: str
) -> None:
    """Cut off before, or after, its worker was told to stop it. Real API servers take fences of ten seconds or more."""
    monkeypatch.setattr("multimirror.api.mirror_queues.SHORTEST_FENCE", 1)
    seconds = 8 if stage.kind == "embedded" else 10
    fence = {"timeout": f"{seconds}s", "grace": "1s"}
    await cohort.share(fence=fence, onWorkerLost=REDISPATCH, maxPriority=100, placement="Ordered")
    first, second = stage.workers
    async with stage.dispatcher():
        await stage.set_worker(first, maxJobs=1)
        await cohort.run("b-1", cohort.b, change=stops_at_once if told == "before" else stops_after(2, grace=3))
        await stage.set_worker(second, maxJobs=5)
        await cohort.run("b-2", cohort.b, change=stops_at_once, priority=10)
        assert [await cohort.worker_of(name) for name in ("b-1", "b-2")] == [first, second]
        if told == "before":
            stage.history.delay("patch", "jobs", 60.0, first)
        await cohort.submit("owner", cohort.a, change=stops_at_once)
        await cohort.victim("b-1")
        stage.cut(first)
        since = asyncio.get_running_loop().time()
        job = await stage.until(lambda each: cluster_of(each) is not None, "owner")
        assert cluster_of(job) == second
        assert asyncio.get_running_loop().time() - since >= seconds, "its worker was noticed to be lost before that"
        assert await cohort.live_pods(first, "b-1") == [], "by its own deadline, or because it was told"
        if told == "before":
            copy = await until(stage.workers[first], JOBS, stage.namespace, "b-1", finished)
            assert "DeadlineExceeded" in str(copy["status"]["conditions"])
        stage.mend(first)
        await stage.cluster_condition(first, "Ready", "True")
        await cohort.finish("owner")
        again = await stage.until(running, "b-1")
        assert note(again, ATTEMPT_ANNOTATION) == "2"
        await cohort.finish("b-1", "b-2")
