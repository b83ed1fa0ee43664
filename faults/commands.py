"""The controllers as their users run them: the commands, and the files that they read.

Each replica of the dispatcher has a way of its own to every cluster. WorkerClusters are the same for all of them, so
they name kubeconfigs by file, and each replica has its own directory of those (`--kubeconfig-directory`).
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

Json = dict[str, Any]
_LOGS: Final = ("--log-level", "warning")


@dataclass(frozen=True, slots=True, kw_only=True)
class Processes:
    """Which controllers are processes of their own."""

    dispatchers: int = 1
    """0: it is a task of the suite. From two on they elect a leader."""
    job_controllers: bool = False
    lease_seconds: int = 4
    program: Sequence[str] = ("-m", "multimirror.cli")
    """What Python runs as the `multimirror` command."""


class Files:
    """What the processes of a run read, in one directory."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._written = 0

    def directory(self, client: str) -> Path:
        """That client's own."""
        return self._root / client.replace("/", "-")

    def put(self, cluster: str, kubeconfigs: Mapping[str, Json]) -> str:
        """A kubeconfig for each client, under one name that was not used before: whoever reads it sees a change."""
        self._written += 1
        name = f"{cluster}-{self._written}.json"
        for client, kubeconfig in kubeconfigs.items():
            self.directory(client).mkdir(exist_ok=True)
            (self.directory(client) / name).write_text(json.dumps(kubeconfig))
        return name


def dispatcher(processes: Processes, files: Files, client: str, kubeconfig: Json, *, identity: str | None) -> list[str]:
    """`multimirror run`. With an identity it is one of several candidates."""
    directory = files.directory(client)
    file = directory / files.put("management", {client: kubeconfig})
    command = [sys.executable, *processes.program, "run", "--kubeconfig", str(file), *_LOGS]
    command += ["--kubeconfig-directory", str(directory), "--health-address", "127.0.0.1:0"]
    if identity is None:
        return [*command, "--no-leader-election"]
    return [*command, "--identity", identity, "--lease-seconds", str(processes.lease_seconds)]


def job_controller(files: Files, client: str, kubeconfig: Json, *, pod_backoff: float) -> list[str]:
    """`builtin-controller`."""
    file = files.directory(client) / files.put("worker", {client: kubeconfig})
    flags = ["--kubeconfig", str(file), "--metrics-bind-address", "0", "--pod-backoff-base", f"{pod_backoff:g}s"]
    return [sys.executable, "-m", "builtin_controller", *flags, *_LOGS]
