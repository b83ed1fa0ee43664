"""Names that the server makes up, and the objects' metadata: what is filled in, what cannot be changed.

What is wrong with names, labels and metadata is judged by clusters.jobapi, which has the rules for every kind.
"""

import secrets
from typing import Final

from clusters.embedded.store import Object

_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
_SERVERS_OWN: Final = ("creationTimestamp", "generation", "generateName")
_FILLED_IN: Final = ("uid", "deletionTimestamp", "deletionGracePeriodSeconds")
_KEY_ORDER: Final = ("kind", "apiVersion", "metadata")


def generate_name(base: str) -> str:
    """A name from `generateName`: cut so that five random letters fit."""
    return base[:58] + "".join(secrets.choice(_ALPHABET) for _ in range(5))


def ordered(obj: Object) -> Object:
    """The object with its type first, as its stored bytes must begin, and its status last."""
    arranged: Object = {key: obj[key] for key in _KEY_ORDER if key in obj}
    arranged.update((key, value) for key, value in obj.items() if key not in arranged and key != "status")
    if "status" in obj:
        arranged["status"] = obj["status"]
    return arranged


def prepare_create(obj: Object, *, uid: str, now: str, generation: bool) -> None:
    """Identity and birth."""
    metadata = obj["metadata"]
    for key in ("resourceVersion", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds"):
        metadata.pop(key, None)
    metadata["uid"] = uid
    metadata["creationTimestamp"] = now
    if generation:
        metadata["generation"] = 1
    else:
        metadata.pop("generation", None)


def prepare_update(new: Object, old: Object) -> None:
    """What a client cannot change stays as it was."""
    fresh, stored = new["metadata"], old["metadata"]
    fresh.pop("selfLink", None)
    for key in _SERVERS_OWN:
        if key in stored:
            fresh[key] = stored[key]
        else:
            fresh.pop(key, None)
    for key in _FILLED_IN:  # left out is as it was; changed is an error
        if key in stored:
            fresh.setdefault(key, stored[key])
    fresh["resourceVersion"] = stored["resourceVersion"]
