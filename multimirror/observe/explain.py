"""Where a Job is on its way, and why it is not further: for tools that ask over HTTP (`/explain?job=NAMESPACE/NAME`).

The same is told on the Job itself (event `Waiting`), but an event lives for an hour and is repeated only when the
reason changes; this is the present. Answers are plain JSON values.
"""

from multimirror.api.placement import attempt_of, cluster_of, is_held
from multimirror.batch import Json, is_finished
from multimirror.kube import key_of
from multimirror.reconcile.cache import Knowledge
from multimirror.scheduling.plan import PlacementDecision
from multimirror.scheduling.scheduler import Scheduler


def explained(key: str, known: Knowledge, scheduler: Scheduler) -> Json | None:
    """What there is to say about a Job; None where we know no such Job."""
    job = known.originals.informer.get(key)
    uid = job["metadata"]["uid"] if job is not None else ""
    if job is None or known.originals.get(uid) is None:
        return None
    answer: Json = {
        "job": key_of(job),
        "uid": uid,
        "queue": known.originals.queue_of(job),
        "state": _state(job),
        "attempt": attempt_of(job),
    }
    cluster = cluster_of(job)
    if cluster is not None:
        worker = known.worker(cluster)
        answer |= {"cluster": cluster, "connected": worker is not None and worker.state.connected}
    decision = scheduler.decisions.get(uid)
    return answer | (_reasons(decision) if decision is not None else {})


def _state(job: Json) -> str:
    if is_finished(job.get("status") or {}):
        return "Finished"
    if cluster_of(job) is not None:
        return "Suspended" if job["spec"].get("suspend") else "Assigned"
    return "Held" if is_held(job) else "Waiting"


def _reasons(decision: PlacementDecision) -> Json:
    return {
        "reason": decision.reason,
        "message": str(decision),
        "workers": [{"name": result.worker, "fits": result.fits, "message": result.why} for result in decision.results],
    }
