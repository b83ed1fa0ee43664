"""Labels and label selectors: what is valid, and what matches."""

from collections.abc import Mapping
from typing import Any, Final

from multimirror.batch import names
from multimirror.batch.errors import FieldError, forbidden, invalid, required
from multimirror.batch.types import Json

# What the server writes on a Job and on its pods, from the Job's name and uid.
JOB_NAME_LABEL: Final = "batch.kubernetes.io/job-name"
CONTROLLER_UID_LABEL: Final = "batch.kubernetes.io/controller-uid"
LEGACY_JOB_NAME_LABEL: Final = "job-name"
LEGACY_CONTROLLER_UID_LABEL: Final = "controller-uid"


def validate_labels(labels: Mapping[str, str] | None, field: str) -> list[FieldError]:
    errors = []
    for key, value in (labels or {}).items():
        errors += [invalid(field, key, complaint) for complaint in names.qualified_name(key)]
        errors += [invalid(field, value, complaint) for complaint in names.label_value(value)]
    return errors


def validate_label_selector(selector: Json, field: str, *, any_value: bool = False) -> list[FieldError]:
    """`any_value` tolerates values that no label could have, for selectors stored before that was checked."""
    errors = validate_labels(selector.get("matchLabels"), f"{field}.matchLabels")
    for i, expression in enumerate(selector.get("matchExpressions") or ()):
        errors += _validate_expression(expression, f"{field}.matchExpressions[{i}]", any_value=any_value)
    return errors


def _validate_expression(expression: Json, field: str, *, any_value: bool) -> list[FieldError]:
    errors = []
    operator, values = expression.get("operator", ""), expression.get("values") or []
    match operator:
        case "In" | "NotIn":
            if not values:
                errors.append(required(f"{field}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
        case "Exists" | "DoesNotExist":
            if values:
                detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                errors.append(forbidden(f"{field}.values", detail))
        case _:
            errors.append(invalid(f"{field}.operator", operator, "not a valid selector operator"))
    key = expression.get("key", "")
    errors += [invalid(f"{field}.key", key, complaint) for complaint in names.qualified_name(key)]
    if not any_value:
        for i, value in enumerate(values):
            errors += [invalid(f"{field}.values[{i}]", value, complaint) for complaint in names.label_value(value)]
    return errors


def selector_matches(selector: Json | None, labels: Mapping[str, str] | None) -> bool:
    """Whether the labels satisfy the selector. A null selector matches nothing, an empty one everything."""
    if selector is None:
        return False
    labels = labels or {}
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_expression_matches(expression, labels) for expression in selector.get("matchExpressions") or ())


def _expression_matches(expression: Json, labels: Mapping[str, str]) -> bool:
    key: Any = expression.get("key")
    values = expression.get("values") or ()
    match expression.get("operator"):
        case "In":
            return key in labels and labels[key] in values
        case "NotIn":
            return key not in labels or labels[key] not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
        case _:
            return False
