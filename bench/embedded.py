"""The embedded API server: requests per second, what a fleet's start costs, memory, and the price of a data directory.

The server runs in a process of its own and so does each load generator, which sends prepared bytes over kept
connections. Besides the rate by the clock, which a busy machine lowers, the rate per second of the server's own CPU
time is told: what one core would do.
"""

import asyncio
import contextlib
import functools
import multiprocessing as mp
import resource
import ssl
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import orjson
import uvloop

from clusters import FleetOptions, open_fleet
from clusters.embedded import EmbeddedCluster

CONNECTIONS = 16
JOBS = "/apis/batch/v1/namespaces/default/jobs"
PODS = "/api/v1/namespaces/default/pods"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


def job(name: str) -> dict[str, Any]:
    """A Job of ordinary size."""
    container = {
        "name": "main",
        "image": "example.com/app:1",
        "command": ["run"],
        "resources": {"requests": {"cpu": "1"}},
    }
    spec = {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def pod(name: str, owner: str) -> dict[str, Any]:
    """A pod as the Job controller makes it."""
    labels = {"batch.kubernetes.io/job-name": owner, "job-name": owner, "controller-uid": "x"}
    metadata = {"name": name, "labels": labels, "finalizers": ["batch.kubernetes.io/job-tracking"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": job(name)["spec"]["template"]["spec"]}


def configmap(name: str) -> dict[str, Any]:
    """Something small."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"key": "value"}}


@dataclass(slots=True)
class Server:
    """A server in another process."""

    port: int
    token: str
    tls: bool
    control: Connection

    def usage(self) -> tuple[float, float]:
        """CPU seconds so far, and the peak of memory in MB."""
        self.control.send("usage")
        cpu, memory = self.control.recv()
        return cpu, memory


def _usage() -> tuple[float, float]:
    """CPU seconds, and the most memory that was ever resident: what is idle may have been moved out since."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 / 1e6


async def _serve(control: Connection, tls: bool, data_dir: Path | None) -> None:
    async with EmbeddedCluster("bench", tls=tls, data_dir=data_dir) as cluster:
        assert cluster.server is not None
        control.send((cluster.server.port, cluster.token))
        loop = asyncio.get_running_loop()
        asked: asyncio.Queue[str] = asyncio.Queue()
        loop.add_reader(control.fileno(), lambda: asked.put_nowait(control.recv()))
        while await asked.get() == "usage":
            control.send(_usage())
        loop.remove_reader(control.fileno())


def _server_main(control: Connection, tls: bool, data_dir: Path | None) -> None:
    uvloop.run(_serve(control, tls, data_dir))


@contextlib.contextmanager
def server(*, tls: bool = False, data_dir: Path | None = None) -> Iterator[Server]:
    """A server, up inside."""
    context = mp.get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=_server_main, args=(theirs, tls, data_dir))
    process.start()
    try:
        port, token = mine.recv()
        yield Server(port, token, tls, mine)
    finally:
        mine.send("stop")
        process.join(10)
        process.kill()


class Client(asyncio.Protocol):
    """One connection that sends a request as soon as the last one was answered."""

    def __init__(self, requests: Iterator[bytes], done: "asyncio.Future[None]") -> None:
        self._requests, self._done = requests, done
        self._buffer = b""
        self.answers = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = transport
        self._next()

    def data_received(self, data: bytes) -> None:
        """Wait for the whole answer, then send the next request."""
        self._buffer += data
        head, found, body = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        if len(body) < length:
            return
        assert head.startswith((b"HTTP/1.1 200", b"HTTP/1.1 201")), self._buffer[:500]
        self._buffer = b""
        self.answers += 1
        self._next()

    def _next(self) -> None:
        request = next(self._requests, None)
        if request is not None:
            self._transport.write(request)  # type: ignore[attr-defined]  # a transport that writes
        elif not self._done.done():
            self._done.set_result(None)


def encode(target: Server, method: str, path: str, body: Any = None, content: str = "application/json") -> bytes:
    """A request's bytes."""
    data = b"" if body is None else orjson.dumps(body)
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {target.token}\r\nUser-Agent: bench\r\n"
    return f"{head}Content-Type: {content}\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data


async def _load(port: int, tls: bool, requests: list[bytes]) -> float:
    loop = asyncio.get_running_loop()
    context = None
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    shared = iter(requests)
    waits = []
    start = time.perf_counter()
    for _ in range(min(CONNECTIONS, len(requests))):
        done: asyncio.Future[None] = loop.create_future()
        await loop.create_connection(functools.partial(Client, shared, done), "127.0.0.1", port, ssl=context)
        waits.append(done)
    await asyncio.gather(*waits)
    return time.perf_counter() - start


def _load_main(answer: Connection, port: int, tls: bool, requests: list[bytes]) -> None:
    answer.send(uvloop.run(_load(port, tls, requests)))


def load(target: Server, requests: list[bytes]) -> tuple[float, float]:
    """Send requests from another process: requests per second, and per second of the server's CPU."""
    context = mp.get_context("spawn")
    mine, theirs = context.Pipe()
    before, _ = target.usage()
    process = context.Process(target=_load_main, args=(theirs, target.port, target.tls, requests))
    process.start()
    seconds = mine.recv()
    process.join()
    after, _ = target.usage()
    return len(requests) / seconds, len(requests) / (after - before)


def measure(label: str, target: Server, requests: list[bytes]) -> None:
    """Send and tell."""
    rate, per_core = load(target, requests)
    print(f"{label:42} {rate:8.0f}/s by the clock {per_core:8.0f}/s of server CPU")


def requests_per_second(target: Server, count: int) -> None:
    """Small writes and reads."""
    names = [f"x-{index:05}" for index in range(count)]
    each: Callable[[str, Callable[[str], Any]], list[bytes]] = lambda path, make: [  # noqa: E731 # used four times, here
        encode(target, "POST", path, make(name)) for name in names
    ]
    measure("create ConfigMap", target, each(CONFIGMAPS, configmap))
    measure("create Job", target, each(JOBS, job))
    status = [
        encode(target, "PATCH", f"{JOBS}/{name}/status", {"status": {"active": 1}}, "application/merge-patch+json")
        for name in names
    ]
    measure("merge-patch Job status", target, status)
    suspend = [
        encode(target, "PATCH", f"{JOBS}/{name}", {"spec": {"suspend": True}}, "application/merge-patch+json")
        for name in names
    ]
    measure("merge-patch Job spec", target, suspend)
    measure("get Job", target, [encode(target, "GET", f"{JOBS}/{name}") for name in names] * 4)
    measure("list 500 Jobs", target, [encode(target, "GET", f"{JOBS}?limit=500")] * 200)
    background = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
    measure("delete Job", target, [encode(target, "DELETE", f"{JOBS}/{name}", background) for name in names])


def memory(count: int = 10_000) -> None:
    """What many Jobs and their pods weigh."""
    with server() as target:
        _, empty = target.usage()
        load(target, [encode(target, "POST", JOBS, job(f"job-{index:05}")) for index in range(count)])
        load(target, [encode(target, "POST", PODS, pod(f"pod-{i:05}", f"job-{i:05}")) for i in range(count)])
        _, full = target.usage()
        print(f"{count:,} Jobs and {count:,} pods: {full:.0f} MB at most (empty: {empty:.0f} MB)")


async def _fleet_start() -> float:
    start = time.perf_counter()
    async with open_fleet("embedded", FleetOptions(workers=3)):
        return time.perf_counter() - start


def main() -> None:
    """Print the figures."""
    print(f"fleet of 1 + 3 up in {uvloop.run(_fleet_start()):.2f} s")
    for tls in (False, True):
        print(f"-- {'TLS' if tls else 'plain HTTP'}, in memory, {CONNECTIONS} connections")
        with server(tls=tls) as target:
            requests_per_second(target, 2_000)
    print("-- plain HTTP, with a data directory")
    with tempfile.TemporaryDirectory() as folder, server(data_dir=Path(folder)) as target:
        requests_per_second(target, 2_000)
    memory()
