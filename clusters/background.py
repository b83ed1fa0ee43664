"""A fleet on a thread of its own, for callers that block or have their own event loop: tests, notebooks, scripts.

with BackgroundFleet("embedded", FleetOptions(workers=3)) as fleet:
    fleet.management.kubeconfig            # a dict
    fleet.kubeconfig_file("worker-1")      # a path, for kubectl and the like
"""

import asyncio
import concurrent.futures
import contextlib
import tempfile
import threading
from collections.abc import Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from clusters.fleet import Cluster, Fleet, FleetOptions, open_fleet
from clusters.kubeconfigs import write_kubeconfig

_T = TypeVar("_T")


class BackgroundFleet:
    """A context manager: up inside, gone outside."""

    def __init__(self, kind: str = "embedded", options: FleetOptions | None = None) -> None:
        self.kind = kind
        self._options = options
        self._loop = asyncio.new_event_loop()
        self._enough = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None
        self._up: concurrent.futures.Future[Fleet] = concurrent.futures.Future()
        self._thread = threading.Thread(target=self._run, name=f"{kind} fleet", daemon=True)
        self._files: tempfile.TemporaryDirectory[str] | None = None

    @property
    def fleet(self) -> Fleet:
        """The fleet itself; use its coroutines with `run`."""
        return self._up.result()

    @property
    def management(self) -> Cluster:
        """The management cluster."""
        return self.fleet.management

    @property
    def workers(self) -> dict[str, Cluster]:
        """The worker clusters by name."""
        return self.fleet.workers

    def clusters(self) -> list[Cluster]:
        """All of them, management first."""
        return self.fleet.clusters()

    def kubeconfig_file(self, name: str = "management") -> Path:
        """A cluster's kubeconfig as a file, readable by this user alone; removed with the fleet."""
        cluster = next((each for each in self.clusters() if each.name == name), None)
        if cluster is None:
            raise ValueError(f"no cluster {name!r}: there are {', '.join(each.name for each in self.clusters())}")
        if self._files is None:
            self._files = tempfile.TemporaryDirectory(prefix="multimirror-fleet-")
        return write_kubeconfig(Path(self._files.name, f"{name}.kubeconfig"), cluster.kubeconfig)

    def run(self, work: Coroutine[Any, Any, _T], timeout: float | None = 60.0) -> _T:
        """Run a coroutine on the fleet's event loop and wait for its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout)

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._up.result()
        except BaseException:  # it failed, or the caller was interrupted: what has been begun is taken down again
            with contextlib.suppress(RuntimeError):  # its loop is closed: it has ended
                self._loop.call_soon_threadsafe(self._interrupt)
            self._thread.join()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._enough.set)
        self._thread.join()
        if self._files is not None:
            self._files.cleanup()

    def _interrupt(self) -> None:
        self._enough.set()
        if self._serving is not None:
            self._serving.cancel()

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._serve())
        except BaseException as error:  # whatever kept it from coming up is told to who waits for it
            if self._up.done():
                raise
            self._up.set_exception(error)

    async def _serve(self) -> None:
        self._serving = asyncio.current_task()
        if self._enough.is_set():
            return
        async with open_fleet(self.kind, self._options) as fleet:
            self._up.set_result(fleet)
            await self._enough.wait()
