"""The range check: what is in range, what is not, and what cannot be said."""

from pathlib import Path

import pytest

from bench.__main__ import SMALL, main, meant
from bench.frame.checking import Range, check, ranges
from bench.frame.parts import Part
from bench.frame.results import RATIO, Figure, Result
from bench.frame.running import parts


def a_range(**changes: object) -> Range:
    given: dict[str, object] = {"part": "life", "figure": "ours : direct", "size": 10, "at_least": 0.5, "agree": 1.2}
    return Range(**{**given, **changes})  # type: ignore[arg-type]  # whatever the test wants


def a_result(value: float, unit: str = RATIO, size: int = 10) -> Result:
    return Result(seconds={"life": 1.0}, figures=[Figure("life", "ours : direct", size, value, unit)])


@pytest.mark.parametrize(
    ("bounds", "value", "ok"),
    [
        pytest.param({"at_least": 0.5}, 0.5, True, id="on the bound is inside"),
        pytest.param({"at_least": 0.5}, 0.49, False, id="too little"),
        pytest.param({"at_least": None, "at_most": 1.2}, 1.21, False, id="too much"),
        pytest.param({"at_least": 0.9, "at_most": 1.1}, 1.0, True, id="between both"),
        pytest.param({"at_least": None, "at_most": 0}, 0.0, True, id="nothing at all is asked for"),
        pytest.param({"at_least": None, "at_most": 0}, 1.0, False, id="one is more than none"),
    ],
)
def test_a_ratio_is_held_against_its_range(bounds: dict[str, float], value: float, ok: bool) -> None:
    (finding,) = check([a_range(**bounds)], a_result(value))
    assert finding.ok is ok


@pytest.mark.parametrize(
    ("before", "ok"),
    [
        pytest.param(0.60, True, id="the same"),
        pytest.param(0.72, True, id="a fifth more"),
        pytest.param(0.49, False, id="less than a fifth less"),
        pytest.param(0.73, False, id="more than a fifth more"),
    ],
)
def test_two_runs_have_to_agree(before: float, ok: bool) -> None:
    _, agreement = check([a_range()], a_result(0.6), a_result(before))
    assert agreement.ok is ok


def test_nothing_and_nothing_agree() -> None:
    nothing = a_range(at_least=None, at_most=0, agree=1)
    assert all(finding.ok for finding in check([nothing], a_result(0.0), a_result(0.0)))


def test_a_time_cannot_be_checked() -> None:
    (finding,) = check([a_range()], a_result(12.0, unit="s"))
    assert not finding.ok
    assert "only ratios" in finding.text


def test_a_figure_that_its_part_did_not_measure_is_a_failure() -> None:
    (finding,) = check([a_range()], a_result(0.6, size=20))
    assert not finding.ok


def test_a_part_that_was_not_run_is_told_and_no_failure() -> None:
    (finding,) = check([a_range(part="scale")], a_result(0.6))
    assert finding.ok
    assert "not run" in finding.text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param('[[range]]\npart = "a"\nfigure = "b"\nsize = 1\nagree = 1\n', "at_least", id="no bound"),
        pytest.param('[[range]]\npart = "a"\natleast = 1\n', "range 1", id="an unknown key"),
    ],
)
def test_a_bad_file_of_ranges_says_where(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "ranges.toml"
    file.write_text(text)
    with pytest.raises(ValueError, match=why):
        ranges(file)


def test_every_range_is_of_a_part_and_a_size_that_make_bench_runs() -> None:
    known: dict[str, Part] = parts()
    for each in ranges():
        assert each.size in known[each.part].sizes, each


def test_parts_may_be_spelled_with_underscores_and_small_ones_are_found_by_their_own_name() -> None:
    known = parts()
    assert meant("full_life", known) == "full-life"
    assert all(meant(name, known) == name for name in (*SMALL, *known))


def test_the_command_fails_when_a_ratio_is_out_of_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("bench.frame.checking.ranges", lambda: [a_range()])
    a_result(0.6).save(tmp_path / "good")
    a_result(0.4).save(tmp_path / "bad")
    assert main(["check", str(tmp_path / "good")]) == 0
    assert main(["check", str(tmp_path / "bad")]) == 1
    assert "FAIL  life, ours : direct (10): 0.40 (asked for: ≥ 0.5)" in capsys.readouterr().out


def test_the_newest_result_is_checked_against_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.frame.checking.ranges", lambda: [a_range()])
    monkeypatch.setattr("bench.__main__.RESULTS", tmp_path)
    a_result(0.9).save(tmp_path / "2026-01-01-1200-abc")
    a_result(0.6).save(tmp_path / "2026-01-02-1200-abc")
    assert main(["check"]) == 1
    a_result(0.65).save(tmp_path / "2026-01-03-1200-abc")
    assert main(["check"]) == 0
