"""One run: people do their steps, faults strike as planned, and when all has come to rest the record is checked."""

import asyncio
import contextlib
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from builtin_controller import Options as JobOptions
from faults.backends import MANAGEMENT, ClusterBackend
from faults.charges import counts
from faults.commands import Processes
from faults.hostile.bystanders import FORGED, USURPED, bystanders, judge, not_at_rest, touched_by
from faults.invariants import at_rest, check
from faults.record import Record
from faults.rules import Rules, Violation
from faults.scenario import GRACE, Scenario, queue_name
from faults.stage import DISPATCHER, Stage, declared
from faults.statuses import ends
from faults.workload import Step, a_job, a_shared_job
from multimirror.api import (
    ATTEMPT_ANNOTATION,
    ATTEMPT_LABEL,
    CLUSTER_ANNOTATION,
    HOLD_ANNOTATION,
    MIRROR_QUEUES,
    ORIGIN_LABEL,
    ORIGIN_UID_LABEL,
    PREEMPTED_ANNOTATION,
    WORKER_CLUSTERS,
)
from multimirror.kube import ApiError
from multimirror.kube.errors import AlreadyExists, Conflict, NotFound
from multimirror.kube.resources import JOBS, NAMESPACES
from multimirror.options import DispatcherOptions

Json = dict[str, Any]
_REST: Final = 600.0  # seconds until everything must have come to rest
_CHANCE: Final = 30.0  # how long after the last step faults may still strike
_NOW: Final = "2027-01-15T08:00:00Z"
_QUIET: Final = 20.0  # and for how long it has to stay so
_RESTLESS: Final = ("Lease", "MirrorQueue", "Cohort")  # a leader renews the one for ever; the others count times


@dataclass(slots=True)
class Outcome:
    """What became of a run."""

    scenario: Scenario
    violations: list[Violation]
    faults: Counter[str]
    writes: int
    seconds: float
    """As the fleet's clock counts them."""
    ends: dict[str, str] = field(default_factory=dict)
    sharing: Counter[str] = field(default_factory=Counter)
    """Of runs in which queues share: how much."""
    record: Record = field(default_factory=Record)


@dataclass(frozen=True, slots=True)
class Pace:
    """How the scenario's seconds become seconds: real control planes are not made to wait for nothing."""

    factor: float = 1.0
    look: float = 0.5
    rest: float = _REST
    quiet: float = _QUIET
    options: DispatcherOptions = field(default_factory=DispatcherOptions)


async def run(
    scenario: Scenario,
    backend: ClusterBackend,
    pace: Pace | None = None,
    *,
    namespace: str = "team",
    processes: Processes | None = None,
) -> Outcome:
    """The whole run."""
    pace = pace or Pace()
    queue = f"queue-{namespace}"
    lost_after, retention = (float(math.ceil(each * pace.factor)) for each in (scenario.lost_after, scenario.retention))
    rules = Rules(
        dispatcher=DISPATCHER,
        when_lost=scenario.when_lost,
        lost_after=lost_after,
        fence=scenario.fence,
        fenced=scenario.fenced(queue),
        grace=GRACE,
        retention=0.0,
        heard_late=0.05 if processes is None else 1.0,
        ends=scenario.expected(),
    )
    slowed = replace(scenario, lost_after=lost_after, retention=retention)  # a queue counts whole seconds
    specs = slowed.queue_specs(queue)
    plan = [replace(f, at=f.at * pace.factor, seconds=f.seconds * pace.factor) for f in scenario.plan]
    loop = asyncio.get_running_loop()
    async with Stage(
        backend,
        plan,
        namespace=namespace,
        queue=queue,
        queue_spec=specs.pop(queue),
        queues=specs,
        cohorts=scenario.sharing.cohorts if scenario.sharing is not None else None,
        capacity=scenario.sharing.capacity if scenario.sharing is not None else None,
        options=pace.options,
        pod_backoff=JobOptions().pod_backoff_base * pace.factor,
        processes=processes,
        hostile={scenario.hostile: scenario.tricks} if scenario.hostile else None,
        seed=scenario.seed,
    ) as stage:
        began = loop.time()
        await stage.start()
        async with asyncio.TaskGroup() as group:
            group.create_task(stage.injector.run())
            turns = {
                (step.do, step.name): asyncio.Event() for step in scenario.steps if step.do in ("submit", "suspend")
            }
            for step in scenario.steps:
                group.create_task(_in_turn(stage, step, pace, turns), name=str(step))
            group.create_task(_while_faults_wait(stage, scenario, pace))
        stage.injector.stop()
        await stage.start()
        rests = await _come_to_rest(stage.record, rules, pace, scenario.hostile)
        violations = judge(stage.record, rules, scenario.hostile) if scenario.hostile else check(stage.record, rules)
        if not rests and not violations and scenario.sharing is not None:
            violations.append(Violation("P4", f"nothing is wrong, and in {pace.rest:g} s it did not come to rest"))
        return Outcome(
            scenario,
            violations,
            stage.record.counts(),
            sum(1 for _ in stage.record.writes()),
            loop.time() - began,
            ends(stage.record, rules),
            counts(stage.record, rules) if scenario.sharing is not None else Counter(),
            stage.record,
        )


async def _while_faults_wait(stage: Stage, scenario: Scenario, pace: Pace) -> None:
    """Faults that wait for a request get their chance: for a while after the last step."""
    last = max([*(step.at for step in scenario.steps), *(fault.at for fault in scenario.plan)], default=0.0)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout((last + _CHANCE) * pace.factor):
            await stage.injector.spent.wait()


async def _come_to_rest(record: Record, rules: Rules, pace: Pace, hostile: str = "") -> bool:
    """Until the end is reached and stays; or until it is clear that it never will be. A hostile worker never rests.
    Gives whether it was reached."""
    loop = asyncio.get_running_loop()
    deadline, since, seen = loop.time() + pace.rest, None, -1
    while loop.time() < deadline:
        part = bystanders(record, rules, hostile, touched_by(record, rules, hostile)) if hostile else record
        changes = sum(1 for each in part.seen if each.kind not in _RESTLESS)
        if changes != seen or since is None:
            seen = changes
            if not_at_rest(record, rules, hostile) if hostile else at_rest(record, rules):
                since = None
            elif since is None or not rules.fence:  # with a fence leases are renewed: there are always changes
                since = loop.time()
        if since is not None and loop.time() - since >= pace.quiet:
            return True
        await asyncio.sleep(pace.look)
    return False


async def _in_turn(stage: Stage, step: Step, pace: Pace, turns: Mapping[tuple[str, str], asyncio.Event]) -> None:
    """At its time; but nothing is done to a Job before its submission is through, which may be tried again, nor is it
    resumed before it was suspended: one that is stopped for others looks like that, too."""
    await asyncio.sleep(step.at * pace.factor)
    if step.do not in ("submit", "squat"):
        stopped = turns.get(("suspend", step.name)) if step.do == "resume" else None
        before = stopped or turns.get(("submit", step.name))
        if before is not None:
            await before.wait()
    await _do(stage, step, pace)
    if (step.do, step.name) in turns:
        turns[step.do, step.name].set()


async def _do(stage: Stage, step: Step, pace: Pace) -> None:
    action: Callable[[Stage, Step, Pace], Any] = _STEPS[step.do]
    loop = asyncio.get_running_loop()
    until = loop.time() + pace.rest
    while loop.time() < until:
        try:
            await action(stage, step, pace)
        except (Conflict, _NotYetError):
            await asyncio.sleep(pace.look)
        except NotFound:
            return
        except ApiError:
            await asyncio.sleep(pace.look)  # the API server is being restarted
        else:
            return


class _NotYetError(Exception):
    """It cannot be done yet."""


async def _submit(stage: Stage, step: Step, pace: Pace) -> None:
    job = a_shared_job(step, queue_name(stage.queue, step.queue), step.value * pace.factor)
    with contextlib.suppress(AlreadyExists):
        await stage.people[MANAGEMENT].create(JOBS, job, stage.namespace)


async def _delete(stage: Stage, step: Step, _: Pace) -> None:
    await stage.people[MANAGEMENT].delete(JOBS, step.name, stage.namespace, propagation="Background")


async def _suspend(stage: Stage, step: Step, _: Pace) -> None:
    """A user stops a Job that is seen to run: before it was placed, it cannot be held back."""
    client = stage.people[MANAGEMENT]
    job = await client.get(JOBS, step.name, stage.namespace)
    annotations = job["metadata"].get("annotations", {})
    if not (job.get("status") or {}).get("ready") or CLUSTER_ANNOTATION not in annotations:
        raise _NotYetError
    if job["spec"].get("suspend") or PREEMPTED_ANNOTATION in annotations:
        raise _NotYetError  # it is being stopped for others: whoever asks for the same changes nothing
    await _patch(stage, job, {"suspend": True})


async def _resume(stage: Stage, step: Step, _: Pace) -> None:
    client = stage.people[MANAGEMENT]
    job = await client.get(JOBS, step.name, stage.namespace)
    annotations = job["metadata"].get("annotations", {})
    if not (annotations.keys() & {CLUSTER_ANNOTATION, HOLD_ANNOTATION}) or not job["spec"].get("suspend"):
        raise _NotYetError
    await _patch(stage, job, {"suspend": False})


async def _scale(stage: Stage, step: Step, _: Pace) -> None:
    job = await stage.people[MANAGEMENT].get(JOBS, step.name, stage.namespace)
    await _patch(stage, job, {"parallelism": int(step.value)})


async def _patch(stage: Stage, job: Json, spec: Json) -> None:
    metadata = job["metadata"]
    body = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "spec": spec}
    await stage.people[MANAGEMENT].patch(JOBS, metadata["name"], body, stage.namespace)


async def _vanish(stage: Stage, step: Step, _: Pace) -> None:
    """Somebody deletes a copy on its worker."""
    job = await stage.people[MANAGEMENT].get(JOBS, step.name, stage.namespace)
    worker = job["metadata"].get("annotations", {}).get(CLUSTER_ANNOTATION)
    if worker in stage.people:
        await stage.people[worker].delete(JOBS, step.name, stage.namespace, propagation="Background")


async def _cordon(stage: Stage, step: Step, _: Pace) -> None:
    spec = {"cordoned": step.do == "cordon"}
    await stage.people[MANAGEMENT].patch(WORKER_CLUSTERS, step.name, {"spec": spec})


async def _narrow(stage: Stage, step: Step, _: Pace) -> None:
    """A worker is from now on for another namespace, or again for all of them."""
    spec = {"namespaces": [{"name": f"not-{stage.namespace}"}] if step.do == "narrow" else None}
    await stage.people[MANAGEMENT].patch(WORKER_CLUSTERS, step.name, {"spec": spec})


async def _limit(stage: Stage, step: Step, _: Pace) -> None:
    spec = {"quota": {"jobs": int(step.value)}}
    await stage.people[MANAGEMENT].patch(MIRROR_QUEUES, stage.queue, {"spec": spec})


async def _place(stage: Stage, step: Step, _: Pace) -> None:
    await stage.people[MANAGEMENT].patch(MIRROR_QUEUES, stage.queue, {"spec": {"placement": step.sort}})


async def _own(stage: Stage, step: Step, _: Pace) -> None:
    """A queue that shares has another quota of its own."""
    spec = {"quota": {"resources": {"cpu": int(step.value)}, "lend": None}}
    await stage.people[MANAGEMENT].patch(MIRROR_QUEUES, queue_name(stage.queue, step.queue), {"spec": spec})


async def _hold(stage: Stage, step: Step, _: Pace) -> None:
    spec = {"hold": step.sort}
    await stage.people[MANAGEMENT].patch(MIRROR_QUEUES, queue_name(stage.queue, step.queue), {"spec": spec})


async def _enlarge(stage: Stage, step: Step, _: Pace) -> None:
    """From now on there is room for everybody, in every queue and on every worker."""
    client, cpu = stage.people[MANAGEMENT], int(step.value)
    for worker in stage.workers:
        await client.patch(WORKER_CLUSTERS, worker, {"spec": {"capacity": declared(cpu)}})
    for queue in stage.queues:
        quota = {"resources": {"cpu": cpu}, "lend": None, "jobs": None}
        await client.patch(MIRROR_QUEUES, queue, {"spec": {"quota": quota, "hold": "None"}})


async def _rotate(stage: Stage, step: Step, _: Pace) -> None:
    """Other credentials for the same cluster."""
    await stage.set_kubeconfig(step.name, mark="-rotated")


async def _squat(stage: Stage, step: Step, pace: Pace) -> None:
    """Somebody else has a Job of that name on a worker."""
    job = a_job(step.name, "forever", "nobody", 0.0)
    del job["spec"]["managedBy"], job["metadata"]["labels"]
    worker = stage.workers[int(step.value) % len(stage.workers)]
    with contextlib.suppress(AlreadyExists):
        await stage.people[worker].create(JOBS, job, stage.namespace)


async def _forge(stage: Stage, step: Step, _: Pace) -> None:
    """A neighbour on a worker has a finished Job that looks like a copy of this one, and cannot be deleted."""
    job = await stage.people[MANAGEMENT].get(JOBS, step.name, stage.namespace)
    name = f"{step.name}-forged" if int(step.at) % 2 else step.name
    await _made_to_look_like(stage, stage.workers[int(step.value) % len(stage.workers)], name, job)


async def _usurp(stage: Stage, step: Step, _: Pace) -> None:
    """A neighbour deletes a copy, and puts a finished Job of its own in its place, with all its labels."""
    job = await stage.people[MANAGEMENT].get(JOBS, step.name, stage.namespace)
    worker = job["metadata"].get("annotations", {}).get(CLUSTER_ANNOTATION)
    if worker in stage.people and not (job.get("status") or {}).get("conditions"):
        copy = await stage.people[worker].get(JOBS, step.name, stage.namespace)
        await stage.people[worker].delete(JOBS, step.name, stage.namespace, propagation="Background")
        await _made_to_look_like(stage, worker, step.name, job, copy["metadata"].get("labels"))


async def _made_to_look_like(stage: Stage, worker: str, name: str, job: Json, labels: Json | None = None) -> None:
    """`labels`: those of the copy whose place it takes."""
    home = await stage.people[MANAGEMENT].get(NAMESPACES, "kube-system")
    annotations = job["metadata"].get("annotations") or {}
    known = labels or await _labels_of_its_copy(stage, job)
    forged = a_job(name, "one", "nobody", 0.0)
    del forged["spec"]["managedBy"]
    forged["metadata"] |= {
        "labels": {
            **known,
            ORIGIN_LABEL: home["metadata"]["uid"],
            ORIGIN_UID_LABEL: job["metadata"]["uid"],
            ATTEMPT_LABEL: annotations.get(ATTEMPT_ANNOTATION, "1"),
        },
        "annotations": {FORGED: "true" if labels is None else USURPED},
        "finalizers": ["example.com/for-ever"],
    }
    client = stage.people[worker]
    with contextlib.suppress(AlreadyExists):
        await client.create(JOBS, forged, stage.namespace)
        times = {"lastProbeTime": _NOW, "lastTransitionTime": _NOW}
        conditions = [{"type": kind, "status": "True", **times} for kind in ("SuccessCriteriaMet", "Complete")]
        status = {"startTime": _NOW, "completionTime": _NOW, "succeeded": 1, "conditions": conditions}
        await client.patch(JOBS, name, {"status": status}, stage.namespace, subresource="status")


async def _labels_of_its_copy(stage: Stage, job: Json) -> Json:
    """Whoever may read Jobs on a worker can read them there, the signature too."""
    worker = job["metadata"].get("annotations", {}).get(CLUSTER_ANNOTATION)
    with contextlib.suppress(ApiError):
        if worker in stage.people:
            copy = await stage.people[worker].get(JOBS, job["metadata"]["name"], stage.namespace)
            return dict(copy["metadata"].get("labels") or {})
    return {}


_STEPS: Final[dict[str, Callable[[Stage, Step, Pace], Any]]] = {
    "submit": _submit,
    "delete": _delete,
    "suspend": _suspend,
    "resume": _resume,
    "scale": _scale,
    "vanish": _vanish,
    "cordon": _cordon,
    "uncordon": _cordon,
    "narrow": _narrow,
    "widen": _narrow,
    "limit": _limit,
    "place": _place,
    "own": _own,
    "hold": _hold,
    "enlarge": _enlarge,
    "rotate": _rotate,
    "squat": _squat,
    "forge": _forge,
    "usurp": _usurp,
}
