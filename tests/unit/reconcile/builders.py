"""Jobs, their copies and what is observed of them, in a few words."""

from collections.abc import Sequence
from typing import Any, Self

from multimirror.api import (
    ADMITTED_QUEUE_ANNOTATION,
    ATTEMPT_ANNOTATION,
    ATTEMPT_LABEL,
    CLUSTER_ANNOTATION,
    CLUSTER_NAMESPACE_ANNOTATION,
    HOLD_ANNOTATION,
    MANAGED_BY,
    ORIGIN_LABEL,
    ORIGIN_UID_LABEL,
    PREEMPTED_ANNOTATION,
    PREEMPTED_AT_ANNOTATION,
    QUEUE_LABEL,
    RESERVED_ANNOTATION,
    RESUMED_ANNOTATION,
)
from multimirror.api.placement import Copy, cluster_of
from multimirror.batch.times import format_time, utc_datetime
from multimirror.kinds import JOB, CopyOptions
from multimirror.kinds.reserved import reserved_for
from multimirror.reconcile.state import ObservedState
from multimirror.workers.state import Contact

Json = dict[str, Any]
NOW = 1_800_000_000.0
TIME = "2027-01-15T08:00:00Z"
"""NOW, as the API writes it."""


class Builder:
    """`a_job("train").on("w1").started().job`."""

    def __init__(self, name: str, uid: str) -> None:
        self.job: Json = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": name,
                "namespace": "team",
                "uid": uid,
                "resourceVersion": "1",
                "labels": {QUEUE_LABEL: "q"},
                "annotations": {},
            },
            "spec": {
                "managedBy": MANAGED_BY,
                "suspend": True,
                "parallelism": 1,
                "completions": 1,
                "completionMode": "NonIndexed",
                "template": {"metadata": {}, "spec": {"containers": [{"name": "c"}], "restartPolicy": "Never"}},
            },
            "status": {},
        }

    def on(self, worker: str, attempt: int = 1) -> Self:
        """Assigned."""
        self.job["metadata"]["annotations"] |= {
            CLUSTER_ANNOTATION: worker,
            CLUSTER_NAMESPACE_ANNOTATION: "team",
            ATTEMPT_ANNOTATION: str(attempt),
            ADMITTED_QUEUE_ANNOTATION: "q",
        }
        self.job["spec"]["suspend"] = False
        return self.reserved()

    def reserved(self, **counts: int) -> Self:
        """As it was written down with the assignment; with other numbers of pods than it asks for now."""
        reserved = reserved_for(JOB, self.job).resized(counts)
        self.job["metadata"]["annotations"][RESERVED_ANNOTATION] = str(reserved)
        return self

    def of_size(self, pods: int, completions: int | None = None, mode: str = "NonIndexed") -> Self:
        """So many pods at once."""
        self.job["spec"] |= {"parallelism": pods, "completionMode": mode}
        self.job["spec"] |= {"completions": completions} if completions is not None else {}
        return self

    def asking(self, cpu: str) -> Self:
        """Each pod for so much."""
        container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
        self.job["spec"]["template"]["spec"] = {"containers": [container], "restartPolicy": "Never"}
        return self

    def tried(self, attempt: int) -> Self:
        """Assigned before, and not now."""
        self.job["metadata"]["annotations"] |= {ATTEMPT_ANNOTATION: str(attempt)}
        return self

    def suspended(self) -> Self:
        """By its user."""
        self.job["spec"]["suspend"] = True
        return self

    def marked(self, why: str = "Reclaim", ago: float = 0.0) -> Self:
        """It is being taken back, since so many seconds."""
        since = format_time(utc_datetime(NOW - ago))
        self.job["metadata"]["annotations"] |= {PREEMPTED_ANNOTATION: why, PREEMPTED_AT_ANNOTATION: since}
        return self.suspended()

    def resumed(self) -> Self:
        """By its user."""
        self.job["spec"]["suspend"] = False
        return self

    def noted_as_resumed(self) -> Self:
        """Its user has resumed it since it is being taken back."""
        self.job["metadata"]["annotations"] |= {RESUMED_ANNOTATION: "true"}
        return self

    def held(self) -> Self:
        """Its user does not want it to be placed."""
        self.job["metadata"]["annotations"] |= {HOLD_ANNOTATION: "true"}
        return self

    def stopping(self, pods: int | None = 0, *, ago: float = 0.0) -> Self:
        """Its controller noticed the suspension so many seconds ago, and so many pods are left; None: not counted."""
        suspended = {"type": "Suspended", "status": "True", "reason": "JobSuspended", "message": "Job suspended"}
        since = format_time(utc_datetime(NOW - ago))
        conditions = [{**suspended, "lastProbeTime": since, "lastTransitionTime": since}]
        self.job["status"] = {"conditions": conditions, "active": 0, "ready": 0, "uncountedTerminatedPods": {}}
        if pods is not None:
            self.job["status"]["terminating"] = pods
        return self.suspended()

    def started(self) -> Self:
        """One pod runs."""
        self.job["status"] |= {
            "startTime": TIME,
            "active": 1,
            "ready": 1,
            "terminating": 0,
            "uncountedTerminatedPods": {},
        }
        return self

    def met(self, interim: str = "SuccessCriteriaMet") -> Self:
        """Its end is announced."""
        self.job["status"] |= {"startTime": TIME, "conditions": [_condition(interim)]}
        return self

    def finished(self, terminal: str = "Complete") -> Self:
        """It has ended."""
        interim = "SuccessCriteriaMet" if terminal == "Complete" else "FailureTarget"
        self.job["status"] = {
            "startTime": TIME,
            "ready": 0,
            "terminating": 0,
            "uncountedTerminatedPods": {},
            "conditions": [_condition(interim), _condition(terminal)],
            **({"completionTime": TIME, "succeeded": 1} if terminal == "Complete" else {"failed": 1}),
        }
        return self

    def run_here(self) -> Self:
        """This cluster's own Job controller wrote to it."""
        self.job["metadata"]["managedFields"] = [{"manager": "kube-controller-manager", "subresource": "status"}]
        return self

    def deleting(self) -> Self:
        """It is on its way out."""
        self.job["metadata"]["deletionTimestamp"] = TIME
        return self

    def spec(self, **fields: Any) -> Self:
        """Otherwise."""
        self.job["spec"] |= fields
        return self


def observed(job: Json | None, copies: Sequence[Copy] = (), **more: Any) -> ObservedState:
    """What is known around a Job whose copies belong into the namespace that it has itself.

    `contacts`: by worker; or by worker and namespace.
    """
    contacts: dict[Any, Contact] = more.pop("contacts", {})
    cluster = cluster_of(job) if job is not None else None
    return ObservedState(
        JOB,
        job,
        copies,
        contact=contacts.get(cluster, Contact(connected=False)),
        contacts={(key, "team") if isinstance(key, str) else key: value for key, value in contacts.items()},
        **{"namespace": "team", "now": NOW, **more},
    )


def copy_of(job: Json, attempt: int) -> Json:
    """As it is sent to a worker."""
    name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
    options = CopyOptions(origin="here", attempt=attempt, name=name, namespace=namespace, signature="signed")
    return JOB.make_copy(job, options)


def a_job(name: str = "train") -> Builder:
    return Builder(name, f"uid-{name}")


def a_copy(worker: str, attempt: int = 1, name: str = "train") -> "CopyBuilder":
    return CopyBuilder(worker, attempt, name)


class CopyBuilder(Builder):
    """`a_copy("w1").started().copy`."""

    def __init__(self, worker: str, attempt: int, name: str) -> None:
        super().__init__(name, f"copy-{worker}-{attempt}")
        self.worker = worker
        labels = {ORIGIN_LABEL: "here", ORIGIN_UID_LABEL: f"uid-{name}", ATTEMPT_LABEL: str(attempt)}
        self.job["metadata"]["labels"] = labels
        del self.job["spec"]["managedBy"]
        self.job["spec"]["suspend"] = False

    def seen_on(self, worker: str) -> Self:
        """The same object, under another name of its cluster."""
        self.worker = worker
        return self

    @property
    def copy(self) -> Copy:
        """As decide wants it."""
        return Copy(self.worker, self.job)


def _condition(kind: str) -> Json:
    return {"type": kind, "status": "True", "lastProbeTime": TIME, "lastTransitionTime": TIME, "reason": "R"}
