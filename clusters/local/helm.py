"""Helm, for the chart in deploy/helm and its tests: one that was built with Go into our cache, or the one in PATH."""

import shutil
import subprocess
from pathlib import Path
from typing import Final

from clusters.local.binaries import BinariesMissingError, cache_root
from clusters.local.gobuild import BuildError, GoToolchain
from clusters.local.progress import Progress
from clusters.local.versions import Version

VERSION: Final = Version(4, 3, 1)
OLDEST: Final = Version(3, 18, 0)
"""Helm 3 does as well."""
_MODULE: Final = "helm.sh/helm/v4"


def find_helm() -> Path:
    """BinariesMissingError says how to get it."""
    if _cached().is_file():  # two versions may render the same with other blanks
        return _cached()
    if (found := shutil.which("helm")) and _suits(Path(found)):
        return Path(found)
    raise BinariesMissingError(f"no helm {OLDEST} or newer in PATH: get it with `make binaries`, or install it")


def install_helm(go: GoToolchain | None = None, progress: Progress | None = None) -> Path:
    """The one that is there, or a new one; BuildError when there is no way."""
    try:
        return find_helm()
    except BinariesMissingError:
        pass
    go, progress = go or GoToolchain.find(), progress or Progress()
    if go is None:
        raise BuildError("no `go` in PATH to build helm with; install helm, or Go")
    progress.note(f"helm {VERSION}: building with {go.go} (a few minutes)")
    target = _cached()
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(".helm.part")
    facts = f"-s -w -X helm.sh/helm/v4/internal/version.version=v{VERSION}"
    workspace = cache_root() / "build" / "helm"
    go.build_module(_MODULE, VERSION, "cmd/helm", part, directory=workspace, flags=facts, progress=progress)
    part.replace(target)
    progress.note(f"helm {VERSION}: built")
    return target


def _cached() -> Path:
    return cache_root() / "bin" / f"helm-{VERSION}" / "helm"


def _suits(path: Path) -> bool:
    try:
        told = subprocess.run(  # noqa: S603 - the user's own program
            [path, "version", "--short"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    version = Version.parse(told.stdout)
    return version is not None and version >= OLDEST
