"""One connection to a worker, from the first question to the last heartbeat.

Inside the context the caches of our copies are filled and followed. They hold nothing but objects that we have made:
those without our origin are not asked for, and those without our signature are not kept (reading.py). A session ends as
a whole and is never repaired: what comes after it starts from a list.

*Not followed is not not there.* Copies are cached for all namespaces, or for each one that may have some: those that
the WorkerCluster allows, and any other in which somebody knows of copies (`follow`). Of one without a filled cache
nothing is known, and nobody may take its emptiness for an answer: `follows` tells. One that cannot be followed (the
rights there were taken away) is in trouble alone; only when all are, the session is of no use (`watch_error`).

Writes have a connection of their own, and so have heartbeats: sixteen writes that hang do not make a worker look dead.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from multimirror.batch import Json
from multimirror.kube import ApiError, Change, Client, Connection, Informer, Resource, key_of
from multimirror.kube.budget import UNTRUSTED, Budget, CacheBudget
from multimirror.kube.controller import NotYet
from multimirror.kube.errors import Forbidden, Unreachable
from multimirror.kube.own_writes import OwnWrites
from multimirror.kube.resources import JOBS
from multimirror.kube.supervise import Supervisor
from multimirror.kube.watch import Trim
from multimirror.kube.write_guard import WriteGuard
from multimirror.workers.capacity import Capacity
from multimirror.workers.followed import (
    FOLLOWED_LABELLED_NODES,
    FOLLOWED_NAMESPACES,
    FOLLOWED_NODES,
    FOLLOWED_PODS,
    Followed,
    origin_uids,
)
from multimirror.workers.free_nodes import FreeNodes
from multimirror.workers.limits import WorkerBudget
from multimirror.workers.node_table import NodesView
from multimirror.workers.probe import Facts, check
from multimirror.workers.reading import MadeByUs, reader_of_copies
from multimirror.workers.state import Uncounted

Scope = tuple[Resource, str]
"""The copies of one kind in one namespace."""

_SYNC: Final = 60.0
_STRAGGLERS: Final = 5.0
_BLOCKS_AT_ONCE: Final = 8
"""How long those namespaces are waited for that are slower than the first."""
_REFUSALS_EVERY: Final = 0.1
_QUESTIONS: Final = 4
"""Probes in flight."""
_BY_ORIGIN: Final = "origin"


class NotFollowed(NotYet):
    """Nothing is known about that namespace of the worker (yet): try again later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """What a session is for."""

    followed: tuple[Followed, ...]
    """The kinds of our copies."""
    namespaces: tuple[str, ...] | None
    """Where copies may go. None: everywhere."""
    follow_nodes: bool
    """And its pods, where we may see all of them."""
    made_by_us: MadeByUs
    """Of what carries our labels: whether it is a copy of ours. What is not is not kept."""
    free: bool = False
    """Its pods are asked for: if we may not see them, that is to be said."""
    concurrency: int = 16


@dataclass(frozen=True, slots=True)
class SessionHandlers:
    """Who wants to know what happens in a session. Called on the event loop; must be quick."""

    copy_changed: Callable[[Resource, Change], None]
    """A copy was made, changed, or is gone."""
    cluster_changed: Callable[[], None]
    """It has other namespaces, or other capacity."""
    cache_filled: Callable[[], None]
    """A cache that came later than the session is filled now."""


class _Cache:
    """The copies of one kind, in one namespace or in all."""

    def __init__(
        self, client: Client, followed: Followed, namespace: str | None, *, read: Trim, budget: CacheBudget
    ) -> None:
        self.informer = Informer(
            client,
            followed.resource,
            namespace,
            label_selector=followed.label_selector,
            trim=read,
            budget=budget,
        )
        self.informer.add_index(_BY_ORIGIN, origin_uids)
        self.writes = OwnWrites(self.informer)


class Session:
    """A worker that answered, and what it holds of ours."""

    def __init__(
        self,
        clients: tuple[Client, Client, Client],
        facts: Facts,
        options: SessionOptions,
        tasks: Supervisor,
        handlers: SessionHandlers,
        *,
        formerly: Iterable[str] = (),
        budget: WorkerBudget,
    ) -> None:
        self.client, self.writer, self.prober = clients
        self.facts = facts
        self._identities = tuple(dict.fromkeys((facts.identity, *formerly)))
        self._options, self._tasks, self._handlers = options, tasks, handlers
        self._kinds = {followed.resource: followed for followed in options.followed}
        self._caches: dict[Resource, dict[str | None, _Cache]] = {resource: {} for resource in self._kinds}
        self._expected: list[Informer] = []  # those of the caches that the options ask for
        self._budget, self._copies_budget = budget, budget.copies()
        self._capacity = Capacity()
        self._free: FreeNodes | None = None  # where its pods are followed
        self._pods: Informer | None = None
        self._nodes: Informer | None = None
        self._behind = asyncio.Event()
        self._namespaces: set[str] | None = None
        self._is_open = False

    # --- our copies

    def copies(self, uid: str, resource: Resource = JOBS) -> list[Json]:
        """The copies of one object."""
        caches = self._caches.get(resource, {}).values()
        return [copy for cache in caches for copy in cache.informer.by_index(_BY_ORIGIN, uid)]

    def all_copies(self, resource: Resource = JOBS) -> Iterable[Json]:
        """Every copy of ours here."""
        caches = tuple(self._caches.get(resource, {}).values())  # others may come while somebody reads
        return (copy for cache in caches for copy in cache.informer.list())

    def is_ours(self, resource: Resource, obj: Json) -> bool:
        """Of an object there, with sound metadata: whether we have signed it.

        For this very cluster; or for the one that was here before: until a heartbeat notices that another cluster
        answers, copies are made there that are signed for the old one.
        """
        made_by_us = self._options.made_by_us
        return any(made_by_us(resource, identity, obj) for identity in self._identities)

    def foreign(self) -> int:
        """How many objects are there that carry our labels and are not ours; of very many, not all are counted."""
        # Metrics are rendered on a thread of their own: what it walks over is a copy, made in one step.
        caches = [cache for of_kind in tuple(self._caches.values()) for cache in tuple(of_kind.values())]
        return sum(len(cache.informer.left_out) for cache in caches)

    def writes(self, namespace: str, resource: Resource = JOBS) -> OwnWrites:
        """Our own writes in that namespace, which the cache may not have seen yet. Raises NotFollowed."""
        cache = self._cache(namespace, resource)
        if cache is None or not cache.informer.has_synced:
            raise NotFollowed(f"{resource.name} in namespace {namespace} of {self.client.cluster} are not followed yet")
        return cache.writes

    def follows(self, namespace: str, resource: Resource = JOBS) -> bool:
        """Its copies there are known: an object that is not in the cache is not there."""
        return self.trouble(namespace, resource) is None

    def is_filled(self, namespace: str, resource: Resource = JOBS) -> bool:
        """Its copies there have been listed, and are followed as well as can be."""
        cache = self._cache(namespace, resource)
        return cache is not None and cache.informer.has_synced

    def trouble(self, namespace: str, resource: Resource = JOBS) -> str | None:
        """Why its copies there are not known; empty while that is being found out; None: they are."""
        cache = self._cache(namespace, resource)
        if cache is None:
            return ""
        if cache.informer.error is not None:
            return f"its namespace {namespace} cannot be followed: {cache.informer.error.message}"
        return None if cache.informer.has_synced else ""

    def follow(self, namespace: str, resource: Resource = JOBS) -> None:
        """Keep track of the copies there as well, from now on."""
        if self._cache(namespace, resource) is None:
            followed = self._kinds.get(resource)
            if followed is None:
                raise ValueError(f"{resource.name} are not among the kinds that are followed")
            everywhere = self._options.namespaces is None and not self.facts.lacking
            self._follow(followed, None if everywhere else namespace)

    def scopes(self) -> list[Scope]:
        """What is followed namespace by namespace."""
        return [
            (resource, namespace)
            for resource, caches in self._caches.items()
            for namespace in caches
            if namespace is not None
        ]

    def occupied(self) -> set[Scope]:
        """Where there are copies, or may be for all we know."""
        found: set[Scope] = set()
        for resource, caches in self._caches.items():
            for namespace, cache in caches.items():
                there = (copy["metadata"].get("namespace") for copy in cache.informer.list())
                found.update((resource, each) for each in there if each)
                if namespace is not None and not cache.informer.has_synced:
                    found.add((resource, namespace))
        return found

    @property
    def watch_error(self) -> ApiError | None:
        """Why our copies cannot be followed any more, wherever they should be; None while they can in one namespace."""
        errors = [informer.error for informer in self._expected]
        return errors[0] if errors and all(error is not None for error in errors) else None

    # --- what it has to give

    def namespaces(self) -> frozenset[str] | None:
        """Those that can take a Job; None when we may not know."""
        return frozenset(self._namespaces) if self._namespaces is not None else None

    def capacity(self) -> Mapping[str, Decimal] | None:
        """What its nodes have to give; None when we may not know, or it has none."""
        return self._capacity.total()

    def nodes(self) -> NodesView | None:
        """What is left on each of its nodes; None when we may not know, or do not know yet, or not any more: what is
        remembered of pods that cannot be followed is of another time."""
        if self._free is None or self._pods is None or not self._pods.has_synced or self._lost_sight() is not None:
            return None
        found = self._free.view()
        if not self._options.free and next(found.table.nodes(), None) is None:
            return None  # where no node is there yet, some may come for the pods: as ever with Auto, nothing is limited
        return found

    @property
    def uncounted(self) -> Uncounted | None:
        """Why what is left on its nodes is not known although it is asked for, or was known before."""
        lost = self._lost_sight()
        if lost is not None and lost.error is not None:
            refused = isinstance(lost.error, Forbidden)
            return Uncounted.of(lost.resource.plural, None if refused else lost.error.message)
        if self._options.free and self._pods is None:
            return Uncounted.of("nodes" if not self.facts.sees_nodes else "pods", None)
        return None

    def _lost_sight(self) -> Informer | None:
        """Of its pods or its nodes: the one that cannot be followed, where both should be."""
        if self._pods is None:
            return None
        return next((each for each in (self._pods, self._nodes) if each is not None and each.error is not None), None)

    @property
    def sees_pods(self) -> bool:
        """Its pods are followed, and nobody has taken the right to do so away."""
        return self._pods is not None and not isinstance(self._pods.error, Forbidden)

    # --- its life

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        connection: Connection,
        options: SessionOptions,
        handlers: SessionHandlers,
        *,
        also: Iterable[Scope] = (),
        guard: WriteGuard | None = None,
        formerly: tuple[str, ...] = (),
        clock: Callable[[], float],
        budget: WorkerBudget,
    ) -> AsyncIterator["Session"]:
        """Connect, check, fill the caches. `also`: followed besides what the options allow. `formerly`: identities that
        clusters in its place have had."""
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(_client(connection, options.concurrency, budget))
            prober = await stack.enter_async_context(_client(connection, _QUESTIONS, budget))
            facts = await check(client, options.namespaces, clock)
            writer = client.guarded(guard) if guard is not None else client
            tasks = await stack.enter_async_context(Supervisor())
            session = cls((client, writer, prober), facts, options, tasks, handlers, formerly=formerly, budget=budget)
            await session._fill(also)
            yield session

    async def _fill(self, also: Iterable[Scope]) -> None:
        """Follow everything, and wait until that is so."""
        for followed in self._options.followed:
            for namespace in self._options.namespaces or ("",):
                if followed.at_once and namespace not in self.facts.lacking:
                    self._expected.append(self._follow(followed, namespace or None))
        for resource, namespace in also:
            self.follow(namespace, resource)
        needed = []
        if self.facts.sees_namespaces:
            self._namespaces = set()
            needed.append(self._start(FOLLOWED_NAMESPACES, self._namespace_changed, self._budget.namespaces()))
        if self.facts.sees_nodes and self._options.follow_nodes:
            labelled = self.facts.sees_pods
            if labelled:
                self._free = free = FreeNodes()
                self._tasks.start("catching up with nodes", self._catch_up(free))
            followed = FOLLOWED_LABELLED_NODES if labelled else FOLLOWED_NODES
            self._nodes = self._start(followed, self._node_changed, self._budget.nodes(labelled=labelled))
            needed.append(self._nodes)
            if labelled:
                self._pods = self._start(
                    FOLLOWED_PODS, self._pod_changed, self._budget.pods(), self._budget.pod_traffic
                )
                self._tasks.start("filling pods", self._tell_when_seen(self._pods), may_return=True)
        await self._synced(needed)
        self._is_open = True

    async def _synced(self, needed: list[Informer]) -> None:
        """All that is needed, and one of the caches that are expected; what else cannot be followed says so itself."""
        try:
            async with asyncio.timeout(_SYNC):
                for informer in needed:
                    await informer.synced()
                await _first(self._expected)
        except TimeoutError:
            late = next(informer for informer in (*needed, *self._expected) if not informer.has_synced)
            why = f"no list of {late.resource.name} in {_SYNC:g} s"
            raise late.error or Unreachable(why, cluster=self.client.cluster) from None
        with suppress(TimeoutError):
            async with asyncio.timeout(_STRAGGLERS):
                for caches in self._caches.values():
                    for cache in tuple(caches.values()):
                        await _synced_or_refused(cache.informer)
                if self._pods is not None:
                    await _synced_or_refused(self._pods)

    def _follow(self, followed: Followed, namespace: str | None) -> Informer:
        resource = followed.resource
        read = reader_of_copies(
            resource,
            followed.trim,
            namespace=namespace,
            is_ours=self.is_ours,
        )
        cache = self._caches[resource][namespace] = _Cache(
            self.client, followed, namespace, read=read, budget=self._copies_budget
        )
        cache.informer.add_handler(self._whose_pods)
        cache.informer.add_handler(lambda change: self._handlers.copy_changed(resource, change))
        self._run(cache.informer, namespace)
        self._tasks.start(f"filling {resource.name}", self._tell_when_filled(cache.informer), may_return=True)
        return cache.informer

    async def _tell_when_filled(self, informer: Informer) -> None:
        await informer.synced()
        if self._is_open:
            self._handlers.cache_filled()

    async def _tell_when_seen(self, informer: Informer) -> None:
        await informer.synced()
        if self._is_open:
            self._handlers.cluster_changed()

    async def _catch_up(self, free: FreeNodes) -> None:
        """A worker may show tens of thousands of nodes at once, and whoever looks at them waits for nobody."""
        while True:
            await self._behind.wait()
            self._behind.clear()
            for number, _ in enumerate(free.catch_up()):
                if number % _BLOCKS_AT_ONCE == 0:
                    await asyncio.sleep(0)

    def _start(
        self,
        followed: Followed,
        handler: Callable[[Change], None],
        budget: CacheBudget,
        traffic: Budget | None = None,
    ) -> Informer:
        client = self.client.metered(traffic or self._budget.inventory)
        informer = Informer(client, followed.resource, trim=followed.trim, budget=budget, whole=False)
        informer.add_handler(handler)
        self._run(informer)
        return informer

    def _run(self, informer: Informer, namespace: str | None = None) -> None:
        where = f" in {namespace}" if namespace is not None else ""
        self._tasks.start(f"informer {self.client.cluster}/{informer.resource.name}{where}", informer.run())

    def _cache(self, namespace: str, resource: Resource) -> _Cache | None:
        caches = self._caches.get(resource, {})
        return caches.get(None) or caches.get(namespace)

    def _namespace_changed(self, change: Change) -> None:
        assert self._namespaces is not None, "they are followed"
        metadata = change.object["metadata"]
        known, usable = metadata["name"] in self._namespaces, change.new is not None
        usable = usable and "deletionTimestamp" not in metadata
        if usable != known:
            (self._namespaces.add if usable else self._namespaces.discard)(metadata["name"])
            self._handlers.cluster_changed()

    def _node_changed(self, change: Change) -> None:
        name, more = change.object["metadata"]["name"], False
        if self._free is not None and change.new is not None:
            more = self._free.put_node(change.new)
        elif self._free is not None:
            self._free.remove_node(name)
        self._note_behind()
        if self._capacity.put(change.new) if change.new is not None else self._capacity.remove(name):
            more = True
        if more:
            self._handlers.cluster_changed()

    def _pod_changed(self, change: Change) -> None:
        assert self._free is not None, "they are followed"
        key = key_of(change.object)
        more = self._free.put_pod(key, change.new) if change.new is not None else self._free.remove_pod(key)
        self._note_behind()
        if more and self._is_open:  # that there is less is seen when somebody looks
            self._handlers.cluster_changed()

    def _note_behind(self) -> None:
        if self._free is not None and self._free.is_far_behind():
            self._behind.set()

    def _whose_pods(self, change: Change) -> None:
        if self._free is None:
            return
        uid = change.object["metadata"]["uid"]
        originals = origin_uids(change.new) if change.new is not None else []
        if originals:
            self._free.put_copy(uid, originals[0])
        else:
            self._free.remove_copy(uid)


def _client(connection: Connection, concurrency: int, budget: WorkerBudget) -> Client:
    return Client(
        connection,
        concurrency=concurrency,
        timeout=15.0,
        user_agent="multimirror",
        limits=UNTRUSTED,
        budget=budget.traffic,
    )


async def _first(informers: list[Informer]) -> None:
    """Wait until one of them is filled."""
    waiting = {asyncio.ensure_future(informer.synced()) for informer in informers}
    if waiting:
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for future in waiting:
                future.cancel()


async def _synced_or_refused(informer: Informer) -> None:
    while not informer.has_synced and not isinstance(informer.error, Forbidden):
        with suppress(TimeoutError):
            async with asyncio.timeout(_REFUSALS_EVERY):
                await informer.synced()
