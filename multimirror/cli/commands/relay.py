"""`multimirror relay`: the far end of commands that reach a worker through this pod. Nobody calls it by hand."""

import click

from multimirror.cli.connection import Management, on_management, system_namespace
from multimirror.cli.errors import Exit
from multimirror.cli.relay.serving import serve


@click.command(hidden=True)
@system_namespace
@on_management
async def command(management: Management, *, system_namespace: str) -> int:
    """Connect standard input and output with API servers of workers.

    For `multimirror` itself, which starts it in a dispatcher's pod to reach workers that it cannot reach from where it
    runs. It connects to the addresses that are stored for workers, and nowhere else.
    """
    async with management.client() as client:
        await serve(client, system_namespace)
    return Exit.OK
