"""People who create Jobs all the time, whatever is done to the installation meanwhile.

Each asks like any program with an ordinary HTTP client: nothing is sent a second time, and each answer counts. Most
creations are dry runs, which go through admission like all others; every tenth is real, and is deleted.
"""

import asyncio
import contextlib
import ssl
import tempfile
from base64 import b64decode
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final

import aiohttp

from multimirror.api import DEFAULT_QUEUE_LABEL, HOLD_ANNOTATION, MANAGED_BY, MIRROR_QUEUES, QUEUE_LABEL
from multimirror.kube import Client, Connection
from multimirror.kube.errors import NotFound
from multimirror.kube.resources import JOBS, NAMESPACES

Json = dict[str, Any]
CLIENTS: Final = 4
_REAL: Final = 10  # of so many, one
_NAME: Final = "under-load"


@dataclass
class Load:
    """What became of the creations."""

    created: int = 0
    failed: list[str] = field(default_factory=list)
    unmanaged: list[str] = field(default_factory=list)
    _more: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def reach(self, total: int) -> None:
        """Until so many were created, or the first was not."""
        async with self._more:
            await self._more.wait_for(lambda: self.created >= total or self.failed or self.unmanaged)

    async def record(self, status: int, answer: Json) -> None:
        self.created += 1
        if status != 201:
            self.failed.append(f"{status}: {str(answer.get('message'))[:300]}")
        elif (wrong := _not_ours(answer)) is not None:
            self.unmanaged.append(wrong)
        async with self._more:
            self._more.notify_all()

    def __str__(self) -> str:
        return f"{self.created} creations, {len(self.failed)} failed, {len(self.unmanaged)} not made ours"


def _not_ours(job: Json) -> str | None:
    """A Job that was let through as it came, or was taken for one that its user holds."""
    spec, annotations = job["spec"], job["metadata"].get("annotations") or {}
    if (spec.get("managedBy"), spec.get("suspend")) == (MANAGED_BY, True) and HOLD_ANNOTATION not in annotations:
        return None
    return f"managedBy {spec.get('managedBy')}, suspend {spec.get('suspend')}, annotations {annotations}"


@contextlib.asynccontextmanager
async def under_load(kubeconfig: Json) -> AsyncIterator[Load]:
    """Jobs are created inside, in a queue that places none of them: half of them name it, half by their namespace."""
    connection = Connection.from_kubeconfig(kubeconfig)
    load = Load()
    async with Client(connection, user_agent="load") as client, contextlib.AsyncExitStack() as stack:
        queue = {"metadata": {"name": _NAME}, "spec": {"quota": {"jobs": 0}}}
        await client.create(MIRROR_QUEUES, {**_kind(MIRROR_QUEUES), **queue})
        stack.push_async_callback(_gone, client, MIRROR_QUEUES)
        await client.create(NAMESPACES, {"metadata": {"name": _NAME, "labels": {DEFAULT_QUEUE_LABEL: _NAME}}})
        stack.push_async_callback(_gone, client, NAMESPACES)
        server, tls = _address(kubeconfig)
        connector = aiohttp.TCPConnector(ssl=tls, limit=CLIENTS)
        session = await stack.enter_async_context(aiohttp.ClientSession(server, connector=connector))
        users = [asyncio.create_task(_create(session, load, number)) for number in range(CLIENTS)]
        try:
            yield load
        finally:
            for user in users:
                user.cancel()
            ended = await asyncio.gather(*users, return_exceptions=True)
            assert all(isinstance(each, asyncio.CancelledError) for each in ended), ended


async def _create(session: aiohttp.ClientSession, load: Load, number: int) -> None:
    path = JOBS.path(_NAME)
    for turn in count():
        real = turn % _REAL == 0
        job = _job(f"load-{number}-{turn}", {QUEUE_LABEL: _NAME} if turn % 2 else {})
        try:
            async with session.post(path, params={} if real else {"dryRun": "All"}, json=job) as answer:
                status, made = answer.status, await answer.json()
        except aiohttp.ClientError as error:
            status, made = 0, {"message": repr(error)}
        await load.record(status, made)
        if real and status == 201:
            gone = {"propagationPolicy": "Background"}
            async with session.delete(f"{path}/{job['metadata']['name']}", params=gone) as answer:
                await answer.read()


def _job(name: str, labels: Mapping[str, str]) -> Json:
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}
    metadata = {"name": name, "labels": dict(labels)}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": {"spec": pod}}}


def _kind(resource: Any) -> Json:
    return {"apiVersion": resource.api_version, "kind": resource.kind}


async def _gone(client: Client, resource: Any) -> None:
    with contextlib.suppress(NotFound):
        await client.delete(resource, _NAME)
    async with asyncio.timeout(120):
        with contextlib.suppress(NotFound):
            while True:
                await client.get(resource, _NAME)
                await asyncio.sleep(0.2)


def _address(kubeconfig: Json) -> tuple[str, ssl.SSLContext]:
    cluster, user = kubeconfig["clusters"][0]["cluster"], kubeconfig["users"][0]["user"]
    tls = ssl.create_default_context(cadata=b64decode(cluster["certificate-authority-data"]).decode())
    with tempfile.TemporaryDirectory() as directory:  # the ssl module reads keys from files only
        pair = Path(directory) / "pair.pem"
        pair.write_bytes(b64decode(user["client-certificate-data"]) + b64decode(user["client-key-data"]))
        tls.load_cert_chain(pair)
    return cluster["server"], tls
