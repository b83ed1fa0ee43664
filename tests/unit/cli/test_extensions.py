"""Commands that another package adds, whatever is the matter with it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from multimirror.cli import main

Add = Callable[..., None]


@pytest.fixture
def add(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Add:
    """Installs a distribution `acme-tools` with one module and these entry points."""

    def install(module: str, **commands: str) -> None:
        information = tmp_path / "acme_tools-1.0.dist-info"
        information.mkdir()
        (information / "METADATA").write_text("Metadata-Version: 2.4\nName: acme-tools\nVersion: 1.0\n")
        lines = [f"{name} = {value}" for name, value in commands.items()]
        (information / "entry_points.txt").write_text("\n".join(["[multimirror.commands]", *lines, ""]))
        (tmp_path / f"{tmp_path.name}.py").write_text(module)
        monkeypatch.syspath_prepend(str(tmp_path))

    return install


GREETING = """
import click

@click.command("greet")
@click.option("--name", default="you")
def command(name):
    "Say hello."
    click.echo(f"hello {name}")
    return 3
"""


def test_an_added_command_is_listed_under_its_package_and_runs(
    add: Add, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add(GREETING, greet=f"{tmp_path.name}:command")

    assert main(["greet", "--name", "Ada"]) == 3, "its exit code is the command's"
    assert capsys.readouterr().out == "hello Ada\n"
    assert main(["--help"]) == 0
    assert "From acme-tools:\n  greet  Say hello.\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("module", "why"),
    [
        pytest.param("import there_is_no_such_module", "ModuleNotFoundError: No module named 'there_is", id="import"),
        pytest.param("raise ValueError('no luck')", "ValueError: no luck", id="it raises"),
        pytest.param("command = 'x'", ":command is no click command", id="it is no command"),
        pytest.param("", "AttributeError: ", id="it is not there"),
    ],
)
def test_one_that_cannot_be_loaded_costs_itself_alone(
    add: Add, tmp_path: Path, capsys: pytest.CaptureFixture[str], module: str, why: str
) -> None:
    add(module, greet=f"{tmp_path.name}:command")

    assert main(["greet", "--name", "Ada", "--help"]) == 1
    told = capsys.readouterr().err
    assert told.startswith("error: `greet`, which acme-tools adds, cannot be loaded: ")
    assert why in told
    assert "Install acme-tools again" in told
    for others in (["--help"], ["run", "--help"]):
        assert main(others) == 0
    assert "greet  Cannot be loaded" in capsys.readouterr().out


def test_no_package_takes_the_name_of_one_of_our_commands(
    add: Add, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add(GREETING, run=f"{tmp_path.name}:command")

    assert main(["run", "--help"]) == 0
    assert "--admission-service" in capsys.readouterr().out
    assert main(["--help"]) == 0
    assert "acme-tools" not in capsys.readouterr().out


def test_a_command_that_nobody_brings_is_no_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["greet"]) == 2
    assert "No such command 'greet'" in capsys.readouterr().err
