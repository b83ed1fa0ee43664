"""The policies in deploy/ are those of the code."""

from pathlib import Path

import pytest

from multimirror.admission import placement
from multimirror.admission.policies import manifest

CURRENT = {
    "policies.yaml": manifest("v1"),
    "policies-v1beta1.yaml": manifest("v1beta1"),
    "placement.yaml": placement.manifest(),
}


@pytest.mark.parametrize("name", CURRENT)
def test_the_manifest_is_current(name: str) -> None:
    stored = Path(__file__).parents[3] / "deploy" / "admission" / name
    assert stored.read_text() == CURRENT[name], "run `make manifests`"
