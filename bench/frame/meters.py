"""What a run costs: CPU time and memory of processes by name, requests by who asked. Read from outside, from /proc and
from the API servers' audit logs, so that nobody's own counting has to be trusted.

    before = meter.mark()
    ...
    spent = meter.since(before)
"""

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

OURS: Final = "multimirror"
"""The dispatcher's user agent."""
_TICK: Final = os.sysconf("SC_CLK_TCK")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


class Asked(NamedTuple):
    """A kind of request."""

    cluster: str
    who: str
    verb: str
    resource: str

    @property
    def is_write(self) -> bool:
        """Something was to be changed."""
        return self.verb in ("create", "update", "patch", "delete") and self.resource != "selfsubjectaccessreviews"

    @property
    def is_upkeep(self) -> bool:
        """What a connection costs however many Jobs there are: watches, leases, heartbeats."""
        asks_who = (self.verb, self.resource) == ("get", "namespaces")  # with each heartbeat: which cluster is this?
        return self.verb == "watch" or asks_who or self.resource in ("leases", "/version", "/readyz", "/livez")


def requests_in(log: Path, cluster: str, offset: int = 0) -> Counter[Asked]:
    """What an audit log says since that offset."""
    found: Counter[Asked] = Counter()
    for entry in entries(log, offset):
        found.update(_asked(entry, cluster))
    return found


def entries(log: Path, offset: int = 0) -> Iterator[dict[str, Any]]:
    """The lines of an audit log that begin at that offset or later, as far as they are written."""
    with log.open("rb") as lines:
        lines.seek(max(0, offset - 1))
        if offset:
            lines.readline()  # a line that was being written at that moment is of the time before
        for line in lines:
            if line.endswith(b"\n"):
                yield orjson.loads(line)


def _asked(entry: dict[str, Any], cluster: str) -> Iterator[Asked]:
    """A watch is noted when it begins, everything else when it ends: each request once."""
    verb = str(entry["verb"])
    if entry["stage"] != ("ResponseStarted" if verb == "watch" else "ResponseComplete"):
        return
    where = entry.get("objectRef")
    if isinstance(where, dict) and "resource" in where:
        resource = "/".join(part for part in (where["resource"], where.get("subresource")) if part)
    else:
        resource = str(entry["requestURI"]).partition("?")[0]
    yield Asked(cluster, str(entry.get("userAgent") or "unknown").partition("/")[0].partition(" ")[0], verb, resource)


@dataclass(frozen=True, slots=True)
class Spent:
    """Between two moments."""

    wall: float
    cpu: Mapping[str, float]
    """Seconds, by process."""
    requests: Mapping[Asked, int]

    def share(self, name: str) -> float:
        """Of all CPU time that was used."""
        return self.cpu[name] / sum(self.cpu.values())

    def asked(self, who: str = OURS, *, upkeep: bool = False) -> dict[Asked, int]:
        """The requests of one of them, over all clusters; with upkeep or without."""
        return {asked: n for asked, n in self.requests.items() if asked.who == who and (upkeep or not asked.is_upkeep)}


def total(parts: list[Spent]) -> Spent:
    """Of several."""
    cpu: Counter[str] = Counter()
    requests: Counter[Asked] = Counter()
    for part in parts:
        cpu.update(part.cpu)
        requests.update(part.requests)
    return Spent(sum(part.wall for part in parts), cpu, requests)


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment."""

    when: float
    cpu: Mapping[str, float]
    offsets: Mapping[str, int]


class Meter:
    """Of a fleet: which processes belong to which name is asked anew at each mark, as processes come and go."""

    def __init__(self, pids: Callable[[], Mapping[str, list[int]]], audit_logs: Mapping[str, Path]) -> None:
        self._pids, self._logs = pids, audit_logs

    def mark(self) -> Mark:
        """From here."""
        offsets = {name: log.stat().st_size if log.exists() else 0 for name, log in self._logs.items()}
        return Mark(time.perf_counter(), self._cpu(), offsets)

    def since(self, mark: Mark) -> Spent:
        """To here."""
        wall, cpu = time.perf_counter() - mark.when, self._cpu()
        requests: Counter[Asked] = Counter()
        for name, log in self._logs.items():
            requests.update(requests_in(log, name, mark.offsets[name]))
        return Spent(wall, {name: seconds - mark.cpu.get(name, 0.0) for name, seconds in cpu.items()}, requests)

    def _cpu(self) -> dict[str, float]:
        return {name: sum(map(cpu_seconds, pids)) for name, pids in self._pids().items()}


async def settled(meter: Meter, begun: Mark) -> Spent:
    """What was asked for until nobody asks for more: events come late."""
    before = -1
    while True:
        spent = meter.since(begun)
        count = sum(spent.asked().values())
        if count == before:
            return spent
        before = count
        await asyncio.sleep(3)


def cpu_seconds(pid: int) -> float:
    """Of one process and its threads, so far; 0 when there is none of that number."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICK


def resident_bytes(pid: int) -> int:
    """The memory that a process has now."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
