"""`multimirror demo`: the flags of the demonstration."""

import click

from clusters.commands.flags import in_directory, kind_option, own_keywords, versions_options
from clusters.fleet import fleet_options
from clusters.fleet_directory import FleetDirectory
from multimirror.cli.connection import finish

EXAMPLES = """\b
Examples:
  multimirror demo
  multimirror demo --workers 5 --keep
  multimirror demo --fleet local
"""


@click.command("demo", epilog=EXAMPLES)
@kind_option("--fleet")
@click.option("--workers", type=click.IntRange(1), default=3, show_default=True, help="How many worker clusters.")
@versions_options
@click.option("--keep", is_flag=True, help="Leave the fleet up until Ctrl-C, to look around in it.")
@in_directory("~/.multimirror/demo", "With --keep: where kubeconfigs are written.")
def command(
    directory: FleetDirectory,
    kind: str,
    workers: int,
    node_image: str | None,
    kubernetes_version: str | None,
    *,
    keep: bool,
) -> int:
    """A fleet on this machine, and a few dozen Jobs on it.

    Brings up a management cluster and workers on this machine, lets a few dozen Jobs run, cuts a worker off on the way,
    and counts what became of them. Takes less than a minute with embedded and local clusters; with kind some minutes,
    most of them for bringing the clusters up.
    """
    from clusters.demonstration import demo  # noqa: PLC0415 - for its help it need not be loaded

    more = own_keywords(kind, node_image, kubernetes_version)
    options = fleet_options(kind, workers=workers, job_controller=True, **more)
    return finish(demo(kind, options, directory, keep=keep))
