"""Completion, by the shell and by kubectl."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from multimirror.cli import main, plugin


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert f"_MULTIMIRROR_COMPLETE={shell}_complete" in capsys.readouterr().out


def test_bash_completes_commands_and_flags(tmp_path: Path) -> None:
    script = tmp_path / "complete.sh"
    program = f"{sys.executable} -m multimirror.cli"
    (tmp_path / "multimirror").write_text(f'#!/bin/sh\nexec {program} "$@"\n')
    (tmp_path / "multimirror").chmod(0o755)
    script.write_text(
        "source <(multimirror completion bash)\n"
        "COMP_WORDS=(multimirror run --log-l) COMP_CWORD=2\n"
        "_multimirror_completion multimirror\n"
        'echo "${COMPREPLY[@]}"\n'
    )
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", str(script)], capture_output=True, text=True, timeout=60, check=False, env={**os.environ, "PATH": path}
    )
    assert done.stdout == "--log-level\n", done.stderr


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["dem"], ["demo\tA fleet on this machine, and a few dozen...", ":4"]),
        (["run", "--log-level", "de"], ["debug", ":4"]),
        (["run", "--config", ""], [":0"]),
    ],
)
def test_kubectl_gets_one_candidate_a_line_and_what_may_follow(
    words: list[str], wanted: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["kubectl_complete-multimirror", *words])
    assert plugin.complete() == 0
    assert capsys.readouterr().out.splitlines() == wanted


def test_as_a_plugin_errors_name_the_plugin(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["kubectl-multimirror", "run", "--nope"])
    assert plugin.plugin() == 2
    assert "See `kubectl multimirror run --help`" in capsys.readouterr().err
