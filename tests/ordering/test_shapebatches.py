"""Batches by shape: one shape on all ranks at each step, exact, resumed anywhere, few shards."""

import hashlib
from collections import Counter
from itertools import islice

import numpy as np
import pytest
import torch
from helpers.orders import Numbers

import wids
from wids import BatchSampler, DistributedShardSampler

DATA = Numbers([300, 110, 0, 600])
SHAPES = np.random.default_rng(0).choice(5, len(DATA), p=[0.5, 0.3, 0.15, 0.045, 0.005])


def make_batches(rank=0, ranks=2, *, dataset=DATA, shapes=SHAPES, size=8, **options):
    options = {"interleave": 2, "streams": 1, **options}
    sampler = DistributedShardSampler(dataset, ranks, rank, **options)
    return BatchSampler(sampler, size, shape=shapes)


@pytest.mark.parametrize("ranks", [1, 3, 4, 8])
def test_single_samples_of_many_shapes_are_dealt_in_turn(ranks):
    """Without padding, the last samples of all shapes are dealt evenly, at the same state."""
    data, shapes = range(41), np.arange(41) // 2

    def make():
        samplers = [
            DistributedShardSampler(data, ranks, rank, lengths=[41], streams=1, pad=False)
            for rank in range(ranks)
        ]
        return [BatchSampler(sampler, 8, shape=shapes) for sampler in samplers]

    made = make()
    steps = [len(batches) for batches in made]
    assert max(steps) - min(steps) <= 1
    assert max(steps) <= -(-41 // ranks)
    passes = [iter(batches) for batches in made]
    seen = Counter()
    for step in range(1, max(steps)):
        seen.update(index for one_pass in passes for index in next(one_pass))
        states = [batches.state_dict() for batches in made]
        assert states == [states[0]] * ranks
        resumed = make()
        for batches in resumed:
            batches.load_state_dict(states[0])
        rest = Counter(index for batches in resumed for batch in batches for index in batch)
        assert seen + rest == Counter(data), step


def test_repeats_before_the_last_batch_do_not_end_the_epoch():
    """A state is no end as long as a batch is left, however many samples were repeated."""
    shapes = np.array([0, 0, 1, 2, 0, 1, 2])
    whole = list(make_batches(3, 4, dataset=Numbers([7]), shapes=shapes, size=9))
    for steps in range(len(whole) + 1):
        stopped, resumed = (
            make_batches(3, 4, dataset=Numbers([7]), shapes=shapes, size=9) for _ in range(2)
        )
        assert list(islice(stopped, steps)) == whole[:steps]
        state = stopped.state_dict()
        assert (state["consumed"] == 7) == (steps == len(whole))
        resumed.load_state_dict(state)
        assert list(resumed) == whole[steps:]


def test_shapes_are_named_in_any_way():
    """Shapes may be strings, rows of integers and tensors, and are keys of sizes."""
    rows = np.stack([SHAPES * 64, np.full(len(DATA), 512)], axis=1)
    expected = list(make_batches(size={shape: shape + 1 for shape in range(5)}))
    for shapes, sizes in [
        (rows, {(shape * 64, 512): shape + 1 for shape in range(5)}),
        ([f"s{shape}" for shape in SHAPES], {f"s{shape}": shape + 1 for shape in range(5)}),
        (torch.tensor(SHAPES), {shape: shape + 1 for shape in range(5)}),
    ]:
        assert list(make_batches(shapes=shapes, size=sizes)) == expected


def test_the_order_of_batches_by_shape_stays_as_it_is():
    """Small epochs are what they were when version 2 of the order was made."""
    sampler = DistributedShardSampler(range(1000), 3, 1, lengths=[100] * 10, seed=7, streams=1)
    batches = BatchSampler(sampler, 8, shape=[index % 5 for index in range(1000)])
    sampler.set_epoch(2)
    drawn = np.array([index for batch in batches for index in batch], "<i8")
    assert hashlib.sha256(drawn.tobytes()).hexdigest()[:12] == "eb75b581d78e"


def test_buckets_are_spread_over_the_epoch():
    """At any step each shape has had its share of batches, in another order each epoch."""
    shapes = np.random.default_rng(1).choice(4, 40_000, p=[0.4, 0.3, 0.2, 0.1])
    epochs = []
    batches = make_batches(dataset=Numbers([1000] * 40), shapes=shapes, size=10)
    for _ in range(2):
        drawn = [int(shapes[batch[0]]) for batch in batches]
        counts = np.cumsum(np.eye(4)[drawn], axis=0)
        share = np.arange(1, len(drawn) + 1)[:, None] / len(drawn) * counts[-1]
        assert abs(counts - share).max() < 8
        epochs.append(drawn)
    assert epochs[0] != epochs[1]


@pytest.mark.parametrize("partition", ["global", "fixed", "contiguous"])
def test_buckets_share_their_shards(partition):
    """A node needs hardly more shards at once than without shapes, and those of its stream."""
    data = Numbers([1000] * 200)
    rng = np.random.default_rng(2)
    weights = rng.dirichlet(np.full(10, 2.0))
    shapes = rng.choice(10, len(data), p=weights)
    shard_of = np.arange(len(data)) // 1000

    def shards_at_once(batched):
        steps = [[index for batch in step for index in batch] for step in batched]
        return [
            len({int(shard_of[index]) for step in steps[at : at + 8] for index in step})
            for at in range(0, len(steps), 8)
        ]

    options = {"streams": 2, "interleave": 16, "partition": partition}
    samplers = [DistributedShardSampler(data, 8, rank, **options) for rank in range(4)]
    plain = shards_at_once(zip(*(BatchSampler(one, 16) for one in samplers), strict=True))
    by_shape = shards_at_once(
        zip(*(BatchSampler(one, 16, shape=shapes) for one in samplers), strict=True)
    )
    assert max(by_shape) <= 2 * max(plain)  # where the last samples of all streams are left
    assert np.mean(by_shape) <= 1.2 * np.mean(plain)


@pytest.mark.parametrize("streams", [1, 2])
def test_a_batch_by_shape_is_of_many_shards(streams):
    """Batches have more shards than draws from 16 at random, 10.3, on all ranks alike."""
    data = Numbers([1000] * 100)
    shapes = np.random.default_rng(2).choice(8, len(data))
    options = {"streams": streams, "interleave": 16, "dataset": data, "shapes": shapes, "size": 16}
    ranks = [list(make_batches(rank, 4, **options)) for rank in range(4)]
    mixed = [np.mean([len({index // 1000 for index in batch}) for batch in one]) for one in ranks]
    assert min(mixed) >= 11.5
    # No rank has the first samples of a shard.
    inside = [np.mean([index % 1000 for batch in one for index in batch]) for one in ranks]
    assert max(inside) - min(inside) < 10


def test_images_get_the_nearest_shape():
    """Each image gets the shape of the nearest aspect ratio within the bound of pixels."""
    rng = np.random.default_rng(3)
    widths, heights = rng.integers(200, 3000, (2, 500))
    chosen = wids.shape_buckets(widths, heights, pixels=512 * 512, step=32, most_aspect=3)
    assert (chosen % 32 == 0).all()
    assert (chosen.prod(axis=1) <= 512 * 512).all()
    ratios = np.unique(chosen[:, 0] / chosen[:, 1])
    wanted = widths / heights
    nearest = ratios[abs(np.log(wanted[:, None] / ratios)).argmin(axis=1)]
    assert np.allclose(chosen[:, 0] / chosen[:, 1], nearest)
    assert 1 / 3 <= ratios.min() < 0.4
    assert (chosen == wids.shape_buckets(widths * 2, heights * 2, pixels=1 << 18, step=32,
                                         most_aspect=3)).all()  # fmt: skip
