"""The webhook's authority: made by whoever installs, stored for the webhook to read, and named in its registration.

It is kept for as long as it lives: a second run finds it. One that ends within a year is replaced; then the
registration names both, so that replicas may change over when they see it. A Secret that holds a certificate instead of
an authority is somebody else's (cert-manager, an operator's own), and so is the bundle in the registration: both are
left alone.
"""

import base64
import copy
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from multimirror.admission.certificates import KeyPair, new_authority
from multimirror.batch import Json
from multimirror.cli.admission import AUTHORITY
from multimirror.cli.apply import find
from multimirror.cli.installation.objects import PART_OF
from multimirror.kube import Client

_LEFT: Final = timedelta(days=365)
_REGISTRATION: Final = "MutatingWebhookConfiguration"


async def with_authority(client: Client, wanted: Sequence[Json], namespace: str, now: datetime) -> list[Json]:
    """What is wanted, with the authority put in where there is a webhook."""
    if not any(obj["kind"] == _REGISTRATION for obj in wanted):
        return list(wanted)
    found = await find(client, authority(namespace))
    stored = KeyPair.read(found.get("data")) if found is not None else None
    if stored is not None and not stored.is_authority:
        return list(wanted)
    if stored is not None and stored.ends - now > _LEFT:
        return put_in(wanted, stored, namespace)
    old = stored.certificate if stored is not None and stored.ends > now else b""
    return put_in(wanted, new_authority(now), namespace, more=old)


def with_new_authority(wanted: Sequence[Json], namespace: str) -> list[Json]:
    """The same where no cluster is asked: for a file that is applied later, by somebody else."""
    if not any(obj["kind"] == _REGISTRATION for obj in wanted):
        return list(wanted)
    return put_in(wanted, new_authority(datetime.now(UTC)), namespace)


def put_in(wanted: Sequence[Json], pair: KeyPair, namespace: str, *, more: bytes = b"") -> list[Json]:
    """The Secret before whoever reads it, and whom to trust in the registration. Pure."""
    result = []
    for obj in wanted:
        if obj["kind"] == _REGISTRATION:
            obj = copy.deepcopy(obj)  # noqa: PLW2901 - the same, filled in
            bundle = base64.b64encode(pair.certificate + more).decode()
            for webhook in obj["webhooks"]:
                webhook["clientConfig"]["caBundle"] = bundle
        result.append(obj)
    place = next((n + 1 for n, obj in reversed(list(enumerate(result))) if obj["kind"] in _FIRST), 0)
    return [*result[:place], authority(namespace, pair), *result[place:]]


_FIRST: Final = ("Namespace", "CustomResourceDefinition")


def authority(namespace: str, pair: KeyPair | None = None) -> Json:
    """The Secret; without an authority, for those who only look for it."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": AUTHORITY, "namespace": namespace, "labels": {PART_OF: "multimirror"}},
        "data": pair.data() if pair is not None else {},
    }
