"""A worker cluster that answers anything: registered like any other, with a certificate, an account and no manners."""

import asyncio
import itertools
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import orjson
import trustme
import yaml

from multimirror.api import ORIGIN_LABEL, ORIGIN_UID_LABEL, WORKER_CLUSTERS
from multimirror.kube.errors import NotFound
from multimirror.kube.resources import SECRETS
from tests.security.installation import SYSTEM, Installation, unique
from tests.unit.kube.servers import Seen, Wire, running
from tests.unit.workers.fake_cluster import FakeCluster, a_secret

Json = dict[str, Any]
MIB: Final = 1024 * 1024
Attack = Callable[["HostileWorker", Seen, Wire], Awaitable[bool]]
"""Whether it has answered; else an honest answer follows."""


class HostileWorker(FakeCluster):
    """Honest where its attack does not say otherwise."""

    attack: Attack | None = None
    name = ""
    ca: trustme.CA

    async def handle(self, seen: Seen, wire: Wire) -> None:
        if self.attack is None or not await self.attack(self, seen, wire):
            await self._handle(seen, wire)

    def kubeconfig(self, token: str = "t", **user: str) -> bytes:
        config = json.loads(super().kubeconfig(token, **user))
        config["clusters"][0]["cluster"] = {
            "server": f"https://localhost:{self.server.port}",
            "certificate-authority-data": trusted(self.ca),
        }
        return yaml.safe_dump(config).encode()


def trusted(ca: trustme.CA) -> str:
    return a_secret("", ca.cert_pem.bytes(), namespace="")["data"]["kubeconfig"]  # type: ignore[no-any-return]


@asynccontextmanager
async def a_hostile_worker(
    installation: Installation, attack: Attack | None = None, *, name: str = "hostile", identity: str | None = None
) -> AsyncIterator[HostileWorker]:
    """A WorkerCluster of a (unique) name, and what answers at its address."""
    ca, name = trustme.CA(), unique(name)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("localhost").configure_cert(tls)
    async with running(tls) as server:
        worker = HostileWorker(server, identity=identity or f"identity-of-{name}")
        worker.attack, worker.name, worker.ca = attack, name, ca
        server.scripts.clear()
        server.then(worker.handle)
        await installation.admin.create(SECRETS, a_secret(name, worker.kubeconfig(), namespace=SYSTEM), SYSTEM)
        spec = {"kubeconfig": {"secret": {"name": name}}}
        await installation.admin.create(WORKER_CLUSTERS, {"metadata": {"name": name}, "spec": spec})
        try:
            yield worker
        finally:
            for resource, namespace in ((WORKER_CLUSTERS, None), (SECRETS, SYSTEM)):
                with suppress(NotFound):
                    await installation.admin.delete(resource, name, namespace)


def a_foreign_copy(number: int, origin: str) -> Json:
    """Carries our labels, and is nobody's."""
    labels = {ORIGIN_LABEL: origin, ORIGIN_UID_LABEL: f"uid-{number}"}
    metadata = {"namespace": "default", "name": f"job-{number}", "uid": f"u-{number}", "labels": labels}
    return {"metadata": {**metadata, "resourceVersion": str(1000 + number)}, "spec": {}, "status": {}}


# --- attacks


async def huge_version(_: HostileWorker, seen: Seen, wire: Wire) -> bool:
    """400 MB, as it says beforehand."""
    if seen.target != "/version":
        return False
    await wire.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 400000000\r\n\r\n")
    await pour(wire, b"x" * MIB, chunked=False)
    return True


async def poured_version(_: HostileWorker, seen: Seen, wire: Wire) -> bool:
    """Without a word about its length."""
    if seen.target != "/version":
        return False
    await wire.start_chunks()
    await pour(wire, b"[" * MIB)
    return True


async def new_objects(_: HostileWorker, seen: Seen, wire: Wire) -> bool:
    """ADDED, ADDED, ADDED."""
    if "/jobs" not in seen.target or "watch=true" not in seen.target:
        return False
    origin = seen.target.split("origin%3D")[1].split("&")[0]
    await wire.start_chunks()
    piece = b"".join([an_event(a_foreign_copy(number, origin)) for number in range(1000)])
    while True:
        await listened_to(wire)
        await wire.chunk(piece)


async def fat_objects(_: HostileWorker, seen: Seen, wire: Wire) -> bool:
    """Few, and each of them a megabyte of brackets."""
    if "/jobs" not in seen.target or "watch=true" not in seen.target:
        return False
    origin = seen.target.split("origin%3D")[1].split("&")[0]
    await wire.start_chunks()
    piece = an_event(a_foreign_copy(0, origin) | {"status": {"conditions": [[]] * 90_000}})
    while True:
        await listened_to(wire)
        await wire.chunk(piece)


async def one_line(_: HostileWorker, seen: Seen, wire: Wire) -> bool:
    """An event without end."""
    if "watch=true" not in seen.target:
        return False
    await wire.start_chunks()
    await pour(wire, b'{"type": "ADDED", "object": {' + b" " * MIB)
    return True


async def pages(_: HostileWorker, seen: Seen, wire: Wire) -> bool:
    """No streamed lists; pages of brackets, and always one more."""
    if "/jobs" not in seen.target or seen.method != "GET":
        return False
    if "watch=true" in seen.target:
        await wire.answer(400, {"kind": "Status", "code": 400, "reason": "BadRequest", "message": "no such list"})
        return True
    await wire.answer(200, b'{"metadata": {"continue": "more"}, "items": [' + b",".join([b"[]"] * 2 * MIB) + b"]}")
    return True


async def nodes(_: HostileWorker, seen: Seen, wire: Wire) -> bool:
    """More nodes than there are."""
    if "/nodes" not in seen.target or "watch=true" not in seen.target:
        return False
    await wire.start_chunks()
    resources = {f"example.dev/{each}": "1" for each in range(64)}
    status = {"allocatable": resources, "conditions": [{"type": "Ready", "status": "True"}]}
    for number in itertools.count():
        await listened_to(wire)
        metadata = {"name": f"node-{number}", "uid": f"n-{number}", "resourceVersion": str(number)}
        await wire.chunk(an_event({"metadata": metadata, "status": status}))
    return True


async def pour(wire: Wire, piece: bytes, *, chunked: bool = True) -> None:
    """400 MB, or until nobody listens."""
    for _number in range(400):
        await listened_to(wire)
        await (wire.chunk(piece) if chunked else wire.send(piece))


def an_event(obj: Json) -> bytes:
    return orjson.dumps({"type": "ADDED", "object": obj}) + b"\n"


async def listened_to(wire: Wire) -> None:
    """Whoever pours shares a thread with others."""
    await asyncio.sleep(0)
    if wire.writer.is_closing():
        raise ConnectionResetError
