"""The Job controller beside kube-controller-manager's, on one real control plane, turn by turn: pods a second, API
requests a pod, CPU time. Two workloads: single-pod Jobs, and one Indexed Job of as many completions."""

import statistics
from collections.abc import Sequence
from typing import Final

from bench._beside import OURS, THEIRS, Figures, side_by_side
from bench.frame.parts import Part
from bench.frame.results import Recorder

_ROUNDS: Final = 2
_WIDE: Final = 200


async def measure(recorder: Recorder, sizes: Sequence[int]) -> None:
    """Both workloads of each size."""
    for size in sizes:
        single, indexed = "single-pod Jobs", "one Indexed Job"
        wide = {"completionMode": "Indexed", "completions": size, "parallelism": min(size, _WIDE)}
        found = await side_by_side({single: [{}] * size, indexed: [wide]}, _ROUNDS, recorder.say)
        for workload, figures in found.items():
            _tell(recorder, size, workload, figures[OURS], figures[THEIRS])


def _tell(recorder: Recorder, size: int, workload: str, ours: Figures, theirs: Figures) -> None:
    median = statistics.median
    for name, each in ((OURS, ours), (THEIRS, theirs)):
        recorder.figure(f"{workload}, {name}", size, median(each.rates), "pods/s")
        recorder.figure(f"{workload}, {name}: requests", size, median(each.requests), "a pod")
        recorder.figure(f"{workload}, {name}: its CPU time", size, median(each.own), "ms a pod")
    recorder.ratio(f"{workload}: our pods/s : its", size, median(ours.rates) / median(theirs.rates))
    recorder.ratio(f"{workload}: our requests : its", size, median(ours.requests) / median(theirs.requests))
    server = median(ours.server) / median(theirs.server)
    recorder.ratio(f"{workload}: CPU time of server and etcd, ours : its", size, server)


PART: Final = Part(
    name="job-controller",
    about="our Job controller beside kube-controller-manager's: pods a second, requests, CPU time",
    unit="pods",
    sizes=(500,),
    fleet="local",
    seconds=lambda sizes: sum(20 + _ROUNDS * 4 * (3 + size / 60) for size in sizes),
    measure=measure,
)
