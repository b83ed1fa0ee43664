"""How the API says things: errors, names, times, quantities."""

from decimal import Decimal

import pytest

from multimirror.batch import names
from multimirror.batch.errors import OMITTED, duplicate, invalid, not_supported, quote, required, too_long, too_many
from multimirror.batch.quantities import QuantityError, canonical, quantity
from multimirror.batch.times import canonical as canonical_time
from multimirror.batch.times import earlier, same_instant


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (invalid("a.b", 3, "too odd"), "a.b: Invalid value: 3: too odd"),
        (invalid("a", 'x"y\n', "d"), 'a: Invalid value: "x\\"y\\n": d'),
        (invalid("a", None, "d"), "a: Invalid value: null: d"),
        (invalid("a", True, "d"), "a: Invalid value: true: d"),
        (invalid("a", {"b": ["<c>"]}, "d"), 'a: Invalid value: {"b":["\\u003cc\\u003e"]}: d'),
        (invalid("a", OMITTED, "d"), "a: Invalid value: d"),
        (required("a"), "a: Required value"),
        (required("a", "when b"), "a: Required value: when b"),
        (duplicate("a[1]", "x"), 'a[1]: Duplicate value: "x"'),
        (not_supported("a", "x", ("y", "z")), 'a: Unsupported value: "x": supported values: "y", "z"'),
        (too_long("a", 63), "a: Too long: may not be more than 63 bytes"),
        (too_many("a", 21, 20), "a: Too many: 21: must have at most 20 items"),
    ],
)
def test_an_error_reads_as_the_server_writes_it(error: object, text: str) -> None:
    assert str(error) == text


@pytest.mark.parametrize(
    ("text", "quoted"),
    [("a", '"a"'), ("\\", '"\\\\"'), ("\x01", '"\\x01"'), ("é", '"é"'), ("\u200b", '"\\u200b"'), ("\v", '"\\v"')],
)
def test_strings_are_quoted_as_in_go(text: str, quoted: str) -> None:
    assert quote(text) == quoted


@pytest.mark.parametrize(
    ("value", "good"),
    [("a", True), ("a.b/C_d", True), ("/a", False), ("a/", False), ("a/b/c", False), ("-a", False), ("a\n", False)],
)
def test_qualified_names(value: str, good: bool) -> None:
    assert (not names.qualified_name(value)) is good


def test_lengths_count_bytes() -> None:
    assert names.dns_label("a" * 63) == []
    assert names.dns_label("a" * 64) == ["must be no more than 63 characters"]
    assert "name part must be no more than 63 bytes" in names.qualified_name("é" * 32)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("1", "1"),
        ("1000m", "1"),
        ("0.5", "500m"),
        ("1.5Gi", "1536Mi"),
        ("1024Ki", "1Mi"),
        ("1000Ki", "1000Ki"),
        ("512", "512"),
        ("0.5Ki", "512"),
        ("1e3", "1e3"),
        ("100k", "100k"),
        ("1000k", "1M"),
        ("-1.5", "-1500m"),
        ("0.0000000001", "1n"),
        ("0", "0"),
    ],
)
def test_a_quantity_has_one_canonical_form(text: str, written: str) -> None:
    assert canonical(text) == written


def test_quantities_compare_by_value() -> None:
    assert quantity("1Gi") == Decimal(1024) ** 3
    assert quantity(2) == quantity("2000m")


@pytest.mark.parametrize("text", ["", "a", "1.2.3", "1Zi", "--1", "1 Gi", "e3"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(QuantityError):
        quantity(text)


def test_times_are_written_in_utc_with_whole_seconds() -> None:
    assert canonical_time("2026-01-01T01:00:00.9+01:00") == "2026-01-01T00:00:00Z"
    assert same_instant("2026-01-01T01:00:00+01:00", "2026-01-01T00:00:00Z")
    assert earlier("2026-01-01T00:00:00.1Z", "2026-01-01T00:00:00.15Z")
    assert not earlier("2026-01-01T00:00:00.2Z", "2026-01-01T00:00:00.15Z")


@pytest.mark.parametrize("text", ["", "now", "2026-01-01", "2026-13-01T00:00:00Z", "9999-12-31T23:59:59-01:00"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not an RFC 3339 timestamp"):
        canonical_time(text)
