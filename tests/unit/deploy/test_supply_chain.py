"""What the image is made of has hashes, is all that it needs, and can be listed."""

import importlib.util
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]
DOCKERFILE = (ROOT / "Dockerfile").read_text()


@pytest.fixture(scope="module")
def supply_chain() -> ModuleType:
    spec = importlib.util.spec_from_file_location("supply_chain", ROOT / "distributions" / "supply_chain.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    import sys  # noqa: PLC0415 - a dataclass looks its module up

    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-build.lock"])
def test_every_locked_package_has_hashes(supply_chain: ModuleType, name: str) -> None:
    found = supply_chain.pins((ROOT / name).read_text())
    assert found
    assert all(pin.hashes for pin in found)


def test_all_that_we_depend_on_is_locked(supply_chain: ModuleType) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = supply_chain.needed_in_image(project["dependencies"])
    assert len(needed) == len(project["dependencies"]) - 1, "all but the official client"
    wanted = {re.split(r"[^A-Za-z0-9_-]", each)[0].lower().replace("_", "-") for each in needed}
    locked = {pin.name for pin in supply_chain.pins((ROOT / "requirements.lock").read_text())}
    assert wanted <= locked
    assert not locked & {"kubernetes", "aiohttp", "pydantic"}
    assert "hatchling" in {pin.name for pin in supply_chain.pins((ROOT / "requirements-build.lock").read_text())}


def test_the_image_takes_nothing_without_a_hash(supply_chain: ModuleType) -> None:
    name, digest = supply_chain.base_image(DOCKERFILE)
    assert (name.startswith("python:3.13"), len(digest)) == (True, 64)
    assert re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE) == ["${BASE}", "${BASE}"]
    installs = re.findall(r"pip (?:install|wheel) ([^\\&\n]+)", DOCKERFILE)
    assert len(installs) == 4
    for flags in installs:
        assert "--require-hashes" in flags or "--no-deps" in flags
        assert "--require-hashes" in flags or "--no-index" in flags or "--no-build-isolation" in flags
    with pytest.raises(ValueError, match="no base image by its digest"):
        supply_chain.base_image("ARG BASE=python:3.13-slim\nFROM ${BASE}")


def test_the_bill_of_materials_lists_all_of_it_and_is_the_same_each_time(supply_chain: ModuleType) -> None:
    lock = (ROOT / "requirements.lock").read_text()
    bill = supply_chain.sbom(lock, DOCKERFILE, "1.2.3")
    assert bill == supply_chain.sbom(lock, DOCKERFILE, "1.2.3")
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    base, *libraries = bill["components"]
    assert base["hashes"][0]["content"] in DOCKERFILE
    assert {each["purl"] for each in libraries} == {f"pkg:pypi/{p.name}@{p.version}" for p in supply_chain.pins(lock)}
    references = [each["bom-ref"] for each in bill["components"]]
    assert len(set(references)) == len(references)
    assert bill["dependencies"][0]["dependsOn"] == references


def test_an_audit_that_cannot_be_done_says_so_and_fails_nobody(
    supply_chain: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(supply_chain.sys, "executable", "/nowhere/python")
    assert supply_chain.audit(strict=True) == 0
    assert "not done" in capsys.readouterr().out
