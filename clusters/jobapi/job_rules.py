"""The rules for a whole Job: on create, on update, and on an update of its status.

Each function takes Jobs as `defaults` prepared them and returns every violation in the server's order. On update the
server judges the spec twice and says so twice; the causes here repeat in the same way. Rule names in comments (O1,
O2, ...) are those of the written specification.
"""

from typing import Any

from clusters.jobapi.metadata import IMMUTABLE, validate_metadata, validate_metadata_update
from clusters.jobapi.spec_rules import printed_policy, validate_job_spec
from clusters.jobapi.storage import stored_template, stored_value
from multimirror.batch import names
from multimirror.batch.conditions import is_suspended
from multimirror.batch.errors import FieldError, invalid, required
from multimirror.batch.labels import (
    CONTROLLER_UID_LABEL,
    JOB_NAME_LABEL,
    LEGACY_CONTROLLER_UID_LABEL,
    LEGACY_JOB_NAME_LABEL,
    selector_matches,
    validate_label_selector,
)
from multimirror.batch.status_rules import is_indexed, validate_job_status
from multimirror.batch.types import Json, clone


def validate_job_create(job: Json) -> list[FieldError]:
    return _validate_job(job, prefixed=True, any_value=False)


def validate_job_update(job: Json, old: Json) -> list[FieldError]:
    old_labels = (old["spec"]["template"].get("metadata") or {}).get("labels") or {}
    prefixed = JOB_NAME_LABEL in old_labels and CONTROLLER_UID_LABEL in old_labels
    old_selector = old["spec"].get("selector") or {}
    any_value = bool(validate_label_selector(old_selector, "")) and not validate_label_selector(
        old_selector, "", any_value=True
    )
    errors = _validate_job(job, prefixed=prefixed, any_value=any_value)
    errors += validate_metadata_update(job["metadata"], old["metadata"])
    errors += _validate_spec(job["spec"], any_value=any_value)
    return errors + _validate_spec_update(job["spec"], old)


def validate_job_status_update(job: Json, old: Json) -> list[FieldError]:
    errors = validate_metadata_update(job["metadata"], old["metadata"])
    return errors + validate_job_status(job.get("status") or {}, old.get("status") or {}, old["spec"])


def _validate_job(job: Json, *, prefixed: bool, any_value: bool) -> list[FieldError]:
    metadata, spec = job["metadata"], job["spec"]
    errors = validate_metadata(metadata)  # O1
    errors += _validate_generated_selector(metadata, spec, prefixed=prefixed)
    errors += _validate_spec(spec, any_value=any_value)
    completions = spec.get("completions")
    if is_indexed(spec) and completions is not None and completions > 0:  # O2
        hostname = f"{metadata.get('name', '')}-{completions - 1}"
        if names.dns_label(hostname):
            detail = f"will not able to create pod with invalid DNS label: {hostname}"
            errors.append(invalid("metadata.name", metadata.get("name", ""), detail))
    return errors


def _validate_generated_selector(metadata: Json, spec: Json, *, prefixed: bool) -> list[FieldError]:
    selector = spec.get("selector")
    if spec.get("manualSelector") or selector is None:
        return []
    uid, name = metadata.get("uid", ""), metadata.get("name", "")
    expected = {LEGACY_CONTROLLER_UID_LABEL: uid, LEGACY_JOB_NAME_LABEL: name}
    if prefixed:
        expected |= {CONTROLLER_UID_LABEL: uid, JOB_NAME_LABEL: name}
    errors = [] if uid else [required("metadata.uid")]  # O4
    labels = (spec["template"].get("metadata") or {}).get("labels") or {}
    for key, value in expected.items():  # O5
        field = f"spec.template.metadata.labels[{key}]"
        if key not in labels:
            errors.append(required(field, f"must be '{value}'"))
        elif labels[key] != value:
            errors.append(invalid(field, _as_map(labels), f"must be '{value}'"))
    # A selector that is wrong in itself is told so by O8, and matched against nothing.
    if not validate_label_selector(selector, "") and not selector_matches(selector, expected):  # O6
        printed = _printed_selector(stored_value(selector))
        errors.append(invalid("spec.selector", printed, "`selector` not auto-generated"))
    return errors


def _as_map(labels: Json | None) -> Json | None:
    """Go prints the keys of a map in order."""
    return None if labels is None else dict(sorted(labels.items()))


def _printed_selector(selector: Json) -> Json:
    labels = selector.get("matchLabels")
    return selector if labels is None else {**selector, "matchLabels": _as_map(labels)}


def _validate_spec(spec: Json, *, any_value: bool) -> list[FieldError]:
    errors = validate_job_spec(spec)
    selector = spec.get("selector")
    if selector is None:  # O7
        errors.append(required("spec.selector"))
    else:  # O8
        errors += validate_label_selector(selector, "spec.selector", any_value=any_value)
    labels = (spec["template"].get("metadata") or {}).get("labels")
    readable = selector is None or not validate_label_selector(selector, "")
    if readable and not selector_matches(selector, labels):  # O9
        field = "spec.template.metadata.labels"
        errors.append(invalid(field, _as_map(labels), "`selector` does not match template `labels`"))
    return errors


def _validate_spec_update(spec: Json, old: Json) -> list[FieldError]:
    old_spec = old["spec"]
    errors = _validate_completions_update(spec, old_spec)
    errors += _immutable(spec, old_spec, "selector")
    errors += _validate_template_update(spec, old)
    for key in ("completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"):
        errors += _immutable(spec, old_spec, key)
    return errors


def _immutable(spec: Json, old_spec: Json, key: str) -> list[FieldError]:
    if stored_value(spec.get(key)) == stored_value(old_spec.get(key)):
        return []
    printed = printed_policy(spec, key) if key.endswith("Policy") else spec.get(key)
    return [invalid(f"spec.{key}", printed, IMMUTABLE)]


def _validate_completions_update(spec: Json, old_spec: Json) -> list[FieldError]:
    completions = spec.get("completions")
    if completions == old_spec.get("completions"):
        return []
    if not is_indexed(spec):
        return [invalid("spec.completions", completions, IMMUTABLE)]
    if completions is None or completions == spec.get("parallelism"):
        return []
    return [invalid("spec.completions", completions, "can only be modified in tandem with spec.parallelism")]


def _validate_template_update(spec: Json, old: Json) -> list[FieldError]:
    """A template is fixed, except while the Job is suspended with no pods left: then its scheduling directives and
    resources may be changed. All of that is judged on the old Job, so the same write may also resume it."""
    template, old_template = stored_template(spec["template"]), stored_template(old["spec"]["template"])
    if template == old_template:
        return []
    if not _is_safely_suspended(old):
        return [invalid("spec.template", template, IMMUTABLE)]
    expected = _with_resources_of(template["spec"], _with_directives_of(template["spec"], old_template["spec"]))
    if template["spec"] == stored_value(expected):
        return []
    return [invalid("spec.template.spec", template["spec"], IMMUTABLE)]


def _is_safely_suspended(job: Json) -> bool:
    status = job.get("status") or {}
    if not job["spec"].get("suspend") or status.get("active"):
        return False
    return status.get("startTime") is None or is_suspended(status)


def _with_directives_of(new: Json, old: Json) -> Json:
    """The old pod spec with the new one's scheduling directives."""
    expected: Json = clone(old)
    for key in ("nodeSelector", "tolerations", "schedulingGates"):
        expected[key] = new.get(key)
    affinity, old_affinity = new.get("affinity"), expected.get("affinity")
    if affinity is not None:
        expected["affinity"] = {**(old_affinity or {}), "nodeAffinity": affinity.get("nodeAffinity")}
    elif old_affinity is not None:
        rest = {key: value for key, value in old_affinity.items() if key != "nodeAffinity"}
        expected["affinity"] = rest or None
    return expected


def _with_resources_of(new: Json, old: Json) -> Json:
    """The old pod spec with the new one's container resources, where the containers are still the same ones."""
    expected = dict(old)
    for key in ("containers", "initContainers"):
        containers: list[Any] = new.get(key) or []
        old_containers = old.get(key) or []
        if len(containers) == len(old_containers):
            expected[key] = [
                {**before, "resources": now.get("resources", {})} if now.get("name") == before.get("name") else before
                for now, before in zip(containers, old_containers, strict=True)
            ]
    return expected
