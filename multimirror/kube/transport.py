"""What the client needs of HTTP, and nothing of Kubernetes: the one door to whatever speaks it (http1.py).

A Transport sends one request on a pooled, kept-alive connection and gives either the whole answer or a stream of its
chunks. What can go wrong is told in one exception, with the one fact that matters to a writer: whether the request may
have reached the server. Deadlines are the caller's (`asyncio.timeout`); cancelling a call closes its connection.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Response:
    """An answer: status, headers (names in lower case) and the whole body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Stream(Protocol):
    """An answer whose body is still coming; the names of headers are in lower case."""

    status: int

    @property
    def headers(self) -> Mapping[str, str]:
        """What came before the body."""

    def chunks(self) -> AsyncIterator[bytes]:
        """The body, in pieces of whatever size the network gave."""

    async def read(self, limit: int) -> bytes:
        """The rest of the body at once. Raises TooLarge."""


class TransportError(Exception):
    """The request got no answer. `sent`: it may have reached the server."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class TooLarge(TransportError):  # noqa: N818 - reads better where it is caught
    """The answer is, or says that it will be, larger than it may be. It was not read any further."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"an answer of more than {limit} bytes", sent=True)
        self.limit = limit


class Transport(Protocol):
    """One cluster's connection pool."""

    async def request(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | None,
        *,
        limit: int,
        check: Callable[[], None] | None = None,
    ) -> Response:
        """Send, and read the whole answer, which may have `limit` bytes (else TooLarge).

        `check` is called when the connection is there, right before sending.
        """

    def stream(self, method: str, target: str, headers: Mapping[str, str]) -> AbstractAsyncContextManager[Stream]:
        """Send, and hand the answer over as soon as its headers are there."""

    async def close(self) -> None:
        """Close every connection."""
