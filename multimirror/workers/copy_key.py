"""The key that copies are signed with: in a Secret of our own namespace, made by whoever needs it first.

Two that start at once make one: the second is told that it is there, and reads it. A key that cannot be used is not
replaced: with another one every copy there is would be somebody else's.
"""

import base64
import binascii
import secrets
from typing import Final

from multimirror.api.ownership import KEY_BYTES
from multimirror.kube import Client, KubeError, Object
from multimirror.kube.errors import AlreadyExists, NotFound
from multimirror.kube.resources import SECRETS

COPY_KEY_NAME: Final = "multimirror-copies"
_FIELD: Final = "key"
_LABELS: Final = {"app.kubernetes.io/name": "multimirror", "app.kubernetes.io/part-of": "multimirror"}


class CopyKeyError(KubeError):
    """There is a Secret, and no key in it that can be used."""


async def find_copy_key(client: Client, namespace: str) -> bytes | None:
    """The key; None where nobody has needed one yet. Raises CopyKeyError."""
    try:
        return _read(await client.get(SECRETS, COPY_KEY_NAME, namespace), namespace)
    except NotFound:
        return None


async def copy_key(client: Client, namespace: str) -> bytes:
    """The key, made if there is none. Raises CopyKeyError."""
    found = await find_copy_key(client, namespace)
    if found is not None:
        return found
    key = secrets.token_bytes(KEY_BYTES)
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": COPY_KEY_NAME, "namespace": namespace, "labels": _LABELS},
        "type": "Opaque",
        "immutable": True,
        "data": {_FIELD: base64.b64encode(key).decode()},
    }
    try:
        await client.create(SECRETS, secret, namespace)
    except AlreadyExists:
        return _read(await client.get(SECRETS, COPY_KEY_NAME, namespace), namespace)
    return key


def _read(secret: Object, namespace: str) -> bytes:
    data = secret.get("data")
    text = data.get(_FIELD) if isinstance(data, dict) else None
    try:
        key = base64.b64decode(text, validate=True) if isinstance(text, str) else b""
    except (binascii.Error, ValueError):
        key = b""
    if len(key) < KEY_BYTES:
        raise CopyKeyError(
            f"Secret {COPY_KEY_NAME} in namespace {namespace} has no key of at least {KEY_BYTES} bytes under "
            f"{_FIELD!r}: copies are signed with it. Put back what was there; or, when no Job is on a worker, delete "
            "the Secret, and a new one is made"
        )
    return key
