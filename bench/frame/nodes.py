"""Simulated nodes as a process of their own, so that their CPU time has a name: `python -m bench.frame.nodes FILE...`

Each file is a kubeconfig. Says `up` when the nodes are, and runs until its input ends.
"""

import asyncio
import contextlib
import sys
from pathlib import Path

import uvloop

from clusters.nodes import NodeOptions, SimulatedNodes
from multimirror.kube import Connection
from multimirror.kube.logs import configure_logging
from multimirror.kube.process import relax_garbage_collector


async def _main(kubeconfigs: list[str]) -> None:
    async with contextlib.AsyncExitStack() as stack:
        for kubeconfig in kubeconfigs:
            connection = Connection.from_kubeconfig(Path(kubeconfig))
            await stack.enter_async_context(SimulatedNodes(connection, NodeOptions()))
        print("up", flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    configure_logging("text", "error")
    relax_garbage_collector()
    uvloop.run(_main(sys.argv[1:]))
