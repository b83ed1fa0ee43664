"""The Job controller beside kube-controller-manager's, on one real control plane, turn by turn in one run: at least as
many pods a second, no more API requests a pod. Then one Indexed Job on an embedded cluster: a pod of 100,000 costs less
than 1.3 times as much CPU as one of 1,000 (first on paper, then for real).

    BENCH_LARGE=100000      completions of the large Job
    BENCH_ROUNDS=4          turns of each controller
    BENCH_PARTS=paper,beside,large
"""

import asyncio
import contextlib
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Final

import uvloop
import yaml

from bench._beside import side_by_side
from bench._jobs import a_job, cpu_seconds, run_controller, run_jobs
from builtin_controller import Options
from builtin_controller.claiming import claim
from builtin_controller.deciding import Observed, decide
from builtin_controller.job import Job
from builtin_controller.ledger import Ledger
from builtin_controller.tracking import Outcome, track
from builtin_controller.vocabulary import INDEX_KEY, TRACKING_FINALIZER
from clusters.fleet import FleetOptions, open_fleet, unavailable
from multimirror.batch import Json
from multimirror.kube import Change, Client, Connection
from multimirror.kube.process import relax_garbage_collector

_PARTS: Final = os.environ.get("BENCH_PARTS", "paper,beside,large").split(",")
_LARGE: Final = int(os.environ.get("BENCH_LARGE", "100000"))
_SMALL: Final = 1000
_WIDE: Final = 200
_MANY: Final = 500  # pods are looked at once a second: with fewer at once, waiting would be what is measured
_WORKLOADS: Final[dict[str, list[Json]]] = {
    "500 single-pod Jobs": [{} for _ in range(500)],
    "one Indexed Job, 2,000 completions, 200 at once": [
        {"completionMode": "Indexed", "completions": 2000, "parallelism": 200}
    ],
}


def main() -> None:
    if "paper" in _PARTS:
        _on_paper()
    if "beside" in _PARTS:
        why = unavailable("local")
        if why is None:
            asyncio.run(side_by_side(_WORKLOADS))
        else:
            print(f"no comparison with kube-controller-manager: {why}", flush=True)
    if "large" in _PARTS:
        _large_job()


def _on_paper() -> None:
    """What a sync decides, without a server: the pods that were counted before must not matter."""
    small, large = (_decide_cost(count) for count in (_SMALL, _LARGE))
    print(f"deciding after {_SMALL:,} and after {_LARGE:,} counted pods: {small:.2f} and {large:.2f} ms of CPU a sync")
    print(f"that is {large / small:.2f} times as much (goal: < 1.3)", flush=True)


def _decide_cost(counted: int) -> float:
    """CPU milliseconds of a sync with 200 pods that run, after that many have ended."""
    spec = {"completionMode": "Indexed", "completions": counted + _WIDE, "parallelism": _WIDE}
    raw = a_job("job", "bench", {**spec, "backoffLimit": 6, "selector": {"matchLabels": {"controller-uid": "u"}}})
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


def _large_job() -> None:
    with _embedded() as config, tempfile.TemporaryDirectory() as directory:
        kubeconfig = Path(directory, "kubeconfig")
        kubeconfig.write_text(yaml.safe_dump(config))
        costs = {}
        for count in (_SMALL, _LARGE):
            costs[count], rate = uvloop.run(_cost(config, kubeconfig, count))
            text = f"{costs[count] * 1000:.2f} ms of CPU a pod, {rate:.0f} pods/s"
            print(f"one Indexed Job with {count:,} completions, {_MANY} at once: {text}", flush=True)
        ratio = costs[_LARGE] / costs[_SMALL]
        print(f"a pod of {_LARGE:,} costs {ratio:.2f} times one of {_SMALL:,} (goal: < 1.3)", flush=True)


@contextlib.contextmanager
def _embedded() -> Iterator[Json]:
    """An embedded cluster and its nodes in a process of their own; gives its kubeconfig."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        ours.send("enough")
        process.join()


def _serve(control: Pipe) -> None:
    async def serve() -> None:
        async with open_fleet("embedded", FleetOptions(workers=0)) as fleet:
            control.send(fleet.management.kubeconfig)
            await asyncio.to_thread(control.recv)

    relax_garbage_collector()
    uvloop.run(serve())


async def _cost(config: Json, kubeconfig: Path, count: int) -> tuple[float, float]:
    """CPU seconds of the controller for each pod, and pods a second."""
    spec = {"completionMode": "Indexed", "completions": count, "parallelism": _MANY}
    async with (
        Client(Connection.from_kubeconfig(config), user_agent="bench") as client,
        run_controller(kubeconfig) as pid,
    ):
        before = cpu_seconds(pid)
        _, seconds = await run_jobs(client, [spec], progress=_teller(count, pid))
        return (cpu_seconds(pid) - before) / count, count / seconds


def _teller(count: int, pid: int) -> Callable[[int], None]:
    """Tells how far it is, ten times."""
    started, spent = time.monotonic(), cpu_seconds(pid)
    told, before = 0, (started, spent)

    def tell(done: int) -> None:
        nonlocal told, before
        if done - told >= count / 10:
            now = time.monotonic(), cpu_seconds(pid)
            rate, cost = (done - told) / (now[0] - before[0]), (now[1] - before[1]) / (done - told) * 1000
            print(f"  {done:,} of {count:,} in {now[0] - started:.0f} s, {rate:.0f} pods/s, {cost:.2f} ms", flush=True)
            told, before = done, now

    return tell


if __name__ == "__main__":
    main()
