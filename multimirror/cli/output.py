"""What commands print: tables as kubectl has them, or JSON and YAML for programs. Colours only on a terminal.

Nothing else prints: `echo` is the one way out, and takes the control characters out of whatever a cluster told us. What
is to be coloured says so (`styled`); a colour that came with the text is none. JSON and YAML are escaped.
"""

import json
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import IO, Any, Final, TypeVar

import click
import yaml

from multimirror.kube.terminal import printable

_NARROW: Final = 20
"""What is left of a terminal must be this wide to break lines in it."""
_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Styled:
    """A text in a colour of ours."""

    text: str
    colour: str | None = None
    bold: bool = False


def echo(*parts: str | Styled, err: bool = False, file: IO[Any] | None = None) -> None:
    """One line, or several: what comes from elsewhere as harmless text, our colours around it."""
    click.echo("".join(map(_rendered, parts)), err=err, file=file)


def _rendered(part: str | Styled) -> str:
    if isinstance(part, str):
        return printable(part)
    return click.style(printable(part.text), fg=part.colour, bold=part.bold or None)


def output_option(*choices: str) -> Callable[[_Function], _Function]:
    """`-o table|json|yaml`, with further choices of the command's own."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(["table", *choices, "json", "yaml"]),
        default="table",
        show_default=True,
        help="For people, or for programs.",
    )


def show(value: Any, output: str) -> None:
    echo(json.dumps(value, indent=2) if output == "json" else yaml.safe_dump(value, sort_keys=False).rstrip())


def table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Lines with aligned columns, three blanks between them, nothing at the ends: what cut, awk and people can read."""
    lines = [list(titles), *([cell(value) for value in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(titles))]
    return ["   ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines]


def cell(value: object) -> str:
    """A value in a table, on one line; what is not there is shown as kubectl shows it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "<none>" if value is None or value == "" else printable(" ".join(str(value).splitlines()))


def fitted(lines: list[str], *, wide: bool) -> list[str]:
    """On a terminal no line is longer than the terminal: what is too much of the last column is cut off."""
    if wide or not sys.stdout.isatty():
        return lines
    width = shutil.get_terminal_size().columns
    return [line if len(line) <= width else line[: width - 1] + "…" for line in lines]


def hanging(line: str, indent: int) -> str:
    """On a terminal, a line that is too long goes on in the next ones, indented."""
    width = shutil.get_terminal_size().columns
    if not sys.stdout.isatty() or len(line) <= width or width - indent < _NARROW:
        return line
    rest = textwrap.wrap(line[indent:], width - indent, break_long_words=False, break_on_hyphens=False)
    return line[:indent] + ("\n" + " " * indent).join(rest)
