"""What the server fills into a pod template, and beyond that into a pod."""

from typing import Final

from multimirror.batch.quantities import QuantityError, canonical_resources
from multimirror.batch.types import Json, clone

_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_PROBE_DEFAULTS: Final = (
    ("timeoutSeconds", 1),
    ("periodSeconds", 10),
    ("successThreshold", 1),
    ("failureThreshold", 3),
)
_MODE_VOLUMES: Final = ("secret", "configMap", "downwardAPI", "projected")
_SOURCELESS: Final = frozenset({"name"})


def default_pod_spec(spec: Json) -> Json:
    """The pod spec of a template with the server's defaults."""
    spec = clone(spec)
    for key, default in (
        ("restartPolicy", "Always"),
        ("dnsPolicy", "ClusterFirst"),
        ("schedulerName", "default-scheduler"),
    ):
        spec[key] = spec.get(key) or default
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("securityContext", {})
    # The deprecated alias follows the field.
    if account := spec.get("serviceAccountName") or spec.get("serviceAccount"):
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    for container in (*spec.get("initContainers", ()), *spec.get("containers", ())):
        _default_container(container)
    for volume in spec.get("volumes", ()):
        _default_volume(volume)
    return spec


def default_pod(pod: Json) -> Json:
    """A pod with the server's defaults: those of the template, and what only pods get."""
    pod = {**pod, "spec": default_pod_spec(pod.get("spec") or {})}
    spec = pod["spec"]
    spec.setdefault("enableServiceLinks", True)
    for container in (*spec.get("initContainers", ()), *spec.get("containers", ())):
        resources = container["resources"]
        if limits := resources.get("limits"):
            resources["requests"] = {**limits, **resources.get("requests", {})}
        if spec.get("hostNetwork"):
            for port in container.get("ports", ()):
                port["hostPort"] = port.get("hostPort") or port.get("containerPort")
    return pod


def _default_container(container: Json) -> None:
    container["terminationMessagePath"] = container.get("terminationMessagePath") or "/dev/termination-log"
    container["terminationMessagePolicy"] = container.get("terminationMessagePolicy") or "File"
    if not container.get("imagePullPolicy"):
        container["imagePullPolicy"] = "Always" if _is_latest(container.get("image", "")) else "IfNotPresent"
    resources = container.setdefault("resources", {})
    for key in ("limits", "requests"):
        try:
            resources |= {key: canonical_resources(resources[key])} if resources.get(key) else {}
        except QuantityError:
            continue  # a quantity that cannot be read is refused when the object is decoded, not here
    for port in container.get("ports", ()):
        port["protocol"] = port.get("protocol") or "TCP"
    for variable in container.get("env", ()):
        _default_field_ref((variable.get("valueFrom") or {}).get("fieldRef"))
    for name in _PROBES:
        if probe := container.get(name):
            _default_probe(probe)
    for hook in (container.get("lifecycle") or {}).values():
        if isinstance(hook, dict):
            _default_http_get(hook.get("httpGet"))


def _default_probe(probe: Json) -> None:
    for key, default in _PROBE_DEFAULTS:
        probe[key] = probe.get(key) or default
    _default_http_get(probe.get("httpGet"))
    if "grpc" in probe:
        probe["grpc"].setdefault("service", "")


def _default_http_get(action: Json | None) -> None:
    if action is not None:
        action["path"] = action.get("path") or "/"
        action["scheme"] = action.get("scheme") or "HTTP"


def _default_field_ref(reference: Json | None) -> None:
    if reference is not None:
        reference["apiVersion"] = reference.get("apiVersion") or "v1"


def _default_volume(volume: Json) -> None:
    if volume.keys() <= _SOURCELESS:
        volume["emptyDir"] = {}
    for name in _MODE_VOLUMES:
        if isinstance(volume.get(name), dict):
            volume[name].setdefault("defaultMode", 0o644)
    if isinstance(volume.get("hostPath"), dict):
        volume["hostPath"].setdefault("type", "")
    for item in (volume.get("downwardAPI") or {}).get("items", ()):
        _default_field_ref(item.get("fieldRef"))
    for source in (volume.get("projected") or {}).get("sources", ()):
        if isinstance(source.get("serviceAccountToken"), dict):
            source["serviceAccountToken"].setdefault("expirationSeconds", 3600)
        for item in (source.get("downwardAPI") or {}).get("items", ()):
            _default_field_ref(item.get("fieldRef"))


def _is_latest(image: str) -> bool:
    """Whether the image is meant to be pulled each time: no tag and no digest, or the tag `latest`."""
    if "@" in image:
        return False
    tag = image.rpartition("/")[2].partition(":")[2]
    return tag in ("", "latest")
