"""The image's steps, as far as they go without a container engine: what is copied builds, and both commands run.

The sources are those that the Dockerfile copies and .dockerignore lets through, and nothing else.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from multimirror.admission.certificates import KeyPair
from multimirror.cli.installation.authority import put_in
from multimirror.cli.installation.objects import InstallOptions, objects

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
pytestmark = pytest.mark.xdist_group("image")


def sources() -> list[str]:
    """What the first stage copies."""
    found = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    return [name for line in found for name in line.split()]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of these sources, unpacked; its dependencies are those of this environment."""
    context, target = tmp_path_factory.mktemp("context"), tmp_path_factory.mktemp("image")
    for name in sources():
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, context / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, context / name)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command = [*pip, "--no-deps", "--no-build-isolation", "--target", str(target), str(context)]
    subprocess.run(command, check=True, cwd=context)
    return target


def run(installed: Path, *command: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(installed), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, check=True)
    return done.stdout


def test_the_commands_of_the_image_run_from_what_is_copied(installed: Path) -> None:
    where = run(installed, sys.executable, "-c", "import multimirror; print(multimirror.__file__)")
    assert Path(where.strip()).is_relative_to(installed)
    for command in ("multimirror", "builtin-controller"):
        assert "Usage" in run(installed, str(installed / "bin" / command), "--help").replace("usage", "Usage")
    assert "--lease-seconds" in run(installed, str(installed / "bin" / "multimirror"), "run", "--help")
    assert "--client-ca" in run(installed, str(installed / "bin" / "multimirror"), "admission", "--help")


def test_the_image_has_what_is_shipped_and_no_test_tools(installed: Path) -> None:
    packages = {path.parent.name for path in installed.glob("*/__init__.py")}
    assert packages == {"multimirror", "builtin_controller"}
    assert not {"clusters", "faults", "tests"} & {Path(name).parts[0] for name in sources()}


def test_the_package_installs_without_a_checkout(installed: Path) -> None:
    printed = run(installed, str(installed / "bin" / "multimirror"), "install", "--dry-run", "--image", "mm:1")
    shown = list(yaml.safe_load_all(printed))
    (pair,) = [KeyPair.read(obj["data"]) for obj in shown if obj["kind"] == "Secret"]
    assert pair is not None
    assert shown == put_in(objects(InstallOptions(image="mm:1")), pair, "multimirror-system")
    assert (installed / "multimirror" / "deploy" / "worker" / "worker.yaml").is_file()


def test_everything_that_is_copied_is_let_through_and_nothing_else() -> None:
    lines = (ROOT / ".dockerignore").read_text().split()
    assert lines[0] == "*"
    assert sorted(line.removeprefix("!") for line in lines if line.startswith("!")) == sorted(sources())


def test_the_image_runs_the_dispatcher_as_nobody_in_particular() -> None:
    *_, last = DOCKERFILE.split("\nFROM ")
    user = re.search(r"^USER (\d+):(\d+)$", last, re.MULTILINE)
    assert user is not None
    assert int(user[1]) > 0
    pods = [obj["spec"]["template"]["spec"] for obj in objects(InstallOptions()) if obj["kind"] == "Deployment"]
    assert {pod["securityContext"]["runAsUser"] for pod in pods} == {int(user[1])}
    assert 'CMD ["multimirror", "run"]' in last
    commands = [pod["containers"][0]["command"] for pod in pods]
    assert commands == [["multimirror", "admission"], ["multimirror", "run"]]
