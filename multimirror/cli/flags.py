"""Flags that commands share: durations, addresses, and how join and leave reach a worker as a person does."""

from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import click

from multimirror.batch.durations import COMMAND_UNITS, DurationError, parse_duration
from multimirror.cli.errors import CommandError, Exit
from multimirror.kube import Client, Connection
from multimirror.kube.addresses import parse_address
from multimirror.kube.kubeconfig import Access, parse_lenient

_Command = TypeVar("_Command", bound=Callable[..., Any])


class Duration(click.ParamType[timedelta]):
    """`90s`, `10m`, `24h`, `365d`; a whole number is seconds."""

    name = "duration"

    def convert(self, value: str | timedelta, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        try:
            duration = parse_duration(f"{value}s" if value.isdecimal() else value, COMMAND_UNITS)
        except DurationError:
            duration = None
        if duration is None or value.startswith("-"):
            self.fail(f"{value!r} is no duration; write 90s, 10m, 24h or 365d", param, ctx)
        return duration


class Address(click.ParamType[tuple[str, int]]):
    """HOST:PORT, or :PORT for every address of this host."""

    name = "[host]:port"

    def convert(
        self, value: str | tuple[str, int], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        if isinstance(value, tuple):
            return value
        try:
            return parse_address(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def worker_flags(required: bool) -> Callable[[_Command], _Command]:
    """`--kubeconfig` and `--context`, of the worker."""

    def decorate(function: _Command) -> _Command:
        function = click.option("--context", metavar="NAME", help="Its context there.  [default: the current one]")(
            function
        )
        return click.option(
            "--kubeconfig",
            type=click.Path(path_type=Path),
            metavar="FILE",
            required=required,
            help="An administrator's, of the worker cluster.",
        )(function)

    return decorate


def worker_access(kubeconfig: Path, context: str | None) -> Access:
    """What the flags name, read; nobody is asked yet."""
    if not kubeconfig.exists():
        raise CommandError(f"--kubeconfig: there is no file {kubeconfig}", code=Exit.USAGE)
    return parse_lenient(kubeconfig, context)


def worker_client(kubeconfig: Path, context: str | None, name: str) -> Client:
    """For `async with`."""
    connection = Connection.from_kubeconfig(kubeconfig, context, name=name)
    return Client(connection, user_agent="multimirror-cli", timeout=15.0)


def pairs(values: Iterable[str], *, flag: str, alone: bool) -> dict[str, str]:
    """`a=b,c` as a mapping; `alone`: a name without a value stands for itself."""
    found: dict[str, str] = {}
    for part in ",".join(values).split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not name or (not equals and not alone) or (equals and not value):
            form = "NAMESPACE or HERE=THERE" if alone else "KEY=VALUE"
            raise click.UsageError(f"{flag}: {part!r} is not {form}")
        found[name] = value if equals else name
    return found
