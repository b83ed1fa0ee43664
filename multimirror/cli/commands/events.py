"""`multimirror events`: what both clusters tell about a Job."""

from datetime import UTC, datetime

import click

from multimirror.api.placement import cluster_of
from multimirror.batch import Json
from multimirror.cli.completion import complete_jobs
from multimirror.cli.connection import Management, in_namespace, on_management, system_namespace
from multimirror.cli.copies import events_of, find_copy, find_job, worker_of
from multimirror.cli.errors import Exit
from multimirror.cli.output import echo, fitted, output_option, show, table
from multimirror.cli.rows import age, is_ours, time_of
from multimirror.kube.trimming import drop_managed_fields

EXAMPLES = """\b
Examples:
  multimirror events job/train
  multimirror events train -n team-a -o json
"""


@click.command(epilog=EXAMPLES)
@click.argument("job", metavar="job/NAME", shell_complete=complete_jobs)
@in_namespace
@output_option("wide")
@system_namespace
@on_management
async def command(
    management: Management, job: str, *, namespace: str | None, output: str, system_namespace: str
) -> int:
    """The events of a Job, of its copy and of its pods, oldest first."""
    found: list[tuple[str, Json]]
    async with management.client() as client:
        original = await find_job(client, job, namespace)
        found = [("management", event) for event in await events_of(client, original)]
        if is_ours(original) and cluster_of(original) is not None:
            worker = await worker_of(client, original, system_namespace)
            assert worker is not None
            async with worker.client() as there:
                copy = await find_copy(there, original, worker, events=True)
                found += [(worker.name, event) for event in copy.events]
        elif not is_ours(original):
            found = [("management", event) for event in (await find_copy(client, original, None, events=True)).events]
    found.sort(key=lambda pair: time_of(pair[1]))
    if output in {"json", "yaml"}:
        show([{"cluster": where, "event": drop_managed_fields(event)} for where, event in found], output)
    elif not found:
        echo("There are no events: they are kept for an hour.", err=True)
    else:
        lines = table(("LAST-SEEN", "CLUSTER", "TYPE", "REASON", "OBJECT", "MESSAGE"), map(_row, found))
        echo("\n".join(fitted(lines, wide=output == "wide")))
    return Exit.OK


def _row(pair: tuple[str, Json]) -> list[object]:
    where, event = pair
    about = event.get("involvedObject") or {}
    count = (event.get("series") or {}).get("count") or event.get("count") or 1
    message = " ".join(str(event.get("message", "")).split()) + (f" ({count} times)" if count > 1 else "")
    seen = age(time_of(event) or None, datetime.now(UTC))
    return [
        seen,
        where,
        event.get("type"),
        event.get("reason"),
        f"{str(about.get('kind')).lower()}/{about.get('name')}",
        message,
    ]
