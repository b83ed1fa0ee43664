"""`multimirror cordon`, and what it shares with `uncordon`."""

from typing import Final

import click

from multimirror.cli.completion import complete_clusters
from multimirror.cli.connection import Management, on_management
from multimirror.cli.drain import cordon
from multimirror.cli.errors import Exit
from multimirror.cli.progress import say

EXAMPLES: Final = """\b
Examples:
  multimirror {command} east
"""


def cordon_command(name: str, summary: str, *, cordoned: bool, done: str, already: str) -> click.Command:
    """`done` and `already` are what is said: of a worker whose state was changed, and of one that had it before."""

    @click.command(name, help=summary, epilog=EXAMPLES.format(command=name))
    @click.argument("name", shell_complete=complete_clusters)
    @on_management
    async def command(management: Management, name: str) -> int:
        async with management.client() as client:
            changed = await cordon(client, name, cordoned=cordoned)
        say(f"{name} {done if changed else already}")
        return Exit.OK

    return command


command = cordon_command(
    "cordon",
    "Send a worker no new Jobs. Those that run there go on.",
    cordoned=True,
    done="is cordoned",
    already="was cordoned already",
)
