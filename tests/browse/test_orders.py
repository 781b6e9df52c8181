"""The orders of the grid equal those of the samplers at any size."""

from hypothesis import given, settings
from hypothesis import strategies as st

from wids import DistributedChunkedSampler, DistributedShardSampler
from wids.browse.orders import OrderQuery

LENGTHS = st.lists(st.integers(0, 40), min_size=1, max_size=12).filter(sum)


@settings(max_examples=60, deadline=None)
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


@settings(max_examples=60, deadline=None)
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
