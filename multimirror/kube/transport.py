"""HTTP, and nothing of Kubernetes: the one module that knows which HTTP client we use.

A Transport sends one request on a pooled, kept-alive connection and gives either the whole answer or a stream of its
chunks. What can go wrong is told in one exception, with the one fact that matters to a writer: whether the request
may have reached the server. Deadlines are the caller's (`asyncio.timeout`); cancelling a call closes its connection.
"""

import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Final, Protocol

import aiohttp
import yarl

from .connection import Connection

_KEEPALIVE_IDLE: Final = 15  # seconds until a quiet connection is probed,
_KEEPALIVE_PROBES: Final = 3  # how often, before it counts as dead,
_UNACKNOWLEDGED_MS: Final = 30_000  # and how long sent data may stay unacknowledged
_POOL_IDLE: Final = (
    30.0  # below what servers and load balancers allow, so that they do not close under a request of ours
)


@dataclass(frozen=True, slots=True)
class Response:
    """An answer: status, headers (look them up in lower case) and the whole body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Stream(Protocol):
    """An answer whose body is still coming."""

    status: int

    def chunks(self) -> AsyncIterator[bytes]:
        """The body, in pieces of whatever size the network gave."""

    async def read(self) -> bytes:
        """The rest of the body at once."""


class TransportError(Exception):
    """The request got no answer. `sent`: it may have reached the server."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class Transport(Protocol):
    """One cluster's connection pool."""

    async def request(self, method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> Response:
        """Send, and read the whole answer."""

    def stream(self, method: str, target: str, headers: Mapping[str, str]) -> AbstractAsyncContextManager[Stream]:
        """Send, and hand the answer over as soon as its headers are there."""

    async def close(self) -> None:
        """Close every connection."""


class _AiohttpStream:
    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.status = response.status
        self._response = response

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._response.content.iter_any():
                yield chunk
        except (aiohttp.ClientError, OSError) as error:
            raise TransportError(f"the connection broke in mid-stream ({_plain(error)})", sent=True) from error

    async def read(self) -> bytes:
        try:
            return await self._response.read()
        except (aiohttp.ClientError, OSError) as error:
            raise TransportError(f"the connection broke in mid-answer ({_plain(error)})", sent=True) from error


class AiohttpTransport:
    """On aiohttp. Has to be made inside a running event loop."""

    def __init__(self, connection: Connection) -> None:
        self._server = connection.server
        self._proxy = connection.proxy
        self._tls_server_name = connection.tls_server_name
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                ssl=connection.tls if connection.tls is not None else True,
                limit=0,  # the client has its own limit; watches do not count
                keepalive_timeout=_POOL_IDLE,
                socket_factory=_socket,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None),
            # Compression costs both sides more than a local network does.
            skip_auto_headers=("Accept-Encoding", "Content-Type", "User-Agent"),
            auto_decompress=False,
            read_bufsize=256 * 1024,
        )

    async def request(self, method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> Response:
        try:
            async with self._session.request(
                method,
                yarl.URL(self._server + target, encoded=True),
                headers=headers,
                data=body,
                allow_redirects=False,
                proxy=self._proxy,
                server_hostname=self._tls_server_name,
            ) as response:
                return Response(response.status, response.headers, await response.read())
        except (aiohttp.ClientError, OSError) as error:
            raise self._told(error) from error

    @asynccontextmanager
    async def stream(self, method: str, target: str, headers: Mapping[str, str]) -> AsyncIterator[Stream]:
        try:
            response = await self._session.request(
                method,
                yarl.URL(self._server + target, encoded=True),
                headers=headers,
                allow_redirects=False,
                proxy=self._proxy,
                server_hostname=self._tls_server_name,
            )
        except (aiohttp.ClientError, OSError) as error:
            raise self._told(error) from error
        try:
            yield _AiohttpStream(response)
        finally:
            _hang_up(response)

    async def close(self) -> None:
        await self._session.close()

    def _told(self, error: Exception) -> TransportError:
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, ssl.SSLCertVerificationError) and hasattr(cause, "verify_message"):
                return TransportError(
                    f"the certificate of {self._server} is not to be trusted: {cause.verify_message}", sent=False
                )
            cause = cause.__cause__ or cause.__context__
        if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ClientProxyConnectionError):
            return TransportError(f"no connection to {self._server} ({_plain(error.os_error)})", sent=False)
        if isinstance(error, aiohttp.ClientResponseError):
            return TransportError(f"{self._server} does not answer in HTTP ({error.message})", sent=True)
        return TransportError(f"the connection to {self._server} broke ({_plain(error)})", sent=True)


def _hang_up(response: aiohttp.ClientResponse) -> None:
    """End a stream, over or not. Without a goodbye: over TLS that waits for the other side's, past the loop's end."""
    connection = response.connection
    if connection is not None and connection.transport is not None:
        connection.transport.abort()
    response.close()


def _plain(error: BaseException) -> str:
    """An error in a few words."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def _socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """A socket that notices when the other side is gone."""
    family, kind, protocol, _, _ = address
    sock = socket.socket(family=family, type=kind, proto=protocol)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", _KEEPALIVE_IDLE),
        ("TCP_KEEPINTVL", _KEEPALIVE_IDLE),
        ("TCP_KEEPCNT", _KEEPALIVE_PROBES),
        ("TCP_USER_TIMEOUT", _UNACKNOWLEDGED_MS),
    ):
        if hasattr(socket, option):  # not every system has all of them
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return sock
