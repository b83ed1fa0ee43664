"""What the server makes of a Job before it judges it: defaults, and what each kind of write may touch at all.

The way of a write is `prepare_job_*`, then the matching `validate_job_*`, then `stored_job`.
"""

from typing import Final

from clusters.jobapi.pod_defaults import default_pod_spec
from clusters.jobapi.storage import stored_spec
from multimirror.batch.labels import (
    CONTROLLER_UID_LABEL,
    JOB_NAME_LABEL,
    LEGACY_CONTROLLER_UID_LABEL,
    LEGACY_JOB_NAME_LABEL,
)
from multimirror.batch.types import Json, clone

_MAX_INT32: Final = 2**31 - 1


def default_job(job: Json) -> Json:
    """The Job with everything filled in that its author left to the server."""
    job = clone(job)
    metadata, spec = job.setdefault("metadata", {}), job.setdefault("spec", {})
    _default_job_spec(spec)
    labels = (spec["template"].get("metadata") or {}).get("labels")
    if labels and not metadata.get("labels"):
        metadata["labels"] = dict(labels)
    return job


def _default_job_spec(spec: Json) -> None:
    if "parallelism" not in spec:
        if "completions" not in spec:
            spec["completions"] = 1
        spec["parallelism"] = 1
    spec.setdefault("backoffLimit", _MAX_INT32 if "backoffLimitPerIndex" in spec else 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("manualSelector", False)
    spec.setdefault("podReplacementPolicy", "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed")
    default_job_template(spec)


def default_job_template(spec: Json) -> None:
    """Fill in, in place, what a Job's spec and that of a CronJob's template get alike: the policies and pods inside."""
    for rule in (spec.get("podFailurePolicy") or {}).get("rules") or ():
        for pattern in rule.get("onPodConditions") or ():
            pattern["status"] = pattern.get("status") or "True"
    template = spec.setdefault("template", {})
    template["spec"] = default_pod_spec(template.get("spec") or {})


def prepare_job_create(job: Json) -> Json:
    """A new Job, ready to be judged and stored. Its name and uid must have been given to it already."""
    given = (job.get("metadata") or {}).get("labels")
    job = default_job(job)
    metadata, spec = job["metadata"], job["spec"]
    metadata["generation"] = 1
    shares_labels = not given and "labels" in (spec["template"].get("metadata") or {})
    if not spec["manualSelector"]:
        _generate_selector(metadata, spec)
    if shares_labels:
        # To the server the Job's labels and its template's are one map here: what is generated shows in both.
        metadata["labels"] = dict(spec["template"]["metadata"]["labels"])
    job["status"] = {}
    return job


def prepare_job_update(job: Json, old: Json) -> Json:
    """A write to the Job itself: the status is not touched, and the generation counts changes of the spec."""
    job = default_job(job)
    job["status"] = old.get("status") or {}
    generation = old["metadata"].get("generation") or 0
    job["metadata"]["generation"] = generation + (stored_spec(job["spec"]) != stored_spec(old["spec"]))
    return job


def prepare_job_status_update(job: Json, old: Json) -> Json:
    """A write to the status: the spec is not touched. Labels, annotations and finalizers may be."""
    metadata = {**job["metadata"], "generation": old["metadata"].get("generation")}
    return {**job, "metadata": metadata, "spec": old["spec"], "status": job.get("status") or {}}


def _generate_selector(metadata: Json, spec: Json) -> None:
    uid, name = metadata.get("uid", ""), metadata.get("name", "")
    labels = spec["template"].setdefault("metadata", {}).setdefault("labels", {})
    for key, value in (
        (LEGACY_JOB_NAME_LABEL, name),
        (JOB_NAME_LABEL, name),
        (LEGACY_CONTROLLER_UID_LABEL, uid),
        (CONTROLLER_UID_LABEL, uid),
    ):
        labels.setdefault(key, value)
    selector = spec.setdefault("selector", {})
    selector.setdefault("matchLabels", {}).setdefault(CONTROLLER_UID_LABEL, uid)
