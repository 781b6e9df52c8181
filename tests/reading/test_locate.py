"""`Locator` maps a global index to a shard and a local index."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from wids.reading.openshards import Locator


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
        assert locator(index - locator.total) == (shard_index, local_index)
