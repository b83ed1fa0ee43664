"""The Jobs of the demonstration: a few dozen of every sort, and the queues that they go through.

What a pod does is said twice: in annotations, for simulated nodes, and in its command, for kubelets.
"""

from typing import Final

from clusters.nodes import PREFIX
from faults.rules import Rules
from multimirror.api import CLUSTERS_ANNOTATION, QUEUE_LABEL
from multimirror.batch import Json

LOST_AFTER: Final = 3
_RETENTION: Final = 5
HOPELESS: Final = "hopeless"
"""The Job that is made to fail."""
_LOST: Final = {"after": f"{LOST_AFTER}s", "action": "Redispatch"}
QUEUES: Final[dict[str, Json]] = {
    "batch": {"placement": "Spread", "retention": f"{_RETENTION}s", "onWorkerLost": _LOST},
    "train": {"placement": "Pack", "quota": {"jobs": 4}, "retention": f"{_RETENTION}s", "onWorkerLost": _LOST},
}
RULES: Final = Rules(lost_after=LOST_AFTER, retention=_RETENTION)
CRON_JOB: Final = "tick"
PAUSED: Final = "pause-and-go"
"""The Job that its user suspends and resumes on the way."""
_FAILURES: Final = "batch.kubernetes.io/job-index-failure-count"


def jobs(lost: str, workers: int) -> list[Json]:
    """All of them, in the order in which they are created. `lost`: the worker that will be cut off."""
    indexed = {"completionMode": "Indexed", "completions": 6, "parallelism": 3}
    one_is_enough = {**indexed, "successPolicy": {"rules": [{"succeededCount": 1}]}}
    once_more = {"completionMode": "Indexed", "completions": 2, "parallelism": 2, "backoffLimitPerIndex": 2}
    staying = {CLUSTERS_ANNOTATION: ",".join(f"worker-{n}" for n in range(1, workers + 1) if f"worker-{n}" != lost)}
    return [
        *(_job(f"report-{number:02}", "batch", seconds=3 + number % 7) for number in range(20)),
        *(_job(f"shards-{number}", "batch", indexed, seconds=3) for number in range(3)),
        _job("any-of-six", "batch", one_is_enough, seconds=2),
        _job("second-time-lucky", "batch", once_more, seconds=1, fails_first=True),
        _job(HOPELESS, "batch", {"backoffLimit": 0}, seconds=2, exit_code=7),
        *(_job(f"train-{number:02}", "train", {"parallelism": 2, "completions": 2}, seconds=3) for number in range(16)),
        *(_job(f"long-{number}", "batch", seconds=10) for number in range(3)),  # one is there when the worker is lost
        _job(PAUSED, "batch", seconds=8, annotations=staying if workers > 1 else None),
    ]


def late_jobs() -> list[Json]:
    """Some more, for the worker that is back."""
    return [_job(f"late-{number}", "batch", seconds=2) for number in range(6)]


def ends(created: list[Json]) -> dict[str, str]:
    """How each of them must end."""
    names = [job["metadata"]["name"] for job in created]
    return {name: "Failed BackoffLimitExceeded" if name == HOPELESS else "Complete" for name in names}


def cron_job() -> Json:
    """One that starts a Job every few seconds."""
    template = _job("", "batch", seconds=1)
    del template["metadata"]["name"]
    spec = {"schedule": "@every 5s", "jobTemplate": template, "successfulJobsHistoryLimit": 100}
    return {"metadata": {"name": CRON_JOB}, "spec": spec}


def _job(
    name: str,
    queue: str,
    spec: Json | None = None,
    *,
    seconds: int,
    exit_code: int = 0,
    fails_first: bool = False,
    annotations: dict[str, str] | None = None,
) -> Json:
    behaviour = {f"{PREFIX}duration": f"{seconds}s", f"{PREFIX}log": f"{name or 'tick'}: worked for {seconds} s"}
    command = f"sleep {seconds}; exit {exit_code}"
    container: Json = {"name": "main", "image": "busybox:1"}
    if exit_code:
        behaviour[f"{PREFIX}exit-code"] = str(exit_code)
    if fails_first:
        behaviour[f"{PREFIX}fail-first"] = "1"
        command = f'sleep {seconds}; [ "$FAILURES" -gt 0 ]'
        field = {"fieldRef": {"fieldPath": f"metadata.annotations['{_FAILURES}']"}}
        container["env"] = [{"name": "FAILURES", "valueFrom": field}]
    container["command"] = ["sh", "-c", command]
    template = {
        "metadata": {"annotations": behaviour},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]},
    }
    metadata: Json = {"name": name, "labels": {QUEUE_LABEL: queue}}
    if annotations:
        metadata["annotations"] = annotations
    return {"metadata": metadata, "spec": {**(spec or {}), "template": template}}
