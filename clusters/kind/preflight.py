"""Everything that would make kind fail half-way, found before anything is created.

`gather` asks docker and kind; `problems` decides, from the answers alone.
"""

import asyncio
import contextlib
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from clusters.kind.commands import CommandError, NotPossibleError, has_image, run
from clusters.kind.node_image import present_images
from clusters.kind.records import has_network
from clusters.local.versions import Version

MEMORY_PER_CLUSTER: Final = 1 << 30
MEMORY_BESIDES: Final = 1 << 30
INOTIFY_PER_CLUSTER: Final = 25
INOTIFY: Final = Path("/proc/sys/fs/inotify")
ENOUGH_INSTANCES: Final = 512
ENOUGH_WATCHES: Final = 524_288
"""What kind itself advises, for several clusters and what runs on them: systemd and every kubelet watch files."""
OLDEST_KIND: Final = Version(0, 32, 0)  # the first that knows Kubernetes 1.36 and its kubeadm configuration


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known about this machine; a None means that nobody could be asked."""

    docker_found: bool = False
    docker_error: str | None = None
    memory: int | None = None
    kind_found: bool = False
    kind_version: Version | None = None
    existing: Sequence[str] = ()
    missing_images: Sequence[str] = ()
    present_images: Sequence[str] = ()
    inotify_instances: int | None = None
    """How many of them one user may have."""
    inotify_watches: int | None = None
    """The same."""
    has_network: bool = False
    """kind's own."""


def problems(facts: Facts, names: Sequence[str], *, keep: bool = False) -> list[str]:
    """In the order in which one would mend them; empty when nothing stands in the way."""
    found = []
    if not facts.docker_found:
        found.append("`docker` is not in PATH: install Docker (https://docs.docker.com/engine/install/)")
    elif facts.docker_error is not None:
        found.append(
            f"the Docker engine does not answer ({facts.docker_error}): start it, or set DOCKER_HOST, and see that "
            "this user may use it"
        )
    if not facts.kind_found:
        found.append("`kind` is not in PATH: install kind (https://kind.sigs.k8s.io/docs/user/quick-start/)")
    elif facts.kind_version is not None and facts.kind_version < OLDEST_KIND:
        found.append(f"kind {facts.kind_version} is too old: install {OLDEST_KIND} or newer")
    needed = MEMORY_PER_CLUSTER * len(names) + MEMORY_BESIDES
    if facts.memory is not None and facts.memory < needed:
        found.append(
            f"Docker has {_gib(facts.memory)} GiB of memory, {len(names)} clusters need {_gib(needed)}: give it more, "
            "or ask for fewer workers"
        )
    clusters = len({*names, *facts.existing})
    if facts.inotify_instances is not None and facts.inotify_instances < INOTIFY_PER_CLUSTER * clusters:
        found.append(
            f"the kernel allows {facts.inotify_instances} inotify instances, {clusters} clusters (with those that are "
            f"there) need {INOTIFY_PER_CLUSTER * clusters}: sysctl -w fs.inotify.max_user_instances=1024"
        )
    taken = [name for name in names if name in facts.existing]
    if taken and not keep:
        found.append(
            f"kind clusters {', '.join(taken)} are there already: delete them (kind delete clusters "
            f"{' '.join(taken)}), use them (keep=True), or choose another prefix"
        )
    found += [f"image {image} is not in this Docker: build or pull it first" for image in facts.missing_images]
    return found


def warnings(facts: Facts) -> list[str]:
    """What is no obstacle yet, and becomes one with more clusters or more pods."""
    limits = (
        ("fs.inotify.max_user_instances", facts.inotify_instances, ENOUGH_INSTANCES),
        ("fs.inotify.max_user_watches", facts.inotify_watches, ENOUGH_WATCHES),
    )
    low = [(name, value, enough) for name, value, enough in limits if value is not None and value < enough]
    if not low:
        return []
    now = " and ".join(f"{name} is {value}" for name, value, _ in low)
    remedy = " ".join(f"{name}={enough}" for name, _, enough in low)
    return [
        f"warning: {now}, and several clusters may run out of it ('too many open files' in the logs of kubelets and "
        f"pods): sysctl -w {remedy}"
    ]


async def gather(images: Sequence[str] = ()) -> Facts:
    docker_found, kind_found = shutil.which("docker") is not None, shutil.which("kind") is not None
    docker_error, memory, kind_version = None, None, None
    existing: list[str] = []
    missing: list[str] = []
    present: list[str] = []
    network = False
    if docker_found:
        try:
            told = json.loads(await run("docker", "info", "--format", "{{json .}}", seconds=30))
            errors = told.get("ServerErrors") or []
            docker_error = "; ".join(errors) or None
            memory = told.get("MemTotal") or None
        except (CommandError, ValueError) as error:
            docker_error = _one_line(error)
    if kind_found:
        try:
            kind_version = Version.parse(await run("kind", "version", seconds=30))
        except CommandError as error:
            raise NotPossibleError(f"`kind version` failed: {_one_line(error)}") from error
    if docker_found and docker_error is None:
        if kind_found:
            existing = (await run("kind", "get", "clusters", seconds=60)).split()
        checks = await asyncio.gather(*(has_image(image) for image in images))
        missing = [image for image, there in zip(images, checks, strict=True) if not there]
        present, network = await asyncio.gather(present_images(), has_network())
    return Facts(
        docker_found=docker_found,
        docker_error=docker_error,
        memory=memory,
        kind_found=kind_found,
        kind_version=kind_version,
        existing=existing,
        missing_images=missing,
        present_images=present,
        inotify_instances=_inotify("max_user_instances") if docker_found else None,
        inotify_watches=_inotify("max_user_watches") if docker_found else None,
        has_network=network,
    )


def _inotify(limit: str) -> int | None:
    """None where the clusters would not be on this kernel."""
    if os.environ.get("DOCKER_HOST", "unix:").startswith("unix:"):
        with contextlib.suppress(OSError, ValueError):
            return int((INOTIFY / limit).read_text())
    return None


def _one_line(error: Exception) -> str:
    return str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f}"
