"""Fills the cache with binaries: from the official release where it can be reached, else built with Go.

Each program is finished in one step (a rename), so that an interrupted run goes on where it stopped; a lock keeps a
second run waiting instead of working in parallel on the same files.
"""

import contextlib
import fcntl
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Literal

from clusters.local import binaries
from clusters.local.binaries import ALL, Binaries, BinariesMissingError
from clusters.local.gobuild import BuildError, GoToolchain
from clusters.local.progress import Progress
from clusters.local.release import Release, ReleaseUnavailableError
from clusters.local.versions import ETCD, Version

Source = Literal["auto", "release", "go"]
SOURCES: Final[tuple[Source, ...]] = ("auto", "release", "go")


class NoWayError(Exception):
    """Neither the release nor Go can give the binaries; says why for each."""


def install(
    version: Version,
    *,
    source: Source = "auto",
    release: Release | None = None,
    go: GoToolchain | None = None,
    programs: Sequence[str] = ALL,
    progress: Progress | None = None,
) -> Binaries:
    """The programs of that version in our cache; those that are there already are kept as they are."""
    progress = progress or Progress()
    target = binaries.cache_directory(version)
    target.mkdir(parents=True, exist_ok=True)
    ways = _Ways(version, release or Release(), go or GoToolchain.find(), source, progress)
    with _lock(target, progress):
        for program in programs:
            if not (target / program).exists():
                ways.get(program, target / program)
    return Binaries(version, {program: target / program for program in programs})


def present(version: Version | None, programs: Sequence[str] = ALL) -> Binaries | None:
    """What is there already, wherever it is."""
    try:
        return binaries.find_binaries(None if version is None else str(version), programs)
    except BinariesMissingError:
        return None


class _Ways:
    """Which way is open is found out once, not for each program anew."""

    def __init__(
        self, version: Version, release: Release, go: GoToolchain | None, source: Source, progress: Progress
    ) -> None:
        self._version = version
        self._release = release
        self._go = go
        self._progress = progress
        self._closed: dict[str, str] = {}
        if source == "go":
            self._closed["release"] = "not wanted"
        elif source == "release":
            self._closed["go"] = "not wanted"
        if go is None:
            self._closed.setdefault("go", "no `go` in PATH")

    def get(self, program: str, target: Path) -> None:
        named = f"{program} {ETCD if program == 'etcd' else self._version}"
        if "release" not in self._closed:
            try:
                self._release.fetch(program, self._version, target, self._progress)
            except ReleaseUnavailableError as error:
                self._closed["release"] = str(error)
                self._progress.note(f"the official release cannot be used ({error})")
            else:
                self._progress.note(f"{named}: downloaded, checksum verified")
                return
        if "go" in self._closed or self._go is None:
            raise NoWayError(self._no_way(named))
        self._progress.note(f"{named}: building with {self._go.go} (the first program takes minutes)")
        try:
            self._go.build(
                program, self._version, target, binaries.cache_root() / "build" / str(self._version), self._progress
            )
        except BuildError as error:
            self._closed["go"] = str(error)
            raise NoWayError(self._no_way(named)) from error
        self._progress.note(f"{named}: built")

    def _no_way(self, named: str) -> str:
        return (
            f"no way to get {named}:\n"
            f"  official release: {self._closed.get('release', 'not tried')}\n"
            f"  Go toolchain: {self._closed.get('go', 'not tried')}\n"
            "Remedy: install Go (https://go.dev/doc/install), or reach the release (HTTPS_PROXY, --release-url for a "
            "mirror), or put the programs in a directory and set KUBEBUILDER_ASSETS to it."
        )


@contextlib.contextmanager
def _lock(directory: Path, progress: Progress) -> Iterator[None]:
    with (directory / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress.note(f"another run is filling {directory}: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
