"""The client of one cluster: raw JSON in and out, typed errors, limits and deadlines on everything.

Guarantees:
- every call ends within its deadline, with an answer or one ApiError that names the cluster; a list with all its pages
  has one deadline;
- no answer is read that is larger than what was asked for can honestly be (see budget.py): OverBudget;
- a request is repeated here only when that is safe: reads after any passing fault, writes only when the server
  certainly did not act (429, or nothing was sent). Any other failed write says `outcome_unknown`, and the caller
  looks before it repeats. A question that is asked by POST (an access review) leaves nothing behind: it is a read;
- objects pass through as the server sent them: no models, no field lost.

Not here: caching (informer.py), and retries of work, which belong to the queue.
"""

import asyncio
import copy
import http
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, nullcontext
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Literal, Self
from urllib.parse import urlencode, urlsplit

import orjson
from prometheus_client import Counter, Histogram

from . import metrics
from .budget import ERROR_BYTES, TRUSTED, AnswerLimits, Budget, values_in
from .connection import Connection
from .errors import (
    ApiError,
    BadAnswer,
    ConfigError,
    Gone,
    OverBudget,
    TimedOut,
    Unauthorized,
    Unreachable,
    error_from_answer,
)
from .http1 import Http1Transport
from .limits import Limits
from .resource import Object, Resource
from .retries import READS, again
from .transport import Response, Stream, TooLarge, Transport, TransportError
from .watch import Params, Trim, WatchEvent, decode, is_object, watch_params
from .write_guard import WriteGuard

PatchType = Literal["merge", "json", "strategic", "apply"]
Propagation = Literal["Background", "Foreground", "Orphan"]

_PATCH_TYPES: Final = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",  # JSON is YAML
}
_WATCH_GRACE: Final = 10.0  # how much longer than its own timeout a server may keep a watch open
_CODES: Final = frozenset(int(code) for code in http.HTTPStatus)
_EMPTY_PAGES: Final = 16  # in a row, before the end of a list
_LISTS_ANEW: Final = 2  # how often a list starts again because the token for its next page has expired


@dataclass(frozen=True, slots=True)
class ObjectList:
    """All items of a list, and the moment at which it was true."""

    items: list[Object]
    resource_version: str


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list."""

    items: list[Object]
    resource_version: str
    first: bool
    """What came before, if anything, is not part of this list."""


class _PageTooLarge(OverBudget):
    """Perhaps only because of the number of objects on it."""


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    path: str
    target: str  # path and query
    body: bytes | None
    headers: Mapping[str, str]
    seconds: float
    ends: float
    limit: int
    paged: bool = False
    question: bool = False

    @property
    def reads(self) -> bool:
        return self.question or self.method in READS


class Client:
    """Talks to one cluster. Use as `async with Client(connection) as client:`."""

    def __init__(
        self,
        connection: Connection,
        *,
        concurrency: int = 16,
        qps: float | None = None,
        burst: int | None = None,
        timeout: float = 30.0,
        user_agent: str = "multimirror",
        limits: AnswerLimits = TRUSTED,
        budget: Budget | None = None,
    ) -> None:
        """`limits`: how large answers may be. `budget`: what this server may send over time, and who is told when it
        goes too far; without one there is no such limit."""
        self.connection = connection
        self.cluster = connection.name
        self.timeout = timeout
        self.limits = limits
        self.budget = budget
        self._limits = Limits(concurrency, qps, burst)
        self._transport: Transport | None = None
        self._closed = False
        self._headers = {"Accept": "application/json", "User-Agent": user_agent, **connection.headers}
        self._host = urlsplit(connection.server).netloc
        self._guard: WriteGuard | None = None
        self._counters: dict[tuple[str, int], Counter] = {}
        self._timers: dict[str, Histogram] = {}

    async def __aenter__(self) -> Self:
        self._transport = Http1Transport(self.connection)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._transport is not None:
            await self._transport.close()
            self._transport, self._closed = None, True

    def guarded(self, guard: WriteGuard) -> Self:
        """The same client, opened already, that asks `guard` right before each write; what it raises stops the write.

        For leaders: `client.guarded(elector.guard)`.
        """
        view = copy.copy(self)
        view._guard = guard
        return view

    def metered(self, budget: Budget) -> Self:
        """The same client, opened already, whose answers are paid for by another budget."""
        view = copy.copy(self)
        view.budget = budget
        return view

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> Object:
        return await self._object("GET", resource.path(namespace, name))

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        limit: int | None = None,
        resource_version: str | None = None,
        timeout: float | None = None,
    ) -> ObjectList:
        """All objects of a kind, in pages of `limit`; a page token that expired means one list without pages."""
        items: list[Object] = []
        version = ""
        pages = self.pages(
            resource,
            namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            limit=limit,
            resource_version=resource_version,
            timeout=timeout,
        )
        async with aclosing(pages):
            async for page in pages:
                if page.first:
                    items.clear()
                items += page.items
                version = page.resource_version
        return ObjectList(items, version)

    async def pages(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        limit: int | None = None,
        resource_version: str | None = None,
        timeout: float | None = None,
        most_bytes: int | None = None,
    ) -> AsyncGenerator[Page, None]:
        """A list page by page, within one deadline. One that begins anew (its token expired) says `first` again.

        A page that is too large (`most_bytes`, and where answers are limited) is asked for again with half as many
        objects.
        """
        most_bytes = min(most_bytes or self.limits.page, self.limits.page)
        seconds = self.timeout if timeout is None else timeout
        ends = asyncio.get_running_loop().time() + max(seconds, self.limits.list_seconds)
        limit = limit if limit is not None else self.limits.page_items
        params: dict[str, str | int | bool | None] = {
            "labelSelector": label_selector,
            "fieldSelector": field_selector,
            "limit": limit,
            "resourceVersion": resource_version,
        }
        path = resource.path(namespace)
        first, empty, anew = True, 0, 0
        while True:
            try:
                page = await self._page(path, params, seconds, ends, most_bytes)
            except Gone:
                anew += 1
                if not params.get("continue") or anew > _LISTS_ANEW:
                    raise
                params.update({"continue": None, "limit": self.limits.page_items})
                most_bytes = self.limits.page
                first, empty = True, 0
                continue
            metadata, found = page.get("metadata"), page.get("items") or []
            if not isinstance(metadata, dict) or not isinstance(found, list) or not all(map(is_object, found)):
                raise self._no_list(path)
            for item in found:  # the items of a list do not say what they are
                item.setdefault("apiVersion", resource.api_version)
                item.setdefault("kind", resource.kind)
            yield Page(found, str(metadata.get("resourceVersion", "")), first)
            first, empty = False, 0 if found else empty + 1
            following = metadata.get("continue")
            if not following:
                return
            if not isinstance(following, str) or empty > _EMPTY_PAGES:
                raise self._no_list(path)
            params.update({"continue": following, "resourceVersion": None})  # only the first page may name one

    async def _page(
        self, path: str, params: dict[str, str | int | bool | None], seconds: float, ends: float, most: int
    ) -> Object:
        """One page; of fewer objects, from here on, while it is too large."""
        while True:
            left = min(seconds, max(0.0, ends - asyncio.get_running_loop().time()))
            request = self._request("GET", path, params, None, {}, left, most, paged=True)
            try:
                return self._parsed(request, await self._send(request))
            except _PageTooLarge as error:
                limit = params["limit"]
                if not isinstance(limit, int) or limit <= 1:
                    raise self._over_budget(error.message) from error
                params["limit"] = limit // 2

    def _no_list(self, path: str) -> BadAnswer:
        return BadAnswer(f"{self.connection.server}{path} answered something that is no list", cluster=self.cluster)

    async def create(
        self,
        resource: Resource,
        obj: Object,
        namespace: str | None = None,
        *,
        dry_run: bool = False,
        field_manager: str | None = None,
    ) -> Object:
        """Create an object in its own namespace, or in the one given. It need not say what it is."""
        obj = {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
        path = resource.path(_namespace(resource, obj, namespace, self.connection.namespace))
        return await self._object("POST", path, _write(dry_run, field_manager), orjson.dumps(obj))

    async def ask(self, resource: Resource, question: Object) -> Object:
        """Post what is answered and not stored, such as a review: it may be repeated as a read may."""
        body = orjson.dumps({"apiVersion": resource.api_version, "kind": resource.kind, **question})
        return await self._object("POST", resource.path(), body=body, limit=self.limits.small, question=True)

    async def replace(
        self,
        resource: Resource,
        obj: Object,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
        dry_run: bool = False,
        field_manager: str | None = None,
    ) -> Object:
        """Replace an object. With metadata.resourceVersion in it, only if nobody wrote since (else Conflict)."""
        where = _namespace(resource, obj, namespace, self.connection.namespace)
        path = resource.path(where, obj["metadata"]["name"], subresource)
        return await self._object("PUT", path, _write(dry_run, field_manager), orjson.dumps(obj))

    async def patch(
        self,
        resource: Resource,
        name: str,
        body: object,
        namespace: str | None = None,
        *,
        patch_type: PatchType = "merge",
        subresource: str | None = None,
        field_manager: str | None = None,
        force: bool = False,
        dry_run: bool = False,
    ) -> Object:
        """Change an object. Server-side apply needs a `field_manager`; `force` takes fields over from others."""
        params = _write(dry_run, field_manager)
        if force:
            params["force"] = True
        path = resource.path(namespace, name, subresource)
        return await self._object("PATCH", path, params, orjson.dumps(body), content_type=_PATCH_TYPES[patch_type])

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        propagation: Propagation | None = None,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_period: int | None = None,
        dry_run: bool = False,
    ) -> Object:
        """Delete an object; with `uid` or `resource_version` only exactly that one (else Conflict).

        Gives the object when it still has to go through finalizers or a grace period, else a Status.
        """
        preconditions = {k: v for k, v in (("uid", uid), ("resourceVersion", resource_version)) if v is not None}
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if propagation is not None:
            options["propagationPolicy"] = propagation
        if preconditions:
            options["preconditions"] = preconditions
        if grace_period is not None:
            options["gracePeriodSeconds"] = grace_period
        if dry_run:
            options["dryRun"] = ["All"]
        return await self._object("DELETE", resource.path(namespace, name), body=orjson.dumps(options))

    async def watch(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        resource_version: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        timeout: float | None = None,
        bookmarks: bool = True,
    ) -> AsyncGenerator[WatchEvent, None]:
        """Changes from `resource_version` on, until the server ends the watch (`timeout` seconds, or its own idea).

        Bookmarks come as events of type BOOKMARK. A resource_version that is too old raises Gone. Wrap in
        `contextlib.aclosing` when you may leave the loop early.
        """
        params = watch_params(
            resource_version=resource_version,
            label_selector=label_selector,
            field_selector=field_selector,
            timeout=timeout,
            bookmarks=bookmarks,
        )
        silence = None if timeout is None else timeout + _WATCH_GRACE
        async with aclosing(self.watch_batches(resource.path(namespace), params, silence=lambda: silence)) as batches:
            async for batch in batches:
                for event in batch:
                    yield event

    async def watch_batches(
        self, path: str, params: Params, *, silence: Callable[[], float | None], trim: Trim | None = None
    ) -> AsyncGenerator[Sequence[WatchEvent], None]:
        """The events of a watch as they arrive, many at a time; first an empty batch, when the watch is open.

        `silence` says how many seconds without any byte are too many; they raise TimedOut.
        `trim` is applied to each object.
        """
        target = path + _query(params)
        headers = await self.request_headers(None)
        transport = self._open()
        opened, counted = asyncio.get_running_loop().time(), False
        try:
            async with asyncio.timeout(self.timeout) as deadline, transport.stream("GET", target, headers) as stream:
                self._count("GET", stream.status, opened, verb="WATCH")
                counted = True
                if stream.status != 200:
                    if stream.status == 401:
                        self.connection.credentials.rejected()
                    raise await self._refusal(stream, path)
                deadline.reschedule(None)  # the time that our user takes is not the server's
                yield ()
                deadline.reschedule(_after(silence()))
                events = decode(
                    self._metered(stream.chunks()),
                    self.cluster,
                    trim,
                    longest=self.limits.event,
                    most_values=self.limits.values,
                    refuse=self._over_budget,
                    values_came=self._values_came,
                )
                async for batch in events:
                    deadline.reschedule(None)
                    if self.budget is not None:
                        self.budget.spend(0, events=len(batch))
                    yield batch
                    deadline.reschedule(_after(silence()))
        except TooLarge as error:
            raise self._too_large(error, f"the refusal of a watch of {path}") from error
        except TransportError as error:
            if not counted:
                self._count("GET", 0, opened, verb="WATCH")
            raise Unreachable(str(error), cluster=self.cluster) from error
        except TimeoutError as error:
            if not counted:
                self._count("GET", 0, opened, verb="WATCH")
                raise TimedOut(f"no answer to a watch of {path} in {self.timeout:g} s", cluster=self.cluster) from error
            raise TimedOut(f"the watch of {path} went silent for {silence():g} s", cluster=self.cluster) from error

    async def stream(self, path: str, params: Params | None = None) -> AsyncGenerator[bytes, None]:
        """The body of an answer as it comes, for as long as it comes: a log that is followed. Wrap in `aclosing`."""
        headers = await self.request_headers({"Accept": "*/*"})
        started = asyncio.get_running_loop().time()
        try:
            async with (
                asyncio.timeout(self.timeout) as deadline,
                self._open().stream("GET", path + _query(params or {}), headers) as stream,
            ):
                self._count("GET", stream.status, started)
                if not 200 <= stream.status < 300:
                    raise await self._refusal(stream, path)
                deadline.reschedule(None)
                async for chunk in stream.chunks():
                    yield chunk
        except TooLarge as error:
            raise self._too_large(error, f"the refusal of GET {path}") from error
        except TransportError as error:
            raise Unreachable(str(error), cluster=self.cluster) from error
        except TimeoutError as error:
            raise TimedOut(f"no answer to GET {path} in {self.timeout:g} s", cluster=self.cluster) from error

    async def _metered(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for chunk in chunks:
            if self.budget is not None:
                self.budget.spend(len(chunk))
            yield chunk

    def _values_came(self, values: int) -> None:
        if self.budget is not None:
            self.budget.spend(0, values=values)

    async def _refusal(self, stream: Stream, path: str) -> ApiError:
        return error_from_answer(
            stream.status,
            await stream.read(ERROR_BYTES),
            cluster=self.cluster,
            url=self.connection.server + path,
            write=False,
            retry_after=stream.headers.get("retry-after"),
        )

    async def request(
        self,
        method: str,
        path: str,
        params: Params | None = None,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        *,
        timeout: float | None = None,
        limit: int | None = None,
    ) -> Response:
        """Anything else. `body` is bytes or what orjson can write; an answer that is no success raises its error.

        `limit`: how many bytes the answer may have; without it, as many as the client's small ones.
        """
        data = body if isinstance(body, bytes) or body is None else orjson.dumps(body)
        limit = self.limits.small if limit is None else limit
        return await self._send(self._request(method, path, params, data, headers or {}, timeout, limit))

    async def _object(
        self,
        method: str,
        path: str,
        params: Params | None = None,
        body: bytes | None = None,
        *,
        content_type: str = "application/json",
        limit: int | None = None,
        question: bool = False,
    ) -> Object:
        headers = {"Content-Type": content_type} if body is not None else {}
        limit = self.limits.object if limit is None else limit
        request = self._request(method, path, params, body, headers, None, limit, question=question)
        return self._parsed(request, await self._send(request))

    def _parsed(self, request: _Request, response: Response) -> Object:
        most = self.limits.values
        if most is not None and values_in(response.body) > most:
            message = f"its answer to {request.method} {request.path} has more than {most} values"
            if request.paged:
                raise _PageTooLarge(message, cluster=self.cluster)
            raise self._over_budget(message, outcome_unknown=not request.reads)
        answer: object = None
        cause: Exception | None = None
        try:
            answer = orjson.loads(response.body)
        except orjson.JSONDecodeError as error:
            cause = error
        if not isinstance(answer, dict):
            kind = response.headers.get("content-type", "something")
            raise BadAnswer(
                f"{self.connection.server}{request.path} answered {kind} instead of JSON; is that an API server?",
                cluster=self.cluster,
                status=response.status,
                outcome_unknown=not request.reads,
            ) from cause
        return answer

    def _request(  # noqa: PLR0917 - private, and called in two places
        self,
        method: str,
        path: str,
        params: Params | None,
        body: bytes | None,
        headers: Mapping[str, str],
        timeout: float | None,
        limit: int,
        *,
        paged: bool = False,
        question: bool = False,
    ) -> _Request:
        seconds = self.timeout if timeout is None else timeout
        target = path + _query(params) if params else path
        ends = asyncio.get_running_loop().time() + seconds
        return _Request(method, path, target, body, headers, seconds, ends, limit, paged, question)

    async def _send(self, request: _Request) -> Response:
        """One request, repeated while that is safe and there is time."""
        try:
            return await self._attempt(request)
        except ApiError as error:
            failure = error
        return await again(
            lambda: self._attempt(request),
            failure,
            reads=request.reads,
            ends=request.ends,
            renew=self.connection.credentials.rejected,
        )

    async def _attempt(self, request: _Request) -> Response:
        write = not request.reads
        transport = self._open()
        headers = await self.request_headers(request.headers)
        loop = asyncio.get_running_loop()
        started: float | None = None
        try:
            with self._guard.sending() if write and self._guard is not None else nullcontext() as sending:
                async with asyncio.timeout_at(request.ends), self._limits.slot():
                    started = loop.time()
                    check = sending.leave if sending is not None else None
                    response = await transport.request(
                        request.method, request.target, headers, request.body, limit=request.limit, check=check
                    )
        except TooLarge as error:
            self._count(request.method, 0, started)
            what = f"{request.method} {request.path}"
            if request.paged:
                raise _PageTooLarge(_larger(error, what), cluster=self.cluster) from error
            raise self._too_large(error, what, write=write) from error
        except TransportError as error:
            self._count(request.method, 0, started)
            unsafe = write and error.sent
            raise Unreachable(str(error), cluster=self.cluster, outcome_unknown=unsafe) from error
        except TimeoutError as error:
            self._count(request.method, 0, started)
            sent = started is not None
            where = "" if sent else " (it waited for our own limits all the time and was not sent)"
            message = f"no answer to {request.method} {request.path} in {request.seconds:g} s{where}"
            raise TimedOut(message, cluster=self.cluster, outcome_unknown=write and sent) from error
        self._count(request.method, response.status, started)
        self._account(request, response)
        if 200 <= response.status < 300:
            return response
        raise error_from_answer(
            response.status,
            response.body,
            cluster=self.cluster,
            url=self.connection.server + request.path,
            write=write,
            retry_after=response.headers.get("retry-after"),
        )

    def _account(self, request: _Request, response: Response) -> None:
        if self.budget is None:
            return
        try:
            self.budget.spend(len(response.body))
        except OverBudget:
            if request.reads:
                raise
            # Its owner has been told; but the write was answered, and its caller is to know how.
        if request.method not in READS and 200 <= response.status < 300:
            body = request.body or b""
            self.budget.earn(len(body), values=values_in(body))

    def _too_large(self, error: TooLarge, what: str, *, write: bool = False) -> OverBudget:
        return self._over_budget(_larger(error, what), outcome_unknown=write)

    def _over_budget(self, message: str, *, outcome_unknown: bool = False) -> OverBudget:
        if self.budget is not None:
            return self.budget.breach(message, outcome_unknown=outcome_unknown)
        return OverBudget(message, cluster=self.cluster, outcome_unknown=outcome_unknown)

    async def request_headers(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """Those of the next request, credentials included. Raises Unauthorized."""
        headers = {**self._headers, **extra} if extra else self._headers.copy()
        try:
            authorization = await self.connection.credentials.authorization()
        except ConfigError as error:
            raise Unauthorized(str(error), cluster=self.cluster) from error
        if authorization is not None:
            headers["Authorization"] = authorization
        return headers

    def _open(self) -> Transport:
        if self._transport is not None:
            return self._transport
        if self._closed:  # whoever still holds it comes too late, and tries again elsewhere
            raise Unreachable("the connection to it was given up", cluster=self.cluster)
        raise RuntimeError("use the client inside `async with Client(...) as client:`")

    def _count(self, method: str, status: int, started: float | None, verb: str | None = None) -> None:
        verb = verb or method
        counter = self._counters.get((verb, status))
        if counter is None:
            code = _code(status)
            counter = metrics.REQUESTS.labels(code, verb, self._host, self.cluster)
            self._counters[verb, status] = counter
        counter.inc()
        if started is not None:
            timer = self._timers.get(verb)
            if timer is None:
                timer = self._timers[verb] = metrics.REQUEST_SECONDS.labels(verb, self._host, self.cluster)
            timer.observe(asyncio.get_running_loop().time() - started)


def _larger(error: TooLarge, what: str) -> str:
    return f"its answer to {what} is larger than {error.limit} bytes"


def _code(status: int) -> str:
    """As a label; of what no server says in earnest there are hundreds."""
    if not status:
        return "<error>"
    return str(status) if status in _CODES else f"{status // 100}xx"


def _write(dry_run: bool, field_manager: str | None) -> dict[str, str | int | bool | None]:
    return {"dryRun": "All" if dry_run else None, "fieldManager": field_manager}


def _query(params: Params) -> str:
    given = {
        name: ("true" if value else "false") if isinstance(value, bool) else value
        for name, value in params.items()
        if value is not None
    }
    return f"?{urlencode(given)}" if given else ""


def _namespace(resource: Resource, obj: Object, given: str | None, default: str) -> str | None:
    return (given or obj["metadata"].get("namespace") or default) if resource.namespaced else None


def _after(seconds: float | None) -> float | None:
    return None if seconds is None else asyncio.get_running_loop().time() + seconds
