"""The definitions in deploy/ are those of the code, and explain every field."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from multimirror.api import crds
from multimirror.api.crds import manifests

CRDS = Path(__file__).parents[3] / "deploy" / "crds"


def test_the_manifests_are_current() -> None:
    stored = {path.name: path.read_text() for path in CRDS.iterdir()}
    assert stored == manifests(), "run `make manifests`"


def fields(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    for name, inner in schema.get("properties", {}).items():
        where = f"{path}.{name}"
        yield where, inner
        yield from fields(inner, where)
        if isinstance(inner.get("items"), dict):
            yield from fields(inner["items"], f"{where}[]")


@pytest.mark.parametrize("crd", crds(), ids=lambda crd: str(crd["spec"]["names"]["kind"]))
def test_every_field_is_described(crd: dict[str, Any]) -> None:
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert schema["description"]
    silent = [path for path, field in fields(schema) if path != ".metadata" and not field.get("description")]
    assert silent == []
