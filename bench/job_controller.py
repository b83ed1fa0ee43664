"""The Job controller beside kube-controller-manager's, on one real control plane, turn by turn in one run: at least as
many pods a second, no more API requests a pod. Then one Indexed Job on an embedded cluster: a pod of 100,000 costs less
than 1.3 times as much CPU as one of 1,000 (first on paper, then for real).

    BENCH_LARGE=100000      completions of the large Job
    BENCH_ROUNDS=2          turns of each controller
"""

import asyncio
import contextlib
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from builtin_controller import Options
from builtin_controller.claiming import claim
from builtin_controller.deciding import Observed, decide
from builtin_controller.job import Job
from builtin_controller.ledger import Ledger
from builtin_controller.tracking import Outcome, track
from builtin_controller.vocabulary import INDEX_KEY, TRACKING_FINALIZER
from clusters.background import BackgroundFleet
from clusters.fleet import FleetOptions, unavailable
from clusters.local import LocalFleet, LocalOptions
from clusters.local.cluster import CONTROLLER_MANAGER, LocalCluster
from clusters.local.ports import free_ports
from multimirror.batch import Json, is_finished
from multimirror.kube import Change, Client, Connection, Informer, Resource

JOBS: Final = Resource("batch", "v1", "jobs", "Job")
NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
_ROUNDS: Final = int(os.environ.get("BENCH_ROUNDS", "2"))
_LARGE: Final = int(os.environ.get("BENCH_LARGE", "100000"))
_SMALL: Final = 1000
_WIDE: Final = 200
_WORKLOADS: Final[dict[str, list[Json]]] = {
    "500 single-pod Jobs": [{} for _ in range(500)],
    "one Indexed Job, 2,000 completions, 200 at once": [
        {"completionMode": "Indexed", "completions": 2000, "parallelism": 200}
    ],
}


def main() -> None:
    _on_paper()
    why = unavailable("local")
    if why is None:
        asyncio.run(_side_by_side())
    else:
        print(f"no comparison with kube-controller-manager: {why}")
    _large_job()


def _on_paper() -> None:
    """What a sync decides, without a server: the pods that were counted before must not matter."""
    small, large = (_decide_cost(count) for count in (_SMALL, _LARGE))
    print(f"deciding after {_SMALL:,} and after {_LARGE:,} counted pods: {small:.2f} and {large:.2f} ms of CPU a sync")
    print(f"that is {large / small:.2f} times as much (goal: < 1.3)", flush=True)


def _decide_cost(counted: int) -> float:
    """CPU milliseconds of a sync with 200 pods that run, after that many have ended."""
    spec = {"completionMode": "Indexed", "completions": counted + _WIDE, "parallelism": _WIDE}
    raw = _job("job", "bench", {**spec, "backoffLimit": 6, "selector": {"matchLabels": {"controller-uid": "u"}}})
    raw["metadata"]["uid"] = "u"
    raw["status"] = {"completedIndexes": f"0-{counted - 1}", "succeeded": counted, "startTime": "2026-01-01T00:00:00Z"}
    job, ledger = Job.of(raw), Ledger()
    for index in range(counted):
        ledger.observe(Change(None, _pod(index, "Succeeded", tracked=False)))
    ledger.close(job, ledger.pods_of("u"))
    for index in range(counted, counted + _WIDE):
        ledger.observe(Change(None, _pod(index, "Running", tracked=True)))
    rounds = []
    for _ in range(50):
        started = time.process_time()
        claims = claim(job, ledger.pods_of("u"), ledger.ownerless("bench"))
        decision = decide(Observed(job=job, pods=claims.own, now=0.0, options=Options()))
        track(decision, Outcome(), 0.0)
        ledger.close(job, claims.own)
        rounds.append(time.process_time() - started)
    return statistics.median(rounds) * 1000


def _pod(index: int, phase: str, *, tracked: bool) -> Json:
    return {
        "metadata": {
            "name": f"job-{index}",
            "namespace": "bench",
            "uid": f"pod-{index}",
            "labels": {"controller-uid": "u"},
            "annotations": {INDEX_KEY: str(index)},
            "finalizers": [TRACKING_FINALIZER] if tracked else [],
            "ownerReferences": [{"kind": "Job", "name": "job", "uid": "u", "controller": True}],
        },
        "status": {"phase": phase},
    }


@dataclass
class Figures:
    """What one controller did in its turns."""

    rates: list[float] = field(default_factory=list)
    requests: list[float] = field(default_factory=list)


async def _side_by_side() -> None:
    options = LocalOptions(
        workers=0,
        controllers=("job-controller",),
        controller_manager_qps=5000,
        audit_log=True,
        disable_admission_plugins=("ServiceAccount",),
    )
    async with LocalFleet(options) as fleet:
        cluster = fleet.management
        await cluster.processes[CONTROLLER_MANAGER].stop()
        turns: dict[str, Callable[[], contextlib.AbstractAsyncContextManager[Any]]] = {
            "kube-controller-manager": lambda: _manager(cluster),
            "builtin-controller": lambda: _builtin(cluster.kubeconfig_file),
        }
        for name, specs in _WORKLOADS.items():
            figures = {contender: Figures() for contender in turns}
            for turn in range(_ROUNDS):
                order = list(turns) if turn % 2 == 0 else list(reversed(turns))
                for contender in order:
                    async with turns[contender]():
                        await _measure(cluster, specs, figures[contender], contender)
            _report(name, figures)


async def _measure(cluster: LocalCluster, specs: list[Json], figures: Figures, contender: str) -> None:
    pods = sum(spec.get("completions", 1) for spec in specs)
    offset = cluster.audit_log.stat().st_size
    async with Client(Connection.from_kubeconfig(cluster.kubeconfig), user_agent="bench") as client:
        seconds = await _run(client, specs)
    requests = _requests(cluster.audit_log, offset, contender)
    figures.rates.append(pods / seconds)
    figures.requests.append(requests / pods)


async def _run(client: Client, specs: list[Json]) -> float:
    """Create the Jobs and wait for the last of them; gives the seconds that took."""
    namespace = f"bench-{time.time_ns()}"
    await client.create(NAMESPACES, {"metadata": {"name": namespace}})
    left = len(specs)
    done = asyncio.Event()

    def on_job(change: Change) -> None:
        nonlocal left
        was = change.old is not None and is_finished(change.old.get("status") or {})
        if change.new is not None and is_finished(change.new.get("status") or {}) and not was:
            left -= 1
            if left == 0:
                done.set()

    async with Informer(client, JOBS, namespace) as jobs:
        jobs.add_handler(on_job)
        await jobs.synced()
        started = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for number, spec in enumerate(specs):
                group.create_task(client.create(JOBS, _job(f"job-{number}", namespace, spec)))
        await done.wait()
        return time.monotonic() - started


def _job(name: str, namespace: str, spec: Json) -> Json:
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {**spec, "template": {"spec": pod}}}


def _requests(audit_log: Path, offset: int, contender: str) -> int:
    """What the controller asked of the server: everything but watches, lists and its own lease."""
    agent = "kube-controller-manager" if contender == "kube-controller-manager" else "job-controller"
    count = 0
    with audit_log.open("rb") as log:
        log.seek(offset)
        for line in log:
            entry = json.loads(line)
            if not entry.get("userAgent", "").startswith(agent) or entry["verb"] in ("watch", "list"):
                continue
            count += (entry.get("objectRef") or {}).get("resource") in ("jobs", "pods", "events")
    return count


def _report(name: str, figures: dict[str, Figures]) -> None:
    theirs, ours = figures["kube-controller-manager"], figures["builtin-controller"]
    for contender, figure in figures.items():
        rates = ", ".join(f"{rate:.0f}" for rate in figure.rates)
        print(f"{name}: {contender} {rates} pods/s, {statistics.mean(figure.requests):.2f} requests a pod")
    ratio = statistics.median(ours.rates) / statistics.median(theirs.rates)
    share = statistics.mean(ours.requests) / statistics.mean(theirs.requests)
    print(f"{name}: {ratio:.2f} times its pods/s (goal: >= 1), {share:.2f} times its requests (goal: <= 1)", flush=True)


@contextlib.asynccontextmanager
async def _manager(cluster: LocalCluster) -> AsyncIterator[None]:
    await cluster.start_again(CONTROLLER_MANAGER)
    try:
        yield
    finally:
        await cluster.processes[CONTROLLER_MANAGER].stop()


@contextlib.asynccontextmanager
async def _builtin(kubeconfig: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """Our controller as a process, ready."""
    (port,) = free_ports(1)
    command = shutil.which("builtin-controller", path=str(Path(sys.executable).parent)) or "builtin-controller"
    arguments = ["--kubeconfig", str(kubeconfig), "--metrics-bind-address", f"127.0.0.1:{port}", "--log-level", "error"]
    process = await asyncio.create_subprocess_exec(command, *arguments)
    try:
        while not await asyncio.to_thread(_ready, port):  # noqa: ASYNC110 - another process: nothing to await
            await asyncio.sleep(0.05)
        yield process
    finally:
        process.terminate()
        await process.wait()


def _ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _large_job() -> None:
    with BackgroundFleet("embedded", FleetOptions(workers=0)) as fleet, tempfile.TemporaryDirectory() as directory:
        kubeconfig = Path(directory, "kubeconfig")
        kubeconfig.write_text(yaml.safe_dump(fleet.management.kubeconfig))
        costs = {}
        for count in (_SMALL, _LARGE):
            costs[count], rate = asyncio.run(_cost(fleet.management.kubeconfig, kubeconfig, count))
            text = f"{costs[count] * 1000:.2f} ms of CPU a pod, {rate:.0f} pods/s"
            print(f"one Indexed Job with {count:,} completions: {text}", flush=True)
        ratio = costs[_LARGE] / costs[_SMALL]
        print(f"a pod of {_LARGE:,} costs {ratio:.2f} times one of {_SMALL:,} (goal: < 1.3)", flush=True)


async def _cost(config: Json, kubeconfig: Path, count: int) -> tuple[float, float]:
    """CPU seconds of the controller for each pod, and pods a second."""
    spec = {"completionMode": "Indexed", "completions": count, "parallelism": _WIDE}
    async with (
        Client(Connection.from_kubeconfig(config), user_agent="bench") as client,
        _builtin(kubeconfig) as process,
    ):
        before = _cpu_seconds(process.pid)
        seconds = await _run(client, [spec])
        return (_cpu_seconds(process.pid) - before) / count, count / seconds


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
