"""`multimirror relay`, in a dispatcher's pod: makes the connections that a command asks for over its standard input.

It connects to the address in a kubeconfig that is stored for a worker, named by its Secret, and nowhere else. (Not by
its WorkerCluster: `leave` revokes the token when that is gone already.) Whoever may `exec` into the pod could do more
than that; this is so that no mistake of ours lends the pod's network to anybody.
"""

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final

from multimirror.cli.credentials import kubeconfig_in
from multimirror.cli.errors import CommandError
from multimirror.cli.relay.streams import Streams
from multimirror.cli.workers import read_secret
from multimirror.kube import Client, KubeError
from multimirror.kube.dialing import address_of, in_words
from multimirror.kube.kubeconfig import parse_strict
from multimirror.kube.supervise import Supervisor

_CONNECT_SECONDS: Final = 5.0
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_PIECE: Final = 64 * 1024


async def serve(management: Client, system: str) -> None:
    """Until standard input ends."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, os.fdopen(1, "wb", 0))
    writer = asyncio.StreamWriter(transport, protocol, None, loop)

    async def write(data: bytes) -> None:
        writer.write(data)
        await writer.drain()

    async def opening(stored_in: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await _connected(management, stored_in, system)

    async with Supervisor() as tasks:
        with suppress(ConnectionError):  # whoever asked has gone
            await Streams(write, tasks).follow(_pieces(reader), opening)


async def _pieces(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while data := await reader.read(_PIECE):
        yield data


async def _connected(
    management: Client, stored_in: str, system: str
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """To the address that is stored there. Raises OSError."""
    try:
        server = await stored_address(management, stored_in, system)
    except (KubeError, CommandError) as error:
        raise OSError(None, str(error)) from error
    host, port, _ = address_of(server)
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            return await asyncio.open_connection(host, port)
    except TimeoutError:
        raise OSError(None, f"no answer in {_CONNECT_SECONDS:g} s from {server}") from None
    except OSError as error:
        raise OSError(None, f"no connection to {server} ({in_words(error)})") from error


async def stored_address(management: Client, stored_in: str, system: str) -> str:
    """In the kubeconfig under SECRET/KEY. Raises CommandError, KubeError."""
    name, _, key = stored_in.partition("/")
    secret = await read_secret(management, name, system) if _NAME.fullmatch(name) else None
    kubeconfig = kubeconfig_in(secret, key) if secret is not None else None
    if kubeconfig is None:
        raise CommandError(f"there is no kubeconfig of a worker in Secret {system}/{name} under {key!r}")
    return parse_strict(kubeconfig).server
