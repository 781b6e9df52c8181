"""Batches by cost: never above the bound, equal on all ranks, exact, resumed at any batch.

Padded, and packed into rows.
"""

import json
from collections import Counter
from itertools import islice

import numpy as np
import pytest
from helpers.orders import Numbers

from wids import BatchSampler, DistributedShardSampler

DATA = Numbers([300, 110, 0, 600])
LENGTHS = np.random.default_rng(0).lognormal(4, 1, len(DATA)).clip(1, 900).astype(int)


def make_batches(
    rank=0, ranks=2, max_cost=1000, dataset=DATA, lengths=LENGTHS, *, pack=False, **options
):
    sampler = DistributedShardSampler(dataset, ranks, rank, **{"interleave": 2, **options})
    return BatchSampler(sampler, cost=lengths, max_cost=max_cost, pack=pack)


def price(batch, costs, pack):
    """Return what a batch takes."""
    return costs[batch].sum() if pack else len(batch) * costs[batch].max()


@pytest.mark.parametrize(
    "plan",
    [
        {"cost": LENGTHS, "max_cost": 1000},
        {"cost": LENGTHS, "max_cost": 1000, "pack": True},
        {"batch_size": 4, "shape": np.arange(len(DATA)) % 3},
    ],
)
def test_a_run_goes_on_in_any_of_several_pools(plan, monkeypatch):
    """Other ranks finish a pool and read the later ones; fewer batches than ranks come again."""
    monkeypatch.setattr("wids.ordering.batchsampler._POOL", 100)
    monkeypatch.setattr("wids.ordering.batchsampler._AT_ONCE", 2)

    def make(rank, ranks, state=None, **options):
        batches = BatchSampler(DistributedShardSampler(DATA, ranks, rank, **options), **plan)
        if state is not None:
            batches.load_state_dict(json.loads(json.dumps(state)))
        return batches

    whole = list(make(1, 3))
    state, seen = None, Counter()
    for ranks, share in ((3, 0.1), (2, 0.35), (5, 0.5), (1, 0.2), (4, 1)):
        made = [make(rank, ranks, state) for rank in range(ranks)]
        (left,) = {each.remaining() for each in made}
        for each in made:
            drawn = list(islice(each, int(left * share)))
            seen.update(index for batch in drawn for index in batch)
        (state,) = {json.dumps(each.state_dict()) for each in made}
        state = json.loads(state)
    assert state["consumed"] == len(DATA)
    assert set(seen) == set(DATA)
    assert seen.total() - len(DATA) < 11 * 5 * max(map(len, whole))
    # With as many ranks as before, the run is the one that was not stopped.
    for steps in range(0, len(whole), 7):
        stopped = make(1, 3)
        assert list(islice(stopped, steps)) == whole[:steps]
        assert list(make(1, 3, stopped.state_dict())) == whole[steps:]
    with pytest.raises(ValueError, match="or pad among millions"):
        make(0, 3, stopped.state_dict(), pad=False)


def test_epochs_advance_and_can_be_set():
    """Each pass, also an abandoned one, is another epoch, until an epoch is set."""
    epochs = []
    for epoch in range(3):
        batches = make_batches()
        batches.set_epoch(epoch)
        epochs.append(list(batches))
        assert list(batches) == epochs[-1]
    batches = make_batches()
    assert list(batches) == epochs[0]
    next(iter(batches))
    assert list(batches) == epochs[2]
    assert epochs[0] != epochs[1]


def test_tokens_are_real_and_ranks_alike():
    """With lognormal lengths little is padding, and ranks of a step cost the same."""
    n = 100_000
    lengths = np.random.default_rng(1).lognormal(5.5, 0.9, n).clip(8, 8000).astype(int)
    data = Numbers([1000] * 100)
    ranks = [list(make_batches(rank, 8, 16384, data, lengths, interleave=16)) for rank in range(8)]
    costs = np.array([[len(batch) * lengths[batch].max() for batch in rank] for rank in ranks])
    assert lengths.sum() / costs.sum() >= 0.98
    assert costs.mean() >= 0.94 * 16384
    assert (costs.max(axis=0) / costs.mean(axis=0)).mean() <= 1.15


@pytest.mark.parametrize("max_cost", [8192, 16384])
def test_packed_rows_are_full_of_tokens(max_cost):
    """With lognormal lengths rows are filled to 99 %, equally within a step."""
    n = 50_000
    lengths = np.random.default_rng(1).lognormal(5.5, 0.9, n).clip(8, 8000).astype(int)
    data = Numbers([1000] * 50)
    ranks = [
        list(make_batches(rank, 4, max_cost, data, lengths, interleave=16, pack=True))
        for rank in range(4)
    ]
    costs = np.array([[lengths[row].sum() for row in rank] for rank in ranks])
    assert costs.max() <= max_cost
    assert costs.mean() >= 0.99 * max_cost
    assert (costs.max(axis=0) / costs.mean(axis=0)).mean() <= 1.02


@pytest.mark.parametrize(
    ("lengths", "least"),
    [
        ("half a row", 1.0),
        ("six tenths and three", 0.86),
        ("above a third", 0.68),
        ("uniform up to a row", 0.96),
        ("one long among short ones", 0.97),
    ],
)
def test_packed_rows_of_few_samples(lengths, least):
    """Rows of large samples waste hardly more than necessary."""
    n = 3000
    costs = {
        "half a row": np.full(n, 50),
        "six tenths and three": np.tile([60, 30], n // 2),
        "above a third": np.full(n, 34),
        "uniform up to a row": np.random.default_rng(0).integers(1, 101, n),
        "one long among short ones": np.where(np.arange(n) % 10, 1, 100),
    }[lengths]
    rows = list(make_batches(0, 1, 100, Numbers([n]), costs, pack=True))
    assert sorted(index for row in rows for index in row) == list(range(n))
    assert max(costs[row].sum() for row in rows) <= 100
    assert costs.sum() / (100 * len(rows)) >= least


def test_the_number_of_packed_rows_is_that_of_the_epoch():
    """`len` is exact before, during and after each epoch, also with set epochs."""
    batches, other = make_batches(pack=True), make_batches(1, pack=True)
    for epoch in range(4):
        other.set_epoch(epoch)
        expected = len(batches)
        assert expected == len(other)
        iterator = iter(batches)
        next(iterator)
        assert (len(batches), batches.remaining()) == (expected, expected - 1)
        assert 1 + len(list(iterator)) == expected == len(list(other))


def test_batches_by_cost_are_pinned():
    """Small epochs are today what they were when version 2 of the order was made."""
    dataset, costs = Numbers([4, 3, 5]), [1, 2, 3, 4] * 3
    padded, packed = (
        list(make_batches(0, 1, 9, dataset, costs, pack=pack)) for pack in (False, True)
    )
    assert padded == [[8], [7, 11], [3, 6], [5, 1, 0, 4], [2, 10, 9]]
    assert packed == [[7, 11, 4], [3, 6, 9], [1, 0], [2, 10, 5, 8]]


def test_samples_of_equal_cost_come_from_all_shards():
    """Where all cost the same, a batch has as many shards as one of a number of samples."""
    data = Numbers([1000] * 40)
    costs = np.full(len(data), 10)
    plain = BatchSampler(DistributedShardSampler(data, 1, 0), 32)
    for pack in (False, True):
        batches = make_batches(0, 1, 320, data, costs, pack=pack, interleave=16)
        distinct = [
            np.mean([len({index // 1000 for index in batch}) for batch in each])
            for each in (plain, batches)
        ]
        assert distinct[1] >= 0.9 * distinct[0]


@pytest.mark.parametrize("pack", [False, True])
def test_a_batch_may_have_a_most_number_of_samples(pack):
    """With `batch_size`, batches keep both bounds."""
    sampler = DistributedShardSampler(DATA, 1, 0)
    drawn = list(BatchSampler(sampler, 5, cost=LENGTHS, max_cost=1000, pack=pack))
    assert max(map(len, drawn)) == 5
    assert max(price(batch, LENGTHS, pack) for batch in drawn) <= 1000
    assert sorted(index for batch in drawn for index in batch) == list(DATA)


def test_states_that_do_not_fit_are_refused():
    """States of other costs, and of samplers in the middle of an epoch, are refused."""
    batches = make_batches()
    next(iter(batches))
    state = batches.state_dict()
    with pytest.raises(ValueError, match="other batches .cost, max_cost"):
        make_batches(max_cost=2000).load_state_dict(state)
    with pytest.raises(ValueError, match="restore it with the same"):
        make_batches(pack=True).load_state_dict(state)
    with pytest.raises(ValueError, match="state of batches by cost"):
        batches.sampler.load_state_dict(state)
    by_shape, other = (BatchSampler(make_batches().sampler, 4, shape=DATA[::n]) for n in (1, -1))
    next(iter(by_shape))
    with pytest.raises(ValueError, match="other batches"):
        other.load_state_dict(by_shape.state_dict())
    sampler = make_batches().sampler
    next(iter(sampler))
    with pytest.raises(ValueError, match="in the middle of an epoch"):
        make_batches().load_state_dict(sampler.state_dict())
    between = make_batches()
    between.load_state_dict(make_batches().sampler.state_dict())
    assert list(between) == list(make_batches())
