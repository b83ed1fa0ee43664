"""Jobs and CronJobs, by the rules in clusters.jobapi."""

from collections.abc import Mapping
from typing import Final

from clusters import jobapi
from clusters.embedded.kinds import Strategy
from clusters.embedded.store import Object
from clusters.jobapi import validate_metadata_update
from multimirror.batch import FieldError
from multimirror.batch.names import dns_label

_ORPHAN_WARNING: Final = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set "
    "propagationPolicy=Orphan to suppress this warning"
)

_NAME_WARNING: Final = (
    "this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended"
)
_SIZE_WARNING: Final = (
    "In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes "
    "might not be able to track completedIndexes when a big number of indexes fail"
)


class Jobs(Strategy):
    """Work to be done once."""

    has_status = True
    counts_generation = True
    default_propagation = "Orphan"
    deletion_warning = _ORPHAN_WARNING
    selectable = frozenset({"status.successful"})

    def fields(self, obj: Object) -> Mapping[str, str]:
        """By successes."""
        return {"status.successful": str(obj.get("status", {}).get("succeeded", 0))}

    def default(self, obj: Object) -> Object:
        """A Job's defaults."""
        return jobapi.default_job(obj)

    def prepare_create(self, obj: Object) -> Object:
        """A Job with its selector and labels."""
        made = jobapi.prepare_job_create(obj)
        metadata, spec = made["metadata"], made["spec"]
        holders = [spec["template"].get("metadata") or {}, metadata]
        if labels := (spec.get("selector") or {}).get("matchLabels"):
            spec["selector"]["matchLabels"] = dict(sorted(labels.items()))
        for holder in holders:
            if labels := holder.get("labels"):
                holder["labels"] = dict(sorted(labels.items()))
        # Reading a Job fills in defaults once more, and by then its template has labels.
        if not metadata.get("labels") and (labels := holders[0].get("labels")):
            metadata["labels"] = dict(labels)
        return made

    def prepare_update(self, new: Object, old: Object) -> Object:
        """A Job whose status stays."""
        return jobapi.prepare_job_update(new, old)

    def prepare_status(self, new: Object, old: Object) -> Object:
        """A Job whose spec stays."""
        return jobapi.prepare_job_status_update(new, old)

    def warnings(self, new: Object, old: Object | None) -> list[str]:
        """Names and sizes that go badly with pods."""
        found = []
        spec, name = new["spec"], new["metadata"]["name"]
        complaints = dns_label(name) if old is None else []
        if complaints:
            shown = "[" + ", ".join(complaints) + "]"
            found.append(f"metadata.name: {_NAME_WARNING}: {shown}")
        if (
            spec.get("completionMode") == "Indexed"
            and (spec.get("completions") or 0) > 100_000
            and (spec.get("parallelism") or 0) > 10_000
        ):
            found.append(f"spec: {_SIZE_WARNING}")
        return found

    def problems(self, obj: Object, namespaced: bool) -> list[FieldError]:
        """All that is wrong with a new Job."""
        return jobapi.validate_job_create(obj)

    def update_problems(self, new: Object, old: Object) -> list[FieldError]:
        """All that is wrong with a change."""
        return _with_metadata(jobapi.validate_job_update(new, old), new, old)

    def status_problems(self, new: Object, old: Object) -> list[FieldError]:
        """All that is wrong with a change of status."""
        return _with_metadata(jobapi.validate_job_status_update(new, old), new, old)


def _with_metadata(problems: list[FieldError], new: Object, old: Object) -> list[FieldError]:
    """The server looks at metadata first, and the kind's own rules then look at it again."""
    return validate_metadata_update(new["metadata"], old["metadata"]) + problems if problems else problems


class CronJobs(Strategy):
    """Jobs on a schedule."""

    has_status = True
    counts_generation = True

    def default(self, obj: Object) -> Object:
        """A CronJob's defaults."""
        return jobapi.default_cronjob(obj)

    def problems(self, obj: Object, namespaced: bool) -> list[FieldError]:
        """All that is wrong with a new CronJob."""
        return jobapi.validate_cronjob_create(obj)

    def update_problems(self, new: Object, old: Object) -> list[FieldError]:
        """All that is wrong with a change."""
        return jobapi.validate_cronjob_update(new, old)
