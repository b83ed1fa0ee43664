"""Commands that other packages add to `multimirror`: entry points of the group `multimirror.commands`.

    [project.entry-points."multimirror.commands"]
    demo = "clusters.commands.demo:command"

Each names a click command. It is loaded when it is called, and for its line in the list of all commands. One that
cannot be loaded costs itself alone: the others work, and it says why when it is called.
"""

from collections.abc import Collection
from importlib.metadata import EntryPoint, entry_points
from typing import Final

import click

from multimirror.cli.errors import CommandError

GROUP: Final = "multimirror.commands"
_OF_THE_FLEETS: Final = ("demo", "fleet")
_ANY_ARGUMENTS: Final = {"ignore_unknown_options": True, "allow_extra_args": True}


def added(taken: Collection[str] = ()) -> dict[str, EntryPoint]:
    """By name, sorted, but for names that are taken; of two with one name, the first that Python finds."""
    found: dict[str, EntryPoint] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        if entry.name not in taken:
            found.setdefault(entry.name, entry)
    return found


def added_by(entry: EntryPoint) -> str:
    """The distribution that brings it, as pip names it."""
    return entry.dist.name if entry.dist is not None else entry.module


def find(name: str) -> click.Command | None:
    """An added command. One of the fleets', where they are not installed, says so when it is called."""
    entry = added().get(name)
    if entry is not None:
        return load(name, entry)
    if name in _OF_THE_FLEETS:
        return _failing(name, f"`{name}` comes with the fleets; install them: pip install 'multimirror[fleets]'")
    return None


def load(name: str, entry: EntryPoint) -> click.Command:
    """The command; where it cannot be loaded, one that says so when it is called."""
    try:
        command = entry.load()
    except Exception as error:  # noqa: BLE001 - whatever is wrong with it is wrong with this command alone
        why = f"{type(error).__name__}: {error}"
    else:
        if isinstance(command, click.Command):
            return command
        why = f"{entry.value} is no click command"
    remedy = f"Install {added_by(entry)} again, in the version of multimirror, or remove it."
    return _failing(name, f"`{name}`, which {added_by(entry)} adds, cannot be loaded: {why}", remedy)


def _failing(name: str, message: str, remedy: str = "") -> click.Command:
    """Stands in for a command: whatever it is called with, it says what is wrong."""

    def fail() -> None:
        raise CommandError(message, remedy)

    return click.Command(
        name,
        callback=fail,
        short_help="Cannot be loaded; call it to see why.",
        add_help_option=False,
        context_settings=dict(_ANY_ARGUMENTS),
    )
