"""The rules for a CronJob: its schedule and policies, and the Job template inside, by the rules of a Job's spec."""

import re
from typing import Final
from zoneinfo import ZoneInfo

from clusters.jobapi import cron
from clusters.jobapi.defaults import default_job_template
from clusters.jobapi.metadata import validate_metadata, validate_metadata_update
from clusters.jobapi.spec_rules import validate_job_spec
from clusters.jobapi.storage import stored_value
from multimirror.batch import names
from multimirror.batch.errors import FieldError, invalid, not_negative, not_supported, required
from multimirror.batch.types import Json, clone

# The controller puts eleven characters behind the name for each Job, and a Job's name has room for 63.
_NAME_LIMIT: Final = 52
_POLICIES: Final = ("Allow", "Forbid", "Replace")
_ZONE_PART: Final = re.compile(r"[A-Za-z.\-_0-9+]{1,14}")


def default_cronjob(cronjob: Json) -> Json:
    """The CronJob with everything filled in that its author left to the server."""
    cronjob = clone(cronjob)
    spec = cronjob.setdefault("spec", {})
    spec["concurrencyPolicy"] = spec.get("concurrencyPolicy") or "Allow"
    spec.setdefault("suspend", False)
    spec.setdefault("successfulJobsHistoryLimit", 3)
    spec.setdefault("failedJobsHistoryLimit", 1)
    # The rest of a Job's defaults is filled in when a Job is made of the template.
    default_job_template(spec.setdefault("jobTemplate", {}).setdefault("spec", {}))
    return cronjob


def validate_cronjob_create(cronjob: Json) -> list[FieldError]:
    metadata = cronjob["metadata"]
    errors = validate_metadata(metadata)
    errors += _validate_spec(cronjob["spec"], None)
    name = metadata.get("name", "")
    if names.size(name) > _NAME_LIMIT:
        errors.append(invalid("metadata.name", name, f"must be no more than {_NAME_LIMIT} characters"))
    return errors


def validate_cronjob_update(cronjob: Json, old: Json) -> list[FieldError]:
    errors = validate_metadata_update(cronjob["metadata"], old["metadata"])
    return errors + _validate_spec(cronjob["spec"], old["spec"])


def _validate_spec(spec: Json, old: Json | None) -> list[FieldError]:
    errors = _validate_schedule(spec, old)
    errors += not_negative("spec.startingDeadlineSeconds", spec.get("startingDeadlineSeconds"))
    if old is None or old.get("timeZone") != spec.get("timeZone"):
        errors += _validate_time_zone(spec.get("timeZone"))
    policy = spec.get("concurrencyPolicy")
    if not policy:
        errors.append(required("spec.concurrencyPolicy"))
    elif policy not in _POLICIES:
        errors.append(not_supported("spec.concurrencyPolicy", policy, _POLICIES))
    errors += _validate_job_template((spec.get("jobTemplate") or {}).get("spec") or {}, "spec.jobTemplate.spec")
    for key in ("successfulJobsHistoryLimit", "failedJobsHistoryLimit"):
        errors += not_negative(f"spec.{key}", spec.get(key))
    return errors


def _validate_schedule(spec: Json, old: Json | None) -> list[FieldError]:
    field, schedule = "spec.schedule", spec.get("schedule")
    if not schedule:
        return [required(field)]
    errors = []
    try:
        cron.parse(schedule)
    except cron.ScheduleError as error:
        errors.append(invalid(field, schedule, str(error)))
    if "TZ" in schedule:
        # A schedule that named its zone before that was forbidden may go on doing so.
        if old is None or "TZ" not in (old.get("schedule") or ""):
            detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
            errors.append(invalid(field, schedule, detail))
        elif spec.get("timeZone") is not None:
            errors.append(invalid(field, schedule, "cannot use both timeZone field and TZ or CRON_TZ in schedule"))
    return errors


def _validate_time_zone(zone: str | None) -> list[FieldError]:
    field = "spec.timeZone"
    if zone is None:
        return []
    if not zone:
        return [invalid(field, zone, "timeZone must be nil or non-empty string")]
    for part in zone.split("/"):
        if part in (".", "..") or part.startswith("-") or not _ZONE_PART.fullmatch(part):
            return [invalid(field, zone, f"unknown time zone {zone}")]
    errors = []
    if zone.casefold() == "local":
        detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
        errors.append(invalid(field, zone, detail))
    if zone != "Local" and not _is_zone(zone):
        errors.append(invalid(field, zone, f"unknown time zone {zone}"))
    return errors


def _is_zone(zone: str) -> bool:
    try:
        ZoneInfo(zone)
    except (OSError, ValueError, KeyError):  # how a missing zone shows depends on what its name looks like
        return False
    return True


def _validate_job_template(spec: Json, field: str) -> list[FieldError]:
    errors = validate_job_spec(spec, field)
    if spec.get("selector") is not None:
        selector = stored_value(spec["selector"])
        errors.append(invalid(f"{field}.selector", selector, "`selector` will be auto-generated"))
    if spec.get("manualSelector"):
        errors.append(not_supported(f"{field}.manualSelector", spec["manualSelector"], ("nil", "false")))
    return errors
