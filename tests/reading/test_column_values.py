"""Values packed into few arrays are unchanged."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wids.reading.ragged import Ragged, RaggedText, fill_in, join, pack

BIG = 2**53
SCALARS = (
    st.booleans()
    | st.none()
    | st.integers(-(2**70), 2**70)
    | st.integers(-5, 5)
    | st.sampled_from([BIG + 1, 2**63, 2**64 - 1, -(2**63)])
    | st.floats()
    | st.text(max_size=4)
)
SIMILAR = st.one_of(
    *(st.lists(each, max_size=6) for each in (st.integers(), st.floats(), st.text(), SCALARS)),
    st.lists(st.integers(-(2**63), 2**64) | st.floats(), max_size=6),
)


def same(one, other):
    """Compare values; NaN equals NaN, and True differs from 1."""
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    truths = isinstance(one, bool) == isinstance(other, bool)
    return one == other and truths


def taken_apart(column):
    if isinstance(column, np.ndarray):
        return column.tolist()
    return [item.tolist() if isinstance(item, np.ndarray) else item for item in column]


@given(SIMILAR)
def test_packing_changes_no_value(values):
    """Packed values equal the original ones, whatever they are."""
    column = taken_apart(pack(values))
    assert len(column) == len(values)
    assert all(map(same, column, values))


@given(st.lists(SIMILAR, max_size=4))
def test_joining_changes_no_value(lists):
    """Joined columns have the values of all parts in order."""
    column = taken_apart(join([pack(values) for values in lists]))
    values = [value for each in lists for value in each]
    assert len(column) == len(values)
    assert all(map(same, column, values))


@given(SIMILAR, st.lists(st.integers(0, 9), unique=True), SCALARS.filter(lambda v: v is not None))
def test_filling_puts_the_value_where_there_is_none(values, gaps, fill):
    """The fill value is at the missing indexes, and the others keep their order."""
    missing = sorted(gap for gap in gaps if gap < len(values) + len(gaps))
    missing = [gap for number, gap in enumerate(missing) if gap <= len(values) + number]
    expected = list(values)
    for gap in missing:
        expected.insert(gap, fill)
    column = taken_apart(fill_in(pack(values), np.array(missing, np.int64), fill))
    assert len(column) == len(expected)
    assert all(map(same, column, expected))


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([1, 2], np.int64),
        ([1, 2**63], np.uint64),
        ([1, 0.5], np.float64),
        ([True, False], np.bool_),
        ([np.float32(1), np.float32(2)], np.float32),
        ([np.zeros((2, 3), "u1")] * 4, np.uint8),
    ],
)
def test_what_fits_an_array_is_one(values, dtype):
    """Numbers of one type, and arrays of one type and shape, become an array."""
    column = pack(values)
    assert isinstance(column, np.ndarray)
    assert column.dtype == dtype
    assert len(column) == len(values)


@pytest.mark.parametrize(
    "values",
    [
        [1, True],
        [1.5, BIG + 1],
        [2**64],
        [1, None],
        [{"a": 1}],
        [np.zeros(2), np.zeros((2, 2))],
        [np.zeros(2, "f4"), np.zeros(2, "f8")],
        [np.array([None])],
        [np.array(1), np.array([1])],
    ],
)
def test_what_would_be_changed_stays_a_list(values):
    """Mixed types, numbers too large for a float, and objects stay a list."""
    assert pack(values) is values


def test_arrays_of_one_shape_a_shard_meet_as_ragged():
    """Arrays whose length differs between shards become a `Ragged`."""
    column = join([np.zeros((3, 2)), np.ones((1, 4))])
    assert isinstance(column, Ragged)
    assert [len(item) for item in column] == [2, 2, 2, 4]


def test_ragged_columns_join_to_one():
    """Slices of ragged columns are joined without their other elements."""
    column = join([RaggedText.of(["a", "bc", "d"])[1:], RaggedText.of(["e"])])
    assert isinstance(column, RaggedText)
    assert list(column) == ["bc", "d", "e"]
    assert len(column.values) == 4


def test_types_meet_where_all_are_exact():
    """Joined types are the smallest that represent all values exactly."""
    assert join([np.array([1], "i2"), np.array([2], "i8")]).dtype == np.int64
    assert join([np.array([1], "i8"), np.array([0.5])]).dtype == np.float64
    assert isinstance(join([np.array([BIG + 1]), np.array([0.5])]), list)
    assert isinstance(join([np.array([True]), np.array([1])]), list)
    assert join([np.array([1], "i8"), np.array([2], "u8")]).dtype == np.int64


def test_a_number_fills_a_whole_array():
    """A number as the fill value fills a whole array."""
    column = fill_in(np.ones((2, 3, 3), "u1"), np.array([1]), 0)
    assert column.shape == (3, 3, 3)
    assert column[1].tolist() == [[0] * 3] * 3


def test_nothing_is_an_empty_array():
    """A dataset without samples has an empty column."""
    assert len(join([])) == len(join([pack([])])) == 0
