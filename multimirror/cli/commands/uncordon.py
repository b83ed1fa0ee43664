"""`multimirror uncordon`."""

import click

from multimirror.cli.completing import complete_clusters
from multimirror.cli.connecting import Management, on_management
from multimirror.cli.draining import cordon
from multimirror.cli.errors import Exit
from multimirror.cli.progress import say

EXAMPLES = """\b
Examples:
  multimirror uncordon east
"""


@click.command(epilog=EXAMPLES)
@click.argument("name", shell_complete=complete_clusters)
@on_management
async def command(management: Management, name: str) -> int:
    """Send a worker Jobs again."""
    async with management.client() as client:
        changed = await cordon(client, name, cordoned=False)
    say(f"{name} takes Jobs again" if changed else f"{name} was not cordoned")
    return Exit.OK
