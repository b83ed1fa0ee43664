"""Pods that reach our ports, and have no credential at all: what they do there stays there."""

import asyncio
import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Iterator

import pytest

from multimirror.api import MANAGED_BY
from multimirror.cli.dispatcher_lease import LEASE
from multimirror.kube.errors import Forbidden
from multimirror.kube.resources import JOBS, LEASES
from tests.security.installation import SYSTEM, Installation, a_job
from tests.security.webhook import a_webhook
from tests.waiting import eventually

_SECONDS = 5.0
"""Of attack: twice what a leader may be late with its lease here."""
_SOON_DONE = {"node.multimirror.dev/duration": "10ms"}


def _pipeline(port: int, stop: threading.Event) -> None:
    """GET /metrics, as often as one connection takes it; and a new connection when it is hung up on."""
    requests = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 500
    while not stop.is_set():
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5) as sock:
            sock.setblocking(False)
            left = b""
            while not stop.is_set():
                with contextlib.suppress(BlockingIOError):
                    left = left or requests
                    left = left[sock.send(left) :]
                with contextlib.suppress(BlockingIOError):
                    if not sock.recv(1 << 20):
                        break


def _slowly(port: int, stop: threading.Event) -> None:
    """A hundred connections with half a request each, a byte more from time to time."""
    held: list[socket.socket] = []
    while not stop.wait(0.05):
        for each in held:
            with contextlib.suppress(OSError):
                each.send(b"x")
        if len(held) < 100:
            with contextlib.suppress(OSError):
                sock = socket.create_connection(("127.0.0.1", port), 5)
                sock.send(b"GET /metrics HTTP/1.1\r\nX: ")
                sock.setblocking(False)
                held.append(sock)
    for each in held:
        each.close()


@contextlib.contextmanager
def attack(how: object, port: int) -> Iterator[None]:
    stop = threading.Event()
    thread = threading.Thread(target=how, args=(port, stop))  # type: ignore[arg-type]
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("how", [_pipeline, _slowly], ids=["pipelined requests", "half requests"])
async def test_whoever_reaches_the_health_port_cannot_take_the_lease_from_the_leader(
    installation: Installation, how: object
) -> None:
    tenant, queue = await installation.tenant("beside"), await installation.queue("beside")
    async with installation.dispatcher("--lease-seconds", "3") as dispatcher:
        await eventually(lambda: dispatcher.metric("leader_election_master_status"))
        before = (await installation.admin.get(LEASES, LEASE, SYSTEM))["spec"]
        with attack(how, dispatcher.port):
            end, number = time.monotonic() + _SECONDS, 0
            while time.monotonic() < end:
                name = f"job-{number}"
                await tenant.create(a_job(name, queue, pods=_SOON_DONE))
                await tenant.until_complete(name)
                number += 1
                # The kubelet asks all the while, and would restart a process that does not answer.
                async with asyncio.timeout(5):
                    assert (await dispatcher.get("/healthz"))[0] == 200
        after = (await installation.admin.get(LEASES, LEASE, SYSTEM))["spec"]
        assert dispatcher.alive
        assert after["holderIdentity"] == before["holderIdentity"]
        assert after["leaseTransitions"] == before["leaseTransitions"]
        assert number >= 3


# --- the webhook


_BODIES = 50
_BODY = 8 * 2**20
_ROOM = 64 * 2**20
"""What the webhook may need beyond what it has when nobody is there."""


def _flood(port: int, stop: threading.Event) -> None:
    """Many large bodies at once, in TLS, with nothing to show for it: some announced as they are, some as smaller."""
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    piece = b'{"a":[[],[],[],{"b":1}],"c":' + b"[{}," * 8192

    def one(number: int) -> None:
        length = _BODY if number % 2 else 4 * 2**20
        head = f"POST /admit HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        while not stop.is_set():
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5) as sock:
                sock.settimeout(5)
                with tls.wrap_socket(sock) as wrapped:
                    wrapped.sendall(head.encode())
                    for _ in range(0, length, len(piece)):
                        if stop.is_set():
                            return
                        wrapped.sendall(piece)
                    wrapped.recv(4096)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(_BODIES)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


async def test_whoever_reaches_the_webhook_cannot_take_its_memory_nor_keep_api_servers_out(
    installation: Installation,
) -> None:
    tenant, queue = await installation.tenant("admitted"), await installation.queue("admitted")
    async with a_webhook(installation) as webhook:
        before = webhook.peak_memory
        with attack(_flood, webhook.webhook_port):
            end, answers = time.monotonic() + _SECONDS, 0
            while time.monotonic() < end:
                job = await tenant.client.create(JOBS, a_job("x", queue), tenant.namespace, dry_run=True)
                assert job["spec"]["managedBy"] == MANAGED_BY
                answers += 1
        assert webhook.alive
        assert webhook.peak_memory - before < _ROOM
        assert answers >= 3
        assert await webhook.metric("multimirror_admission_reviews_total") >= answers
        assert await webhook.metric("multimirror_admission_hung_up_total") > 0


async def test_a_job_that_is_too_large_is_refused_in_words(installation: Installation) -> None:
    tenant, queue = await installation.tenant("fat"), await installation.queue("fat")
    async with a_webhook(installation):
        job = a_job("fat", queue)
        job["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "DATA", "value": "x" * 500_000}]
        with pytest.raises(Forbidden, match="more than the 256 KiB that may be placed; keep data in a ConfigMap"):
            await tenant.create(job)
