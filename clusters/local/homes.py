"""Where a fleet's files live, whose they are, and how what a killed run left behind is found and removed.

A temporary home is a directory under `$TMPDIR/multimirror-local-<uid>/`; a given one is the user's own and is kept.
Each holds a lock file whose lock is taken here and handed down to the supervisor: it is held exactly as long as one of
the two lives, however they end. A home whose lock is free therefore belongs to nobody: its processes, if any are
left, are killed, and a temporary one is removed. Only what is ours is touched: a pid from the home's own list
counts only while that process's command line names the home (pids are reused; paths like these are not).
"""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from clusters.fleet import FleetError
from clusters.local.supervisor import PIDS

LOCK: Final = "multimirror-local.lock"
_PREFIX: Final = "run-"
_KEPT_LOGS: Final = 5


class HomeError(FleetError):
    """A directory cannot be used as a home; says which and why."""


@dataclass(slots=True)
class Home:
    path: Path
    temporary: bool
    lock_fd: int

    def release(self) -> None:
        """Give up our share of the lock; the supervisor keeps its own for as long as it runs."""
        if self.lock_fd >= 0:
            os.close(self.lock_fd)
            self.lock_fd = -1


def temporary_root() -> Path:
    """Made on first use, ours alone: another user must not be able to plant a home for us to sweep."""
    root = Path(tempfile.gettempdir()).resolve() / f"multimirror-local-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    found = root.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise HomeError(f"{root} is not a directory of this user: remove it, or set TMPDIR to another directory")
    root.chmod(0o700)
    return root


def temporary_home() -> Home:
    root = temporary_root()
    with _only_one(root):  # so that no sweep sees the new directory before its lock is held
        path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=root))
        return Home(path, temporary=True, lock_fd=_lock(path))


def given_home(path: Path) -> Home:
    """The user's own directory: new, empty, or one of ours from an earlier run; what that run left running is ended."""
    path = path.resolve()
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not (path / LOCK).exists() and any(path.iterdir()):
        raise HomeError(f"data directory {path} holds something else: give a new or an empty directory")
    try:
        lock_fd = _lock(path)
    except BlockingIOError:
        raise HomeError(f"data directory {path} is in use by another fleet: stop that one, or give another") from None
    _end_leftovers(path)
    return Home(path, temporary=False, lock_fd=lock_fd)


def keep_logs(home: Path) -> Path:
    """The logs of a home that is about to be removed, for somebody who asks why; the latest few of them are kept."""
    kept = temporary_root() / "failed"
    kept.mkdir(mode=0o700, exist_ok=True)
    target = kept / home.name
    for log in home.rglob("*.log"):
        copy = target / log.relative_to(home)
        copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.copyfile(log, copy)
    by_age = sorted(kept.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in by_age[_KEPT_LOGS:]:
        shutil.rmtree(old, ignore_errors=True)
    return target


def sweep() -> list[Path]:
    """End and remove what earlier runs left behind; the homes of running fleets stay."""
    root = temporary_root()
    removed = []
    with _only_one(root):
        for path in sorted(root.glob(f"{_PREFIX}*")):
            with contextlib.suppress(
                BlockingIOError, FileNotFoundError
            ):  # in use; or removed by its supervisor just now
                lock_fd = _lock(path)
                try:
                    _end_leftovers(path)
                    shutil.rmtree(path, ignore_errors=True)
                    removed.append(path)
                finally:
                    os.close(lock_fd)
    return removed


@contextlib.contextmanager
def _only_one(root: Path) -> Iterator[None]:
    descriptor = os.open(root / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _lock(path: Path) -> int:
    descriptor = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _end_leftovers(path: Path) -> None:
    try:
        pids = json.loads((path / PIDS).read_text())
    except (FileNotFoundError, ValueError):
        return
    ours = [pid for pid in pids.values() if _belongs_to(pid, path)]
    for pid in ours:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while any(_belongs_to(pid, path) for pid in ours) and time.monotonic() < deadline:
        time.sleep(0.02)
    (path / PIDS).unlink(missing_ok=True)


def _belongs_to(pid: int, home: Path) -> bool:
    return f"{home}{os.sep}" in _command_line(pid)


def _command_line(pid: int) -> str:
    if Path("/proc/self/cmdline").exists():
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            return ""
    listed = subprocess.run(  # noqa: S603 - fixed command, a number from our own list
        ["/bin/ps", "-o", "command=", "-p", str(int(pid))], capture_output=True, text=True, check=False
    )
    return listed.stdout
