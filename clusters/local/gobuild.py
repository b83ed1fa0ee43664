"""Binaries built with the Go toolchain from the published Go modules.

`k8s.io/kubernetes` is a module like any other, except that its own go.mod sends its staging modules (`k8s.io/api` and
some thirty more) to directories that the published module does not contain. A module of ours that requires it
and sends each of them to the version published with the release builds the same programs. The version that they report
is, as in a release, set by the linker. Go's caches make a second build, or one that was interrupted, short.
"""

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from clusters.local import versions
from clusters.local.binaries import put_in_place
from clusters.local.progress import Progress
from clusters.local.versions import Version

KUBERNETES: Final = "k8s.io/kubernetes"
ETCD: Final = "go.etcd.io/etcd/server/v3"
_MODULE: Final = "multimirror.dev/binaries"
_VERSION_PACKAGES: Final = ("k8s.io/client-go/pkg/version", "k8s.io/component-base/version")


class BuildError(Exception):
    """The Go toolchain failed; carries its last words."""


def kubernetes_go_mod(upstream: str, version: Version) -> str:
    """Pure: our go.mod, from that of `k8s.io/kubernetes`. Kubernetes 1.x.y publishes its staging modules as 0.x.y."""
    settings = re.findall(r"^(?:go|godebug) .+$", upstream, re.MULTILINE)
    staging = re.findall(r"^\s*(?:replace )?(\S+) => \./staging/", upstream, re.MULTILINE)
    if not staging:
        raise BuildError(f"{KUBERNETES} v{version} is not laid out as expected: no staging modules in its go.mod")
    replaced = [f"\t{module} => {module} v0.{version.minor}.{version.patch}" for module in staging]
    return "\n".join(
        [f"module {_MODULE}", *settings, f"require {KUBERNETES} v{version}", "replace (", *replaced, ")", ""]
    )


def etcd_go_mod(upstream: str) -> str:
    return plain_go_mod(ETCD, versions.ETCD, upstream)


def plain_go_mod(module: str, version: Version, upstream: str) -> str:
    """Pure: our go.mod for a module that replaces nothing."""
    settings = re.findall(r"^(?:go|godebug) .+$", upstream, re.MULTILINE)
    return "\n".join([f"module {_MODULE}", *settings, f"require {module} v{version}", ""])


def linker_flags(program: str, version: Version, built: str) -> str:
    """Pure: without symbols, with what `--version` and /version report. `archive` is Kubernetes' own word for a
    source tree that is not a git checkout."""
    if program == "etcd":
        return "-s -w"
    facts = {
        "gitVersion": f"v{version}",
        "gitMajor": str(version.major),
        "gitMinor": str(version.minor),
        "gitTreeState": "archive",
        "buildDate": built,
    }
    return " ".join(
        ["-s -w", *(f"-X {package}.{name}={value}" for package in _VERSION_PACKAGES for name, value in facts.items())]
    )


def package_of(program: str) -> str:
    return ETCD if program == "etcd" else f"{KUBERNETES}/cmd/{program}"


@dataclass(frozen=True, slots=True)
class GoToolchain:
    go: Path

    @classmethod
    def find(cls) -> "GoToolchain | None":
        found = shutil.which("go")
        return cls(Path(found)) if found else None

    def build(self, program: str, version: Version, target: Path, workspace: Path, progress: Progress) -> None:
        """The program at `target`, in one step: it is there whole or not at all."""
        module, module_version = (ETCD, versions.ETCD) if program == "etcd" else (KUBERNETES, version)
        directory = workspace / ("etcd" if program == "etcd" else "kubernetes")
        directory.mkdir(parents=True, exist_ok=True)
        progress.update(f"{program} {module_version}: fetching sources")
        published = self._module(module, module_version, directory)
        upstream = Path(published["GoMod"]).read_text()
        go_mod = etcd_go_mod(upstream) if program == "etcd" else kubernetes_go_mod(upstream, version)
        (directory / "go.mod").write_text(go_mod)
        (directory / "go.sum").write_bytes((Path(published["Dir"]) / "go.sum").read_bytes())  # upstream's own pins
        part = target.with_name(f".{program}.part")
        flags = linker_flags(program, version, _time_of(published))
        package = package_of(program)
        total = len(self._run(["list", "-deps", package], directory, f"{program}: cannot load its sources").split())
        self._compile(["-trimpath", "-ldflags", flags, "-o", str(part), package], directory, program, total, progress)
        put_in_place(part, target, version)

    def build_module(
        self,
        module: str,
        version: Version,
        package: str,
        part: Path,
        *,
        directory: Path,
        flags: str,
        progress: Progress,
    ) -> None:
        """A program of any published module; `flags` are the linker's."""
        directory.mkdir(parents=True, exist_ok=True)
        program = Path(package).name
        progress.update(f"{program} {version}: fetching sources")
        published = self._module(module, version, directory)
        (directory / "go.mod").write_text(plain_go_mod(module, version, Path(published["GoMod"]).read_text()))
        (directory / "go.sum").write_bytes((Path(published["Dir"]) / "go.sum").read_bytes())  # upstream's own pins
        path = f"{module}/{package}"
        total = len(self._run(["list", "-deps", path], directory, f"{program}: cannot load its sources").split())
        self._compile(["-trimpath", "-ldflags", flags, "-o", str(part), path], directory, program, total, progress)

    def _module(self, module: str, version: Version, directory: Path) -> dict[str, Any]:
        told = self._run(
            ["mod", "download", "-json", f"{module}@v{version}"], directory, f"{module} v{version} cannot be fetched"
        )
        published: dict[str, Any] = json.loads(told)
        return published

    def _compile(self, arguments: list[str], directory: Path, program: str, total: int, progress: Progress) -> None:
        nice = ["nice", "-n", "10"] if shutil.which("nice") else []
        words: list[str] = []
        done = 0
        with subprocess.Popen(  # noqa: S603 - the user's own toolchain
            [*nice, str(self.go), "build", "-v", *arguments],
            cwd=directory,
            env=_environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as build:
            assert build.stderr is not None
            for line in build.stderr:
                if re.fullmatch(r"[\w./~@+-]+\s*", line):  # a package name: compiled
                    done += 1
                    progress.update(f"{program}: compiled {done} of at most {total} packages")
                elif line.startswith("go: downloading "):
                    progress.update(f"{program}: {line.strip().removeprefix('go: ')}")
                else:
                    words = [*words[-19:], line.rstrip()]
        if build.returncode != 0:
            raise BuildError("\n".join([f"building {program} failed (exit code {build.returncode}):", *words]))

    def _run(self, arguments: list[str], directory: Path, trouble: str) -> str:
        done = subprocess.run(  # noqa: S603 - the user's own toolchain
            [self.go, *arguments], cwd=directory, env=_environment(), capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            told = (done.stderr.strip() or _error_in(done.stdout) or "no reason given").splitlines()[-10:]
            raise BuildError("\n".join([f"{trouble}:", *told]))
        return done.stdout


def _environment() -> dict[str, str]:
    """The user's own settings (proxy, checksum database, caches), but no workspace, vendoring or C of theirs."""
    return {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": "-mod=mod -buildvcs=false"}


def _error_in(told: str) -> str:
    try:
        return str(json.loads(told).get("Error", ""))
    except ValueError:
        return told


def _time_of(published: dict[str, Any]) -> str:
    """When the version was published, as its build date: the same sources then give the same binary."""
    try:
        return str(json.loads(Path(published["Info"]).read_text())["Time"])
    except (KeyError, ValueError, OSError):
        return "1970-01-01T00:00:00Z"
