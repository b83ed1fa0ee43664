"""Admission policies and their bindings: kept, so that who installs or looks for them finds them, and not evaluated."""

from clusters.embedded.kinds import Strategy
from clusters.embedded.store import Object
from multimirror.batch import FieldError
from multimirror.batch.errors import required


class Policies(Strategy):
    """What is allowed, in CEL."""

    has_status = True
    counts_generation = True
    unconditional_update = False

    def default(self, obj: Object) -> Object:
        """What the client left out."""
        spec = obj.setdefault("spec", {})
        spec.setdefault("failurePolicy", "Fail")
        _default_match(spec.get("matchConstraints"))
        return obj

    def validate_create(self, obj: Object) -> list[FieldError]:
        """What it is about, and what it says."""
        spec = obj["spec"]
        problems: list[FieldError] = []
        if not (spec.get("matchConstraints") or {}).get("resourceRules"):
            problems.append(
                required("spec.matchConstraints" + (".resourceRules" if "matchConstraints" in spec else ""))
            )
        if not spec.get("validations") and not spec.get("auditAnnotations"):
            text = "validations or auditAnnotations must be non-empty"
            problems += [required("spec.validations", text), required("spec.auditAnnotations", text)]
        return problems


class PolicyBindings(Strategy):
    """Where a policy applies."""

    counts_generation = True
    unconditional_update = False

    def default(self, obj: Object) -> Object:
        """What the client left out."""
        _default_match(obj.setdefault("spec", {}).get("matchResources"))
        return obj

    def validate_create(self, obj: Object) -> list[FieldError]:
        """Which policy, and what comes of it."""
        return [required(f"spec.{key}") for key in ("policyName", "validationActions") if not obj["spec"].get(key)]


def _default_match(match: Object | None) -> None:
    if match is None:
        return
    match.setdefault("matchPolicy", "Equivalent")
    match.setdefault("namespaceSelector", {})
    match.setdefault("objectSelector", {})
    for rule in (*(match.get("resourceRules") or ()), *(match.get("excludeResourceRules") or ())):
        rule.setdefault("scope", "*")
