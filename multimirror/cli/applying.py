"""Server-side apply of manifests: safe to repeat, and fields that others own on the same objects stay theirs."""

import copy
from collections.abc import Iterable
from typing import Final

from multimirror.batch import Json
from multimirror.cli import kinds
from multimirror.kube import Client, NotFound, Resource

FIELD_MANAGER: Final = "multimirror-cli"
_BY_KIND: Final[dict[tuple[str, str], Resource]] = {
    (each.api_version, each.kind): each
    for each in (getattr(kinds, name) for name in kinds.__all__)
    if isinstance(each, Resource)
}


def resource_of(document: Json) -> Resource:
    """The kind of a manifest."""
    try:
        return _BY_KIND[document["apiVersion"], document["kind"]]
    except KeyError:
        raise ValueError(f"{document.get('kind')} ({document.get('apiVersion')}) is no kind that we apply") from None


async def apply(client: Client, documents: Iterable[Json], namespace: str | None = None) -> None:
    """Apply in order; `namespace` is for those that name none."""
    for document in documents:
        resource, metadata = resource_of(document), document["metadata"]
        where = metadata.get("namespace") or namespace if resource.namespaced else None
        body = copy.deepcopy(document)
        if where is not None:
            body["metadata"]["namespace"] = where
        await client.patch(
            resource, metadata["name"], body, where, patch_type="apply", field_manager=FIELD_MANAGER, force=True
        )


async def remove(client: Client, documents: Iterable[Json], namespace: str | None = None) -> None:
    """Delete what the manifests name, the last first; what is not there is as good as deleted."""
    for document in reversed(list(documents)):
        resource, metadata = resource_of(document), document["metadata"]
        where = metadata.get("namespace") or namespace if resource.namespaced else None
        try:
            await client.delete(resource, metadata["name"], where)
        except NotFound:
            continue
