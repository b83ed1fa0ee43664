"""A fleet that people use: brought up in the foreground, asked, and stopped.

`up` holds a lock in its directory while it runs (see clusters.fleet_directory); `status` and `down` find it there.
"""

import asyncio
import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from clusters.fleet import FleetError, fleet_options, open_fleet
from clusters.fleet_directory import FleetDirectory
from clusters.installed import installed
from clusters.nodes import NodeOptions
from multimirror.kube import Client, Connection, KubeError
from multimirror.kube.resources import NODES

_STOP_SECONDS: Final = 60.0
_ANSWER_SECONDS: Final = 5.0
_POD_SECONDS: Final = 5.0  # how long a pod runs that does not say: long enough to be seen


@dataclass(frozen=True, slots=True, kw_only=True)
class UpOptions:
    """What is to come up."""

    kind: str
    workers: int
    nodes: bool
    job_controller: bool
    data_dir: Path | None
    bare: bool
    """Clusters alone, without multimirror."""
    more: Mapping[str, Any] = field(default_factory=dict)
    """Options of that kind of fleet alone."""


async def up(
    directory: FleetDirectory,
    options: UpOptions,
    announce: Callable[[dict[str, Any], float], None],
    tell: Callable[[str], None],
) -> None:
    """Keep a fleet until SIGINT or SIGTERM. `announce` is told what is up, and after how many seconds; `tell` how far a
    start has come that takes long."""
    await until_told(_serve(directory, options, announce, tell))


async def _serve(
    directory: FleetDirectory,
    options: UpOptions,
    announce: Callable[[dict[str, Any], float], None],
    tell: Callable[[str], None],
) -> None:
    started = time.monotonic()
    of_the_fleet = fleet_options(
        options.kind,
        workers=options.workers,
        nodes=options.nodes,
        node_options=None if options.bare else NodeOptions(default_duration=_POD_SECONDS),
        job_controller=options.job_controller,
        data_dir=options.data_dir,
        **options.more,
    )
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(directory.held())
        fleet = open_fleet(options.kind, of_the_fleet)
        fleet.tell = tell
        await stack.enter_async_context(fleet)
        if not options.bare:
            await stack.enter_async_context(installed(fleet))
        state = directory.announce(fleet, options.kind, multimirror=not options.bare)
        announce(state, time.monotonic() - started)
        await asyncio.Event().wait()


async def until_told(work: Coroutine[Any, Any, object]) -> bool:
    """Ctrl-C, or `multimirror fleet down`, ends the work wherever it is, in order: what was begun is taken down.

    Whether it came to its own end."""
    task, loop, told = asyncio.ensure_future(work), asyncio.get_running_loop(), asyncio.Event()

    def stop() -> None:
        told.set()
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    try:
        await task
    except asyncio.CancelledError:
        if not told.is_set():
            raise
        return False
    return True


async def down(directory: FleetDirectory) -> dict[str, Any]:
    """Stop the fleet that is up there; gives what it was."""
    state = directory.running()
    os.kill(state["pid"], signal.SIGTERM)
    try:
        async with asyncio.timeout(_STOP_SECONDS):
            while not directory.is_free():  # noqa: ASYNC110 - the lock of another process cannot be awaited
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise FleetError(
            f"process {state['pid']} did not stop within {_STOP_SECONDS:g} s: look at its output, then kill it"
        ) from None
    return state


async def status(directory: FleetDirectory) -> dict[str, Any]:
    """What is up, and what each cluster answers."""
    state = directory.running()
    return {**state, "clusters": await asyncio.gather(*(_ask(cluster) for cluster in state["clusters"]))}


async def _ask(cluster: dict[str, Any]) -> dict[str, Any]:
    row = {**cluster, "ready": False, "version": "", "nodes": 0}
    try:
        connection = Connection.from_kubeconfig(Path(cluster["kubeconfig"]), name=cluster["name"])
        async with Client(connection, timeout=_ANSWER_SECONDS) as client:
            version = json.loads((await client.request("GET", "/version")).body)["gitVersion"]
            nodes = await client.list(NODES)
    except KubeError:
        return row
    return {**row, "ready": True, "version": version, "nodes": len(nodes.items)}
