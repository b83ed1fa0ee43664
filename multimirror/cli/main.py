"""The command line: a table of commands, each in a module of its own that is loaded only when it is called.

Other packages may add to them (see extensions.py); none of them can take the name of one in the table.

Every command returns an exit code (see errors.Exit); whatever goes wrong is one sentence on standard error.
"""

import importlib
import keyword
import sys
from collections.abc import Sequence
from typing import Final

import click

from multimirror.cli import extensions
from multimirror.cli.errors import CommandError, Exit

COMMANDS: Final = {
    "Worker clusters": {
        "join": "Make a cluster a worker.",
        "leave": "Make it none: drain it first, then take it out.",
        "cordon": "Send it no new Jobs.",
        "uncordon": "Send it Jobs again.",
        "drain": "Cordon it, and wait until no Job runs there.",
    },
    "Jobs": {
        "get": "Jobs, clusters and queues, with where and why.",
        "why": "Why a Job waits, its position, and when it may start.",
        "queue": "Who waits in a queue, in order, and what it shares.",
        "what-if": "What would become of it with another priority, queue or size.",
        "explain": "What happened to a Job, on both clusters.",
        "logs": "What its pods write, straight from the worker.",
        "events": "Its events, from both clusters.",
    },
    "The controller": {
        "install": "Install the controller, or bring it up to date.",
        "uninstall": "Remove the controller; no Job is left stuck.",
        "import": "Kueue's queues, as ours.",
        "run": "Run the dispatcher.",
        "admission": "Serve the admission webhook.",
        "doctor": "Find what is wrong, and say what to do about it.",
    },
    "The command line itself": {
        "completion": "Completion for bash, zsh and fish.",
    },
}
_OURS: Final = tuple(name for group in COMMANDS.values() for name in group)
_HIDDEN: Final = ("relay", "ask")
"""For the commands themselves."""
_HELP_WIDTH: Final = 60
_HELP: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class _Commands(click.Group):
    """The table above: for the help its modules are not needed, a call loads one. Then what other packages add."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*_OURS, *extensions.added(taken=(*_OURS, *_HIDDEN))]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in (*_OURS, *_HIDDEN):
            return extensions.find(cmd_name)
        module = cmd_name.replace("-", "_") + ("_" if keyword.iskeyword(cmd_name) else "")
        command: click.Command = importlib.import_module(f"multimirror.cli.commands.{module}").command
        command.name = cmd_name
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, group in COMMANDS.items():
            with formatter.section(title):
                formatter.write_dl(list(group.items()))
        for title, rows in _added_rows().items():
            with formatter.section(title):
                formatter.write_dl(rows)


def _added_rows() -> dict[str, list[tuple[str, str]]]:
    """What the help says of added commands, by where they come from."""
    sections: dict[str, list[tuple[str, str]]] = {}
    for name, entry in extensions.added(taken=(*_OURS, *_HIDDEN)).items():
        command = extensions.load(name, entry)
        if not command.hidden:
            rows = sections.setdefault(f"From {extensions.added_by(entry)}", [])
            rows.append((name, command.get_short_help_str(_HELP_WIDTH)))
    return sections


@click.group(cls=_Commands, context_settings=_HELP, no_args_is_help=True)
@click.version_option(package_name="multimirror", message="multimirror %(version)s")
def cli() -> None:
    """Runs ordinary Kubernetes Jobs on whichever worker cluster has room, and mirrors their status back."""


def main(arguments: Sequence[str] | None = None, name: str = "multimirror") -> int:
    """Run one command; returns its exit code. `name`: how it was called."""
    try:
        result = cli.main(arguments, prog_name=name, complete_var="_MULTIMIRROR_COMPLETE", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return Exit.USAGE
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx is not None else name
        usage = CommandError(error.format_message(), f"See `{where} --help`.", code=Exit.USAGE)
        usage.show()
        return Exit.USAGE
    except CommandError as error:
        error.show()
        return error.code
    except click.ClickException as error:
        error.show()
        return Exit.USAGE
    except (click.Abort, KeyboardInterrupt):
        return Exit.INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()  # whoever read our output has gone; there is nobody left to tell
        return Exit.OK
    return int(result or Exit.OK)
