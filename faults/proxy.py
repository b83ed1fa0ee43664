"""The way from one client to one API server, on which things go wrong as planned.

    async with Proxy("dispatcher", "worker-1", kubeconfig, injector) as proxy:
        proxy.kubeconfig        # for the client: the same cluster, through here

It ends TLS and speaks HTTP/1.1 to both sides, embedded or real, so it can stand before any client that reads a
kubeconfig. Requests are passed on whole, watches event by event. A request that was passed on is carried out whether or
not its client still waits, as a real server does. Every request is in the record, with what the server answered and
what the client was told.
"""

import asyncio
import base64
import contextlib
import json
import ssl
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self
from urllib.parse import urlencode, urlsplit

from faults import wire
from faults.injecting import Injector, LinkState
from faults.plan import SLOW_WRITE_SECONDS, Fault
from faults.record import Exchange
from faults.wire import BrokenError, Call, Message

Json = dict[str, Any]
_REASONS: Final = {
    401: "Unauthorized",
    410: "Expired",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}
_UPSTREAM_SECONDS: Final = 60.0
_LATER: Final[Mapping[str, Callable[[Fault, Call], float]]] = {
    "slow": lambda fault, _: fault.seconds / 10,
    "slow_writes": lambda _, call: SLOW_WRITE_SECONDS if call.stores else 0.0,
}
"""How much longer a request takes while its link is in that state."""
_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Certificates(Protocol):
    """What the proxy shows to its clients."""

    @property
    def authority(self) -> bytes:
        """The certificate (PEM) that clients are to trust."""

    def server_context(self) -> ssl.SSLContext:
        """With a certificate for 127.0.0.1 that the authority signed; HTTP/1.1 only."""


class Proxy:
    """One link. An async context manager."""

    def __init__(
        self, client: str, cluster: str, kubeconfig: Json, injector: Injector, certificates: Certificates
    ) -> None:
        self.client, self.cluster = client, cluster
        self.link = f"{client}/{cluster}"
        self._injector = injector
        self._certificates = certificates
        self._server: asyncio.AbstractServer | None = None
        self._writers: dict[asyncio.StreamWriter, None] = {}  # in order, so that a run can be repeated
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._cut = False
        self.port = 0
        self.retarget(kubeconfig)

    def retarget(self, kubeconfig: Json) -> None:
        """Another cluster is behind here from now on."""
        self._kubeconfig = kubeconfig
        found = kubeconfig["clusters"][0]["cluster"]
        where = urlsplit(found["server"])
        self._host, self._port = where.hostname, where.port
        self._tls = _upstream_context(kubeconfig) if where.scheme == "https" else None
        token = kubeconfig["users"][0]["user"].get("token")
        self._credentials = f"Bearer {token}" if token else None

    @property
    def kubeconfig(self) -> Json:
        """The cluster, through here. Whoever comes this way is let in with the credentials that the proxy has."""
        ca = base64.b64encode(self._certificates.authority).decode()
        server = {"server": f"https://127.0.0.1:{self.port}", "certificate-authority-data": ca}
        name = self.cluster
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": server}],
            "users": [{"name": name, "user": {"token": f"through-the-proxy-{self.client}"}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
        }

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(
            self._accept, "127.0.0.1", 0, ssl=self._certificates.server_context(), limit=wire.limit()
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.abort()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def abort(self) -> None:
        """Break every connection."""
        for writer in tuple(self._writers):
            writer.transport.abort()

    def cut(self) -> None:
        """The client is dead: nothing of it comes through any more."""
        self._cut = True
        self.abort()

    def mend(self) -> None:
        """A new one lives."""
        self._cut = False

    def state_changed(self) -> None:
        """The injector has changed the state of this link."""
        state = self._injector.states.get(self.link)
        if state is None or state.fault.kind == "partition":
            self.abort()  # also at the end of a silence: nobody goes on in the middle of a sentence

    # --- connections

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer), name=self.link)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> "ProxyConnection":
        """What is to speak with a client that has come."""
        return ProxyConnection(self, self._injector, reader, writer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers[writer] = None
        connection = self.connection(reader, writer)
        try:
            if not self._cut and not self._is("partition"):
                await connection.serve()
        except (ConnectionError, OSError, ssl.SSLError):
            pass
        finally:
            connection.close()
            self._writers.pop(writer)
            writer.transport.abort()

    def _is(self, kind: str) -> bool:
        state = self._injector.states.get(self.link)
        return state is not None and state.fault.kind == kind

    @property
    def is_cut(self) -> bool:
        """The client is dead."""
        return self._cut

    async def connect(self) -> _Streams:
        """To the API server."""
        async with asyncio.timeout(_UPSTREAM_SECONDS):
            return await asyncio.open_connection(
                self._host,
                self._port,
                ssl=self._tls,
                server_hostname=self._host if self._tls else None,
                limit=wire.limit(),
            )

    def authorize(self, request: Message) -> None:
        """Put the proxy's own credentials in the place of the client's."""
        request.headers.pop("authorization", None)
        request.headers["host"] = f"{self._host}:{self._port}"
        if self._credentials:
            request.headers["authorization"] = self._credentials


class ProxyConnection:
    """One connection of the client, and the one to the API server that goes with it."""

    def __init__(
        self, proxy: Proxy, injector: Injector, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._proxy, self._injector = proxy, injector
        self._reader, self._writer = reader, writer
        self._upstream: _Streams | None = None

    async def serve(self) -> None:
        """Requests, one after the other, until one of the two sides has had enough."""
        while (request := await wire.read_head(self._reader)) is not None:
            request.body = await wire.read_body(self._reader, request)
            call = wire.understand(request)
            exchange = self._note(call, request)
            if not await self._one(request, call, exchange):
                return

    def close(self) -> None:
        """Hang up on the server."""
        if self._upstream is not None:
            self._upstream[1].transport.abort()
            self._upstream = None

    def _note(self, call: Call, request: Message) -> Exchange:
        body = None
        if request.body:
            with contextlib.suppress(ValueError):
                body = json.loads(request.body)
        now = asyncio.get_running_loop().time()
        exchange = Exchange(now, self._proxy.client, self._proxy.cluster, call, body)
        self._injector.record.exchanges.append(exchange)
        return exchange

    async def _one(self, request: Message, call: Call, exchange: Exchange) -> bool:
        """Whether the connection can be used again."""
        link = self._proxy.link
        state = self._injector.states.get(link)
        if state is not None and state.fault.kind not in _LATER:
            exchange.fault = state.fault.kind
            return await self._in_state(state, exchange)
        if state is not None and (seconds := _LATER[state.fault.kind](state.fault, call)):
            exchange.fault = state.fault.kind
            await asyncio.sleep(seconds)
        fault = self._injector.on_request(link, call)
        if fault is not None:
            exchange.fault = fault.kind
            if not await self._before(fault, request, call, exchange):
                return exchange.told != 0
        if self._proxy.is_cut and (fault is None or fault.kind != "delay"):
            return False  # it died while this was on its way
        if call.verb == "watch":
            return await self._watch(request, call, exchange)
        answer = await self._pass_on(request, exchange)
        return await self._after(fault, answer, exchange)

    async def _in_state(self, state: LinkState, exchange: Exchange) -> bool:
        kind = state.fault.kind
        if kind == "partition":
            return False
        if kind == "blackhole":
            await state.over.wait()
            return False
        return await self._tell(exchange, _status(401 if kind == "unauthorized" else 429))

    async def _before(self, fault: Fault, request: Message, call: Call, exchange: Exchange) -> bool:
        """Whether the request is passed on."""
        match fault.kind:
            case "reset":
                return False
            case "hang":
                await self._left()
                return False
            case "error":
                await self._tell(exchange, _status(fault.status))
                return False
            case "gone":
                await self._tell(exchange, _status(410))
                return False
            case "crash":
                self._proxy.cut()
                await self._injector.ask(fault)
                return False
            case "delay":
                await asyncio.sleep(fault.seconds)
            case "replay":
                _go_back(request, call, fault)
        return True

    async def _pass_on(self, request: Message, exchange: Exchange) -> Message:
        self._proxy.authorize(request)
        if self._upstream is None:
            self._upstream = await self._proxy.connect()
        reader, writer = self._upstream
        exchange.reached = True
        writer.write(request.encode())
        answer = await wire.read_head(reader)
        if answer is None:
            raise BrokenError("the API server hung up")
        answer.body = await wire.read_body(reader, answer)
        exchange.status = answer.status
        if exchange.is_write:
            exchange.version = _version_of(answer.body)
        if answer.headers.get("connection", "").lower() == "close":
            self.close()
        return answer

    async def _after(self, fault: Fault | None, answer: Message, exchange: Exchange) -> bool:
        match fault.kind if fault is not None else "":
            case "lost":
                return False
            case "late":
                await self._left()
                return False
            case "wrong":
                assert fault is not None
                return await self._tell(exchange, _status(fault.status))
            case "crash_after":
                assert fault is not None
                self._proxy.cut()
                await self._injector.ask(fault)
                return False
        if self._injector.states.get(self._proxy.link) is not None and self._is_deaf():
            return False
        return await self._tell(exchange, answer)

    def _is_deaf(self) -> bool:
        state = self._injector.states.get(self._proxy.link)
        return state is not None and state.fault.kind in ("partition", "blackhole")

    async def _tell(self, exchange: Exchange, answer: Message) -> bool:
        if self._proxy.is_cut:
            return False
        exchange.told = answer.status
        exchange.answered = asyncio.get_running_loop().time()
        answer.headers.pop("connection", None)
        self._writer.write(answer.encode())
        await self._writer.drain()
        return True

    async def _left(self) -> None:
        """Until the client has had enough."""
        with contextlib.suppress(ConnectionError, OSError):
            await self._reader.read()

    # --- watches

    async def _watch(self, request: Message, call: Call, exchange: Exchange) -> bool:
        """Event by event, until either side ends it."""
        self._proxy.authorize(request)
        self.close()
        self._upstream = reader, writer = await self._proxy.connect()
        exchange.reached = True
        writer.write(request.encode())
        answer = await wire.read_head(reader)
        if answer is None:
            raise BrokenError("the API server hung up")
        exchange.status = answer.status
        if answer.status != 200:
            answer.body = await wire.read_body(reader, answer)
            return await self._tell(exchange, answer)
        exchange.told = 200
        exchange.answered = asyncio.get_running_loop().time()
        self._writer.write(answer.encode_head())
        async with asyncio.TaskGroup() as group:
            pump = group.create_task(self._pump(reader, call))
            left = group.create_task(self._left())
            await asyncio.wait([pump, left], return_when=asyncio.FIRST_COMPLETED)
            for task in (pump, left):
                task.cancel()
        return False

    async def _pump(self, reader: asyncio.StreamReader, call: Call) -> None:
        buffer = b""
        try:
            async for data in wire.chunks(reader):
                *lines, buffer = (buffer + data).split(b"\n")
                for line in lines:
                    if not await self._event(line + b"\n", call):
                        return
        except (BrokenError, ConnectionError, OSError):
            self._writer.transport.abort()
            return
        self._end()

    async def _event(self, line: bytes, call: Call) -> bool:
        """Whether the watch goes on."""
        link = self._proxy.link
        fault = self._injector.on_event(link, call) if b'"BOOKMARK"' not in line[:40] else None
        match fault.kind if fault is not None else "":
            case "end":
                self._end()
                return False
            case "cut":
                self._writer.transport.abort()
                return False
            case "expired_event":
                gone = {"type": "ERROR", "object": json.loads(_status(410).body)}
                self._writer.write(wire.chunk(json.dumps(gone).encode() + b"\n"))
                self._end()
                return False
            case "mute":
                await asyncio.Event().wait()
            case "late_events":
                assert fault is not None
                await asyncio.sleep(fault.seconds)
            case "twice":
                self._writer.write(wire.chunk(line))
        state = self._injector.states.get(link)
        if state is not None and state.fault.kind == "blackhole":
            await state.over.wait()
            return False
        if state is not None and state.fault.kind == "slow":
            await asyncio.sleep(state.fault.seconds / 10)
        self._writer.write(wire.chunk(line))
        await self._writer.drain()
        return True

    def _end(self) -> None:
        self._writer.write(b"0\r\n\r\n")
        self._writer.close()


def _status(code: int) -> Message:
    """As an API server in trouble would answer."""
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": f"a fault that was planned ({code})",
        "reason": _REASONS.get(code, "InternalError"),
        "code": code,
    }
    headers = {"content-type": "application/json"}
    if code == 429:
        headers["retry-after"] = "1"
    return Message(f"HTTP/1.1 {code} Planned", headers, json.dumps(body).encode())


def _go_back(request: Message, call: Call, fault: Fault) -> None:
    """Ask for a watch from an earlier moment than the client did."""
    version = call.query.get("resourceVersion", "")
    if version.isdigit() and int(version) > 1:
        query = {**call.query, "resourceVersion": str(max(1, int(version) - int(fault.seconds or 20)))}
        request.start = f"GET {call.path}?{urlencode(query)} HTTP/1.1"


def _version_of(body: bytes) -> str:
    with contextlib.suppress(ValueError):
        found: Mapping[str, Any] = json.loads(body)
        metadata = found.get("metadata")
        if isinstance(metadata, dict):
            return str(metadata.get("resourceVersion", ""))
    return ""


def _upstream_context(kubeconfig: Json) -> ssl.SSLContext:
    """What the kubeconfig says about the server's certificate, and the client's own."""
    cluster, user = kubeconfig["clusters"][0]["cluster"], kubeconfig["users"][0]["user"]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
    if "client-certificate-data" in user:
        with tempfile.TemporaryDirectory() as directory:  # the ssl module reads keys from files only
            pair = Path(directory, "pair.pem")
            pair.touch(mode=0o600)
            pair.write_bytes(
                base64.b64decode(user["client-certificate-data"]) + b"\n" + base64.b64decode(user["client-key-data"])
            )
            context.load_cert_chain(pair)
    return context
