"""The rules for pod templates and pod specs, as far as batch work meets them.

Covered: containers (names, images, ports, environment, resources, pull and termination policies), volumes and their
mounts by name, restart and DNS policy, node selector, tolerations, deadlines, hostname and the like. Not covered, and
accepted as they are: the inner rules of volume sources, probes, affinity, security contexts and topology spread.
"""

from typing import Final

from clusters.jobapi.metadata import validate_annotations
from multimirror.batch import names
from multimirror.batch.errors import FieldError, duplicate, forbidden, invalid, not_supported, required
from multimirror.batch.labels import validate_labels
from multimirror.batch.quantities import QuantityError, quantity
from multimirror.batch.types import Json

RESTART_POLICIES: Final = ("Always", "OnFailure", "Never")
_DNS_POLICIES: Final = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
_MESSAGE_POLICIES: Final = ("File", "FallbackToLogsOnError")
_PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
_MAX_INT32: Final = 2**31 - 1


def validate_pod_template(template: Json, field: str) -> list[FieldError]:
    metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
    errors = validate_labels(metadata.get("labels"), f"{field}.labels")
    errors += validate_annotations(metadata.get("annotations"), f"{field}.annotations")
    errors += validate_pod_spec(spec, f"{field}.spec")
    if spec.get("ephemeralContainers"):
        detail = "ephemeral containers not allowed in pod template"
        errors.append(forbidden(f"{field}.spec.ephemeralContainers", detail))
    return errors


def validate_pod_spec(spec: Json, field: str) -> list[FieldError]:
    volumes, errors = _validate_volumes(spec.get("volumes") or [], f"{field}.volumes")
    errors += _validate_containers(spec, volumes, field)
    errors += _choice(spec, "restartPolicy", RESTART_POLICIES, field)
    errors += _choice(spec, "dnsPolicy", _DNS_POLICIES, field)
    errors += validate_labels(spec.get("nodeSelector"), f"{field}.nodeSelector")
    if spec.get("dnsPolicy") == "None" and not (spec.get("dnsConfig") or {}).get("nameservers"):
        errors.append(_missing_nameservers(spec.get("dnsConfig"), f"{field}.dnsConfig"))
    errors += _validate_scheduling_gates(spec.get("schedulingGates") or [], f"{field}.schedulingGates")
    for key in ("serviceAccountName", "nodeName"):
        if value := spec.get(key):
            errors += [invalid(f"{field}.{key}", value, complaint) for complaint in names.dns_subdomain(value)]
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= _MAX_INT32:
        detail = f"must be between 1 and {_MAX_INT32}, inclusive"
        errors.append(invalid(f"{field}.activeDeadlineSeconds", deadline, detail))
    for key in ("hostname", "subdomain"):
        if value := spec.get(key):
            errors += [invalid(f"{field}.{key}", value, complaint) for complaint in names.dns_label(value)]
    for i, toleration in enumerate(spec.get("tolerations") or ()):
        errors += _validate_toleration(toleration, f"{field}.tolerations[{i}]")
    if value := spec.get("priorityClassName"):
        errors += [invalid(f"{field}.priorityClassName", value, complaint) for complaint in names.dns_subdomain(value)]
    return errors


def container_names(spec: Json) -> list[str]:
    """The names of all containers that run to an end, init containers included."""
    return [c.get("name", "") for c in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))]


def _validate_containers(spec: Json, volumes: set[str], field: str) -> list[FieldError]:
    containers = spec.get("containers") or []
    errors = [] if containers else [required(f"{field}.containers")]
    seen: set[str] = set()
    for kind, listed in (("containers", containers), ("initContainers", spec.get("initContainers") or [])):
        for i, container in enumerate(listed):
            path = f"{field}.{kind}[{i}]"
            errors += _validate_container(container, volumes, path)
            name = container.get("name", "")
            if name in seen:
                errors.append(duplicate(f"{path}.name", name))
            elif name or kind == "containers":
                seen.add(name)
    return errors


def _validate_container(container: Json, volumes: set[str], field: str) -> list[FieldError]:
    errors = []
    if name := container.get("name"):
        errors += [invalid(f"{field}.name", name, complaint) for complaint in names.dns_label(name)]
    else:
        errors.append(required(f"{field}.name"))
    if not container.get("image"):
        errors.append(required(f"{field}.image"))
    errors += _choice(container, "terminationMessagePolicy", _MESSAGE_POLICIES, field)
    for i, port in enumerate(container.get("ports") or ()):
        errors += _validate_port(port, f"{field}.ports[{i}]")
    for i, variable in enumerate(container.get("env") or ()):
        errors += _validate_variable(variable, f"{field}.env[{i}]")
    errors += _validate_mounts(container.get("volumeMounts") or [], volumes, f"{field}.volumeMounts")
    errors += _choice(container, "imagePullPolicy", _PULL_POLICIES, field)
    return errors + _validate_resources(container.get("resources") or {}, f"{field}.resources")


def _validate_port(port: Json, field: str) -> list[FieldError]:
    errors = []
    for key in ("containerPort", "hostPort"):
        number = port.get(key) or 0
        if number == 0 and key == "containerPort":
            errors.append(required(f"{field}.containerPort"))
        elif number and not 1 <= number <= 65535:
            errors.append(invalid(f"{field}.{key}", number, "must be between 1 and 65535, inclusive"))
    return errors + _choice(port, "protocol", _PROTOCOLS, field)


def _validate_variable(variable: Json, field: str) -> list[FieldError]:
    name = variable.get("name")
    if not name:
        return [required(f"{field}.name")]
    errors = []
    if "=" in name or not (name.isascii() and name.isprintable()):
        detail = "a valid environment variable name must consist only of printable ASCII characters other than '='"
        errors.append(invalid(f"{field}.name", name, detail))
    if variable.get("value") and variable.get("valueFrom"):
        errors.append(invalid(f"{field}.valueFrom", "", "may not be specified when `value` is not empty"))
    return errors


def _validate_mounts(mounts: list[Json], volumes: set[str], field: str) -> list[FieldError]:
    errors = []
    paths: set[str] = set()
    for i, mount in enumerate(mounts):
        name, path = mount.get("name", ""), mount.get("mountPath", "")
        if not name:
            errors.append(required(f"{field}[{i}].name"))
        if name not in volumes:
            errors.append(FieldError("FieldValueNotFound", f"{field}[{i}].name", f'Not found: "{name}"'))
        if not path:
            errors.append(required(f"{field}[{i}].mountPath"))
        if path in paths:
            errors.append(invalid(f"{field}[{i}].mountPath", path, "must be unique"))
        paths.add(path)
    return errors


def _validate_volumes(volumes: list[Json], field: str) -> tuple[set[str], list[FieldError]]:
    """The names that can be mounted (a volume with a mistake cannot), and the mistakes."""
    errors = []
    seen: set[str] = set()
    for i, volume in enumerate(volumes):
        path, name = f"{field}[{i}]", volume.get("name", "")
        sources = [key for key, value in volume.items() if key != "name" and value is not None]
        own = [forbidden(f"{path}.{key}", "may not specify more than 1 volume type") for key in sorted(sources)[1:]]
        if not name:
            own.append(required(f"{path}.name"))
        own += [invalid(f"{path}.name", name, complaint) for complaint in names.dns_label(name) if name]
        if name in seen:
            own.append(duplicate(f"{path}.name", name))
        if not own:
            seen.add(name)
        errors += own
    return seen, errors


def _validate_resources(resources: Json, field: str) -> list[FieldError]:
    errors = []
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for key, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            if _amount(amount) < 0:
                errors.append(invalid(f"{field}.{key}[{name}]", amount, "must be greater than or equal to 0"))
    for name, amount in requests.items():
        if name in limits and _amount(amount) > _amount(limits[name]):
            detail = f"must be less than or equal to {name} limit of {limits[name]}"
            errors.append(invalid(f"{field}.requests", amount, detail))
    return errors


def _amount(text: object) -> float:
    try:
        return float(quantity(text))
    except QuantityError:
        return 0.0


def _missing_nameservers(config: Json | None, field: str) -> FieldError:
    if config is None:
        return required(field, "must provide `dnsConfig` when `dnsPolicy` is None")
    return required(f"{field}.nameservers", "must provide at least one DNS nameserver when `dnsPolicy` is None")


def _validate_scheduling_gates(gates: list[Json], field: str) -> list[FieldError]:
    errors = []
    seen: set[str] = set()
    for i, gate in enumerate(gates):
        name = gate.get("name", "")
        errors += [invalid(f"{field}[{i}]", name, complaint) for complaint in names.qualified_name(name)]
        if name in seen:
            errors.append(duplicate(f"{field}[{i}]", name))
        seen.add(name)
    return errors


def _validate_toleration(toleration: Json, field: str) -> list[FieldError]:
    errors = []
    key, operator = toleration.get("key", ""), toleration.get("operator", "")
    value, effect = toleration.get("value", ""), toleration.get("effect", "")
    if key:
        errors += [invalid(f"{field}.key", key, complaint) for complaint in names.qualified_name(key)]
    elif operator != "Exists":
        detail = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        errors.append(invalid(f"{field}.operator", operator, detail))
    if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
        detail = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        errors.append(invalid(f"{field}.effect", effect, detail))
    match operator:
        case "" | "Equal":
            if complaints := names.label_value(value):
                errors.append(invalid(f"{field}.operator", value, ";".join(complaints)))
        case "Exists":
            if value:
                errors.append(invalid(f"{field}.operator", value, "value must be empty when `operator` is 'Exists'"))
        case "Lt" | "Gt":
            errors.append(not_supported(f"{field}.operator", operator, ("Equal", "Exists", "Lt", "Gt")))
        case _:
            errors.append(not_supported(f"{field}.operator", operator, ("Equal", "Exists")))
    if effect and effect not in ("NoSchedule", "PreferNoSchedule", "NoExecute"):
        supported = ("NoSchedule", "PreferNoSchedule", "NoExecute")
        errors.append(not_supported(f"{field}.effect", effect, supported))
    return errors


def _choice(holder: Json, key: str, supported: tuple[str, ...], field: str) -> list[FieldError]:
    value = holder.get(key, "")
    if value in supported:
        return []
    return [not_supported(f"{field}.{key}", value, supported) if value else required(f"{field}.{key}")]
