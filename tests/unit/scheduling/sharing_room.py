"""What could be, by the rules, and slowly: whether a Job could ever run, and whether others may be stopped for it."""

from collections.abc import Mapping
from typing import Any

from multimirror.api.placement import admitted_queue_of, claim_of, cluster_of, preempted_of, preemptions_of
from multimirror.batch import is_finished
from multimirror.kinds import JOB
from multimirror.kinds.pod_sets import Amounts, nanos, total
from multimirror.kinds.reserved import reserved_of
from tests.unit.scheduling.reference_quota import Reference
from tests.unit.scheduling.sharing_plan_checks import MOST_STOPS
from tests.unit.scheduling.sharing_world import SharingWorld, requests_of

Json = dict[str, Any]


def could_fit(world: SharingWorld, job: Json) -> bool:
    """If nothing else ran anywhere: by quota, and on a worker."""
    queue, asked = job["metadata"]["labels"]["multimirror.dev/queue"], total(JOB.pod_sets(job))
    most = {name: Reference(world.queues, world.cohorts, {}).most(queue, name) for name in asked}
    if any(limit is not None and asked[name] > limit for name, limit in most.items()):
        return False
    if world.nodes:
        pods = job["spec"]["parallelism"]
        return any(nodes.slots_when_empty(requests_of(job)) >= pods for nodes in world.nodes.values())
    return any(_fits(asked, capacity) for capacity in world.capacities.values())


def makes_room(world: SharingWorld, queue: str, asked: Amounts) -> str | None:
    """A worker on which there is room, and quota, for what is within a queue's own, when those are gone that may be
    stopped for it there by Reclaim; None: there is none, or something is kept for others, or nodes are counted."""
    running = [job for job in world.jobs() if cluster_of(job) and not is_finished(job.get("status") or {})]
    if world.nodes or any(preempted_of(job) for job in running) or any(claim_of(job) for job in world.jobs()):
        return None
    return next((worker for worker in world.capacities if _makes_room(world, queue, asked, running, worker)), None)


def _makes_room(world: SharingWorld, queue: str, asked: Amounts, running: list[Json], worker: str) -> bool:
    rest = list(running)

    def lacking() -> list[str]:
        here = [_charged(job) for job in rest if cluster_of(job) == worker]
        left = {name: nanos(there) - sum(each.get(name, 0) for each in here) for name, there in _room(world, worker)}
        return [name for name, amount in asked.items() if name in left and amount > left[name]]

    for job in running:
        if cluster_of(job) == worker and _gives(world, (queue, asked), job, rest, lacking()):
            rest.remove(job)
    there = _reference(world, rest)
    limits = {name: there.available(queue, name) for name in asked}
    return not lacking() and all(limit is None or asked[name] <= limit for name, limit in limits.items())


def _gives(
    world: SharingWorld, wanted: tuple[str, Amounts], job: Json, running: list[Json], contended: list[str]
) -> bool:
    """At the nearest fork our side is within its quota with what is asked, and all of theirs is over its own."""
    queue, asked = wanted
    theirs, reserved = admitted_queue_of(job) or "", reserved_of(job)
    if theirs == queue or theirs not in world.queues or reserved is None or not reserved.preemptible:
        return False
    if preemptions_of(job) >= MOST_STOPS or not world.watch.has_run(job):
        return False
    there = _reference(world, running)
    ours, path = there.path(queue), there.path(theirs)
    fork = next((place for place in path if place in ours), None)
    if fork is None:
        return False
    after = _reference(world, running, {queue: asked})
    counted = [name for name in asked if there.counts(queue, name)]
    if any(after.over(place, name) > 0 for place in ours[: ours.index(fork)] for name in counted):
        return False
    return any(
        _charged(job).get(name, 0) > 0 and all(there.over(place, name) > 0 for place in path[: path.index(fork)])
        for name in contended
        if name in counted and there.counts(theirs, name)
    )


def _reference(world: SharingWorld, running: list[Json], more: Mapping[str, Amounts] | None = None) -> Reference:
    charged: dict[str, dict[str, int]] = {name: dict(amounts) for name, amounts in (more or {}).items()}
    for job in running:
        sums = charged.setdefault(admitted_queue_of(job) or "", {})
        for name, amount in _charged(job).items():
            sums[name] = sums.get(name, 0) + amount
    return Reference(world.queues, world.cohorts, charged)


def _charged(job: Json) -> Amounts:
    reserved = reserved_of(job)
    return reserved.requests if reserved is not None else {}


def _room(world: SharingWorld, worker: str) -> list[tuple[str, int]]:
    return list(world.capacities[worker].items())


def _fits(asked: Amounts, capacity: Mapping[str, int]) -> bool:
    return all(amount <= nanos(capacity[name]) for name, amount in asked.items() if name in capacity)
