"""The flags that all of our long-lived processes have: their cluster, their health, their logs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from multimirror.cli.configuration import setting
from multimirror.cli.connection import SYSTEM_NAMESPACE
from multimirror.cli.errors import CommandError, Exit
from multimirror.cli.flags import Address

_Function = TypeVar("_Function", bound=Callable[..., Any])
CLUSTER: Final = "Management cluster"
FILE: Final = click.Path(path_type=Path)
_HEALTH: Final = "Health and logs"


def cluster_flags(function: _Function) -> _Function:
    """`--kubeconfig`, `--context` and `--namespace`."""
    return _decorated(
        function,
        setting(
            "--kubeconfig",
            type=FILE,
            metavar="FILE",
            help="How to reach it.",
            otherwise="as kubectl, or the pod's",
            group=CLUSTER,
        ),
        setting(
            "--context", metavar="NAME", help="The kubeconfig's context.", otherwise="the current one", group=CLUSTER
        ),
        setting("--namespace", default=SYSTEM_NAMESPACE, metavar="NAME", help="Our own.", group=CLUSTER),
    )


def health_flags(function: _Function) -> _Function:
    """`--health-address`, `--log-format` and `--log-level`."""
    return _decorated(
        function,
        setting(
            "--health-address",
            type=Address(),
            default=":8080",
            metavar="ADDRESS",
            help="/healthz, /readyz and /metrics.",
            group=_HEALTH,
        ),
        setting(
            "--log-format",
            type=click.Choice(["json", "text"]),
            default="json",
            metavar="FORMAT",
            help="json, or text for people.",
            group=_HEALTH,
        ),
        setting(
            "--log-level",
            type=click.Choice(["debug", "info", "warning", "error"]),
            default="info",
            metavar="LEVEL",
            help="debug, info, warning or error.",
            group=_HEALTH,
        ),
    )


def existing_file(flag: str, file: Path | None) -> Path | None:
    """The file that a flag names; an error of usage where there is none."""
    if file is not None and not file.exists():
        raise CommandError(f"{flag}: there is no file {file}", code=Exit.USAGE)
    return file


def _decorated(function: _Function, *decorators: Callable[[_Function], _Function]) -> _Function:
    for decorate in reversed(decorators):
        function = decorate(function)
    return function
