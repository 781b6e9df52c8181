"""`Ragged` and `RaggedText`: sequences of unequal items in one buffer."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from wids.reading.ragged import Ragged, RaggedText

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=8)


@given(st.lists(hnp.arrays("i4", st.tuples(st.integers(0, 4), st.just(2))), min_size=1))
def test_arrays_come_back_as_they_went_in(items):
    """Arrays are equal to the original ones by index, by iteration, and after pickling."""
    ragged = Ragged.of(items)
    for copy in (ragged, pickle.loads(pickle.dumps(ragged))):
        assert len(copy) == len(items)
        assert [item.tolist() for item in copy] == [item.tolist() for item in items]
        assert copy[-1].tolist() == items[-1].tolist()
        assert copy[0].shape == items[0].shape


@given(st.lists(ANY_TEXT))
def test_text_comes_back_as_it_went_in(items):
    """Any Python string comes back unchanged, even one with lone surrogates."""
    ragged = RaggedText.of(items)
    assert list(ragged) == items
    assert [ragged[index] for index in range(len(items))] == items
    assert list(pickle.loads(pickle.dumps(ragged))) == items
    assert int(ragged.offsets[-1]) == len(ragged.values)


@given(st.lists(ANY_TEXT, max_size=9), st.integers(-10, 10), st.integers(-10, 10))
def test_slices_are_those_of_a_list(items, start, stop):
    """A slice shares the memory and has the items of the same slice of a list."""
    whole = RaggedText.of(items)
    part = whole[start:stop]
    assert isinstance(part, RaggedText)
    assert list(part) == items[start:stop]
    assert part.values is whole.values


def test_items_are_views():
    """Items and slices are views and copy no element."""
    ragged = Ragged.of([np.arange(3), np.arange(5)])
    assert np.shares_memory(ragged[1], ragged.values)
    assert np.shares_memory(ragged[1:][0], ragged.values)


@pytest.mark.parametrize("index", [2, -3])
def test_an_index_outside_is_named(index):
    """The error for an index out of range names the index and the number of items."""
    with pytest.raises(IndexError, match=f"index {index} is out of range for 2 items"):
        RaggedText.of(["a", "b"])[index]


def test_a_slice_with_gaps_is_refused():
    """A slice with a step is refused, because it could not share the memory."""
    with pytest.raises(ValueError, match="got step 2"):
        RaggedText.of(["a", "b"])[::2]


@pytest.mark.parametrize("offsets", [[], [0, 2, 1], [-1, 2], [0, 4]])
def test_offsets_that_lead_astray_are_refused(offsets):
    """Offsets that do not ascend or are out of bounds are refused."""
    with pytest.raises(ValueError, match="expected ascending numbers within"):
        Ragged(np.arange(3), np.array(offsets, np.int64))
    with pytest.raises(ValueError, match="expected ascending numbers within"):
        RaggedText(np.zeros(3, np.uint8), np.array(offsets, np.int64))
