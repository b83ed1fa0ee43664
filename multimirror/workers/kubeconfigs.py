"""Where the kubeconfig of a worker comes from: a Secret in our own namespace, or a file in the one directory that the
operator allows (links that lead out of it are refused).

Files are followed too: a file that was replaced, or a directory of a mounted Secret that was swapped, is another file,
or has another time or size. Nothing is watched; whoever cares asks now and then (`changed`).

Of Secrets only what can be a kubeconfig is kept: in our namespace there are others, some of them large.
"""

import base64
import binascii
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from multimirror.api import SecretKey, WorkerClusterSpec
from multimirror.kube import Informer, Object
from multimirror.kube.kubeconfig import LARGEST
from multimirror.workers.addresses import joined_by
from multimirror.workers.tokens import JOINED_BY_ANNOTATION, OURS, REVOKE_ANNOTATION

_LARGEST_ENCODED: Final = (LARGEST + 2) // 3 * 4
_KEPT: Final = 2 * _LARGEST_ENCODED
"""Characters of one Secret; the smallest of its values first."""
_Fingerprint = tuple[str, int, int, int]


class KubeconfigMissing(Exception):  # noqa: N818 - the reason in the WorkerCluster's condition
    """There is none, or none that may be read. The text says what to do."""


def trim_secret(secret: Object) -> Object:
    """What may be a kubeconfig; of what is too large for one, or of another type, only that it is there."""
    metadata, data = secret["metadata"], secret.get("data") or {}
    kept: dict[str, str | None] = {}
    left = _KEPT if secret.get("type", "Opaque") == "Opaque" else 0
    sizes = {key: len(value) if isinstance(value, str) else 0 for key, value in data.items()}
    for key in sorted(sizes, key=sizes.__getitem__):
        fits = sizes[key] <= min(left, _LARGEST_ENCODED)
        kept[key] = data[key] if fits else None
        left -= sizes[key] if fits else 0
    names = ("name", "namespace", "uid", "resourceVersion")
    small = {key: metadata[key] for key in names if key in metadata}
    # Whose token it is to renew, and what to say about its address.
    for field, wanted in (("labels", OURS), ("annotations", {REVOKE_ANNOTATION, JOINED_BY_ANNOTATION})):
        found = {key: value for key, value in (metadata.get(field) or {}).items() if key in wanted}
        small |= {field: found} if found else {}
    return {"metadata": small, "data": kept}


class Kubeconfigs:
    """Reads kubeconfigs, and knows which files have changed since."""

    def __init__(self, secrets: Informer, namespace: str, directory: Path | None) -> None:
        self._secrets, self._namespace, self._directory = secrets, namespace, directory
        self._read: dict[str, _Fingerprint | None] = {}  # file: what it was when it was read

    def read(self, spec: WorkerClusterSpec) -> bytes:
        """What a WorkerCluster names. Raises KubeconfigMissing."""
        if spec.path is not None:
            self._read[spec.path] = self._fingerprint(spec.path)  # first: a change while it is read is seen later
            return self._from_file(spec.path)
        assert spec.secret is not None, "one of both is set"
        return self._from_secret(spec.secret)

    def joined_by(self, spec: WorkerClusterSpec) -> str:
        """The address by which people reach a worker, as join has recorded it; empty: nobody has."""
        if spec.secret is None:
            return ""
        return joined_by(self._secrets.get(f"{self._namespace}/{spec.secret.name}"))

    def changed(self, specs: Mapping[str, WorkerClusterSpec]) -> set[str]:
        """The names of those whose file is another one than the one that was read."""
        self._read = {spec.path: self._read.get(spec.path) for spec in specs.values() if spec.path is not None}
        changed = {path for path, before in self._read.items() if self._fingerprint(path) != before}
        return {name for name, spec in specs.items() if spec.path in changed}

    def _from_secret(self, reference: SecretKey) -> bytes:
        where = f"Secret {self._namespace}/{reference.name}"
        secret = self._secrets.get(f"{self._namespace}/{reference.name}")
        if secret is None:
            raise KubeconfigMissing(f"there is no {where}")
        data = secret.get("data") or {}
        if reference.key not in data:
            raise KubeconfigMissing(f"{where} has no key {reference.key!r}")
        value = data[reference.key]
        if value is None:
            raise KubeconfigMissing(f"{where}: key {reference.key!r} is larger than {LARGEST // 1024} KiB")
        try:
            return base64.b64decode(value, validate=True)
        except binascii.Error as error:
            raise KubeconfigMissing(f"{where}: key {reference.key!r} is not base64") from error

    def _from_file(self, path: str) -> bytes:
        directory = self._directory
        if directory is None:
            raise KubeconfigMissing(
                "kubeconfigs in files are not allowed; start with --kubeconfig-directory, or use a Secret"
            )
        try:
            found = (directory / path).resolve()
            if not found.is_relative_to(directory.resolve()):
                raise KubeconfigMissing(f"{path!r} leads out of the directory that is allowed")
            if found.exists() and not found.is_file():
                raise KubeconfigMissing(f"{path!r} is no file")
            with found.open("rb") as file:
                content = file.read(LARGEST + 1)
        except OSError as error:
            raise KubeconfigMissing(f"{path!r} cannot be read: {error.strerror}") from error
        except (RuntimeError, ValueError) as error:  # links that go round in circles; a name that no file can have
            raise KubeconfigMissing(f"{path!r} cannot be read") from error
        if len(content) > LARGEST:
            raise KubeconfigMissing(f"{path!r} is larger than {LARGEST // 1024} KiB")
        return content

    def _fingerprint(self, path: str) -> _Fingerprint | None:
        """Changes when the file does; None while it cannot be seen."""
        if self._directory is None:
            return None
        try:
            found = (self._directory / path).resolve()
            stat = found.stat()
        except (OSError, RuntimeError, ValueError):
            return None
        return str(found), stat.st_ino, stat.st_mtime_ns, stat.st_size
