"""`multimirror cordon`."""

import click

from multimirror.cli.completing import complete_clusters
from multimirror.cli.connecting import Management, on_management
from multimirror.cli.draining import cordon
from multimirror.cli.errors import Exit
from multimirror.cli.progress import say

EXAMPLES = """\b
Examples:
  multimirror cordon east
"""


@click.command(epilog=EXAMPLES)
@click.argument("name", shell_complete=complete_clusters)
@on_management
async def command(management: Management, name: str) -> int:
    """Send a worker no new Jobs. Those that run there go on."""
    async with management.client() as client:
        changed = await cordon(client, name, cordoned=True)
    say(f"{name} is cordoned" if changed else f"{name} was cordoned already")
    return Exit.OK
