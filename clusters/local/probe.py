"""Asks a component of ours on loopback whether it is well: one request over TLS, nothing else.

By hand on asyncio streams rather than with a client library: it runs before there is anything that a client could
talk to, ten times a second, and wants the connection error itself.
"""

import asyncio
import ssl
from dataclasses import dataclass

from clusters.local.pki import Pair


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes


def tls(ca: str, client: Pair) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=ca)
    context.load_cert_chain(client.certificate, client.key)
    return context


async def ask(
    port: int, path: str, context: ssl.SSLContext, *, body: bytes | None = None, seconds: float = 5.0
) -> Answer:
    """A GET, or with a body a POST. OSError (or TimeoutError, which is one) when nobody answers."""
    lines = [f"{'GET' if body is None else 'POST'} {path} HTTP/1.0", "Host: 127.0.0.1", "Accept: */*"]
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    request = "\r\n".join([*lines, "", ""]).encode() + (body or b"")
    async with asyncio.timeout(seconds):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        try:
            writer.write(request)
            head, _, content = (await reader.read()).partition(b"\r\n\r\n")
        finally:
            writer.transport.abort()
    try:
        return Answer(int(head.split(b" ", 2)[1]), content)
    except (IndexError, ValueError):
        raise ConnectionError(f"no HTTP answer from port {port}") from None
