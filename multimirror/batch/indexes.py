"""Sets of completion indexes, written as `"0-4,7"`, without ever expanding an interval.

An `IndexSet` is sorted, disjoint, non-adjacent intervals in two parallel lists. All operations are one merge over the
intervals: 100,000 completions in 50,000 separate intervals stay cheap. `parse` is the API server's strict reading, with
its words of refusal.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Final, Self

from multimirror.batch.errors import quote

_PLAIN: Final = re.compile(r"[0-9]{1,18}(?:-[0-9]{1,18})?(?:,[0-9]{1,18}(?:-[0-9]{1,18})?)*")
_INTEGER: Final = re.compile(r"\+?[0-9]+")
_MAX_INTEGER: Final = 2**63 - 1


class IndexFormatError(ValueError):
    """The string is not an index list; the text says why, in the API server's words."""


class IndexSet:
    """A set of non-negative indexes as inclusive intervals. Immutable by convention; operations return new sets."""

    __slots__ = ("_ends", "_starts")

    def __init__(self, starts: list[int], ends: list[int]) -> None:
        self._starts = starts
        self._ends = ends

    @classmethod
    def of(cls, indexes: Iterable[int]) -> Self:
        """The set of these indexes, in any order, repetitions welcome."""
        return cls.of_intervals((index, index) for index in sorted(indexes))

    @classmethod
    def of_intervals(cls, intervals: Iterable[tuple[int, int]]) -> Self:
        """The set of these inclusive intervals, which must come sorted by their start; they may touch and overlap."""
        starts: list[int] = []
        ends: list[int] = []
        for start, end in intervals:
            if ends and start <= ends[-1] + 1:
                ends[-1] = max(ends[-1], end)
            else:
                starts.append(start)
                ends.append(end)
        return cls(starts, ends)

    @classmethod
    def parse(cls, text: str, completions: int) -> Self:
        """Read a list as the API server does: increasing, below `completions`. Raises IndexFormatError."""
        canonical = _canonical_intervals(text, completions)
        return cls(*canonical) if canonical else cls.of_intervals(_strict_intervals(text, completions))

    def intervals(self) -> Iterator[tuple[int, int]]:
        return zip(self._starts, self._ends, strict=True)

    def below(self, limit: int) -> "IndexSet":
        """The indexes smaller than `limit`."""
        if not self._ends or self._ends[-1] < limit:
            return self
        return IndexSet.of_intervals((start, min(end, limit - 1)) for start, end in self.intervals() if start < limit)

    def __or__(self, other: "IndexSet") -> "IndexSet":
        # With starts and ends each in order, there is a gap before a start exactly where it lies beyond the end that
        # stands one place before it: as many intervals have ended by then as have begun.
        starts, ends = sorted(self._starts + other._starts), sorted(self._ends + other._ends)
        gaps = [(end, start) for end, start in zip(ends, starts[1:], strict=False) if start > end + 1]
        return IndexSet(starts[:1] + [start for _, start in gaps], [end for end, _ in gaps] + ends[-1:])

    def __and__(self, other: "IndexSet") -> "IndexSet":
        return IndexSet.of_intervals(self._common(other))

    def __sub__(self, other: "IndexSet") -> "IndexSet":
        if not self or not other:
            return self
        return IndexSet.of_intervals(self._without(other))

    def _common(self, other: "IndexSet") -> Iterator[tuple[int, int]]:
        left, right = self.intervals(), other.intervals()
        ours, theirs = next(left, None), next(right, None)
        while ours and theirs:
            start = max(theirs[0], ours[0])
            end = min(theirs[1], ours[1])
            if start <= end:
                yield start, end
            if ours[1] < theirs[1]:
                ours = next(left, None)
            else:
                theirs = next(right, None)

    def _without(self, other: "IndexSet") -> Iterator[tuple[int, int]]:
        holes, j = list(other.intervals()), 0
        for first, end in self.intervals():
            start = first
            while j < len(holes) and holes[j][1] < start:
                j += 1
            k = j
            while k < len(holes) and holes[k][0] <= end:
                if holes[k][0] > start:
                    yield start, holes[k][0] - 1
                start = holes[k][1] + 1
                k += 1
            j = max(j, k - 1)
            if start <= end:
                yield start, end

    def __contains__(self, index: int) -> bool:
        position = bisect_right(self._starts, index) - 1
        return position >= 0 and index <= self._ends[position]

    def __iter__(self) -> Iterator[int]:
        for start, end in self.intervals():
            yield from range(start, end + 1)

    def __len__(self) -> int:
        return sum(self._ends) - sum(self._starts) + len(self._starts)

    def __bool__(self) -> bool:
        return bool(self._starts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IndexSet) and self._starts == other._starts and self._ends == other._ends

    __hash__ = None  # type: ignore[assignment]  # the lists inside are mutable

    def __str__(self) -> str:
        """The canonical list, as the Job controller writes it: two neighbours are `3,4`, three are `3-5`."""
        return ",".join(_written(start, end) for start, end in self.intervals())

    def __repr__(self) -> str:
        return f"IndexSet({str(self)!r})"


def readable_fragments(text: str, completions: int) -> Iterator[tuple[int, int]]:
    """The fragments that are good on their own, in the order of the text: it may be unsorted, they may overlap."""
    for fragment in text.split(",") if text else ():
        try:
            yield _fragment(fragment, completions)
        except IndexFormatError:
            continue


def _canonical_intervals(text: str, completions: int) -> tuple[list[int], list[int]] | None:
    """Starts and ends of a well-formed list, fast; None for anything that needs a closer look."""
    if not _PLAIN.fullmatch(text):
        return None
    starts: list[int] = []
    ends: list[int] = []
    previous = -2
    for fragment in text.split(","):
        first, dash, last = fragment.partition("-")
        start = int(first)
        end = int(last) if dash else start
        if start <= previous or (dash and end <= start):
            return None
        if start == previous + 1:
            ends[-1] = end
        else:
            starts.append(start)
            ends.append(end)
        previous = end
    return (starts, ends) if previous < completions else None


def _strict_intervals(text: str, completions: int) -> Iterator[tuple[int, int]]:
    previous_end: int | None = None
    for fragment in text.split(",") if text else ():
        start, end = _fragment(fragment, completions)
        if previous_end is not None and start <= previous_end:
            raise IndexFormatError(f"non-increasing order, previous: {previous_end}, current: {start}")
        yield start, end
        previous_end = end


def _written(start: int, end: int) -> str:
    if start == end:
        return str(start)
    return f"{start},{end}" if end == start + 1 else f"{start}-{end}"


def _fragment(fragment: str, completions: int) -> tuple[int, int]:
    parts = fragment.split("-")
    if len(parts) > 2:
        raise IndexFormatError(
            f"the fragment {quote(fragment)} violates the requirement that an index interval "
            "can have at most two parts separated by '-'"
        )
    start = _index(parts[0], completions)
    if len(parts) == 1:
        return start, start
    end = _index(parts[1], completions)
    if start >= end:
        raise IndexFormatError(f"non-increasing order, previous: {start}, current: {end}")
    return start, end


def _index(part: str, completions: int) -> int:
    # The server reads with Go's Atoi: an optional plus sign, ASCII digits, 64 bits. Python's int() accepts more.
    if _INTEGER.fullmatch(part):
        digits = part.lstrip("+").lstrip("0") or "0"
        index = int(digits) if len(digits) <= 19 else _MAX_INTEGER + 1
        if index <= _MAX_INTEGER:
            if index >= completions:
                raise IndexFormatError(f"too large index: {quote(part)}")
            return index
    raise IndexFormatError(f"cannot convert string to integer for index: {quote(part)}")
