"""Where a Job is on its way, and why it is not further: for tools that ask over HTTP (`/explain?job=NAMESPACE/NAME`).

The same is told on the Job itself (event `Waiting`), but an event lives for an hour and is repeated only when the
reason changes; this is the present. Answers are plain JSON values.

Whoever follows the clusters can answer, and every replica does: behind a Service nobody knows which one he asks. Only
the one that leads decides, so it alone knows what each worker has to say about a Job that waits; the others tell what
it has reported of the queue. `leads` says which of the two it was.
"""

from multimirror.batch import Json
from multimirror.observe.snapshot import DecisionView, JobView


def explanation(view: JobView, *, leads: bool) -> Json:
    answer: Json = {
        "job": view.key,
        "uid": view.uid,
        "queue": view.queue,
        "state": view.state,
        "attempt": view.attempt,
        "leads": leads,
    }
    if view.cluster is not None:
        answer |= {"cluster": view.cluster, "connected": view.connected}
    return answer | (_reasons(view.decision, leads=leads) if view.decision is not None else {})


def _reasons(decision: DecisionView, *, leads: bool) -> Json:
    told: Json = {"reason": decision.reason, "message": decision.message, "why": decision.why}
    if leads:
        told["workers"] = [{"name": each.name, "fits": each.fits, "message": each.message} for each in decision.workers]
    return told
