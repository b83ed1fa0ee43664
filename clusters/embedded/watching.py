"""Watches: every change of a resource, in order, to everyone who asked.

An event is encoded once, whoever watches. A watch whose client reads too slowly keeps only its position: when the
client has caught up, the watch goes on from history, or ends with 410 when history has moved on. So a slow client costs
nothing and loses nothing silently. Changes that move an object into or out of a selector are shown as ADDED and
DELETED.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import orjson

from clusters.embedded import errors
from clusters.embedded.context import as_served
from clusters.embedded.http import Sink, Stream
from clusters.embedded.kinds import Kind
from clusters.embedded.schemas import Findings, clean
from clusters.embedded.selecting import Selection
from clusters.embedded.store import Event, Item, Table

Encoding = Callable[[str, Item], bytes]
"""Makes the bytes of an event from its type and object."""

_BATCH: Final = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    """What the client asked for."""

    version: int = 0
    bookmarks: bool = False
    initial: bool | None = None
    """`sendInitialEvents`: the state first, then a bookmark that says so."""
    timeout: int = 0
    encoding: tuple[str, Encoding] | None = None
    """For other than plain objects: a name to share encodings under, and their maker."""


class Watches:
    """All watches of a server: bookmarks, and the end of all of them."""

    def __init__(self, *, bookmark_interval: float = 60.0) -> None:
        self._interval = bookmark_interval
        self._open: dict[Watch, None] = {}  # in order: a run can be repeated exactly
        self._timer: asyncio.TimerHandle | None = None

    def add(self, watch: "Watch") -> None:
        """A watch began."""
        self._open[watch] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._interval, self._bookmark)

    def discard(self, watch: "Watch") -> None:
        """A watch ended."""
        self._open.pop(watch, None)

    def end_of(self, table: Table) -> None:
        """End the watches of a resource that is no longer served."""
        for watch in tuple(self._open):
            if watch.table is table:
                watch.end()

    def _bookmark(self) -> None:
        self._timer = None
        for watch in tuple(self._open):
            watch.bookmark()
        if self._open:
            self._timer = asyncio.get_running_loop().call_later(self._interval, self._bookmark)

    def close(self) -> None:
        """End all of them."""
        if self._timer:
            self._timer.cancel()
            self._timer = None
        for watch in tuple(self._open):
            watch.end()


class Watch(Stream):
    """One client's watch of one resource."""

    def __init__(self, watches: Watches, kind: Kind, selection: Selection, options: WatchOptions) -> None:
        self._watches, self._kind, self._selection, self._options = watches, kind, selection, options
        self._sink: Sink | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._sent = 0
        """The version up to which the client has been told everything."""
        self._behind = False
        self._encode = options.encoding[1] if options.encoding else self._plain
        plain = "" if kind.storage else kind.api_version
        self._shared = options.encoding[0] if options.encoding else plain

    @property
    def table(self) -> Table:
        """What it watches."""
        return self._kind.table

    def start(self, sink: Sink) -> None:
        """Send what is there already, then stay."""
        self._sink = sink
        table, options = self._kind.table, self._options
        if options.timeout:
            self._timer = asyncio.get_running_loop().call_later(options.timeout, self._time_out)
        self._watches.add(self)
        if options.initial or (options.initial is None and not options.version):
            self._send_state()
            self._sent = table.version
            if options.initial and options.bookmarks:
                self._send_bookmark(initial=True)
        else:
            self._sent = options.version or table.version
            if not self._catch_up():
                return
        table.subscribers.append(self.deliver)

    def resume(self) -> None:
        """The client has read what was sent."""
        if self._behind:
            self._catch_up()

    def stop(self) -> None:
        """Over."""
        self._sink = None
        self._watches.discard(self)
        if self._timer:
            self._timer.cancel()
        if self.deliver in self._kind.table.subscribers:
            self._kind.table.subscribers.remove(self.deliver)

    def end(self) -> None:
        """The server ends it."""
        if self._sink:
            self._sink.finish()

    def deliver(self, event: Event) -> None:
        """A change happened."""
        sink = self._sink
        if sink is None or event.version <= self._sent:
            return
        if self._behind or not sink.ready:
            self._behind = True
            return
        self._sent = event.version
        frame = self._frame(event)
        if frame:
            sink.send(frame)

    def bookmark(self) -> None:
        """Tell the client how far it has come."""
        if self._options.bookmarks and self._sink and self._sink.ready and not self._behind:
            self._sent = max(self._sent, self._kind.table.version)
            self._send_bookmark()

    def _time_out(self) -> None:
        self.bookmark()
        self.end()

    def _catch_up(self) -> bool:
        """Send what history has; False when it has not, and the watch is over."""
        table, sink = self._kind.table, self._sink
        assert sink is not None
        events = table.events_after(self._sent)
        if events is None:
            gone = errors.gone(f"too old resource version: {self._sent} ({table.compacted})")
            sink.send(orjson.dumps({"type": "ERROR", "object": gone.status}) + b"\n")
            sink.finish()
            return False
        self._behind = False
        for event in events:
            if not sink.ready:
                self._behind = True
                return True
            self._sent = event.version
            frame = self._frame(event)
            if frame:
                sink.send(frame)
        return True

    def _send_state(self) -> None:
        """Every object as ADDED, in few large chunks: it must be one moment's state, so it is not held back."""
        assert self._sink is not None
        chunks: list[bytes] = []
        size = 0
        for item in self._kind.table.scan(self._selection.prefix):
            if self._selection.matches(item):
                chunk = self._encode("ADDED", item)
                chunks.append(chunk)
                size += len(chunk)
                if size > _BATCH:
                    self._sink.send(b"".join(chunks))
                    chunks, size = [], 0
        if chunks:
            self._sink.send(b"".join(chunks))

    def _send_bookmark(self, *, initial: bool = False) -> None:
        assert self._sink is not None
        metadata: dict[str, object] = {"resourceVersion": str(self._sent)}
        if initial:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        body: dict[str, object] = {"kind": self._kind.kind, "apiVersion": self._kind.api_version}
        if not self._kind.custom:
            body |= clean({}, self._kind.shape, Findings())  # a built-in bookmark is an empty object of its kind
        body["metadata"] = metadata
        item = Item("", self._sent, orjson.dumps(body), {}, {})
        self._sink.send(self._encode("BOOKMARK", item))

    def _frame(self, event: Event) -> bytes | None:
        kind, item = self._shown(event)
        if item is None:
            return None
        name = kind + self._shared
        frame = event.frames.get(name)
        if frame is None:
            if kind == "LEFT":
                kind, item = "DELETED", _as_of(item, event.version)
            frame = event.frames[name] = self._encode(kind, item)
        return frame

    def _shown(self, event: Event) -> tuple[str, Item | None]:
        """The event as this watch's selector sees it: its type and object, or nothing."""
        before, after = event.before, event.after
        if not after.key.startswith(self._selection.prefix):
            return "", None
        test = self._selection.test
        if test is None:
            return ("DELETED" if event.deleted else "MODIFIED" if before else "ADDED"), after
        was = before is not None and test(before)
        if event.deleted:
            return "DELETED", after if was else None
        if not test(after):
            return "LEFT", before if was else None
        return ("MODIFIED" if was else "ADDED"), after

    def _plain(self, kind: str, item: Item) -> bytes:
        return b'{"type":"%b","object":%b}\n' % (kind.encode(), as_served(self._kind, item))


def _as_of(item: Item, version: int) -> Item:
    """What a selector saw last of an object, under the version of the write that took it away."""
    obj = item.decode()
    obj["metadata"]["resourceVersion"] = str(version)
    return Item(item.key, version, orjson.dumps(obj), item.labels, item.fields)
