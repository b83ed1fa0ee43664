"""Jobs that note on their node when they ran: what no API tells while it is away, and no watch can miss.

Each container adds the machine's uptime to a file of its own: once (short Jobs), or twice a second until `release`
(held ones). All nodes are containers of one machine, so these clocks are one, and two places can be compared.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from clusters.kind.commands import run
from faults import Rules
from faults.record import MANAGEMENT
from faults.statuses import ends
from multimirror.api import ATTEMPT_ANNOTATION, CLUSTER_ANNOTATION
from multimirror.kube import ApiError
from multimirror.kube.errors import AlreadyExists
from tests.kind.installation import Stage
from tests.waiting import eventually

Json = dict[str, Any]
_DIRECTORY: Final = "/var/lib/multimirror-test"  # on a volume of the node: it is there after a restart, too
_NOTE: Final = 'cut -d " " -f 1 /proc/uptime >> /ran/$HOSTNAME'
_HELD: Final = f"while {_NOTE}; do [ -e /ran/released ] && exit 0; sleep 0.5; done"
_TOLD: Final = 'cd {} 2>/dev/null || exit 0; for f in *-*; do echo "$f $(head -n 1 "$f") $(tail -n 1 "$f")"; done'
_AGAIN: Final = 0.2


@dataclass(frozen=True)
class Ran:
    """A container of a Job: where, and from when to when as far as it could tell."""

    job: str
    worker: str
    pod: str
    first: float
    last: float


@dataclass
class Crowd:
    """The Jobs of a stage, as somebody makes them who goes on until it is done."""

    stage: Stage
    names: list[str] = field(default_factory=list)

    async def send(self, short: int = 0, held: int = 0) -> list[str]:
        """Their names."""
        batch = [f"{kind}{len(self.names) + n}" for kind, count in (("s", short), ("h", held)) for n in range(count)]
        self.names += batch
        await asyncio.gather(*map(self._create, batch))
        return batch

    async def _create(self, name: str) -> None:
        volume = {"name": "ran", "hostPath": {"path": self._directory, "type": "DirectoryOrCreate"}}
        mount = {"name": "ran", "mountPath": "/ran"}
        script = _HELD if name.startswith("h") else _NOTE
        job = self.stage.a_job(
            *(name, "sh", "-c", script), pod={"volumes": [volume]}, container={"volumeMounts": [mount]}
        )
        while True:
            try:
                await self.stage.create(job)
            except AlreadyExists:  # what was sent before had been heard
                return
            except ApiError:
                await asyncio.sleep(_AGAIN)
            else:
                return

    @property
    def _directory(self) -> str:
        return f"{_DIRECTORY}/{self.stage.namespace}"

    # --- what is seen of them, which a server that is away does not change

    def job(self, name: str) -> Json:
        """As it was last seen."""
        found = self.stage.history.record.last("Job", MANAGEMENT).values()
        return next((job for job in found if job["metadata"]["name"] == name), {"metadata": {}})

    def annotation(self, name: str, key: str) -> str:
        return str((self.job(name)["metadata"].get("annotations") or {}).get(key, ""))

    def place(self, name: str) -> str:
        return self.annotation(name, CLUSTER_ANNOTATION)

    def attempt(self, name: str) -> str:
        return self.annotation(name, ATTEMPT_ANNOTATION)

    def on(self, worker: str, names: Sequence[str]) -> list[str]:
        return [name for name in names if self.place(name) == worker]

    async def running(self, names: Sequence[str]) -> None:
        """Until all of them are shown as such."""
        await self.until("Running", names)

    async def complete(self, names: Sequence[str] | None = None) -> None:
        """Until all of them are; without names, all that there are."""
        await self.until("Complete", self.names if names is None else names)

    async def until(self, wanted: str, names: Sequence[str]) -> None:
        """Until all of them are so, in the words of faults.statuses, or gone."""

        async def others() -> dict[str, str]:
            are = ends(self.stage.history.record, Rules())
            found = {name: are.get(name, "gone") for name in names}
            return {name: state for name, state in found.items() if state != wanted}

        await eventually(others, lambda found: not found)

    # --- what their containers tell

    async def ran(self) -> list[Ran]:
        """All of them, on all workers that can be asked."""
        return [ran for worker in self.stage.installation.workers for ran in await self.ran_on(worker)]

    async def ran_on(self, worker: str) -> list[Ran]:
        told = await self._on_node(worker, _TOLD.format(self._directory))
        found = [line.split() for line in told.splitlines()]
        return [
            Ran(pod.rpartition("-")[0], worker, pod, float(first), float(last))
            for pod, first, last in (line for line in found if len(line) == 3)
        ]

    async def ticks(self, name: str, worker: str) -> None:
        """Until its container there has been seen to go on, from now."""
        before = max((ran.last for ran in await self.ran_on(worker) if ran.job == name), default=0.0)
        await eventually(
            lambda: self.ran_on(worker), lambda found: any(ran.job == name and ran.last > before for ran in found)
        )

    async def release(self, *workers: str) -> None:
        """Held Jobs end by themselves; without names, on all workers."""
        for worker in workers or self.stage.installation.workers:
            await self._on_node(worker, f"mkdir -p {self._directory} && touch {self._directory}/released")

    async def ran_once(self, names: Sequence[str] | None = None, *, stayed: bool = True) -> None:
        """Each has had one container, where it says; and where it was sent first, unless it may have moved before."""
        found = await self.ran()
        for name in self.names if names is None else names:
            places = [ran.worker for ran in found if ran.job == name]
            assert places == [self.place(name)], f"{name} of {self.place(name)} ran on {places}"
            assert not stayed or self.attempt(name) == "1", f"{name}: attempt {self.attempt(name)}"

    async def _on_node(self, worker: str, script: str) -> str:
        return await run("docker", "exec", self.stage.installation.node(worker), "sh", "-c", script, seconds=60)
