"""Each package asks for what it imports, and for nothing else."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
OURS = {"multimirror", "builtin_controller", "clusters", "faults"}
OPTIONAL = {"pytest"}
"""Loaded by pytest itself, where there is one."""
DATA = {"tzdata"}
"""Found by the standard library."""


def imported(package: str) -> Iterator[str]:
    for file in (ROOT / package).rglob("*.py"):
        for node in executed(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                yield from (each.name.partition(".")[0] for each in node.names)
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                yield str(node.module).partition(".")[0]


def executed(node: ast.AST) -> Iterator[ast.AST]:
    """All that a program consists of, but for what is there for the type checker alone."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            child.body = []
        yield child
        yield from executed(child)


def asked_for(project: str) -> set[str]:
    dependencies = tomllib.loads((ROOT / project).read_text())["project"]["dependencies"]
    return {re.split(r"[^A-Za-z0-9_.-]", each)[0].lower() for each in dependencies}


@pytest.mark.parametrize(
    ("project", "packages", "more"),
    [
        pytest.param("pyproject.toml", ["multimirror", "builtin_controller"], set(), id="multimirror"),
        pytest.param(
            "distributions/fleets/pyproject.toml", ["clusters", "faults"], {"multimirror", *DATA}, id="the fleets"
        ),
    ],
)
def test_a_package_asks_for_what_it_imports(project: str, packages: list[str], more: set[str]) -> None:
    found = {name for package in packages for name in imported(package)} - OURS - OPTIONAL - sys.stdlib_module_names
    names = packages_distributions()
    assert {names[each][0].lower().replace("_", "-") for each in found} | more == asked_for(project)


IMPORT_ALL = """
import importlib, pkgutil, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[1:]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
for package in ("multimirror", "builtin_controller"):
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)

import asyncio
from multimirror.kube.credentials import AuthProvider, Exec
from multimirror.kube.errors import ConfigError

for credentials in (Exec({"command": "login"}, lambda *_: None), AuthProvider({"name": "oidc"})):
    try:
        asyncio.run(credentials.authorization())
    except ConfigError as error:
        print(error)
"""


def test_all_of_it_loads_without_what_the_image_is_without_and_says_so_where_that_is_needed() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL, "kubernetes"], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("needs the Python package `kubernetes`, which is not installed here") == 2
