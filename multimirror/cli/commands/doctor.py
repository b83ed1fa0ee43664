"""`multimirror doctor`."""

from datetime import timedelta
from typing import Final

import click

from multimirror.cli.connection import Management, on_management, system_namespace
from multimirror.cli.doctor.examination import examine
from multimirror.cli.doctor.findings import Finding, Level
from multimirror.cli.errors import Exit
from multimirror.cli.flags import Duration
from multimirror.cli.output import Styled, echo, hanging, output_option, show

EXAMPLES = """\b
Examples:
  multimirror doctor
  multimirror doctor --quiet
  multimirror doctor -o json | jq '.[] | select(.level == "fault")'
"""
_INDENT: Final = 9
_COLOURS: Final = {Level.OK: "green", Level.WARNING: "yellow", Level.FAULT: "red"}


@click.command(epilog=EXAMPLES)
@click.option("-q", "--quiet", is_flag=True, help="Only what is not as it should be.")
@click.option(
    "--stuck-after",
    type=Duration(),
    default="10m",
    show_default=True,
    help="A Job that does not get on for so long is stuck.",
)
@output_option()
@system_namespace
@on_management
async def command(
    management: Management, *, quiet: bool, stuck_after: timedelta, output: str, system_namespace: str
) -> int:
    """Find what is wrong, and say what to do about it.

    Looks at the management cluster, at each worker with the credentials that are stored for it, at queues, namespaces
    and Jobs. Changes nothing. Ends with 1 when something is broken, with 0 when there are only warnings.
    """
    async with management.client() as client:
        findings = await examine(client, system_namespace, stuck_after)
    shown = [each for each in findings if not quiet or each.level is not Level.OK]
    if output in {"json", "yaml"}:
        show([each.as_json() for each in shown], output)
    else:
        for each in shown:
            _print(each)
        _sum_up(findings)
    return Exit.NOT_SO if any(each.level is Level.FAULT for each in findings) else Exit.OK


def _print(finding: Finding) -> None:
    level = f"{finding.level.value:7}"
    text = hanging(f"{level}  {finding.subject}: {finding.check}: {' '.join(finding.message.split())}", _INDENT)
    echo(Styled(level, _COLOURS[finding.level]), text.removeprefix(level))
    if finding.remedy:
        echo(hanging(" " * _INDENT + finding.remedy, _INDENT))


def _sum_up(findings: list[Finding]) -> None:
    faults, warnings = (sum(each.level is level for each in findings) for level in (Level.FAULT, Level.WARNING))
    if not faults and not warnings:
        echo(f"All is well ({len(findings)} checks).")
        return
    parts = [
        f"{count} {word}{'' if count == 1 else 's'}"
        for count, word in ((faults, "fault"), (warnings, "warning"))
        if count
    ]
    echo(f"{' and '.join(parts)} in {len(findings)} checks.")
