"""`multimirror why`: the short answer. One sentence why a Job waits, its position, when it may start, what to do."""

from typing import Any

import click

from multimirror.api import QUEUE_LABEL
from multimirror.api.placement import cluster_of
from multimirror.api.reasons import WAITING
from multimirror.batch import Json
from multimirror.cli import rows
from multimirror.cli.asking import Dispatcher, dispatcher_option
from multimirror.cli.completion import complete_jobs
from multimirror.cli.connection import Management, in_namespace, on_management, system_namespace
from multimirror.cli.copies import find_job
from multimirror.cli.errors import Exit
from multimirror.cli.job_context import asked_about, job_context, job_events, place_text
from multimirror.cli.output import Styled, echo, hanging, output_option, show, table
from multimirror.kube import key_of

EXAMPLES = """\b
Examples:
  multimirror why job/train
  multimirror why train -n team-a -o json
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
    """Why a Job is not further: what it waits for, in one sentence with numbers, its position in its queue, when it may
    start, and what each worker says.

    The sentence stands on the management cluster. Position, estimate and workers only the dispatcher knows: it is asked
    in its pod, which takes the right to exec there. `multimirror explain` tells the whole story.
    """
    async with management.client() as client:
        original = await find_job(client, job, namespace)
        context = await job_context(client, original, await job_events(client, original))
        told, problem = await asked_about(Dispatcher(client, system_namespace, dispatcher), original)
    answer = answer_of(original, context, told, problem)
    if output in {"json", "yaml"}:
        show(answer, output)
    else:
        _print(answer)
    return Exit.OK


def answer_of(job: Json, context: rows.JobContext, told: Json, problem: str) -> dict[str, Any]:
    """`told`: by the dispatcher."""
    reason = str(told.get("reason") or (rows.waiting_reason(job, context) if _waits(job) else ""))
    known = WAITING.get(reason)
    return {
        "job": key_of(job),
        "state": rows.state_of(job),
        "queue": (job["metadata"].get("labels") or {}).get(QUEUE_LABEL),
        "cluster": cluster_of(job),
        "reason": reason or None,
        "why": told.get("why") or rows.why(job, context) or None,
        "remedy": known.remedy if known is not None and known.remedy != "None." else None,
        **{field: told.get(field) for field in ("position", "pending", "estimateSeconds", "startsPerHour")},
        "workers": told.get("workers") or [],
        "note": problem or None,
    }


def _waits(job: Json) -> bool:
    return rows.state_of(job) == rows.WAITING


def _print(answer: dict[str, Any]) -> None:
    where = f" on {answer['cluster']}" if answer["cluster"] else ""
    reason = f" ({answer['reason']})" if answer["reason"] else ""
    why = f": {answer['why']}" if answer["why"] else ""
    echo(Styled(f"Job {answer['job']} {_STATES.get(answer['state'], answer['state'])}{where}{reason}", bold=True), why)
    if answer["position"] is not None:
        echo(f"It is {place_text(answer)}.")
    if answer["remedy"]:
        echo(hanging(f"To do: {answer['remedy']}", 7))
    if answer["workers"]:
        lines = [(each["name"], bool(each["fits"]), each["message"]) for each in answer["workers"]]
        shown = table(("WORKER", "FITS", "WHY"), lines)
        echo("\n".join(hanging(line, shown[0].index("WHY")) for line in shown))
    if answer["note"]:
        echo(hanging(f"note: {answer['note']}", 6))


_STATES = {
    rows.WAITING: "waits",
    "Complete": "is complete",
    "Failed": "has failed",
    "Deleting": "is being deleted",
    "Suspended": "is suspended",
    "Running": "runs",
    "Starting": "starts",
}
