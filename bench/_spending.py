"""Where the CPU and the requests of a run on real control planes go: processes by name, requests by who asked."""

import json
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from clusters.local.cluster import LocalCluster

_TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Spending:
    """Between two moments."""

    wall: float
    cpu: Mapping[str, float]
    """Seconds, by process: `dispatcher`, `bench`, `management kube-apiserver`, ..."""
    requests: Mapping[tuple[str, str, str], int]
    """By cluster, who asked, and what: `("management", "multimirror", "patch jobs/status")`. No watches, no leases."""

    @classmethod
    def sum(cls, parts: Sequence["Spending"]) -> "Spending":
        """Of several."""
        cpu: Counter[str] = Counter()
        requests: Counter[tuple[str, str, str]] = Counter()
        for part in parts:
            cpu.update(part.cpu)
            requests.update(part.requests)
        return cls(sum(part.wall for part in parts), cpu, requests)

    def share(self, name: str) -> float:
        """Of all CPU that was used."""
        return self.cpu[name] / sum(self.cpu.values())

    def of(self, who: str) -> int:
        """Requests of one of them, over all clusters."""
        return sum(count for (_, asked, _), count in self.requests.items() if asked == who)


@dataclass(frozen=True)
class Mark:
    """A moment."""

    when: float
    cpu: Mapping[str, float]
    offsets: Mapping[str, int]


class Meter:
    """Reads /proc and the audit logs: `mark` a moment, and ask what was spent `since`."""

    def __init__(self, clusters: list[LocalCluster], dispatcher: int) -> None:
        self._logs = {cluster.name: cluster.audit_log for cluster in clusters}
        self._pids = {"dispatcher": dispatcher, "bench (with simulated nodes)": os.getpid()}
        for cluster in clusters:
            for name, process in cluster.processes.items():
                if process.pid is not None:
                    self._pids[f"{cluster.name} {name}"] = process.pid

    def mark(self) -> Mark:
        """From here."""
        cpu = {name: _seconds(pid) for name, pid in self._pids.items()}
        return Mark(time.perf_counter(), cpu, {name: log.stat().st_size for name, log in self._logs.items()})

    def since(self, mark: Mark) -> Spending:
        """To here."""
        wall = time.perf_counter() - mark.when
        cpu = {name: _seconds(pid) - mark.cpu[name] for name, pid in self._pids.items()}
        requests: Counter[tuple[str, str, str]] = Counter()
        for name, log in self._logs.items():
            requests.update((name, *asked) for asked in _asked(log, mark.offsets[name]))
        return Spending(wall, cpu, requests)


def _seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def _asked(log: Path, offset: int) -> list[tuple[str, str]]:
    found = []
    with log.open("rb") as lines:
        lines.seek(offset)
        for line in lines:
            if not line.endswith(b"\n"):
                break
            entry = json.loads(line)
            if entry["verb"] == "watch" or entry["stage"] != "ResponseComplete" or "objectRef" not in entry:
                continue
            where = entry["objectRef"]
            if where["resource"] == "leases":
                continue
            what = "/".join(part for part in (where["resource"], where.get("subresource")) if part)
            found.append((entry.get("userAgent", "").partition("/")[0], f"{entry['verb']} {what}"))
    return found
