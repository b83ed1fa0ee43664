"""The recorded answers of a real kube-apiserver v1.36.4 are ours too."""

import gzip
from pathlib import Path

import orjson
import pytest

from clusters.jobapi.oracle import main, read_recording, replay

DATA = Path(__file__).parents[2] / "data"


@pytest.mark.parametrize(
    ("recording", "answers"),
    [("job-status", 30_000), ("job-status-legacy", 12_000), ("job-update", 13_961), ("job-create", 5_983)],
)
def test_every_recorded_answer_is_ours(recording: str, answers: int) -> None:
    compared = list(replay(DATA / f"{recording}.jsonl.gz"))

    assert [str(disagreement) for disagreement in compared if disagreement is not None][:3] == []
    assert len(compared) == answers


def _tampered(tmp_path: Path, recording: str, change: dict[str, object]) -> Path:
    """The first create of a recording with that outcome, with another answer put in the server's mouth."""
    line = next(line for line in read_recording(DATA / recording) if line["ok"] != change.get("ok", line["ok"]))
    path = tmp_path / recording
    path.write_bytes(gzip.compress(orjson.dumps({**line, **change})))
    return path


def test_a_disagreement_is_shown_with_what_each_side_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cause = {"reason": "FieldValueInvalid", "field": "spec.suspend", "message": "Invalid value: true: no rest"}
    path = _tampered(tmp_path, "job-create.jsonl.gz", {"ok": False, "causes": [cause]})

    assert main([str(path)]) == 1

    out = capsys.readouterr().out
    assert "job-create.jsonl.gz:1: the server rejects, we accept" in out
    assert "server: FieldValueInvalid spec.suspend Invalid value: true: no rest" in out
    assert out.endswith("1 answers, 1 disagreements\n")


def test_another_stored_form_is_a_disagreement_that_names_the_field(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = next(line for line in read_recording(DATA / "job-create.jsonl.gz") if line["ok"])
    line["got"]["spec"]["backoffLimit"] = 7
    path = tmp_path / "changed.jsonl.gz"
    path.write_bytes(gzip.compress(orjson.dumps(line)))

    assert main([str(path)]) == 1

    assert "at .spec.backoffLimit: the server has 7, we have 6" in capsys.readouterr().out


def test_other_words_for_the_same_field_are_a_disagreement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = read_recording(DATA / "job-create.jsonl.gz")
    line = next(line for line in lines if not line["ok"] and len(line["causes"]) == 1)
    line["causes"][0]["message"] = "Invalid value: something else"
    path = tmp_path / "changed.jsonl.gz"
    path.write_bytes(gzip.compress(orjson.dumps(line)))

    assert main([str(path)]) == 1

    assert "rejected in other words" in capsys.readouterr().out


def test_agreement_is_one_line_and_success(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    line = next(read_recording(DATA / "job-create.jsonl.gz"))
    path = tmp_path / "one.jsonl.gz"
    path.write_bytes(gzip.compress(orjson.dumps(line)))

    assert main([str(path)]) == 0

    assert capsys.readouterr().out == "1 answers, 0 disagreements\n"


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        pytest.param(b"no gzip", "Not a gzipped file", id="not compressed"),
        pytest.param(gzip.compress(b"[1]\n"), "line 1 is neither a walk", id="another format"),
        pytest.param(gzip.compress(b"{\n"), "unexpected end", id="not JSON"),
    ],
)
def test_what_is_no_recording_is_named(
    content: bytes, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.jsonl.gz"
    path.write_bytes(content)

    assert main([str(path)]) == 2

    err = capsys.readouterr().err
    assert str(path) in err
    assert complaint in err
