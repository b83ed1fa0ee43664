"""Pods as no API server sends them, but a worker that means harm may."""

from typing import Any

import pytest

from multimirror.cli.container_runs import is_sound

SOUND: dict[str, Any] = {
    "metadata": {"name": "p", "uid": "u"},
    "spec": {"containers": [{"name": "c"}]},
    "status": {"containerStatuses": [{"name": "c", "state": {"running": {}}}]},
}


@pytest.mark.parametrize(
    "wrong",
    [
        {"metadata": {"name": "p"}},
        {"metadata": {"name": "p", "uid": "u", "annotations": [1]}},
        {"metadata": {"name": "p", "uid": "u", "creationTimestamp": 5}},
        {"spec": {}},
        {"spec": {"containers": []}},
        {"spec": {"containers": [{"name": 5}]}},
        {"status": [1]},
        {"status": {"containerStatuses": 5}},
        {"status": {"containerStatuses": ["x"]}},
        {"status": {"containerStatuses": [{"name": "c", "state": [1]}]}},
        {"status": {"containerStatuses": [{"name": "c", "lastState": {"terminated": [1]}}]}},
    ],
)
def test_a_pod_that_is_none_is_not_followed(wrong: dict[str, Any]) -> None:
    assert is_sound(SOUND)
    assert not is_sound(SOUND | wrong)
