"""The pods of each Job, kept so that a sync costs what has changed, not what there is.

A pod that ended, was counted, and still belongs to its Job can change nothing any more: `close` takes it out of the
pods that the next sync looks at, until an event about it brings it back. Of one Indexed Job with 100,000 completions,
a sync therefore sees the pods that run and those that ended since the last one.

Fed by the pod informer, before anybody else hears of a change.
"""

from collections.abc import Iterable

from builtin_controller import failure_policy
from builtin_controller.job import Job
from builtin_controller.pods import Pod, controller_of
from builtin_controller.vocabulary import FAILED
from multimirror.batch import Json
from multimirror.kube import Change, key_of


class _JobPods:
    __slots__ = ("closed", "open")

    def __init__(self) -> None:
        self.open: dict[str, Pod] = {}
        self.closed: set[str] = set()


class Ledger:
    """Pods by the UID of their Job, and those that belong to nobody by namespace."""

    def __init__(self) -> None:
        self._jobs: dict[str, _JobPods] = {}
        self._ownerless: dict[str, dict[str, Pod]] = {}
        self._tracked: dict[str, dict[str, Pod]] = {}

    def observe(self, change: Change) -> Pod | None:
        """Take a change in; gives the pod as it is now, or was when it went."""
        key = change.key
        if change.old is not None:
            self._remove(key, change.old)
        raw = change.new
        if raw is None:
            return Pod(change.object)
        pod = Pod(raw)
        controller = controller_of(raw)
        if controller is None:
            self._ownerless.setdefault(pod.namespace, {})[key] = pod
        elif controller.get("kind") == "Job":
            self._jobs.setdefault(controller["uid"], _JobPods()).open[key] = pod
        if pod.tracked:
            self._tracked.setdefault(pod.namespace, {})[key] = pod
        return pod

    def pods_of(self, uid: str) -> list[Pod]:
        """The pods that the Job controls, those that change nothing left out."""
        pods = self._jobs.get(uid)
        return list(pods.open.values()) if pods is not None else []

    def count(self, uid: str) -> int:
        """All pods that the Job controls."""
        pods = self._jobs.get(uid)
        return len(pods.open) + len(pods.closed) if pods is not None else 0

    def ownerless(self, namespace: str) -> list[Pod]:
        return list(self._ownerless.get(namespace, {}).values())

    def tracked(self, namespace: str) -> list[Pod]:
        """The pods in a namespace that carry the tracking finalizer, whoever owns them."""
        return list(self._tracked.get(namespace, {}).values())

    def close(self, job: Job, claimed: Iterable[Pod]) -> None:
        """A sync has looked at these pods of the Job: leave those out from now on that can change nothing."""
        pods = self._jobs.get(job.uid)
        if pods is None:
            return
        for pod in claimed:
            key = key_of(pod.raw)
            if pod.terminal and not pod.tracked and not _fails_job(job, pod) and pods.open.get(key) is pod:
                del pods.open[key]
                pods.closed.add(key)

    def _remove(self, key: str, raw: Json) -> None:
        namespace = raw["metadata"].get("namespace", "")
        controller = controller_of(raw)
        if controller is None:
            _drop(self._ownerless, namespace, key)
        elif controller.get("kind") == "Job":
            uid = controller["uid"]
            pods = self._jobs.get(uid)
            if pods is not None:
                pods.open.pop(key, None)
                pods.closed.discard(key)
                if not pods.open and not pods.closed:
                    del self._jobs[uid]
        _drop(self._tracked, namespace, key)


def _fails_job(job: Job, pod: Pod) -> bool:
    return pod.phase == FAILED and failure_policy.match(job.pod_failure_policy, pod).message is not None


def _drop(filed: dict[str, dict[str, Pod]], namespace: str, key: str) -> None:
    pods = filed.get(namespace)
    if pods is not None:
        pods.pop(key, None)
        if not pods:
            del filed[namespace]
