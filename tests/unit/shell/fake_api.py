"""API servers in memory, reached without sockets: for tests of the shell on virtual time.

A `FakeCluster` keeps objects and tells watchers of changes, with the preconditions, conflicts and subresources that the
dispatcher relies on, and nothing else: no defaults, no validation, no controllers. `Network` stands in for the client's
transport: what has a name in it can be reached, its writes can be made slow, and it can be cut off.
"""

import asyncio
import base64
import copy
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import orjson
import trustme

from multimirror.kube import Resource
from multimirror.kube.connection import Connection
from multimirror.kube.transport import Response, TransportError

Json = dict[str, Any]
_CA = base64.b64encode(trustme.CA().cert_pem.bytes()).decode()
START = 1_800_000_000.0
"""The wall clock's time when the event loop's is 0."""


def timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Refused(Exception):  # noqa: N818 - an answer, not a fault
    """An answer that is no success."""

    def __init__(self, code: int, reason: str, message: str = "") -> None:
        super().__init__(message or reason)
        self.body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": str(self)}
        self.code = code


@dataclass(frozen=True, slots=True)
class Request:
    """One call, taken apart."""

    method: str
    path: str
    query: Mapping[str, str]
    body: Any
    collection: str
    """`/apis/batch/v1/jobs`: whatever the namespace."""
    namespace: str
    name: str
    subresource: str

    @property
    def is_write(self) -> bool:
        """Access reviews are questions, and no webhook holds them up."""
        return self.method != "GET" and not self.collection.endswith("accessreviews")

    @classmethod
    def read(cls, method: str, target: str, body: bytes | None) -> "Request":
        parts = urlsplit(target)
        pieces = [piece for piece in parts.path.split("/") if piece]
        prefix = 2 if pieces and pieces[0] == "api" else 3
        base, rest = pieces[:prefix], pieces[prefix:]
        namespace = ""
        if len(rest) > 2 and rest[0] == "namespaces":
            namespace, rest = rest[1], rest[2:]
        rest += [""] * (3 - len(rest))
        return cls(
            method=method,
            path=parts.path,
            query=dict(parse_qsl(parts.query)),
            body=orjson.loads(body) if body else None,
            collection="/" + "/".join([*base, rest[0]]),
            namespace=namespace,
            name=rest[1],
            subresource=rest[2],
        )


def collection_of(resource: Resource) -> str:
    return resource.path()


@dataclass
class FakeCluster:
    """One API server. `on_write` is told of each write that took effect: (request, before, after)."""

    name: str
    clock: Callable[[], float]
    on_write: Callable[[Request, Json | None, Json | None], None] = lambda *_: None
    objects: dict[str, dict[tuple[str, str], Json]] = field(default_factory=dict)
    refuse: Callable[[Request], Refused | None] = lambda _: None
    lists_all_pods: bool = False
    """Whether our account may; then what is free there is counted node by node."""
    _version: int = 100
    _uids: int = 0
    _log: list[tuple[int, str, str, Json, Json | None]] = field(default_factory=list)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    # --- for tests: changes by anybody else

    def put(self, resource: Resource, obj: Json) -> Json:
        """Create or replace, without asking."""
        metadata = obj["metadata"]
        key, there = (metadata.get("namespace", ""), metadata["name"]), self.objects.setdefault(resource.path(), {})
        before = there.get(key)
        obj = copy.deepcopy({"apiVersion": resource.api_version, "kind": resource.kind, **obj})
        if before is None:
            obj["metadata"].setdefault("uid", self._new_uid())
            obj["metadata"].setdefault("creationTimestamp", timestamp(self.clock()))
        return self._store(resource.path(), key, before, obj)

    def change(self, resource: Resource, name: str, namespace: str, change: Callable[[Json], None]) -> Json:
        obj = copy.deepcopy(self.objects[resource.path()][namespace, name])
        change(obj)
        return self.put(resource, obj)

    def remove(self, resource: Resource, name: str, namespace: str = "") -> None:
        before = self.objects[resource.path()].pop((namespace, name))
        self._version += 1
        self._tell("DELETED", resource.path(), before, None)

    def all(self, resource: Resource) -> list[Json]:
        return list(self.objects.get(resource.path(), {}).values())

    def get(self, resource: Resource, name: str, namespace: str = "") -> Json | None:
        return self.objects.get(resource.path(), {}).get((namespace, name))

    # --- requests

    def answer(self, request: Request) -> tuple[int, Any]:
        try:
            refusal = self.refuse(request)
            if refusal is not None:
                raise refusal
            return 200, self._answer(request)
        except Refused as error:
            return error.code, error.body

    def _answer(self, request: Request) -> Any:
        if request.path == "/version":
            return {"gitVersion": "v1.36.4"}
        if request.collection.endswith("selfsubjectaccessreviews"):
            asks = request.body["spec"].get("resourceAttributes") or {}
            all_pods = asks.get("resource") == "pods" and not asks.get("namespace")
            return {**request.body, "status": {"allowed": self.lists_all_pods or not all_pods}}
        match request.method, bool(request.name):
            case "GET", True:
                return self._find(request)
            case "GET", False:
                items = [obj for obj in self.objects.get(request.collection, {}).values() if _selected(obj, request)]
                return {"metadata": {"resourceVersion": str(self._version)}, "items": items}
            case "POST", _:
                return self._create(request)
            case "PATCH", _:
                return self._patch(request)
            case "DELETE", _:
                return self._delete(request)
        raise Refused(405, "MethodNotAllowed")

    def _create(self, request: Request) -> Json:
        obj = request.body
        key = (request.namespace, obj["metadata"]["name"])
        if key in self.objects.get(request.collection, {}):
            raise Refused(409, "AlreadyExists")
        obj["metadata"] |= {
            "uid": self._new_uid(),
            "creationTimestamp": timestamp(self.clock()),
            "namespace": request.namespace,
        }
        after = self._store(request.collection, key, None, obj)
        self.on_write(request, None, after)
        return after

    def _patch(self, request: Request) -> Json:
        before = self._find(request)
        wanted = request.body.get("metadata") or {}
        for field_name in ("uid", "resourceVersion"):
            if wanted.get(field_name) not in (None, before["metadata"][field_name]):
                raise Refused(409, "Conflict")
        after = merged(before, request.body)
        after["metadata"] = {**after["metadata"], "resourceVersion": before["metadata"]["resourceVersion"]}
        if request.subresource == "status":
            after = {**before, "metadata": after["metadata"], "status": after.get("status")}
        elif "status" in before:
            after["status"] = before["status"]
        if after == before:
            return before
        after = self._store(request.collection, (request.namespace, request.name), before, copy.deepcopy(after))
        self.on_write(request, before, after)
        return after

    def _delete(self, request: Request) -> Json:
        before = self._find(request)
        wanted = (request.body or {}).get("preconditions") or {}
        if wanted.get("uid") not in (None, before["metadata"]["uid"]):
            raise Refused(409, "Conflict")
        if before["metadata"].get("finalizers"):
            after = copy.deepcopy(before)
            after["metadata"].setdefault("deletionTimestamp", timestamp(self.clock()))
            return self._store(request.collection, (request.namespace, request.name), before, after)
        del self.objects[request.collection][request.namespace, request.name]
        self._version += 1
        self._tell("DELETED", request.collection, before, None)
        self.on_write(request, before, None)
        return {"kind": "Status", "status": "Success"}

    def _find(self, request: Request) -> Json:
        found = self.objects.get(request.collection, {}).get((request.namespace, request.name))
        if found is None:
            raise Refused(404, "NotFound", f"{request.path} not found")
        return found

    async def watch(self, request: Request, broken: Callable[[], bool]) -> AsyncIterator[bytes]:
        seen = int(request.query["resourceVersion"])
        position = 0
        while True:
            while position < len(self._log):
                version, event, collection, before, after = self._log[position]
                position += 1
                if version > seen and collection == request.collection:
                    line = _event(event, before, after, request)
                    if line is not None:
                        yield line
            await self._changed.wait()
            if broken():
                raise TransportError("the connection broke", sent=True)

    def wake(self) -> None:
        """Let everybody who watches look."""
        self._changed.set()
        self._changed = asyncio.Event()

    # --- storage

    def _store(self, collection: str, key: tuple[str, str], before: Json | None, obj: Json) -> Json:
        self._version += 1
        obj["metadata"]["resourceVersion"] = str(self._version)
        self.objects.setdefault(collection, {})[key] = obj
        self._tell("ADDED" if before is None else "MODIFIED", collection, before or obj, obj)
        return obj

    def _tell(self, event: str, collection: str, before: Json, after: Json | None) -> None:
        if after is None:
            before = {**before, "metadata": {**before["metadata"], "resourceVersion": str(self._version)}}
        self._log.append((self._version, event, collection, before, after))
        self.wake()

    def _new_uid(self) -> str:
        self._uids += 1
        return f"{self.name}-{self._uids:04}"


def _event(event: str, before: Json, after: Json | None, request: Request) -> bytes | None:
    """As this watch sees it: what comes into its selection was added, what leaves it was deleted."""
    was, now = _selected(before, request), after is not None and _selected(after, request)
    if not was and not now:
        return None
    if event == "MODIFIED" and was != now:
        event = "ADDED" if now else "DELETED"
    shown = after if after is not None and event != "DELETED" else before
    if event == "DELETED" and after is not None:
        shown = {**before, "metadata": {**before["metadata"], "resourceVersion": after["metadata"]["resourceVersion"]}}
    return orjson.dumps({"type": event, "object": shown}) + b"\n"


def _selected(obj: Json, request: Request) -> bool:
    if request.namespace and obj["metadata"].get("namespace") != request.namespace:
        return False
    labels = obj["metadata"].get("labels") or {}
    wanted = dict(term.split("=") for term in request.query.get("labelSelector", "").split(",") if term)
    fields = dict(term.split("=") for term in request.query.get("fieldSelector", "").split(",") if term)
    return all(labels.get(key) == value for key, value in wanted.items()) and all(
        _field(obj, key) == value for key, value in fields.items()
    )


def _field(obj: Json, path: str) -> object:
    """Of the fields that may be selected by; whoever asks for another gets nothing."""
    if path not in {"metadata.name", "involvedObject.uid"}:
        return None
    outer, inner = path.split(".")
    return (obj.get(outer) or {}).get(inner)


def merged(before: Any, patch: Any) -> Any:
    """What a merge patch makes of an object."""
    if not isinstance(patch, dict):
        return patch
    after = dict(before) if isinstance(before, dict) else {}
    for key, value in patch.items():
        if value is None:
            after.pop(key, None)
        else:
            after[key] = merged(after.get(key), value)
    return after


@dataclass
class Link:
    """The way to one cluster. `up`: anything gets through; `flows`: and not only the connections; `write_seconds`: how
    long writes take to be answered."""

    cluster: FakeCluster
    up: bool = True
    flows: asyncio.Event = field(default_factory=asyncio.Event)
    write_seconds: float = 0.0
    cuts: int = 0

    def __post_init__(self) -> None:
        self.flows.set()

    async def passed(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """As they come through."""
        async for chunk in chunks:
            await self.flows.wait()
            yield chunk

    def set_up(self, *, up: bool) -> None:
        self.up = up
        if not up:
            self.cuts += 1
            self.cluster.wake()


class Network:
    """What stands in for sockets: clusters by the host name in their address."""

    def __init__(self, clusters: Iterable[FakeCluster]) -> None:
        self.links = {cluster.name: Link(cluster) for cluster in clusters}

    def transport(self, connection: Connection) -> "_Transport":
        return _Transport(self.links[str(urlsplit(connection.server).hostname)])

    @staticmethod
    def kubeconfig(name: str) -> bytes:
        server = {"cluster": {"server": f"https://{name}", "certificate-authority-data": _CA}, "name": "c"}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "clusters": [server],
            "users": [{"name": "c", "user": {"token": "t"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
        }
        return orjson.dumps(config)


@dataclass
class _Stream:
    status: int
    body: bytes
    events: AsyncIterator[bytes] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def chunks(self) -> AsyncIterator[bytes]:
        assert self.events is not None
        return self.events

    async def read(self, limit: int) -> bytes:
        return self.body


class _Transport:
    def __init__(self, link: Link) -> None:
        self._link = link

    async def request(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | None,
        *,
        limit: int,
        check: Callable[[], None] | None = None,
    ) -> Response:
        await asyncio.sleep(0)
        if check is not None:
            check()
        self._reachable()
        await self._link.flows.wait()
        request = Request.read(method, target, body)
        if request.is_write and self._link.write_seconds:
            await asyncio.sleep(self._link.write_seconds)
            self._reachable()
        status, answer = self._link.cluster.answer(request)
        return Response(status, {"content-type": "application/json"}, orjson.dumps(answer))

    @asynccontextmanager
    async def stream(self, method: str, target: str, headers: Mapping[str, str]) -> AsyncIterator[_Stream]:
        await asyncio.sleep(0)
        self._reachable()
        await self._link.flows.wait()
        request = Request.read(method, target, None)
        if "sendInitialEvents" in request.query:
            refused = Refused(400, "BadRequest", "no streaming lists here").body
            yield _Stream(400, orjson.dumps(refused))
            return
        refusal = self._link.cluster.refuse(request)
        if refusal is not None:
            yield _Stream(refusal.code, orjson.dumps(refusal.body))
            return
        cuts = self._link.cuts
        chunks = self._link.cluster.watch(request, lambda: self._link.cuts != cuts)
        yield _Stream(200, b"", self._link.passed(chunks))

    async def close(self) -> None:
        pass

    def _reachable(self) -> None:
        if not self._link.up:
            raise TransportError("no route to host", sent=False)
