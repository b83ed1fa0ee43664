"""A small API server with what a worker's connection needs: lists and watches by label, access reviews, faults."""

import asyncio
import base64
import functools
import itertools
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

from multimirror.kube import Resource
from multimirror.kube.resources import JOBS, NAMESPACES, NODES, PODS, SECRETS
from tests.unit.kube.servers import Seen, Server, Wire, running, status

Json = dict[str, Any]
_SERVED = (JOBS, NAMESPACES, NODES, PODS, SECRETS)
_uids = itertools.count(1)


class FakeCluster:
    """Objects by path; every one has a version, every change is told to every watch of it."""

    def __init__(self, server: Server, *, identity: str, also: tuple[Resource, ...] = ()) -> None:
        self.server = server
        self.identity = identity
        self.objects: dict[tuple[str, str, str], Json] = {}  # collection, namespace, name
        self.denied: set[tuple[str, str, str]] = set()
        """(verb, plural, namespace): what we may not do there; an empty namespace means all of them."""
        self.delays: dict[str, float] = {}
        """Seconds that an answer takes, by method."""
        self.broken: set[str] = set()
        """By plural: what its API server fails to serve."""
        self.refusal: tuple[int, str, str] | None = None
        """Status, reason and message of its answer to everything but its version."""
        self.date: str | None = None
        self.clock: Callable[[], float] = time.time
        self.revoked: set[str] = set()
        """Tokens that are good no more."""
        self.tokens: dict[str, str] = {}
        """Those that were given, and the uid of what each is bound to."""
        self._served = {resource.path(): resource for resource in (*_SERVED, *also)}
        self._version = 100
        self._history: list[tuple[int, str, str, Json]] = []
        self._changed = asyncio.Condition()
        self._cut: asyncio.Event | None = None
        self._watches: set[Wire] = set()
        server.then(self._handle)

    # --- what happens there

    async def put(self, resource: Resource, obj: Json) -> Json:
        """Create or change."""
        metadata = obj["metadata"]
        key = (resource.path(), metadata.get("namespace", ""), metadata["name"])
        kind = "MODIFIED" if key in self.objects else "ADDED"
        self._version += 1
        uid = self.objects[key]["metadata"]["uid"] if key in self.objects else f"uid-{next(_uids)}"
        stored = {**obj, "metadata": {"uid": uid, **metadata, "resourceVersion": str(self._version)}}
        self.objects[key] = stored
        await self._tell(kind, key[0], stored)
        return stored

    async def remove(self, resource: Resource, name: str, namespace: str = "") -> None:
        self._version += 1
        gone = self.objects.pop((resource.path(), namespace, name))
        await self._tell(
            "DELETED",
            resource.path(),
            {**gone, "metadata": {**gone["metadata"], "resourceVersion": str(self._version)}},
        )

    async def deny(self, *verbs: str, plural: str = "jobs", namespace: str = "") -> None:
        """Take rights away; watches that are open end."""
        self.denied |= {(verb, plural, namespace) for verb in verbs}
        await self.end_watches()

    async def grant(self) -> None:
        """Everything is allowed."""
        self.denied.clear()

    async def end_watches(self) -> None:
        for wire in tuple(self._watches):
            wire.over = True
        async with self._changed:
            self._changed.notify_all()

    async def cut_off(self) -> None:
        """From now on nothing comes back, on no connection."""
        self._cut = asyncio.Event()
        await self.end_watches()

    def restore(self) -> None:
        if self._cut is not None:
            self._cut.set()
            self._cut = None

    def count(self, method: str, plural: str) -> int:
        return sum(1 for seen in self.server.seen if seen.method == method and f"/{plural}" in seen.target)

    def kubeconfig(self, token: str = "t", **user: str) -> bytes:
        address = f"http://127.0.0.1:{self.server.port}"
        config = {
            "kind": "Config",
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": address}}],
            "users": [{"name": "u", "user": {"token": token, **user}}],
        }
        return json.dumps(config).encode()

    # --- the wire

    async def _tell(self, kind: str, collection: str, obj: Json) -> None:
        async with self._changed:
            self._history.append((self._version, kind, collection, obj))
            self._changed.notify_all()

    async def _handle(self, seen: Seen, wire: Wire) -> None:
        if self._cut is not None:
            await self._cut.wait()
        await asyncio.sleep(self.delays.get(seen.method, 0.0))
        parts = urlsplit(seen.target)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        headers = {"Date": self.date} if self.date is not None else {}
        if parts.path == "/version":
            return await wire.answer(200, {"gitVersion": "v1.36.4"})
        if self.refusal is not None:
            return await wire.answer(self.refusal[0], status(*self.refusal))
        if parts.path == NAMESPACES.path(None, "kube-system"):
            return await wire.answer(200, {"metadata": {"name": "kube-system", "uid": self.identity}}, headers)
        if parts.path.endswith("/selfsubjectaccessreviews"):
            asked = seen.json["spec"]["resourceAttributes"]
            allowed = self._may(asked["verb"], asked["resource"], asked.get("namespace", ""))
            return await wire.answer(201, {"kind": "SelfSubjectAccessReview", "status": {"allowed": allowed}})
        if seen.headers.get("authorization", "") in {f"bearer {token}".lower() for token in self.revoked}:
            return await wire.answer(401, status(401, "Unauthorized", "Unauthorized"))
        if parts.path.endswith("/token"):
            return await self._token(seen, wire)
        resource, namespace, name = self._where(parts.path)
        return await self._resource(seen, wire, query, resource, namespace, name)

    async def _resource(  # noqa: PLR0917 - a request has that many parts
        self, seen: Seen, wire: Wire, query: dict[str, str], resource: Resource, namespace: str, name: str
    ) -> None:
        watching = query.get("watch") == "true"
        reads = "watch" if watching else "get" if name else "list"
        verb = {"GET": reads, "POST": "create", "PATCH": "patch", "DELETE": "delete"}[seen.method]
        if not self._may(verb, resource.plural, namespace):
            return await wire.answer(403, status(403, "Forbidden", f"may not {verb} {resource.plural} in {namespace}"))
        if resource.plural in self.broken:
            return await wire.answer(500, status(500, "InternalError", f"{resource.plural} cannot be read"))
        if seen.method == "POST":
            return await wire.answer(201, await self.put(resource, seen.json))
        if seen.method in {"PATCH", "DELETE"}:
            return await self._change(seen, wire, resource, namespace, name)
        if watching:
            return await self._watch(query, wire, resource, namespace)
        found = [obj for key, obj in self.objects.items() if self._matches(query, key[0], obj, resource, namespace)]
        return await wire.answer(200, {"metadata": {"resourceVersion": str(self._version)}, "items": found})

    async def _change(self, seen: Seen, wire: Wire, resource: Resource, namespace: str, name: str) -> None:
        found = self.objects.get((resource.path(), namespace, name))
        if found is None:
            return await wire.answer(404, status(404, "NotFound", f"{name} not found"))
        if seen.method == "DELETE":
            await self.remove(resource, name, namespace)
            self.revoked |= {token for token, bound in self.tokens.items() if bound == found["metadata"]["uid"]}
            return await wire.answer(200, {"kind": "Status", "status": "Success"})
        change = seen.json
        if change.get("metadata", {}).pop("resourceVersion", None) not in {None, found["metadata"]["resourceVersion"]}:
            return await wire.answer(409, status(409, "Conflict", "the object has been modified"))
        return await wire.answer(200, await self.put(resource, _merged(found, change)))

    async def _token(self, seen: Seen, wire: Wire) -> None:
        """As an API server does for a token that is bound to a Secret."""
        spec = seen.json["spec"]
        reference = spec["boundObjectRef"]
        secret = self.objects.get((SECRETS.path(), "multimirror-system", reference["name"]))
        if not self._may("create", "serviceaccounts/token", "") or secret is None:
            return await wire.answer(403, status(403, "Forbidden", "may not create serviceaccounts/token"))
        token = a_token(self.clock(), spec["expirationSeconds"], reference["name"], serial=next(_uids))
        self.tokens[token] = secret["metadata"]["uid"]
        return await wire.answer(201, {"kind": "TokenRequest", "status": {"token": token}})

    def _may(self, verb: str, plural: str, namespace: str) -> bool:
        return not {(verb, plural, namespace), (verb, plural, "")} & self.denied

    def _where(self, path: str) -> tuple[Resource, str, str]:
        for collection, resource in self._served.items():
            prefix, plural = collection.rsplit("/", 1)
            rest = path.removeprefix(prefix)
            if rest == path:
                continue
            parts = rest.strip("/").split("/")
            namespace = ""
            if len(parts) > 2 and parts[0] == "namespaces":
                namespace, parts = parts[1], parts[2:]
            if parts[0] == plural:
                return resource, namespace, parts[1] if len(parts) > 1 else ""
        raise AssertionError(f"nobody expected {path}")

    @staticmethod
    def _matches(query: dict[str, str], collection: str, obj: Json, resource: Resource, namespace: str) -> bool:
        labels = obj["metadata"].get("labels") or {}
        wanted = [pair.split("=") for pair in query.get("labelSelector", "").split(",") if pair]
        return (
            collection == resource.path()
            and namespace in {"", obj["metadata"].get("namespace", "")}
            and all(labels.get(key) == value for key, value in wanted)
        )

    async def _watch(self, query: dict[str, str], wire: Wire, resource: Resource, namespace: str) -> None:
        initial = query.get("sendInitialEvents") == "true"
        at = self._version if initial else int(query["resourceVersion"])
        await wire.start_chunks()
        self._watches.add(wire)
        try:
            if initial:
                for key, obj in tuple(self.objects.items()):
                    if self._matches(query, key[0], obj, resource, namespace):
                        await wire.event("ADDED", obj)
                mark = {"resourceVersion": str(at), "annotations": {"k8s.io/initial-events-end": "true"}}
                await wire.event("BOOKMARK", {"metadata": mark})
            while not wire.closed and not wire.over:
                for version, kind, collection, obj in tuple(self._history):
                    if version > at:
                        at = version
                        if self._matches(query, collection, obj, resource, namespace):
                            await wire.event(kind, obj)
                async with self._changed:
                    await self._changed.wait_for(functools.partial(self._wakes, wire, at))
            wire.over = False
            await wire.end_chunks()
        finally:
            self._watches.discard(wire)

    def _wakes(self, wire: Wire, at: int) -> bool:
        return wire.over or self._version > at


@asynccontextmanager
async def a_cluster(identity: str, *also: Resource) -> AsyncIterator[FakeCluster]:
    async with running() as server:
        yield FakeCluster(server, identity=identity, also=also)


def a_secret(name: str, kubeconfig: bytes, *, namespace: str, labels: Json | None = None) -> Json:
    data = {"kubeconfig": base64.b64encode(kubeconfig).decode()}
    metadata: Json = {"namespace": namespace, "name": name}
    return {"metadata": metadata | ({"labels": labels} if labels else {}), "data": data}


def a_token(issued: float, seconds: float | None, secret: str | None, *, serial: int = 0) -> str:
    """What a service account's token says about itself; nobody here checks the signature."""
    account: Json = {"namespace": "multimirror-system", "serviceaccount": {"name": "multimirror", "uid": "u"}}
    claims: Json = {"iat": int(issued), "jti": serial, "kubernetes.io": account}
    if secret is not None:
        account["secret"] = {"name": secret, "uid": "s"}
    if seconds is not None:
        claims["exp"] = int(issued + seconds)
    return f"e30.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.x"


def _merged(obj: Any, change: Any) -> Any:
    if not isinstance(change, dict):
        return change
    result = dict(obj) if isinstance(obj, dict) else {}
    for key, value in change.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merged(result.get(key), value)
    return result
