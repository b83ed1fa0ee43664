"""A base for our image out of Debian's packages, for where the one that the Dockerfile names cannot be pulled.

Debian 13 (trixie), whose Python is that of the lock files, with the authorities that this host trusts. For tests: it is
named by no digest and follows no security updates.
"""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from clusters.kind.commands import NotPossibleError, run

BASE_IMAGE: Final = "multimirror-base:trixie"
_SUITE: Final = "trixie"
_PACKAGES: Final = ("ca-certificates", "python3", "python3-venv")
_SUPERFLUOUS: Final = (
    *("usr/share/doc", "usr/share/info", "usr/share/locale", "usr/share/man"),
    *("var/cache/apt", "var/lib/apt/lists", "var/log"),
)
_OF_THIS_HOST: Final = ("etc/hostname", "etc/resolv.conf")  # debootstrap copies them
_AUTHORITIES: Final = "etc/ssl/certs/ca-certificates.crt"
_SECONDS: Final = 1800.0


async def make_base_image(
    name: str = BASE_IMAGE, *, mirror: str | None = None, tell: Callable[[str], None] = lambda _: None
) -> str:
    """Its name. NotPossibleError says what is missing."""
    missing = problems(is_root=os.geteuid() == 0, which=shutil.which)
    if missing:
        raise NotPossibleError(f"no base image can be made of Debian's packages: {'; '.join(missing)}")
    tell(f"making the base image {name} of Debian's packages (some minutes)")
    with tempfile.TemporaryDirectory(prefix="multimirror-base-") as scratch:
        root, archive = Path(scratch, "root"), Path(scratch, "root.tar")
        await run(
            # In a mount namespace of its own: what debootstrap mounts goes with it, however it ends.
            *("unshare", "--mount", "debootstrap", "--variant=minbase", f"--include={','.join(_PACKAGES)}"),
            *(_SUITE, str(root), *([mirror] if mirror else [])),
            seconds=_SECONDS,
        )
        _tidy(root)
        await run("tar", "-C", str(root), "-cf", str(archive), ".", seconds=_SECONDS)
        changes = [f"--change=ENV {each}" for each in ("PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8")]
        await run("docker", "import", *changes, "--change=CMD python", str(archive), name, seconds=_SECONDS)
    return name


def problems(*, is_root: bool, which: Callable[[str], str | None]) -> list[str]:
    """What keeps a base from being made, in the order in which one would mend it. Pure but for `which`."""
    found = []
    if not is_root:
        found.append("this needs root")
    if which("debootstrap") is None:
        found.append("`debootstrap` is not in PATH: install it (Debian, Ubuntu: apt install debootstrap)")
    if which("docker") is None:
        found.append("`docker` is not in PATH: install Docker")
    return found


def _tidy(root: Path) -> None:
    """Small, nothing of this host but whom it trusts, and Python called as in the other base."""
    for name in _SUPERFLUOUS:
        shutil.rmtree(root / name, ignore_errors=True)
        (root / name).mkdir(parents=True)
    for name in _OF_THIS_HOST:
        (root / name).unlink(missing_ok=True)
    trusted = Path(os.environ.get("SSL_CERT_FILE") or f"/{_AUTHORITIES}")
    with contextlib.suppress(FileNotFoundError):  # then those of Debian it is
        (root / _AUTHORITIES).write_bytes(trusted.read_bytes())
    (root / "usr/bin/python").symlink_to("python3")
