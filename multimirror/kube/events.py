"""Events for people: what happened to their object, in plain words, where `kubectl describe` shows it.

Recording one is a synchronous call that never waits, never fails and never slows a reconciler down; a task of its own
sends them. The same event again only raises the count of the first. Each object has a budget (25 at once, then one
every five minutes), and so has the whole recorder; what exceeds them, or cannot be written, is dropped and counted.
What a server does not take because it is busy, or does not answer, is sent again for some minutes: whoever told it does
not tell it twice.
Namespaces take turns, and where there is no more room the one that has most in line loses its last: whoever floods his
own users with events does not silence those of others.
A fault with one event costs that event. Of the objects no more is kept than their events name.
Events are a help for people, not a record: state belongs into the object's status.
"""

import asyncio
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Final, Generic, Literal, Self, TypeVar

import structlog

from . import metrics
from .backoff import ceiling
from .client import Client
from .errors import AlreadyExists, KubeError, NotFound, ServerError, TimedOut, TooManyRequests, Unreachable
from .limits import Limits
from .resource import Object
from .resources import EVENTS
from .supervise import Supervisor
from .turns import Turns

_log = structlog.get_logger(__name__)
_REMEMBERED: Final = 4096
_LONGEST_MESSAGE: Final = 1024  # the API's own limit
_FLUSH: Final = 5.0
_TRIES: Final = 10
_FIRST_WAIT: Final = 1.0
_LONGEST_WAIT: Final = 60.0
_PASSING: Final = (TooManyRequests, ServerError, Unreachable, TimedOut)
"""What may be otherwise a little later."""

_Key = tuple[str, str, str, str]
V = TypeVar("V")


class _Recent(Generic[V]):
    """The last few thousand entries of a dict."""

    def __init__(self) -> None:
        self._entries: OrderedDict[object, V] = OrderedDict()

    def get(self, key: object) -> V | None:
        value = self._entries.get(key)
        if value is not None:
            self._entries.move_to_end(key)
        return value

    def put(self, key: object, value: V) -> None:
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > _REMEMBERED:
            self._entries.popitem(last=False)

    def pop(self, key: object) -> None:
        self._entries.pop(key, None)


@dataclass(slots=True)
class _Event:
    involved: Mapping[str, str]  # an ObjectReference, not the object: thousands of them are remembered
    type: str
    reason: str
    message: str
    first: str
    last: str
    annotations: Mapping[str, str]
    count: int = 1
    failed: int = 0  # tries in a row
    name: str = ""  # of its Event object, once somebody has tried to write it
    written: bool = False


class EventRecorder:
    """Writes Events to one cluster. Use as `async with EventRecorder(client, "my-controller") as events:`."""

    def __init__(
        self,
        client: Client,
        component: str,
        *,
        instance: str = "",
        burst: int = 25,
        refill: float = 300.0,
        qps: float = 20.0,
        capacity: int = 1000,
        wall_clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._component = component
        self._instance = instance or component
        self._burst, self._refill = burst, refill
        self._capacity = capacity
        self._wall_clock = wall_clock
        self._limits = Limits(1, qps)
        self._pending: Turns[_Key, _Event] = Turns()  # by namespace
        self._later: dict[_Key, tuple[_Event, asyncio.TimerHandle]] = {}  # those that are tried again
        self._known: _Recent[_Event] = _Recent()
        self._budgets: _Recent[tuple[float, float]] = _Recent()  # uid: (left, when that was)
        self._news = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._tasks: Supervisor | None = None

    def event(
        self,
        about: Object,
        reason: str,
        message: str,
        *,
        type: Literal["Normal", "Warning"] = "Normal",  # noqa: A002
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        """Tell the users of `about` (as the API gave it) what happened: a CamelCase reason, and a message in words.

        `annotations` are for programs that read the event.
        """
        message = message if len(message) <= _LONGEST_MESSAGE else message[: _LONGEST_MESSAGE - 3] + "..."
        try:
            involved = _reference(about)
        except (AttributeError, KeyError, TypeError):
            self._fault(reason)
            return
        uid, namespace = involved.get("uid", ""), involved.get("namespace", "")
        key = (uid, type, reason, message)
        now = self._wall_clock().strftime("%Y-%m-%dT%H:%M:%SZ")
        event = self._pending.get(namespace, key) or self._later.get(key, (None,))[0]
        if event is not None:
            event.count += 1
            event.last = now
            return
        if self.room(namespace) <= 0:
            self._drop("full")
            return
        if not self._allowed(uid):
            self._drop("rate")
            return
        if len(self._pending) >= self._capacity:
            self._pending.drop_from_largest()
            self._drop("full")
        known = self._known.get(key)
        if known is not None:
            known.count += 1
            known.last = now
        else:
            known = _Event(involved, type, reason, message, now, now, annotations or {})
        self._pending.put(namespace, key, known)
        self._idle.clear()
        self._news.set()

    def room(self, namespace: str) -> int:
        """How many more of a namespace can wait to be sent; what comes on top is dropped."""
        left = self._capacity - len(self._pending)
        if left > 0:
            return left
        share = self._capacity // max(1, self._pending.groups)  # others have more, and give way
        return share - self._pending.count(namespace)

    async def flush(self) -> None:
        """Wait until everything recorded so far has been tried once, at least: written, dropped, or put off."""
        await self._idle.wait()

    async def __aenter__(self) -> Self:
        self._tasks = await Supervisor().__aenter__()
        self._tasks.start(f"events of {self._component}", self._send())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._tasks is None:
            return
        tasks, self._tasks = self._tasks, None
        for _, timer in self._later.values():
            timer.cancel()
        try:
            if tasks.why_unhealthy() is None:  # else there is nobody who would send them
                async with asyncio.timeout(_FLUSH):
                    await self.flush()
        except TimeoutError:
            metrics.EVENTS_DROPPED.labels(self._client.cluster, "stopped").inc(len(self._pending))
        finally:
            await tasks.__aexit__(kind, error, trace)

    async def _send(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            while self._pending:
                async with self._limits.slot():
                    key, event = self._pending.pop()  # only now: until here it could still be counted up
                    try:
                        await self._write(event)
                        event.failed = 0
                        self._known.put(key, event)
                    except _PASSING as error:
                        self._known.pop(key)
                        self._put_off(key, event, error.retry_after or 0.0)
                        _log.debug("an event was not written yet", cluster=self._client.cluster, error=str(error))
                    except KubeError as error:  # also when a guard says that we do not lead any more
                        self._known.pop(key)
                        self._drop("error")
                        _log.debug("an event was not written", cluster=self._client.cluster, error=str(error))
                    except Exception:  # noqa: BLE001 - one that nobody can write costs itself alone
                        self._known.pop(key)
                        self._fault(event.reason)
            self._idle.set()

    def _put_off(self, key: _Key, event: _Event, least: float) -> None:
        """Try it again, others first; not for ever, and no more of them than may wait."""
        namespace = event.involved.get("namespace", "")
        again = self._pending.get(namespace, key)
        if again is not None:  # it was told again while it was on its way: they are one, and wait as one
            self._pending.remove(namespace, key)
            if again is not event:
                event.count, event.last = event.count + again.count, again.last
        event.failed += 1
        if self._tasks is None:
            self._drop("stopped")  # nobody would send it
            return
        if event.failed >= _TRIES or len(self._later) >= self._capacity:
            self._drop("error")
            return
        wait = max(least, ceiling(event.failed - 1, initial=_FIRST_WAIT, maximum=_LONGEST_WAIT))
        self._later[key] = event, asyncio.get_running_loop().call_later(wait, self._put_back, key)

    def _put_back(self, key: _Key) -> None:
        event, _ = self._later.pop(key)
        namespace = event.involved.get("namespace", "")
        if self.room(namespace) <= 0 or len(self._pending) >= self._capacity:
            self._drop("full")
            return
        self._pending.put(namespace, key, event)
        self._idle.clear()
        self._news.set()

    async def _write(self, event: _Event) -> None:
        namespace = event.involved.get("namespace", "default")
        if event.written:
            again = {"count": event.count, "lastTimestamp": event.last}
            try:
                await self._client.patch(EVENTS, event.name, again, namespace)
            except NotFound:  # the server keeps Events for an hour
                event.name, event.written, event.count, event.first = "", False, 1, event.last
            else:
                return
        event.name = event.name or f"{event.involved['name'][:220]}.{uuid.uuid4().hex[:16]}"
        with suppress(AlreadyExists):  # by a try whose answer was lost
            await self._client.create(EVENTS, self._object(event, namespace), namespace)
        event.written = True

    def _object(self, event: _Event, namespace: str) -> Object:
        annotations = {"annotations": dict(event.annotations)} if event.annotations else {}
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": event.name, "namespace": namespace, **annotations},
            "involvedObject": event.involved,
            "reason": event.reason,
            "message": event.message,
            "type": event.type,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": self._instance,
            "firstTimestamp": event.first,
            "lastTimestamp": event.last,
            "count": event.count,
        }

    def _allowed(self, uid: str) -> bool:
        """Each object has a budget that refills slowly."""
        now = asyncio.get_running_loop().time()
        left, when = self._budgets.get(uid) or (float(self._burst), now)
        left = min(self._burst, left + (now - when) / self._refill)
        allowed = left >= 1
        self._budgets.put(uid, (left - 1 if allowed else left, now))
        return allowed

    def _fault(self, event: str) -> None:
        """To be called where it is caught."""
        _log.exception("an event was not written", cluster=self._client.cluster, reason=event)
        self._drop("error")

    def _drop(self, reason: str) -> None:
        metrics.EVENTS_DROPPED.labels(self._client.cluster, reason).inc()


def _reference(about: Object) -> dict[str, str]:
    """What an involvedObject says of an object."""
    metadata = about["metadata"]
    fields = {
        "apiVersion": about.get("apiVersion"),
        "kind": about.get("kind"),
        "namespace": metadata.get("namespace"),
        "name": metadata["name"],
        "uid": metadata.get("uid"),
        "resourceVersion": metadata.get("resourceVersion"),
    }
    return {field: value for field, value in fields.items() if value}
