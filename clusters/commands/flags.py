"""Flags that `demo` and `fleet` share."""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from clusters.fleet import KINDS, FleetError
from clusters.fleet_directory import FleetDirectory
from clusters.kind.node_image import VARIABLE
from multimirror.cli.errors import CommandError, Exit

_VERSION_KEYWORDS: Final = {"local": "version", "kind": "kubernetes_version"}
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


def versions_options(function: _Command) -> _Command:
    """Which Kubernetes real clusters have, as `node_image` and `kubernetes_version`; see `own_keywords`."""
    decorators = (
        click.option(
            "--node-image",
            metavar="IMAGE",
            help=f"What the nodes of kind clusters are made of (or set {VARIABLE}).",
        ),
        click.option("--kubernetes-version", metavar="VERSION", help="Of local and kind clusters, such as 1.35."),
    )
    for decorate in reversed(decorators):
        function = decorate(function)
    return function


def own_keywords(
    kind: str, node_image: str | None, kubernetes_version: str | None, load: Sequence[str] = ()
) -> dict[str, Any]:
    """For that kind's options; CommandError for what it cannot have."""
    for flag, given in (("--node-image", node_image), ("--load", load)):
        if given and kind != "kind":
            raise CommandError(f"{flag} is for kind clusters, and these are {kind} ones", code=Exit.USAGE)
    if kubernetes_version and kind not in _VERSION_KEYWORDS:
        raise CommandError(
            f"--kubernetes-version is for local and kind clusters, and these are {kind} ones", code=Exit.USAGE
        )
    version = {_VERSION_KEYWORDS[kind]: kubernetes_version} if kubernetes_version else {}
    kinds = {"node_image": node_image, "images": load}
    return {**version, **{key: value for key, value in kinds.items() if value}}


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
                what, *details = str(error).splitlines()
                raise CommandError(what, "\n  ".join(details)) from error

        return command

    return decorate
