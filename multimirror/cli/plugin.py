"""The command as a kubectl plugin: `kubectl multimirror ...`, and its completion by kubectl.

kubectl runs `kubectl-multimirror` with whatever follows the plugin's name, and asks `kubectl_complete-multimirror` for
completions: it passes the words so far, the last one unfinished, and reads one candidate a line (a tab before its
description), then a colon and a number that says what the shell may add.
"""

import sys
from typing import Final

from click.shell_completion import ShellComplete

from multimirror.cli.main import cli, main
from multimirror.cli.output import echo

_NAME: Final = "kubectl multimirror"
_FILES_TOO: Final = ":0"
_NOTHING_ELSE: Final = ":4"


def plugin() -> int:
    """`kubectl multimirror ...`."""
    return main(name=_NAME)


def complete() -> int:
    """The candidates for the last word."""
    words = sys.argv[1:] or [""]
    found = ShellComplete(cli, {}, _NAME, "").get_completions(words[:-1], words[-1])
    for item in found:
        if item.type == "plain":
            echo(f"{item.value}\t{item.help}" if item.help else item.value)
    files = any(item.type in ("file", "dir") for item in found)
    echo(_FILES_TOO if files else _NOTHING_ELSE)
    return 0
