"""`multimirror get`: Jobs, clusters, queues and cohorts, with where and why; once, or as they change."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import click

from multimirror.api import COHORTS, MIRROR_QUEUES, WORKER_CLUSTERS
from multimirror.batch import Json
from multimirror.cli import rows
from multimirror.cli.completion import complete_names
from multimirror.cli.connection import Management, on_management
from multimirror.cli.errors import CommandError, Exit
from multimirror.cli.output import echo, fitted, output_option, show, table
from multimirror.kube import ApiError, Client, Resource, key_of
from multimirror.kube.informers import Informers
from multimirror.kube.resources import EVENTS, JOBS
from multimirror.kube.trimming import drop_managed_fields

EXAMPLES = """\b
Examples:
  multimirror get jobs
  multimirror get jobs -A -l app=render --watch
  multimirror get clusters -o wide
  multimirror get queue training -o yaml
"""
_KINDS: Final = {
    "jobs": JOBS, "job": JOBS,
    "clusters": WORKER_CLUSTERS, "cluster": WORKER_CLUSTERS,
    "queues": MIRROR_QUEUES, "queue": MIRROR_QUEUES,
    "cohorts": COHORTS, "cohort": COHORTS,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Asked:
    resource: Resource
    name: str | None
    namespace: str | None
    selector: str | None
    output: str

    @property
    def structured(self) -> bool:
        return self.output in {"json", "yaml"}

    @property
    def field_selector(self) -> str | None:
        return f"metadata.name={self.name}" if self.name is not None else None

    @property
    def titles(self) -> list[str]:
        wide = self.output == "wide"
        if self.resource is JOBS:
            titles = rows.JOB_WIDE if wide else rows.JOB_TITLES
            return ["NAMESPACE", *titles] if self.namespace is None else list(titles)
        if self.resource is WORKER_CLUSTERS:
            return list(rows.CLUSTER_WIDE if wide else rows.CLUSTER_TITLES)
        if self.resource is COHORTS:
            return list(rows.COHORT_WIDE if wide else rows.COHORT_TITLES)
        return list(rows.QUEUE_WIDE if wide else rows.QUEUE_TITLES)

    def row(self, obj: Json, context: rows.JobContext) -> list[object]:
        wide, now = self.output == "wide", datetime.now(UTC)
        if self.resource is JOBS:
            row = rows.job_row(obj, context, now, wide=wide)
            return [obj["metadata"]["namespace"], *row] if self.namespace is None else row
        row_of = {WORKER_CLUSTERS: rows.cluster_row, MIRROR_QUEUES: rows.queue_row, COHORTS: rows.cohort_row}
        return row_of[self.resource](obj, now, wide=wide)


@click.command(epilog=EXAMPLES)
@click.argument("kind", type=click.Choice(list(_KINDS)), metavar="jobs|clusters|queues|cohorts")
@click.argument("name", required=False, shell_complete=complete_names)
@click.option("-n", "--namespace", metavar="NAME", help="Of Jobs.  [default: the context's]")
@click.option("-A", "--all-namespaces", is_flag=True, help="Jobs of every namespace.")
@click.option("-l", "--selector", metavar="LABELS", help="Only those with these labels, such as app=render.")
@click.option("-w", "--watch", is_flag=True, help="Go on, and show what changes.")
@output_option("wide")
@on_management
async def command(
    management: Management,
    kind: str,
    name: str | None,
    *,
    namespace: str | None,
    all_namespaces: bool,
    selector: str | None,
    watch: bool,
    output: str,
) -> int:
    """Jobs, clusters, queues and cohorts: where they are, and why they wait.

    Jobs of other controllers are shown too; MANAGED-BY tells them apart.
    """
    if all_namespaces and (name is not None or namespace is not None):
        raise click.UsageError("--all-namespaces goes with neither a name nor --namespace")
    resource = _KINDS[kind]
    where = namespace or management.connection().namespace if resource is JOBS and not all_namespaces else None
    asked = _Asked(resource, name, where, selector, output)
    async with management.client() as client:
        await (_follow if watch else _once)(client, asked)
    return Exit.OK


async def _once(client: Client, asked: _Asked) -> None:
    items = await _items(client, asked)
    if asked.structured:
        clean = [drop_managed_fields(item) for item in items]
        show(clean[0] if asked.name is not None else {"apiVersion": "v1", "kind": "List", "items": clean}, asked.output)
    elif not items:
        where = f" in namespace {asked.namespace}" if asked.namespace is not None else ""
        echo(f"There are no {asked.resource.kind}s{where}.", err=True)
    else:
        context = await _context(client, asked)
        for line in fitted(
            table(asked.titles, [asked.row(item, context) for item in items]), wide=asked.output == "wide"
        ):
            echo(line)


async def _items(client: Client, asked: _Asked) -> list[Json]:
    found = await client.list(
        asked.resource, asked.namespace, label_selector=asked.selector, field_selector=asked.field_selector, limit=500
    )
    if asked.name is not None and not found.items:
        where = f" in namespace {asked.namespace}" if asked.namespace is not None else ""
        raise CommandError(f"there is no {asked.resource.kind} {asked.name}{where}", code=Exit.REFUSED)
    return sorted(found.items, key=key_of)


async def _context(client: Client, asked: _Asked) -> rows.JobContext:
    """What explains Jobs. Who may not read it gets the Jobs without it."""
    if asked.resource is not JOBS:
        return rows.JobContext()
    found: dict[Resource, list[Json]] = {EVENTS: [], MIRROR_QUEUES: [], WORKER_CLUSTERS: []}
    for resource in found:
        with suppress(ApiError):
            selector = rows.WAITING_EVENTS if resource is EVENTS else None
            namespace = asked.namespace if resource is EVENTS else None
            found[resource] = (await client.list(resource, namespace, field_selector=selector, limit=500)).items
    return rows.JobContext(rows.newest(found[EVENTS]), _named(found[MIRROR_QUEUES]), _named(found[WORKER_CLUSTERS]))


def _named(items: Iterable[Json]) -> dict[str, Json]:
    return {item["metadata"]["name"]: item for item in items}


async def _follow(client: Client, asked: _Asked) -> None:
    """Print each row again when it says something new; the age alone is nothing new."""
    await _once_checked(client, asked)
    news = asyncio.Event()
    async with Informers(client) as informers:
        items = informers.of(
            asked.resource, asked.namespace, label_selector=asked.selector, field_selector=asked.field_selector
        )
        context = _following_context(informers, asked, news)
        items.add_handler(lambda _change: news.set())
        await items.synced()
        shown: dict[str, object] = {}
        first = True
        while True:
            news.clear()
            changed = []
            for item in sorted(items.list(), key=key_of):
                row = asked.row(item, context())
                said = item if asked.structured else _but_age(asked.titles, row)
                if shown.get(item["metadata"]["uid"]) != said:
                    shown[item["metadata"]["uid"]] = said
                    changed.append((item, row))
            if changed:
                _print_changed(changed, asked, header=first)
                first = False
            await news.wait()
            await asyncio.sleep(0.1)  # what changes together is shown together


def _print_changed(changed: list[tuple[Json, list[object]]], asked: _Asked, *, header: bool) -> None:
    if asked.structured:
        for item, _ in changed:
            show(drop_managed_fields(item), asked.output)
        return
    lines = fitted(table(asked.titles, [row for _, row in changed]), wide=asked.output == "wide")
    echo("\n".join(lines if header else lines[1:]))


async def _once_checked(client: Client, asked: _Asked) -> None:
    """A cache waits for ever for what it may not read: ask once, and say what is wrong."""
    await client.request("GET", asked.resource.path(asked.namespace), {"limit": 1})


def _following_context(informers: Informers, asked: _Asked, news: asyncio.Event) -> Callable[[], rows.JobContext]:
    if asked.resource is not JOBS:
        return rows.JobContext
    events = informers.of(EVENTS, asked.namespace, field_selector=rows.WAITING_EVENTS)
    queues, clusters = informers.of(MIRROR_QUEUES), informers.of(WORKER_CLUSTERS)
    for informer in (events, queues, clusters):
        informer.add_handler(lambda _change: news.set())
    return lambda: rows.JobContext(rows.newest(events.list()), _named(queues.list()), _named(clusters.list()))


def _but_age(titles: list[str], row: list[object]) -> list[object]:
    return [cell for title, cell in zip(titles, row, strict=True) if title != "AGE"]
