"""Durations: as Go writes them, as our API takes them, and any other text refused."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multimirror.batch.durations import COMMAND_UNITS, DurationError, parse_duration, whole_seconds


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", timedelta()),
        ("1h30m", timedelta(minutes=90)),
        ("1.5h", timedelta(minutes=90)),
        (".5s", timedelta(milliseconds=500)),
        ("250ms", timedelta(milliseconds=250)),
        ("-2m", timedelta(minutes=-2)),
        ("+2m", timedelta(minutes=2)),
        ("0" * 10_000 + "3s", timedelta(seconds=3)),
        ("1." + "0" * 10_000 + "s", timedelta(seconds=1)),
    ],
    ids=lambda value: str(value)[:20],
)
def test_durations_are_read_as_go_writes_them(text: str, expected: timedelta) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", 'time: invalid duration ""'),
        ("-", 'time: invalid duration "-"'),
        ("5", 'time: missing unit in duration "5"'),
        ("1d", 'time: unknown unit "d" in duration "1d"'),
        ("soon", 'time: invalid duration "soon"'),
        ("2562048h", 'time: invalid duration "2562048h"'),
    ],
)
def test_what_is_no_duration_is_refused_in_go_s_words(text: str, message: str) -> None:
    with pytest.raises(DurationError) as caught:
        parse_duration(text)
    assert str(caught.value) == message


def test_days_are_for_the_command_line() -> None:
    assert parse_duration("365d", COMMAND_UNITS) == timedelta(days=365)


def test_the_fields_of_our_api_take_whole_hours_minutes_and_seconds() -> None:
    assert whole_seconds("1h30m5s") == 5405.0
    for text in ("1.5h", "250ms", "-2m", "0", "5", "5m\n", "٣s"):
        with pytest.raises(DurationError):
            whole_seconds(text)


@given(st.text() | st.from_regex(r"[-+]?([0-9.]{0,30}(h|m|s|ms|µs|d)){0,4}", fullmatch=True))
def test_any_text_is_a_duration_or_refused(text: str) -> None:
    for read in (parse_duration, whole_seconds):
        try:
            read(text)
        except DurationError:
            continue


def test_ten_thousand_digits_are_no_duration() -> None:
    for read in (parse_duration, whole_seconds):
        with pytest.raises(DurationError):
            read("9" * 10_000 + "h")
