"""Mixtures: exact counts an epoch, each sample in proportion, resumed on any ranks; a dataset."""

import json
import re
import warnings
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from helpers.orders import order_options
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import wids
from wids import BatchSampler, ChunkedSampler, DistributedShardSampler, Mixture, ShardListSampler
from wids.ordering.chunks import chunk_layout
from wids.ordering.mixtureorder import MixtureLayout, MixtureSpec
from wids.ordering.order import RankShare

pytestmark = [
    # torchdata 0.11 calls what torch 2.13 deprecates.
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),
    # Drawn at random, some epochs are too short for the lanes.
    pytest.mark.filterwarnings("ignore:every epoch of .* are rounded to:wids.WidsWarning"),
]

THOROUGH = settings(
    max_examples=100, deadline=None, suppress_health_check=list(HealthCheck), database=None
)


class Part(list):
    """A dataset of numbers from `start` on, in shards."""

    def __init__(self, start, lengths):
        super().__init__(range(start, start + sum(lengths)))
        self.lengths = lengths


def three_parts():
    return [Part(0, [30, 11, 0, 60]), Part(101, [20]), Part(121, [3, 4])]


@st.composite
def mixtures(draw):
    """Draw an order over any parts, weights, partition, lanes and epoch length."""
    lengths = draw(
        st.lists(
            st.lists(st.sampled_from([0, 1, 3, 10, 41]), min_size=1, max_size=5).filter(any),
            min_size=1,
            max_size=5,
        )
    )
    weights = [Fraction(draw(st.integers(0, 20)), 7) for _ in lengths]
    weights[0] += sum(weights) == 0
    chunksize = draw(st.sampled_from([None, 1, 4]))
    parts = [chunk_layout(0, sum(part), chunksize, part) for part in lengths]
    layout = MixtureLayout(parts, weights, draw(st.integers(1, 150)))
    return MixtureSpec(layout, **draw(order_options()))


def epochs_of(spec, count):
    """List the indexes of the first epochs."""
    positions = np.arange(spec.layout.num_samples, dtype=np.int64)
    return [spec.epoch(epoch).at(positions).tolist() for epoch in range(count)]


def bounds_of(spec):
    """List where the indexes of each part begin and end."""
    ends = np.cumsum([part.num_samples for part in spec.layout.parts]).tolist()
    return list(zip([0, *ends[:-1]], ends, strict=True))


@THOROUGH
@given(mixtures())
def test_every_epoch_has_its_share_of_each_part(spec):
    """Counts of parts are the quotas, up to one row, in every epoch."""
    n, lanes = spec.layout.num_samples, spec.lanes
    total = sum(spec.layout.weights)
    counts = [
        [sum(start <= index < stop for index in indexes) for start, stop in bounds_of(spec)]
        for indexes in epochs_of(spec, 3)
    ]
    assert counts[0] == counts[1] == counts[2]
    assert sum(counts[0]) == n
    for count, weight in zip(counts[0], spec.layout.weights, strict=True):
        assert abs(count - n * weight / total) < 2 * lanes + 1
        assert weight or not count


@THOROUGH
@given(spec=mixtures(), num_epochs=st.integers(1, 5))
def test_over_epochs_the_samples_of_a_part_come_equally_often(spec, num_epochs):
    """Draws of two samples of a part differ by one at most, after any epoch."""
    seen = Counter()
    for indexes in epochs_of(spec, num_epochs):
        seen.update(indexes)
        for start, stop in bounds_of(spec):
            times = [seen[index] for index in range(start, stop)]
            assert max(times) - min(times) <= 1


@THOROUGH
@given(spec=mixtures(), epoch=st.integers(-2, 3), stops=st.lists(st.integers(1, 7), max_size=4))
def test_a_run_resumed_on_other_ranks_draws_the_same(spec, epoch, stops):
    """An epoch stopped and resumed on any ranks has the same samples."""
    n, start, seen = spec.layout.num_samples, 0, []
    order = spec.epoch(epoch)
    for replicas in [*stops, 3]:
        steps = (n - start) // replicas // 2
        for rank in range(replicas):
            share = RankShare(n, rank, replicas, spec.lanes, start)
            seen += order.at(share.positions(0, steps)).tolist()
        start += steps * replicas
    for rank in range(3):
        share = RankShare(n, rank, 3, spec.lanes, start, "ragged")
        seen += spec.epoch(epoch).at(share.positions(0, share.count)).tolist()
    assert sorted(seen) == sorted(order.at(np.arange(n, dtype=np.int64)).tolist())


@THOROUGH
@given(spec=mixtures(), random_seed=st.integers(0, 99))
def test_any_position_is_found_by_itself(spec, random_seed):
    """A position computed alone gives the same index as among all."""
    n = spec.layout.num_samples
    order = spec.epoch(2)
    whole = order.at(np.arange(n, dtype=np.int64))
    picked = np.random.default_rng(random_seed).permutation(n)[:4].astype(np.int64)
    assert order.at(picked).tolist() == whole[picked].tolist()
    assert [int(spec.epoch(2).at(picked[i : i + 1])[0]) for i in range(picked.size)] == whole[
        picked
    ].tolist()


def test_a_mixture_is_pinned():
    """A small mixture equals the stored order of version 1."""
    layout = MixtureLayout(
        [chunk_layout(0, 9, 4), chunk_layout(0, 3)], [Fraction(2), Fraction(1)], 12
    )
    order = MixtureSpec(layout, 42, "global", 1, 4).epoch(1)
    assert order.at(np.arange(12)).tolist() == [0, 11, 2, 6, 9, 10, 1, 9, 5, 8, 3, 7]


@pytest.mark.parametrize("ranks", [1, 2, 8])
def test_batches_hold_the_parts_evenly(ranks):
    """Parts vary in a rank's batches no more than by independent draws."""
    shares = np.array([0.6, 0.3, 0.1])
    parts = [chunk_layout(0, size, 1000) for size in (100_000, 10_000, 2000)]
    layout = MixtureLayout(parts, [Fraction(6), Fraction(3), Fraction(1)], 64_000)
    order = MixtureSpec(layout, 1, "global", interleave=16).epoch(1)
    for rank in range(ranks):
        indexes = order.at(RankShare(64_000, rank, ranks).positions(0, 64_000 // ranks))
        homes = np.searchsorted([100_000, 110_000], indexes, side="right").reshape(-1, 32)
        counts = np.stack([(homes == part).sum(axis=1) for part in range(3)])
        assert np.allclose(counts.mean(axis=1), 32 * shares, atol=0.4)
        # Of independent draws the deviation is the root of 32 p (1 - p).
        assert (counts.std(axis=1) <= 1.15 * np.sqrt(32 * shares * (1 - shares))).all()


def make_sampler(mixture, rank=0, ranks=2, **options):
    return DistributedShardSampler(mixture, ranks, rank, **{"interleave": 4, "lanes": 1, **options})


def test_a_sampler_over_a_mixture_draws_by_weight():
    """All ranks get equally many samples, together in proportion to the weights."""
    mixture = Mixture(three_parts(), weights=[0.5, 0.3, 0.2], num_samples=200)
    samplers = [make_sampler(mixture, rank) for rank in range(2)]
    for _ in range(3):
        drawn = [list(sampler) for sampler in samplers]
        assert [len(indexes) for indexes in drawn] == [len(sampler) for sampler in samplers]
        values = [mixture[index] for indexes in drawn for index in indexes]
        assert len(values) == 200
        assert sum(value < 101 for value in values) == 100
        assert sum(101 <= value < 121 for value in values) == 60


def test_a_sampler_over_a_mixture_is_saved_and_restored():
    """Its state can be resumed on other ranks; that of other weights is refused."""
    mixture = Mixture(three_parts(), weights=[5, 3, 2], num_samples=200)
    whole = Counter(make_sampler(mixture, ranks=1))
    seen = []
    for rank in range(4):
        sampler = make_sampler(mixture, rank, 4)
        one_pass = iter(sampler)
        seen += [next(one_pass) for _ in range(11)]
        state = json.loads(json.dumps(sampler.state_dict()))
    for rank in range(3):
        sampler = make_sampler(mixture, rank, 3, pad=False)
        sampler.load_state_dict(state)
        seen += list(sampler)
    assert Counter(seen) == whole
    other = make_sampler(Mixture(three_parts(), weights=[5, 2, 3], num_samples=200))
    with pytest.raises(ValueError, match="other data: layout"):
        other.load_state_dict(state)


def test_loaders_take_a_mixture():
    """DataLoader, StatefulDataLoader and `wids.Loader` read a mixture equally."""
    mixture = Mixture(three_parts(), num_samples=60)
    batches = BatchSampler(make_sampler(mixture), 7)
    expected = [batch.tolist() for batch in DataLoader(mixture, batch_sampler=batches)]
    batches.set_epoch(0)
    loader = StatefulDataLoader(mixture, batch_sampler=batches, num_workers=0)
    iterator = iter(loader)
    head = [next(iterator).tolist() for _ in range(2)]
    resumed = StatefulDataLoader(mixture, batch_sampler=BatchSampler(make_sampler(mixture), 7))
    resumed.load_state_dict(loader.state_dict())
    assert head + [batch.tolist() for batch in resumed] == expected
    ours = wids.Loader(mixture, 7, sampler=make_sampler(mixture), num_workers=2)
    assert [list(batch) for batch in ours] == expected


def test_it_is_the_parts_one_after_the_other():
    """As a dataset it is the concatenation of its parts."""
    mixture = Mixture(three_parts())
    values = list(range(128))
    assert len(mixture) == 128
    assert list(mixture) == values
    assert [mixture[index] for index in range(-128, 128)] == values * 2
    assert mixture.__getitems__([127, 0, 101, -1, 100]) == [127, 0, 101, 127, 100]
    assert mixture.lengths == [30, 11, 0, 60, 20, 3, 4]
    assert Mixture([range(3), mixture]).lengths == [3, 30, 11, 0, 60, 20, 3, 4]
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


@pytest.mark.parametrize(
    ("lanes", "message"),
    [(40, "40 from part 0 of the mixture in place of 30.0.* 40 lanes.* lanes=1"), (1, None)],
)
def test_lanes_that_change_the_shares_are_warned_of(lanes, message):
    """An epoch too short for its lanes to keep the weights is warned of."""
    mixture = Mixture([range(30), range(10)], [3, 1], 40)
    sampler = DistributedShardSampler(mixture, 40, 0, lanes=lanes)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        list(sampler)
    assert len(caught) == bool(message)
    assert all(re.search(message, str(each.message)) for each in caught)


def test_weights_that_a_sampler_does_not_see_are_warned_of():
    """A sampler over a view of a mixture, or over a sequence with one, warns; so does `lengths`."""
    mixture = Mixture([range(30), range(10)], [3, 1], 40)
    for around in (
        mixture[:20],
        wids.concat([mixture, [1]]),
        mixture.map(str),
        Mixture([mixture, range(3)]),
    ):
        with pytest.warns(wids.WidsWarning, match="its weights have no effect"):
            DistributedShardSampler(around, 1, 0)
    with pytest.warns(wids.WidsWarning, match="lengths has no effect over a Mixture"):
        DistributedShardSampler(mixture, 1, 0, lengths=[1, 39])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([],), "parts of a mixture must have samples"),
        (([range(3), []],), r"must have samples, got parts of .3, 0. samples"),
        (([range(3)], [1, 2]), "one number for each of 1 parts"),
        (([range(3)], "length"), "weights must be 'size'"),
        (([range(3)], [-1]), "weights.0. of a mixture must be .*at least 0, got -1"),
        (([range(3)], [0]), "not all be 0"),
        (([range(3)], [float("nan")]), "a finite number"),
        (
            ([range(3), range(3)], [1, float("inf")]),
            r"weights.1. .* be a finite number",
        ),
        (([range(3), range(3)], [1, 1e-12], 10), "part 1 .* never .*num_samples=100000000000"),
        (([range(100), range(3)], [1, 0.001]), "part 1 .* never .*num_samples=1001 or more"),
        (([range(3)], [1], 0), "num_samples must be"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    """Wrong arguments are refused by name and value."""
    with pytest.raises(ValueError, match=message):
        Mixture(*arguments)


def test_samplers_that_would_not_keep_the_weights_refuse_a_mixture():
    """Samplers that cannot keep the weights refuse a mixture."""
    mixture = Mixture(three_parts())
    with pytest.raises(ValueError, match="given to the Mixture"):
        ChunkedSampler(mixture, num_samples=10)
    with pytest.raises(ValueError, match="take DistributedShardSampler"):
        ShardListSampler(mixture)


def test_a_part_that_is_never_drawn_is_said():
    """A part with a share of one draw that several lanes round to none is warned of."""
    mixture = wids.Mixture([range(1000), range(1000)], weights=[0.99, 0.01], num_samples=100)
    sampler = wids.DistributedShardSampler(mixture, 2, 0, lanes=2, pad=False)
    with pytest.warns(wids.WidsWarning, match=r"draws 0 from part 1 .* in place of 1\.0"):
        list(sampler)
