"""What a fleet has begun, written down before it is begun, so that nothing is left behind however a run ends.

A record is a directory of this user's cache, named for the fleet. It holds the names of the clusters, what is only
needed while they are made, and a lock that is held for as long as the fleet is up: by the process that has the fleet,
and by a `kind create` of it that is still running. When the lock is free and the record is there, its owner was
killed: a guard, a process of its own that waits for the lock, deletes the clusters at once; should that be killed too,
the next fleet of this user does (or `python -m clusters.kind sweep`). Whoever ends in order removes the record first.

Clusters are deleted by the names in the record and no others. A fleet that is to be kept has no record once it is up.
"""

import asyncio
import contextlib
import fcntl
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import clusters
from clusters.kind.commands import CommandError, NotPossibleError, run
from clusters.local.binaries import cache_root

NETWORK: Final = "kind"
_CLUSTERS: Final = "clusters"
_LOCK: Final = "lock"
_NETWORK_MADE: Final = ".network"
_DELETE_SECONDS: Final = 300.0
_GUARD_SECONDS: Final = 30.0
_SETTLE_SECONDS: Final = 120.0


class Record:
    """One fleet's; made by `begin`."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._lock = descriptor
        self._ended, self._running = os.pipe()
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def descriptors(self) -> list[int]:
        """For a `kind create`, and the programs that it starts, to hold: the lock, and a pipe that ends with them."""
        return [self._lock, self._running]

    def is_settled(self) -> bool:
        """Whether all of them have ended; no more are started. A `docker run` that was cut off makes its container."""
        if self._running >= 0:
            os.close(self._running)
            self._running = -1
        return _at_its_end(self._ended, 0)

    async def settled(self) -> None:
        """On return they have."""
        if not await asyncio.to_thread(_at_its_end, self._ended, _SETTLE_SECONDS):
            raise CommandError(f"Docker did not come to an end with what it creates in {_SETTLE_SECONDS:g} s")

    @property
    def clusters(self) -> list[str]:
        return _names(self.path)

    def add(self, cluster: str) -> None:
        """Before it is begun."""
        with (self.path / _CLUSTERS).open("a") as file:
            print(cluster, file=file, flush=True)

    def watch(self) -> None:
        """Start the guard."""
        self._guard = subprocess.Popen(  # noqa: S603 - this program itself
            # Not from where we are: in a directory that others can write to, anything may be called `clusters`.
            [sys.executable, "-P", "-m", "clusters.kind.guard", str(self.path)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(_import_path())},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is not for it
        )

    async def remove(self) -> None:
        """In order: nothing of it is there, or what is there is to stay."""
        shutil.rmtree(self.path, ignore_errors=True)
        await self.release()

    async def release(self) -> None:
        """What remains is the guard's, who ends when nothing does."""
        for descriptor in (self._lock, self._ended, self._running):
            if descriptor >= 0:
                os.close(descriptor)
        self._lock = self._ended = self._running = -1
        if self._guard is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(self._guard.wait, _GUARD_SECONDS)
            self._guard = None


def _import_path() -> list[str]:
    """Where this process has us from, for another to find us too."""
    own = str(Path(clusters.__file__).resolve().parent.parent)
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return [own, *(path for path in given if Path(path).is_absolute())]


def _at_its_end(pipe: int, seconds: float) -> bool:
    ready, _, _ = select.select([pipe], [], [], seconds)
    return bool(ready)


def root() -> Path:
    """Where the records of this user are."""
    path = cache_root() / "kind"
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = path.stat()
    if found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise NotPossibleError(f"{path} can be written to by others, who could have clusters deleted")
    return path


def begin(prefix: str) -> Record:
    """NotPossibleError when somebody has begun a fleet of that name and is not done."""
    path = root() / prefix
    with _only_one():
        path.mkdir(mode=0o700, exist_ok=True)
        descriptor = _locked(path)
        if descriptor is None:
            raise NotPossibleError(f"another process has a kind fleet called {prefix}: choose another prefix, or wait")
        (path / _CLUSTERS).touch()
    return Record(path, descriptor)


def in_use() -> dict[str, bool]:
    """The fleets that have a record, and whether their owner lives."""
    return {path.name: _is_held(path) for path in _paths()}


async def sweep() -> list[str]:
    """Delete what runs that were killed have left; gives the names of the clusters. What is in use stays."""
    found = [await _clean(path) for path in _paths()]
    await tidy_network()
    return [name for names in found for name in names]


async def guard(path: Path) -> None:
    """Wait for the owner's end, then delete what it has left."""
    with contextlib.suppress(FileNotFoundError):
        descriptor = os.open(path / _LOCK, os.O_RDWR | os.O_CLOEXEC)
        try:
            await asyncio.to_thread(fcntl.flock, descriptor, fcntl.LOCK_EX)
        finally:
            os.close(descriptor)
        await _clean(path)
        await tidy_network()


async def delete_cluster(name: str, scratch: Path) -> None:
    """Whatever is there of it. The user's own kubeconfig is not touched."""
    kubeconfig = ("--kubeconfig", str(scratch / f"{name}.deleted"))
    await run("kind", "delete", "cluster", "--name", name, *kubeconfig, seconds=_DELETE_SECONDS)
    # A `kind create` that was ended in the middle may have asked Docker for a container that came only now.
    label = f"label=io.x-k8s.kind.cluster={name}"
    left = (await run("docker", "ps", "--all", "--quiet", "--filter", label, seconds=60)).split()
    if left:
        await run("docker", "rm", "--force", "--volumes", *left, seconds=_DELETE_SECONDS)


async def has_network() -> bool:
    """kind's network is there."""
    return NETWORK in (await run("docker", "network", "ls", "--format", "{{.Name}}", seconds=60)).split()


def network_is_made() -> None:
    """kind is about to make its network, for us: it goes with the last fleet of this user."""
    (root() / _NETWORK_MADE).touch()


async def tidy_network() -> None:
    """kind's network is everybody's, and stays; but for one that was made for us and that nobody uses any more."""
    made = root() / _NETWORK_MADE
    if not made.exists() or _paths():
        return
    with contextlib.suppress(CommandError):  # somebody uses it
        if await has_network():
            await run("docker", "network", "rm", NETWORK, seconds=60)
        made.unlink(missing_ok=True)


async def _clean(path: Path) -> list[str]:
    with _only_one():
        descriptor = _locked(path)
    if descriptor is None:
        return []
    try:
        names = _names(path)
        results = await asyncio.gather(*(delete_cluster(name, path) for name in names), return_exceptions=True)
        if any(isinstance(result, BaseException) for result in results):
            return []  # the next one tries again
        shutil.rmtree(path, ignore_errors=True)
        return names
    finally:
        os.close(descriptor)


def _paths() -> list[Path]:
    return sorted(path.parent for path in root().glob(f"*/{_LOCK}"))


def _names(path: Path) -> list[str]:
    with contextlib.suppress(FileNotFoundError):
        return (path / _CLUSTERS).read_text().split()
    return []


def _is_held(path: Path) -> bool:
    with _only_one():
        descriptor = _locked(path)
    if descriptor is not None:
        os.close(descriptor)
    return descriptor is None


def _locked(path: Path) -> int | None:
    """The lock of a record; None where somebody has it, or where the record has gone meanwhile."""
    try:
        descriptor = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        return None
    with contextlib.suppress(BlockingIOError, FileNotFoundError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_ino == (path / _LOCK).stat().st_ino:  # else it is another fleet's of that name
            return descriptor
    os.close(descriptor)
    return None


@contextlib.contextmanager
def _only_one() -> Iterator[None]:
    descriptor = os.open(root() / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
