"""Weighted draws and balanced classes: exact shares each epoch, any ranks, any place to resume."""

from collections import Counter
from fractions import Fraction
from itertools import pairwise
from math import ceil, floor

import numpy as np
import pytest
from helpers.orders import Numbers
from hypothesis import given, settings
from hypothesis import strategies as st

import wids
from wids import DistributedShardSampler
from wids.ordering.order import Chunks
from wids.ordering.weighted import WeightedChunks


@settings(deadline=None, database=None)
@given(
    lengths=st.lists(st.sampled_from([0, 1, 3, 10, 41]), min_size=1, max_size=6).filter(any),
    epochs=st.sampled_from([1, 2, 4, 8]),
    number=st.integers(0, 2**40),
    draws=st.sampled_from([None, 1, 17, 300]),
    data=st.data(),
)
def test_each_sample_has_its_share_over_several_epochs(lengths, epochs, number, draws, data):
    """Over 1, 2, 4 or 8 epochs a sample has its share of all draws, rounded once."""
    n = sum(lengths)
    weights = data.draw(st.lists(st.sampled_from([0, 1, 1, 2, 7, 40]), min_size=n, max_size=n))
    weights[0] += sum(weights) == 0
    labels = data.draw(
        st.one_of(st.none(), st.lists(st.sampled_from("abcd"), min_size=n, max_size=n))
    )
    chunks = Chunks.cut(0, n, None, np.array(lengths))
    source = WeightedChunks(chunks, weights, labels, draws)
    counts = sum(source.counts(5, number * epochs + epoch) for epoch in range(epochs))
    assert counts.sum() == epochs * (draws or n)
    totals = Counter()
    for weight, label in zip(weights, labels or "a" * n, strict=True):
        totals[label] += weight
    drawn = sum(total > 0 for total in totals.values())
    for count, weight, label in zip(counts, weights, labels or "a" * n, strict=True):
        share = Fraction(int(counts.sum()) * weight, drawn * totals[label]) if weight else 0
        assert floor(share) <= count <= ceil(share)


def make_sampler(dataset, rank=0, ranks=1, **options):
    return DistributedShardSampler(
        dataset, ranks, rank, **{"interleave": 4, "streams": 1, **options}
    )


def test_weighted_draws_are_pinned():
    """Small weighted epochs equal the stored ones of version 2."""
    dataset = Numbers([4, 3, 5])
    by_weight = make_sampler(dataset, weights=[1, 2, 3, 4] * 3, seed=42)
    balanced = make_sampler(dataset, balance=list("aaaaaaaaabbc"), num_samples=9, seed=42)
    assert list(by_weight) == [6, 6, 11, 3, 2, 2, 10, 11, 4, 7, 8, 5]
    assert [list(balanced), list(balanced)] == [
        [3, 11, 11, 4, 11, 2, 10, 9, 10],
        [11, 6, 5, 11, 10, 11, 9, 7, 9],
    ]


def test_a_pattern_in_the_data_does_not_meet_the_steps():
    """Drawing half of the samples does not draw every second one as stored."""
    sampler = make_sampler(Numbers([100] * 40), weights=np.ones(4000), num_samples=2000)
    for _ in range(4):
        odd = sum(index % 2 for index in sampler)
        assert 850 < odd < 1150


def test_draws_keep_to_a_few_shards_at_a_time():
    """Weighted draws need no more open shards at once than others."""
    lengths = [100] * 40
    weights = np.random.default_rng(0).pareto(1.5, 4000)
    indexes = np.array(list(make_sampler(Numbers(lengths), weights=weights)))
    shards = indexes // 100
    spans = [np.flatnonzero(shards == shard) for shard in range(40)]
    opened = np.zeros(indexes.size + 1)
    for span in spans:
        opened[span[0]] += 1
        opened[span[-1] + 1] -= 1
    assert np.cumsum(opened).max() <= 4 + 4
    assert np.cumsum(opened).mean() <= 4 + 1


def test_many_classes_and_huge_weights_are_drawn_exactly():
    """A thousand classes of very different sizes and weights have exact counts."""
    rng = np.random.default_rng(1)
    classes = rng.zipf(1.3, 20_000) % 1000
    weights = 10.0 ** rng.integers(-100, 100, 20_000)
    sampler = make_sampler(
        Numbers([1000] * 20), balance=classes, weights=weights, num_samples=30_000
    )
    counts = np.bincount(classes[list(sampler)], minlength=1000)
    there = np.bincount(classes, minlength=1000) > 0
    assert set(counts[there].tolist()) <= {30_000 // there.sum(), 30_000 // there.sum() + 1}
    assert not counts[~there].any()


def test_a_state_of_other_weights_is_refused():
    """A state is for the weights and the number of draws that it was saved with."""
    dataset, weights = Numbers([30, 11, 0, 60]), list(range(101))
    state = make_sampler(dataset, weights=weights).state_dict()
    for other in ({"weights": weights[::-1]}, {"balance": weights}, {}):
        with pytest.raises(ValueError, match="other data: layout"):
            make_sampler(dataset, **other).load_state_dict(state)
    with pytest.raises(ValueError, match="other data: num_samples was 101, is 50"):
        make_sampler(dataset, weights=weights, num_samples=50).load_state_dict(state)


def test_classes_come_from_a_column(tmp_path):
    """Columns of numbers and of strings are accepted as classes."""
    with wids.ShardWriter(f"{tmp_path}/a-%d.tar", maxcount=4) as writer:
        for number in range(12):
            name = "cat" if number < 9 else "giraffe"
            sample = {"__key__": f"{number}", ".cls": number // 9, ".json": {"name": name}}
            writer.write(sample)
    dataset = wids.ShardListDataset([f"{tmp_path}/a-{number}.tar" for number in range(3)])
    for column in (dataset.column(".cls"), dataset.column(".json", "name")):
        sampler = make_sampler(dataset, balance=column)
        drawn = Counter(index // 9 for index in sampler)
        assert drawn == {0: 6, 1: 6}


def test_what_it_draws_is_told():
    """`repr` mentions the weights, and `ranges` has the chunks of all shards."""
    sampler = make_sampler(Numbers([4, 0, 8]), weights=range(12), num_samples=1000)
    assert repr(sampler).startswith("DistributedShardSampler(1,000 samples, ")
    assert sampler.ranges == [(0, 4), (4, 12)]
    assert len(sampler) == sampler.num_samples == sampler.remaining() == 1000
    in_order = list(make_sampler(Numbers([4, 0, 8]), weights=range(12), shuffle=False))
    assert all(first <= second for first, second in pairwise(in_order))
