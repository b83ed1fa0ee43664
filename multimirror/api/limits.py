"""How large an object may be that asks for a queue. One rule, for admission (which refuses it) and for the dispatcher
(which does not place what came in all the same).

What counts is what its user wrote: metadata and spec as compact JSON, without managedFields and status.
"""

from typing import Final

import orjson

from multimirror.batch import Json

MAX_JOB_BYTES: Final = 256 * 1024
"""Where the operator says nothing else. etcd takes 1.5 MiB; a Job of a person's making has a few KiB."""


def size_of(obj: Json) -> int:
    """What counts of an object, in bytes."""
    metadata = {key: value for key, value in (obj.get("metadata") or {}).items() if key != "managedFields"}
    return len(orjson.dumps({"metadata": metadata, "spec": obj.get("spec")}))


def too_large(kind: str, size: int, limit: int) -> str:
    """In words, where it is; nothing where it is not."""
    if size <= limit:
        return ""
    return f"this {kind} has {_kib(size)} of metadata and spec, more than the {_kib(limit)} that may be placed"


def _kib(size: int) -> str:
    return f"{size / 1024:.0f} KiB" if size >= 1024 else f"{size} bytes"
