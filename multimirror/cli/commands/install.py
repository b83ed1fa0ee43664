"""`multimirror install`: the flags, and what is told on the way."""

import re
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import click
import yaml

from multimirror.admission import PATH
from multimirror.api import MANAGED_BY
from multimirror.cli.admission import registration
from multimirror.cli.apply import ObjectChange
from multimirror.cli.connection import SYSTEM_NAMESPACE, Management, on_management
from multimirror.cli.errors import Exit
from multimirror.cli.flags import Duration
from multimirror.cli.installation.authority import with_new_authority
from multimirror.cli.installation.install import Installation, Report, choose
from multimirror.cli.installation.objects import (
    ADMISSIONS,
    COMPONENTS,
    Admission,
    InstallOptions,
    display_name,
    objects,
)
from multimirror.cli.output import Styled, echo, show

EXAMPLES = """\b
Examples:
  multimirror install --image registry.example.com/multimirror:0.1.0
  multimirror install --admission policies --dry-run=server
  multimirror install --dry-run=client -o yaml > multimirror.yaml
  multimirror install --component builtin-controller --context worker
"""
_COLOURS = {"created": "green", "configured": "yellow", "deleted": "red"}


_MANAGER = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[A-Za-z0-9._~-]+")


def _manager(_: click.Context, __: click.Parameter, value: str) -> str:
    """It is written into expressions: only what a Job can have."""
    if not _MANAGER.fullmatch(value) or len(value) > 63:
        raise click.BadParameter(f"{value!r} is no DOMAIN/NAME of at most 63 characters")
    return value


@click.command(epilog=EXAMPLES)
@click.option(
    "--component",
    type=click.Choice(COMPONENTS),
    default="dispatcher",
    show_default=True,
    metavar="NAME",
    help="Or builtin-controller, or registration.",
)
@click.option(
    "--namespace", "-n", metavar="NAME", default=SYSTEM_NAMESPACE, show_default=True, help="Made when it is missing."
)
@click.option("--image", metavar="IMAGE", help="Of the controllers.  [default: multimirror:VERSION]")
@click.option("--replicas", type=click.IntRange(1), metavar="N", help="One leads, others stand by.  [default: 2]")
@click.option(
    "--admission",
    type=click.Choice(["auto", *ADMISSIONS]),
    default="auto",
    show_default=True,
    metavar="KIND",
    help="policies (1.36), webhook, none; auto chooses.",
)
@click.option("--admission-url", metavar="URL", help=f"To register: https://HOST:PORT{PATH}.")
@click.option(
    "--managed-by",
    default=MANAGED_BY,
    show_default=True,
    callback=_manager,
    metavar="NAME",
    help="The dispatcher's mark on Jobs.",
)
@click.option(
    "--dry-run",
    type=click.Choice(["none", "client", "server"]),
    is_flag=False,
    flag_value="client",
    default="none",
    show_default=True,
    metavar="HOW",
    help="client: print it; server: have it checked.",
)
@click.option("--wait/--no-wait", default=False, show_default=True, help="Until every replica is ready.")
@click.option("--timeout", "time_limit", type=Duration(), default="5m", show_default=True, help="Of any wait.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "yaml"]),
    default="text",
    show_default=True,
    help="Objects, or words.",
)
@on_management
async def command(
    management: Management,
    /,
    *,
    dry_run: str,
    wait: bool,
    time_limit: timedelta,
    output: str,
    **flags: Any,
) -> int:
    """Install the controller, or bring it up to date.

    Applies CRDs, RBAC, admission, Service and Deployment to the management cluster by server-side apply, and says what
    changed. Run it again to upgrade, or to change a flag. A webhook is registered when it
    answers; what it replaces goes last.
    """
    if (flags["component"] == "registration") != (flags["admission_url"] is not None):
        raise click.UsageError("--component registration and --admission-url: give both of them, or none")
    if flags["admission_url"] is not None:
        registration(SYSTEM_NAMESPACE, None, flags["admission_url"], MANAGED_BY)  # or it is refused
        flags["admission"] = "webhook"
    if dry_run == "client":
        # Nobody is asked what the server has: the webhook needs nothing of it.
        options = _options(flags, "webhook")
        _print(with_new_authority(objects(options), options.namespace), "json" if output == "json" else "yaml")
        return Exit.OK
    async with management.client() as client:
        options = _options(flags, await choose(client) if flags["admission"] == "auto" else "none")
        report = Report(_line if output == "text" else _nothing)
        dry = dry_run == "server"
        run = Installation(
            client=client,
            options=options,
            report=report,
            tell=_told_once(),
            warn=lambda text: echo(f"warning: {text}", err=True),
            seconds=time_limit.total_seconds(),
        )
        await run.run(dry_run=dry)
        if wait and not dry:
            await run.wait()
    for warning in report.warnings:
        echo(f"warning: {warning}", err=True)
    if output == "text":
        _summary(report, options, dry_run=dry)
    else:
        _print([each.obj for each in report.changes if each.operation != "deleted"], output)
    return Exit.OK


def _options(flags: dict[str, Any], auto: Admission) -> InstallOptions:
    return InstallOptions(**{**flags, "admission": auto if flags["admission"] == "auto" else flags["admission"]})


def _told_once() -> Callable[[str], None]:
    """Says what is waited for, when that is new."""
    last = ""

    def tell(text: str) -> None:
        nonlocal last
        if text != last:
            echo(f"waiting: {text}", err=True)
        last = text

    return tell


def _line(change: ObjectChange) -> None:
    detail = f" ({', '.join(_short(change.fields))})" if change.fields else ""
    unchecked = " (not checked: its namespace is not there yet)" if not change.checked else ""
    words = Styled(change.operation, _COLOURS.get(change.operation))
    echo(f"{display_name(change.obj)} ", words, f"{detail}{unchecked}")


def _short(fields: list[str]) -> list[str]:
    return fields if len(fields) <= 4 else [*fields[:4], f"and {len(fields) - 4} more"]


def _nothing(_: ObjectChange) -> None:
    """Programs read the objects."""


def _print(found: list[dict[str, object]], output: str) -> None:
    if output == "json":
        show({"apiVersion": "v1", "kind": "List", "items": found}, "json")
    else:
        yaml.safe_dump_all(found, sys.stdout, sort_keys=False)


def _summary(report: Report, options: InstallOptions, *, dry_run: bool) -> None:
    counts = ", ".join(
        f"{count} {done}" for done in ("created", "configured", "deleted", "unchanged") if (count := report.count(done))
    )
    echo(f"{'dry run: ' if dry_run else ''}{counts}")
    if not dry_run and report.count("created") and options.component == "dispatcher":
        echo(f"next: `kubectl -n {options.namespace} get pods`, then `multimirror join` for each worker cluster")
