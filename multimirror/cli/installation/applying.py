"""Server-side apply of our own manifests: what changed, field by field, and what the server had to say about it."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from multimirror.batch import Json
from multimirror.cli import applying
from multimirror.cli.installation.wanting import KINDS
from multimirror.kube import Client
from multimirror.kube.errors import NotFound

FIELD_MANAGER: Final = "multimirror-install"
_SERVERS_OWN: Final = ("managedFields", "resourceVersion", "generation", "creationTimestamp", "uid")

Done = Literal["created", "configured", "unchanged", "deleted"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one object."""

    obj: Json
    done: Done
    fields: list[str] = field(default_factory=list)
    """What is different now."""
    warnings: list[str] = field(default_factory=list)
    checked: bool = True
    """False: not even a dry run was possible, because its namespace is not there yet."""


async def apply(client: Client, obj: Json, *, dry_run: bool = False) -> Outcome:
    """Bring one object to what it should be. Fields that we do not name stay as others have set them."""
    before = await find(client, obj)
    if before is not None and obj["kind"] == "Namespace":
        return Outcome(before, "unchanged")  # it may be anybody's: ours only when it has to be made
    try:
        after, told = await applying.apply(client, obj, manager=FIELD_MANAGER, dry_run=dry_run)
    except NotFound:
        if not dry_run or before is not None:
            raise
        return Outcome(obj, "created", checked=False)
    if before is None:
        return Outcome(after, "created", warnings=told)
    changed = sorted(differences(_meaning(before), _meaning(after)))
    return Outcome(after, "configured" if changed else "unchanged", changed, told)


async def find(client: Client, obj: Json) -> Json | None:
    """The object as it is there; None when it is not, or its kind is not served."""
    resource, metadata = KINDS[obj["kind"]], obj["metadata"]
    try:
        return await client.get(resource, metadata["name"], metadata.get("namespace"))
    except NotFound:
        return None


async def remove(client: Client, obj: Json, *, dry_run: bool = False) -> Outcome | None:
    """Delete one object; None when it is not there."""
    found = await find(client, obj)
    if found is None:
        return None
    metadata = found["metadata"]
    try:
        await client.delete(
            KINDS[obj["kind"]],
            metadata["name"],
            metadata.get("namespace"),
            propagation="Foreground",
            uid=metadata["uid"],
            dry_run=dry_run,
        )
    except NotFound:
        return None
    return Outcome(found, "deleted")


async def gone(client: Client, obj: Json) -> None:
    """Wait until an object that was deleted is not there any more."""
    while True:
        if await find(client, obj) is None:
            return
        await asyncio.sleep(0.25)  # a few looks; a watch of one object would be another right to ask for


def differences(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """The fields that are not the same, as people write them: `spec.replicas`, `rules[2].verbs`."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in before.keys() | after.keys():
            yield from differences(before.get(key), after.get(key), f"{path}.{key}" if path else key)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from differences(old, new, f"{path}[{index}]")
    elif before != after:
        yield path


def _meaning(obj: Json) -> Json:
    metadata = {key: value for key, value in obj["metadata"].items() if key not in _SERVERS_OWN}
    return {**{key: value for key, value in obj.items() if key != "status"}, "metadata": metadata}
