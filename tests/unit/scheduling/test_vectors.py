"""Recorded situations, replayed: what the command says, and that we decide as is expected of us."""

import copy
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from multimirror.scheduling import preemption, quota, shares, sharing, trial
from multimirror.scheduling.vectors import NOT_OFFERED, Disagreement, main, read, replay

ROOT = Path(__file__).parents[3]
OURS = ROOT / "tests" / "data" / "quota-cases.json"
SHARED = Path(os.environ.get("MULTIMIRROR_QUOTA_VECTORS", ROOT.parent / "shared" / "spec" / "quota-vectors.json"))


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main(arguments)
    return code, capsys.readouterr().out


def test_our_own_cases_come_out_as_they_are_meant(capsys: pytest.CaptureFixture[str]) -> None:
    count = len(read(OURS))
    assert told(capsys, str(OURS)) == (0, f"{count} cases, 0 disagreements, 1 not offered\n")


def test_so_do_those_that_were_recorded_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    if not SHARED.exists():
        pytest.skip(f"not covered: there are no recorded cases at {SHARED} (MULTIMIRROR_QUOTA_VECTORS)")
    code, output = told(capsys, str(SHARED))
    assert code == 0, output
    assert re.fullmatch(r"\d+ cases, 0 disagreements, \d+ not offered\n", output)


def test_a_disagreement_is_told_with_what_was_expected_and_the_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = copy.deepcopy(read(OURS)[0])
    case["expect"]["preempted"][0]["name"] = "high"
    path = tmp_path / "cases.json"
    path.write_text(json.dumps({"cases": [case, read(OURS)[1]]}))
    code, output = told(capsys, str(path))
    assert code == 1
    assert output.splitlines() == [
        case["name"],
        '  expected: {"preempted":{"high":"Priority"}}',
        '  got:      {"preempted":{"low":"Priority"}}',
        "2 cases, 1 disagreements, 0 not offered",
    ]


@pytest.mark.parametrize("text", ["{", "[]", '{"cases": {}}', '{"cases": [1]}', None])
def test_a_file_that_is_none_is_refused_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None
) -> None:
    path = tmp_path / "cases.json"
    if text is not None:
        path.write_text(text)
    assert main([str(path)]) == 2
    assert capsys.readouterr().err.startswith(f"{path} cannot be read: ")


@pytest.mark.parametrize("change", [{"kind": "dance"}, {"queues": 7}, {"running": [{"name": "x"}, 5]}])
def test_a_case_that_cannot_be_replayed_is_a_disagreement(change: dict[str, Any]) -> None:
    assert isinstance(replay(read(OURS)[0] | change), Disagreement)


def test_a_step_without_a_rule_is_a_disagreement_that_names_it() -> None:
    case = next(each for each in read(OURS) if each["kind"] == "steps")
    found = replay(case | {"steps": [{"fly": ["a"]}]})
    assert isinstance(found, Disagreement)
    assert found.got == "step 0: there is no rule for fly"


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"needs": ["namespaceUsage"]}, id="by what namespaces used"),
        pytest.param({"policy": "LowerOrNewerEqualPriority"}, id="newer ones of equal priority"),
        pytest.param({"kind": "reserve", "head": {"mode": "Preempt", "borrows": True}}, id="room kept to borrow"),
    ],
)
def test_what_is_no_rule_of_ours_is_not_offered(change: dict[str, Any]) -> None:
    case = {"name": "x", "kind": "order", "cohorts": [], "queues": [], "pending": [], "expect": {}}
    assert replay(case | change) == NOT_OFFERED


def _disagreements(path: Path) -> int:
    return sum(isinstance(replay(case), Disagreement) for case in read(path))


def _never(*_: Any, **__: Any) -> bool:
    return False


def _always(*_: Any, **__: Any) -> bool:
    return True


@pytest.mark.parametrize(
    ("target", "name", "wrong"),
    [
        pytest.param(preemption._Search, "_send_back", lambda *_: None, id="nobody is sent back"),
        pytest.param(trial.Trial, "is_within", _always, id="reclaims for one that borrows"),
        pytest.param(trial.Trial, "is_fair", _always, id="takes more than it leaves"),
        pytest.param(trial.Trial, "is_no_larger", _always, id="priority buys a share"),
        pytest.param(sharing, "kept_free", lambda *_: {}, id="a blocked head keeps nothing"),
        pytest.param(quota.QuotaUsage, "fits", _always, id="everything fits"),
        pytest.param(shares.Share, "__lt__", _never, id="shares are not compared"),
    ],
)
def test_a_rule_that_is_broken_shows(monkeypatch: pytest.MonkeyPatch, target: Any, name: str, wrong: Any) -> None:
    """The replay decides with the planner's own functions: where one of them is wrong, so is the replay."""
    if not SHARED.exists():
        pytest.skip(f"not covered: there are no recorded cases at {SHARED} (MULTIMIRROR_QUOTA_VECTORS)")
    monkeypatch.setattr(target, name, wrong)
    assert _disagreements(SHARED) > 0
