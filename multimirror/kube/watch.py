"""The wire form of a watch: one JSON object per line, cut anywhere by the network.

Each event is parsed once. What is not an event is an error: a Status from the server (typed, 410 included), or
garbage. A stream that ends in the middle of a line lost that event; the reader resumes from the last resourceVersion
that it saw whole, so nothing is missed.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final, NamedTuple

import orjson

from .errors import BadAnswer, error_from_status
from .resource import Object

_LONGEST_LINE: Final = 64 * 1024 * 1024  # far above etcd's limit for an object: whatever sends more is no API server

INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"


Params = Mapping[str, str | int | bool | None]
"""The query of a request; None is left out."""
Trim = Callable[[Object], Object | None]
"""Makes an object smaller before it is kept, or gives another one in its place. None: it is not kept."""


class WatchEvent(NamedTuple):
    """One change. `type` is ADDED, MODIFIED, DELETED or BOOKMARK."""

    type: str
    object: Object
    kept: bool = True
    """False: whoever follows does not want it (see Trim); nothing but its name and version are left of it."""

    @property
    def ends_initial_events(self) -> bool:
        """The bookmark that says: that was everything, changes follow."""
        if self.type != "BOOKMARK":
            return False
        annotations = self.object["metadata"].get("annotations") or {}
        return annotations.get(INITIAL_EVENTS_END) == "true"


def watch_params(
    *,
    resource_version: str | None = None,
    label_selector: str | None = None,
    field_selector: str | None = None,
    timeout: float | None = None,
    bookmarks: bool = True,
    initial_events: bool = False,
) -> Params:
    """The query of a watch. `initial_events` asks for a streaming list: all that is there first, then a bookmark."""
    return {
        "watch": True,
        "allowWatchBookmarks": bookmarks or None,
        "resourceVersion": resource_version,
        "labelSelector": label_selector,
        "fieldSelector": field_selector,
        "timeoutSeconds": None if timeout is None else max(1, round(timeout)),
        "sendInitialEvents": initial_events or None,
        "resourceVersionMatch": "NotOlderThan" if initial_events else None,
    }


async def decode(
    chunks: AsyncIterator[bytes], cluster: str, trim: Trim | None = None
) -> AsyncIterator[list[WatchEvent]]:
    """The events of each chunk, as soon as they are whole.

    `trim` is applied to each object as soon as it is parsed: what it drops is still in the processor's cache, and the
    next object can use its memory.
    """
    pending: list[bytes] = []
    length = 0
    async for chunk in chunks:
        head, newline, tail = chunk.rpartition(b"\n")
        if not newline:
            pending.append(tail)
            length += len(tail)
            if length > _LONGEST_LINE:
                raise BadAnswer("a watch event of more than 64 MiB", cluster=cluster)
            continue
        lines = b"".join((*pending, head)).split(b"\n") if pending else head.split(b"\n")
        pending, length = ([tail], len(tail)) if tail else ([], 0)
        events, error = _parse(lines, cluster, trim)
        if events:
            yield events
        if error is not None:
            raise error


def _parse(lines: list[bytes], cluster: str, trim: Trim | None) -> tuple[list[WatchEvent], Exception | None]:
    """The events up to the first error, and that error: what came before it is not lost."""
    events: list[WatchEvent] = []
    for line in lines:
        if not line.strip():
            continue
        try:
            event = orjson.loads(line)
            kind, obj = event["type"], event["object"]
            if kind == "ERROR":
                return events, error_from_status(obj, cluster=cluster)
            whole = is_object(obj) or kind == "BOOKMARK"
        except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
            whole = False
        if not whole:
            text = line[:100].decode("utf-8", "replace")
            return events, BadAnswer(f"a watch sent something that is not an event: {text!r}", cluster=cluster)
        kept = obj if trim is None or kind == "BOOKMARK" else trim(obj)
        events.append(WatchEvent(kind, kept) if kept is not None else WatchEvent(kind, _remains(obj), kept=False))
    return events, None


def _remains(obj: Object) -> Object:
    """Enough to go on from it, and to forget what was there under its name."""
    metadata = obj["metadata"]
    return {"metadata": {key: metadata[key] for key in ("name", "namespace", "resourceVersion") if key in metadata}}


def is_object(value: object) -> bool:
    """What a cache relies on; a server may be broken, or hostile."""
    metadata = value.get("metadata") if isinstance(value, dict) else None
    return (
        isinstance(metadata, dict)
        and isinstance(metadata.get("name"), str)
        and isinstance(metadata.get("namespace", ""), str)
        and isinstance(metadata.get("resourceVersion"), str)
    )
