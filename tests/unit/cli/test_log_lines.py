"""What a worker can do with the lines of a log: nothing but be shown."""

import pytest

from multimirror.cli import log_lines
from multimirror.cli.log_lines import LogPosition


@pytest.mark.parametrize("time", ["9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59", "2026-02-32T00:00:00Z"])
def test_a_time_that_no_calendar_has_is_asked_for_again_as_one_that_it_has(time: str) -> None:
    position = LogPosition()
    assert position.take(f"{time} hello".encode()) == b"hello"
    assert position.since in {"9999-12-31T23:59:59Z", "1970-01-01T00:00:00Z"}


def test_a_second_without_end_fills_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_lines, "_MOST_REMEMBERED", 10)
    position = LogPosition()
    lines = [f"2026-01-01T00:00:00Z {number}".encode() for number in range(1000)]
    assert [position.take(line) for line in lines] == [str(number).encode() for number in range(1000)]
    assert len(position._shown) == 10
    position.resume()
    assert [position.take(line) for line in lines[:10]] == [None] * 10
