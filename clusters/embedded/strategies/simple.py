"""Kinds with little behaviour of their own."""

import base64
from collections.abc import Mapping
from typing import Final

from clusters.embedded.kinds import Strategy
from clusters.embedded.store import Object
from multimirror.batch import FieldError
from multimirror.batch.errors import forbidden, invalid, not_supported, required, too_long

_TOO_LONG: Final = 1024 * 1024
_HOOK_CHOICES: Final = {
    "sideEffects": ("None", "NoneOnDryRun"),
    "failurePolicy": ("Fail", "Ignore"),
    "matchPolicy": ("Equivalent", "Exact"),
}


class ConfigMaps(Strategy):
    """Data that cannot change once it is immutable."""

    def validate_create(self, obj: Object) -> list[FieldError]:
        """Keys and size."""
        data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
        problems = [_key_problem("data", key) for key in data if not _is_key(key)]
        problems += [_key_problem("binaryData", key) for key in binary if not _is_key(key)]
        problems += [
            invalid(f"data[{key}]", key, "duplicate of key present in binaryData") for key in data if key in binary
        ]
        size = sum(len(value.encode()) for value in data.values()) + sum(
            len(value) * 3 // 4 for value in binary.values()
        )
        if size > _TOO_LONG:
            problems.append(too_long("[]", _TOO_LONG))
        return problems

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        """Nothing changes when it is immutable."""
        return self.validate_create(new) + _immutable_problems(new, old, ("data", "binaryData"))


class Secrets(Strategy):
    """Like config maps, with a type that cannot change and `stringData` for writing only."""

    selectable = frozenset({"type"})

    def fields(self, obj: Object) -> Mapping[str, str]:
        """Secrets can be selected by type."""
        return {"type": obj.get("type", "")}

    def default(self, obj: Object) -> Object:
        """Opaque, and strings are encoded."""
        obj.setdefault("type", "Opaque")
        if strings := obj.pop("stringData", None):
            encoded = {key: base64.b64encode(value.encode()).decode() for key, value in strings.items()}
            obj["data"] = {**(obj.get("data") or {}), **encoded}
        return obj

    def validate_create(self, obj: Object) -> list[FieldError]:
        """Keys and size."""
        data = obj.get("data") or {}
        problems = [_key_problem("data", key) for key in data if not _is_key(key)]
        if sum(len(value) * 3 // 4 for value in data.values()) > _TOO_LONG:
            problems.append(too_long("data", _TOO_LONG))
        return problems

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        """The type stays."""
        problems = self.validate_create(new)
        if new.get("type") != old.get("type"):
            problems.append(invalid("type", new.get("type", ""), "field is immutable"))
        return problems + _immutable_problems(new, old, ("data",))


def _is_key(key: str) -> bool:
    allowed = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._")
    return bool(key) and len(key) <= 253 and key not in {".", ".."} and set(key) <= allowed and not key.startswith("..")


def _key_problem(field: str, key: str) -> FieldError:
    text = (
        "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME', "
        " or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
    )
    return invalid(f"{field}[{key}]", key, text)


def _immutable_problems(new: Object, old: Object, fields: tuple[str, ...]) -> list[FieldError]:
    if not old.get("immutable"):
        return []
    problems = []
    if not new.get("immutable"):
        problems.append(forbidden("immutable", "field is immutable when `immutable` is set"))
    problems += [
        forbidden(field, "field is immutable when `immutable` is set")
        for field in fields
        if (new.get(field) or {}) != (old.get(field) or {})
    ]
    return problems


class ServiceAccounts(Strategy):
    """Identities; tokens are given on request."""

    returns_deleted = True


class Leases(Strategy):
    """Locks: every change names the version that it changes."""

    unconditional_update = False
    create_on_update = True

    def validate_create(self, obj: Object) -> list[FieldError]:
        """Durations and counts."""
        spec = obj.get("spec") or {}
        problems = []
        if spec.get("leaseDurationSeconds", 1) <= 0:
            problems.append(
                invalid("spec.leaseDurationSeconds", spec["leaseDurationSeconds"], "must be greater than 0")
            )
        if spec.get("leaseTransitions", 0) < 0:
            text = "must be greater than or equal to 0"
            problems.append(invalid("spec.leaseTransitions", spec["leaseTransitions"], text))
        return problems


class Events(Strategy):
    """What happened. Selected by what they are about."""

    create_on_update = True
    selectable = frozenset(
        {
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        }
    )

    def fields(self, obj: Object) -> Mapping[str, str]:
        """By object, reason, type and source."""
        involved = obj.get("involvedObject") or {}
        found = {f"involvedObject.{key}": value for key, value in involved.items()}
        source = (obj.get("source") or {}).get("component") or obj.get("reportingComponent", "")
        found |= {"reason": obj.get("reason", ""), "type": obj.get("type", ""), "source": source}
        found["reportingComponent"] = obj.get("reportingComponent", "")
        return found

    def default(self, obj: Object) -> Object:
        """Some fields are there even when empty."""
        for key in ("firstTimestamp", "lastTimestamp", "eventTime"):
            obj.setdefault(key, None)
        for key in ("reportingComponent", "reportingInstance"):
            obj.setdefault(key, "")
        return obj

    def validate_create(self, obj: Object) -> list[FieldError]:
        """An event lives where its object lives."""
        involved = obj.get("involvedObject", {}).get("namespace", "")
        namespace = obj["metadata"].get("namespace", "")
        if involved and involved != namespace:
            return [invalid("involvedObject.namespace", involved, "does not match event.namespace")]
        if not involved and namespace != "default":
            return [invalid("involvedObject.namespace", "", "does not match event.namespace")]
        return []


class Nodes(Strategy):
    """Machines, real or simulated."""

    has_status = True
    wipes_status = False
    selectable = frozenset({"spec.unschedulable"})

    def fields(self, obj: Object) -> Mapping[str, str]:
        """By schedulability."""
        return {"spec.unschedulable": str(bool(obj.get("spec", {}).get("unschedulable"))).lower()}


class Rules(Strategy):
    """Roles and bindings: kept, not enforced."""

    create_on_update = True

    @staticmethod
    def name_rule(name: str) -> list[str]:
        """Any segment of a path."""
        if name in {".", ".."}:
            return [f"may not be '{name}'"]
        return [f"may not contain '{each}'" for each in "/%" if each in name]


class Webhooks(Strategy):
    """Webhook configurations; webhooks.py acts on them."""

    counts_generation = True
    unconditional_update = False

    def default(self, obj: Object) -> Object:
        """What the client left out."""
        mutating = obj.get("kind") == "MutatingWebhookConfiguration"
        for hook in obj.get("webhooks") or ():
            hook.setdefault("failurePolicy", "Fail")
            hook.setdefault("matchPolicy", "Equivalent")
            hook.setdefault("namespaceSelector", {})
            hook.setdefault("objectSelector", {})
            hook.setdefault("timeoutSeconds", 10)
            if mutating:
                hook.setdefault("reinvocationPolicy", "Never")
            for rule in hook.get("rules") or ():
                rule.setdefault("scope", "*")
            if service := hook.get("clientConfig", {}).get("service"):
                service.setdefault("port", 443)
        return obj

    def validate_create(self, obj: Object) -> list[FieldError]:
        """Each webhook has a full name, an address and versions."""
        problems: list[FieldError] = []
        for index, hook in enumerate(obj.get("webhooks") or ()):
            problems += _hook_problems(hook, f"webhooks[{index}]")
        return problems

    def spec_changed(self, new: Object, old: Object) -> bool:
        """The webhooks are the spec."""
        return new.get("webhooks") != old.get("webhooks")


def _hook_problems(hook: Object, field: str) -> list[FieldError]:
    problems: list[FieldError] = []
    name = hook.get("name", "")
    if not name:
        problems.append(required(f"{field}.name"))
    elif name.count(".") < 2:
        text = "should be a domain with at least three segments separated by dots"
        problems.append(invalid(f"{field}.name", name, text))
    problems += _client_problems(hook.get("clientConfig") or {}, f"{field}.clientConfig")
    if not hook.get("admissionReviewVersions"):
        text = "must specify one of v1, v1beta1"
        problems.append(required(f"{field}.admissionReviewVersions", text))
    for key, allowed in _HOOK_CHOICES.items():
        if hook.get(key) not in allowed:
            problems.append(not_supported(f"{field}.{key}", hook.get(key, ""), allowed))
    if not 1 <= hook.get("timeoutSeconds", 10) <= 30:
        text = "the timeout value must be between 1 and 30 seconds"
        problems.append(invalid(f"{field}.timeoutSeconds", hook["timeoutSeconds"], text))
    return problems


def _client_problems(client: Object, field: str) -> list[FieldError]:
    if ("url" in client) == ("service" in client):
        return [required(field, "exactly one of url or service is required")]
    if "url" in client and not client["url"].startswith("https://"):
        text = "'https' is the only allowed URL scheme; desired format: https://host[/path]"
        return [invalid(f"{field}.url", client["url"].partition(":")[0], text)]
    return []


class Services(Strategy):
    """Stored, so that tools that look for them find none or some; nothing listens."""

    has_status = True
    create_on_update = True
    returns_deleted = True

    def default(self, obj: Object) -> Object:
        """What the client left out."""
        spec = obj["spec"]
        spec.setdefault("type", "ClusterIP")
        spec.setdefault("sessionAffinity", "None")
        for port in spec.get("ports") or ():
            port.setdefault("protocol", "TCP")
            port.setdefault("targetPort", port.get("port"))
        return obj
