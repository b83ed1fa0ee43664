"""Quantities that nobody means: every text is a number or refused, at once, and never anything else."""

import time
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multimirror.batch.quantities import QuantityError, canonical, canonical_resources, quantity

LARGEST = Decimal(2**63 - 1)
SECONDS = 2.0
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
NEARLY = st.from_regex(r"[+-]?[0-9.]{0,40}[eEinumkKMGTP]{0,3}[-+]?[0-9.]{0,12}", fullmatch=True)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("99e999999", LARGEST, id="too large for a decimal number: the largest quantity"),
        pytest.param("1e20", LARGEST, id="too large for 64 bits: the largest quantity"),
        pytest.param("-99e999999", -LARGEST, id="and the smallest"),
        pytest.param("1e-999999", Decimal("1e-9"), id="too small: the smallest amount there is"),
        pytest.param("-1e-999999", Decimal("-1e-9"), id="below zero, too"),
        pytest.param("0e999999", Decimal(0), id="nothing, however often"),
        pytest.param("1" * 10_000, LARGEST, id="ten thousand digits"),
        pytest.param("0." + "0" * 10_000 + "1", Decimal("1e-9"), id="ten thousand digits of next to nothing"),
        pytest.param("1." + "0" * 10_000 + "1", Decimal("1.000000001"), id="rounded up, whatever digit comes last"),
        pytest.param(10**5000, LARGEST, id="a whole number too long to be printed"),
        pytest.param("9223372036854775807.5", LARGEST, id="one more than the largest"),
        pytest.param("8Ei", LARGEST, id="the largest, in binary"),
        pytest.param("9007199254740993Ki", LARGEST, id="more than the largest, in binary"),
        pytest.param("9007199254740991Ki", Decimal(9007199254740991 * 1024), id="exact up to the largest"),
        pytest.param("0.1Ki", Decimal("102.4"), id="a fraction of a binary unit"),
    ],
)
def test_what_is_out_of_bounds_is_the_nearest_quantity(text: object, value: Decimal) -> None:
    assert quantity(text) == value


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("1e" + "9" * 100_000, id="no number has such an exponent"),
        pytest.param("1" * 100_000 + "x", id="very long, and wrong at its end"),
        pytest.param("1" * 100_000 + "Zi", id="very long, of an unknown unit"),
        *("1e1.5", "nan", "inf", "1e", "1K", "."),
    ],
)
def test_what_is_no_quantity_is_refused_at_once(text: str) -> None:
    started = time.process_time()
    with pytest.raises(QuantityError) as refused:
        quantity(text)
    assert time.process_time() - started < SECONDS, "the time is that of its length, not of the square of it"
    assert len(str(refused.value)) < 200, "nobody wants to read ten thousand digits"


@given(JSON | NEARLY)
def test_anything_is_a_quantity_or_refused(value: object) -> None:
    try:
        number = quantity(value)
    except QuantityError:
        return
    assert -LARGEST <= number <= LARGEST
    assert quantity(canonical(value)) == number, "what is written means the same"
    assert quantity(canonical_resources({"cpu": value})["cpu"]) >= number if number >= 0 else True
