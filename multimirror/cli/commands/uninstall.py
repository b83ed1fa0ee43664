"""`multimirror uninstall`: the flags, and what is told on the way."""

import sys
from datetime import timedelta
from typing import Any

import click

from multimirror.api import MANAGED_BY
from multimirror.cli.apply import ObjectChange
from multimirror.cli.connection import SYSTEM_NAMESPACE, Management, on_management
from multimirror.cli.errors import Exit
from multimirror.cli.flags import Duration
from multimirror.cli.installation.objects import COMPONENTS, display_name
from multimirror.cli.installation.uninstall import Uninstallation, UninstallOptions
from multimirror.cli.output import Styled, echo

EXAMPLES = """\b
Examples:
  multimirror uninstall --dry-run
  multimirror uninstall --drain --timeout 1h
  multimirror uninstall --force --crds --delete-namespace
"""


@click.command(epilog=EXAMPLES)
@click.option(
    "--component",
    type=click.Choice(COMPONENTS),
    metavar="NAME",
    default="dispatcher",
    show_default=True,
    help="Or builtin-controller.",
)
@click.option(
    "--namespace", "-n", metavar="NAME", default=SYSTEM_NAMESPACE, show_default=True, help="Where it was installed."
)
@click.option(
    "--managed-by", metavar="NAME", default=MANAGED_BY, show_default=True, help="The dispatcher's flag, if it had one."
)
@click.option("--drain", is_flag=True, help="Take no new Jobs, and wait for those that are not finished.")
@click.option("--force", is_flag=True, help="End the Jobs that are not finished: they fail, with this as the reason.")
@click.option("--crds", is_flag=True, help="The CRDs too, and with them all WorkerClusters, MirrorQueues and Cohorts.")
@click.option("--delete-namespace", is_flag=True, help="The namespace too, with the workers' kubeconfigs in it.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask; without a terminal nobody is asked anyway.")
@click.option("--timeout", "time_limit", type=Duration(), default="10m", show_default=True, help="Of waits.")
@on_management
async def command(
    management: Management,
    /,
    *,
    drain: bool,
    force: bool,
    dry_run: bool,
    yes: bool,
    time_limit: timedelta,
    **flags: Any,
) -> int:
    """Remove the controller; no Job is left stuck.

    Refuses while Jobs of ours are not finished, unless told to wait for them or to end them. Admission goes first, our
    copies on workers go too; CRDs and the namespace stay unless you say so.
    """
    if drain and force:
        raise click.UsageError("--drain and --force: give only one of them")
    options = UninstallOptions(drain=drain, force=force, dry_run=dry_run, timeout=time_limit.total_seconds(), **flags)
    word = "would be deleted" if dry_run else "deleted"

    def each(change: ObjectChange) -> None:
        echo(f"{display_name(change.obj)} ", Styled(word, "red"))

    def warn(text: str) -> None:
        echo(f"warning: {text}", err=True)

    async with management.client() as client:
        if sys.stdin.isatty() and not yes and not dry_run:
            click.confirm(f"Remove multimirror from {client.connection.server}?", abort=True)
        await Uninstallation(client, options, each, echo, warn).run()
    return Exit.OK
