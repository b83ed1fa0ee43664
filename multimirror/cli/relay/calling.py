"""The command's end of the relay: one `exec` into a dispatcher's pod, made when the first connection is asked for.

A connection is one of two sockets that are joined; who has the other end is nobody but this process, so that nobody
else on this machine can use the way that we have opened.
"""

import asyncio
import socket
from collections.abc import Sequence
from typing import Final

from multimirror.batch import Json
from multimirror.cli.background import Background
from multimirror.cli.relay.streams import Streams
from multimirror.kube import ApiError, Client, Connection, resources
from multimirror.kube.errors import Forbidden
from multimirror.kube.pod_exec import PodProcess, pod_exec
from multimirror.kube.supervise import Supervisor

DISPATCHER_PODS: Final = "app.kubernetes.io/name=multimirror,app.kubernetes.io/component=dispatcher"
DISPATCHER_CONTAINER: Final = "dispatcher"
_HEARTBEAT_SECONDS: Final = 15.0
_START_SECONDS: Final = 25.0


class Relay:
    """Connections to workers through one management cluster. Raises OSError, whose text says what is in the way."""

    def __init__(self, management: Connection, system: str, tasks: Background) -> None:
        self._management, self._system, self._tasks = management, system, tasks
        self._opening = asyncio.Lock()
        self._streams: Streams | None = None

    async def connect(self, stored_in: str) -> socket.socket:
        """One to the address that is stored there (SECRET/KEY), for TLS to begin on."""
        async with self._opening:
            streams = self._streams or await self._started()
        try:
            async with asyncio.timeout(_START_SECONDS):
                stream = await streams.open(stored_in)
        except TimeoutError:
            raise OSError(None, f"no answer from the dispatcher's pod in {_START_SECONDS:g} s") from None
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=theirs)
        self._tasks.start(f"connection to {stored_in}", streams.carry(stream, reader, writer))
        return ours

    async def _started(self) -> Streams:
        try:
            command = ["multimirror", "relay", "--system-namespace", self._system]
            async with Client(self._management, timeout=_START_SECONDS, user_agent="multimirror-cli") as client:
                pod = await self._pod(client)
                process = await pod_exec(client, self._system, pod, command, container=DISPATCHER_CONTAINER)
        except Forbidden as error:
            message = (
                f"{error.message}; it needs `list pods`, and `get` and `create` on pods/exec, in namespace "
                f"{self._system}"
            )
            raise OSError(None, message) from error
        except ApiError as error:
            raise OSError(None, error.message) from error
        started: asyncio.Future[Streams] = asyncio.get_running_loop().create_future()
        self._tasks.start(f"relay in pod {pod}", self._run(process, started))
        return await started

    async def _pod(self, client: Client) -> str:
        pods = (await client.list(resources.PODS, self._system, label_selector=DISPATCHER_PODS)).items
        found = choose_pod(pods)
        if found is None:
            raise OSError(None, f"no pod of the dispatcher runs in namespace {self._system}")
        return found

    async def _run(self, process: PodProcess, started: "asyncio.Future[Streams]") -> None:
        why = "the relay in the dispatcher's pod has ended"
        async with process, Supervisor() as tasks:
            streams = self._streams = Streams(lambda data: _write(process, data), tasks)
            if not started.done():  # whoever asked may have given up
                started.set_result(streams)
            tasks.start("heartbeat of the relay", _heartbeat(process), may_return=True)
            try:
                await streams.follow(process.output())
            except (ApiError, OSError) as error:
                why = f"{why}: {error.message if isinstance(error, ApiError) else error.strerror}"
            finally:
                self._streams = None
                said = f" ({process.last_words})" if process.last_words else ""
                streams.close(OSError(None, why + said))


async def _write(process: PodProcess, data: bytes) -> None:
    try:
        await process.write(data)
    except ApiError as error:
        raise OSError(None, error.message) from error


async def _heartbeat(process: PodProcess) -> None:
    """Load balancers end what is quiet for a minute."""
    while True:
        await asyncio.sleep(_HEARTBEAT_SECONDS)
        try:
            await process.ping()
        except ApiError:
            return  # whoever reads from it is told too


def choose_pod(pods: Sequence[Json], *, leader: str = "") -> str | None:
    """One that runs and stays; the leader's before others, then a ready one."""
    running = [
        pod
        for pod in pods
        if (pod.get("status") or {}).get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
    ]
    running.sort(key=lambda pod: (pod["metadata"]["name"] != leader, not _is_ready(pod), pod["metadata"]["name"]))
    return str(running[0]["metadata"]["name"]) if running else None


def _is_ready(pod: Json) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)
