"""What people get wrong, with every command: one clear line, the documented exit code, and never a trace."""

import socket
from pathlib import Path

import pytest
import yaml

from multimirror.cli import main

CALLS = {
    "join": ["join", "east"],
    "leave": ["leave", "east"],
    "cordon": ["cordon", "east"],
    "uncordon": ["uncordon", "east"],
    "drain": ["drain", "east"],
    "get": ["get", "jobs"],
    "explain": ["explain", "job/x"],
    "why": ["why", "job/x"],
    "queue": ["queue", "x"],
    "what-if": ["what-if", "job/x", "--priority", "1"],
    "logs": ["logs", "job/x"],
    "events": ["events", "job/x"],
    "doctor": ["doctor"],
    "import": ["import", "kueue"],
}
each_command = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())


def kubeconfig(directory: Path, server: str) -> Path:
    path = directory / "kubeconfig"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }
    path.write_text(yaml.safe_dump(config))
    return path


def both(call: list[str], path: Path) -> list[str]:
    """The management cluster's kubeconfig, by the name that it has with this command."""
    if call[0] == "join":
        return [*call, "--kubeconfig", str(path), "--management-kubeconfig", str(path)]
    return [*call, "--management-kubeconfig" if call[0] == "leave" else "--kubeconfig", str(path)]


def told(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What is on standard error: one sentence, and at most a remedy."""
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("error: "), lines
    assert len(lines) <= 2, lines
    assert "Traceback" not in "".join(lines)
    return lines


@each_command
def test_an_unknown_flag(call: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*call, "--nonsense"]) == 2
    lines = told(capsys)
    assert "--nonsense" in lines[0]
    command = " ".join(call) if call[0] == "import" else call[0]
    assert lines[1].strip() == f"See `multimirror {command} --help`."


@each_command
def test_a_file_that_is_not_there(call: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(both(call, tmp_path / "nowhere.yaml")) == 2
    assert "kubeconfig: there is no file " in told(capsys)[0]


@each_command
def test_a_file_that_is_no_kubeconfig(call: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text("- not\n- a kubeconfig\n")
    assert main(both(call, path)) == 2
    assert "a kubeconfig must be a mapping" in told(capsys)[0]


@each_command
def test_a_context_that_is_not_there(call: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, "https://127.0.0.1:1")
    flag = "--management-context" if call[0] == "leave" else "--context"
    assert main([*both(call, path), flag, "other"]) == 2
    assert "'other'" in told(capsys)[0]


@each_command
def test_a_cluster_that_does_not_answer(
    call: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("multimirror.kube.retries._TRIES", 2)  # the outcome is the same, only sooner
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # nobody listens there
        port = closed.getsockname()[1]
        assert main(both(call, kubeconfig(tmp_path, f"http://127.0.0.1:{port}"))) == 3
    assert str(port) in told(capsys)[0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (["logs", "pod/x"], "'pod/x' is not a Job: write job/NAME"),
        (["logs", "job/"], "'job/' names no Job: write job/NAME"),
        (["drain", "east", "--timeout", "soon"], "'soon' is no duration"),
        (["install", "--wait", "--timeout", "-5s"], "'-5s' is no duration"),
        (["uninstall", "--timeout", "1 hour"], "'1 hour' is no duration"),
        (["get", "nodes"], "nodes"),
        (["get", "jobs", "x", "-A"], "--all-namespaces goes with neither a name nor --namespace"),
        (["leave", "east", "--cleanup"], "--cleanup and --kubeconfig (the worker's) go together"),
        (["join", "east", "--namespaces", "a=", "--kubeconfig", "x"], "'a=' is not NAMESPACE or HERE=THERE"),
        (["join", "east", "--label", "a", "--kubeconfig", "x"], "'a' is not KEY=VALUE"),
        (["join", "east"], "Missing option '--kubeconfig'"),
    ],
)
def test_what_cannot_be_meant(
    call: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, "http://127.0.0.1:1")))
    assert main(call) == 2
    assert message in told(capsys)[0]
