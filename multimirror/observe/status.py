"""The statuses of WorkerClusters and MirrorQueues, as pure functions of a view and of the status that is there.

What others have written into a status stays. Conditions keep the time of their last transition.
"""

from collections.abc import Mapping
from decimal import Decimal

from multimirror.api import READY
from multimirror.batch import Json
from multimirror.batch.quantities import canonical
from multimirror.batch.times import format_time, seconds_of, utc_datetime
from multimirror.observe.snapshot import MirrorQueueView, QueueHead, WorkerClusterView
from multimirror.workers import WorkerState, conditions, merged_conditions


def worker_cluster_status(view: WorkerClusterView, before: Json, now: float, *, contact_seconds: float) -> Json:
    """`contact_seconds`: so much older may the last contact be in the status than it is."""
    state = view.state
    if state is None:
        return before
    status: Json = {
        **{key: value for key, value in before.items() if key != "misbehaviour"},
        "observedGeneration": view.generation,
        "conditions": merged_conditions(
            before.get("conditions") or [],
            conditions(state, cordoned=view.cordoned),
            now=format_time(utc_datetime(now)),
            generation=view.generation,
        ),
        "jobs": view.jobs,
        "used": _quantities(view.used),
        "kinds": list(view.kinds),
    }
    if state.version:
        status["version"] = state.version
    if state.identity:
        status["identity"] = state.identity
    if state.misbehaviour is not None:
        status["misbehaviour"] = state.misbehaviour.written()
    if view.capacity is not None:
        status["capacity"] = _quantities(view.capacity)
    return status | _contact(state, before, contact_seconds)


def _contact(state: WorkerState, before: Json, contact_seconds: float) -> Json:
    """The last contact, when what is written about it is too old; of a worker that is lost, the first time at once."""
    written = seconds_of(before.get("lastContact"), 0.0)
    if state.last_contact is None or (
        state.last_contact <= written + contact_seconds and (state.connected or written != 0)
    ):
        return {}
    contact: Json = {"lastContact": format_time(utc_datetime(state.last_contact))}
    if state.latency is not None:
        contact["latencyMilliseconds"] = round(state.latency * 1000)
    return contact


def mirror_queue_status(view: MirrorQueueView, before: Json, now: float) -> Json:
    ready = (READY, False, "InvalidSpec", view.problem) if view.problem else (READY, True, "Ready", "Jobs are taken")
    status: Json = {
        **{key: value for key, value in before.items() if key != "head"},
        "observedGeneration": view.generation,
        "conditions": merged_conditions(
            before.get("conditions") or [], [ready], now=format_time(utc_datetime(now)), generation=view.generation
        ),
        "pending": view.pending,
        "running": view.running,
        "finished": view.finished,
        "workers": [{"name": each.name, "running": each.running, "finished": each.finished} for each in view.workers],
    }
    return status | ({"head": _head(view.head)} if view.head is not None else {})


def _head(head: QueueHead) -> Json:
    return {"job": head.job, "since": head.since, "reason": head.reason, "message": head.message}


def _quantities(amounts: Mapping[str, Decimal]) -> dict[str, str]:
    return {name: canonical(f"{amount.normalize():f}") for name, amount in sorted(amounts.items()) if amount}
