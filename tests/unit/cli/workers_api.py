"""A management cluster that knows one worker, and runs `exec` for real: the program it is asked for, as a process."""

import asyncio
import base64
import contextlib
import json
import socket
import ssl
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trustme
import yaml
from aiohttp import WSMsgType, web

from multimirror.api import WORKER_CLUSTERS
from multimirror.kube import Client, Connection
from multimirror.workers.tokens import JOINED_BY_ANNOTATION
from tests.unit.kube.servers import Server, running, status

INTERNAL = "east.internal"
"""A name that only the pod of the dispatcher knows; there it is this machine."""
_IN_THE_POD = f"""
import socket, sys
real = socket.getaddrinfo
socket.getaddrinfo = lambda host, *a, **k: real("127.0.0.1" if host == "{INTERNAL}" else host, *a, **k)
from multimirror.cli import main
sys.exit(main(sys.argv[1:]))
"""
KUBE_SYSTEM = {"metadata": {"name": "kube-system", "uid": "the-worker"}}
Json = dict[str, Any]


def authority() -> trustme.CA:
    return trustme.CA(key_type=trustme.KeyType.ECDSA)


def serving(ca: trustme.CA, *names: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert(*names).configure_cert(context)
    return context


@contextlib.asynccontextmanager
async def api_server(ca: trustme.CA) -> AsyncIterator[Server]:
    """One that says which cluster it is, to whoever asks."""
    async with running(serving(ca, "127.0.0.1", INTERNAL)) as server:
        server.then_answer(200, KUBE_SYSTEM)
        yield server


@contextlib.contextmanager
def blackhole() -> Any:
    """An address at which nobody ever answers: its queue is full, and further connections are not even refused."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(3):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                filler.connect(listener.getsockname())
        yield f"https://127.0.0.1:{listener.getsockname()[1]}"


def a_closed_port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"https://127.0.0.1:{free.getsockname()[1]}"


@dataclass
class Management:
    """What it has, what was asked of it, and what it forbids."""

    directory: Path
    secret: Json = field(default_factory=dict)
    pods: list[Json] = field(default_factory=list)
    exec_refused: tuple[int, str] | None = None
    subprotocol: str = "v5.channel.k8s.io"
    executed: list[list[str]] = field(default_factory=list)
    ended: "asyncio.Queue[int | None]" = field(default_factory=asyncio.Queue)
    """The exit codes of programs that are done."""
    running: list[tuple[asyncio.subprocess.Process, "asyncio.Future[None]"]] = field(default_factory=list)
    server: str = ""
    objects: dict[str, Json] = field(default_factory=dict)
    """What else it has, by path."""
    dispatcher: str = ""
    """Where the dispatcher of its pod answers."""

    def stores(self, server: str, ca: trustme.CA | None, *, joined_by: str | None = None) -> None:
        """The credentials of worker east."""
        cluster = {"server": server}
        if ca is not None:
            cluster["certificate-authority-data"] = base64.b64encode(ca.cert_pem.bytes()).decode()
        config = {
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": {"token": "the-token"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "c",
        }
        annotations = {JOINED_BY_ANNOTATION: joined_by} if joined_by is not None else {}
        self.secret = {
            "metadata": {"name": "worker-east", "annotations": annotations},
            "data": {"kubeconfig": base64.b64encode(yaml.safe_dump(config).encode()).decode()},
        }

    def has_dispatcher(self) -> None:
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        self.pods = [
            {
                "metadata": {
                    "name": "old",
                    "uid": "1",
                    "resourceVersion": "1",
                    "namespace": "multimirror-system",
                    "deletionTimestamp": "2026-01-01T00:00:00Z",
                },
                "status": ready,
            },
            {
                "metadata": {"name": "starting", "uid": "2", "resourceVersion": "1", "namespace": "multimirror-system"},
                "status": {"phase": "Pending"},
            },
            {
                "metadata": {
                    "name": "dispatcher-1",
                    "uid": "3",
                    "resourceVersion": "1",
                    "namespace": "multimirror-system",
                },
                "status": ready,
            },
        ]

    @property
    def kubeconfig(self) -> Path:
        return self.directory / "management.kubeconfig"

    def client(self) -> Client:
        return Client(Connection.from_kubeconfig(self.kubeconfig, name="management"), timeout=20)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        system = "/api/v1/namespaces/multimirror-system"
        known = {
            WORKER_CLUSTERS.path(None, "east"): {
                "metadata": {"name": "east"},
                "spec": {"kubeconfig": {"secret": {"name": "worker-east"}}},
            },
            f"{system}/secrets/worker-east": self.secret,
            f"{system}/pods": {"metadata": {"resourceVersion": "1"}, "items": self.pods},
            **self.objects,
        }
        if path == f"{system}/pods/dispatcher-1/exec":
            if self.exec_refused is not None:
                code, message = self.exec_refused
                return web.json_response(status(code, "Forbidden", message), status=code)
            return await self._exec(request)
        found = known.get(path)
        if found is None:
            return web.json_response(status(404, "NotFound", f"no {path}", name="x"), status=404)
        return web.json_response(found)

    async def _exec(self, request: web.Request) -> web.WebSocketResponse:
        """As a kubelet does it, with the program on this machine."""
        channel = web.WebSocketResponse(protocols=[self.subprotocol])
        await channel.prepare(request)
        command = request.query.getall("command")
        self.executed.append([request.query["container"], *command])
        assert command[0] == "multimirror"
        of_the_pod = ["--address", self.dispatcher] if command[1] == "ask" else ["--kubeconfig", str(self.kubeconfig)]
        words = [sys.executable, "-c", _IN_THE_POD, *command[1:], *of_the_pod]
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe, stderr=pipe)
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None

        async def pump(stream: asyncio.StreamReader, number: int) -> None:
            while data := await stream.read(8192):
                if not channel.closed:
                    await channel.send_bytes(bytes([number]) + data)

        async def output(out: asyncio.StreamReader, err: asyncio.StreamReader) -> None:
            with contextlib.suppress(ConnectionError):
                await asyncio.gather(pump(out, 1), pump(err, 2))
            code = await process.wait()
            self.ended.put_nowait(code)
            told = {"status": "Success"} if code == 0 else status(500, "NonZeroExitCode", f"exit code {code}")
            if not channel.closed:
                await channel.send_bytes(b"\x03" + json.dumps(told).encode())
                await channel.close()

        self.running.append((process, asyncio.ensure_future(output(process.stdout, process.stderr))))
        try:
            async for message in channel:
                assert message.type is WSMsgType.BINARY
                assert message.data[0] == 0
                process.stdin.write(message.data[1:])
                await process.stdin.drain()
        finally:
            process.stdin.close()
        return channel

    def cut_off(self) -> None:
        """The programs that run are killed, and with them the connections to them."""
        for process, _ in self.running:
            if process.returncode is None:
                process.kill()

    async def close(self) -> None:
        """Nothing runs on."""
        for process, copying in self.running:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(30):
                    await process.wait()
            if process.returncode is None:
                process.kill()
            await asyncio.gather(copying, return_exceptions=True)


@contextlib.asynccontextmanager
async def management(directory: Path) -> AsyncIterator[Management]:
    here, ca = Management(directory), authority()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", here.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=5.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=serving(ca, "127.0.0.1")).start()
    here.server = f"https://127.0.0.1:{runner.addresses[0][1]}"
    config = {
        "clusters": [
            {
                "name": "c",
                "cluster": {
                    "server": here.server,
                    "certificate-authority-data": base64.b64encode(ca.cert_pem.bytes()).decode(),
                },
            }
        ],
        "users": [{"name": "u", "user": {"token": "operator"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }
    here.kubeconfig.write_text(yaml.safe_dump(config))
    try:
        yield here
    finally:
        await runner.cleanup()
        await here.close()
