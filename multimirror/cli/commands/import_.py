"""`multimirror import`: the objects of other queueing systems, as ours. It writes nothing to any cluster."""

import json

import click

from multimirror.cli.connection import Management, on_management
from multimirror.cli.errors import CommandError, Exit
from multimirror.cli.kueue import BadObject, read_objects, translate
from multimirror.cli.kueue.report import as_list, as_yaml, report, summary
from multimirror.cli.kueue.sources import from_cluster, from_files
from multimirror.cli.output import echo

EXAMPLES = """\b
Examples:
  multimirror import kueue > queues.yaml
  multimirror import kueue -f kueue/ --strict
  kubectl get clusterqueues,localqueues -A -o yaml \\
    | multimirror import kueue -f - | kubectl apply -f -
"""


@click.group(no_args_is_help=True)
def command() -> None:
    """Queues of other systems, as MirrorQueues."""


@command.command(epilog=EXAMPLES)
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    type=click.Path(),
    metavar="FILE|DIR|-",
    help="Read these, and no cluster.",
)
@click.option("--fair-sharing", is_flag=True, help="Kueue's configuration has fairSharing on: queues take their share.")
@click.option("--strict", is_flag=True, help="End with 1 if anything is left out or means something else.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["yaml", "json"]),
    default="yaml",
    show_default=True,
    help="As what it is written.",
)
@on_management
async def kueue(
    management: Management, *, files: tuple[str, ...], fair_sharing: bool, strict: bool, output: str
) -> int:
    """Kueue's ClusterQueues and Cohorts, as MirrorQueues and Cohorts.

    Goes to standard output, for `kubectl apply -f -`; what was not taken over, and what Jobs need now, to standard
    error. Reads also LocalQueues, ResourceFlavors, priority classes and MultiKueue's objects. Changes nothing.
    """
    if files:
        sourced = from_files(files)
    else:
        async with management.client() as client:
            sourced = await from_cluster(client)
    try:
        translation = translate(read_objects(sourced), fair_sharing=fair_sharing)
    except BadObject as error:
        raise CommandError(str(error), code=Exit.USAGE) from error
    if not translation.objects:
        raise CommandError("there is no ClusterQueue and no Cohort of Kueue among the objects", code=Exit.NOT_SO)
    echo(as_yaml(translation).rstrip() if output == "yaml" else json.dumps(as_list(translation), indent=2))
    for line in report(translation):
        echo(line, err=True)
    echo(f"\n{summary(translation)}", err=True)
    return Exit.NOT_SO if strict and not translation.is_faithful else Exit.OK
