"""What passes between the wire and the API: requests, responses, and streams that go on (watches, followed logs)."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol
from urllib.parse import parse_qsl, unquote

import orjson

JSON = "application/json"


class Request:
    """One request, read completely."""

    __slots__ = ("body", "headers", "method", "path", "query", "user")

    def __init__(
        self, method: str, path: str, query: dict[str, str], headers: Mapping[str, str], body: bytes = b""
    ) -> None:
        self.method, self.path, self.query, self.headers, self.body = method, path, query, headers, body
        self.user: Any = None

    @classmethod
    def parse(cls, method: str, target: str, headers: Mapping[str, str], body: bytes) -> "Request":
        """From the request line's target."""
        path, _, raw = target.partition("?")
        if "%" in path:
            path = unquote(path)
        query = dict(parse_qsl(raw, keep_blank_values=True)) if raw else {}
        return cls(method, path, query, headers, body)

    def flag(self, name: str) -> bool:
        """Whether a boolean parameter is set: `watch=true`, `watch=1`, `watch`."""
        return self.query.get(name, "false") not in {"false", "0", "False", "f", "F"}


class Response:
    """A whole answer."""

    __slots__ = ("body", "content_type", "headers", "status")

    def __init__(
        self, status: int, body: bytes, content_type: str = JSON, headers: tuple[tuple[str, str], ...] = ()
    ) -> None:
        self.status, self.body, self.content_type, self.headers = status, body, content_type, headers

    @classmethod
    def json(cls, status: int, body: Any, headers: tuple[tuple[str, str], ...] = ()) -> "Response":
        """An object as the answer."""
        return cls(status, orjson.dumps(body), JSON, headers)

    def decode(self) -> Any:
        """The body's JSON."""
        return orjson.loads(self.body)


class Sink(Protocol):
    """Where a stream goes. Chunks that were written arrive in order or the connection is lost."""

    def send(self, chunk: bytes) -> None:
        """Send one chunk."""

    def finish(self) -> None:
        """End the response; the connection can be used again."""

    @property
    def ready(self) -> bool:
        """False while the client reads more slowly than we write: hold back until `resume`."""


class Stream:
    """An answer that goes on. `start` is called once, then `resume` when a slow client caught up, `stop` at the end."""

    status = 200
    content_type = JSON
    headers: tuple[tuple[str, str], ...] = ()

    def start(self, sink: Sink) -> None:
        """Begin to send."""
        raise NotImplementedError

    def resume(self) -> None:
        """The client can take more."""

    def stop(self) -> None:
        """The client went away, or the response is over: let go of everything."""


Answer = Response | Stream
Handler = Callable[[Request], Answer | Awaitable[Answer]]
