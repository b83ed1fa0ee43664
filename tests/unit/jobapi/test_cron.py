"""Cron schedules: what is accepted, in which words the rest is refused, and when a schedule fires next."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.jobapi import cron

NEW_YORK = ZoneInfo("America/New_York")


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


@pytest.mark.parametrize(
    ("schedule", "after", "expected"),
    [
        pytest.param(
            "* * * * *", "2026-11-16T10:00:00Z", "2026-11-16T10:01:00Z", id="strictly later, also on the minute"
        ),
        pytest.param("* * * * *", "2026-11-16T10:00:59.9Z", "2026-11-16T10:01:00Z", id="fractions of a second"),
        pytest.param("*/15 * * * *", "2026-11-16T10:16:00Z", "2026-11-16T10:30:00Z", id="a step"),
        pytest.param(
            "5/20 * * * *", "2026-11-16T10:30:00Z", "2026-11-16T10:45:00Z", id="a step from a number to the end"
        ),
        pytest.param("30 6-16/4 * * 1-5", "2026-11-13T14:31:00Z", "2026-11-16T06:30:00Z", id="over the weekend"),
        pytest.param("0 0 29 2 *", "2026-03-01T00:00:00Z", "2028-02-29T00:00:00Z", id="leap day"),
        pytest.param(
            "0 12 13 * fri", "2026-11-01T00:00:00Z", "2026-11-06T12:00:00Z", id="both day fields: either matches"
        ),
        pytest.param("0 12 */2 * fri", "2026-11-01T12:00:00Z", "2026-11-03T12:00:00Z", id="a stepped star restricts"),
        pytest.param("0 12 ? * FRI", "2026-11-01T00:00:00Z", "2026-11-06T12:00:00Z", id="a question mark is a star"),
        pytest.param("0 0 1 JAN,jul *", "2026-02-01T00:00:00Z", "2026-07-01T00:00:00Z", id="names in any case"),
        pytest.param("@hourly", "2026-11-16T10:00:00Z", "2026-11-16T11:00:00Z", id="hourly"),
        pytest.param("@midnight", "2026-11-16T10:00:00Z", "2026-11-17T00:00:00Z", id="midnight"),
        pytest.param("@weekly", "2026-11-16T10:00:00Z", "2026-11-22T00:00:00Z", id="weekly is Sunday"),
        pytest.param("@yearly", "2026-11-16T10:00:00Z", "2027-01-01T00:00:00Z", id="yearly"),
        pytest.param(
            "@every 1h30m", "2026-11-16T10:00:30.5Z", "2026-11-16T11:30:30Z", id="every: from the last whole second"
        ),
        pytest.param("@every 10ms", "2026-11-16T10:00:00Z", "2026-11-16T10:00:01Z", id="every: at least a second"),
        pytest.param(
            "TZ=Asia/Tokyo 0 9 * * *", "2026-11-16T10:00:00Z", "2026-11-17T00:00:00Z", id="legacy zone prefix"
        ),
        pytest.param("59 23 31 2 *", "2026-11-16T10:00:00Z", None, id="a day that never comes"),
    ],
)
def test_a_schedule_fires_next(schedule: str, after: str, expected: str | None) -> None:
    assert cron.parse(schedule).next(at(after)) == (at(expected) if expected else None)


@pytest.mark.parametrize(
    ("schedule", "after", "expected"),
    [
        pytest.param("0 9 * * *", "2026-07-01T00:00-04:00", "2026-07-01T09:00-04:00", id="summer"),
        pytest.param("0 9 * * *", "2026-12-01T00:00-05:00", "2026-12-01T09:00-05:00", id="winter"),
        pytest.param(
            "30 2 * * *", "2026-03-08T00:00-05:00", "2026-03-09T02:30-04:00", id="the skipped hour is skipped"
        ),
        pytest.param("30 3 * * *", "2026-03-08T00:00-05:00", "2026-03-08T03:30-04:00", id="the hour after it is not"),
        pytest.param("0 * * * *", "2026-03-08T01:00-05:00", "2026-03-08T03:00-04:00", id="hourly over the gap"),
        pytest.param(
            "30 1 * * *", "2026-11-01T00:00-04:00", "2026-11-01T01:30-04:00", id="the repeated hour, first time"
        ),
        pytest.param(
            "30 1 * * *", "2026-11-01T01:30-04:00", "2026-11-01T01:30-05:00", id="the repeated hour, second time"
        ),
        pytest.param("30 1 * * *", "2026-11-01T01:30-05:00", "2026-11-02T01:30-05:00", id="then the next day"),
    ],
)
def test_a_schedule_follows_the_clock_on_the_wall(schedule: str, after: str, expected: str) -> None:
    assert cron.parse(schedule).next(at(after), NEW_YORK) == at(expected)


def test_midnight_that_a_clock_change_skips_does_not_stop_the_schedule() -> None:
    zone = ZoneInfo("America/Sao_Paulo")  # clocks went from 00:00 to 01:00 on 2018-11-04
    fired = cron.parse("0 * * * *").next(at("2018-11-03T23:30-03:00"), zone)
    assert fired == at("2018-11-04T01:00-02:00")


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        pytest.param("", "empty spec string"),
        pytest.param("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
        pytest.param("* * * * * *", "expected exactly 5 fields, found 6: [* * * * * *]"),
        pytest.param("60 * * * *", "end of range (60) above maximum (59): 60"),
        pytest.param("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        pytest.param("* * * * 7", "end of range (7) above maximum (6): 7"),
        pytest.param("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
        pytest.param("*/0 * * * *", "step of range should be a positive number: */0"),
        pytest.param("1-2-3 * * * *", "too many hyphens: 1-2-3"),
        pytest.param("1/2/3 * * * *", "too many slashes: 1/2/3"),
        pytest.param("a * * * *", 'failed to parse int from a: strconv.Atoi: parsing "a": invalid syntax'),
        pytest.param("@fortnightly", "unrecognized descriptor: @fortnightly"),
        pytest.param("@every 5", 'failed to parse duration @every 5: time: missing unit in duration "5"'),
        pytest.param("@every 1d", 'failed to parse duration @every 1d: time: unknown unit "d" in duration "1d"'),
        pytest.param("@every x", 'failed to parse duration @every x: time: invalid duration "x"'),
        pytest.param("TZ=Mars/Base * * * * *", "provided bad location Mars/Base: unknown time zone Mars/Base"),
    ],
)
def test_what_is_no_schedule_is_refused_in_the_servers_words(schedule: str, message: str) -> None:
    with pytest.raises(cron.ScheduleError) as caught:
        cron.parse(schedule)
    assert str(caught.value) == message


@given(
    st.integers(0, 59),
    st.integers(0, 23),
    st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001 - hypothesis wants naive bounds
    st.sampled_from(["UTC", "America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "Asia/Kolkata"]),
)
def test_every_activation_shows_the_scheduled_time_on_the_wall(
    minute: int, hour: int, after: datetime, zone: str
) -> None:
    schedule, wall = cron.parse(f"{minute} {hour} * * *"), ZoneInfo(zone)
    moments = [after]
    for _ in range(3):
        found = schedule.next(moments[-1], wall)
        assert found is not None
        assert (found.astimezone(wall).hour, found.astimezone(wall).minute) == (hour, minute)
        moments.append(found)
    assert all(earlier < later <= earlier + timedelta(days=2, hours=1) for earlier, later in pairwise(moments))
