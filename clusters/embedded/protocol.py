"""HTTP/1.1 on a connection: bytes in, requests out to the handler, answers back in order.

Most answers are ready when the handler returns, so no task is made for them. A request whose answer must be awaited (an
admission webhook) holds back the requests pipelined behind it. A watch holds its connection until it ends. When a
client reads too slowly, its stream is told to wait, and nothing is buffered for it beyond the transport's own mark.
"""

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable
from http import HTTPStatus
from typing import Any, Final

import httptools

from clusters.embedded import errors
from clusters.embedded.http import Answer, Handler, Request, Response, Stream

log = logging.getLogger(__name__)

MAX_BODY: Final = 3 * 1024 * 1024  # the limit of a request to kube-apiserver
_STATUS_LINES: Final = {int(status): f"HTTP/1.1 {int(status)} {status.phrase}\r\n".encode() for status in HTTPStatus}
_COMMON: Final = b"Cache-Control: no-cache, private\r\nContent-Type: "


class Connection(asyncio.Protocol):
    """One client's connection."""

    def __init__(self, handler: Handler, connections: "dict[Connection, None]") -> None:
        self._handler, self._connections = handler, connections
        self._parser: Any = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[Request] = deque()
        self._task: asyncio.Task[None] | None = None
        self._stream: Stream | None = None
        self._keep_alive = True
        self._head = False
        """The answer to a HEAD has no body."""
        self.ready = True
        self._target = b""
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._size = 0

    # --- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client came."""
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self._transport = transport  # type: ignore[assignment]  # uvloop's transports are no subclass
        self._connections[self] = None

    def connection_lost(self, exc: Exception | None) -> None:
        """The client left."""
        self._connections.pop(self, None)
        self._transport = None
        if self._task:
            self._task.cancel()
        if self._stream:
            self._stream.stop()
            self._stream = None

    def data_received(self, data: bytes) -> None:
        """Feed the parser, which calls back below."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.close()
        except httptools.HttpParserError as error:
            self._respond(_status(errors.bad_request(f"not an HTTP request: {error}")))
            self.close()

    def eof_received(self) -> bool:
        """Half-closed clients are gone clients."""
        return False

    def pause_writing(self) -> None:
        """The transport's buffer is full."""
        self.ready = False

    def resume_writing(self) -> None:
        """The transport's buffer has drained."""
        self.ready = True
        if self._stream:
            self._stream.resume()

    # --- httptools' callbacks

    def on_message_begin(self) -> None:
        """A new request starts."""
        self._target, self._headers, self._body, self._size = b"", {}, [], 0

    def on_url(self, url: bytes) -> None:
        """The target, perhaps in parts."""
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """A client that waits for permission to send its body gets it."""
        if self._headers.get("expect", "").lower() == "100-continue" and self._transport:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        """Part of the body."""
        self._size += len(body)
        if self._size <= MAX_BODY:
            self._body.append(body)

    def on_message_complete(self) -> None:
        """A whole request."""
        self._keep_alive = self._parser.should_keep_alive()
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        method = self._parser.get_method().decode("latin-1")
        request = Request.parse(method, self._target.decode("latin-1"), self._headers, body)
        if self._size > MAX_BODY:
            self._respond(_status(errors.StatusError(413, "RequestEntityTooLarge", "limit is 3145728")))
        elif self._task or self._stream or self._waiting:
            self._waiting.append(request)
        else:
            self._serve(request)

    # --- requests and answers

    def _serve(self, request: Request) -> None:
        self._head = request.method == "HEAD"
        try:
            answer = self._handler(request)
            if inspect.isawaitable(answer):
                self._task = asyncio.ensure_future(self._await(answer))
                return
        except errors.StatusError as error:
            answer = _status(error)
        except Exception:
            log.exception("%s %s failed", request.method, request.path)
            answer = _status(errors.internal("the embedded API server failed; its log tells more"))
        self._answer(answer)

    async def _await(self, pending: Awaitable[Answer]) -> None:
        try:
            answer = await pending
        except errors.StatusError as error:
            answer = _status(error)
        except Exception:
            log.exception("a request failed")
            answer = _status(errors.internal("the embedded API server failed; its log tells more"))
        self._task = None
        self._answer(answer)
        self._next()

    def _next(self) -> None:
        while self._waiting and not self._task and not self._stream:
            self._serve(self._waiting.popleft())

    def _answer(self, answer: Answer) -> None:
        if isinstance(answer, Response):
            self._respond(answer)
        elif self._transport:
            self._stream = answer
            lines = [_STATUS_LINES[answer.status], _COMMON, answer.content_type.encode(), b"\r\n"]
            lines += [f"{name}: {value}\r\n".encode("latin-1") for name, value in answer.headers]
            lines.append(b"Transfer-Encoding: chunked\r\n\r\n")
            self._transport.write(b"".join(lines))
            answer.start(self)
        else:
            answer.stop()

    def _respond(self, response: Response) -> None:
        if not self._transport:
            return
        parts = [_STATUS_LINES[response.status], _COMMON, response.content_type.encode()]
        parts.append(b"\r\nContent-Length: %d\r\n" % len(response.body))
        parts += [f"{name}: {value}\r\n".encode("latin-1", "replace") for name, value in response.headers]
        if not self._keep_alive:
            parts.append(b"Connection: close\r\n")
        parts.append(b"\r\n")
        if not self._head:
            parts.append(response.body)
        self._transport.write(b"".join(parts))
        if not self._keep_alive:
            self.close()

    def send(self, chunk: bytes) -> None:
        """One chunk of a stream."""
        if self._transport:
            self._transport.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))

    def finish(self) -> None:
        """A stream's end."""
        stream, self._stream = self._stream, None
        if stream:
            stream.stop()
        if self._transport:
            self._transport.write(b"0\r\n\r\n")
            if not self._keep_alive:
                self.close()
        self._next()

    def close(self) -> None:
        """Hang up, after what was written has been sent."""
        if self._transport:
            self._transport.close()

    def abort(self) -> None:
        """Hang up at once."""
        if self._transport:
            self._transport.abort()


def _status(error: errors.StatusError) -> Response:
    headers = error.headers
    return Response.json(error.code, error.status, headers)
