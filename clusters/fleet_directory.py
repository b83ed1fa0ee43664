"""The directory in which a running fleet is found again: its kubeconfigs, what is up, and a lock.

Whoever runs a fleet holds the lock for as long as it is up, which is how others know that what they find there is
alive, and whom to stop. A fleet that was killed leaves its files, and no lock.
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from clusters.fleet import Fleet, FleetError
from clusters.kubeconfigs import write_kubeconfig


@dataclass(frozen=True, slots=True)
class FleetDirectory:
    """One such directory."""

    directory: Path

    @property
    def state(self) -> Path:
        """What is up."""
        return self.directory / "fleet.json"

    def kubeconfig(self, name: str) -> Path:
        """Of one cluster."""
        return self.directory / f"{name}.kubeconfig"

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the directory, or say who does. What an earlier fleet left goes first, and what we write at the end."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._lock_file() as file:
            if not _locked(file):
                raise FleetError(
                    f"a fleet is already up in {self.directory}: stop it with `multimirror fleet down"
                    f" --directory {self.directory}`, or choose another --directory"
                )
            self._tidy()
            try:
                yield
            finally:
                self._tidy()

    def announce(self, fleet: Fleet, kind: str, **more: Any) -> dict[str, Any]:
        """Write down what is up, and a kubeconfig for each cluster; gives what was written."""
        rows = []
        for cluster in fleet.clusters():
            path = write_kubeconfig(self.kubeconfig(cluster.name), cluster.kubeconfig)
            server = cluster.kubeconfig["clusters"][0]["cluster"]["server"]
            rows.append({"name": cluster.name, "server": server, "kubeconfig": str(path)})
        state = {"kind": kind, "pid": os.getpid(), **more, "clusters": rows}
        self.state.write_text(json.dumps(state))
        return state

    def running(self) -> dict[str, Any]:
        """The fleet that is up here."""
        nothing = f"no fleet is up in {self.directory}: start one with `multimirror fleet up`"
        if not self.state.exists():
            raise FleetError(nothing)
        if self.is_free():
            raise FleetError(f"{nothing} (the last one was killed)")
        state: dict[str, Any] = json.loads(self.state.read_text())
        return state

    def is_free(self) -> bool:
        """Whether nobody holds it."""
        with self._lock_file() as file:
            return _locked(file)

    def _tidy(self) -> None:
        self.state.unlink(missing_ok=True)
        for path in self.directory.glob("*.kubeconfig"):
            path.unlink()

    def _lock_file(self) -> IO[str]:
        return (self.directory / "lock").open("a")


def _locked(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
