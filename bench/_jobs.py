"""Jobs to measure a Job controller with: create them, wait for the last one, and what that cost."""

import asyncio
import contextlib
import os
import shutil
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from clusters.local.ports import free_ports
from multimirror.batch import Json, is_finished
from multimirror.kube import Change, Client, Informer
from multimirror.kube.resources import JOBS, NAMESPACES


def processed(specs: list[Json]) -> int:
    """How many pods these Jobs take."""
    return sum(spec.get("completions", 1) for spec in specs)


async def run_jobs(
    client: Client, specs: list[Json], namespace: str | None = None, progress: Callable[[int], None] | None = None
) -> tuple[str, float]:
    """Create the Jobs, in a new namespace unless one is given, and wait for the last of them.

    Gives the namespace, and the seconds that took. `progress` is told how many pods have succeeded.
    """
    if namespace is None:
        namespace = f"bench-{time.time_ns()}"
        await client.create(NAMESPACES, {"metadata": {"name": namespace}})
    prefix = f"job-{time.time_ns()}"
    left = len(specs)
    done = asyncio.Event()

    def on_job(change: Change) -> None:
        nonlocal left
        if change.new is None or change.initial:
            return
        status = change.new.get("status") or {}
        was = change.old is not None and is_finished(change.old.get("status") or {})
        if progress is not None:
            progress(status.get("succeeded") or 0)
        if is_finished(status) and not was:
            left -= 1
            if left == 0:
                done.set()

    async with Informer(client, JOBS, namespace) as jobs:
        jobs.add_handler(on_job)
        await jobs.synced()
        started = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for number, spec in enumerate(specs):
                group.create_task(client.create(JOBS, a_job(f"{prefix}-{number}", namespace, spec)))
        await done.wait()
        return namespace, time.monotonic() - started


def a_job(name: str, namespace: str, spec: Json) -> Json:
    """A Job whose pods end at once."""
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {**spec, "template": {"spec": pod}}}


@contextlib.asynccontextmanager
async def run_controller(kubeconfig: Path) -> AsyncIterator[int]:
    """Our controller as a process, ready; gives its id."""
    (port,) = free_ports(1)
    command = shutil.which("builtin-controller", path=str(Path(sys.executable).parent)) or "builtin-controller"
    arguments = ["--kubeconfig", str(kubeconfig), "--metrics-bind-address", f"127.0.0.1:{port}", "--log-level", "error"]
    process = await asyncio.create_subprocess_exec(command, *arguments)
    try:
        while not await asyncio.to_thread(_ready, port):
            await asyncio.sleep(0.05)
        yield process.pid
    finally:
        process.terminate()
        await process.wait()


def _ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def cpu_seconds(pid: int) -> float:
    """What a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
