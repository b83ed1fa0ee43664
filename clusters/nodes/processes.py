"""A run made of real processes: the pod's commands, started on this host, for those who ask for it (`process` mode).

No image, no isolation: a command sees this machine as the node's own process does, so this is for trusted pods only.
Init containers run first, one after the other; then all containers at once. Each has its own session, so that signals
reach what it started. Environment: literal values, and `metadata.*` fields; volumes are not mounted.
"""

import asyncio
import os
import re
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from clusters.nodes import status
from clusters.nodes.logs import Log, Logs
from clusters.nodes.runs import FOREVER, KILLED, Ending

Json = dict[str, Any]
_NO_COMMAND: Final = 127
_REFERENCE: Final = re.compile(r"\$\$|\$\(([A-Za-z_][A-Za-z0-9_]*)\)")


class ProcessRun:
    """One run of a pod's containers as local processes. `changed` is called when it ends."""

    ending = Ending.EXIT

    def __init__(self, pod: Json, logs: Logs, changed: Callable[[], None]) -> None:
        self.started = time.time()
        self.ready_at = self.started
        self.ends = FOREVER
        self.told: float | None = None
        self._pod, self._logs, self._changed = pod, logs, changed
        self._codes: dict[str, int] = {}
        self._groups: set[int] = set()
        self._task = asyncio.create_task(self._run(), name=f"processes of {pod['metadata']['name']}")

    def exit_code(self, container: str, *, init: bool = False) -> int:
        """What that container ended with; one that never started was killed."""
        return self._codes.get(container, 0 if init else KILLED)

    def terminate(self, now: float) -> None:
        """SIGTERM to every process."""
        self.told = now
        self._signal(signal.SIGTERM)

    def kill(self, now: float) -> None:
        """SIGKILL to every process; the end is told when they are gone."""
        self.told = self.told or now
        self._signal(signal.SIGKILL)

    async def aclose(self) -> None:
        """Leave nothing behind."""
        self._signal(signal.SIGKILL)
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        spec = self._pod["spec"]
        try:
            for container in spec.get("initContainers", ()):
                await self._process(container)
                if self._codes[container["name"]]:
                    return
            over = status.ended_well(self._pod)
            async with asyncio.TaskGroup() as group:
                for container in spec["containers"]:
                    if container["name"] not in over:
                        group.create_task(self._process(container))
        finally:
            self.ends = time.time()
            self._changed()

    async def _process(self, container: Json) -> None:
        name = container["name"]
        meta = self._pod["metadata"]
        log = self._logs.start(meta["namespace"], meta["name"], name)
        env = environment(self._pod, container)
        command = [_expand(word, env) for word in (*container.get("command", ()), *container.get("args", ()))]
        try:
            if not container.get("command"):
                raise FileNotFoundError(
                    "this container has no command; process mode cannot know its image's entrypoint"
                )
            process = await asyncio.create_subprocess_exec(
                *command,
                env={**os.environ, **env},
                cwd=container.get("workingDir"),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            log.print(time.time(), f"cannot start: {error}")
            self._codes[name] = _NO_COMMAND
            log.end()
            return
        self._groups.add(process.pid)
        if self.told is not None:
            self._signal(signal.SIGTERM)
        try:
            assert process.stdout is not None, "asked for above"
            await _copy(process.stdout, log)
            code = await process.wait()
        finally:
            self._groups.discard(process.pid)
            log.end()
        self._codes[name] = code if code >= 0 else 128 - code

    def _signal(self, number: signal.Signals) -> None:
        for group in self._groups:
            try:
                os.killpg(group, number)
            except ProcessLookupError:
                continue


async def _copy(stream: asyncio.StreamReader, log: Log) -> None:
    while True:
        try:
            line = await stream.readline()
        except ValueError:  # longer than the reader's buffer: it was dropped, say so
            log.print(time.time(), "[a line that was too long was left out]")
            continue
        if not line:
            return
        log.print(time.time(), line.decode(errors="replace").rstrip("\n"))


def environment(pod: Json, container: Json) -> dict[str, str]:
    """The variables that the container asks for, as far as they can be known without the API."""
    env: dict[str, str] = {"HOSTNAME": pod["spec"].get("hostname") or pod["metadata"]["name"]}
    for variable in container.get("env", ()):
        if "value" in variable:
            env[variable["name"]] = _expand(variable["value"], env)
        elif "fieldRef" in variable.get("valueFrom", {}):
            env[variable["name"]] = _field(pod, variable["valueFrom"]["fieldRef"]["fieldPath"])
    return env


def _field(pod: Json, path: str) -> str:
    match = re.fullmatch(r"metadata\.(labels|annotations)\['([^']+)'\]", path)
    if match:
        return str(pod["metadata"].get(match[1], {}).get(match[2], ""))
    value: Any = pod
    for part in path.split("."):
        value = value.get(part, "") if isinstance(value, dict) else ""
    return str(value)


def _expand(text: str, env: Mapping[str, str]) -> str:
    """`$(NAME)` becomes the variable's value; `$$` is a dollar sign; unknown names stay as they are."""
    return _REFERENCE.sub(lambda found: "$" if found[0] == "$$" else env.get(found[1], found[0]), text)
