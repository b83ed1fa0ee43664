"""`multimirror queue`: who waits in a queue, in order, and what the queue has, borrows and lends."""

from typing import Any

import click

from multimirror.api import MIRROR_QUEUES
from multimirror.batch import Json, find_condition
from multimirror.cli.asking import Dispatcher, dispatcher_option
from multimirror.cli.completion import complete_queues
from multimirror.cli.connection import Management, on_management, system_namespace
from multimirror.cli.errors import CommandError, Exit
from multimirror.cli.job_context import about
from multimirror.cli.output import Styled, echo, hanging, output_option, show, table
from multimirror.kube.errors import NotFound

EXAMPLES = """\b
Examples:
  multimirror queue training
  multimirror queue training --limit 100 -o json
"""
_AMOUNTS = ("own", "used", "borrowed", "lent")
_FIELDS = (*_AMOUNTS, "share", "fairShare", "pastUse", "startsPerHour", "waitSeconds", "head")


@click.command(epilog=EXAMPLES)
@click.argument("name", shell_complete=complete_queues)
@click.option(
    "--limit",
    metavar="NUMBER",
    type=click.IntRange(0, 1000),
    default=20,
    show_default=True,
    help="Jobs that are listed.",
)
@output_option()
@system_namespace
@dispatcher_option
@on_management
async def command(
    management: Management, name: str, *, limit: int, output: str, system_namespace: str, dispatcher: str | None
) -> int:
    """What a queue has of its own, uses, borrows and lends, and who waits in it, in order, since when and for what.

    The numbers stand in the status of the MirrorQueue, for everybody who may read queues. The order only the dispatcher
    knows: it is asked in its pod, which takes the right to exec there.
    """
    async with management.client() as client:
        try:
            queue = await client.get(MIRROR_QUEUES, name)
        except NotFound:
            remedy = "`multimirror get queues` lists them."
            raise CommandError(f"there is no MirrorQueue {name}", remedy, code=Exit.REFUSED) from None
        asked = Dispatcher(client, system_namespace, dispatcher)
        try:
            told, problem = await asked.ask("/queue", {"name": name, "limit": str(limit)}), ""
            if not told.get("leads"):
                problem = "the order is not shown: who was asked does not lead"
        except CommandError as error:
            told, problem = {}, f"the order is not shown: {error.message}"
    answer = answer_of(queue, told, problem)
    if output in {"json", "yaml"}:
        show(answer, output)
    else:
        _print(answer)
    return Exit.OK


def answer_of(queue: Json, told: Json, problem: str) -> dict[str, Any]:
    """`told`: by the dispatcher."""
    status, spec = queue.get("status") or {}, queue.get("spec") or {}
    conditions = status.get("conditions") or ()
    return {
        "queue": queue["metadata"]["name"],
        "cohort": spec.get("cohort"),
        "hold": spec.get("hold") or "None",
        "pending": told.get("pending", status.get("pending", 0)),
        "running": status.get("running", 0),
        **{field: status.get(field) for field in _FIELDS},
        "says": [
            found["message"]
            for kind in ("Borrowing", "Overused")
            if (found := find_condition(conditions, kind)) is not None and found.get("status") == "True"
        ],
        "order": told.get("order"),
        "note": problem or None,
    }


def _print(answer: dict[str, Any]) -> None:
    cohort = f" of cohort {answer['cohort']}" if answer["cohort"] else ""
    held = f", held ({answer['hold']})" if answer["hold"] != "None" else ""
    counts = f": {answer['pending']} wait, {answer['running']} run{held}"
    echo(Styled(f"Queue {answer['queue']}{cohort}", bold=True), counts)
    resources = sorted({name for field in _AMOUNTS for name in answer[field] or {}})
    if resources:
        lines = [(name, *((answer[field] or {}).get(name, "0") for field in _AMOUNTS)) for name in resources]
        echo("\n".join(table(("RESOURCE", "OWN", "USED", "BORROWED", "LENT"), lines)))
    for words in (_share(answer), _past_use(answer), _speed(answer), *answer["says"]):
        if words:
            echo(hanging(words, 0))
    if answer["order"]:
        lines = [_line(each) for each in answer["order"]]
        shown = table(("POSITION", "JOB", "PRIORITY", "STARTS", "REASON", "WHY"), lines)
        echo("\n".join(hanging(line, shown[0].index("WHY")) for line in shown))
    elif answer["order"] is None and answer["head"]:
        echo(hanging(f"first: {answer['head'].get('job')}: {answer['head'].get('message')}", 7))
    if answer["note"]:
        echo(hanging(f"note: {answer['note']}", 6))


def _line(entry: Json) -> tuple[object, ...]:
    seconds = entry.get("estimateSeconds")
    starts = about(seconds) if seconds is not None else None
    return entry["position"], entry["job"], entry["priority"], starts, entry.get("reason"), entry.get("why")


def _share(answer: dict[str, Any]) -> str:
    if answer["share"] is None:
        return ""
    fair = f"; due to it by weight: {answer['fairShare']}" if answer["fairShare"] is not None else ""
    return f"share: {answer['share']} of 1000 that can be lent, over its weight{fair}"


def _past_use(answer: dict[str, Any]) -> str:
    past = answer["pastUse"]
    if not past:
        return ""
    value, using = (f"{1000 * float(past[field]):.0f}" for field in ("value", "using"))
    counts = f"twice that, over its weight, is added to its share in the order of cohort {answer['cohort']}"
    return f"used before: {value} of 1000 at {past['at']}, {using} since then; {counts}"


def _speed(answer: dict[str, Any]) -> str:
    starts, waits = answer["startsPerHour"], answer["waitSeconds"]
    if not starts:
        return ""
    waited = f"; half of them had waited {waits['p50']} s, nine of ten {waits['p90']} s at most" if waits else ""
    return f"started in the last hour: {starts}{waited}"
