"""batch/v1 Job, as a mirrored kind."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from multimirror.api.placement import Copy, fence_of
from multimirror.batch import Json, Phase, find_condition, phase
from multimirror.batch.times import seconds_of
from multimirror.kinds.job import endings, fence, trim
from multimirror.kinds.job.copy import make_copy
from multimirror.kinds.job.mirror import mirror_status
from multimirror.kinds.job.reading import is_count, read_copy
from multimirror.kinds.job.sizes import pods_held, pods_left, pods_of, pods_there, pods_uncounted, pods_up, size_in_step
from multimirror.kinds.kind import RUNNING, CopyOptions, InStep, Kind, Outcome, Rejection
from multimirror.kinds.pod_sets import PodSet
from multimirror.kinds.reserved import reserved_of
from multimirror.kube.resource import Object, Resource
from multimirror.kube.resources import JOBS

_STOCK: Final = frozenset({"kube-controller-manager", "k3s"})
"""How the API server calls those who carry Kubernetes' own Job controller, in managedFields."""
_PODS: Final = "main"
"""The one pod set of a Job."""


class JobKind:
    """Kubernetes' own Jobs, under the strengthened rules for their status."""

    resource: Resource = JOBS
    can_be_fenced = True
    managed_by_path = ("spec", "managedBy")
    suspend_path = ("spec", "suspend")

    def trim(self, obj: Object) -> Object:
        return trim.trim_original(obj, _stock_writers(obj["metadata"].get("managedFields")))

    def read_copy(self, obj: Object) -> Object:
        return read_copy(obj)

    def managed_by(self, obj: Json) -> str | None:
        return (obj.get("spec") or {}).get("managedBy")

    def run_by_others(self, obj: Json, *, attempt: int) -> bool:
        """This cluster's own Job controller does not know managedBy; or somebody writes before our first attempt."""
        return bool(_stock_writers(obj["metadata"].get("managedFields"))) or (attempt == 0 and _touched(obj))

    def is_suspended(self, obj: Json) -> bool:
        return bool(obj["spec"].get("suspend"))

    def suspension(self, *, suspend: bool) -> Json:
        return {"spec": {"suspend": suspend}}

    def outcome(self, obj: Json) -> Outcome:
        status = obj.get("status") or {}
        if not status.get("conditions"):
            return RUNNING
        match phase(status):
            case Phase.RUNNING:
                return RUNNING
            case Phase.COMPLETE | Phase.FAILED as end:
                condition = find_condition(status["conditions"], end.value) or {}
                return Outcome(True, True, end is Phase.COMPLETE, condition.get("lastTransitionTime"))
            case announced:
                return Outcome(True, False, announced is Phase.SUCCESS_CRITERIA_MET)

    def has_started(self, obj: Json) -> bool:
        return bool((obj.get("status") or {}).get("startTime"))

    def may_run(self, obj: Json) -> bool:
        """A Job that is being deleted, or has ended, starts no pods; those that are there may take their time."""
        status = obj.get("status") or {}
        over = "deletionTimestamp" in obj["metadata"] or self.outcome(obj).finished
        return not over or bool(status.get("active") or status.get("terminating"))

    def pod_sets(self, obj: Json) -> Sequence[PodSet]:
        return (PodSet(_PODS, pods_of(obj["spec"]), obj["spec"]["template"]["spec"]),)

    def pod_counts(self, obj: Json) -> Mapping[str, int]:
        return {_PODS: pods_of(obj["spec"])}

    def pods_needed(self, original: Json, copy: Json) -> Mapping[str, int]:
        return {_PODS: pods_left(original["spec"], copy.get("status") or {})}

    def pods_held(self, copy: Json) -> Mapping[str, int]:
        return {_PODS: pods_held(copy)}

    def pods_up(self, obj: Json) -> tuple[int, int]:
        return pods_up(obj), pods_of(obj["spec"])

    def pods_there(self, obj: Json) -> int:
        return pods_there(obj)

    def awaited_since(self, copy: Json) -> float | None:
        """From its creation on, or since it was resumed: only that sets its start anew."""
        if self.is_suspended(copy) or fence.is_suspended(copy):
            return None
        created = seconds_of(copy["metadata"].get("creationTimestamp"), 0.0)
        return max(created, seconds_of((copy.get("status") or {}).get("startTime"), 0.0)) or None

    def is_resuming(self, copy: Json) -> bool:
        return not self.is_suspended(copy) and fence.is_suspended(copy)

    def has_stopped(self, copy: Json) -> bool:
        return fence.is_suspended(copy) and not pods_there(copy) and not pods_uncounted(copy)

    def is_stopping(self, copy: Json) -> bool:
        status = copy.get("status") or {}
        final = fence.is_suspended(copy) and not (status.get("active") or pods_uncounted(copy))
        return self.is_suspended(copy) and final and bool(pods_there(copy))

    def counts_stopping(self, copy: Json) -> bool:
        """Kubernetes does since 1.29."""
        return (copy.get("status") or {}).get("terminating") is not None

    def suspended_at(self, copy: Json) -> float | None:
        return fence.suspended_at(copy)

    def stop_seconds(self, obj: Json) -> float:
        return fence.stop_seconds(obj)

    def deadline_of(self, obj: Json) -> int | None:
        deadline = obj["spec"].get("activeDeadlineSeconds")
        return deadline if is_count(deadline) else None

    def run_seconds(self, obj: Json) -> float | None:
        deadline = fence.granted_deadline(obj)
        return deadline + fence.stop_seconds(obj) if is_count(deadline) else None

    def template_of(self, obj: Json) -> str:
        return trim.template_of(obj)

    def size_of(self, obj: Json) -> int:
        return trim.bytes_of(obj)

    def problem_of(self, obj: Json) -> str:
        return trim.problem_of(obj)

    def make_copy(self, original: Json, options: CopyOptions) -> Json:
        reserved = reserved_of(original)
        return make_copy(original, options, most=reserved.granted.get(_PODS) if reserved is not None else None)

    def mirror(self, original: Json, observed: object) -> Json | Rejection | None:
        return mirror_status(original, observed)

    def waiting_status(self, original: Json, now: str, *, reword: bool = False) -> Json:
        return endings.waiting_status(original, now, reword=reword)

    def shows_that_it_waits(self, original: Json) -> bool:
        return endings.shows_that_it_waits(original)

    def ended_status(self, original: Json, now: str, *, reason: str = "", message: str = "") -> Json:
        return endings.ended_status(original, now, reason=reason, message=message)

    def in_step(self, original: Json, copy: Copy, *, clock: float, may_renew: bool) -> InStep:
        """The fields that may change while a Job runs, and only those: what a worker's webhooks add is not ours."""
        spec, theirs, reserved = original["spec"], copy.object["spec"], reserved_of(original)
        # Where nothing is written down yet, it is what the copy has.
        most = reserved.granted.get(_PODS, 0) if reserved is not None else pods_of(theirs)
        wanted: Json = size_in_step(spec, most)
        again_in: float | None = None
        fenced = fence_of(original) is not None
        if spec.get("suspend"):
            may_change = not self.is_resuming(copy.object)
        else:
            may_change = not fenced or not theirs.get("suspend") or fence.may_resume(copy)
        if may_change:
            wanted["suspend"] = bool(spec.get("suspend"))
        if not fenced or may_renew:
            wanted["activeDeadlineSeconds"], again_in = fence.deadline(original, copy, clock)
        found = {key: theirs.get(key) for key in wanted} | {"suspend": bool(theirs.get("suspend"))}
        changed = {key: value for key, value in wanted.items() if found[key] != value}
        renews = fenced and "activeDeadlineSeconds" in changed
        return InStep({"spec": changed} if changed else {}, again_in, renews)

    def fence_expired(self, original: Json, status: Json) -> bool:
        return fence.fence_expired(original, status)

    def safe_after(self, original: Json, grace: float) -> float:
        return fence.safe_after(original, grace)


JOB: Final[Kind] = JobKind()


def _stock_writers(managed_fields: Iterable[Json] | None) -> list[Json]:
    """The entries by which Kubernetes' own Job controller has written a Job's status; of each, what tells."""
    return [
        {"manager": each["manager"], "subresource": "status"}
        for each in managed_fields or ()
        if each.get("subresource") == "status" and each.get("manager") in _STOCK
    ]


def _touched(obj: Json) -> bool:
    """Nobody but us writes the status of a Job that we manage, and before the first attempt we write only that it
    waits. A controller that does not know managedBy writes nearly the same: only the words tell whose they are."""
    status = obj.get("status") or {}
    conditions = status.get("conditions") or ()
    foreign = (c for c in conditions if "/" not in c.get("type", "") and not endings.is_our_own(c))
    return bool(status.get("startTime") or status.get("active") or any(foreign))
