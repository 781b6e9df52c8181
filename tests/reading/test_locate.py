"""`Locator` maps a global index to a shard and a local index."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from wids.reading.openshards import Locator


def place_by_counting(lengths: list[int], index: int) -> tuple[int, int]:
    """Find a sample by counting through all shards."""
    for shard_index, length in enumerate(lengths):
        if index < length:
            return shard_index, index
        index -= length
    raise IndexError


@given(st.lists(st.integers(0, 9), min_size=1, max_size=40))
def test_every_index_lies_where_counting_finds_it(lengths: list[int]) -> None:
    """Each index, also a negative one, is where counting finds it."""
    locator = Locator(np.array(lengths))
    total = sum(lengths)
    assert locator.total == total
    for index in range(total):
        assert locator(index) == place_by_counting(lengths, index)
        assert locator(index - total) == locator(index)


@given(st.integers(5000, 9000), st.integers(0, 2**32), st.sampled_from([1, 3, 2000]))
def test_many_shards_are_found_like_few(num_shards: int, seed: int, longest: int) -> None:
    """With many shards, the table finds the same as NumPy's search."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, longest, num_shards) * (rng.random(num_shards) < 0.5)
    lengths[-1] = 1
    locator = Locator(lengths)
    for index in rng.integers(0, locator.total, 200).tolist():
        shard_index, local_index = locator(index)
        assert shard_index == np.searchsorted(np.cumsum(lengths), index, side="right")
        assert index == lengths[:shard_index].sum() + local_index
