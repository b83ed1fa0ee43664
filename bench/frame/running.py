"""The runner: parts one after the other, with progress; then report, plots and range check."""

import importlib
import signal
import subprocess
import sys
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import uvloop

from bench.frame import checking, report
from bench.frame.parts import Part
from bench.frame.progress import Progress
from bench.frame.results import Recorder, Result, about
from clusters.fleet import unavailable
from clusters.local.binaries import find_binaries
from multimirror.kube.logs import configure_logging
from multimirror.kube.process import relax_garbage_collector

_MODULES: Final = (
    *("full_life", "latency", "job_controllers", "planning", "sharing", "memory", "scale", "restart", "workers"),
    *("failover", "reclaim"),
)


def parts() -> dict[str, Part]:
    """All of them, in the order in which they run."""
    found = [importlib.import_module(f"bench.{module}").PART for module in _MODULES]
    return {part.name: part for part in found}


def run(chosen: Sequence[Part], sizes: Sequence[int] | None) -> Result:
    """Measure. A part that this machine cannot run is left out, and says why."""
    configure_logging("text", "error")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # leaves no processes behind, as with Ctrl-C
    relax_garbage_collector()  # a pause of the one who holds the clock would be taken for ours
    able = [part for part in chosen if _able(part)]
    progress = Progress({part.name: part.seconds(sizes or part.sizes) for part in able})
    progress.plan()
    result = Result(about=about(_versions()))
    for part in able:
        progress.begin(part.name)
        recorder = Recorder(part.name, progress.say)
        try:
            uvloop.run(part.measure(recorder, sizes or part.sizes))  # type: ignore[arg-type]  # a coroutine
        except Exception:  # noqa: BLE001 - the other parts are worth having; its ranges fail for want of figures
            traceback.print_exc()
        result.figures += recorder.figures
        result.tables += recorder.tables
        result.units[part.name] = part.unit
        result.seconds[part.name] = progress.end()
    return result


def keep(result: Result, directory: Path, *, into: bool = False) -> Path:
    """Write result, report and plots; in a new directory there, or into that one."""
    if into and (directory / "result.json").exists():
        newer, result = result, Result.load(directory)
        result.replace(newer)
    if not into:
        moment = datetime.now(UTC).strftime("%Y-%m-%d-%H%M")
        directory /= f"{moment}-{result.about['commit'].partition('+')[0][:7] or 'unknown'}"
    result.save(directory)
    render(directory)
    return directory


def render(directory: Path) -> None:
    """Report and plots of a result that is there."""
    result = Result.load(directory)
    plots: list[str] = []
    try:
        from bench.frame import plots as drawing  # noqa: PLC0415 - matplotlib is an extra
    except ImportError:
        print("no plots: install the extra `bench` (pip install -e '.[bench]')", file=sys.stderr)
    else:
        plots = drawing.draw(result, directory)
    (directory / "report.md").write_text(report.markdown(result, checking.ranges(), plots))


def _able(part: Part) -> bool:
    why = unavailable("local") if part.fleet == "local" else None
    if why is not None:
        print(f"{part.name} is left out: {why}", file=sys.stderr)
    return why is None


def _versions() -> dict[str, str]:
    if unavailable("local") is not None:
        return {}
    binaries = find_binaries()
    versions = {}
    for name in ("kube-apiserver", "kube-controller-manager", "etcd"):
        told = subprocess.run([str(binaries[name]), "--version"], capture_output=True, text=True, check=False).stdout
        versions[name] = (told.splitlines() or ["unknown"])[0].split()[-1]
    return versions
