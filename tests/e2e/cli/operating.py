"""A fleet under the hands of an operator: `multimirror run` in the background, every other command by its own words."""

import asyncio
import contextlib
import io
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO, TypeVar

import aiohttp
import orjson
import trustme
import yaml
from aiohttp import web

from clusters.background import BackgroundFleet
from clusters.kubeconfigs import write_kubeconfig
from clusters.local.ports import free_ports
from multimirror.admission import PATH
from multimirror.cli import main
from multimirror.cli.apply import apply_all
from multimirror.cli.dispatcher_lease import LEASE
from multimirror.cli.placement_policy import apply_placement_policy
from multimirror.kube import Client, Connection
from multimirror.kube.errors import NotFound
from multimirror.kube.resources import LEASES, MUTATING_WEBHOOKS
from tests.e2e.dispatching import SYSTEM, running_fleet
from tests.e2e.history import watched
from tests.waiting import DEADLINE

Json = dict[str, Any]
_Test = TypeVar("_Test", bound=Callable[..., object])
KINDS: dict[Callable[..., object], str] = {}
"""Tests that need one kind of fleet only; those of the other kind are not collected (conftest.py)."""


_DISPATCHER = "dispatcher-of-tests"
_METADATA = {"name": _DISPATCHER}
_VERBS = ["get", "list", "watch", "create", "update", "patch", "delete", "dispatch"]
_ROLE: Json = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": _METADATA,
    "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": _VERBS}],
}
_BINDING: Json = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": _METADATA,
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": _DISPATCHER},
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": _DISPATCHER}],
}


def embedded_only(test: _Test) -> _Test:
    """The same on every kind: real clusters would only cost time."""
    KINDS[test] = "embedded"
    return test


def real_only(test: _Test) -> _Test:
    """Embedded clusters store RBAC and do not enforce it, and nobody fills token Secrets in there."""
    KINDS[test] = "local"
    return test


@dataclass(frozen=True)
class Answer:
    """What a command said, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return orjson.loads(self.out)


@dataclass
class Operator:
    """Somebody at a terminal."""

    fleet: BackgroundFleet
    files: dict[str, Path] = field(default_factory=dict)
    process: "subprocess.Popen[bytes] | None" = None
    """`multimirror run`."""

    @property
    def management(self) -> str:
        return self.worker("management")

    def worker(self, name: str = "worker-1") -> str:
        if name not in self.files:
            self.files[name] = self.fleet.kubeconfig_file(name)
        return str(self.files[name])

    def says(self, command: str, *arguments: str) -> Answer:
        """`multimirror COMMAND ...` on the management cluster."""
        flag = "--management-kubeconfig" if command in {"join", "leave"} else "--kubeconfig"
        return says(command, *arguments, flag, self.management)

    def joined(self, name: str, worker: str = "worker-1", *arguments: str) -> Answer:
        named = {"--namespaces", "--all-namespaces"} & set(arguments)
        where = () if named else ("--all-namespaces",)
        answer = self.says("join", name, "--kubeconfig", self.worker(worker), *where, *arguments)
        assert answer.code == 0, answer
        return answer

    def start(self) -> None:
        """`multimirror run`, until its webhook is registered and somebody leads."""
        health, admission = free_ports(2)
        flags = {
            "--kubeconfig": str(self._as_dispatcher()),
            "--identity": f"dispatcher-{admission}",
            "--health-address": f"127.0.0.1:{health}",
            "--admission-address": f"127.0.0.1:{admission}",
            "--admission-url": f"https://127.0.0.1:{admission}{PATH}",
            "--log-level": "error",
        }
        command = [sys.executable, "-m", "multimirror.cli", "run", *(part for pair in flags.items() for part in pair)]
        registered = self.says(
            "install", "--component", "registration", "--admission-url", f"https://127.0.0.1:{admission}{PATH}"
        )
        assert registered.code == 0, registered.err
        self.process = subprocess.Popen(command)
        asyncio.run(_up(self, self.process, admission))

    def _as_dispatcher(self) -> Path:
        """The policies take no administrator for the dispatcher."""
        path = Path(self.management).with_name("dispatcher.kubeconfig")
        config = yaml.safe_load(Path(self.management).read_text())
        for user in config["users"]:
            user["user"]["as"] = _DISPATCHER
        return write_kubeconfig(path, config)

    def stop(self) -> None:
        """As its Deployment would."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait(DEADLINE)
            self.process = None

    def client(self, cluster: str = "management") -> Client:
        """For `async with`."""
        found = next(each for each in self.fleet.clusters() if each.name == cluster)
        return Client(Connection.from_kubeconfig(found.kubeconfig, name=cluster), user_agent="user")


def says(*arguments: str) -> Answer:
    """The command itself, in this process: its output, its errors, its exit code."""
    out, err = _OfThisThread(sys.stdout), _OfThisThread(sys.stderr)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(arguments)
    return Answer(int(code), out.getvalue(), err.getvalue())


class _OfThisThread(io.StringIO):
    """What this thread writes; what others do (the fleet's own log) goes where it went before."""

    def __init__(self, before: TextIO) -> None:
        super().__init__()
        self._before, self._thread = before, threading.get_ident()

    def write(self, text: str) -> int:
        return super().write(text) if threading.get_ident() == self._thread else self._before.write(text)


@contextlib.contextmanager
def operated(kind: str, workers: int = 2) -> Iterator[Operator]:
    """A fleet, and the dispatcher at work on it, admission included. All that became of Jobs is checked at the end."""
    with running_fleet(kind, workers) as fleet:
        operator, history = Operator(fleet), contextlib.AsyncExitStack()
        names = {name: cluster.kubeconfig for name, cluster in fleet.workers.items()}
        fleet.run(history.enter_async_context(watched(fleet.management.kubeconfig, names, "default")))
        fleet.run(_allow_placement_to_the_dispatcher_alone(operator))
        operator.start()
        try:
            yield operator
            fleet.run(history.aclose())
        finally:
            operator.stop()


async def _allow_placement_to_the_dispatcher_alone(operator: Operator) -> None:
    async with operator.client() as client:
        await apply_all(client, [_ROLE, _BINDING])
        await apply_placement_policy(client)


async def _up(operator: Operator, process: "subprocess.Popen[bytes]", port: int) -> None:
    async with asyncio.timeout(DEADLINE), operator.client() as client:
        while True:
            assert process.poll() is None
            with contextlib.suppress(NotFound):
                lease = await client.get(LEASES, LEASE, SYSTEM)
                configuration = await client.get(MUTATING_WEBHOOKS, "multimirror")
                urls = [each["clientConfig"].get("url", "") for each in configuration["webhooks"]]
                if lease["spec"].get("holderIdentity") == f"dispatcher-{port}" and all(
                    f":{port}/" in url for url in urls
                ):
                    return
            await asyncio.sleep(0.05)


def through(kubeconfig: str, address: str) -> Json:
    """The same cluster, behind another address."""
    config: Json = yaml.safe_load(Path(kubeconfig).read_text())
    config["clusters"][0]["cluster"]["server"] = address
    return config


@contextlib.contextmanager
def proxied(
    kubeconfig: str,
    *,
    version: str | None = None,
    date: str | None = None,
    token_ends: str | None = None,
    authority: trustme.CA | None = None,
) -> Iterator[str]:
    """A server that passes everything on as an administrator, but for its version, its clock and the ends of tokens.

    With an authority it is one of https, as kubeconfigs in Secrets have to name.
    """
    up: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event, str]] = Future()

    async def serve() -> None:
        connection = Connection.from_kubeconfig(Path(kubeconfig))
        authorization = await connection.credentials.authorization()
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=connection.tls or False)) as session:

            async def forward(request: web.Request) -> web.StreamResponse:
                own = {"Authorization": authorization} if authorization else {}
                headers = {k: v for k, v in request.headers.items() if k.lower() not in {"host", "authorization"}}
                url = connection.server + request.raw_path
                async with session.request(
                    request.method, url, data=await request.read() or None, headers=headers | own
                ) as answer:
                    body = await answer.read()
                    if request.path == "/version" and version is not None:
                        body = orjson.dumps({"gitVersion": version})
                    if request.path.endswith("/token") and token_ends is not None:
                        given = orjson.loads(body)
                        body = orjson.dumps({**given, "status": {**given["status"], "expirationTimestamp": token_ends}})
                    told = {"Content-Type": answer.headers.get("Content-Type", "application/json")}
                    return web.Response(
                        status=answer.status, body=body, headers=told | ({"Date": date} if date else {})
                    )

            app = web.Application()
            app.router.add_route("*", "/{path:.*}", forward)
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
            await runner.setup()
            tls = None
            if authority is not None:
                tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
                authority.issue_cert("127.0.0.1").configure_cert(tls)
            await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
            stop, scheme = asyncio.Event(), "http" if tls is None else "https"
            up.set_result((asyncio.get_running_loop(), stop, f"{scheme}://127.0.0.1:{runner.addresses[0][1]}"))
            await stop.wait()
            await runner.cleanup()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    loop, stop, address = up.result(30)
    try:
        yield address
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)
