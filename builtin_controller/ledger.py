"""The pods of each Job, kept so that a sync costs what has changed, not what there is.

A pod that ended, was counted, and still belongs to its Job can change nothing any more: `close` takes it out of the
pods that the next sync looks at, until an event about it brings it back. Of one Indexed Job with 100,000 completions,
a sync therefore sees the pods that run and those that ended since the last one.

Fed by the pod informer, before anybody else hears of a change.
"""

from collections.abc import Iterable
from typing import Final

from builtin_controller import failure_policy
from builtin_controller.job import Job
from builtin_controller.pods import Pod, controller_of
from builtin_controller.vocabulary import FAILED
from multimirror.batch import Json, selector_matches
from multimirror.batch.labels import CONTROLLER_UID_LABEL, LEGACY_CONTROLLER_UID_LABEL
from multimirror.kube import Change, key_of

_OWNER_LABELS: Final = (CONTROLLER_UID_LABEL, LEGACY_CONTROLLER_UID_LABEL)
"""Labels that nearly every Job selects by, and no two Jobs share: pods are filed by them."""


class _JobPods:
    __slots__ = ("closed", "open")

    def __init__(self) -> None:
        self.open: dict[str, Pod] = {}
        self.closed: set[str] = set()


class Ledger:
    """Pods by the UID of their Job; those that belong to nobody, and those with the finalizer, by namespace."""

    def __init__(self) -> None:
        self._jobs: dict[str, _JobPods] = {}
        self._ownerless: dict[str, dict[str, Pod]] = {}
        self._tracked: dict[str, dict[str, Pod]] = {}
        self._tracked_by_label: dict[str, dict[str, Pod]] = {}

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
            for filed_under in _labels(raw):
                self._tracked_by_label.setdefault(filed_under, {})[key] = pod
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

    def tracked(self, namespace: str, selector: Json | None) -> list[Pod]:
        """The pods in a namespace that carry the tracking finalizer and are selected, whoever owns them."""
        wanted = (selector or {}).get("matchLabels") or {}
        label = next((f"{label}={wanted[label]}" for label in _OWNER_LABELS if label in wanted), None)
        found = self._tracked.get(namespace, {}) if label is None else self._tracked_by_label.get(label, {})
        return [
            pod
            for pod in found.values()
            if pod.namespace == namespace and selector_matches(selector, pod.metadata.get("labels"))
        ]

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
        for filed_under in _labels(raw):
            _drop(self._tracked_by_label, filed_under, key)


def _labels(raw: Json) -> list[str]:
    labels = raw["metadata"].get("labels") or {}
    return [f"{label}={labels[label]}" for label in _OWNER_LABELS if label in labels]


def _fails_job(job: Job, pod: Pod) -> bool:
    return pod.phase == FAILED and failure_policy.match(job.pod_failure_policy, pod).message is not None


def _drop(filed: dict[str, dict[str, Pod]], under: str, key: str) -> None:
    pods = filed.get(under)
    if pods is not None:
        pods.pop(key, None)
        if not pods:
            del filed[under]
