"""The way to a cluster, which can be cut and restored.

    async with TcpProxy(cluster.kubeconfig) as proxy:
        proxy.kubeconfig     # the same cluster and the same certificates, through here
        proxy.cut()          # connections break, and new ones are refused
        proxy.restore()

Bytes are passed on as they are: TLS goes from end to end, and the API server is the only one who reads it. Whoever has
the cluster's own kubeconfig does not notice.
"""

import asyncio
import contextlib
import copy
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlsplit

from clusters.fleet import FleetError, Kubeconfig

_CHUNK: Final = 65536


class TcpProxy:
    """One cluster's. An async context manager."""

    def __init__(self, kubeconfig: Kubeconfig) -> None:
        where = urlsplit(kubeconfig["clusters"][0]["cluster"]["server"])
        if where.hostname != "127.0.0.1":
            raise FleetError(
                f"no proxy for {where.geturl()}: its certificate is for {where.hostname}, not for 127.0.0.1"
            )
        self._kubeconfig, self._scheme, self._target = kubeconfig, where.scheme, (where.hostname, where.port)
        self._server: asyncio.Server | None = None
        self._open = True
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def kubeconfig(self) -> Kubeconfig:
        """The cluster, through the proxy."""
        assert self._server is not None, "the proxy is not there yet"
        port = self._server.sockets[0].getsockname()[1]
        changed = copy.deepcopy(self._kubeconfig)
        changed["clusters"][0]["cluster"]["server"] = f"{self._scheme}://127.0.0.1:{port}"
        return changed

    def cut(self) -> None:
        """Nobody gets through any more."""
        self._open = False
        for writer in tuple(self._writers):
            writer.transport.abort()

    def restore(self) -> None:
        """As before."""
        self._open = True

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._writers.add(writer)
        try:
            if self._open:
                with contextlib.suppress(OSError):
                    await self._pass(reader, writer)
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(*self._target)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_pump(reader, back))
                group.create_task(_pump(there, writer))
        finally:
            back.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Until one side has had enough; then the other is told."""
    with contextlib.suppress(OSError, RuntimeError):
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError, RuntimeError):
        writer.close()
