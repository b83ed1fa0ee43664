"""Our image for tests on real clusters: built from the Dockerfile, and built again only when something in it changed.

Its tag is a hash of all that goes into it (what the Dockerfile copies, and the base), so that whoever finds the tag has
the image. The base is the one that MULTIMIRROR_BASE_IMAGE names, else the Dockerfile's where it is here or can be
pulled, else one of Debian's packages (clusters.kind.base_image).
"""

import asyncio
import contextlib
import fcntl
import hashlib
import os
import re
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Final

from clusters.kind.base_image import BASE_IMAGE, make_base_image
from clusters.kind.commands import CommandError, NotPossibleError, has_image, run
from clusters.kind.records import root as records_root

BASE_VARIABLE: Final = "MULTIMIRROR_BASE_IMAGE"
_PIP_SETTINGS: Final = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST", "PIP_DEFAULT_TIMEOUT")
_SECONDS: Final = 1800.0


async def image_for_tests(root: Path, tell: Callable[[str], None] = lambda _: None) -> str:
    """Its name, for `kind load` and `multimirror install --image`. `root`: where the Dockerfile is."""
    dockerfile = (root / "Dockerfile").read_text()
    async with _one_at_a_time():
        base = await _base(dockerfile, tell)
        identity = (await run("docker", "image", "inspect", "--format", "{{.Id}}", base)).strip()
        name = f"multimirror:test-{fingerprint(root, dockerfile, identity)}"
        if not await has_image(name):
            tell(f"building the image {name} from {base}")
            settings = [part for key in _PIP_SETTINGS if os.environ.get(key) for part in ("--build-arg", key)]
            given = ("--build-arg", f"BASE={base}", *settings)
            await run("docker", "build", "--quiet", *given, "--tag", name, str(root), seconds=_SECONDS)
        return name


async def _base(dockerfile: str, tell: Callable[[str], None]) -> str:
    chosen = os.environ.get(BASE_VARIABLE)
    pinned = _found(r"^ARG BASE=(\S+)$", dockerfile)[0]
    if chosen and not await has_image(chosen):
        await _pull(chosen, f"{BASE_VARIABLE} names {chosen}, which is not in this Docker and cannot be pulled")
    if chosen:
        return chosen
    for name in (pinned, BASE_IMAGE):  # what is here is taken before anything is fetched
        if await has_image(name):
            return name
    tell(f"pulling {pinned}")
    try:
        await _pull(pinned, f"the base image {pinned} cannot be pulled")
    except NotPossibleError as cannot:
        tell(str(cannot))
        try:
            return await make_base_image(tell=tell)
        except NotPossibleError as error:
            raise NotPossibleError(f"{cannot}, and {error}. Or name another in {BASE_VARIABLE}") from error
    return pinned


async def _pull(name: str, otherwise: str) -> None:
    try:
        await run("docker", "pull", "--quiet", name, seconds=_SECONDS)
    except CommandError as error:
        raise NotPossibleError(f"{otherwise} ({str(error).splitlines()[-1]})") from error


def fingerprint(root: Path, dockerfile: str, base: str) -> str:
    """Of all that the image is made of."""
    summed = hashlib.sha256(f"{base}\n{dockerfile}".encode())
    for path in sorted(_copied(root, dockerfile)):
        content = path.read_bytes()
        summed.update(f"\n{path.relative_to(root)} {path.stat().st_mode & 0o111:o} {len(content)}\n".encode())
        summed.update(content)
    return summed.hexdigest()[:12]


def _copied(root: Path, dockerfile: str) -> Iterator[Path]:
    for line in _found(r"^COPY (?!--from)(.+) \S+$", dockerfile):
        for name in line.split():
            found = [root / name] if (root / name).is_file() else (root / name).rglob("*")
            yield from (path for path in found if path.is_file() and "__pycache__" not in path.parts)


def _found(pattern: str, dockerfile: str) -> list[str]:
    return re.findall(pattern, dockerfile, re.MULTILINE)


@contextlib.asynccontextmanager
async def _one_at_a_time() -> AsyncIterator[None]:
    """Of this user's test processes one builds, and the others find what it built."""
    path = records_root() / ".image.lock"  # in a directory of everybody's, another user could hold it for ever
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        while not _locked(descriptor):  # noqa: ASYNC110 - the lock of another process cannot be awaited
            await asyncio.sleep(0.2)
        yield
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
