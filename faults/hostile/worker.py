"""A worker that answers anything: it stands where its API server's proxy would, and an honest cluster behind it.

What it says about itself and about its Jobs is up to its tricks; where it has none in hand, the cluster answers. It
knows what a worker can know, and more: the uids of all clusters, all Jobs of the management cluster, and every label
that it has been sent. It never lets the dispatcher's requests count for faults: those strike elsewhere.

On real connections a stream waits for its reader. In the simulation nothing does, so it looks for itself whether the
other side still reads: otherwise it would be its own memory that is measured.
"""

import asyncio
import contextlib
import json
import random
from collections.abc import Iterable, Sequence
from typing import Any, Final, Self

from faults import wire
from faults.hostile import lies, tricks
from faults.hostile.tricks import MIB, Trick
from faults.injecting import Injector
from faults.proxy import Certificates, Proxy, ProxyConnection
from faults.record import MANAGEMENT, Exchange
from faults.wire import Call, Message

Json = dict[str, Any]
_PIECE: Final = b"x" * 65536
_PATIENCE: Final = 120.0
_HIGH_WATER: Final = 4 * MIB
_YEARS: Final = "315360000"
_DATES: Final = (
    "Thu, 01 Jan 1970 00:00:00 GMT",
    "Fri, 31 Dec 9999 23:59:59 GMT",
    "yesterday",
    "",
    "Mon, 99 Abc -5 77:88:99 XYZ",
    "Fri, 15 Jan 2027 09:00:00 +99999999",
)


class HostileWorker(Proxy):
    """The dispatcher's way to a worker that means harm."""

    def __init__(
        self,
        cluster: str,
        kubeconfig: Json,
        injector: Injector,
        certificates: Certificates,
        played: Sequence[Trick],
        *,
        seed: int,
        client: str = "dispatcher",
    ) -> None:
        super().__init__(client, cluster, kubeconfig, injector, certificates)
        self.chance = random.Random(f"{seed}/{cluster}")  # noqa: S311 - not a secret; its own, so that a run is repeated
        self.uids: list[str] = []
        """Of all other clusters."""
        self.known: dict[str, Json] = {}
        """The Jobs that it has spoken of, by name."""
        self.labels: list[dict[str, str]] = []
        """Those of the copies that it was sent."""
        self.left = tricks.VOLUME_LIMIT
        """Bytes that it may still pour out: a run has to come to an end."""
        self._tricks = played
        self._began, self._looked_at = 0.0, -1
        self._originals: list[Json] = []

    async def __aenter__(self) -> Self:
        self._began = asyncio.get_running_loop().time()
        await super().__aenter__()
        return self

    def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> ProxyConnection:
        """One that lies."""
        return _HostileConnection(self, self._injector, reader, writer)

    def playing(self, on: str, kinds: Iterable[str]) -> list[Trick]:
        """The tricks that are played on that question now."""
        now = asyncio.get_running_loop().time() - self._began
        return [
            trick
            for trick in self._tricks
            if trick.kind in kinds
            and trick.on in ("*", on)
            and trick.is_on(now)
            and self.chance.random() < trick.chance
            if self.left > 0 or trick.kind not in tricks.VOLUME
        ]

    def originals(self) -> list[Json]:
        """The Jobs of the management cluster, whoever they belong to."""
        seen = self._injector.record.seen
        if len(seen) != self._looked_at:
            self._looked_at = len(seen)
            self._originals = list(self._injector.record.last("Job", MANAGEMENT).values())
        return self._originals

    def a_forgery(self, size: int = 0) -> Json:
        """A copy that nobody made."""
        return lies.forged(self.chance, self.originals(), self.labels[-20:], size)

    def lied_about(self, job: Json) -> Json | None:
        """The Job as it is told at this moment."""
        told: Json | None = job
        for trick in self.playing("jobs", (*tricks.STATUSES, *tricks.OBJECTS)):
            if told is not None and isinstance(told.get("spec"), dict) and isinstance(told.get("metadata"), dict):
                told = lies.about_job(told, trick.kind, self.chance)
        return told


def question(call: Call) -> str:
    """What is asked, as tricks name it."""
    if call.path == "/version":
        return "version"
    if call.resource == "namespaces" and call.verb == "get":
        return "identity"
    if call.resource.endswith("reviews"):
        return "rights"
    if call.resource in ("namespaces", "nodes"):
        return call.resource
    if call.verb in ("list", "watch"):
        return call.verb
    return "write" if call.verb in wire.WRITES else "other"


class _HostileConnection(ProxyConnection):
    """One connection of the dispatcher."""

    def __init__(
        self, worker: HostileWorker, injector: Injector, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        super().__init__(worker, injector, reader, writer)
        self._worker = worker
        self._chance = worker.chance

    async def _one(self, request: Message, call: Call, exchange: Exchange) -> bool:
        if self._proxy.is_cut:
            return False
        worker, asked = self._worker, question(call)
        if call.verb == "create" and isinstance(exchange.body, dict):
            worker.labels.append((exchange.body.get("metadata") or {}).get("labels") or {})
        instead = worker.playing(asked, tricks.ANYTHING)
        if instead:
            exchange.fault = instead[0].kind
            return await self._instead(instead[0], asked, exchange)
        if asked == "write" and (answer := self._unwritten(call, exchange)) is not None:
            return await self._tell(exchange, answer)
        if call.verb == "watch":
            return await self._watch(request, call, exchange)
        answer = await self._pass_on(request, exchange)
        with contextlib.suppress(ValueError):
            answer.body = self._told(asked, answer.body, exchange)
        if worker.playing(asked, tricks.HEADERS):
            answer.headers["date"] = self._chance.choice(_DATES)
        return await self._tell(exchange, answer)

    # --- whole answers

    async def _instead(self, trick: Trick, asked: str, exchange: Exchange) -> bool:
        chance = self._chance
        match trick.kind:
            case "huge":
                await self._huge(trick.size, asked, exchange)
            case "endless":
                await self._pour([b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"])
                await self._pour(wire.chunk(_PIECE) for _ in range(trick.size // len(_PIECE)))
                await self._given_up()
            case "drip":
                await self._drip()
            case "silent":
                await self._given_up()
            case "truncated":
                await self._pour([b'HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n{"metadata":{"uid":"x"'])
            case "bad_http":
                await self._pour([chance.choice(lies.BAD_HTTP)])
                await asyncio.sleep(chance.choice([0.0, 1.0]))
            case "redirect":
                where = chance.choice(["https://127.0.0.1:1/", "//example.com/x", "/version", "file:///etc/passwd"])
                code = chance.choice([301, 302, 303, 307, 308])
                return await self._answer(exchange, b"", code, location=where)
            case "code":
                return await self._answer(exchange, _status_body(trick.status, chance), trick.status)
            case "retry_years":
                return await self._answer(exchange, _status_body(429, chance), 429, retry_after=_YEARS)
            case _:
                return await self._answer(exchange, self._body(trick.kind))
        return False

    def _body(self, kind: str) -> bytes:
        match kind:
            case "garbage":
                return lies.garbage(self._chance)
            case "html":
                return lies.HTML
            case "deep":
                return lies.deep(self._chance)
            case "wrong_kind":
                return self._chance.choice(lies.WRONG_KINDS)
        return b""

    async def _answer(self, exchange: Exchange, body: bytes, status: int = 200, **headers: str) -> bool:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self._tell(exchange, Message(f"HTTP/1.1 {status} Indeed", {**_JSON, **named}, body))

    async def _huge(self, size: int, asked: str, exchange: Exchange) -> None:
        """A body that would be right, were it not for its size: one long text, or many objects."""
        exchange.told = 200
        head, tail = b'{"gitVersion":"v1","metadata":{"uid":"x","name":"kube-system","resourceVersion":"7"},', b"}"
        shape = self._chance.random()
        if shape < 0.2:  # small things, which take much more in memory than here
            piece, head, tail = b"[{}]," * 12_000, head + b'"items":[', b"{}]" + tail
        elif asked == "list" and shape < 0.8:
            piece = b",".join(lies.encoded(self._worker.a_forgery(3000)) for _ in range(20)) + b","
            head, tail = head + b'"items":[', lies.encoded(self._worker.a_forgery()) + b"]" + tail
        else:
            piece, head, tail = _PIECE, head + b'"items":[],"message":"', b'"' + tail
        count = max(1, size // len(piece))
        length = len(head) + count * len(piece) + len(tail)
        start = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n".encode()
        await self._pour([start + head])
        await self._pour(piece for _ in range(count))
        await self._pour([tail])
        await self._given_up()

    async def _drip(self) -> None:
        pieces = [b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", *[wire.chunk(b" ")] * 100]
        for piece in pieces:
            await self._pour([piece])
            await asyncio.sleep(self._chance.uniform(0.5, 5.0))
            if self._reader.at_eof():
                return

    async def _given_up(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await self._left()

    async def _pour(self, pieces: Iterable[bytes]) -> None:
        """As fast as the other side takes it."""
        transport = self._writer.transport
        for piece in pieces:
            self._writer.write(piece)
            await self._writer.drain()
            self._worker.left -= len(piece)
            await asyncio.sleep(0.002)  # in the simulation: until it has arrived
            waited = 0
            while transport.get_write_buffer_size() > _HIGH_WATER and waited < _PATIENCE:
                await asyncio.sleep(1.0)
                waited += 1
            if transport.is_closing() or self._reader.at_eof() or self._proxy.is_cut:
                raise ConnectionResetError("nobody listens any more")

    # --- lies in answers

    def _told(self, asked: str, body: bytes, exchange: Exchange) -> bytes:
        worker, chance = self._worker, self._chance
        match asked:
            case "identity":
                for trick in worker.playing(asked, tricks.IDENTITY):
                    found = json.loads(body)
                    found["metadata"]["uid"] = self._uid(trick.kind)
                    body = lies.encoded(found)
            case "rights":
                for trick in worker.playing(asked, tricks.RIGHTS):
                    body = lies.encoded(lies.a_review(trick.kind, chance))
            case "nodes":
                if worker.playing(asked, tricks.NODES):
                    body = lies.encoded(lies.absurd_nodes(chance))
            case "list" if exchange.status == 200 and exchange.call.resource == "jobs":
                found = json.loads(body)
                told = [worker.lied_about(self._remembered(job)) for job in found.get("items") or ()]
                found["items"] = [job for job in told if job is not None]
                for _ in worker.playing("jobs", tricks.FORGERIES):
                    found["items"] += [worker.a_forgery() for _ in range(chance.randint(1, 4))]
                body = lies.encoded(found)
            case "write" if exchange.took_effect and exchange.call.resource.startswith("jobs"):
                body = self._written(json.loads(body))
        return body

    def _uid(self, kind: str) -> Any:
        match kind:
            case "uid_of_other":
                return self._chance.choice(self._worker.uids or ["other"])
            case "uid_changes":
                return f"{self._chance.getrandbits(64):x}"
        return self._chance.choice([None, 7, [], {}, "", "x" * 10_000, "a\nb"])

    def _remembered(self, job: Json) -> Json:
        self._worker.known[job["metadata"]["name"]] = job
        return job

    def _written(self, job: Json) -> bytes:
        worker = self._worker
        for trick in worker.playing("write", ("another_uid", "another_object")):
            if trick.kind == "another_object":
                return lies.encoded(worker.a_forgery())
            if "metadata" in job:
                job["metadata"]["uid"] = f"{self._chance.getrandbits(64):x}"
        return lies.encoded(job)

    def _unwritten(self, call: Call, exchange: Exchange) -> Message | None:
        """An answer to a write that is not carried out; None: it is."""
        kinds = ("kept",) if call.verb == "delete" else ()
        for trick in self._worker.playing("write", (*kinds, "forgotten", "taken")):
            exchange.fault = trick.kind
            if trick.kind == "taken":
                return Message("HTTP/1.1 409 Conflict", dict(_JSON), _status_body(409, self._chance, "AlreadyExists"))
            body: Json = {"kind": "Status", "apiVersion": "v1", "status": "Success"}
            if call.verb != "delete":
                made = exchange.body if isinstance(exchange.body, dict) else {}
                metadata = {"uid": f"{self._chance.getrandbits(64):x}", "resourceVersion": "77", "generation": 1}
                body = {**made, "metadata": {**(made.get("metadata") or {}), **metadata}}
            code = "201 Created" if call.verb == "create" else "200 OK"
            return Message(f"HTTP/1.1 {code}", dict(_JSON), lies.encoded(body))
        return None

    # --- watches

    async def _pump(self, reader: asyncio.StreamReader, call: Call) -> None:
        if call.resource != "jobs":
            await super()._pump(reader, call)
            return
        mischief = asyncio.get_running_loop().create_task(self._mischief(call), name="mischief")
        try:
            await super()._pump(reader, call)
        finally:
            mischief.cancel()
            await asyncio.gather(mischief, return_exceptions=True)

    async def _event(self, line: bytes, call: Call) -> bool:
        event = json.loads(line) if call.resource == "jobs" else {}
        job = event.get("object")
        if event.get("type") in (None, "BOOKMARK", "ERROR") or not isinstance(job, dict):
            return await super()._event(line, call)
        told = self._worker.lied_about(self._remembered(job))
        if told is not None:
            event = {"type": event["type"], "object": told}
            times = 2 if self._worker.playing("watch", ("twice",)) else 1
            for _ in range(times):
                if not await super()._event(lies.encoded(event) + b"\n", call):
                    return False
        return True

    async def _mischief(self, call: Call) -> None:
        """Events that nothing happened for."""
        worker, chance = self._worker, self._chance
        while True:
            await asyncio.sleep(chance.uniform(0.05, 3.0))
            for trick in worker.playing("watch", tricks.STREAMS):
                await self._stir(trick)
            known = list(worker.known.values())
            if known and worker.playing("jobs", tricks.STATUSES):
                told = worker.lied_about(chance.choice(known))
                if told is not None:
                    await self._say("MODIFIED", told)
            for _ in worker.playing("jobs", tricks.FORGERIES):
                await self._say(chance.choice(["ADDED", "MODIFIED", "DELETED"]), worker.a_forgery())

    async def _stir(self, trick: Trick) -> None:
        worker, chance = self._worker, self._chance
        known = chance.choice(list(worker.known.values())) if worker.known else worker.a_forgery()
        match trick.kind:
            case "backwards":
                older = {**known, "metadata": {**known["metadata"], "resourceVersion": str(chance.randint(0, 50))}}
                await self._say("MODIFIED", {**older, "status": {}})
            case "deleted":
                await self._say("DELETED", known)
                if chance.random() < 0.5:
                    await self._say("ADDED", known)
            case "unknown_types":
                await self._say(chance.choice(["CREATED", "added", "", "ERROR", "\u0000"]), known)
            case "bookmarks":
                mark = {"metadata": {"resourceVersion": str(chance.randint(0, 10**9))}, "kind": "Job"}
                for _ in range(chance.choice([1, 200])):
                    await self._say("BOOKMARK", mark)
            case "odd_lines":
                odd = [b"null", b"[]", b'{"type":"ADDED"}', b'{"type":"ADDED","object":null}', b"\xff\xfe", b"{" * 2000]
                await self._pour([wire.chunk(chance.choice(odd) + b"\n")])
            case "endless_line":
                await self._pour([wire.chunk(b'{"type":"ADDED","object":{"metadata":{"name":"')])
                await self._pour(wire.chunk(_PIECE) for _ in range(trick.size // len(_PIECE)))
                await self._pour([wire.chunk(b'"}}}\n')])
            case "flood":
                for _ in range(trick.size // 65536):
                    jobs = [{"type": "ADDED", "object": worker.a_forgery(3000)} for _ in range(16)]
                    await self._pour([wire.chunk(b"".join(lies.encoded(job) + b"\n" for job in jobs))])

    async def _say(self, kind: str, job: Json) -> None:
        await self._pour([wire.chunk(lies.encoded({"type": kind, "object": job}) + b"\n")])


_JSON: Final = {"content-type": "application/json"}


def _status_body(code: int, chance: random.Random, reason: str = "") -> bytes:
    status: Json = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": "\x1b[31mno\x1b[0m " * chance.choice([1, 2000]),
        "reason": reason or chance.choice(["Forbidden", "Expired", "Unknown", "AlreadyExists", "NotFound", ""]),
        "details": chance.choice([None, {"retryAfterSeconds": 10**9}, {"causes": [1, None]}, []]),
        "code": code,
    }
    return lies.encoded(status)
