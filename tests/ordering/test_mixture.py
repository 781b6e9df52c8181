"""Mixtures: exact counts an epoch, each sample in proportion, resumed on any ranks; a dataset."""

import json
import pickle
from collections import Counter
from fractions import Fraction
from itertools import chain
from operator import methodcaller

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

import wids
from wids import ChunkedSampler, DistributedShardSampler, Mixture, ShardListSampler
from wids.ordering.mixtureorder import MixtureChunks
from wids.ordering.order import Chunks, OrderSpec, Share


class Part(list):
    """A dataset of numbers from `start` on, in shards."""

    def __init__(self, start, lengths):
        super().__init__(range(start, start + sum(lengths)))
        self.lengths = lengths


def three_parts():
    return [Part(0, [30, 11, 0, 60]), Part(101, [20]), Part(121, [3, 4])]


def make_order(mixture, epoch=1, **options):
    chunks = [Chunks.cut(0, size, chunk) for size, chunk in mixture]
    return MixtureChunks(chunks, [Fraction(6), Fraction(3), Fraction(1)], 64_000).epoch(
        OrderSpec(seed=1, epoch=epoch, **options)
    )


def test_a_mixture_is_pinned():
    """A small mixture equals the stored order of version 2."""
    parts = [Chunks.cut(0, 9, 4), Chunks.cut(0, 3)]
    spec = OrderSpec(seed=42, epoch=1, interleave=4)
    order = MixtureChunks(parts, [Fraction(2), Fraction(1)], 12).epoch(spec)
    assert order.at(np.arange(12)).tolist() == [9, 3, 7, 0, 10, 9, 11, 2, 1, 6, 8, 5]


def test_passes_over_a_small_part_are_shuffled_as_asked():
    """Without shuffling all passes are in storage order; shufflefirst is for the first alone."""
    parts = [Chunks.cut(0, 1000, 1000), Chunks.cut(0, 6, 2)]
    mixture = MixtureChunks(parts, [Fraction(1), Fraction(1)], 6000)

    def passes(**options):
        drawn = mixture.epoch(OrderSpec(seed=1, interleave=1, **options)).at(np.arange(6000))
        return drawn[drawn >= 1000].reshape(500, 6) - 1000

    stored, first, shuffled = passes(shuffle=False), passes(shufflefirst=False), passes()
    assert (stored == np.arange(6)).all()
    assert (first[1:] == shuffled[1:]).all()  # only the first pass of all differs
    assert (first[0] != shuffled[0]).any()
    for drawn in (first, shuffled):
        assert np.bincount(drawn.ravel()).tolist() == [500] * 6
    assert len({tuple(row) for row in shuffled.tolist()}) > 300


@pytest.mark.parametrize("streams", [1, 3, 8, 64])
def test_shares_are_exact_whatever_the_streams(streams):
    """Each part has its share, to one draw, and its samples come equally often, to one draw."""
    seen = Counter()
    for epoch in range(3):
        order = make_order([(70_000, 1000), (5000, 500), (7, 7)], epoch, streams=streams)
        indexes = order.at(np.arange(64_000))
        seen.update(indexes.tolist())
        parts = np.bincount(np.searchsorted([70_000, 75_000], indexes, side="right"))
        assert parts.tolist() == [38_400, 19_200, 6400]
        for start, stop in ((0, 70_000), (70_000, 75_000), (75_000, 75_007)):
            times = [seen[index] for index in range(start, stop)]
            assert max(times) - min(times) <= 1


def test_epochs_beyond_64_bits_have_their_draws():
    """Draws are counted over any number of epochs."""
    mixture = Mixture([range(7), range(5)], [1, 1], num_samples=10)
    sampler = DistributedShardSampler(mixture, 1, 0)
    sampler.set_epoch(2**62)
    assert sum(index >= 7 for index in sampler) == 5


@pytest.mark.parametrize("ranks", [1, 2, 8])
def test_batches_hold_the_parts_evenly(ranks):
    """Parts vary in a rank's batches no more than by independent draws."""
    shares = np.array([0.6, 0.3, 0.1])
    order = make_order([(100_000, 1000), (10_000, 1000), (2000, 1000)])
    for rank in range(ranks):
        indexes = order.at(Share(64_000, rank, ranks).positions(0, 64_000 // ranks))
        homes = np.searchsorted([100_000, 110_000], indexes, side="right").reshape(-1, 32)
        counts = np.stack([(homes == part).sum(axis=1) for part in range(3)])
        assert np.allclose(counts.mean(axis=1), 32 * shares, atol=0.4)
        # Of independent draws the deviation is the root of 32 p (1 - p).
        assert (counts.std(axis=1) <= 1.15 * np.sqrt(32 * shares * (1 - shares))).all()


def as_given(mixture):
    return mixture


def doubled(number):
    return 2 * number


MADE_OF_MIXTURES = [
    as_given,
    methodcaller("map", doubled),
    methodcaller("take", 35, seed=1),
    methodcaller("__getitem__", slice(2, None)),
    lambda mixture: wids.concat([range(3), mixture]),
]


@pytest.mark.parametrize("make", MADE_OF_MIXTURES)
def test_a_loader_without_a_sampler_of_wids_is_warned_of_once(make):
    """The weights of a mixture under torch's own sampler have no effect, which is said once."""
    mixture = make(Mixture([range(30), range(10)], [3, 1], 40))
    with pytest.warns(wids.WidsWarning, match="does not know the weights") as caught:
        list(chain(*(DataLoader(mixture, 8, shuffle=True) for _ in range(2))))
    assert len(caught) == 1
    # Read on purpose in order, backwards, or one part beside the other.
    other = make(Mixture([range(30), range(10)], [3, 1], 40))
    list(DataLoader(other, 8))
    assert [other[index] for index in reversed(range(len(other)))] == list(other)[::-1]
    assert all(other[place] is not other[20 + place] for place in range(10))


def test_no_sampler_of_wids_is_warned_of():
    """Neither for the mixture nor for what its samples are mapped to, in workers, too."""
    for batch_size, workers in ((8, 0), (None, 0), (None, 1)):
        mixture = Mixture([range(30), range(10)], [3, 1], 40)
        sampler = DistributedShardSampler(mixture, 1, 0)
        drawn = list(DataLoader(mixture.map(doubled), batch_size, sampler=sampler))
        assert len(drawn) == (5 if batch_size else 40)
        again = pickle.loads(pickle.dumps(mixture))
        list(DataLoader(again, batch_size, sampler=sampler, num_workers=workers))


def test_a_loader_of_ours_is_warned_of_once():
    """A `wids.Loader` and a sampler over a view of a mixture say that it has no weights."""
    view = Mixture([range(30), range(10)], [3, 1], 40).map(doubled)
    with pytest.warns(wids.WidsWarning, match="reads each sample of a Mixture once"):
        list(wids.Loader(view, 8, shuffle=True))
    with pytest.warns(wids.WidsWarning, match="drawn from like any samples") as caught:
        list(DataLoader(view, None, sampler=DistributedShardSampler(view, 1, 0)))
    assert len(caught) == 1


def make_sampler(mixture, rank=0, ranks=2, **options):
    return DistributedShardSampler(
        mixture, ranks, rank, **{"interleave": 4, "streams": 1, **options}
    )


def test_a_state_of_other_weights_is_refused():
    """The state of a sampler over a mixture is for its weights."""
    one, other = (
        Mixture(three_parts(), weights, num_samples=200) for weights in ([5, 3, 2], [5, 2, 3])
    )
    with pytest.raises(ValueError, match="other data: layout"):
        make_sampler(other).load_state_dict(make_sampler(one).state_dict())


@pytest.mark.filterwarnings("ignore:a DataLoader without a sampler:wids.WidsWarning")
@pytest.mark.filterwarnings("ignore:a shuffle of torch")
def test_it_is_the_parts_one_after_the_other():
    """As a dataset it is the concatenation of its parts."""
    mixture = Mixture(three_parts())
    values = list(range(128))
    assert len(mixture) == 128
    assert list(mixture) == values
    assert [mixture[index] for index in range(-128, 128)] == values * 2
    assert mixture.__getitems__([127, 0, 101, -1, 100]) == [127, 0, 101, 127, 100]
    assert mixture.lengths.tolist() == [30, 11, 60, 20, 3, 4]
    assert Mixture([range(3), mixture]).lengths.tolist() == [3, 30, 11, 60, 20, 3, 4]
    for index in (128, -129):
        with pytest.raises(IndexError, match=f"index {index} is out of range for .* 128"):
            mixture[index]


def test_weights_and_length_may_be_left_to_it():
    """Default weights are the sizes; an epoch ends with the first part, or with all."""
    parts = [range(60), range(30)]
    assert Mixture(parts).num_samples == 90
    assert Mixture(parts, "size").weights == [60, 30]
    assert Mixture(parts, [0.5, 0.5]).num_samples == 60
    assert Mixture(parts, [0.5, 0.5], "all").num_samples == 120
    assert Mixture([range(100), range(10)], [0.9, 0.1]).num_samples == 100
    assert Mixture(parts, [1, 0]).num_samples == 60
    assert repr(Mixture(parts, [3, 1])) == (
        "Mixture(90 samples: 60 at 75.0%, 30 at 25.0%; 80 an epoch)"
    )


def test_weights_come_from_the_spec(tmp_path):
    """A weight in the spec of a part is used unless others are given."""
    parts = []
    for name, weight in (("a", 3), ("b", 1)):
        with wids.ShardWriter(f"{tmp_path}/{name}-%d.tar", maxcount=4) as writer:
            for number in range(8):
                writer.write({"__key__": f"{number}", ".txt": name})
        shards = [
            {"url": f"{tmp_path}/{name}-{i}.tar", "nsamples": 4, "weight": weight} for i in range(2)
        ]
        spec = tmp_path / f"{name}.json"
        spec.write_text(json.dumps({"wids_version": 1, "shardlist": shards}))
        parts.append(wids.ShardListDataset(str(spec)))
    assert Mixture(parts).weights == [3, 1]
    assert Mixture(parts, [1, 1]).weights == [1, 1]
    assert Mixture([*parts, range(4)]).weights == [8, 8, 4]
    mixture = Mixture(parts, num_samples=16)
    texts = [mixture[index][".txt"] for index in DistributedShardSampler(mixture, 1, 0)]
    assert Counter(texts) == {"a": 12, "b": 4}


@given(
    weights=st.lists(
        st.one_of(st.floats(1e-300, 1e300), st.sampled_from([0.1, 1 / 3, 1e-12, 7e-10, 5])),
        min_size=1,
        max_size=5,
    )
)
def test_no_weight_is_lost_in_reading_it(weights):
    """Weights are exact to 12 digits; a weight that draws nothing is refused."""
    sizes = [10**6] * len(weights)
    try:
        mixture = Mixture([range(size) for size in sizes], weights, "all")
    except ValueError as error:
        assert "never be drawn" in str(error)  # noqa: PT017 (either outcome is right)
        return
    for weight, exact in zip(weights, mixture.weights, strict=True):
        assert abs(exact - Fraction(weight)) <= Fraction(weight) / 10**12
    assert [float(Mixture([range(3)], [each]).weights[0]) for each in weights] == pytest.approx(
        weights, rel=1e-12
    )


def test_tiny_weights_are_drawn_in_proportion():
    """Tiny weights are drawn in proportion."""
    mixture = Mixture([range(30), range(10)], [3e-12, 1e-12], 40)
    indexes = list(DistributedShardSampler(mixture, 1, 0))
    assert (len(indexes), sum(index >= 30 for index in indexes)) == (40, 10)
    assert Mixture([range(6), range(60)], [1 / 6, 5 / 6]).num_samples == 36


def test_weights_that_a_sampler_does_not_see_are_warned_of():
    """A sampler over a view of a mixture, or over a sequence with one, warns."""
    mixture = Mixture([range(30), range(10)], [3, 1], 40)
    for around in (
        mixture[:20],
        wids.concat([mixture, [1]]),
        mixture.map(str),
        Mixture([mixture, range(3)]),
    ):
        with pytest.warns(wids.WidsWarning, match="its weights have no effect"):
            DistributedShardSampler(around, 1, 0)
    with pytest.raises(ValueError, match="lengths are those of its parts"):
        DistributedShardSampler(mixture, 1, 0, lengths=[1, 39])


def test_samplers_that_would_not_keep_the_weights_refuse_a_mixture():
    """Samplers that cannot keep the weights refuse a mixture."""
    mixture = Mixture(three_parts())
    with pytest.raises(ValueError, match="given to the Mixture"):
        ChunkedSampler(mixture, num_samples=10)
    with pytest.raises(ValueError, match="take DistributedShardSampler"):
        ShardListSampler(mixture)
