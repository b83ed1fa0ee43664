"""Workload and PodGroup (scheduling.k8s.io/v1alpha2): who shall be scheduled together."""

from typing import Any, Final

from clusters.embedded.kinds import Strategy
from clusters.embedded.store import Object
from clusters.jobapi.metadata import IMMUTABLE
from multimirror.batch import FieldError
from multimirror.batch.errors import invalid, not_negative, required, too_many
from multimirror.batch.names import dns_label, dns_subdomain

PROTECTION: Final = "scheduling.k8s.io/podgroup-protection"
_MOST_TEMPLATES: Final = 8
_GATED: Final = ("schedulingConstraints", "resourceClaims", "disruptionMode", "priorityClassName", "priority")


class Workloads(Strategy):
    """What a Job's pods are, as a whole."""

    counts_generation = True

    def default(self, obj: Object) -> Object:
        """Fields behind gates that are off are dropped."""
        for template in obj["spec"].get("podGroupTemplates") or ():
            _drop_gated(template)
        return obj

    def validate_create(self, obj: Object) -> list[FieldError]:
        """A workload has one to eight templates, each with a policy."""
        spec = obj["spec"]
        problems = _reference_problems(spec.get("controllerRef"))
        templates = spec.get("podGroupTemplates") or []
        field = "spec.podGroupTemplates"
        if not templates:
            problems.append(required(field, "must have at least one item"))
        if len(templates) > _MOST_TEMPLATES:
            problems.append(too_many(field, len(templates), _MOST_TEMPLATES))
        names: set[str] = set()
        for index, template in enumerate(templates):
            problems += _named(template, f"{field}[{index}].name")
            name = template.get("name", "")
            if name in names:
                problems.append(FieldError("FieldValueDuplicate", f"{field}[{index}]", f'Duplicate value: "{name}"'))
            names.add(name)
            problems += _policy_problems(template.get("schedulingPolicy") or {}, f"{field}[{index}].schedulingPolicy")
        return problems

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        """What it refers to is fixed."""
        problems = self.validate_create(new)
        for key in ("controllerRef", "podGroupTemplates"):
            if new["spec"].get(key) != old["spec"].get(key):
                problems.append(invalid(f"spec.{key}", new["spec"].get(key), IMMUTABLE))
        return problems


class PodGroups(Strategy):
    """Pods that are scheduled together; held until the last of them is gone."""

    has_status = True
    counts_generation = True

    def default(self, obj: Object) -> Object:
        """Fields behind gates that are off are dropped."""
        _drop_gated(obj["spec"])
        return obj

    def prepare_create(self, obj: Object) -> Object:
        """Protected from going before its pods."""
        obj = self.default(obj)
        finalizers = obj["metadata"].setdefault("finalizers", [])
        if PROTECTION not in finalizers:
            finalizers.append(PROTECTION)
        return obj

    def validate_create(self, obj: Object) -> list[FieldError]:
        """A group has a policy, and may name the template that it was made of."""
        spec = obj["spec"]
        problems: list[FieldError] = []
        if (reference := spec.get("podGroupTemplateRef")) is not None:
            workload = reference.get("workload") or {}
            field = "spec.podGroupTemplateRef.workload"
            for key, rule in (("workloadName", dns_subdomain), ("podGroupTemplateName", dns_label)):
                value = workload.get(key)
                if not value:
                    problems.append(required(f"{field}.{key}"))
                else:
                    problems += [invalid(f"{field}.{key}", value, text) for text in rule(value)]
        return problems + _policy_problems(spec.get("schedulingPolicy") or {}, "spec.schedulingPolicy")

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        """The spec is fixed."""
        problems = self.validate_create(new)
        for key in ("podGroupTemplateRef", "schedulingPolicy"):
            if new["spec"].get(key) != old["spec"].get(key):
                problems.append(invalid(f"spec.{key}", new["spec"].get(key), IMMUTABLE))
        return problems


def _drop_gated(holder: dict[str, Any]) -> None:
    for key in _GATED:
        holder.pop(key, None)


def _named(template: dict[str, Any], field: str) -> list[FieldError]:
    name = template.get("name")
    if not name:
        return [required(field)]
    return [invalid(field, name, text) for text in dns_label(name)]


def _reference_problems(reference: dict[str, Any] | None) -> list[FieldError]:
    if reference is None:
        return []
    field = "spec.controllerRef"
    problems = [required(f"{field}.{key}") for key in ("kind", "name") if not reference.get(key)]
    if group := reference.get("apiGroup"):
        problems += [invalid(f"{field}.apiGroup", group, text) for text in dns_subdomain(group)]
    return problems


def _policy_problems(policy: dict[str, Any], field: str) -> list[FieldError]:
    chosen = [key for key in ("basic", "gang") if policy.get(key) is not None]
    if not chosen:
        return [required(field, "must specify one of: `basic`, `gang`")]
    if len(chosen) > 1:
        return [invalid(field, "{basic, gang}", "must specify exactly one of: `basic`, `gang`")]
    if chosen == ["gang"]:
        count = policy["gang"].get("minCount")
        if count is None:
            return [required(f"{field}.gang.minCount")]
        if count < 1:
            return not_negative(f"{field}.gang.minCount", count) or [
                invalid(f"{field}.gang.minCount", count, "must be greater than or equal to 1")
            ]
    return []
