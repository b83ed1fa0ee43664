"""Binaries from the official releases: resumable downloads, used only when the published SHA-256 agrees."""

import contextlib
import hashlib
import platform
import sys
import tarfile
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Final

from clusters.local import versions
from clusters.local.binaries import put_in_place
from clusters.local.progress import Progress
from clusters.local.versions import Version

KUBERNETES_URL: Final = "https://dl.k8s.io/release"
ETCD_URL: Final = "https://github.com/etcd-io/etcd/releases/download"
_TRIES: Final = 3
_SECONDS: Final = 30.0
_PIECE: Final = 1 << 18


class ReleaseUnavailableError(Exception):
    """The site is out of reach, or has no such file for this platform: another way may still be open."""


class ChecksumError(Exception):
    """What was downloaded is not what was published. Never used, and no reason to try another way silently."""


@dataclass(frozen=True, slots=True)
class Release:
    """Where the releases are; both addresses may be those of a mirror with the same layout."""

    kubernetes_url: str = KUBERNETES_URL
    etcd_url: str = ETCD_URL
    system: str = sys.platform
    machine: str = platform.machine()

    @property
    def platform(self) -> str:
        machines = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
        return f"{self.system}/{machines.get(self.machine.lower(), self.machine)}"

    def url(self, program: str, version: Version) -> str:
        if program == "etcd":
            archive = f"etcd-v{versions.ETCD}-{self.platform.replace('/', '-')}.tar.gz"
            return f"{self.etcd_url}/v{versions.ETCD}/{archive}"
        return f"{self.kubernetes_url}/v{version}/bin/{self.platform}/{program}"

    def checksum_url(self, program: str, version: Version) -> str:
        if program == "etcd":
            return f"{self.etcd_url}/v{versions.ETCD}/SHA256SUMS"
        return f"{self.url(program, version)}.sha256"

    def fetch(self, program: str, version: Version, target: Path, progress: Progress) -> None:
        """The program at `target`, executable, in one step: it is there whole or not at all."""
        url = self.url(program, version)
        expected = checksum_in(_read(self.checksum_url(program, version)), url.rpartition("/")[2])
        part = target.with_name(f".{program}.download")
        _download(url, part, progress, f"{program} {version}")
        found = _sha256(part)
        if found != expected:
            part.unlink()
            raise ChecksumError(
                f"{url}: SHA-256 is {found}, published is {expected}. The file was removed; try again, and if it "
                "stays so, do not trust the site (or mirror)"
            )
        if program == "etcd":
            whole = target.with_name(f".{program}.part")
            _extract_etcd(part, whole)
            part.unlink()
        else:
            whole = part
        put_in_place(whole, target, version)


def checksum_in(published: bytes, file: str) -> str:
    """From a bare checksum, or from a list of `checksum  file` lines."""
    lines = [line.split() for line in published.decode(errors="replace").splitlines() if line.strip()]
    if len(lines) == 1 and len(lines[0]) == 1:
        return lines[0][0].lower()
    for words in lines:
        if len(words) == 2 and words[1].lstrip("*") == file:
            return words[0].lower()
    raise ReleaseUnavailableError(f"no checksum is published for {file}")


def _open(url: str, offset: int = 0) -> HTTPResponse:
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise ReleaseUnavailableError(f"{url}: only http and https addresses are understood")
    headers = {"Range": f"bytes={offset}-"} if offset else {}
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - the scheme is checked above
    try:
        answer: HTTPResponse = urllib.request.urlopen(request, timeout=_SECONDS)  # noqa: S310
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416:  # what we have is not a beginning of what is there
            raise
        raise ReleaseUnavailableError(f"{url} answers {error.code} {error.reason}") from error
    except urllib.error.URLError as error:
        raise ReleaseUnavailableError(f"{url}: {error.reason}") from error
    return answer


def _read(url: str) -> bytes:
    try:
        with _open(url) as answer:
            return answer.read()
    except (OSError, HTTPException) as error:
        raise ReleaseUnavailableError(f"{url}: {error}") from error


def _download(url: str, part: Path, progress: Progress, name: str) -> None:
    """Go on where an earlier try, or an earlier run, stopped."""
    for attempt in range(1, _TRIES + 1):
        try:
            _download_rest(url, part, progress, name)
        except (OSError, HTTPException) as error:
            if isinstance(error, urllib.error.HTTPError):
                part.unlink(missing_ok=True)
            if attempt == _TRIES:
                raise ReleaseUnavailableError(f"{url}: {error}") from error
            progress.note(f"{name}: {error}; going on")
        else:
            return


def _download_rest(url: str, part: Path, progress: Progress, name: str) -> None:
    have = part.stat().st_size if part.exists() else 0
    with contextlib.closing(_open(url, have)) as answer:
        if answer.status != 206:
            have = 0  # this server knows no ranges
        total = have + int(answer.headers.get("Content-Length", 0))
        with part.open("ab" if have else "wb") as file:
            while piece := answer.read(_PIECE):
                file.write(piece)
                have += len(piece)
                progress.update(f"{name}: {have >> 20} of {total >> 20} MB")
    if have < total:
        raise ConnectionError(f"the connection ended after {have} of {total} bytes")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _extract_etcd(archive: Path, target: Path) -> None:
    with tarfile.open(archive) as tar:
        for member in tar:
            if member.isfile() and Path(member.name).name == "etcd" and (source := tar.extractfile(member)):
                with source, target.open("wb") as file:
                    while piece := source.read(_PIECE):
                        file.write(piece)
                return
    raise ReleaseUnavailableError(f"{archive.name} has no etcd in it")
