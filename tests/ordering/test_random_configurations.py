"""Every sampler with every kind of batches, in random configurations drawn from seeds.

In each configuration every sample comes once (or as often as its weight says), all ranks have
equally many steps, states are restored on the same and on other numbers of ranks, and loaders yield
what the sampler yields. WIDS_LONG_TESTS multiplies the number of configurations.
"""

import json
import os
import random
from collections import Counter
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import islice
from typing import Any
from unittest import mock

import numpy as np
import pytest
from helpers.orders import Numbers
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import wids

LONG = int(os.environ.get("WIDS_LONG_TESTS", "1"))
ONE_PROCESS = {"shard list": wids.ShardListSampler, "chunked": wids.ChunkedSampler}
SOURCES = [*ONE_PROCESS, "distributed", "shards", "view", "weights", "balance", "mixture"]
BATCHES = ["none", "plain", "cost", "pack", "shape"]
TAILS = {"pad": {}, "drop": {"drop_last": True}, "ragged": {"pad": False}}
MAX_COST = 100


@dataclass
class Case:
    """A random configuration; `make` makes the sampler or the batches of a rank."""

    source: str
    batches: str
    number: int
    dataset: Any = field(repr=False)
    options: dict[str, Any]
    shapes: np.ndarray = field(repr=False)
    costs: np.ndarray = field(repr=False)
    size: int | dict[int, int]
    short: bool
    pool: int = 1 << 20

    def make(self, rank=0, ranks=1, tail="pad"):
        if self.source in ONE_PROCESS:
            sampler = ONE_PROCESS[self.source](self.dataset, **self.options)
        else:
            kind = wids.DistributedShardSampler
            if self.source == "distributed":
                kind = wids.DistributedChunkedSampler
            sampler = kind(self.dataset, ranks, rank, **self.options, **TAILS[tail])
        if self.batches == "none":
            return sampler
        if self.batches in ("cost", "pack"):
            options = {"cost": self.costs, "max_cost": MAX_COST, "pack": self.batches == "pack"}
            return wids.BatchSampler(sampler, **options)
        shape = self.shapes if self.batches == "shape" else None
        return wids.BatchSampler(sampler, self.size, not self.short, shape=shape)

    def ranks(self, ranks, tail="pad", state=None):
        """Make what all ranks draw from, restored from a state if one is given."""
        made = [self.make(rank, ranks, tail) for rank in range(ranks)]
        for each in made:
            if state is not None:
                each.load_state_dict(state)
        return made

    def count(self, drawn):
        """Count the indexes that some ranks have drawn."""
        if self.batches == "none":
            return Counter(index for rank in drawn for index in rank)
        return Counter(index for rank in drawn for batch in rank for index in batch)

    def counts_of_epoch(self, epoch):
        """Count how often each sample comes in an epoch, as one rank draws it without batches."""
        alone = replace(self, batches="none").make()
        alone.set_epoch(epoch)
        return Counter(alone)

    def draw_ranks(self, rng):
        """Choose a number of ranks."""
        return 1 if self.source in ONE_PROCESS else rng.choice([1, 2, 2, 3, 4, 7])


def draw_lengths(rng):
    kind, count = rng.choice(["any", "any", "even", "one"]), rng.randint(1, 7)
    if kind == "one":
        return [rng.randint(1, 200)]
    if kind == "even":
        return [rng.choice([1, 3, 20, 50])] * count
    return [*(rng.choice([0, 1, 2, 7, 30, 64, 90]) for _ in range(count)), 5]


def draw_dataset(source, rng):
    dataset = Numbers(draw_lengths(rng))
    if source == "view":
        dataset = wids.concat([dataset, Numbers(draw_lengths(rng))])
        chosen = rng.sample(range(len(dataset)), rng.randint(1, len(dataset)))
        return rng.choice([dataset, dataset[chosen], dataset[:: rng.choice([-1, 2, 3])]])
    if source == "mixture":
        parts = [dataset, *(Numbers(draw_lengths(rng)) for _ in range(rng.randint(0, 3)))]
        weights = [rng.choice([1, 2, 5, 0.3]) for _ in parts]
        whole = wids.Mixture(parts, weights, "all")
        return whole if whole.num_samples < 500 else wids.Mixture(parts, weights, 300)
    return dataset


def draw_options(source, dataset, rng):
    options = {
        "seed": rng.choice([0, 7, -(2**40), 2**65 + 1]),
        "shuffle": rng.random() < 0.85,
        "shufflefirst": rng.random() < 0.85,
        "interleave": rng.choice([1, 1, 2, 3, 8, 16]),
    }
    n = len(dataset)
    if source != "shard list":
        options["partition"] = rng.choice(["contiguous", "fixed", "global", "uniform"])
        options["chunksize"] = rng.choice([None, 1, 13, 64])
    if source in ("chunked", "distributed") and rng.random() < 0.5:
        options["lengths"] = dataset.lengths
    if source in ("chunked", "distributed", "shards", "view") and rng.random() < 0.3:
        options["num_samples"] = tuple(sorted(rng.choices(range(n + 1), k=2)))
    if source not in ONE_PROCESS:
        options["streams"] = rng.choice([1, 1, 2, 3, 5])
    if source in ("weights", "balance"):
        options["num_samples"] = rng.choice([None, rng.randint(1, 400)])
    if source == "weights" or (source == "balance" and rng.random() < 0.3):
        weights = np.array([rng.choice([0, 0.5, 1, 3.25, 9]) for _ in range(n)])
        options["weights"] = weights + (weights.sum() == 0)
    if source == "balance":
        options["balance"] = np.array([rng.choice("aaabc") for _ in range(n)])
    return options


def draw_case(source, batches, number):
    """Draw a configuration from its number; return the generator, too, for what is done with it."""
    rng = random.Random(f"{source} {batches} {number}")
    dataset = draw_dataset(source, rng)
    shapes = np.array([rng.choice([0, 0, 0, 1, 2]) for _ in range(len(dataset))])
    costs = np.array([rng.choice([0, 3, 10, 11.5, 40, 70, 100]) for _ in range(len(dataset))])
    size = rng.randint(1, 12)
    if batches == "shape" and rng.random() < 0.5:
        size = {shape: rng.randint(1, 9) for shape in range(3)}
    options = draw_options(source, dataset, rng)
    short = rng.random() < 0.7
    return Case(source, batches, number, dataset, options, shapes, costs, size, short), rng


def check_counts(case):
    """What one rank draws is what the arguments say, by an independent count."""
    epochs = [case.counts_of_epoch(epoch) for epoch in range(2)]
    n, total = len(case.dataset), epochs[0] + epochs[1]
    for counts in epochs:
        if case.source in ("weights", "balance"):
            draws = case.options["num_samples"] or n
            assert sum(counts.values()) == draws
            check_shares(case.options, counts, draws, n)
        elif case.source == "mixture":
            assert sum(counts.values()) == case.dataset.num_samples
        else:
            assert counts == Counter(range(*(case.options.get("num_samples") or (0, n))))
    if case.source == "mixture":
        ends = np.cumsum([len(part) for part in case.dataset.parts]).tolist()
        for start, end in zip([0, *ends], ends, strict=False):
            times = [total[index] for index in range(start, end)]
            assert max(times) - min(times) <= 1


def check_shares(options, counts, draws, n):
    """Each sample has its share, rounded down or up; classes are drawn equally often."""
    weights = [Fraction(weight) for weight in options.get("weights", np.ones(n)).tolist()]
    classes = options["balance"].tolist() if "balance" in options else ["all"] * n
    sums = Counter()
    for label, weight in zip(classes, weights, strict=True):
        sums[label] += weight
    drawn = sum(weight > 0 for weight in sums.values())
    of_class = Counter()
    for index, (label, weight) in enumerate(zip(classes, weights, strict=True)):
        share = float(draws * weight / drawn / sums[label]) if weight else 0.0
        assert np.floor(share - 1e-6) <= counts[index] <= np.ceil(share + 1e-6)
        of_class[label] += counts[index]
    times = [of_class[label] for label, weight in sums.items() if weight]
    assert max(times) - min(times) <= 1


def check_epoch(case, rng):
    """All ranks together draw the epoch, in equally many steps."""
    epoch, ranks, tail = rng.randrange(2), case.draw_ranks(rng), rng.choice(list(TAILS))
    tail = "pad" if case.source in ONE_PROCESS else tail
    made = case.ranks(ranks, tail)
    for each in made[: ranks * epoch]:
        each.set_epoch(epoch)
    expected = [len(each) for each in made]
    assert made[0].remaining() == expected[0]
    drawn = [list(each) for each in made]
    lengths = list(map(len, drawn))
    assert lengths == expected
    differ = int(tail == "ragged")
    assert max(lengths) - min(lengths) <= differ
    check_tail(case, epoch, ranks, tail, drawn)
    check_batches(case, tail, drawn)


def check_tail(case, epoch, ranks, tail, drawn):
    """Only what the ranks cannot share evenly is repeated or left out."""
    expected, seen = case.counts_of_epoch(epoch), case.count(drawn)
    rest = sum(expected.values()) % ranks
    extra, missing = seen - expected, expected - seen
    if case.batches in ("none", "plain"):
        most_extra, most_missing = (ranks - rest) * (rest > 0), rest
    elif case.batches == "shape":
        most_extra = most_missing = 3 * (ranks - 1)
    else:
        largest = max((len(batch) for rank in drawn for batch in rank), default=0)
        # Left out batches were not seen; those of samples that cost nothing hold any number.
        most_extra, most_missing = (ranks - 1) * largest, sum(expected.values()) * (ranks > 1)
    pools = 1
    if case.batches in ("cost", "pack", "shape") and tail != "ragged":
        pools = -(-sum(expected.values()) // case.pool)
    most_extra, most_missing = most_extra * pools, most_missing * pools
    most_extra *= tail == "pad"
    most_missing *= tail == "drop"
    if not case.short and case.batches in ("plain", "shape"):
        sizes = case.size.values() if isinstance(case.size, dict) else [case.size] * 3
        most_missing += pools * ranks * sum(size - 1 for size in sizes)
        exact = False
    else:
        exact = case.batches in ("none", "plain")
    assert extra.total() <= most_extra
    assert missing.total() <= most_missing
    assert not exact or (extra.total(), missing.total()) == (most_extra, most_missing)
    assert set(extra) <= set(expected)


def check_batches(case, tail, drawn):
    """No batch is empty, too large or too dear; those of one step have one shape."""
    if case.batches == "none":
        return
    for batch in (batch for rank in drawn for batch in rank):
        assert batch
        costs, shapes = case.costs[batch], set(case.shapes[batch].tolist())
        if case.batches == "cost":
            assert costs.max() * len(batch) <= MAX_COST
        elif case.batches == "pack":
            assert costs.sum() <= MAX_COST * (1 + 1e-9)
        else:
            size = case.size
            if isinstance(size, dict):
                assert len(shapes) == 1
                size = size[shapes.pop()]
            assert len(batch) <= size if case.short else len(batch) == size
    if case.batches == "shape":
        # Without padding, some ranks have one batch more of some shapes at the end.
        common = min(map(len, drawn)) - 3 * (tail == "ragged")
        for step in islice(zip(*drawn, strict=False), max(0, common)):
            assert len({int(case.shapes[index]) for batch in step for index in batch}) == 1


def check_resumed(case, rng):
    """Restored at any step, a rank draws the rest of the epoch, and then the next one."""
    ranks = case.draw_ranks(rng)
    tail = "pad" if case.source in ONE_PROCESS else rng.choice(list(TAILS))
    rank = rng.randrange(ranks)
    whole, stopped, resumed = (case.make(rank, ranks, tail) for _ in range(3))
    first, second = list(whole), list(whole)
    steps = rng.randint(0, len(first))
    assert list(islice(stopped, steps)) == first[:steps]
    resumed.load_state_dict(json.loads(json.dumps(stopped.state_dict())))
    assert list(resumed) == first[steps:]  # after the last one, the rest is empty
    assert list(resumed) == second


def check_elastic(case, rng):
    """A run that changes its number of ranks again and again sees the epoch once."""
    seen, state, epoch = Counter(), None, 0
    tail = "pad" if case.source in ONE_PROCESS else "ragged"
    case = replace(case, short=True)
    for _ in range(rng.randint(1, 4)):
        made = case.ranks(case.draw_ranks(rng), tail, state)
        # Up to where every rank has a batch; what the ranks share unevenly comes last.
        common = min(each.remaining() for each in made)
        common -= case.batches == "plain"
        steps = rng.randint(0, max(0, common))
        seen += case.count([list(islice(each, steps)) for each in made])
        states = [each.state_dict() for each in made]
        assert all(other == states[0] for other in states)
        state = json.loads(json.dumps(states[0]))
        assert state["epoch"] == epoch
        if state["consumed"] == state["num_samples"]:
            break
    if state["consumed"] < state["num_samples"]:
        made = case.ranks(case.draw_ranks(rng), tail, state)
        seen += case.count([list(each) for each in made])
        assert all(each.state_dict() == made[0].state_dict() for each in made)
    assert seen == case.counts_of_epoch(0)
    ranks = case.draw_ranks(rng)
    if state["consumed"] < state["num_samples"]:
        assert case.count(
            [list(each) for each in case.ranks(ranks, tail, made[0].state_dict())]
        ) == case.counts_of_epoch(1)


def check_loaders(case, rng, workers=0):
    """A StatefulDataLoader yields what the sampler does, and goes on where it was saved."""
    ranks = case.draw_ranks(rng)
    rank, size = rng.randrange(ranks), rng.randint(1, 9)

    def make(kind):
        drawn = case.make(rank, ranks)
        how = {"sampler": drawn, "batch_size": size}
        if case.batches != "none":
            how = {"batch_sampler": drawn}
        return kind(range(len(case.dataset)), **how, collate_fn=list, num_workers=workers)

    direct = case.make(rank, ranks)
    epochs = [list(direct), list(direct)]
    if case.batches == "none":
        epochs = [[e[at : at + size] for at in range(0, len(e), size)] for e in epochs]
    plain, stopped, resumed = make(DataLoader), make(StatefulDataLoader), make(StatefulDataLoader)
    assert [list(plain), list(plain)] == epochs
    steps = rng.randint(0, len(epochs[0]))
    iterator = iter(stopped)
    head = [next(iterator) for _ in range(steps)]
    resumed.load_state_dict(stopped.state_dict())
    assert head + list(resumed) == epochs[0]
    assert list(resumed) == epochs[1]


@pytest.mark.parametrize("batches", BATCHES)
@pytest.mark.parametrize("source", SOURCES)
def test_random_configurations_are_exact(source, batches):
    """Samples, steps, states and loaders are right in every configuration."""
    for number in range(4 * LONG):
        for pool in (1 << 20, 60) if batches in ("cost", "pack", "shape") else (1 << 20,):
            with mock.patch("wids.ordering.batchsampler._POOL", pool):
                check_case(*draw_case(source, batches, number), pool)


def check_case(case, rng, pool):
    """A configuration is right in all that is done with it."""
    case.pool = pool
    if case.batches == "none":
        check_counts(case)
    check_epoch(case, rng)
    check_resumed(case, rng)
    check_elastic(case, rng)
    if case.number % 10 == 0:
        check_loaders(case, rng)
    if case.number % 200 == 199:
        check_loaders(case, rng, workers=2)
