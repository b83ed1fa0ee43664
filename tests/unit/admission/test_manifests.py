"""The policies in deploy/ are those of the code."""

from pathlib import Path

import pytest

from multimirror.admission.policies import manifest


@pytest.mark.parametrize(("version", "name"), [("v1", "policies.yaml"), ("v1beta1", "policies-v1beta1.yaml")])
def test_the_manifest_is_current(version: str, name: str) -> None:
    stored = Path(__file__).parents[3] / "deploy" / "admission" / name
    assert stored.read_text() == manifest(version), "run `make manifests`"
