"""Index sets behave as sets of numbers, whatever their intervals."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multimirror.batch import IndexFormatError, IndexSet

numbers = st.sets(st.integers(min_value=0, max_value=60))


@given(numbers, numbers)
def test_union_difference_and_intersection_are_those_of_sets(one: set[int], other: set[int]) -> None:
    left, right = IndexSet.of(one), IndexSet.of(other)

    assert set(left | right) == one | other
    assert set(left - right) == one - other
    assert set(left & right) == one & other


@given(numbers, st.integers(min_value=0, max_value=70))
def test_size_membership_and_cut_are_those_of_sets(one: set[int], limit: int) -> None:
    indexes = IndexSet.of(one)

    assert len(indexes) == len(one)
    assert bool(indexes) == bool(one)
    assert [i for i in range(65) if i in indexes] == sorted(one)
    assert set(indexes.below(limit)) == {i for i in one if i < limit}


@given(numbers)
def test_what_is_written_is_read_back_the_same(one: set[int]) -> None:
    indexes = IndexSet.of(one)

    assert IndexSet.parse(str(indexes), completions=61) == indexes


@pytest.mark.parametrize(
    ("indexes", "written"),
    [
        pytest.param([], "", id="none"),
        pytest.param([3], "3", id="one"),
        pytest.param([3, 4], "3,4", id="two neighbours are not an interval"),
        pytest.param([3, 4, 5, 7], "3-5,7", id="three are"),
        pytest.param([7, 0, 1, 2, 2], "0-2,7", id="any order, repetitions"),
    ],
)
def test_the_canonical_form_is_the_job_controllers(indexes: list[int], written: str) -> None:
    assert str(IndexSet.of(indexes)) == written


@pytest.mark.parametrize("text", ["1,2,3", "1-2,3", "1-3"])
def test_neighbours_need_not_be_merged_to_be_read(text: str) -> None:
    assert str(IndexSet.parse(text, completions=4)) == "1-3"


@pytest.mark.parametrize("text", ["+1", "01", "0000000000000000000000001"])
def test_signs_and_zeros_in_front_are_read_as_go_reads_them(text: str) -> None:
    assert list(IndexSet.parse(text, completions=4)) == [1]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("0,", 'cannot convert string to integer for index: ""'),
        (" 0", 'cannot convert string to integer for index: " 0"'),
        ("1_0", 'cannot convert string to integer for index: "1_0"'),
        ("٣", 'cannot convert string to integer for index: "٣"'),
        ("-1", 'cannot convert string to integer for index: ""'),
        ("99999999999999999999", 'cannot convert string to integer for index: "99999999999999999999"'),
        ("5", 'too large index: "5"'),
        ("1-05", 'too large index: "05"'),
        ("3-3", "non-increasing order, previous: 3, current: 3"),
        ("3-1", "non-increasing order, previous: 3, current: 1"),
        ("3,1", "non-increasing order, previous: 3, current: 1"),
        ("0-2,2", "non-increasing order, previous: 2, current: 2"),
        (
            "0-1-2",
            'the fragment "0-1-2" violates the requirement that an index interval '
            "can have at most two parts separated by '-'",
        ),
    ],
)
def test_the_first_mistake_is_named_in_the_servers_words(text: str, complaint: str) -> None:
    with pytest.raises(IndexFormatError) as error:
        IndexSet.parse(text, completions=5)

    assert str(error.value) == complaint


def test_no_interval_is_ever_expanded() -> None:
    huge = IndexSet.parse("0-2000000000", completions=2**31 - 1)

    assert len(huge) == 2_000_000_001
    assert str(huge - IndexSet.parse("5", completions=6)) == "0-4,6-2000000000"
