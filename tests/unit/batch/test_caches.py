"""What is remembered of texts that somebody else wrote is bounded by their size: a hostile worker fills no memory."""

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from builtin_controller.indexes import read_indexes
from multimirror.batch import IndexSet
from multimirror.batch.caching import TextCache
from multimirror.batch.names import qualified_name
from multimirror.batch.times import canonical

MEBIBYTE = 2**20


@pytest.mark.parametrize(
    ("read", "text"),
    [
        pytest.param(lambda text: read_indexes(text, 10), "{number},{long}", id="index lists"),
        pytest.param(canonical, "2026-01-01T00:00:{number:02d}.{long}Z", id="timestamps"),
        pytest.param(qualified_name, "x{number}/{long}", id="label keys"),
    ],
)
def test_of_many_long_texts_only_a_few_are_remembered(read: Callable[[str], Any], text: str) -> None:
    long = "1" * MEBIBYTE
    tracemalloc.start()
    try:
        for number in range(32):
            read(text.format(number=number, long=long))
        remembered, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert remembered < 4 * MEBIBYTE


def test_a_text_that_was_read_is_not_read_again() -> None:
    assert read_indexes("0-3,7", 10) is read_indexes("0-3,7", 10)
    assert read_indexes("0-3,7", 10) == IndexSet.of([0, 1, 2, 3, 7])
    assert read_indexes("0-3,7", 2) == IndexSet.of([0, 1]), "the same text, read for another Job"


def test_what_was_used_last_stays() -> None:
    made: list[str] = []

    def read(text: str) -> str:
        made.append(text)
        return text.upper()

    cache = TextCache(read, characters=10)
    assert [cache(text) for text in ("aaaa", "bbbb", "aaaa", "cccc", "aaaa", "bbbb")] == [
        "AAAA",
        "BBBB",
        "AAAA",
        "CCCC",
        "AAAA",
        "BBBB",
    ]
    assert made == ["aaaa", "bbbb", "cccc", "bbbb"]
    assert cache("too long for it") == "TOO LONG FOR IT"
    cache("bbbb")
    assert made[4:] == ["too long for it"], "and pushes nothing out"
