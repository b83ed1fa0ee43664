"""The policies in deploy/ are those of the code."""

from pathlib import Path

import pytest

from multimirror.admission import copy_labels, placement
from multimirror.admission.policies import manifest

CURRENT = {
    "admission/policies.yaml": manifest("v1"),
    "admission/policies-v1beta1.yaml": manifest("v1beta1"),
    "admission/placement.yaml": placement.manifest(),
    "worker/policy.yaml": copy_labels.worker_manifest(),
}


@pytest.mark.parametrize("name", CURRENT)
def test_the_manifest_is_current(name: str) -> None:
    stored = Path(__file__).parents[3] / "deploy" / name
    assert stored.read_text() == CURRENT[name], "run `make manifests`"
