"""How long a queue waits for its own quota: from the mark on the Job that is stopped until the pod of its own runs.

Two queues of a cohort: one borrows what is the other's, which then has a Job of its own. The pods that are stopped take
two seconds over it, whoever tells them to. So the figure that counts is what comes on top: everything but the time from
a pod's being told to stop until it is gone. The reference is what is promised for that: one second.

The moments in between say where it is spent. Kubernetes' Job controller looks at a Job a second after a pod of it went,
and only then does its status say that none is left: whoever goes by that waits for a second more. Beside it stands how
late that is with the bare Job controller: of a Job that is suspended directly on the worker, from its pod's being gone
until its status says so.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from bench.frame.fleets import RealFleet, real_fleet
from bench.frame.generator import MANAGEMENT, NAMESPACE, a_job, delete_one
from bench.frame.parts import Part
from bench.frame.results import Recorder, percentile
from clusters.nodes import PREFIX
from multimirror.api import MIRROR_QUEUES, PREEMPTED_ANNOTATION, QUEUE_LABEL
from multimirror.api.placement import cluster_of
from multimirror.kube import Change, Informer
from multimirror.kube.resources import JOBS, PODS

_OWNER: Final = "owner"
_BORROWER: Final = "borrower"
_BARE: Final = "bare"
_STOP_SECONDS: Final = 2
_PROMISE: Final = 1.0
_STUCK: Final = 120.0
_STEPS: Final = (
    ("the mark is written, until the pod is told to stop", "marked", "told"),
    ("the pod stops", "told", "gone"),
    ("it is gone, until the stopped Job has no worker any more", "gone", "freed"),
    ("until the other one has it", "freed", "placed"),
    ("until its pod runs", "placed", "runs"),
)


async def measure(recorder: Recorder, sizes: Sequence[int]) -> None:
    """One fleet for all sizes."""
    async with real_fleet() as fleet:
        recorder.say("the fleet is up")
        await _share(fleet)
        async with _following(fleet) as moments:
            await _round(fleet, moments, 0)  # warm-up
            for size in sizes:
                await _reclaims(recorder, fleet, moments, size)


async def _reclaims(recorder: Recorder, fleet: RealFleet, moments: "_Moments", size: int) -> None:
    found = [await _round(fleet, moments, number) for number in range(1, size + 1)]
    bare = [await _suspended(fleet, moments, number) for number in range(size)]
    total = [each["runs"] - each["marked"] for each in found]
    stops = [each["gone"] - each["told"] for each in found]
    over = [whole - stop for whole, stop in zip(total, stops, strict=True)]
    recorder.percentiles("from the mark until the pod of the other Job runs", size, total)
    recorder.percentiles("the stopped pod takes", size, stops)
    recorder.percentiles("on top of that", size, over)
    recorder.percentiles("a pod is gone, until the bare Job controller says so", size, bare)
    recorder.ratio("on top of the pods' own time, p90 : promised", size, percentile(over, 90) / _PROMISE)
    spent = {step: [1000 * (each[end] - each[start]) for each in found] for step, start, end in _STEPS}
    rows = [(step, percentile(each, 50), percentile(each, 90)) for step, each in spent.items()]
    recorder.table("Where the time of a reclaim goes", ("step", "p50, ms", "p90, ms"), rows)
    for step, middle, most in rows:
        recorder.say(f"{step}: {middle:.0f} ms, p90 {most:.0f} ms")


async def _share(fleet: RealFleet) -> None:
    for name, own in ((_OWNER, "1"), (_BORROWER, "0")):
        spec = {"cohort": "bench", "quota": {"resources": {"cpu": own}}, "retention": "0s"}
        about = {"apiVersion": MIRROR_QUEUES.api_version, "kind": MIRROR_QUEUES.kind, "metadata": {"name": name}}
        await fleet.management.create(MIRROR_QUEUES, {**about, "spec": spec})


async def _round(fleet: RealFleet, moments: "_Moments", number: int) -> dict[str, float]:
    """One reclaim. Gives its moments."""
    victim, owner = f"{_BORROWER}-{number}", f"{_OWNER}-{number}"
    await fleet.management.create(JOBS, _job(victim, _BORROWER), NAMESPACE)
    await moments.until(f"{victim} runs")
    await fleet.management.create(JOBS, _job(owner, _OWNER), NAMESPACE)
    await moments.until(f"{owner} runs")
    await moments.until(f"{victim} freed")
    for name in (victim, owner):
        await delete_one(fleet.management, name)
        await moments.until(f"{name} away")
    named = {step: moments.seen[f"{victim} {step}"] for step in ("marked", "told", "gone", "freed")}
    return named | {step: moments.seen[f"{owner} {step}"] for step in ("placed", "runs")}


async def _suspended(fleet: RealFleet, moments: "_Moments", number: int) -> float:
    """A Job directly on a worker is suspended: how late its status says that its pod is gone."""
    worker, name = next(iter(fleet.workers.values())), f"{_BARE}-{number}"
    await worker.create(JOBS, _job(name, None), NAMESPACE)
    await moments.until(f"{name} runs")
    await worker.patch(JOBS, name, {"spec": {"suspend": True}}, NAMESPACE)
    await moments.until(f"{name} counted")
    await delete_one(worker, name)
    return moments.seen[f"{name} counted"] - moments.seen[f"{name} gone"]


def _job(name: str, queue: str | None) -> dict[str, Any]:
    job = a_job(name, managed=queue is not None, forever=True)
    template = job["spec"]["template"]
    template["metadata"]["annotations"][f"{PREFIX}ignore-sigterm"] = f"{_STOP_SECONDS}s"
    template["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    if queue is not None:
        job["metadata"]["labels"][QUEUE_LABEL] = queue
    return job


class _Moments:
    """When something was first seen, by what it was."""

    def __init__(self) -> None:
        self.seen: dict[str, float] = {}
        self._news = asyncio.Event()

    def note(self, name: str, what: str) -> None:
        self.seen.setdefault(f"{name} {what}", time.perf_counter())
        self._news.set()

    async def until(self, what: str) -> None:
        try:
            async with asyncio.timeout(_STUCK):
                while what not in self.seen:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise TimeoutError(f"{what}: not seen after {_STUCK:.0f} s") from None

    def original(self, change: Change) -> None:
        name, job = change.object["metadata"]["name"], change.new
        if job is None:
            self.note(name, "deleted")
            return
        marked = PREEMPTED_ANNOTATION in (job["metadata"].get("annotations") or {})
        if marked:
            self.note(name, "marked")
        elif f"{name} marked" in self.seen and cluster_of(job) is None:
            self.note(name, "freed")
        if cluster_of(job) is not None:
            self.note(name, "placed")

    def copy(self, change: Change) -> None:
        name, job = change.object["metadata"]["name"], change.new
        if job is None:
            self.note(name, "away")
            return
        status = job.get("status") or {}
        if job["spec"].get("suspend") and f"{name} told" in self.seen:
            if not status.get("active") and not status.get("terminating"):
                self.note(name, "counted")

    def pod(self, change: Change) -> None:
        name = change.object["metadata"].get("labels", {}).get("batch.kubernetes.io/job-name", "")
        if change.new is None:
            self.note(name, "gone")
        elif "deletionTimestamp" in change.new["metadata"]:
            self.note(name, "told")
        elif (change.new.get("status") or {}).get("phase") == "Running":
            self.note(name, "runs")


@asynccontextmanager
async def _following(fleet: RealFleet) -> AsyncIterator[_Moments]:
    """While inside."""
    moments = _Moments()
    async with contextlib.AsyncExitStack() as stack:

        async def follow(cluster: str, resource: Any, handler: Callable[[Change], None]) -> None:
            informer = Informer(fleet.clients[cluster], resource, NAMESPACE)
            informer.add_handler(handler)
            await stack.enter_async_context(informer)
            await informer.synced()

        await follow(MANAGEMENT, JOBS, moments.original)
        for worker in fleet.workers:
            await follow(worker, JOBS, moments.copy)
            await follow(worker, PODS, moments.pod)
        yield moments


PART: Final = Part(
    name="reclaim",
    about="a queue takes its own quota back: from the mark until its pod runs; beside the time in which pods stop",
    unit="reclaims one by one",
    sizes=(20,),
    fleet="local",
    seconds=lambda sizes: 40 + sum(16 * size for size in sizes),
    measure=measure,
)
