"""The validating reader: everything that a worker sends about our copies passes here before it is kept.

A worker may be broken, or hostile. What comes out has metadata of the right types and sizes, is in the place that was
asked for, is signed by us for this very cluster, and has a spec and status that its kind can work with. What does not
pass is left out, as if it were not there: that is the trouble of that copy alone, and nothing here raises.
"""

from collections.abc import Callable
from typing import Any, Final

import structlog

from multimirror.kube import Object, Resource
from multimirror.kube.trimming import compact
from multimirror.kube.watch import Trim

MadeByUs = Callable[[Resource, str, Object], bool]
"""Of an object with sound metadata, on the cluster of that identity: whether we made it."""

_LONGEST: Final = 253
_log = structlog.get_logger(__name__)


def reader_of_copies(
    resource: Resource, trim: Trim, *, namespace: str | None, is_ours: Callable[[Resource, Object], bool]
) -> Trim:
    """What an informer of copies keeps. `namespace`: None for all. `is_ours`: asked of what has sound metadata."""

    def read(obj: Object) -> Object | None:
        try:
            if not has_sound_metadata(obj) or namespace not in {None, obj["metadata"]["namespace"]}:
                return None
            kept = trim(obj) if is_ours(resource, obj) else None
            return compact(kept) if kept is not None else None
        except Exception:  # noqa: BLE001 - whatever nobody thought of costs this copy alone
            _log.exception("a copy cannot be read", resource=resource.name)
            return None

    return read


def has_sound_metadata(obj: Any) -> bool:
    """Everything that is read of an object's metadata is there and of the right type; labels are texts."""
    metadata = obj.get("metadata") if isinstance(obj, dict) else None
    if not isinstance(metadata, dict):
        return False
    texts = (metadata.get(key) for key in ("name", "namespace", "uid", "resourceVersion"))
    return (
        all(is_plain(text) for text in texts)
        and _is_texts(metadata.get("labels"))
        and _is_texts(metadata.get("annotations"))
        and isinstance(metadata.get("deletionTimestamp", ""), str)
        and isinstance(obj.get("spec", {}), dict)
        and isinstance(obj.get("status", {}), dict)
    )


def is_plain(text: object) -> bool:
    """A name, uid or version as API servers give them out: short, and nothing but visible ASCII."""
    return (
        isinstance(text, str)
        and 0 < len(text) <= _LONGEST
        and text.isascii()
        and text.isprintable()
        and " " not in text
        and "/" not in text
    )


def _is_texts(values: object) -> bool:
    """However many: API servers set no limit, and a copy that is not seen would run on, and be counted nowhere."""
    return values is None or (isinstance(values, dict) and all(isinstance(value, str) for value in values.values()))
