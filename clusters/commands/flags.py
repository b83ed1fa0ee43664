"""Flags that `demo` and `fleet` share."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from clusters.fleet import KINDS, FleetError
from clusters.fleet_directory import FleetDirectory
from multimirror.cli.errors import CommandError

_Command = TypeVar("_Command", bound=Callable[..., Any])


def kind_option(flag: str) -> Callable[[_Command], _Command]:
    """What a fleet is made of, as `kind`."""
    return click.option(
        flag,
        "kind",
        type=click.Choice(KINDS),
        default=KINDS[0],
        show_default=True,
        help="What the clusters are made of.",
    )


def in_directory(default: str, text: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """A command on the fleet in `--directory`, which it gets first; what fleets complain of is its error."""

    def decorate(function: Callable[..., int]) -> Callable[..., int]:
        @click.option(
            "--directory",
            type=click.Path(path_type=Path, file_okay=False),
            default=Path(default),
            show_default=True,
            help=text,
        )
        @functools.wraps(function)
        def command(*args: Any, directory: Path, **kwargs: Any) -> int:
            try:
                return function(FleetDirectory(directory.expanduser().resolve()), *args, **kwargs)
            except (FleetError, ValueError) as error:
                raise CommandError(str(error)) from error

        return command

    return decorate
