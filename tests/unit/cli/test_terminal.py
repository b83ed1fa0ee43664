"""Nothing that a cluster says commands a terminal."""

import io
import logging
import sys
import unicodedata
from pathlib import Path
from typing import Any

import click
import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

import multimirror.cli
from multimirror.cli.errors import CommandError
from multimirror.cli.output import Styled, cell, echo, show, table
from multimirror.cli.progress import say
from multimirror.kube.logs import configure_logging
from multimirror.kube.terminal import printable

OSC52 = "\x1b]52;c;cm0gLXJmIH4=\x07"
"""Puts a text of somebody else's into the clipboard."""
HOSTILE = [
    pytest.param(OSC52, id="the clipboard"),
    pytest.param("\x1b[2J\x1b[H", id="clear the screen"),
    pytest.param("\x1b[31mred\x1b[0m", id="a colour"),
    pytest.param("\x9b2J", id="a control sequence in one character"),
    pytest.param("fine\rERROR", id="back to the start of the line"),
    pytest.param("abc\b\b\b", id="backspaces"),
    pytest.param("\u202etxt.exe", id="writing turned around"),
    pytest.param("\u2066x\u2069", id="an isolate"),
    pytest.param("a\u2028b", id="another line break"),
    pytest.param("\x00\x7f", id="null and delete"),
    pytest.param("\ud800", id="half a character"),
]


def is_harmless(text: str) -> bool:
    turns = set("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
    return not any(
        (unicodedata.category(each) in {"Cc", "Cs", "Zl", "Zp"} and each not in "\n\t") or each in turns
        for each in text
    )


@pytest.mark.parametrize("text", HOSTILE)
def test_what_a_terminal_would_obey_is_replaced_wherever_it_is_printed(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    say(f"note: {text}")
    echo("name ", Styled(text, "red"))
    CommandError(f"the server said {text}", f"Look at {text}.").show()
    echo("\n".join(table(("NAME", "WHY"), [(text, text)])))
    show({"message": text.encode("utf-8", "replace").decode()}, "json")
    show({"message": text.encode("utf-8", "replace").decode()}, "yaml")
    told = capsys.readouterr()
    assert is_harmless(told.out), told.out
    assert is_harmless(told.err), told.err


@given(st.text(alphabet=st.characters()))
def test_any_text_is_harmless_afterwards_and_as_long_as_before(text: str) -> None:
    clean = printable(text)
    assert is_harmless(clean)
    assert len(clean) == len(text)
    assert printable(clean) == clean


@given(st.text(alphabet=st.characters(categories=("L", "N", "P", "S", "Zs"))))
def test_what_people_write_stays_as_it_is(text: str) -> None:
    assert printable(text) == text
    assert printable(f"{text}\n\t") == f"{text}\n\t"


def test_a_message_of_several_lines_makes_no_row_of_its_own_in_a_table() -> None:
    assert cell("one\ntwo\r\nthree") == "one two three"


def test_our_own_colours_stay(capsys: pytest.CaptureFixture[str]) -> None:
    echo("is ", Styled("ok", "green"), file=(terminal := _Terminal()))
    assert terminal.getvalue() == f"is {click.style('ok', fg='green')}\n"


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_logs_for_people_are_harmless_too(monkeypatch: pytest.MonkeyPatch) -> None:
    shown, root = io.StringIO(), logging.getLogger()
    handlers, level = root.handlers[:], root.level
    monkeypatch.setattr(sys, "stdout", shown)
    try:
        configure_logging("text")
        log: Any = structlog.get_logger("test")
        log.warning("worker not connected", error=f"said {OSC52}")
        log.error("failed", exc_info=ValueError(OSC52))
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        structlog.reset_defaults()
    assert "worker not connected" in shown.getvalue()
    assert "ValueError" in shown.getvalue()
    assert is_harmless(shown.getvalue())


def test_nothing_prints_but_through_the_one_way_out() -> None:
    """Somebody who adds a command will not think of it."""
    allowed = {"output.py", "commands/logs.py", "commands/completion.py", "main.py"}  # `--raw`, and our own texts
    root = Path(multimirror.cli.__file__).parent
    others = [file for file in root.rglob("*.py") if str(file.relative_to(root)) not in allowed]
    assert [file.name for file in others if "click.echo" in file.read_text() or "secho" in file.read_text()] == []
