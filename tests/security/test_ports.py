"""Pods that reach our ports, and have no credential at all: what they do there stays there."""

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from multimirror.cli.dispatcher_lease import LEASE
from multimirror.kube.resources import LEASES
from tests.security.installation import SYSTEM, Installation, a_job
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
