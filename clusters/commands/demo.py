"""`multimirror demo`: the flags of the demonstration."""

import asyncio
from pathlib import Path

import click

from clusters.fleet import FleetError
from multimirror.cli.errors import CommandError, command_error
from multimirror.kube import KubeError

EXAMPLES = """\b
Examples:
  multimirror demo
  multimirror demo --workers 5 --keep
  multimirror demo --fleet local
"""


@click.command("demo", epilog=EXAMPLES)
@click.option(
    "--fleet",
    type=click.Choice(["embedded", "local", "kind"]),
    default="embedded",
    show_default=True,
    help="What the clusters are made of.",
)
@click.option("--workers", type=click.IntRange(1), default=3, show_default=True, help="How many worker clusters.")
@click.option("--keep", is_flag=True, help="Leave the fleet up until Ctrl-C, to look around in it.")
@click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("~/.multimirror/demo"),
    show_default=True,
    help="With --keep: where kubeconfigs are written.",
)
def command(fleet: str, workers: int, *, keep: bool, directory: Path) -> int:
    """A fleet on this machine, and a few dozen Jobs on it.

    Brings up a management cluster and workers on this machine, lets a few dozen Jobs run, cuts a worker off on the way,
    and counts what became of them. Takes less than a minute.
    """
    from clusters.demonstration import demo  # noqa: PLC0415 - for its help it need not be loaded

    try:
        return asyncio.run(demo(fleet, workers, keep=keep, directory=directory.expanduser().resolve()))
    except KubeError as error:
        raise command_error(error) from error
    except (FleetError, OSError) as error:
        raise CommandError(str(error)) from error
