"""The source of Grain, without Grain: `tests/frameworks/handover.py` runs it with Grain."""

import pickle

import pytest

import wids
from wids.grain import OrderedSource


def test_source_has_the_order_and_seeds_of_each_epoch(tmp_path):
    with wids.ShardWriter(f"{tmp_path}/a-%d.tar", maxcount=10) as writer:
        for number in range(33):
            writer.write({"__key__": f"{number}", ".cls": number})
    samples = wids.ShardListDataset(str(tmp_path), transformations=[index_and_seed])
    for rank in range(2):
        sampler = wids.DistributedShardSampler(samples, 2, rank, interleave=2)
        source = pickle.loads(pickle.dumps(OrderedSource(samples, sampler, num_epochs=3)))
        batches = wids.BatchSampler(sampler, 4)
        loader = wids.Loader(samples, batch_sampler=batches, collate_fn=list)
        due = [pair for _ in range(3) for batch in loader for pair in batch]
        assert [source[position] for position in range(len(source))] == due
        with pytest.raises(IndexError, match="out of range"):
            source[len(source)]
    with pytest.raises(ValueError, match="draws from"):
        OrderedSource(samples[:5], sampler, 1)
    with pytest.raises(TypeError, match="expected a sampler"):
        OrderedSource(samples, range(33), 1)


def index_and_seed(sample):
    return sample["__index__"], wids.random_seed(sample)
