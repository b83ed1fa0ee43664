"""`multimirror uncordon`."""

from multimirror.cli.commands.cordon import cordon_command

command = cordon_command(
    "uncordon", "Send a worker Jobs again.", cordoned=False, done="takes Jobs again", already="was not cordoned"
)
