"""Names for the shell to complete: asked of the management cluster, quickly or not at all."""

import asyncio
from pathlib import Path
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from multimirror.api import COHORTS, MIRROR_QUEUES, WORKER_CLUSTERS
from multimirror.kube import Client, Connection, KubeError, Resource
from multimirror.kube.resources import JOBS
from multimirror.kube.terminal import printable

_PATIENCE: Final = 2.0


def complete_clusters(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return _items(_names(ctx, WORKER_CLUSTERS), incomplete)


def complete_jobs(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of Jobs, with or without `job/` before them."""
    prefix = "job/" if incomplete.startswith("job/") else ""
    return _items([prefix + name for name in _names(ctx, JOBS)], incomplete)


def complete_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of what `get` was asked for."""
    kinds: dict[str, Resource] = {
        "jobs": JOBS,
        "clusters": WORKER_CLUSTERS,
        "queues": MIRROR_QUEUES,
        "cohorts": COHORTS,
    }
    return _items(_names(ctx, kinds.get(str(ctx.params.get("kind")), JOBS)), incomplete)


def _items(names: list[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]


def _names(ctx: click.Context, resource: Resource) -> list[str]:
    """Whatever goes wrong, a shell is no place to tell."""
    try:
        return asyncio.run(_ask(ctx.params, resource))
    except (KubeError, OSError):
        return []


async def _ask(params: dict[str, Any], resource: Resource) -> list[str]:
    kubeconfig: Path | None = params.get("_kubeconfig")
    connection = Connection.as_kubectl(kubeconfig, params.get("_context"))
    namespace = params.get("namespace") or connection.namespace
    async with Client(connection, timeout=_PATIENCE, user_agent="multimirror-cli") as client:
        found = await client.list(resource, namespace if resource.namespaced else None)
    return [printable(each["metadata"]["name"]) for each in found.items]


def complete_queues(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return _items(_names(ctx, MIRROR_QUEUES), incomplete)
