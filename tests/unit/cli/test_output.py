"""Tables and long lines: whole in a pipe, within the width of a terminal."""

import os
import pty
import subprocess
import sys

from multimirror.cli.output import cell, table


def test_columns_are_aligned_and_what_is_missing_is_shown() -> None:
    assert table(("NAME", "READY", "WHY"), [("east", True, ""), ("north-west", False, "gone")]) == [
        "NAME         READY   WHY",
        "east         yes     <none>",
        "north-west   no      gone",
    ]
    assert cell(0) == "0"


_PROGRAM = """
from multimirror.cli.output import fitted, hanging
print("\\n".join(fitted(["x" * 60], wide=False)))
print(hanging("label  " + "word " * 12, 7))
"""


def test_a_terminal_gets_no_line_that_is_wider_than_it() -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb") as terminal:
        environment = {**os.environ, "COLUMNS": "40"}
        subprocess.run([sys.executable, "-c", _PROGRAM], stdout=theirs, env=environment, check=True, timeout=60)
        os.close(theirs)
        shown = terminal.read1(4096).decode().splitlines()
    assert max(map(len, shown)) <= 40
    assert shown[0].endswith("…")
    assert shown[2].startswith("       word")


def test_a_pipe_gets_everything() -> None:
    told = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True, timeout=60)
    assert len(told.stdout.splitlines()) == 2


_LOGGING_COMMAND = """
import click, structlog
from multimirror.cli.connection import on_management

@click.command()
@on_management
async def command(management):
    structlog.get_logger().info("a cache was filled")
    structlog.get_logger().warning("a watch failed")
    click.echo("what was asked for")

command.main([], standalone_mode=False)
"""


def test_what_the_runtime_logs_is_not_among_what_was_asked_for() -> None:
    program = [sys.executable, "-c", _LOGGING_COMMAND]
    done = subprocess.run(program, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "what was asked for\n"
    assert done.stderr == ""
