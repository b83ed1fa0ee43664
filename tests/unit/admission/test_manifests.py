"""The policies in deploy/ are those of the code."""

from pathlib import Path

from multimirror.admission.policies import manifest


def test_the_manifest_is_current() -> None:
    stored = Path(__file__).parents[3] / "deploy" / "admission" / "policies.yaml"
    assert stored.read_text() == manifest(), "run `make manifests`"
