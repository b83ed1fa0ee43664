"""`multimirror drain`."""

from datetime import timedelta

import click

from multimirror.cli.completion import complete_clusters
from multimirror.cli.connection import Management, on_management, system_namespace
from multimirror.cli.drain import cordon, drain
from multimirror.cli.errors import Exit
from multimirror.cli.flags import Duration
from multimirror.cli.progress import say
from multimirror.cli.workers import worker_connection
from multimirror.kube import key_of

EXAMPLES = """\b
Examples:
  multimirror drain east
  multimirror drain east --timeout 2h
  multimirror drain east --evict
"""


@click.command(epilog=EXAMPLES)
@click.argument("name", shell_complete=complete_clusters)
@click.option("--evict", is_flag=True, help="Do not wait for Jobs that run: start them again on other workers.")
@click.option("--timeout", "time_limit", type=Duration(), help="Give up after so long.  [default: never]")
@system_namespace
@on_management
async def command(
    management: Management, name: str, *, evict: bool, time_limit: timedelta | None, system_namespace: str
) -> int:
    """Cordon a worker, and wait until no Job runs there.

    Jobs that their users suspended stay: they run nowhere, and to move them would be to start them.
    """
    async with management.client() as client:
        if await cordon(client, name, cordoned=True):
            say(f"{name} is cordoned")
        worker = await worker_connection(client, name, system_namespace) if evict else None
        left = await drain(client, name, time_limit.total_seconds() if time_limit is not None else None, worker)
    for job in left.suspended:
        say(f"note: {key_of(job)} is suspended, and stays there")
    say(f"{name} is drained")
    return Exit.OK
