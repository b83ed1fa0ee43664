"""What happened: every request of the clients under test, every change on every cluster, every fault that struck.

Two sources that know nothing of each other. The proxies tell what each client asked for and was answered; watches
that go straight to the API servers tell what each cluster held, pods included, which is what really ran. Both stamp
their entries with the event loop's clock, and the record keeps them in the order in which they came.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self

from faults.plan import Fault
from faults.wire import WRITES, Call
from multimirror.kube import ApiError, Client, Resource
from multimirror.kube.errors import Gone

Json = dict[str, Any]
MANAGEMENT: Final = "management"
_AGAIN: Final = 0.05


def is_of(client: str, name: str | None) -> bool:
    """Whether a client is the one of that name, or one of its replicas: `dispatcher-2` is a dispatcher."""
    return name in (None, client) or client.startswith(f"{name}-")


@dataclass(slots=True)
class Exchange:
    """One request of a client under test, and what it was told."""

    time: float
    client: str
    cluster: str
    call: Call
    body: Any = None
    fault: str = ""
    reached: bool = False
    """It was passed on to the API server."""
    status: int = 0
    """What the API server answered; 0: it was not asked, or did not."""
    told: int = 0
    """What the client was answered; 0: nothing."""
    answered: float | None = None
    version: str = ""
    """The resourceVersion of the object in the answer."""

    @property
    def link(self) -> str:
        """From whom to whom."""
        return f"{self.client}/{self.cluster}"

    @property
    def is_write(self) -> bool:
        """It was to change something."""
        return self.call.verb in WRITES

    @property
    def took_effect(self) -> bool:
        """It did."""
        return self.is_write and 200 <= self.status < 300

    def __str__(self) -> str:
        call = self.call
        where = f"{call.namespace}/{call.name}".strip("/")
        told = str(self.told) if self.told == self.status else f"{self.status or 'no effect'}, told {self.told or '-'}"
        fault = f" [{self.fault}]" if self.fault else ""
        return f"{self.time:8.3f}  {self.client} -> {self.cluster}: {call.verb} {call.resource} {where}: {told}{fault}"


@dataclass(frozen=True, slots=True)
class Seen:
    """One change on a cluster."""

    time: float
    cluster: str
    type: str
    """ADDED, MODIFIED, DELETED."""
    kind: str
    object: Json

    @property
    def uid(self) -> str:
        """Whose."""
        return str(self.object["metadata"]["uid"])

    @property
    def name(self) -> str:
        """`namespace/name`."""
        metadata = self.object["metadata"]
        return f"{metadata.get('namespace', '')}/{metadata['name']}".strip("/")

    @property
    def status(self) -> Json:
        """Never None."""
        return self.object.get("status") or {}

    @property
    def labels(self) -> Mapping[str, str]:
        """Never None."""
        return self.object["metadata"].get("labels") or {}


def holder_of(lease: Json) -> str:
    """The client that leads; its identity is its name, with the number of its life after a `_`. Empty: nobody."""
    name, _, life = str(lease["spec"].get("holderIdentity") or "").rpartition("_")
    return name or life


@dataclass(frozen=True, slots=True)
class Struck:
    """A fault that took effect."""

    time: float
    fault: Fault
    until: float
    """When it was over; for one request, when it struck."""


@dataclass(frozen=True, slots=True)
class Life:
    """A process began or ended."""

    time: float
    client: str
    what: str
    """started, killed, ended by itself, paused, resumed"""
    why: Sequence[str] = ()
    """What it said last, where it ended by itself."""


@dataclass(slots=True)
class Record:
    """Everything, in order."""

    exchanges: list[Exchange] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    struck: list[Struck] = field(default_factory=list)
    lives: list[Life] = field(default_factory=list)

    def changes(self, kind: str, cluster: str | None = None) -> Iterable[Seen]:
        """What happened to objects of a kind."""
        return (each for each in self.seen if each.kind == kind and cluster in (None, each.cluster))

    def writes(self, client: str | None = None, cluster: str | None = None) -> Iterable[Exchange]:
        """What clients wrote, or tried to."""
        return (
            each
            for each in self.exchanges
            if each.is_write and is_of(each.client, client) and cluster in (None, each.cluster)
        )

    def last(self, kind: str, cluster: str) -> dict[str, Json]:
        """The objects that are there at the end, by uid."""
        objects: dict[str, Json] = {}
        for each in self.changes(kind, cluster):
            if each.type == "DELETED":
                objects.pop(each.uid, None)
            else:
                objects[each.uid] = each.object
        return objects

    def created_by(self, seen: Seen) -> Exchange | None:
        """The request that made an object which was seen to be added."""
        metadata = seen.object["metadata"]
        for each in self.writes(cluster=seen.cluster):
            if each.call.verb == "create" and each.took_effect and each.version == metadata["resourceVersion"]:
                if each.time <= seen.time and (each.body or {}).get("metadata", {}).get("name") == metadata["name"]:
                    return each
        return None

    def disturbed(self, cluster: str, since: float, until: float, client: str | None = None) -> bool:
        """Whether any fault was felt on the way to that cluster within that time."""
        for each in self.struck:
            where, _, to = each.fault.link.rpartition("/")
            if cluster in (to, each.fault.link) and (not where or is_of(where, client)):
                if each.time <= until and each.until >= since:
                    return True
        return False

    def counts(self) -> Counter[str]:
        """How many faults of each sort took effect."""
        return Counter(each.fault.kind for each in self.struck)


class Watcher:
    """Watches of clusters, straight from their API servers, while its context is open."""

    def __init__(
        self,
        record: Record,
        resources: Mapping[str, Sequence[Resource]],
        namespace: str | None = None,
        *,
        elsewhere: Mapping[Resource, str] | None = None,
    ) -> None:
        """`resources`: what to watch, by cluster. `elsewhere`: what is in another namespace, and in which."""
        self._record, self._resources, self._namespace = record, resources, namespace
        self._clients: dict[str, Client] = {}
        self._told = asyncio.Event()
        self._elsewhere = elsewhere or {}
        self._tasks: dict[str, list[asyncio.Task[None]]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for cluster in tuple(self._tasks):
            await self._stop(cluster)

    async def follow(self, cluster: str, client: Client) -> None:
        """From now on; on return everything that is there is in the record."""
        await self._stop(cluster)
        self._clients[cluster] = client
        tasks = self._tasks[cluster] = []
        for resource in self._resources[cluster]:
            namespace = self._elsewhere.get(resource, self._namespace) if resource.namespaced else None
            found = await client.list(resource, namespace)
            for item in found.items:
                self._note(cluster, "ADDED", resource, item)
            watch = self._watch(cluster, client, resource, namespace, found.resource_version)
            tasks.append(asyncio.get_running_loop().create_task(watch, name=f"watcher of {resource.plural}"))

    async def caught_up(self) -> None:
        """Until everything that the clusters hold now is in the record, and nothing that they do not."""
        for cluster, client in self._clients.items():
            for resource in self._resources[cluster]:
                while True:
                    self._told.clear()
                    try:
                        if await self._versions(client, resource) == self._noted(cluster, resource):
                            break
                    except ApiError:  # it is not there yet
                        await asyncio.sleep(_AGAIN)
                        continue
                    await self._told.wait()

    async def _versions(self, client: Client, resource: Resource) -> dict[str, str]:
        found = await client.list(resource, self._namespace if resource.namespaced else None)
        return {item["metadata"]["uid"]: item["metadata"]["resourceVersion"] for item in found.items}

    def _noted(self, cluster: str, resource: Resource) -> dict[str, str]:
        objects = [obj["metadata"] for obj in self._record.last(resource.kind, cluster).values()]
        return {
            each["uid"]: each["resourceVersion"]
            for each in objects
            if self._namespace in (None, each.get("namespace", self._namespace))
        }

    async def wiped(self, cluster: str) -> None:
        """The cluster and all that was in it is gone."""
        await self._stop(cluster)
        for resource in self._resources[cluster]:
            for obj in self._record.last(resource.kind, cluster).values():
                self._note(cluster, "DELETED", resource, obj)

    async def _stop(self, cluster: str) -> None:
        tasks = self._tasks.pop(cluster, [])
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(
        self, cluster: str, client: Client, resource: Resource, namespace: str | None, version: str
    ) -> None:
        while True:
            try:
                async with contextlib.aclosing(
                    client.watch(resource, namespace, resource_version=version, timeout=300)
                ) as events:
                    async for event in events:
                        version = event.object["metadata"]["resourceVersion"]
                        if event.type != "BOOKMARK":
                            self._note(cluster, event.type, resource, event.object)
            except Gone:  # an API server that was restarted remembers nothing of the time before
                with contextlib.suppress(ApiError):
                    version = await self._look_again(cluster, client, resource, namespace)
            except ApiError:
                pass
            await asyncio.sleep(_AGAIN)

    async def _look_again(self, cluster: str, client: Client, resource: Resource, namespace: str | None) -> str:
        """What has changed meanwhile, as far as it can still be told; and from when on to watch."""
        found = await client.list(resource, namespace)
        known = self._record.last(resource.kind, cluster)
        for item in found.items:
            before = known.pop(item["metadata"]["uid"], None)
            if before is None or before["metadata"]["resourceVersion"] != item["metadata"]["resourceVersion"]:
                self._note(cluster, "ADDED" if before is None else "MODIFIED", resource, item)
        for gone in known.values():
            self._note(cluster, "DELETED", resource, gone)
        return found.resource_version

    def _note(self, cluster: str, what: str, resource: Resource, obj: Json) -> None:
        now = asyncio.get_running_loop().time()
        self._record.seen.append(Seen(now, cluster, what, resource.kind, obj))
        self._told.set()
