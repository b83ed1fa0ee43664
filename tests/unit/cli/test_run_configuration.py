"""`multimirror run`: flags, environment, file and defaults, and what is said about what cannot be used."""

from pathlib import Path

import click
import pytest
import yaml

from multimirror.cli import main
from multimirror.cli.commands.run import command
from multimirror.cli.configuration import as_yaml, effective


def configured(arguments: list[str]) -> click.Context:
    return command.make_context("run", arguments)


def values(arguments: list[str]) -> dict[str, tuple[object, str]]:
    return {key: (value, source) for key, value, source in effective(configured(arguments))}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "multimirror.yaml"


def test_a_flag_wins_over_the_environment_that_over_the_file_and_that_over_the_default(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text("concurrency: 3\nworker-concurrency: 4\nlog-level: debug\n")
    monkeypatch.setenv("MULTIMIRROR_RUN_CONCURRENCY", "5")
    monkeypatch.setenv("MULTIMIRROR_RUN_WORKER_CONCURRENCY", "6")

    found = values(["--config", str(file), "--concurrency", "7"])

    assert found["concurrency"] == (7, "flag")
    assert found["worker-concurrency"] == (6, "environment")
    assert found["log-level"] == ("debug", "file")
    assert found["log-format"] == ("json", "default")


def test_every_flag_can_come_from_the_file_and_from_the_environment(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {
        "kubeconfig": "/k",
        "context": "c",
        "namespace": "n",
        "leader-election": False,
        "lease-seconds": 3,
        "identity": "i",
        "managed-by": "m",
        "concurrency": 1,
        "worker-concurrency": 2,
        "max-job-bytes": 4096,
        "kubeconfig-directory": "/d",
        "admission-service": "s",
        "admission-url": "u",
        "admission-address": "127.0.0.1:1",
        "admission-client-ca": "/c",
        "health-address": "127.0.0.1:2",
        "log-format": "text",
        "log-level": "error",
    }
    file.write_text(yaml.safe_dump(given))
    found = values(["--config", str(file)])
    assert found == {key: (value, "file") for key, value in given.items()}, "all of them, and no others"

    for key, value in given.items():
        monkeypatch.setenv(f"MULTIMIRROR_RUN_{key.replace('-', '_').upper()}", str(value))
    assert values([]) == {key: (value, "environment") for key, value in given.items()}


def test_the_file_itself_can_be_named_by_the_environment(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text("concurrency: 3\n")
    monkeypatch.setenv("MULTIMIRROR_RUN_CONFIG", str(file))
    assert values([])["concurrency"] == (3, "file")


def test_what_is_printed_as_the_effective_configuration_can_be_used_as_a_file(file: Path) -> None:
    context = configured(["--log-level", "debug", "--health-address", "127.0.0.1:9", "--no-leader-election"])
    file.write_text(as_yaml(context))
    again = values(["--config", str(file)])
    assert {key: value for key, (value, _) in again.items()} == {key: value for key, value, _ in effective(context)}


@pytest.mark.parametrize(
    ("text", "message", "remedy"),
    [
        ("concurency: 3", "concurency: there is no such key", "Did you mean concurrency?"),
        ("log_level: info", "log_level: there is no such key", "Did you mean log-level?"),
        ("config: other.yaml", "config: there is no such key", ""),
        ("concurrency: many", "concurrency: must be a whole number from 1, not 'many'", ""),
        ("concurrency: '3'", "concurrency: must be a whole number from 1, not '3'", ""),
        ("concurrency: true", "concurrency: must be a whole number from 1, not True", ""),
        ("concurrency: 0", "concurrency: 0 is not in the range x>=1", ""),
        ("leader-election: 'no'", "leader-election: must be true or false, not 'no'", ""),
        ("context: 5", "context: must be a text, not 5", ""),
        ("log-level: loud", "log-level: 'loud' is not one of", ""),
        ("health-address: here", "health-address: 'here' is no address; write 127.0.0.1:8080 or :8080", ""),
        ("- concurrency", "must be keys and values, such as `log-level: debug`", ""),
        ("a: [", "not YAML (line 1)", ""),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_its_name_and_the_key(
    file: Path, text: str, message: str, remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(text)
    assert main(["run", "--config", str(file)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {file}: {message}")
    assert remedy in error


def test_an_empty_file_is_a_file_without_wishes(file: Path) -> None:
    file.write_text("# nothing yet\n")
    assert values(["--config", str(file)])["concurrency"] == (16, "default")


def test_a_file_that_is_not_there_is_said(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--config", str(file)]) == 2
    assert f"{file}: No such file or directory" in capsys.readouterr().err


def test_a_wrong_value_in_the_environment_names_the_variable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MULTIMIRROR_RUN_CONCURRENCY", "many")
    assert main(["run"]) == 2
    assert "'MULTIMIRROR_RUN_CONCURRENCY': 'many' is not a valid integer" in capsys.readouterr().err


def test_a_kubeconfig_that_is_not_there_is_said_before_anything_is_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--kubeconfig", str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err == f"error: --kubeconfig: there is no file {tmp_path / 'none'}\n"
