"""Every command in the texts that people are given: the chart's notes and values, the manifests, and our own messages.

A command is asked for its help with all that the text gives it: its own parser refuses a flag that there is not. Those
that stand alone on a line are whole: they need nothing more.
"""

import ast
import contextlib
import io
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import click
import pytest

from clusters import chart
from clusters.local import BinariesMissingError, find_kubectl
from clusters.local.helm import find_helm
from multimirror.cli import main
from multimirror.cli.main import cli
from tests.documents import ROOT, blocks

_PROGRAMS: Final = "multimirror|kubectl|helm|builtin-controller"
_QUOTED: Final = re.compile(rf"`((?:{_PROGRAMS}) [^`]+)`")
_ALONE: Final = re.compile(rf"^(?:#|  ) *((?:{_PROGRAMS}) [^`\n]+)$", re.MULTILINE)
_PLACEHOLDER: Final = "placeholder"
VALUES: Final = {
    "the defaults": (),
    "webhook": ("admission=webhook",),
    "both": ("admission=both",),
    "none": ("admission=none",),
    "a worker": ("dispatcher.enabled=false", "builtinController.enabled=true"),
    "open": ("networkPolicy.enabled=false",),
}
pytestmark = pytest.mark.xdist_group("chart")


def notes(*values: str) -> str:
    """What Helm tells after an installation."""
    settings = [part for value in values for part in ("--set", value)]
    where = ("--namespace", chart.NAMESPACE, "--dry-run=client")
    told = chart.helm("install", "multimirror", str(chart.CHART), *where, *settings)
    return told.partition("\nNOTES:\n")[2]


def whole_commands(text: str) -> list[str]:
    return [found.strip() for found in _ALONE.findall(text)]


def quoted_commands(text: str) -> list[str]:
    return [" ".join(found.split()) for found in _QUOTED.findall(text)]


def messages(file: Path) -> Iterator[str]:
    """The texts in a module; what is put into them stands for itself."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else _PLACEHOLDER for part in node.values]
            yield "".join(str(part) for part in parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def check(commands: Iterable[str]) -> None:
    """The parser of each takes all of it."""
    unasked: set[str] = set()
    for command in commands:
        try:
            taken, said = asked(command)
        except BinariesMissingError as missing:
            unasked.add(str(missing))
        else:
            assert taken, f"{command}: {said}"
    if unasked:
        pytest.skip("; ".join(unasked))


def asked(command: str) -> tuple[bool, str]:
    """Whether a command helps with all that is given, and what it says."""
    given = command.removeprefix("kubectl ") if command.startswith("kubectl multimirror") else command
    given = given.removesuffix(" ...") if given.count(" ") == 1 else given.replace("...", _PLACEHOLDER)
    program, *arguments = shlex.split(given, comments=True)
    if program == "multimirror":
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
            # A text may leave out the value of its last flag.
            value = [_PLACEHOLDER] if arguments[-1:] and arguments[-1].startswith("--") else []
            return 0 in (main([*arguments, "--help"]), main([*arguments, *value, "--help"])), said.getvalue()
    own = Path(sys.executable).with_name("builtin-controller")
    path = own if program == own.name else find_kubectl() if program == "kubectl" else find_helm()
    done = subprocess.run([path, *arguments, "--help"], capture_output=True, text=True, check=False)
    return done.returncode == 0, done.stderr


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_what_the_notes_tell_to_run_is_taken(values: tuple[str, ...]) -> None:
    try:
        text = notes(*values)
    except BinariesMissingError as missing:
        pytest.skip(str(missing))
    found = whole_commands(text)
    assert found or "dispatcher.enabled=false" in values
    check([*found, *quoted_commands(text)])
    for name, *arguments in (shlex.split(each)[1:] for each in found if each.startswith("multimirror ")):
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        command.make_context(name, arguments)


FILES: Final = [
    chart.CHART / "values.yaml",
    chart.CHART / "values.schema.json",
    chart.CHART / "files" / "alerts.yaml",
    *sorted((chart.CHART / "templates").glob("*.yaml")),
    *sorted((chart.DEPLOY / "manifests").iterdir()),
    *sorted((chart.DEPLOY / "admission").iterdir()),
    *sorted((chart.DEPLOY / "worker").iterdir()),
    chart.DEPLOY / "README.md",
]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(chart.DEPLOY)))
def test_the_commands_in_what_is_deployed_are_taken(file: Path) -> None:
    text = re.sub(r"\{\{.*?\}\}", _PLACEHOLDER, file.read_text(), flags=re.DOTALL)
    fenced = [line for block in blocks(file) for line in block.text.splitlines()] if file.suffix == ".md" else []
    check([*whole_commands(text), *quoted_commands(text), *whole_commands("\n".join(fenced))])


def test_the_commands_in_our_messages_are_taken() -> None:
    found = {
        command
        for folder in ("multimirror", "builtin_controller")
        for file in sorted((ROOT / folder).rglob("*.py"))
        for text in messages(file)
        for command in quoted_commands(text)
    }
    assert len(found) > 20
    check(sorted(found))
