"""A cache of one kind of object that keeps itself true: a list, then a watch for as long as it takes.

Guarantees, after `synced`:
- the cache holds what the server held at `resource_version`, and every change is told to every handler once, in order;
- a watch that ended, broke, expired (410), or went silent is a non-event: it is resumed from the last
  resourceVersion, and if the server has forgotten that one, a new list is compared with the cache, so that the
  deletes in between are told too;
- an object that was deleted and made anew under the same name is told as a delete and an add;
- no fault of the server ends it. It tries again with back-off, and says so once, not once per try. A watch that is
  refused (too many requests, rights or tokens that are missing) goes on later from where it was;
- a fault of our own that ends it all the same ends whoever relies on the cache (supervise.py).

Not guaranteed: intermediate states (a relist jumps over them), and freshness: `heard` says when the server last
spoke, and own_writes.py tells whether a write of ours has arrived. Handlers run on the event loop, must be quick and
must not change the object; one that raises is logged and does not stop the others.

The first list is streamed (`sendInitialEvents`) where the server can do that; where it cannot, it is an ordinary list.
It has one deadline, however it comes. What is cached of a server that is not trusted has a limit (`budget`). A kind
that the server need not have (`optional`) and does not have is an empty cache, filled once the server has it; one that
is there, and may not be read, is waited for.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Final, NamedTuple, Self

import structlog

from . import metrics
from .backoff import Backoff
from .budget import CacheBudget
from .client import Client
from .discovery import is_served
from .errors import ApiError, BadAnswer, BadRequest, Forbidden, Gone, Invalid, NotFound, TimedOut, Unreachable
from .logs import debug
from .resource import Object, Resource, key_of
from .store import IndexFunction, Store
from .supervise import Supervisor
from .trimming import compact, weight
from .watch import Trim, WatchEvent, watch_params

_log = structlog.get_logger(__name__)

_WATCH_SECONDS: Final = 480.0  # the server is asked to end a watch after about this long, so that load spreads again
_SILENCE: Final = 100.0  # servers send a bookmark every minute or so: a watch that is quiet for longer is dead
_LISTING_SILENCE: Final = 15.0  # nor is there a pause in the middle of a streamed list
_LEFT_OUT: Final = 1000  # names that are remembered of what `trim` did not want: enough to say that there are many
_SLICE: Final = 200  # objects of a first list that are told between two turns of everybody else
_PAGE_ITEMS: Final = 500
_PAGE_BYTES: Final = 16 * 1024 * 1024  # whatever is listed, so much of it is held whole at once, and no more
_SETTLED: Final = 1.0  # a watch that lived that long was a good one, even if nothing happened


class Change(NamedTuple):
    """What happened to one object. `old` is None for a new one, `new` is None for one that is gone.

    `initial`: it was there when the cache was filled (first list, or a handler that came late); not news.
    """

    old: Object | None
    new: Object | None
    initial: bool = False

    @property
    def object(self) -> Object:
        """The newest state that we know."""
        obj = self.new if self.new is not None else self.old
        assert obj is not None
        return obj

    @property
    def key(self) -> str:
        return key_of(self.object)


Handler = Callable[[Change], None]


class Informer:
    """The cache of one kind, in one namespace or all, by selectors. Run it with `async with`, or `run()` as a task."""

    def __init__(
        self,
        client: Client,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        trim: Trim = compact,
        silence: float = _SILENCE,
        streaming: bool = True,
        budget: CacheBudget | None = None,
        optional: bool = False,
        whole: bool = True,
    ) -> None:
        """`whole`: a list that replaces what was cached does so at once. Without, others have their turns meanwhile."""
        self.client = client
        self.resource = resource
        self.error: ApiError | None = None
        """Why the server cannot be followed right now; None while all is well."""
        self.resource_version: str | None = None
        """The cache holds everything up to here; None before the first list, and while a new one is needed."""
        self.heard: float | None = None
        """When the server last spoke (event loop's clock)."""
        self.left_out: set[str] = set()
        """The keys of objects that are there, and that `trim` does not want; no more than a thousand."""
        self._store = Store()
        self._handlers: list[Handler] = []
        self._synced = asyncio.Event()
        self._path = resource.path(namespace)
        self._namespace = namespace
        self._label_selector = label_selector
        self._field_selector = field_selector
        self._trim = trim
        self._silence = silence
        self._streaming = streaming
        self._budget = budget
        self._optional, self._whole = optional, whole
        self._missing = False  # the server does not have the kind
        self._weights: dict[str, int] = {}  # of what is cached, where there is a budget
        self._listing_ends = 0.0
        self._backoff = Backoff(initial=0.2, maximum=30.0)
        self._opened: float | None = None  # since when the current watch tells changes
        self._tasks: Supervisor | None = None
        selector = ",".join(s for s in (namespace, label_selector, field_selector) if s)
        self._labels = (client.cluster, f"{resource.name}[{selector}]" if selector else resource.name)
        self._cached = metrics.CACHED.labels(*self._labels)
        self._log = _log.bind(cluster=client.cluster, resource=self._labels[1])

    def __len__(self) -> int:
        return len(self._store)

    @property
    def name(self) -> str:
        """What is followed where, for logs."""
        return f"informer {'/'.join(self._labels)}"

    @property
    def has_synced(self) -> bool:
        """The cache has been filled once."""
        return self._synced.is_set()

    async def synced(self) -> None:
        """Wait until the cache has been filled, and its handlers told."""
        await self._synced.wait()

    def get(self, key: str) -> Object | None:
        """The object under `namespace/name` (or `name`). Shared: do not change it."""
        return self._store.objects.get(key)

    def list(self) -> Iterable[Object]:
        """All objects, as a snapshot. Shared: do not change them."""
        return tuple(self._store)

    def by_index(self, name: str, value: str) -> Iterable[Object]:
        return self._store.by_index(name, value)

    def add_index(self, name: str, function: IndexFunction) -> None:
        """File objects under the values that `function` gives for them."""
        self._store.add_index(name, function)

    def add_handler(self, handler: Handler) -> None:
        """Tell `handler` of every change; what is here already is told at once, as initial."""
        self._handlers.append(handler)
        for obj in tuple(self._store):
            self._tell_one(handler, Change(None, obj, initial=True))

    def remove_handler(self, handler: Handler) -> None:
        self._handlers.remove(handler)

    async def __aenter__(self) -> Self:
        self._tasks = await Supervisor().__aenter__()
        self._tasks.start(self.name, self.run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._tasks is not None:
            tasks, self._tasks = self._tasks, None
            await tasks.__aexit__(kind, error, trace)

    async def run(self) -> None:
        """Fill the cache and follow the server, until cancelled."""
        lag = metrics.INFORMER_LAG.labels(*self._labels)
        loop = asyncio.get_running_loop()
        lag.set_function(lambda: loop.time() - self.heard if self.heard is not None else -1.0)
        try:
            while True:
                await self._once()
        finally:
            lag.set_function(lambda: -1.0)
            self._cached.dec(len(self._store))
            if self._budget is not None:
                self._budget.add(-len(self._weights), -sum(self._weights.values()))
                self._weights.clear()

    async def _once(self) -> None:
        """One list if needed, and one watch to its end, whatever that end is."""
        self._opened = None
        doing = "list" if self.resource_version is None else "watch"
        error: ApiError | None = None
        try:
            await self._follow()
        except ApiError as failure:
            error = failure
            if _forgotten(error):
                self.resource_version = None  # the server does not know our past: ask for the present
        except Exception as fault:  # noqa: BLE001 - an answer, or a `trim`, that nobody thought of ends no cache
            self._log.exception("a fault in following the server; starts from a list")
            error = BadAnswer(f"{type(fault).__name__}: {fault}", cluster=self.client.cluster)
            self.resource_version = None
        metrics.WATCH_RESTARTS.labels(*self._labels, _why(error)).inc()
        debug(self._log, "watch closed", reason=_why(error), error=error and str(error), version=self.resource_version)
        if self._worked():
            self._backoff.reset()  # it worked for a while: go on at once
            return
        if self._optional and isinstance(error, NotFound | Forbidden) and await self._is_missing():
            await self._do_without()
        elif error is not None and not isinstance(error, Gone):
            self._complain(doing, error)
        wait = self._backoff.delay()
        if error is not None and error.retry_after:
            wait = max(wait, error.retry_after)
        await asyncio.sleep(wait)

    async def _is_missing(self) -> bool:
        try:
            return not await is_served(self.client, self.resource)
        except ApiError:
            return False

    async def _do_without(self) -> None:
        """There are none of a kind that is not there."""
        if not self._missing:
            self._log.warning("the server does not have this kind; goes on without, and looks again from time to time")
            await self._replace(_Incoming(self._budget, self._weights), "")
            self._missing = True
        self.resource_version = None

    def _worked(self) -> bool:
        return self._opened is not None and asyncio.get_running_loop().time() - self._opened >= _SETTLED

    async def _follow(self) -> None:
        if self.resource_version is None:
            if self._streaming and await self._streamed():
                return
            await self._listed()
        async with aclosing(self._batches()) as batches:
            async for batch in batches:
                self._hear()
                for event in batch:
                    self._apply(event)

    async def _listed(self) -> None:
        """An ordinary list, page by page."""
        incoming = _Incoming(self._budget, self._weights)
        pages = self.client.pages(
            self.resource,
            self._namespace,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            limit=self.client.limits.page_items or _PAGE_ITEMS,
            timeout=max(60.0, self.client.timeout),
            most_bytes=_PAGE_BYTES,
        )
        version = ""
        async with aclosing(pages):
            async for page in pages:
                if page.first:
                    incoming.clear()
                version = page.resource_version
                for number, item in enumerate(page.items):
                    if number % _SLICE == _SLICE - 1:
                        await asyncio.sleep(0)
                    key, kept = key_of(item), self._trim(item)
                    if kept is not None:
                        incoming.put(kept)
                    else:
                        incoming.leave_out(key)
        await self._replace(incoming, version)

    async def _streamed(self) -> bool:
        """A list and a watch in one request, to its end. False when this server does not do that."""
        incoming = _Incoming(self._budget, self._weights)
        answered = False
        self._listing_ends = asyncio.get_running_loop().time() + self.client.limits.list_seconds
        try:
            async with aclosing(self._batches()) as batches:
                async for batch in batches:
                    answered = True
                    for event in batch:
                        if self.resource_version is not None:
                            self._apply(event)
                        elif event.ends_initial_events:
                            await self._replace(incoming, event.object["metadata"]["resourceVersion"])
                            incoming.clear()
                        else:
                            incoming.collect(event)
                    if self.resource_version is not None:
                        self._hear()
        except (BadRequest, Invalid, TimedOut) as error:
            # Refused, or ignored: a server that passes over what it does not know never sends the bookmark at the end.
            if self.resource_version is not None or (isinstance(error, TimedOut) and not answered):
                raise
            self._streaming = False
            debug(self._log, "the server has no streaming lists")
        return self.resource_version is not None

    def _batches(self) -> AsyncGenerator[Sequence[WatchEvent], None]:
        params = watch_params(
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            resource_version=self.resource_version,
            timeout=_WATCH_SECONDS,
            initial_events=self.resource_version is None,
        )
        return self.client.watch_batches(
            self._path,
            params,
            silence=self._patience,
            trim=self._trim,
        )

    def _patience(self) -> float:
        """How long the next event may take."""
        if self.resource_version:
            return self._silence
        return max(0.0, min(_LISTING_SILENCE, self._listing_ends - asyncio.get_running_loop().time()))

    def _hear(self) -> None:
        self.heard = asyncio.get_running_loop().time()
        if self._opened is None:
            self._opened = self.heard
        if self.error is not None:
            self._log.info("watch works again", after=str(self.error))
            self.error = None

    def _complain(self, doing: str, error: ApiError) -> None:
        if self._opened is not None and not self._backoff.attempts:
            return  # a watch that worked and broke, once, is nothing to talk about
        if self.error is None or type(self.error) is not type(error) or self.error.message != error.message:
            self._log.warning(f"{doing} failed; will keep trying", error=str(error))
        self.error = error

    def _apply(self, event: WatchEvent) -> None:
        """One event of a watch, onto the cache and on to the handlers."""
        kind, obj, kept = event
        version = self.resource_version = obj["metadata"]["resourceVersion"]
        if kind != "BOOKMARK":
            key = key_of(obj)
            old = self._store.objects.get(key)
            self._note_left_out(key, there=not kept and kind != "DELETED")
            if kind == "DELETED" or not kept:
                if old is not None and not is_older(version, old["metadata"]["resourceVersion"]):
                    self._remove(key, obj if kept else old)
            elif old is None or is_older(old["metadata"]["resourceVersion"], version):
                self._weigh(key, obj)
                self._put(key, old, obj)

    def _note_left_out(self, key: str, *, there: bool) -> None:
        if not there:
            self.left_out.discard(key)
        elif len(self.left_out) < _LEFT_OUT:
            self.left_out.add(key)

    def _weigh(self, key: str, obj: Object) -> None:
        """Whether it may be kept. Raises OverBudget."""
        if self._budget is not None:
            size, before = weight(obj), self._weights.get(key)
            count, grown = (1, size) if before is None else (0, size - before)
            self._budget.check(count, grown)
            self._budget.add(count, grown)
            self._weights[key] = size

    async def _replace(self, incoming: "_Incoming", version: str) -> None:
        """A whole list (trimmed), onto the cache: what is new, what changed, and what went away unseen.

        The first one in slices: nobody relies on a cache before it has been filled. Any later one at once, unless
        nobody minds to see a part of it (`whole`).
        """
        metrics.RELISTS.labels(*self._labels).inc()
        initial, self._missing = not self.has_synced, False
        self.left_out = incoming.left_out
        self.resource_version = version  # before the handlers are told, who may ask how far we are
        objects = self._store.objects
        sliced = initial or not self._whole
        for number, key in enumerate([key for key in objects if key not in incoming.objects], start=1):
            self._remove(key, objects[key])
            if sliced and number % _SLICE == 0:
                await asyncio.sleep(0)
        incoming.take_over()
        for number, (key, obj) in enumerate(incoming.objects.items(), start=1):
            old = objects.get(key)
            if old is None or old["metadata"]["resourceVersion"] != obj["metadata"]["resourceVersion"]:
                self._put(key, old, obj, initial=initial)
            if sliced and number % _SLICE == 0:
                await asyncio.sleep(0)
        self._synced.set()

    def _put(self, key: str, old: Object | None, obj: Object, *, initial: bool = False) -> None:
        if old is not None and old["metadata"].get("uid") != obj["metadata"].get("uid"):
            # What is in its place has been weighed already, under the same key: that stays.
            self._cached.dec()
            self._store.remove(key)
            self._tell(Change(old, None))
            old = None
        if old is None:
            self._cached.inc()
        self._store.put(key, obj)
        self._tell(Change(old, obj, initial))

    def _remove(self, key: str, last: Object) -> None:
        self._cached.dec()
        self._store.remove(key)
        if self._budget is not None and key in self._weights:
            self._budget.add(-1, -self._weights.pop(key))
        self._tell(Change(last, None))

    def _tell(self, change: Change) -> None:
        for handler in self._handlers:
            self._tell_one(handler, change)

    def _tell_one(self, handler: Handler, change: Change) -> None:
        try:
            handler(change)
        except Exception:  # noqa: BLE001 - one user's fault must not end the cache of all the others
            self._log.exception("a handler failed", key=change.key)


class _Incoming:
    """A list that is being received, which may not become larger than what it is to replace may be."""

    def __init__(self, budget: CacheBudget | None, replaced: dict[str, int]) -> None:
        self.objects: dict[str, Object] = {}
        self.left_out: set[str] = set()
        self._budget, self._replaced = budget, replaced
        self._before = sum(replaced.values())
        self._weights: dict[str, int] = {}
        self._total = 0

    def put(self, obj: Object) -> None:
        """Raises OverBudget."""
        key = key_of(obj)
        self.objects[key] = obj
        self.left_out.discard(key)
        if self._budget is not None:
            size = weight(obj)
            self._total += size - self._weights.get(key, 0)
            self._weights[key] = size
            self._budget.check(len(self._weights) - len(self._replaced), self._total - self._before)

    def leave_out(self, key: str) -> None:
        """Nobody wants it."""
        self._drop(key)
        if len(self.left_out) < _LEFT_OUT:
            self.left_out.add(key)

    def collect(self, event: WatchEvent) -> None:
        """One event of a list that is being streamed."""
        if event.type == "DELETED":
            self._drop(key_of(event.object))
        elif not event.kept:
            self.leave_out(key_of(event.object))
        elif event.type != "BOOKMARK":
            self.put(event.object)

    def _drop(self, key: str) -> None:
        self.objects.pop(key, None)
        self.left_out.discard(key)
        self._total -= self._weights.pop(key, 0)

    def take_over(self) -> None:
        """It is what is cached now."""
        if self._budget is not None:
            count, grown = len(self._weights) - len(self._replaced), self._total - sum(self._replaced.values())
            self._budget.add(count, grown)
            self._replaced.clear()
            self._replaced.update(self._weights)

    def clear(self) -> None:
        """It begins anew, or has been taken over."""
        self.objects, self.left_out, self._weights, self._total = {}, set(), {}, 0


def _forgotten(error: ApiError) -> bool:
    """Our version means nothing to this server: too old, not one of its own, or of a future that it has not seen.

    Everything else that it may say no with passes, and a list would only add to the trouble.
    """
    return isinstance(error, Gone | BadRequest) or any(
        cause.reason == "ResourceVersionTooLarge" for cause in error.causes
    )


def _why(error: ApiError | None) -> str:
    match error:
        case None:
            return "ended"
        case Gone():
            return "expired"
        case TimedOut():
            return "silent"
        case Unreachable():
            return "broken"
        case _:
            return "error"


def is_older(version: str, than: str) -> bool:
    """Compare resourceVersions: decimal numbers, in every API server (KEP-5504)."""
    return (len(version), version) < (len(than), than)
