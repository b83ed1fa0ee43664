"""A Job for every policy of the Job API, and what its user does to it on the way.

Made so that the end is the same however fast a cluster is: what must come after something else waits for a mark, a file
on the node that all pods of a namespace share.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from multimirror.batch import find_condition

Json = dict[str, Any]
Status = Json

SLEEP: Final = "sleep 600 & wait"  # a shell that waits can be told to stop; a bare `sleep` as process 1 cannot


@dataclass(frozen=True, slots=True)
class Act:
    """What the user does, once, as soon as the Job has come so far."""

    once: Callable[[Status], object]
    change: Json
    """Of the spec."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A Job, without a name for its queue."""

    name: str
    spec: Json
    acts: tuple[Act, ...] = ()

    def job(self, namespace: str, labels: Json | None = None) -> Json:
        """As a user would write it."""
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": self.name, "namespace": namespace, "labels": dict(labels or {})},
            "spec": self.spec,
        }


def a_policy(name: str, script: str, *acts: Act, pod: Json | None = None, **spec: Any) -> Policy:
    """A Job whose only container runs a script of the shell."""
    return Policy(name, {"template": {"spec": a_pod(script, **(pod or {}))}, **spec}, acts)


def a_pod(script: str, **more: Any) -> Json:
    """Its /marks outlives it, and its node's restarts."""
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "containers": [a_container("main", script)],
        "volumes": [{"name": "marks", "hostPath": {"path": "/var/lib/marks", "type": "DirectoryOrCreate"}}],
        **more,
    }


def a_container(name: str, script: str, **more: Any) -> Json:
    """Of a pod with marks."""
    return {
        "name": name,
        "image": "busybox",
        "command": ["sh", "-c", script],
        "env": [{"name": "NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}],
        "volumeMounts": [{"name": "marks", "mountPath": "/marks", "subPathExpr": "$(NAMESPACE)"}],
        **more,
    }


def once(name: str, otherwise: str = "exit 0", *, first: str = "exit 1") -> str:
    """Something else the first time than every other time."""
    return f"if mkdir /marks/{name} 2>/dev/null; then {first}; else {otherwise}; fi"


def _by_index(**scripts: str) -> str:
    cases = " ".join(f"{index.lstrip('_')}) {script};;" for index, script in scripts.items())
    return f'case "$JOB_COMPLETION_INDEX" in {cases} esac'


def _until(mark: str) -> str:
    return f"until test -e /marks/{mark}; do sleep 0.2; done"


def _on_exit(action: str, *codes: int) -> Json:
    return {"rules": [{"action": action, "onExitCodes": {"operator": "In", "values": list(codes)}}]}


def _ready(count: int) -> Callable[[Status], bool]:
    return lambda status: status.get("ready") == count


def _suspended(status: Status) -> bool:
    told = find_condition(status.get("conditions") or (), "Suspended") or {}
    return told.get("status") == "True" and not status.get("active") and not status.get("terminating")


def _idle(status: Status) -> bool:
    return bool(status.get("startTime")) and not status.get("active")


def _indexed(size: int, **more: Any) -> Json:
    return {"completionMode": "Indexed", "completions": size, "parallelism": size, **more}


_SIDECAR: Final = a_container("sidecar", f"trap 'exit 0' TERM; {SLEEP}", restartPolicy="Always")

POLICIES: Final = (
    # how many
    a_policy("plain", "exit 0"),
    a_policy("parallel", "exit 0", completions=4, parallelism=2),
    a_policy("work-queue", "exit 0", parallelism=3),
    a_policy("indexed", "exit 0", **_indexed(3)),
    a_policy("nothing-to-do", "exit 0", completions=0),
    a_policy("none-at-once", "exit 0", Act(_idle, {"parallelism": 2}), completions=2, parallelism=0),
    a_policy(
        "grows",
        _by_index(_2="touch /marks/grown", **{"*": _until("grown")}),
        Act(_ready(2), {"completions": 3, "parallelism": 3}),
        **_indexed(2),
    ),
    a_policy(
        "shrinks",
        _by_index(_0=_until("shrunk"), **{"*": f"trap 'touch /marks/shrunk; exit 1' TERM; {SLEEP}"}),
        Act(_ready(3), {"completions": 1, "parallelism": 1}),
        pod={"terminationGracePeriodSeconds": 20},
        **_indexed(3),
    ),
    # how often
    a_policy("retried", once("retried")),
    a_policy("backoff-limit", "exit 1", backoffLimit=0),
    a_policy("backoff-limit-per-index", _by_index(_0="exit 0", _1="exit 1"), backoffLimitPerIndex=1, **_indexed(2)),
    a_policy(
        "max-failed-indexes",
        "exit 1",
        backoffLimitPerIndex=0,
        maxFailedIndexes=0,
        **_indexed(3, parallelism=1),
    ),
    a_policy(
        "replaced-when-failed",
        once("replaced", first=f"trap 'sleep 2; exit 1' TERM; {SLEEP}"),
        Act(_ready(1), {"parallelism": 0}),
        Act(_idle, {"parallelism": 1}),
        pod={"terminationGracePeriodSeconds": 20},
        podReplacementPolicy="Failed",
    ),
    a_policy("restarted-in-place", once("restarted"), pod={"restartPolicy": "OnFailure"}),
    a_policy("restarted-too-often", "exit 1", pod={"restartPolicy": "OnFailure"}, backoffLimit=0),
    # which failures count
    a_policy("fails-the-job", "exit 42", podFailurePolicy=_on_exit("FailJob", 42)),
    a_policy("ignored", once("ignored", first="exit 42"), podFailurePolicy=_on_exit("Ignore", 42), backoffLimit=0),
    a_policy("counted", "exit 42", podFailurePolicy=_on_exit("Count", 42), backoffLimit=0),
    a_policy(
        "fails-the-index",
        _by_index(_0="exit 0", _1="exit 42"),
        podFailurePolicy=_on_exit("FailIndex", 42),
        backoffLimitPerIndex=3,
        **_indexed(2),
    ),
    # when it is enough
    a_policy(
        "enough-indexes",
        _by_index(_0="exit 0", **{"*": SLEEP}),
        successPolicy={"rules": [{"succeededIndexes": "0"}]},
        **_indexed(2),
    ),
    a_policy(
        "enough-of-them",
        _by_index(_1="exit 0", **{"*": SLEEP}),
        successPolicy={"rules": [{"succeededIndexes": "1-2", "succeededCount": 1}]},
        **_indexed(3),
    ),
    a_policy("deadline", SLEEP, activeDeadlineSeconds=2),
    # when it runs at all
    a_policy("created-suspended", "exit 0", Act(_suspended, {"suspend": False}), suspend=True),
    a_policy(
        "suspended-and-resumed",
        once("suspended", first=SLEEP),
        Act(_ready(1), {"suspend": True}),
        Act(_suspended, {"suspend": False}),
    ),
    a_policy("time-to-live", "exit 0", ttlSecondsAfterFinished=20),
    # what pods are made of
    a_policy("sidecar", "exit 0", pod={"initContainers": [_SIDECAR]}),
    a_policy("init-fails", "exit 0", pod={"initContainers": [a_container("first", once("initialised"))]}),
)
