"""The rules for a Job's spec, in the server's order: limits, modes, policies, pod template.

They apply to a Job and to the Job template of a CronJob alike, so every path starts with the given field. Rule names in
comments (S1, M2, ...) are those of the written specification that this was made from.
"""

from itertools import pairwise
from typing import Any, Final

from clusters.jobapi.pod_rules import container_names, validate_pod_template
from multimirror.batch import names
from multimirror.batch.errors import (
    OMITTED,
    FieldError,
    duplicate,
    invalid,
    not_negative,
    not_supported,
    required,
    too_long,
    too_many,
)
from multimirror.batch.indexes import IndexFormatError, IndexSet
from multimirror.batch.status_rules import INDEXED, is_indexed
from multimirror.batch.types import Json

NON_INDEXED: Final = "NonIndexed"

_MAX_PARALLELISM: Final = 100_000
_MAX_FAILED_INDEXES: Final = 100_000
_LARGE_COMPLETIONS: Final = 100_000
_LARGE_LIMIT: Final = 10_000
_MANAGED_BY_LIMIT: Final = 63
_RULES_LIMIT: Final = 20
_EXIT_CODES_LIMIT: Final = 255
_POD_CONDITIONS_LIMIT: Final = 20
_SUCCEEDED_INDEXES_LIMIT: Final = 64 * 1024

_ACTIONS: Final = ("Count", "FailIndex", "FailJob", "Ignore")
_OPERATORS: Final = ("In", "NotIn")
_CONDITION_STATUSES: Final = ("False", "True", "Unknown")
_COUNTS: Final = (
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
)


def validate_job_spec(spec: Json, field: str = "spec") -> list[FieldError]:
    errors = [error for key in _COUNTS for error in not_negative(f"{field}.{key}", spec.get(key))]  # S1
    if spec.get("maxFailedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:  # S2
        errors.append(required(f"{field}.backoffLimitPerIndex", "when maxFailedIndexes is specified"))
    if spec.get("managedBy") is not None:
        errors += _validate_managed_by(spec["managedBy"], f"{field}.managedBy")
    errors += _validate_completion_mode(spec, field)
    if spec.get("podFailurePolicy") is not None:
        errors += _validate_pod_failure_policy(spec, f"{field}.podFailurePolicy.rules")
    if spec.get("successPolicy") is not None:
        errors += _validate_success_policy(spec, f"{field}.successPolicy")
    errors += _validate_pod_replacement_policy(spec, f"{field}.podReplacementPolicy")
    errors += validate_pod_template(spec.get("template") or {}, f"{field}.template")
    return errors + _validate_restart_policy(spec, f"{field}.template.spec.restartPolicy")


def _validate_managed_by(value: str, field: str) -> list[FieldError]:
    if not value:  # M2
        return [required(field)]
    host, _, path = value.partition("/")
    if not host or not path:  # M3
        errors = [invalid(field, value, 'must be a domain-prefixed path (such as "acme.io/foo")')]
    else:  # M4, M5
        errors = [invalid(field, host, complaint) for complaint in names.dns_subdomain(host)]
        errors += [invalid(field, path, complaint) for complaint in names.domain_path(path)]
    if names.size(value) > _MANAGED_BY_LIMIT:  # M6
        errors.append(too_long(field, _MANAGED_BY_LIMIT))
    return errors


def _validate_completion_mode(spec: Json, field: str) -> list[FieldError]:
    mode = spec.get("completionMode")
    if mode is not None and mode not in (NON_INDEXED, INDEXED):  # S4
        return [not_supported(f"{field}.completionMode", mode, (NON_INDEXED, INDEXED))]
    if mode == INDEXED:
        return _validate_indexed(spec, field)
    return [  # S12
        invalid(f"{field}.{key}", spec[key], "requires indexed completion mode")
        for key in ("backoffLimitPerIndex", "maxFailedIndexes")
        if spec.get(key) is not None
    ]


def _validate_indexed(spec: Json, field: str) -> list[FieldError]:
    completions, parallelism = spec.get("completions"), spec.get("parallelism")
    max_failed = spec.get("maxFailedIndexes")
    errors = []
    if completions is None:  # S5
        errors.append(required(f"{field}.completions", "when completion mode is Indexed"))
    if parallelism is not None and parallelism > _MAX_PARALLELISM:  # S6
        detail = f"must be less than or equal to {_MAX_PARALLELISM} when completion mode is Indexed"
        errors.append(invalid(f"{field}.parallelism", parallelism, detail))
    if max_failed is not None:
        if completions is not None and max_failed > completions:  # S7
            errors.append(invalid(f"{field}.maxFailedIndexes", max_failed, "must be less than or equal to completions"))
        if max_failed > _MAX_FAILED_INDEXES:  # S8
            detail = f"must be less than or equal to {_MAX_FAILED_INDEXES}"
            errors.append(invalid(f"{field}.maxFailedIndexes", max_failed, detail))
    if completions is None or completions <= _LARGE_COMPLETIONS or spec.get("backoffLimitPerIndex") is None:
        return errors
    if max_failed is None:  # S9
        detail = f"must be specified when completions is above {_LARGE_COMPLETIONS}"
        errors.append(required(f"{field}.maxFailedIndexes", detail))
    for key in ("parallelism", "maxFailedIndexes"):  # S10, S11
        if (spec.get(key) or 0) > _LARGE_LIMIT:
            detail = (
                f"must be less than or equal to {_LARGE_LIMIT} when completions are above {_LARGE_COMPLETIONS} "
                "and used with backoff limit per index"
            )
            errors.append(invalid(f"{field}.{key}", spec[key], detail))
    return errors


def _validate_pod_failure_policy(spec: Json, field: str) -> list[FieldError]:
    rules = spec["podFailurePolicy"].get("rules") or []
    errors = [too_many(field, len(rules), _RULES_LIMIT)] if len(rules) > _RULES_LIMIT else []
    for i, rule in enumerate(rules):
        errors += _validate_pod_failure_rule(rule, spec, f"{field}[{i}]")
    return errors


def _validate_pod_failure_rule(rule: Json, spec: Json, field: str) -> list[FieldError]:
    errors = _choice(rule, "action", _ACTIONS, field)
    if rule.get("action") == "FailIndex" and spec.get("backoffLimitPerIndex") is None:
        errors.append(invalid(f"{field}.action", "FailIndex", "requires the backoffLimitPerIndex to be set"))
    exit_codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions") or []
    if exit_codes is not None:
        errors += _validate_exit_codes(exit_codes, spec, f"{field}.onExitCodes")
    if conditions:
        errors += _validate_pod_conditions(conditions, f"{field}.onPodConditions")
    if exit_codes is not None and conditions:
        errors.append(invalid(field, OMITTED, "specifying both OnExitCodes and OnPodConditions is not supported"))
    if exit_codes is None and not conditions:
        errors.append(invalid(field, OMITTED, "specifying one of OnExitCodes and OnPodConditions is required"))
    return errors


def _validate_exit_codes(requirement: Json, spec: Json, field: str) -> list[FieldError]:
    operator, values = requirement.get("operator", ""), requirement.get("values") or []
    errors = _choice(requirement, "operator", _OPERATORS, field)
    name = requirement.get("containerName")
    if name is not None and name not in container_names((spec.get("template") or {}).get("spec") or {}):
        detail = "must be one of the container or initContainer names in the pod template"
        errors.append(invalid(f"{field}.containerName", name, detail))
    if not values:
        errors.append(invalid(f"{field}.values", requirement.get("values"), "at least one value is required"))
    elif len(values) > _EXIT_CODES_LIMIT:
        errors.append(too_many(f"{field}.values", len(values), _EXIT_CODES_LIMIT))
    seen: set[int] = set()
    for i, value in enumerate(values):
        if operator == "In" and value == 0:
            errors.append(invalid(f"{field}.values[{i}]", value, "must not be 0 for the In operator"))
        if value in seen:
            errors.append(duplicate(f"{field}.values[{i}]", value))
        seen.add(value)
    if any(later < value for value, later in pairwise(values)):
        errors.append(invalid(f"{field}.values", values, "must be ordered"))
    return errors


def _validate_pod_conditions(patterns: list[Json], field: str) -> list[FieldError]:
    errors = []
    if len(patterns) > _POD_CONDITIONS_LIMIT:
        errors.append(too_many(field, len(patterns), _POD_CONDITIONS_LIMIT))
    for i, pattern in enumerate(patterns):
        kind = pattern.get("type", "")
        errors += [invalid(f"{field}[{i}].type", kind, complaint) for complaint in names.qualified_name(kind)]
        errors += _choice(pattern, "status", _CONDITION_STATUSES, f"{field}[{i}]")
    return errors


def _choice(holder: Json, key: str, supported: tuple[str, ...], field: str) -> list[FieldError]:
    value = holder.get(key, "")
    if not value:
        listed = " ".join(f'"{choice}"' for choice in supported)
        return [required(f"{field}.{key}", f"valid values: [{listed}]")]
    return [] if value in supported else [not_supported(f"{field}.{key}", value, supported)]


def _validate_success_policy(spec: Json, field: str) -> list[FieldError]:
    if not is_indexed(spec):  # S14
        return [invalid(field, _printed_success_policy(spec["successPolicy"]), "requires indexed completion mode")]
    rules = spec["successPolicy"].get("rules") or []
    if not rules:
        detail = "at least one rules must be specified when the successPolicy is specified"
        return [required(f"{field}.rules", detail)]
    errors = [too_many(f"{field}.rules", len(rules), _RULES_LIMIT)] if len(rules) > _RULES_LIMIT else []
    for i, rule in enumerate(rules):
        errors += _validate_success_rule(rule, spec.get("completions"), f"{field}.rules[{i}]")
    return errors


def _validate_success_rule(rule: Json, completions: int | None, field: str) -> list[FieldError]:
    count, text = rule.get("succeededCount"), rule.get("succeededIndexes")
    if count is None and text is None:
        return [required(field, "at least one of succeededCount or succeededIndexes must be specified")]
    if completions is None:
        return []  # S5 is reported; the server itself cannot check such a rule
    errors = []
    named = 0
    if text is not None:
        if names.size(text) > _SUCCEEDED_INDEXES_LIMIT:
            errors.append(too_long(f"{field}.succeededIndexes", _SUCCEEDED_INDEXES_LIMIT))
        try:
            named = len(IndexSet.parse(text, completions))
        except IndexFormatError as error:
            detail = f"error parsing succeededIndexes: {error}"
            errors.append(invalid(f"{field}.succeededIndexes", text, detail))
    if count is not None:
        path = f"{field}.succeededCount"
        errors += not_negative(path, count)
        if count > completions:
            detail = f"must be less than or equal to {completions} (the number of specified completions)"
            errors.append(invalid(path, count, detail))
        if text is not None and count > named:
            detail = (
                f"must be less than or equal to {named} (the number of indexes in the specified succeededIndexes field)"
            )
            errors.append(invalid(path, count, detail))
    return errors


def _validate_pod_replacement_policy(spec: Json, field: str) -> list[FieldError]:
    policy = spec.get("podReplacementPolicy")
    if policy is None:
        return []
    if spec.get("podFailurePolicy") is not None:  # S15
        return [] if policy == "Failed" else [not_supported(field, policy, ("Failed",))]
    supported = ("Failed", "TerminatingOrFailed")  # S16
    return [] if policy in supported else [not_supported(field, policy, supported)]


def _validate_restart_policy(spec: Json, field: str) -> list[FieldError]:
    policy = ((spec.get("template") or {}).get("spec") or {}).get("restartPolicy") or "Always"
    if policy == "Always":  # S18
        return [required(field, 'valid values: "OnFailure", "Never"')]
    if policy not in ("OnFailure", "Never"):  # S19
        return [not_supported(field, policy, ("OnFailure", "Never"))]
    if spec.get("podFailurePolicy") is not None and policy == "OnFailure":  # S20
        return [invalid(field, policy, 'only "Never" is supported when podFailurePolicy is specified')]
    return []


def printed_policy(spec: Json, key: str) -> Any:
    """A policy as error messages print it: in the server's internal spelling, nothing left out."""
    policy = spec.get(key)
    if policy is None:
        return None
    return _printed_success_policy(policy) if key == "successPolicy" else _printed_failure_policy(policy)


def _printed_success_policy(policy: Json) -> Json:
    keys = ("succeededIndexes", "succeededCount")
    return {"Rules": [{_capital(key): rule.get(key) for key in keys} for rule in policy.get("rules") or ()]}


def _printed_failure_policy(policy: Json) -> Json:
    return {
        "Rules": [
            {
                "Action": rule.get("action", ""),
                "OnExitCodes": _printed_exit_codes(rule.get("onExitCodes")),
                "OnPodConditions": [
                    {"Type": pattern.get("type", ""), "Status": pattern.get("status", "")}
                    for pattern in rule.get("onPodConditions") or ()
                ]
                or None,
            }
            for rule in policy.get("rules") or ()
        ]
    }


def _printed_exit_codes(requirement: Json | None) -> Json | None:
    if requirement is None:
        return None
    return {_capital(key): requirement.get(key) for key in ("containerName", "operator", "values")}


def _capital(key: str) -> str:
    return key[0].upper() + key[1:]
