"""Cron schedules as CronJobs write them: five fields, names, steps, the `@` macros and `@every <duration>`.

`parse(text)` gives a `Schedule` or raises `ScheduleError` in the words of an API server; `schedule.next(after)` is the
first activation strictly later, or None when there is none within five years (`59 23 31 2 *`).

Clock changes, by the rule that Kubernetes' own controller follows: an activation inside the hour that spring skips does
not happen that day; one inside the hour that autumn repeats happens twice. When both day fields are restricted, either
may match (as in cron). Schedules are read in the zone given to `next`, or in the one that a `TZ=`/`CRON_TZ=` prefix
names (legacy; new CronJobs may not use it).
"""

import bisect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from multimirror.batch.durations import DurationError, parse_duration

_HORIZON_YEARS: Final = 5


class ScheduleError(ValueError):
    """The text is no schedule; the message says why, as the API server words it."""


class _Field(NamedTuple):
    lowest: int
    highest: int
    names: dict[str, int]


def _named(first: int, names: str) -> dict[str, int]:
    return {name: number for number, name in enumerate(names.split(), first)}


_FIELDS: Final = (
    _Field(0, 59, {}),
    _Field(0, 23, {}),
    _Field(1, 31, {}),
    _Field(1, 12, _named(1, "jan feb mar apr may jun jul aug sep oct nov dec")),
    _Field(0, 6, _named(0, "sun mon tue wed thu fri sat")),
)
_MACROS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


@dataclass(frozen=True, slots=True)
class Every:
    """`@every 90m`: a fixed delay after the last activation, in whole seconds, at least one."""

    delay: timedelta

    def next(self, after: datetime, zone: tzinfo = UTC) -> datetime:
        return after.astimezone(UTC).replace(microsecond=0) + self.delay


@dataclass(frozen=True, slots=True)
class Calendar:
    """Five fields: minutes of the day that match, and the days on which they count."""

    minutes: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    any_day: bool
    any_weekday: bool
    zone: str | None = None

    def next(self, after: datetime, zone: tzinfo = UTC) -> datetime | None:
        zone = ZoneInfo(self.zone) if self.zone else zone
        start = after.astimezone(UTC)
        for day in self._dates(start.astimezone(zone).date()):
            found = min(self._instants(day, start, zone), default=None)
            if found is not None:
                return found
        return None

    def _dates(self, first: date) -> Iterator[date]:
        day, last = first, first.replace(year=first.year + _HORIZON_YEARS, month=12, day=31)
        while day <= last:
            if day.month not in self.months:
                day = date(day.year + day.month // 12, day.month % 12 + 1, 1)
                continue
            if self._day_matches(day):
                yield day
            day += timedelta(days=1)

    def _day_matches(self, day: date) -> bool:
        in_month, in_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return (in_month and in_week) if self.any_day or self.any_weekday else (in_month or in_week)

    def _instants(self, day: date, after: datetime, zone: tzinfo) -> Iterator[datetime]:
        """The first activation of that day later than `after`, for each UTC offset that the day knows.

        Wall times that an offset does not really have (skipped, or belonging to the other offset) fail the round trip.
        """
        midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
        offsets = {datetime(day.year, day.month, day.day, hour, tzinfo=zone).utcoffset() for hour in (0, 12, 23)}
        for offset in offsets:
            assert offset is not None, "an aware time has an offset"
            since = (after + offset - midnight).total_seconds()
            for minute in self.minutes[bisect.bisect_right(self.minutes, since / 60) :]:
                instant = midnight + timedelta(minutes=minute) - offset
                if instant.astimezone(zone).utcoffset() == offset:
                    yield instant
                    break


Schedule = Every | Calendar


@lru_cache(maxsize=1024)
def parse(text: str) -> Schedule:
    """The schedule that the text means."""
    if not text:
        raise ScheduleError("empty spec string")
    zone, text = _split_zone(text)
    if text.startswith("@"):
        return _macro(text, zone)
    return _calendar(text, zone)


def _split_zone(text: str) -> tuple[str | None, str]:
    if not text.startswith(("TZ=", "CRON_TZ=")):
        return None, text
    prefix, _, rest = text.partition(" ")
    name = prefix.partition("=")[2] or "UTC"
    try:
        ZoneInfo(name)
    except (ValueError, OSError, KeyError) as error:
        raise ScheduleError(f"provided bad location {name}: unknown time zone {name}") from error
    return name, rest.strip()


def _macro(text: str, zone: str | None) -> Schedule:
    if text in _MACROS:
        return _calendar(_MACROS[text], zone)
    if text.startswith("@every "):
        try:
            delay = parse_duration(text.removeprefix("@every "))
        except DurationError as error:
            raise ScheduleError(f"failed to parse duration {text}: {error}") from error
        return Every(max(timedelta(seconds=delay // timedelta(seconds=1)), timedelta(seconds=1)))
    raise ScheduleError(f"unrecognized descriptor: {text}")


def _calendar(text: str, zone: str | None) -> Calendar:
    fields = text.split()
    if len(fields) != len(_FIELDS):
        raise ScheduleError(f"expected exactly {len(_FIELDS)} fields, found {len(fields)}: [{' '.join(fields)}]")
    sets = [_field(text, bounds) for text, bounds in zip(fields, _FIELDS, strict=True)]
    (minutes, _), (hours, _), (days, any_day), (months, _), (weekdays, any_weekday) = sets
    return Calendar(
        minutes=tuple(hour * 60 + minute for hour in sorted(hours) for minute in sorted(minutes)),
        days=frozenset(days),
        months=frozenset(months),
        weekdays=frozenset(weekdays),
        any_day=any_day,
        any_weekday=any_weekday,
        zone=zone,
    )


def _field(text: str, bounds: _Field) -> tuple[set[int], bool]:
    """The numbers of one field, and whether it leaves everything open (`*` or `?`, not `*/2`)."""
    numbers: set[int] = set()
    is_open = False
    for part in filter(None, text.split(",")):
        chosen, part_is_open = _range(part, bounds)
        numbers.update(chosen)
        is_open = is_open or part_is_open
    return numbers, is_open


def _range(text: str, bounds: _Field) -> tuple[range, bool]:
    span, *steps = text.split("/")
    low, *high = span.split("-")
    is_open = low in {"*", "?"}
    if is_open:
        first, last = bounds.lowest, bounds.highest
    else:
        if len(high) > 1:
            _number(low, bounds)
            raise ScheduleError(f"too many hyphens: {text}")
        first = _number(low, bounds)
        last = _number(high[0], bounds) if high else first
    if len(steps) > 1:
        raise ScheduleError(f"too many slashes: {text}")
    step = 1
    if steps:
        step = _integer(steps[0])
        if not high:  # `5/15` is `5-59/15`
            last = bounds.highest
        is_open = is_open and step <= 1
    if first < bounds.lowest:
        raise ScheduleError(f"beginning of range ({first}) below minimum ({bounds.lowest}): {text}")
    if last > bounds.highest:
        raise ScheduleError(f"end of range ({last}) above maximum ({bounds.highest}): {text}")
    if first > last:
        raise ScheduleError(f"beginning of range ({first}) beyond end of range ({last}): {text}")
    if step == 0:
        raise ScheduleError(f"step of range should be a positive number: {text}")
    return range(first, last + 1, step), is_open


def _number(text: str, bounds: _Field) -> int:
    named = bounds.names.get(text.lower())
    return _integer(text) if named is None else named


def _integer(text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        raise ScheduleError(f'failed to parse int from {text}: strconv.Atoi: parsing "{text}": invalid syntax')
    number = int(text)
    if number >= 1 << 63:
        raise ScheduleError(f'failed to parse int from {text}: strconv.Atoi: parsing "{text}": value out of range')
    if number < 0:
        raise ScheduleError(f"negative number ({number}) not allowed: {text}")
    return number
