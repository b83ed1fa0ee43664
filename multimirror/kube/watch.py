"""The wire form of a watch: one JSON object per line, cut anywhere by the network.

Each event is parsed once. What is not an event is an error: a Status from the server (typed, 410 included), or
garbage. A stream that ends in the middle of a line lost that event; the reader resumes from the last resourceVersion
that it saw whole, so nothing is missed.

Whatever comes at once is taken in slices, between which everybody else has a turn.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Final, NamedTuple

import orjson

from .budget import values_in
from .errors import BadAnswer, error_from_status
from .resource import Object

_SLICE: Final = 64  # events between two turns of everybody else,
_SLICE_BYTES: Final = 128 * 1024  # or bytes, when they are large
_SHORTEST: Final = 40  # bytes of an event: a megabyte of line breaks is no watch
_LONGEST_VERSION: Final = 64
_LONGEST_NAME: Final = 253
_TYPES: Final = frozenset({"ADDED", "MODIFIED", "DELETED", "BOOKMARK"})

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
        annotations = self.object["metadata"].get("annotations")
        return isinstance(annotations, dict) and annotations.get(INITIAL_EVENTS_END) == "true"


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
    chunks: AsyncIterator[bytes],
    cluster: str,
    trim: Trim | None = None,
    *,
    longest: int = 64 * 1024 * 1024,
    most_values: int | None = None,
    refuse: Callable[[str], Exception] | None = None,
    values_came: Callable[[int], None] | None = None,
) -> AsyncIterator[list[WatchEvent]]:
    """The events of each chunk, as soon as they are whole.

    `trim` is applied to each object as soon as it is parsed: what it drops is still in the processor's cache, and the
    next object can use its memory. An event of more than `longest` bytes, or of more than `most_values`, raises what
    `refuse` makes of it; `values_came` is told how many there are before they are parsed.
    """
    pending = bytearray()
    async for chunk in chunks:
        head, newline, tail = chunk.rpartition(b"\n")
        if len(pending) + (chunk.index(b"\n") if newline else len(chunk)) > longest:
            raise _refused(f"it sent an event of more than {longest} bytes", cluster, refuse)
        if not newline:
            pending += tail
            continue
        if head.count(b"\n") * _SHORTEST > len(head) + _SLICE_BYTES:
            raise _refused("it sent thousands of lines that are no events", cluster, refuse)
        lines = (bytes(pending) + head).split(b"\n") if pending else head.split(b"\n")
        pending = bytearray(tail)
        for number, some in enumerate(_slices(lines)):
            if number:
                await asyncio.sleep(0)
            if most_values is not None:
                values = [values_in(line) for line in some]
                if max(values, default=0) > most_values:
                    raise _refused(f"it sent an event of more than {most_values} values", cluster, refuse)
                if values_came is not None:
                    values_came(sum(values))
            events, error = _parse(some, cluster, trim)
            if events:
                yield events
            if error is not None:
                raise error


def _slices(lines: list[bytes]) -> Iterator[list[bytes]]:
    some: list[bytes] = []
    size = 0
    for line in lines:
        some.append(line)
        size += len(line)
        if len(some) >= _SLICE or size >= _SLICE_BYTES:
            yield some
            some, size = [], 0
    if some:
        yield some


def _refused(message: str, cluster: str, refuse: Callable[[str], Exception] | None) -> Exception:
    return refuse(message) if refuse is not None else BadAnswer(message, cluster=cluster)


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
            whole = kind in _TYPES and (is_object(obj) if kind != "BOOKMARK" else _is_bookmark(obj))
        except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
            whole = False
        kept: Object | None = None
        if whole:
            try:
                kept = trim(obj) if trim is not None and kind != "BOOKMARK" else obj
            except RecursionError:  # nested without need
                whole = False
        if not whole:
            text = line[:100].decode("utf-8", "replace")
            return events, BadAnswer(f"a watch sent something that is not an event: {text!r}", cluster=cluster)
        events.append(WatchEvent(kind, kept) if kept is not None else WatchEvent(kind, _remains(obj), kept=False))
    return events, None


def _remains(obj: Object) -> Object:
    """Enough to go on from it, and to forget what was there under its name."""
    metadata = obj["metadata"]
    return {"metadata": {key: metadata[key] for key in ("name", "namespace", "resourceVersion") if key in metadata}}


def is_object(value: object) -> bool:
    """What a cache relies on; a server may be broken, or hostile."""
    metadata = value.get("metadata") if isinstance(value, dict) else None
    return isinstance(metadata, dict) and _is_named(metadata) and _is_version(metadata.get("resourceVersion"))


def _is_named(metadata: Mapping[str, object]) -> bool:
    name, namespace = metadata.get("name"), metadata.get("namespace", "")
    return (
        isinstance(name, str)
        and isinstance(namespace, str)
        and 0 < len(name) <= _LONGEST_NAME
        and len(namespace) <= _LONGEST_NAME
    )


def _is_version(value: object) -> bool:
    """Decimal numbers, in every API server (KEP-5504); here only what would be a burden is refused."""
    return isinstance(value, str) and len(value) <= _LONGEST_VERSION


def _is_bookmark(value: object) -> bool:
    metadata = value.get("metadata") if isinstance(value, dict) else None
    return isinstance(metadata, dict) and _is_version(metadata.get("resourceVersion"))
