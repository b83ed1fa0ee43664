"""`multimirror explain`: the story of a Job over both clusters, and what it waits for now."""

from datetime import datetime
from typing import Any

import click

from multimirror.api import QUEUE_LABEL
from multimirror.api.placement import attempt_of, cluster_of
from multimirror.batch import Json
from multimirror.cli import rows
from multimirror.cli.asking import Dispatcher, dispatcher_option
from multimirror.cli.completion import complete_jobs
from multimirror.cli.connection import Management, in_namespace, on_management, system_namespace
from multimirror.cli.copies import Copy, find_copy, find_job, worker_of
from multimirror.cli.errors import CommandError, Exit
from multimirror.cli.job_context import asked_about, job_context, job_events, place_text
from multimirror.cli.output import Styled, echo, hanging, output_option, show, table
from multimirror.cli.timeline import HERE, Entry, timeline
from multimirror.kube import ApiError, Client, key_of

EXAMPLES = """\b
Examples:
  multimirror explain job/train
  multimirror explain train -n team-a -o yaml
"""


@click.command(epilog=EXAMPLES)
@click.argument("job", metavar="job/NAME", shell_complete=complete_jobs)
@in_namespace
@output_option()
@system_namespace
@dispatcher_option
@on_management
async def command(
    management: Management,
    job: str,
    *,
    namespace: str | None,
    output: str,
    system_namespace: str,
    dispatcher: str | None,
) -> int:
    """What happened to a Job, on both clusters, and what it waits for.

    Admitted, waited for what, placed where and why, copied, its pods, its end. Events are kept for an hour, pods as
    long as the copy: an old story has holes.
    """
    async with management.client() as client:
        original = await find_job(client, job, namespace)
        events = await job_events(client, original)
        copy, problem = await _copy(client, original, system_namespace)
        why = rows.why(original, await job_context(client, original, events))
        told, _ = await asked_about(Dispatcher(client, system_namespace, dispatcher), original)
    entries = timeline(
        original,
        events,
        cluster=copy.cluster if copy is not None and rows.is_ours(original) else HERE,
        copy=copy.job if copy is not None else None,
        pods=copy.pods if copy is not None else (),
        events_there=copy.events if copy is not None else (),
    )
    summary = _summary(original, why, problem, told)
    if output in {"json", "yaml"}:
        show({**summary, "timeline": [entry.as_json() for entry in entries]}, output)
    else:
        _print(original, summary, entries)
    return Exit.OK


async def _copy(client: Client, job: Json, system: str) -> tuple[Copy | None, str]:
    """Where its pods are; or, in words, why nobody can look there."""
    if rows.is_ours(job) and cluster_of(job) is None:
        return None, ""
    try:
        worker = await worker_of(client, job, system)
        if worker is None:
            return await find_copy(client, job, None, events=True), ""
        async with worker.client() as there:
            return await find_copy(there, job, worker, events=True), ""
    except (ApiError, CommandError) as error:
        remedy = error.remedy if isinstance(error, CommandError) else ""
        return None, f"the worker's side is not shown: {error.message}. {remedy}".strip()


def _summary(job: Json, why: str, problem: str, told: Json) -> dict[str, Any]:
    return {
        "job": key_of(job),
        "state": rows.state_of(job),
        "queue": (job["metadata"].get("labels") or {}).get(QUEUE_LABEL),
        "cluster": cluster_of(job),
        "attempt": attempt_of(job) or None,
        "managedBy": job["spec"].get("managedBy"),
        "why": why or None,
        "position": told.get("position"),
        "estimateSeconds": told.get("estimateSeconds"),
        "note": problem or None,
    }


def _print(job: Json, summary: dict[str, Any], entries: list[Entry]) -> None:
    words = [f"Job {summary['job']}: {summary['state']}"]
    words += [f"on {summary['cluster']}"] if summary["cluster"] else []
    details = [f"queue {summary['queue']}"] if summary["queue"] else []
    details += [f"attempt {summary['attempt']}"] if (summary["attempt"] or 0) > 1 else []
    echo(Styled(" ".join(words) + (f" ({', '.join(details)})" if details else ""), bold=True))
    start = entries[0].timestamp if entries else None
    lines = [(f"{each.timestamp:%H:%M:%S}", _after(each, start), each.cluster, each.what) for each in entries]
    shown = table(("TIME", "AFTER", "CLUSTER", "WHAT"), lines)
    echo("\n".join(hanging(line, shown[0].index("WHAT")) for line in shown))
    if summary["why"] and rows.state_of(job) != "Failed":
        echo(hanging(f"now:  {summary['why']}", 6))
    if summary["position"] is not None:
        echo(hanging(f"      {place_text(summary)}", 6))
    if summary["note"]:
        echo(hanging(f"note: {summary['note']}", 6))


def _after(entry: Entry, start: datetime | None) -> str:
    return f"+{(entry.timestamp - (start or entry.timestamp)).total_seconds():.0f}s"
