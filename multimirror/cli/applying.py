"""Server-side apply of manifests: safe to repeat, and fields that others own on the same objects stay theirs."""

import re
from collections.abc import Iterable
from typing import Final

import orjson

from multimirror.api import MIRROR_QUEUES, WORKER_CLUSTERS
from multimirror.batch import Json
from multimirror.kube import Client, Resource, resources
from multimirror.kube.errors import NotFound

FIELD_MANAGER: Final = "multimirror-cli"
_WARNING: Final = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')
_BY_KIND: Final[dict[tuple[str, str], Resource]] = {
    (each.api_version, each.kind): each
    for each in (*vars(resources).values(), MIRROR_QUEUES, WORKER_CLUSTERS)
    if isinstance(each, Resource)
}


def resource_of(document: Json) -> Resource:
    """The kind of a manifest."""
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
    resource, metadata = resource_of(document), document["metadata"]
    where = metadata.get("namespace") or namespace if resource.namespaced else None
    response = await client.request(
        "PATCH",
        resource.path(where, metadata["name"]),
        {
            "fieldManager": manager,
            "force": True,
            "fieldValidation": "Strict",
            "dryRun": "All" if dry_run else None,
        },
        body=document,
        headers={"Content-Type": "application/apply-patch+yaml"},
    )
    told = [text.replace('\\"', '"') for text in _WARNING.findall(response.headers.get("warning", ""))]
    return orjson.loads(response.body), told


async def apply_all(client: Client, documents: Iterable[Json], namespace: str | None = None) -> None:
    """In order."""
    for document in documents:
        await apply(client, document, namespace)


async def remove(client: Client, documents: Iterable[Json], namespace: str | None = None) -> None:
    """Delete what the manifests name, the last first; what is not there is as good as deleted."""
    for document in reversed(list(documents)):
        resource, metadata = resource_of(document), document["metadata"]
        where = metadata.get("namespace") or namespace if resource.namespaced else None
        try:
            await client.delete(resource, metadata["name"], where)
        except NotFound:
            continue
