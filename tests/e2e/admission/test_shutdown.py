"""`multimirror admission`, told to stop: it is taken out of its Service, and answers whoever still comes."""

import asyncio
import contextlib
import json
import signal
import ssl
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import aiohttp
import pytest

from clusters.local.ports import free_ports
from multimirror.admission import PATH
from multimirror.admission.certificates import KeyPair, new_authority
from multimirror.api import QUEUE_LABEL
from multimirror.cli.admission import SERVICE
from multimirror.cli.apply import apply
from multimirror.cli.installation.authority import authority as secret_of
from tests.e2e.admission.conftest import Server, a_job, a_namespace, a_queue
from tests.waiting import DEADLINE

BESIDE = ("run", "--admission-service", SERVICE, "--admission-address")
ALONE = ("admission", "--service", SERVICE, "--address")


@dataclass
class Replica:
    """One process, and an API server's way to ask it."""

    process: asyncio.subprocess.Process
    session: aiohttp.ClientSession
    health: str
    webhook: str
    name: str
    tls: ssl.SSLContext

    async def ready(self) -> bool:
        with contextlib.suppress(aiohttp.ClientError):
            async with self.session.get(self.health) as answer:
                return answer.status == 200
        return False

    async def ask(self, review: bytes) -> tuple[dict[str, Any], str]:
        """Over a connection that was kept, if there is one; the answer, and what becomes of the connection."""
        async with self.session.post(self.webhook, data=review, ssl=self.tls, server_hostname=self.name) as answer:
            return json.loads(await answer.read())["response"], answer.headers["Connection"]


@contextlib.asynccontextmanager
async def replica(server: Server, authority: KeyPair, namespace: str, *command: str) -> AsyncIterator[Replica]:
    health, port = free_ports(2)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "multimirror.cli", *command, f"127.0.0.1:{port}"),
        *("--namespace", namespace, "--kubeconfig", str(server.kubeconfig_file)),
        *("--health-address", f"127.0.0.1:{health}"),
    )
    tls = ssl.create_default_context(cadata=authority.certificate.decode())
    try:
        async with asyncio.timeout(DEADLINE), aiohttp.ClientSession() as session:
            urls = f"http://127.0.0.1:{health}/readyz", f"https://127.0.0.1:{port}{PATH}?timeout=10s"
            found = Replica(process, session, *urls, f"{SERVICE}.{namespace}.svc", tls)
            while not await found.ready():
                assert process.returncode is None
                await asyncio.sleep(0.05)
            yield found
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def a_review(namespace: str, queue: str) -> bytes:
    return json.dumps(
        {
            "request": {
                "uid": "00000000-0000-0000-0000-000000000000",
                "namespace": namespace,
                "resource": {"group": "batch", "version": "v1", "resource": "jobs"},
                "object": a_job("train", {QUEUE_LABEL: queue}),
            }
        }
    ).encode()


@pytest.mark.parametrize("command", [ALONE, BESIDE], ids=["alone", "beside the dispatcher"])
async def test_a_replica_that_is_told_to_stop_is_unready_and_answers_until_nobody_asks(
    server: Server, command: tuple[str, ...]
) -> None:
    namespace, queue = await a_namespace(server.client), await a_queue(server.client)
    authority = new_authority(datetime.now(UTC))
    await apply(server.client, secret_of(namespace, authority))
    review = a_review(namespace, queue)
    async with replica(server, authority, namespace, *command) as it:
        answer, connection = await it.ask(review)
        assert (answer["allowed"], "patch" in answer, connection) == (True, True, "keep-alive")
        it.process.send_signal(signal.SIGTERM)
        while await it.ready():
            await asyncio.sleep(0.01)
        for _ in range(3):  # the first over the connection that was kept, the others over new ones
            answer, connection = await it.ask(review)
            assert (answer["allowed"], "patch" in answer, connection) == (True, True, "close")
            await asyncio.sleep(0.5)
        assert it.process.returncode is None
        assert await it.process.wait() == 0
