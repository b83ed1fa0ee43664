"""The help of every command fits on a screen of 80 columns, and shows how the command is used."""

from collections.abc import Iterator

import click
import pytest

from multimirror.cli.main import cli, main


def commands() -> Iterator[tuple[str, ...]]:
    context = click.Context(cli)
    for name in cli.list_commands(context):
        yield (name,)
        command = cli.get_command(context, name)
        if isinstance(command, click.Group):
            yield from ((name, each) for each in command.list_commands(context))


def shown(words: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*words, "--help"]) == 0
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_the_help_of_a_command_fits_on_a_screen(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = shown(words, capsys, monkeypatch)
    most = {"run": 50, "join": 45}.get(" ".join(words), 40)
    assert len(lines) <= most, "a process has more to set than a person, and rights that are given are explained"
    assert max(len(line) for line in lines) <= 80
    if len(words) == 1 and not any("Commands:" in line for line in lines):
        assert any(f"  multimirror {words[0]}" in line or "Install:" in line for line in lines), "it has examples"


def test_the_help_of_the_whole_fits_on_a_small_screen(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = shown((), capsys, monkeypatch)
    assert len(lines) <= 40
    assert max(len(line) for line in lines) <= 80
