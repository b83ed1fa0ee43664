"""The events of events.k8s.io: the same objects as the core group's, under other names."""

from typing import Any, Final

from clusters.embedded.store import Object

_NAMES: Final = {
    "regarding": "involvedObject",
    "note": "message",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
    "reportingController": "reportingComponent",
}
_BACK: Final = {core: new for new, core in _NAMES.items()}


def from_core(event: Object) -> Object:
    """A core event as events.k8s.io shows it."""
    return _renamed(event, _BACK, "events.k8s.io/v1")


def to_core(event: Object) -> Object:
    """An event of events.k8s.io as it is stored."""
    return _renamed(event, _NAMES, "v1")


def _renamed(event: Object, names: dict[str, str], api_version: str) -> Object:
    renamed: dict[str, Any] = {names.get(key, key): value for key, value in event.items()}
    renamed["apiVersion"] = api_version
    return renamed
