"""How a connection to an API server comes about: straight, by a proxy of its kubeconfig, or as somebody else says.

A Dialer makes one connection, TLS included, and says which address is to be spoken to over it: whoever knows several
ways to the same cluster chooses here, below HTTP, and all that stands on it works unchanged. The certificate is checked
before the first byte is sent; no way to a cluster is one without that.
"""

import asyncio
import base64
import os
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

P = TypeVar("P", bound=asyncio.BaseProtocol)

_LONGEST_PROXY_ANSWER: Final = 16 * 1024


@dataclass(frozen=True, slots=True)
class Dialed(Generic[P]):
    """A connection that is there, and the server that is at its other end."""

    transport: asyncio.Transport
    protocol: P
    server: str


class Dialer(Protocol):
    """Makes connections to one cluster."""

    async def __call__(self, factory: Callable[[], P]) -> Dialed[P]:
        """One connection. Raises OSError: NoWay where its text says it all."""


class NoWay(OSError):  # noqa: N818 - reads better where it is caught
    """There is no connection, and the text says what was tried and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Direct:
    """From this machine, or by the proxy that a person's own kubeconfig names."""

    server: str
    tls: ssl.SSLContext | None = None
    tls_server_name: str | None = None
    proxy: str | None = None

    async def __call__(self, factory: Callable[[], P]) -> Dialed[P]:
        host, port, secure = address_of(self.server)
        tls = self.tls if secure else None
        name = (self.tls_server_name or host) if tls is not None else None
        loop = asyncio.get_running_loop()
        if self.proxy is None:
            transport, protocol = await loop.create_connection(factory, host, port, ssl=tls, server_hostname=name)
        else:
            tunnel = await _tunnel(self.proxy, f"{host}:{port}")
            transport, protocol = await over(tunnel, factory, tls, name)
        return Dialed(transport, protocol, self.server)


async def over(
    sock: socket.socket, factory: Callable[[], P], tls: ssl.SSLContext | None, name: str | None
) -> tuple[asyncio.Transport, P]:
    """Go on with a socket that is connected already; it is closed if that fails."""
    try:
        return await asyncio.get_running_loop().create_connection(factory, sock=sock, ssl=tls, server_hostname=name)
    except BaseException:
        sock.close()
        raise


def address_of(server: str) -> tuple[str, int, bool]:
    """Host, port, and whether it is https."""
    parts = urlsplit(server)
    secure = parts.scheme == "https"
    return parts.hostname or "", parts.port or (443 if secure else 80), secure


def in_words(error: BaseException) -> str:
    """Why there is no connection, in a few words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not to be trusted: {error.verify_message}"
    if isinstance(error, OSError) and error.strerror:
        plain = os.strerror(error.errno) if error.errno and error.strerror.startswith("Connect call failed") else ""
        return plain or error.strerror
    return str(error) or type(error).__name__


async def _tunnel(address: str, target: str) -> socket.socket:
    """Through a proxy (CONNECT); TLS is with the server itself, the proxy sees none of it."""
    proxy = urlsplit(address)
    if proxy.scheme != "http":  # of one that expects TLS, the password would go over the network as it is
        raise OSError(None, f"the proxy {proxy.hostname} is of a kind that is not supported: only http:// is")
    lines = f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n"
    if proxy.username is not None:
        who = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}".encode()
        lines += f"Proxy-Authorization: Basic {base64.b64encode(who).decode()}\r\n"
    sock = await _connected(proxy.hostname or "", proxy.port or 80)
    try:
        await _ask_proxy(sock, f"{lines}\r\n".encode(), proxy.hostname)
    except BaseException:
        sock.close()
        raise
    return sock


async def _ask_proxy(sock: socket.socket, request: bytes, proxy: str | None) -> None:
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(sock, request)
    answer = b""
    while b"\r\n\r\n" not in answer:  # nothing else comes before we speak
        piece = await loop.sock_recv(sock, 4096)
        if not piece or len(answer) > _LONGEST_PROXY_ANSWER:
            raise OSError(None, f"the proxy {proxy} gave no answer")
        answer += piece
    status = answer.split(b" ", 2)[1:2]
    if status != [b"200"]:
        raise OSError(None, f"the proxy {proxy} answered {b''.join(status).decode('latin-1')}")


async def _connected(host: str, port: int) -> socket.socket:
    """To the first of its addresses that answers."""
    loop = asyncio.get_running_loop()
    failure: OSError = OSError(None, f"{host} has no address")
    for family, kind, number, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        sock = socket.socket(family, kind, number)
        sock.setblocking(False)
        try:
            await loop.sock_connect(sock, address)
        except OSError as error:
            sock.close()
            failure = error
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise failure
