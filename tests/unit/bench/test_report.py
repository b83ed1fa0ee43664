"""Results on disk, the Markdown page, and the plots."""

from pathlib import Path

import pytest

from bench.frame.checking import Range
from bench.frame.report import markdown
from bench.frame.results import Recorder, Result, about, percentile, text_of


def a_result() -> Result:
    recorder = Recorder("full-life", lambda _: None)
    for size, rate in ((200, 20.0), (1000, 18.0)):
        recorder.figure("direct, to Complete", size, rate, "Jobs/s")
        recorder.figure("through us, to mirrored Complete", size, rate / 2, "Jobs/s")
        recorder.ratio("through us : direct, to Complete", size, 0.5)
    recorder.percentiles("dispatch", 200, [number / 1000 for number in range(1, 101)])
    recorder.table("CPU time", ("process", "ms"), [("dispatcher", 3.75), ("etcd", 1234.5)])
    return Result(
        about=about({"etcd": "3.6"}),
        units={"full-life": "Jobs"},
        seconds={"full-life": 61.0},
        figures=recorder.figures,
        tables=recorder.tables,
    )


def test_a_result_is_the_same_after_it_was_kept(tmp_path: Path) -> None:
    result = a_result()
    result.save(tmp_path / "run")
    assert Result.load(tmp_path / "run") == result


def test_a_part_that_is_run_again_replaces_its_figures_and_no_others(tmp_path: Path) -> None:
    result, newer = a_result(), Recorder("scale", lambda _: None)
    newer.ratio("cost", 1000, 1.0)
    result.replace(Result(seconds={"scale": 5.0}, figures=newer.figures))
    assert {figure.part for figure in result.figures} == {"full-life", "scale"}
    result.replace(Result(seconds={"full-life": 5.0}))
    assert {figure.part for figure in result.figures} == {"scale"}
    assert not result.tables


def test_the_page_has_a_row_for_each_figure_and_a_column_for_each_size() -> None:
    page = markdown(a_result(), [])
    assert "| | unit | 200 Jobs | 1,000 Jobs |" in page
    assert "| through us, to mirrored Complete | Jobs/s | 10.0 | 9.00 |" in page
    assert "| dispatch, p99 | ms | 99.0 |  |" in page
    assert "| etcd | 1,234 |" in page
    assert "Took full-life 61 s." in page


def test_the_page_says_which_ratios_are_out_of_range() -> None:
    common = {"part": "full-life", "figure": "through us : direct, to Complete", "agree": 1.2}
    asked = [Range(size=200, at_least=0.4, **common), Range(size=1000, at_least=0.6, **common)]  # type: ignore[arg-type]
    page = markdown(a_result(), asked)
    assert "| 200 | 0.50 | ≥ 0.4 | ok |" in page
    assert "| 1,000 | 0.50 | ≥ 0.6 | **out of range** |" in page


def test_percentiles_are_values_that_were_measured() -> None:
    assert percentile([3.0, 1.0, 2.0], 50) == 2.0
    assert percentile([1.0], 99) == 1.0
    assert percentile(list(range(1, 201)), 99) == 198
    with pytest.raises(ValueError, match="nothing was measured"):
        percentile([], 50)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1234.5, "Jobs", "1,234 Jobs"),
        (12.34, "s", "12.3 s"),
        (0.5, "ratio", "0.50"),
        (0, "ratio", "0.00"),
        (0.0123, "s", "0.0123 s"),
    ],
)
def test_numbers_have_the_digits_that_matter(value: float, unit: str, text: str) -> None:
    assert text_of(value, unit) == text


def test_plots_are_small_files_and_the_same_for_the_same_result(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from bench.frame.plots import draw  # noqa: PLC0415 - needs the extra

    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        assert draw(a_result(), tmp_path / name) == ["full-life"]
    for kind in ("svg", "png"):
        one, other = ((tmp_path / name / f"full-life.{kind}").read_bytes() for name in ("one", "other"))
        assert one == other
        assert len(one) < 60_000
