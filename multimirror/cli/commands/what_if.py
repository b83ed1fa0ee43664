"""`multimirror what-if`: what would become of a Job that waits if it were another. Nothing is changed."""

from typing import Any

import click

from multimirror.api.reasons import WAITING
from multimirror.batch import Json
from multimirror.cli.asking import Dispatcher, dispatcher_option
from multimirror.cli.completion import complete_jobs
from multimirror.cli.connection import Management, in_namespace, on_management, system_namespace
from multimirror.cli.copies import find_job
from multimirror.cli.errors import CommandError, Exit
from multimirror.cli.flags import pairs
from multimirror.cli.output import Styled, echo, hanging, output_option, show, table
from multimirror.kube import key_of

EXAMPLES = """\b
Examples:
  multimirror what-if job/train --priority 50
  multimirror what-if train -n team-a --queue night --pods 4
"""


@click.command(epilog=EXAMPLES)
@click.argument("job", metavar="job/NAME", shell_complete=complete_jobs)
@click.option("--priority", metavar="NUMBER", type=click.IntRange(0), help="Its priority.")
@click.option("--queue", metavar="NAME", help="Its queue.")
@click.option("--pods", metavar="NUMBER", type=click.IntRange(0), help="Pods at once; the rest in proportion.")
@click.option("--cpu", metavar="AMOUNT", help="What its pods together ask for.")
@click.option("--memory", metavar="AMOUNT", help="The same.")
@click.option("--resource", metavar="NAME=AMOUNT", multiple=True, help="The same, of any other; repeat it.")
@in_namespace
@output_option()
@system_namespace
@dispatcher_option
@on_management
async def command(
    management: Management,
    job: str,
    *,
    priority: int | None,
    queue: str | None,
    pods: int | None,
    cpu: str | None,
    memory: str | None,
    resource: tuple[str, ...],
    namespace: str | None,
    output: str,
    system_namespace: str,
    dispatcher: str | None,
) -> int:
    """What would become of a Job that waits, were it so: where it would go now, or why it would
    still wait, and who would be stopped for it.

    The dispatcher plans it and carries nothing out. It is asked in its pod, which takes the right to exec there.
    """
    others = pairs(resource, flag="--resource", alone=False) if resource else {}
    wanted: dict[str, object] = {"priority": priority, "queue": queue, "pods": pods}
    wanted |= {f"request.{name}": amount for name, amount in {"cpu": cpu, "memory": memory, **others}.items()}
    changes = {name: str(value) for name, value in wanted.items() if value is not None}
    if not changes:
        raise CommandError("say what would be otherwise: --priority, --queue, --pods, --cpu, ...", code=Exit.USAGE)
    async with management.client() as client:
        original = await find_job(client, job, namespace)
        asked = Dispatcher(client, system_namespace, dispatcher)
        told = await asked.ask("/what-if", {"job": key_of(original), **changes})
    answer = answer_of(key_of(original), changes, told)
    if output in {"json", "yaml"}:
        show(answer, output)
    else:
        _print(answer)
    return Exit.OK


def answer_of(job: str, changes: dict[str, str], told: Json) -> dict[str, Any]:
    known = WAITING.get(str(told.get("reason")))
    return {
        "job": job,
        "changes": {name.removeprefix("request."): value for name, value in changes.items()},
        **{field: told.get(field) for field in ("placed", "cluster", "queue", "position", "reason", "why")},
        "remedy": known.remedy if known is not None and known.remedy != "None." else None,
        "stops": told.get("stops") or [],
        "workers": told.get("workers") or [],
    }


def _print(answer: dict[str, Any]) -> None:
    what = ", ".join(f"{name} {value}" for name, value in answer["changes"].items())
    start = f"With {what}, Job {answer['job']} would"
    if answer["placed"]:
        echo(Styled(f"{start} go to {answer['cluster']} now", bold=True))
    else:
        echo(Styled(f"{start} wait ({answer['reason']})", bold=True), f": {answer['why']}")
        echo(f"It would be number {answer['position']} in queue {answer['queue']}.")
        for each in answer["stops"]:
            echo(f"It would stop Job {each['job']} on {each['worker']} ({each['reason']}).")
        if answer["remedy"]:
            echo(hanging(f"To do: {answer['remedy']}", 7))
    if answer["workers"]:
        lines = [(each["name"], bool(each["fits"]), each["message"]) for each in answer["workers"]]
        shown = table(("WORKER", "FITS", "WHY"), lines)
        echo("\n".join(hanging(line, shown[0].index("WHY")) for line in shown))
