"""Where a Job is on its way, and why it is not further: for tools that ask over HTTP (`/explain?job=NAMESPACE/NAME`).

The same is told on the Job itself (event `Waiting`), but an event lives for an hour and is repeated only when the
reason changes; this is the present. Answers are plain JSON values.
"""

from multimirror.batch import Json
from multimirror.observe.snapshot import DecisionView, JobView


def explanation(view: JobView) -> Json:
    answer: Json = {
        "job": view.key,
        "uid": view.uid,
        "queue": view.queue,
        "state": view.state,
        "attempt": view.attempt,
    }
    if view.cluster is not None:
        answer |= {"cluster": view.cluster, "connected": view.connected}
    return answer | (_reasons(view.decision) if view.decision is not None else {})


def _reasons(decision: DecisionView) -> Json:
    return {
        "reason": decision.reason,
        "message": decision.message,
        "workers": [{"name": each.name, "fits": each.fits, "message": each.message} for each in decision.workers],
    }
