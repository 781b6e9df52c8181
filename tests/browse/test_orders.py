"""The orders of the grid equal those of the samplers at any size."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wids import DistributedChunkedSampler, DistributedShardSampler
from wids.browse.orders import OrderQuery

LENGTHS = st.lists(st.integers(0, 40), min_size=1, max_size=12).filter(sum)


@given(LENGTHS, st.integers(1, 5), st.integers(0, 3), st.integers(0, 9), st.integers(1, 4))
def test_an_epoch_by_shards_is_the_samplers(lengths, replicas, epoch, seed, interleave):
    """Each position of the grid is that of a rank of DistributedShardSampler."""
    for rank in range(replicas):
        sampler = DistributedShardSampler(
            range(sum(lengths)),
            replicas,
            rank,
            lengths=lengths,
            seed=seed,
            interleave=interleave,
            lanes=1,
        )
        sampler.set_epoch(epoch)
        query = OrderQuery("shards", seed, epoch, rank, replicas, interleave)
        order = query.over(lengths)
        assert order.slice(0, order.size) == list(sampler)


@given(st.integers(1, 200), st.integers(1, 5), st.integers(0, 3), st.integers(1, 50))
def test_an_epoch_by_chunks_is_the_samplers(total, replicas, epoch, chunksize):
    """With default parameters, the order is that of DistributedChunkedSampler."""
    for rank in range(replicas):
        sampler = DistributedChunkedSampler(range(total), replicas, rank, chunksize=chunksize)
        sampler.set_epoch(epoch)
        query = {"order": "chunks", "replicas": replicas, "rank": rank, "epoch": epoch}
        texts = {name: str(value) for name, value in (query | {"chunksize": chunksize}).items()}
        order = OrderQuery.parse(texts).over([total])
        assert order.slice(0, total) == list(sampler)


@given(st.integers(1, 300), st.integers(-5, 5), st.integers(0, 300), st.integers(0, 70))
def test_a_page_is_a_piece_of_the_whole_order(total, seed, start, count):
    """A page is a slice of the whole order; a shuffled order has each index once."""
    order = OrderQuery("shuffled", seed).over([total])
    whole = order.slice(0, total)
    assert sorted(whole) == list(range(total))
    assert order.slice(start, count) == whole[start : start + count]


def test_a_billion_samples_are_ordered_at_once():
    """The last page of a billion shuffled samples is computed without a list."""
    total = 10**9
    for kind in ("stored", "shuffled"):
        page = OrderQuery(kind, 3).over([total]).slice(total - 5, 60)
        assert len(set(page)) == 5
        assert all(0 <= index < total for index in page)
    assert OrderQuery("shuffled", 3).over([total]).slice(0, 3) != [0, 1, 2]


def test_a_filter_is_ordered_as_stored_or_shuffled():
    """Matches of a filter are ordered as stored or shuffled, each once."""
    chosen = np.array([4, 8, 15, 16, 23, 42])
    assert OrderQuery().within(chosen).slice(1, 3) == [8, 15, 16]
    drawn = OrderQuery("shuffled", 1).within(chosen).slice(0, 99)
    assert sorted(drawn) == chosen.tolist() != drawn
    assert OrderQuery().within(np.arange(0)).slice(0, 9) == []


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"order": "sideways"}, "order: expected one of stored, shuffled, shards, chunks, got 'si"),
        ({"seed": "x" * 99}, "seed: expected a whole number, got 'xxx"),
        ({"rank": "2", "replicas": "2"}, "rank: expected a number from 0 to 1, got 2"),
        ({"rank": "-1"}, "rank: expected a number from 0 on, got -1"),
        ({"replicas": "0"}, "replicas: expected a number from 1 on, got 0"),
        ({"lanes": "99999999"}, "lanes: expected a number from 1 to 4096, got 99999999"),
        ({"chunksize": "0"}, "chunksize"),
        ({"seed": "9" * 5000}, "seed"),
    ],
)
def test_a_bad_order_is_refused_by_name(query, message):
    """A wrong parameter is an error that names it and its value."""
    with pytest.raises(ValueError, match=message):
        OrderQuery.parse(query)
