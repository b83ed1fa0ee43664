"""The recorded answers still are what a real kube-apiserver says."""

import gzip
from pathlib import Path

import orjson
import pytest

from clusters.local import BinariesMissingError, find_binaries
from clusters.local.oracle import main, replay

pytestmark = [pytest.mark.cluster_kind("local")]

DATA = Path(__file__).parents[1] / "data"
RECORDED = "1.36.4"


async def test_two_thousand_recorded_answers_are_given_again_by_a_live_server_of_that_version() -> None:
    try:
        find_binaries(RECORDED)
    except BinariesMissingError as missing:
        pytest.skip(str(missing))
    answers, differences, live = await replay(sorted(DATA.glob("job-*.jsonl.gz")), count=2000, seed=1, version=RECORDED)
    assert live == f"v{RECORDED}"
    assert answers == 2000
    assert not differences, "\n".join(map(str, differences[:5]))


def test_a_changed_answer_is_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with gzip.open(DATA / "job-status.jsonl.gz") as lines:
        walk = orjson.loads(lines.readline())
    accepted = next(number for number, step in enumerate(walk["steps"]) if step["ok"])
    refusal = {"reason": "FieldValueInvalid", "field": "status", "message": "no"}
    walk["steps"][accepted] |= {"ok": False, "code": 422, "causes": [refusal]}
    walk["steps"] = walk["steps"][: accepted + 1]
    with gzip.open(tmp_path / "walk.jsonl.gz", "wb") as changed:
        changed.write(orjson.dumps(walk))
    assert main([str(tmp_path / "walk.jsonl.gz")]) == 1
    told = capsys.readouterr().out
    assert f"walk.jsonl.gz:1 step {accepted + 1} (status): answered otherwise" in told
    assert "1 differences" in told
