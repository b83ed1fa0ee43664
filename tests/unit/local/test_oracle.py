"""Sampling recordings, and telling a live answer from a recorded one."""

import gzip
from pathlib import Path
from typing import Any

import orjson
import pytest

from clusters.local.oracle import Answer, as_sent, compare, sample


@pytest.fixture
def recordings(tmp_path: Path) -> list[Path]:
    walks = [{"job": {}, "steps": [{"n": 10 * walk + step} for step in range(7)]} for walk in range(20)]
    creates = [{"put": {"n": number}, "ok": True} for number in range(50)]
    for name, lines in (("walks", walks), ("creates", creates)):
        with gzip.open(tmp_path / name, "wb") as file:
            file.write(b"\n".join(orjson.dumps(line) for line in lines))
    return [tmp_path / "walks", tmp_path / "creates"]


def test_a_sample_takes_as_many_answers_from_each_file_and_walks_from_their_beginning(recordings: list[Path]) -> None:
    chosen = list(sample(recordings, 51, seed=3))
    walks = [line for _, line in chosen if "steps" in line]
    assert sum(len(walk["steps"]) for walk in walks) == 26
    assert len(chosen) - len(walks) == 25
    assert all(walk["steps"][0]["n"] % 10 == 0 for walk in walks)
    assert chosen == list(sample(recordings, 51, seed=3))
    assert chosen != list(sample(recordings, 51, seed=4))


def test_without_a_number_everything_is_taken_in_order(recordings: list[Path]) -> None:
    assert [where for where, _ in sample(recordings, None, seed=1)] == [
        *(f"walks:{number}" for number in range(1, 21)),
        *(f"creates:{number}" for number in range(1, 51)),
    ]


def test_what_the_server_made_of_a_job_is_taken_out_before_it_is_sent_again() -> None:
    generated = {"controller-uid": "u", "job-name": "j", "batch.kubernetes.io/controller-uid": "u"}
    stored = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "uid": "u", "generation": 1, "labels": {"app": "x", **generated}},
        "spec": {
            "selector": {"matchLabels": {"controller-uid": "u"}},
            "template": {"metadata": {"labels": {"app": "x", **generated}}, "spec": {}},
        },
        "status": {"active": 1},
    }
    assert as_sent(stored) == {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": "default", "labels": {"app": "x"}},
        "spec": {"template": {"metadata": {"labels": {"app": "x"}}, "spec": {}}},
    }


REJECTED = {
    "put": {},
    "ok": False,
    "code": 422,
    "causes": [{"reason": "FieldValueInvalid", "field": "spec.x", "message": "Invalid value: 1: must be less"}],
}
CAUSE = ("FieldValueInvalid", "spec.x", "Invalid value: 1: must be less")


@pytest.mark.parametrize(
    ("recorded", "answer", "what"),
    [
        pytest.param(REJECTED, Answer(422, {}, (CAUSE,)), None, id="the same refusal"),
        pytest.param(REJECTED, Answer(422, {}, (CAUSE, CAUSE)), None, id="a repetition says nothing new"),
        pytest.param(REJECTED, Answer(200, {}), "answered otherwise", id="now accepted"),
        pytest.param(REJECTED, Answer(403, {}), "answered otherwise", id="refused with another code"),
        pytest.param(
            REJECTED, Answer(422, {}, (("Required", "spec.x", ""),)), "rejected for other reasons", id="other reasons"
        ),
        pytest.param(
            REJECTED, Answer(422, {}, ((*CAUSE[:2], "must be more"),)), "rejected in other words", id="other words"
        ),
        pytest.param({"put": {}, "ok": True}, Answer(200, {"a": 1}), None, id="accepted and stored alike"),
        pytest.param({"put": {}, "ok": True}, Answer(422, {}, (CAUSE,)), "answered otherwise", id="now refused"),
        pytest.param({"put": {}, "ok": True}, Answer(200, {"a": 2}), "stored in another form", id="stored otherwise"),
    ],
)
def test_an_answer_differs_when_a_client_could_tell(recorded: dict[str, Any], answer: Answer, what: str | None) -> None:
    difference = compare("here", recorded, answer, {"a": 1}, answer.body)
    assert (difference.what if difference else None) == what
