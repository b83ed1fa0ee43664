"""Server-side apply of manifests: safe to repeat, and fields that others own on the same objects stay theirs.

`apply` writes and looks at nothing before; `apply_and_compare` also says what changed, field by field.
"""

import asyncio
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import orjson

from multimirror.api import COHORTS, MIRROR_QUEUES, WORKER_CLUSTERS
from multimirror.batch import Json
from multimirror.kube import Client, Resource, resources
from multimirror.kube.errors import NotFound

FIELD_MANAGER: Final = "multimirror-cli"
INSTALL_FIELD_MANAGER: Final = "multimirror-install"
_WARNING: Final = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')
_SET_BY_SERVER: Final = ("managedFields", "resourceVersion", "generation", "creationTimestamp", "uid")
_POLL_SECONDS: Final = 0.25
_BY_KIND: Final[dict[tuple[str, str], Resource]] = {
    (each.api_version, each.kind): each
    for each in (*vars(resources).values(), COHORTS, MIRROR_QUEUES, WORKER_CLUSTERS)
    if isinstance(each, Resource)
}

Operation = Literal["created", "configured", "unchanged", "deleted"]


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """What became of one object."""

    obj: Json
    operation: Operation
    fields: list[str] = field(default_factory=list)
    """What is different now."""
    warnings: list[str] = field(default_factory=list)
    checked: bool = True
    """False: not even a dry run was possible, because its namespace is not there yet."""


def resource_of(document: Json) -> Resource:
    """Raises ValueError for a kind that no manifest of ours has."""
    try:
        return _BY_KIND[document["apiVersion"], document["kind"]]
    except KeyError:
        raise ValueError(f"{document.get('kind')} ({document.get('apiVersion')}) is no kind that we apply") from None


async def apply(
    client: Client,
    document: Json,
    namespace: str | None = None,
    *,
    manager: str = FIELD_MANAGER,
    dry_run: bool = False,
) -> tuple[Json, list[str]]:
    """The object as it is now, and what the server warns of. `namespace` is for a document that names none."""
    response = await client.request(
        "PATCH",
        resource_of(document).path(_namespace_of(document, namespace), document["metadata"]["name"]),
        {
            "fieldManager": manager,
            "force": True,
            "fieldValidation": "Strict",
            "dryRun": "All" if dry_run else None,
        },
        body=document,
        headers={"Content-Type": "application/apply-patch+yaml"},
    )
    warnings = [text.replace('\\"', '"') for text in _WARNING.findall(response.headers.get("warning", ""))]
    return orjson.loads(response.body), warnings


async def apply_all(client: Client, documents: Iterable[Json], namespace: str | None = None) -> None:
    """In order."""
    for document in documents:
        await apply(client, document, namespace)


async def apply_and_compare(client: Client, document: Json, *, dry_run: bool = False) -> ObjectChange:
    """Bring one object of the installation to what it should be, and say what changed."""
    before = await find(client, document)
    if before is not None and document["kind"] == "Namespace":
        return ObjectChange(before, "unchanged")  # it may be anybody's: ours only when it has to be made
    try:
        after, warnings = await apply(client, document, manager=INSTALL_FIELD_MANAGER, dry_run=dry_run)
    except NotFound:
        if not dry_run or before is not None:
            raise
        return ObjectChange(document, "created", checked=False)
    if before is None:
        return ObjectChange(after, "created", warnings=warnings)
    changed = sorted(differences(_desired(before), _desired(after)))
    return ObjectChange(after, "configured" if changed else "unchanged", changed, warnings)


async def find(client: Client, document: Json, namespace: str | None = None) -> Json | None:
    """The object as it is there; None when it is not, or its kind is not served."""
    try:
        return await client.get(resource_of(document), document["metadata"]["name"], _namespace_of(document, namespace))
    except NotFound:
        return None


async def remove(
    client: Client,
    document: Json,
    namespace: str | None = None,
    *,
    propagation: Literal["Background", "Foreground"] = "Background",
    dry_run: bool = False,
) -> ObjectChange | None:
    """Delete what a document names; None when it is not there. Foreground: it stays until all that it owns is gone."""
    found = await find(client, document, namespace)
    if found is None:
        return None
    metadata = found["metadata"]
    try:
        await client.delete(
            resource_of(document),
            metadata["name"],
            metadata.get("namespace"),
            propagation=propagation,
            uid=metadata["uid"],
            dry_run=dry_run,
        )
    except NotFound:
        return None
    return ObjectChange(found, "deleted")


async def remove_all(client: Client, documents: Iterable[Json], namespace: str | None = None) -> None:
    """The last first."""
    for document in reversed(list(documents)):
        await remove(client, document, namespace)


async def removed(client: Client, document: Json) -> None:
    """Wait until an object that was deleted is not there any more."""
    while True:
        if await find(client, document) is None:
            return
        await asyncio.sleep(_POLL_SECONDS)  # a few looks; a watch of one object would be another right to ask for


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


def _namespace_of(document: Json, default: str | None) -> str | None:
    return document["metadata"].get("namespace") or default if resource_of(document).namespaced else None


def _desired(obj: Json) -> Json:
    metadata = {key: value for key, value in obj["metadata"].items() if key not in _SET_BY_SERVER}
    return {**{key: value for key, value in obj.items() if key != "status"}, "metadata": metadata}
