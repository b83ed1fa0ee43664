"""Jobs and CronJobs, by the rules in multimirror.batch."""

from collections.abc import Mapping
from typing import Final

from clusters.embedded.kinds import Strategy
from clusters.embedded.store import Object
from multimirror import batch
from multimirror.batch import FieldError

_ORPHAN_WARNING: Final = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set "
    "propagationPolicy=Orphan to suppress this warning"
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
        return batch.default_job(obj)

    def prepare_create(self, obj: Object) -> Object:
        """A Job with its selector and labels."""
        return batch.prepare_job_create(obj)

    def prepare_update(self, new: Object, old: Object) -> Object:
        """A Job whose status stays."""
        return batch.prepare_job_update(new, old)

    def prepare_status(self, new: Object, old: Object) -> Object:
        """A Job whose spec stays."""
        return batch.prepare_job_status_update(new, old)

    def problems(self, obj: Object, namespaced: bool) -> list[FieldError]:
        """All that is wrong with a new Job."""
        return batch.validate_job_create(obj)

    def update_problems(self, new: Object, old: Object) -> list[FieldError]:
        """All that is wrong with a change."""
        return batch.validate_job_update(new, old)

    def status_problems(self, new: Object, old: Object) -> list[FieldError]:
        """All that is wrong with a change of status."""
        return batch.validate_job_status_update(new, old)


class CronJobs(Strategy):
    """Jobs on a schedule."""

    has_status = True
    counts_generation = True

    def default(self, obj: Object) -> Object:
        """A CronJob's defaults."""
        return batch.default_cronjob(obj)

    def problems(self, obj: Object, namespaced: bool) -> list[FieldError]:
        """All that is wrong with a new CronJob."""
        return batch.validate_cronjob_create(obj)

    def update_problems(self, new: Object, old: Object) -> list[FieldError]:
        """All that is wrong with a change."""
        return batch.validate_cronjob_update(new, old)
