"""One connection to a worker, from the first question to the last heartbeat.

Inside the context the cache of our copies is filled and followed. It holds nothing but objects with our origin, because
nothing else is ever asked for. A session ends as a whole and is never repaired: what comes after it starts from a list.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from multimirror.api import ORIGIN_LABEL, ORIGIN_UID_LABEL
from multimirror.batch import Json
from multimirror.kube import ApiError, Change, Client, Connection, Informer, Object
from multimirror.kube.errors import Unreachable
from multimirror.kube.own_writes import OwnWrites
from multimirror.kube.resources import JOBS, NAMESPACES, NODES
from multimirror.workers.probe import Facts, capacity_of, check, trim_namespace, trim_node

_SYNC: Final = 60.0
_BY_ORIGIN: Final = "origin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a session is for."""

    origin: str
    namespaces: Sequence[str] | None
    """Where copies may go: only there is anything listed. None: everywhere."""
    follow_nodes: bool
    concurrency: int = 16


class Session:
    """A worker that answered, and what it holds of ours."""

    def __init__(self, client: Client, writer: Client, facts: Facts) -> None:
        self.client = client
        self.writer = writer
        self.facts = facts
        self._copies: dict[str | None, Informer] = {}
        self._writes: dict[str | None, OwnWrites] = {}
        self._namespaces: Informer | None = None
        self._nodes: Informer | None = None

    def copies(self, uid: str) -> list[Json]:
        """The copies of one Job."""
        return [copy for informer in self._copies.values() for copy in informer.by_index(_BY_ORIGIN, uid)]

    @property
    def deaf(self) -> ApiError | None:
        """Why our copies here cannot be followed any more; None while they can."""
        return next((informer.error for informer in self._copies.values() if informer.error is not None), None)

    def all_copies(self) -> Iterable[Json]:
        """Every object of ours here."""
        return (copy for informer in self._copies.values() for copy in informer.list())

    def writes(self, namespace: str) -> OwnWrites:
        """Our own writes in that namespace, which the cache may not have seen yet."""
        return self._writes.get(namespace) or self._writes[None]

    def namespaces(self) -> frozenset[str] | None:
        """Those that can take a Job; None when we may not know."""
        if self._namespaces is None:
            return None
        found = self._namespaces.list()
        return frozenset(n["metadata"]["name"] for n in found if "deletionTimestamp" not in n["metadata"])

    def capacity(self) -> dict[str, Decimal] | None:
        """What its nodes have to give; None when we may not know, or it has none."""
        return (capacity_of(self._nodes.list()) or None) if self._nodes is not None else None

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        connection: Connection,
        needs: Needs,
        *,
        guard: Callable[[], None] | None,
        on_copy: Callable[[Change], None],
        on_room: Callable[[], None],
    ) -> AsyncIterator["Session"]:
        """Connect, check, fill the caches."""
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(
                Client(connection, concurrency=needs.concurrency, timeout=15.0, user_agent="multimirror")
            )
            facts = await check(client, needs.namespaces)
            session = cls(client, client.guarded(guard) if guard is not None else client, facts)
            informers = session._informers(needs, on_copy, on_room)
            for informer in informers:
                await stack.enter_async_context(informer)
            await _synced(informers, connection.name)
            yield session

    def _informers(
        self, needs: Needs, on_copy: Callable[[Change], None], on_room: Callable[[], None]
    ) -> list[Informer]:
        client = self.client
        selector = f"{ORIGIN_LABEL}={needs.origin}"
        if not self.facts.missing:
            for namespace in needs.namespaces or (None,):
                informer = Informer(client, JOBS, namespace, label_selector=selector)
                informer.add_index(_BY_ORIGIN, _origin_of)
                informer.add_handler(on_copy)
                self._copies[namespace] = informer
                self._writes[namespace] = OwnWrites(informer)
        informers = list(self._copies.values())
        if self.facts.sees_namespaces:
            self._namespaces = Informer(client, NAMESPACES, trim=trim_namespace)
            self._namespaces.add_handler(lambda change: on_room() if _is_other(change) else None)
            informers.append(self._namespaces)
        if self.facts.sees_nodes and needs.follow_nodes:
            self._nodes = Informer(client, NODES, trim=trim_node)
            self._nodes.add_handler(lambda change: on_room() if _is_other(change) else None)
            informers.append(self._nodes)
        return informers


def _origin_of(copy: Object) -> list[str]:
    uid = (copy["metadata"].get("labels") or {}).get(ORIGIN_UID_LABEL)
    return [uid] if uid else []


def _is_other(change: Change) -> bool:
    """A change in what we keep of it, and not part of the first list."""
    if change.initial:
        return False
    if change.old is None or change.new is None:
        return True
    return {**change.old, "metadata": None} != {**change.new, "metadata": None} or (
        "deletionTimestamp" in change.new["metadata"]
    )


async def _synced(informers: Sequence[Informer], cluster: str) -> None:
    try:
        async with asyncio.timeout(_SYNC):
            for informer in informers:
                await informer.synced()
    except TimeoutError:
        late = next(informer for informer in informers if not informer.has_synced)
        why = str(late.error) if late.error is not None else f"no list of {late.resource.name} in {_SYNC:g} s"
        raise Unreachable(why, cluster=cluster) from None
