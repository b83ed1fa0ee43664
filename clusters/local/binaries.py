"""Finds the control plane's binaries: `$KUBEBUILDER_ASSETS` first, then `PATH`, then our cache directory.

Each program is taken from the first place that has a suitable one: the API server's version (the one asked for, or any
that is supported) decides which controller manager and scheduler suit (the same minor) and which kubectl (one minor
more or less, as Kubernetes supports it). etcd must be 3.6 or newer. What is there but does not
suit is named in the error.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from clusters.fleet import FleetError
from clusters.local import versions
from clusters.local.versions import Version

NEEDED: Final = ("etcd", "kube-apiserver", "kube-controller-manager")
ALL: Final = (*NEEDED, "kube-scheduler", "kubectl")


class BinariesMissingError(FleetError):
    """Programs that are needed were not found; says which, where was looked, and how to get them."""


@dataclass(frozen=True, slots=True)
class Candidate:
    program: str
    path: Path
    place: str
    version: Version | None


@dataclass(frozen=True, slots=True)
class Binaries:
    version: Version
    paths: Mapping[str, Path] = field(default_factory=dict)

    def __getitem__(self, program: str) -> Path:
        return self.paths[program]


def cache_root() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "multimirror"


def cache_directory(version: Version) -> Path:
    return cache_root() / "bin" / str(version)


def find_binaries(version: str | None = None, programs: Iterable[str] = NEEDED) -> Binaries:
    """BinariesMissingError when a program is nowhere to be found."""
    asked = None if version is None else versions.wanted(version)
    return choose(list(candidates(programs)), asked, tuple(programs))


def find_kubectl(server: Version = versions.DEFAULT) -> Path:
    for candidate in candidates(["kubectl"]):
        if _suits_kubectl(candidate.version, server):
            return candidate.path
    raise BinariesMissingError(f"no kubectl within one minor version of {server}: {_remedy(server)}")


def candidates(
    programs: Iterable[str], version_of: Callable[[Path], Version | None] | None = None
) -> Iterable[Candidate]:
    """Everything that could be used, best place first; versions are asked for only when somebody looks."""
    ask = version_of or reported_version
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    for program in programs:
        if assets and (path := Path(assets) / program).is_file():
            yield Candidate(program, path, "$KUBEBUILDER_ASSETS", ask(path))
        if found := shutil.which(program):
            yield Candidate(program, Path(found), "PATH", ask(Path(found)))
        for version in _cached():
            if (path := cache_directory(version) / program).is_file():
                yield Candidate(program, path, "cache", versions.ETCD if program == "etcd" else version)


def choose(found: list[Candidate], asked: Version | None, programs: tuple[str, ...]) -> Binaries:
    """Pure: which of the candidates, in their order."""
    refused: list[str] = []
    apiserver = _first(found, "kube-apiserver", lambda v: v == asked if asked else _supported(v), refused)
    if apiserver is None or apiserver.version is None:
        raise BinariesMissingError(_missing(["kube-apiserver"], asked, refused))
    server = apiserver.version
    suits: dict[str, Callable[[Version | None], bool]] = {
        "kube-apiserver": lambda v: v == server,
        "etcd": lambda v: v is not None and v >= versions.OLDEST_ETCD,
        "kubectl": lambda v: _suits_kubectl(v, server),
    }
    chosen = {
        program: _first(found, program, suits.get(program, lambda v: _same_minor(v, server)), refused)
        for program in programs
    }
    missing = [program for program, candidate in chosen.items() if candidate is None]
    if missing:
        raise BinariesMissingError(_missing(missing, asked or server, refused))
    return Binaries(server, {program: candidate.path for program, candidate in chosen.items() if candidate})


def put_in_place(part: Path, target: Path, version: Version) -> None:
    """A finished program, in one step, and only when it runs here and is what it should be."""
    expected = versions.ETCD if target.name == "etcd" else version
    part.chmod(0o755)
    found = reported_version(part, target.name)
    if found != expected:
        part.unlink()
        told = f"says that it is {found}" if found else "does not run on this machine"
        raise BinariesMissingError(f"{target.name} was to be {expected}, but {told}")
    part.replace(target)


def reported_version(path: Path, program: str | None = None) -> Version | None:
    """What the program says of itself; None when it does not run here."""
    arguments = ["version", "--client"] if (program or path.name) == "kubectl" else ["--version"]
    try:
        told = subprocess.run(  # noqa: S603 - a program that the user put in the place where we look for it
            [path, *arguments], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return Version.parse(told.stdout) if told.returncode == 0 else None


def _cached() -> list[Version]:
    """Newest of the default minor first, then the other ones: what is tested by default is what runs by default."""
    root = cache_root() / "bin"
    found = [version for entry in root.glob("*") if (version := Version.parse(entry.name))] if root.is_dir() else []
    return sorted(found, key=lambda v: (v == versions.DEFAULT, _same_minor(v, versions.DEFAULT), v), reverse=True)


def _first(
    found: list[Candidate], program: str, suits: Callable[[Version | None], bool], refused: list[str]
) -> Candidate | None:
    for candidate in found:
        if candidate.program == program:
            if suits(candidate.version):
                return candidate
            told = f"{candidate.path} ({candidate.place}) is {candidate.version or 'of no known version'}"
            if told not in refused:
                refused.append(told)
    return None


def _supported(version: Version | None) -> bool:
    return version is not None and version >= versions.OLDEST


def _same_minor(version: Version | None, other: Version) -> bool:
    return version is not None and (version.major, version.minor) == (other.major, other.minor)


def _suits_kubectl(version: Version | None, server: Version) -> bool:
    return version is not None and version.major == server.major and abs(version.minor - server.minor) <= 1


def _missing(programs: list[str], asked: Version | None, refused: list[str]) -> str:
    wanted = f"{asked}" if asked else f"{versions.OLDEST} or newer"
    text = f"no {', no '.join(programs)} for Kubernetes {wanted} in $KUBEBUILDER_ASSETS, PATH or {cache_root() / 'bin'}"
    if refused:
        text += f" (not suitable: {'; '.join(refused)})"
    return f"{text}: {_remedy(asked)}"


def _remedy(version: Version | None) -> str:
    if version in (None, versions.DEFAULT):
        return "get them with `make binaries` (`python -m clusters.local install`), or set KUBEBUILDER_ASSETS"
    return f"get them with `python -m clusters.local install --version {version}`, or set KUBEBUILDER_ASSETS"
