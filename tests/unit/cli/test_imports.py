"""What `multimirror run` needs is what its image has: no test fleets, no official client, nothing that draws."""

import subprocess
import sys

import pytest

_FOR_PEOPLE = (
    "completion cordon doctor drain events explain get import_ install join leave logs queue uncordon uninstall "
    "what_if why"
)
_PROGRAM = """
import importlib, sys

for name in ("kubernetes", "rich", "clusters", "faults"):
    sys.modules[name] = None  # as if it were not installed: to import it is an error
for name in sys.argv[1:]:
    assert importlib.import_module(f"multimirror.cli.commands.{name}").command.callback
"""


@pytest.mark.parametrize("commands", ["run", _FOR_PEOPLE], ids=["run", "what operators and users call"])
def test_a_command_is_loaded_without_what_only_fleets_and_the_demo_need(commands: str) -> None:
    program = [sys.executable, "-c", _PROGRAM, *commands.split()]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
