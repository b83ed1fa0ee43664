"""The two packages that are built from this repository, each installed where nothing else of ours is.

Their dependencies are those of this environment: they are linked, so that nothing is fetched.
"""

import os
import subprocess
import sys
import venv
from dataclasses import dataclass
from email.message import Message
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

import orjson
import pytest

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.xdist_group("image"), pytest.mark.timeout(240)]
WITH_FLEETS = "error: `{name}` comes with the fleets; install them: pip install 'multimirror[fleets]'\n"
EVERY_MODULE = """
import importlib, importlib.util, pkgutil, sys
assert importlib.util.find_spec("clusters") is None
assert importlib.util.find_spec("faults") is None
for package in ("multimirror", "builtin_controller"):
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
            print(module.name)
assert "kubernetes" not in sys.modules, "it takes long to load, and few kubeconfigs need it"
"""


def variables() -> dict[str, str]:
    """Without those that show Python other places to look in."""
    return {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}


def pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", *arguments, "--quiet", "--disable-pip-version-check"]
    subprocess.run(command, check=True, env=variables())


@dataclass(frozen=True)
class Wheels:
    product: Path
    fleets: Path


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Wheels:
    built: list[Path] = []
    for source in (ROOT, ROOT / "distributions" / "fleets"):
        directory = tmp_path_factory.mktemp("wheel")
        pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(directory), str(source))
        built += directory.glob("*.whl")
    return Wheels(*built)


@dataclass(frozen=True)
class Environment:
    """A virtual environment with our dependencies, and nothing of ours but what is installed there."""

    directory: Path

    def install(self, wheel: Path) -> None:
        python = str(self.directory / "bin" / "python")
        pip("--python", python, "install", "--no-deps", "--no-index", "--no-cache-dir", str(wheel))

    def run(self, program: str, *arguments: str, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [str(self.directory / "bin" / program), *arguments],
            cwd=cwd or self.directory,
            env=variables(),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    made, dependencies = tmp_path / "venv", tmp_path / "dependencies"
    venv.create(made, symlinks=True)
    dependencies.mkdir()
    for path in Path(orjson.__file__).parents[1].iterdir():
        if "multimirror" not in path.name and path.suffix != ".pth":
            (dependencies / path.name).symlink_to(path)
    (packages,) = made.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(str(dependencies))
    return Environment(made)


def tops(wheel: Path) -> set[str]:
    """What a package puts into an environment."""
    with ZipFile(wheel) as archive:
        assert not [name for name in archive.namelist() if name.endswith(".pyc")]
        return {name.partition("/")[0] for name in archive.namelist() if ".dist-info/" not in name}


def metadata(wheel: Path) -> Message:
    with ZipFile(wheel) as archive:
        (name,) = [each for each in archive.namelist() if each.endswith(".dist-info/METADATA")]
        return Parser().parsestr(archive.read(name).decode())


def test_each_package_holds_its_own_and_nothing_of_the_other(wheels: Wheels) -> None:
    assert tops(wheels.product) == {"multimirror", "builtin_controller"}
    assert tops(wheels.fleets) == {"clusters", "faults"}


def test_they_ask_for_each_other_in_the_same_version(wheels: Wheels) -> None:
    product, fleets = metadata(wheels.product), metadata(wheels.fleets)
    version = product["Version"]
    assert fleets["Version"] == version
    assert f"multimirror=={version}" in (fleets.get_all("Requires-Dist") or ())
    assert f"multimirror-fleets=={version}; extra == 'fleets'" in (product.get_all("Requires-Dist") or ())


def test_alone_the_product_is_whole_and_says_what_brings_the_commands_of_the_fleets(
    wheels: Wheels, environment: Environment
) -> None:
    environment.install(wheels.product)

    imported = environment.run("python", "-c", EVERY_MODULE)
    assert imported.returncode == 0, imported.stderr
    assert {"multimirror.dispatcher", "multimirror.batch.status_rules"} <= set(imported.stdout.split())
    shown = environment.run("multimirror", "--help")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "demo" not in shown.stdout
    for name in ("demo", "fleet"):
        asked = environment.run("multimirror", name, "up", "--workers", "2")
        assert (asked.returncode, asked.stderr) == (1, WITH_FLEETS.format(name=name))


def test_beside_it_the_fleets_add_their_commands_and_a_pytest_plugin(
    wheels: Wheels, environment: Environment, tmp_path: Path
) -> None:
    environment.install(wheels.product)
    environment.install(wheels.fleets)

    shown = environment.run("multimirror", "--help")
    assert "From multimirror-fleets:\n  demo   A fleet on this machine" in shown.stdout, shown.stderr
    for program, words in (("multimirror", ["fleet"]), ("python", ["-m", "clusters"])):
        asked = environment.run(program, *words, "status", "--directory", str(tmp_path / "none"))
        assert asked.stderr.startswith("error: no fleet is up in "), asked.stderr
    assert "--keep" in environment.run("multimirror", "demo", "--help").stdout

    (tmp_path / "test_it.py").write_text(
        "import clusters\n"
        "def test_it(embedded_cluster):\n"
        f"    assert clusters.__file__.startswith({str(environment.directory)!r})\n"
        "    assert embedded_cluster.kubeconfig['clusters']\n"
    )
    tested = environment.run("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py", cwd=tmp_path)
    assert "1 passed" in tested.stdout, tested.stdout + tested.stderr
