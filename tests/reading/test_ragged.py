"""Sequences of unequal items in one piece of memory."""

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
    """By index, from the end, by iteration, and after pickling."""
    ragged = Ragged.of(items)
    for copy in (ragged, pickle.loads(pickle.dumps(ragged))):
        assert len(copy) == len(items)
        assert [item.tolist() for item in copy] == [item.tolist() for item in items]
        assert copy[-1].tolist() == items[-1].tolist()
        assert copy[0].shape == items[0].shape


@given(st.lists(ANY_TEXT))
def test_text_comes_back_as_it_went_in(items):
    """Any string that Python holds, lone surrogates too."""
    ragged = RaggedText.of(items)
    assert list(ragged) == items
    assert [ragged[place] for place in range(len(items))] == items
    assert int(ragged.offsets[-1]) == len(ragged.values)


@given(st.lists(ANY_TEXT, max_size=9), st.integers(-10, 10), st.integers(-10, 10))
def test_slices_are_those_of_a_list(items, start, stop):
    """They share the memory and hold the same items as a list's slice."""
    part = RaggedText.of(items)[start:stop]
    assert isinstance(part, RaggedText)
    assert list(part) == items[start:stop]


def test_items_are_views():
    """No element is copied to hand out an item or a slice."""
    ragged = Ragged.of([np.arange(3), np.arange(5)])
    assert np.shares_memory(ragged[1], ragged.values)
    assert np.shares_memory(ragged[1:][0], ragged.values)


@pytest.mark.parametrize("index", [2, -3])
def test_an_index_outside_is_named(index):
    """The error says which, and how many there are."""
    with pytest.raises(IndexError, match=f"index {index} is out of range for 2 items"):
        RaggedText.of(["a", "b"])[index]


def test_a_slice_with_gaps_is_refused():
    """It could not share the memory."""
    with pytest.raises(ValueError, match="got step 2"):
        RaggedText.of(["a", "b"])[::2]


@pytest.mark.parametrize("offsets", [[], [0, 2, 1], [-1, 2], [0, 4]])
def test_offsets_that_lead_astray_are_refused(offsets):
    """They must ascend within the values."""
    with pytest.raises(ValueError, match="expected ascending numbers within"):
        Ragged(np.arange(3), np.array(offsets, np.int64))


def test_it_says_what_it_is():
    """Items, type and elements stand in its `repr`."""
    assert repr(Ragged.of([np.zeros(3)])) == "Ragged(1 items, float64, 3 elements)"
