"""What shows that we made a copy: a signature, with a key that only the management cluster has.

Labels can be written by anybody who may write Jobs on a worker, so they prove nothing. The signature says that *we*
meant to make exactly this object: for this original and attempt, on this cluster (by the uid of its kube-system
namespace, whatever its WorkerCluster is called), in this namespace, under this name. It cannot be made up, and moved
anywhere else it is wrong. It can be read, and put on another object in the very same place once ours is gone: against
that the original records the uid of its copy (COPY_UID_ANNOTATION), which an API server gives out once.

What carries our labels and no valid signature is foreign: it is not mirrored, changed, deleted or waited for.
"""

import hashlib
import hmac
import json
from dataclasses import dataclass, field
from typing import Final

from multimirror.api.names import ATTEMPT_LABEL, ORIGIN_LABEL, ORIGIN_UID_LABEL, SIGNATURE_LABEL
from multimirror.batch import Json
from multimirror.kube.resource import Resource

KEY_BYTES: Final = 32
"""Of a new key, and the fewest that are taken."""
_LENGTH: Final = 40
"""Of a signature, in hex digits: 160 bits. A label has room for 63 characters."""


@dataclass(frozen=True, slots=True)
class Signer:
    """Signs what one management cluster makes, and knows it again. Pure."""

    key: bytes = field(repr=False)
    origin: str
    """The identity of the management cluster."""

    def sign(self, resource: Resource, *, cluster: str, namespace: str, name: str, uid: str, attempt: str) -> str:
        """`cluster`: the identity of the worker. `uid`: of the original."""
        # As JSON: no two lists of texts look the same, whatever is in them.
        text = json.dumps([self.origin, cluster, resource.name, namespace, name, uid, attempt])
        return hmac.digest(self.key, text.encode(), hashlib.sha256).hex()[:_LENGTH]

    def signed(self, resource: Resource, cluster: str, obj: Json) -> bool:
        """Whether we signed this object of that cluster. Its metadata have to be sound: names and labels are texts."""
        metadata = obj["metadata"]
        labels = metadata.get("labels") or {}
        found, uid, attempt = labels.get(SIGNATURE_LABEL), labels.get(ORIGIN_UID_LABEL), labels.get(ATTEMPT_LABEL)
        if not found or not uid or not attempt or labels.get(ORIGIN_LABEL) != self.origin:
            return False
        wanted = self.sign(
            resource,
            cluster=cluster,
            namespace=metadata.get("namespace", ""),
            name=metadata["name"],
            uid=uid,
            attempt=attempt,
        )
        return hmac.compare_digest(found.encode(), wanted.encode())
