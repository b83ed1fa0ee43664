"""The key that copies are signed with: in a Secret of our own namespace, made by whoever needs it first.

Two that start at once make one: the second is told that it is there, and reads it. A key that cannot be used is not
replaced: with another one every copy there is would be somebody else's, and what it is a copy of be run a second time.
For the same reason none is made while something runs on a worker: then there was one, or those copies were made by a
version that did not sign them.
"""

import base64
import binascii
import secrets
from contextlib import aclosing
from typing import Final

from multimirror.api.ownership import KEY_BYTES
from multimirror.api.placement import cluster_of, copy_uid_of
from multimirror.kinds import KINDS, Kind
from multimirror.kube import Client, KubeError, Object, key_of
from multimirror.kube.errors import AlreadyExists, NotFound
from multimirror.kube.resources import SECRETS

COPY_KEY_NAME: Final = "multimirror-copies"
_FIELD: Final = "key"
_PAGE: Final = 500
_LABELS: Final = {"app.kubernetes.io/name": "multimirror", "app.kubernetes.io/part-of": "multimirror"}


class CopyKeyError(KubeError):
    """There is a Secret, and no key in it that can be used; or there is none, and there ought to be."""


async def find_copy_key(client: Client, namespace: str) -> bytes | None:
    """The key; None where nobody has needed one yet. Raises CopyKeyError."""
    try:
        return _read(await client.get(SECRETS, COPY_KEY_NAME, namespace), namespace)
    except NotFound:
        return None


async def copy_key(client: Client, namespace: str, *, managed_by: str | None = None) -> bytes:
    """The key, made if there is none. Raises CopyKeyError, also where objects of that manager run without one."""
    found = await find_copy_key(client, namespace)
    if found is not None:
        return found
    if managed_by is not None:
        for kind in KINDS:
            await _refuse_if_running(client, kind, managed_by, namespace)
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


async def _refuse_if_running(client: Client, kind: Kind, managed_by: str, namespace: str) -> None:
    async with aclosing(client.pages(kind.resource, limit=_PAGE)) as pages:
        async for page in pages:
            for obj in page.items:
                if kind.managed_by(obj) == managed_by and _runs_there(kind, obj):
                    raise CopyKeyError(
                        f"there is no Secret {COPY_KEY_NAME} in namespace {namespace}, with the key that copies are "
                        f"signed with, and {kind.resource.kind} {key_of(obj)} runs on worker {cluster_of(obj)}: with a "
                        "new key its copy there would not be known, and it would be run a second time. Put the Secret "
                        "back; or, after a version that did not sign copies, let what runs come to its end first. "
                        f"Whoever makes a Secret with {KEY_BYTES} random bytes under {_FIELD!r} lets it be run again"
                    )


def _runs_there(kind: Kind, obj: Object) -> bool:
    """It has a copy, as far as it says itself."""
    has_copy = kind.has_started(obj) or copy_uid_of(obj) is not None
    return cluster_of(obj) is not None and has_copy and not kind.outcome(obj).finished


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
