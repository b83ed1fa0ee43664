"""The annotations of a simulated pod: what they mean, and how bad ones are refused."""

from typing import Any

import pytest

from clusters.nodes import behaviour
from clusters.nodes.runs import Tries


def a_pod(policy: str = "Never", **annotations: str) -> dict[str, Any]:
    given = {f"{behaviour.PREFIX}{key.replace('_', '-')}": text for key, text in annotations.items()}
    return {"metadata": {"annotations": given}, "spec": {"restartPolicy": policy, "containers": [{"name": "main"}]}}


def test_without_annotations_the_nodes_default_holds() -> None:
    assert behaviour.read(a_pod()).duration == 0
    assert behaviour.read(a_pod(), default_duration=2.5).duration == 2.5
    assert behaviour.read(a_pod("Always"), default_duration=2.5).duration == float("inf")


@pytest.mark.parametrize(("text", "seconds"), [("5", 5), ("0.5", 0.5), ("250ms", 0.25), ("1h30m", 5400)])
def test_durations_in_seconds_or_as_go_writes_them(text: str, seconds: float) -> None:
    assert behaviour.read(a_pod(duration=text)).duration == seconds


@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        ({"duration": "soon"}, "annotation node.multimirror.dev/duration: 'soon' is no duration; write for example 5s"),
        ({"duration": "-1"}, "annotation node.multimirror.dev/duration: '-1' is no duration; it must be finite"),
        ({"exit_code": "256"}, "annotation node.multimirror.dev/exit-code: '256' is no exit code"),
        ({"exit_code": "main=x"}, "annotation node.multimirror.dev/exit-code: 'x' is no number"),
        ({"never_finish": "yes"}, "annotation node.multimirror.dev/never-finish: 'yes' is neither true nor false"),
        ({"exitcode": "1"}, "unknown annotation node.multimirror.dev/exitcode: the simulated node knows crash-node"),
    ],
)
def test_what_cannot_be_simulated_is_refused_with_the_remedy(annotations: dict[str, str], message: str) -> None:
    with pytest.raises(behaviour.BehaviourError) as caught:
        behaviour.read(a_pod(**annotations))
    assert str(caught.value).startswith(message)


def test_tries_are_counted_by_owner_and_index() -> None:
    tries = Tries(limit=3)

    def of(owner: str, index: str = "") -> dict[str, Any]:
        marks = {"batch.kubernetes.io/job-completion-index": index} if index else {}
        return {"metadata": {"annotations": marks, "ownerReferences": [{"uid": owner, "controller": True}]}}

    assert [tries.before(of("a")) for _ in range(3)] == [0, 1, 2]
    assert [tries.before(of("b", index)) for index in ("0", "1", "0")] == [0, 0, 1]
    assert tries.before({"metadata": {}}) == 0
    failed_before = of("b", "1")
    failed_before["metadata"]["annotations"]["batch.kubernetes.io/job-index-failure-count"] = "2"
    failed_before["metadata"]["annotations"]["batch.kubernetes.io/job-index-ignored-failure-count"] = "1"
    assert tries.before(failed_before) == 3, "what the pod says of earlier failures counts, seen or not"
    assert tries.before(of("b", "1")) == 4
    assert tries.before(of("c")) == 0
    assert tries.before(of("a")) == 0, "the oldest is forgotten past the limit"
