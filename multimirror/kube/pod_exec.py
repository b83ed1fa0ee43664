"""Run a program in a pod and talk to it, as `kubectl exec -i` does: bytes in, bytes out, and how it ended.

    async with await pod_exec(client, "ns", "pod", ["cat"], container="main") as process:
        await process.write(b"hello")
        async for piece in process.output(): ...

Spoken is Kubernetes' channel protocol over a WebSocket: the first byte of each message says which stream it is of.
"""

from collections.abc import AsyncGenerator, Sequence
from types import TracebackType
from typing import Final, Self

import orjson

from .client import Client
from .errors import ApiError, error_from_status, printable
from .resources import PODS
from .websocket import WebSocket, open_websocket

_SUBPROTOCOLS: Final = ("v5.channel.k8s.io", "v4.channel.k8s.io")
_STDIN, _STDOUT, _STDERR, _STATUS = 0, 1, 2, 3
_PIECE: Final = 32 * 1024
_LAST_WORDS: Final = 400


class PodProcess:
    """A program that runs in a pod, for as long as the context is open."""

    def __init__(self, socket: WebSocket, cluster: str) -> None:
        self._socket, self._cluster = socket, cluster
        self._errors = b""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._socket.__aexit__(kind, error, trace)

    @property
    def last_words(self) -> str:
        """The end of what it wrote to its standard error."""
        return printable(" ".join(self._errors.decode("utf-8", "replace").split()), _LAST_WORDS)

    async def write(self, data: bytes) -> None:
        """To its standard input; waits while it takes nothing more. Raises ApiError."""
        for start in range(0, len(data), _PIECE):
            await self._socket.send(bytes([_STDIN]) + data[start : start + _PIECE])

    async def ping(self) -> None:
        """Keep the connection to it alive."""
        await self._socket.ping()

    async def output(self) -> AsyncGenerator[bytes, None]:
        """What it writes to its standard output, until it ends. Raises ApiError if it ends with a failure."""
        while True:
            message = await self._socket.receive()
            if message is None:
                return
            channel, data = message[:1], message[1:]
            if channel == bytes([_STDOUT]) and data:
                yield data
            elif channel == bytes([_STDERR]):
                self._errors = (self._errors + data)[-_LAST_WORDS:]
            elif channel == bytes([_STATUS]):
                failure = self._failure(data)
                if failure is not None:
                    raise failure
                return

    def _failure(self, data: bytes) -> ApiError | None:
        try:
            status = orjson.loads(data)
        except orjson.JSONDecodeError:
            status = None
        if not isinstance(status, dict) or status.get("status") == "Success":
            return None
        return error_from_status(status, cluster=self._cluster)


async def pod_exec(
    client: Client, namespace: str, pod: str, command: Sequence[str], *, container: str | None = None
) -> PodProcess:
    """Start it. Raises ApiError: Forbidden without the rights to `get` and `create` pods/exec."""
    query = [("command", word) for word in command]
    query += [(stream, "true") for stream in ("stdin", "stdout", "stderr")]
    query += [("container", container)] if container is not None else []
    socket = await open_websocket(client, PODS.path(namespace, pod, "exec"), query, _SUBPROTOCOLS)
    return PodProcess(socket, client.cluster)
