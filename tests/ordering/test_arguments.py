"""Wrong arguments of samplers are refused where they are given, by their name."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from helpers.refusals import refuses

import wids
from wids.base.arguments import check_flag, check_integer, check_number

DATA = [0] * 20
SAMPLERS: dict[str, Callable[..., wids.ChunkedSampler]] = {
    "ChunkedSampler": lambda **given: wids.ChunkedSampler(DATA, **given),
    "DistributedChunkedSampler": lambda **given: wids.DistributedChunkedSampler(
        DATA, **{"num_replicas": 2, "rank": 0, **given}
    ),
    "DistributedShardSampler": lambda **given: wids.DistributedShardSampler(
        DATA, **{"num_replicas": 2, "rank": 0, "lengths": [5] * 4, **given}
    ),
    "ShardListSampler": lambda **given: wids.ShardListSampler(None, lengths=[5] * 4, **given),
}

# Values of each argument that no sampler takes, and the type of the error.
OF_ALL: dict[str, list[tuple[object, type[Exception]]]] = {
    "seed": [("x", TypeError), (1.5, TypeError), (None, TypeError)],
    "shuffle": [(2, TypeError), ("no", TypeError), (1.0, TypeError)],
    "shufflefirst": [(2, TypeError), ("no", TypeError)],
    "interleave": [(0, ValueError), (True, TypeError), ("x", TypeError), (None, TypeError)],
}
OF_CHUNKED: dict[str, list[tuple[object, type[Exception]]]] = {
    "chunksize": [(0, ValueError), (-1, ValueError), ("x", TypeError), (1.5, TypeError)],
    "num_samples": [(21, ValueError), ((5, 2), ValueError), ((1, 2, 3), ValueError)]
    + [(bad, TypeError) for bad in ("x", 1.5, ("a", "b"), {1: 2}, True)],
    "partition": [("x", ValueError), (5, ValueError)],
    "lengths": [
        (bad, ValueError)
        for bad in ([-1, 30], [5], "abc", 5, [10.5, 10.5], ["a"], [[1, 2], [2, 3]])
    ],
}
OF_RANKS: dict[str, list[tuple[object, type[Exception]]]] = {
    "num_replicas": [(0, ValueError), ("x", TypeError), (1.5, TypeError), (True, TypeError)],
    "rank": [(2, ValueError), (-1, ValueError), ("x", TypeError), (False, TypeError)],
    "drop_last": [(2, TypeError), ("no", TypeError)],
    "pad": [(2, TypeError), ("no", TypeError)],
    "streams": [(0, ValueError), ("x", TypeError), (1.5, TypeError)],
}


@pytest.mark.parametrize("kind", SAMPLERS)
def test_wrong_arguments_of_samplers_are_named(kind: str) -> None:
    """Each argument of a sampler with a wrong value is refused by its name, with the value."""
    table = {**OF_ALL}
    if kind != "ShardListSampler":
        table |= OF_CHUNKED
    if kind.startswith("Distributed"):
        table |= OF_RANKS
    for name, values in table.items():
        for value, expected in values:
            refuses(lambda n=name, v=value: SAMPLERS[kind](**{n: v}), expected, name)  # type: ignore[misc]


@pytest.mark.parametrize("kind", SAMPLERS)
def test_wrong_epochs_and_states_are_refused(kind: str) -> None:
    """An epoch below 0, no state, and the state of something else are refused by name."""
    make = SAMPLERS[kind]
    for epoch, expected in (
        (-1, ValueError),
        ("x", TypeError),
        (1.5, TypeError),
        (None, TypeError),
    ):
        refuses(lambda e=epoch: make().set_epoch(e), expected, "epoch", repr(epoch))  # type: ignore[misc]
    for consumed, expected in ((-1, ValueError), ("x", TypeError), (1.5, TypeError)):
        refuses(lambda c=consumed: make().state_dict(c), expected, "consumed")  # type: ignore[misc]
    for state, expected in ((None, TypeError), (3, TypeError), ([], TypeError), ({}, ValueError)):
        refuses(lambda s=state: make().load_state_dict(s), expected, "state_dict")  # type: ignore[misc]
    costs = wids.BatchSampler(make(), cost=[1] * 20, max_cost=5)
    by_cost = next(iter(costs)) and costs.state_dict()
    loader = wids.Loader(DATA, sampler=make()).state_dict()
    others = (by_cost, loader, wids.ChunkedSampler([0] * 30).state_dict())
    for state in others:
        refuses(lambda s=state: make().load_state_dict(s), ValueError, "state_dict")  # type: ignore[misc]
    sampler = make()
    sampler.shuffle = "no"  # type: ignore[assignment]
    with pytest.raises(TypeError, match="shuffle"):
        iter(sampler)


def chunked() -> wids.ChunkedSampler:
    return wids.ChunkedSampler(DATA)


def batched(**given: Any) -> wids.BatchSampler:
    return wids.BatchSampler(chunked(), **{"batch_size": 2, **given})


@pytest.mark.parametrize("kind", [wids.DistributedShardSampler, wids.ShardListSampler])
def test_a_dataset_of_shards_has_lengths(kind: Callable[..., object]) -> None:
    """Without them, Python's error names what is missing."""
    for dataset in (None, 5, [1]):
        refuses(lambda d=dataset: kind(d), AttributeError, "lengths")  # type: ignore[misc]


def by_cost(cost: Any = DATA, max_cost: Any = 5) -> wids.BatchSampler:
    return wids.BatchSampler(chunked(), cost=cost, max_cost=max_cost)


def weighed(**given: Any) -> wids.DistributedShardSampler:
    return wids.DistributedShardSampler(DATA, 1, 0, lengths=[20], **given)


def bare(**given: Any) -> wids.BatchSampler:
    return wids.BatchSampler(chunked(), **given)


def of_three(dataset: Any = (0, 0, 0), **given: Any) -> wids.DistributedShardSampler:
    options = {"lengths": [2, 1], **given}
    if isinstance(dataset, wids.Mixture):
        del options["lengths"]
    return wids.DistributedShardSampler(dataset, 1, 0, **options)


def mixed(*given: Any, **options: Any) -> wids.Mixture:
    return wids.Mixture([[0] * 20, [0] * 10], *given, **options)


def buckets(widths: Any = (3,), heights: Any = (3,), **given: Any) -> Any:
    return wids.shape_buckets(widths, heights, **given)


def report(lengths: Any = (5,) * 5, cluster: Any = None, **given: Any) -> object:
    return wids.order_report(lengths, wids.Cluster() if cluster is None else cluster, **given)


def cluster(**given: Any) -> object:
    return wids.Cluster(**given)


NAN = float("nan")
CASES: list[tuple[Callable[..., object], str, object, type[Exception]]] = [
    *((wids.ChunkedSampler, "dataset", bad, TypeError) for bad in (None, 5, iter([1]))),
    *((wids.DistributedChunkedSampler, "dataset", bad, TypeError) for bad in (None, 5)),
    *((weighed, "weights", bad, ValueError) for bad in ("x", ["a"] * 20, [1], {1: 2}, [1j] * 20)),
    *((weighed, "balance", bad, ValueError) for bad in ("x", 5, {1: 2}, [1])),
    *((batched, "batch_size", bad, TypeError) for bad in ("x", 1.5, True)),
    (batched, "batch_size", 0, ValueError),
    *((batched, "drop_last", bad, TypeError) for bad in (2, "no", None)),
    *((batched, "pack", bad, TypeError) for bad in (2, "no", None)),
    *((by_cost, "cost", bad, ValueError) for bad in ([1], 7, ["a"] * 20)),
    *((by_cost, "max_cost", bad, TypeError) for bad in ("x", True)),
    *((by_cost, "max_cost", bad, ValueError) for bad in (0, NAN)),
    *((batched, "shape", bad, ValueError) for bad in ("x", 5, [1], [1.5] * 20)),
    *(
        (mixed, "weights", bad, ValueError)
        for bad in ("x", [1], [1, 2, 3], [-1, 1], [NAN, 1], [0, 0])
    ),
    *((mixed, "weights", bad, TypeError) for bad in ({"a": 1}, {"a": 1, "b": 2}, 5)),
    *((mixed, "weights", bad, TypeError) for bad in (["1", "2"], [None, 1], [1j, 2])),
    (mixed, "num_samples", 0, ValueError),
    *((mixed, "num_samples", bad, TypeError) for bad in ("x", 1.5, None, [1])),
    *((wids.Mixture, "parts", bad, TypeError) for bad in (None, 5, "ab", [5], ["a"], [{}])),
    *((wids.Mixture, "parts", bad, ValueError) for bad in ([], [[]])),
    *((wids.concat, "parts", bad, TypeError) for bad in (None, 5, "ab", [None], ["a"])),
    *((buckets, "widths", bad, TypeError) for bad in ("x", ["a"])),
    *((buckets, "widths", bad, ValueError) for bad in (None, [[1]], [0], [NAN], [3, 4])),
    *((buckets, "heights", bad, TypeError) for bad in ("x", ["a"])),
    *((buckets, "heights", bad, ValueError) for bad in (None, [1, 2])),
    *((buckets, "pixels", bad, TypeError) for bad in ("x", None)),
    *((buckets, "pixels", bad, ValueError) for bad in (0, -1, 100, NAN)),
    *((buckets, "step", bad, TypeError) for bad in ("x", 1.5)),
    (buckets, "step", 0, ValueError),
    *((buckets, "most_aspect", bad, TypeError) for bad in ("x", None)),
    *((buckets, "most_aspect", bad, ValueError) for bad in (0, 0.5, NAN)),
    *((wids.random_seed, "sample", bad, TypeError) for bad in (None, "x", 1.5, [1])),
    (wids.random_seed, "sample", -1, ValueError),
    *((report, "lengths", bad, ValueError) for bad in (5, "abc", ["a"], [1.5], [], [-1, 5])),
    (report, "partition", "x", ValueError),
    (report, "seed", "x", TypeError),
    *((report, name, "x", TypeError) for name in ("interleave", "chunksize")),
    (report, "streams", "x", TypeError),
    *((report, name, 0, ValueError) for name in ("interleave", "streams", "max_samples")),
    *((cluster, name, 1.5, TypeError) for name in ("nodes", "ranks_per_node", "workers")),
    *((cluster, name, 0, ValueError) for name in ("nodes", "ranks_per_node", "batch_size")),
    *((cluster, name, -1, ValueError) for name in ("cache_shards", "open_shards")),
    (wids.check_ranks, "sampler", None, TypeError),
]


@pytest.mark.parametrize(("call", "name"), sorted({(c, n) for c, n, _, _ in CASES}, key=str))
def test_wrong_arguments_are_named(call: Callable[..., object], name: str) -> None:
    """A wrong argument of what orders samples is refused by its name."""
    for each, argument, value, expected in CASES:
        if (each, argument) == (call, name):
            refuses(lambda v=value: call(**{name: v}), expected, name)  # type: ignore[misc]


# Calls of one sampler of three samples or one mixture, and words of the message: what is wrong, and
# the cure where it is not plain.
CURES: list[tuple[Callable[..., object], dict[str, Any], str]] = [
    (of_three, {"weights": [1, -2, 3]}, "sample 1 has -2: give"),
    (of_three, {"weights": [float("inf"), 2, NAN]}, "sample 0 has inf"),
    (of_three, {"weights": [0, 0, 0]}, "weights must not all be 0"),
    (of_three, {"weights": [1, 2, 3], "num_samples": 0}, "draws an epoch.*got 0"),
    (of_three, {"weights": [1, 2, 3], "num_samples": (0, 2)}, r"draws an epoch.*got \(0, 2\)"),
    (of_three, {"weights": [1, 2, 3], "lengths": [1]}, "lengths must be those"),
    (of_three, {"balance": ["a", None, "b"]}, "sample 1 has none"),
    (of_three, {"balance": [1.0, 2.0, NAN]}, "sample 2 has none"),
    (of_three, {"balance": np.array(["a", 1, "b"], object)}, "classes of one kind"),
    (of_three, {"balance": ("a", 0.5, "b")}, "classes of one kind"),
    (of_three, {"balance": ["a", "b", "c"], "weights": [0, 0, 0]}, "must not all be 0"),
    (of_three, {"dataset": wids.Mixture([[0] * 3]), "weights": [1, 2, 3]}, "weights of its parts"),
    (of_three, {"dataset": [], "lengths": [], "weights": []}, "the dataset has none"),
    (wids.Mixture, {"parts": [range(3), []]}, r"must have samples, got parts of .3, 0. samples"),
    (
        mixed,
        {"weights": [1, 1e-12], "num_samples": 10},
        "part 1 .* never .*num_samples=100000000000",
    ),
    (mixed, {"weights": [1, float("inf")]}, r"weights.1. .* be a finite number"),
    (bare, {}, "takes batch_size.* got none of them"),
    (bare, {"cost": DATA}, "or cost and max_cost"),
    (bare, {"cost": [7] * 20, "max_cost": 5}, r"sample 0 has .*numpy.minimum"),
    (bare, {"cost": [1] * 21, "max_cost": 5}, "for each of 20.*21"),
    (bare, {"cost": [NAN] * 20, "max_cost": 5}, "sample 0 has nan"),
    (bare, {"cost": [-1] * 20, "max_cost": 5}, "at most 5.0; sample 0 has -"),
    (bare, {"batch_size": 4, "pack": True}, "got batch_size, pack"),
    (bare, {"cost": [1] * 20, "max_cost": 5, "drop_last": True}, "drop_last"),
    (bare, {"cost": DATA, "max_cost": 5, "shape": DATA}, "got cost, max_cost, shape"),
    (bare, {"shape": DATA}, "batch_size"),
    (bare, {"shape": [(1, 2), (1,)], "batch_size": 4}, "a row of equally many integers"),
    (bare, {"shape": np.ones(20), "batch_size": 4}, "array of float64.*shape_buckets"),
    (bare, {"shape": [0, 1] * 10, "batch_size": {0: 4}}, "no number for the shape 1"),
    (bare, {"batch_size": {0: 4}}, "batch_size must be an integer"),
]


@pytest.mark.parametrize(("call", "given", "words"), CURES, ids=[words for *_, words in CURES])
def test_what_cannot_be_drawn_is_refused_with_the_cure(
    call: Callable[..., object], given: dict[str, Any], words: str
) -> None:
    """Shares, costs and shapes that no epoch can be made of are named, with what is wanted."""
    with pytest.raises((TypeError, ValueError), match=words):
        call(**given)


def test_samplers_and_states_of_batches_are_checked_by_name() -> None:
    """The sampler and the states of a BatchSampler are refused by name."""
    other = torch.utils.data.RandomSampler(range(3))
    refuses(lambda: wids.BatchSampler(other, 2), TypeError, "sampler of wids", "RandomSampler")  # type: ignore[arg-type]
    for make in (batched, lambda: by_cost(cost=[1] * 20)):
        sampler: Any = make()
        for state, expected in ((None, TypeError), (3, TypeError), ({}, ValueError)):
            refuses(partial(sampler.load_state_dict, state), expected, "state_dict")
        for consumed, expected in (("x", TypeError), (1.5, TypeError), (-1, ValueError)):
            refuses(partial(sampler.state_dict, consumed), expected, "consumed")


def test_values_of_numpy_and_those_of_0_1_11_are_accepted() -> None:
    """Numbers and flags of numpy are accepted, 0 and 1 for flags, and None as 0.1.11 took it."""
    given: Any = {"seed": 3, "chunksize": 4, "num_samples": 18, "lengths": [18]}
    plain = list(wids.DistributedChunkedSampler(DATA, 2, 1, **given))
    of_numpy = SAMPLERS["DistributedChunkedSampler"](
        num_replicas=np.int64(2),
        rank=np.int64(1),
        seed=np.int64(3),
        chunksize=np.int32(4),
        num_samples=np.int64(18),
        shuffle=np.bool_(True),
        drop_last=None,
        interleave=np.uint8(1),
        lengths=np.array([18], np.uint64),
    )
    assert list(of_numpy) == plain
    epoch: Any = np.int64(2)
    of_numpy.set_epoch(epoch)
    assert of_numpy.epoch == 2
    assert of_numpy.state_dict(consumed=epoch)["consumed"] == 4
    for off in (0, None, np.False_):
        assert list(SAMPLERS["ChunkedSampler"](shuffle=off)) == list(range(20))
    some = SAMPLERS["ChunkedSampler"](num_samples=np.array([2, 4]), shuffle=False)
    assert list(some) == [2, 3]
    for weights in (np.array([1, 3], np.float32), np.array([1, 3]), (1.0, 3)):
        assert mixed(weights).weights == mixed([1, 3]).weights
    index: Any = np.int64(7)
    assert wids.random_seed(index) == wids.random_seed(7)
    with pytest.raises(KeyError, match="__index__"):
        wids.random_seed({})
    assert buckets(pixels=np.float32(4096)).tolist() == [[64, 64]]


def test_checks_return_plain_values() -> None:
    """The checks return plain values of Python, whatever library the argument is of."""
    assert type(check_integer("n", np.uint8(3), least=3, most=3)) is int
    assert type(check_number("x", np.float32(0.5))) is float
    assert check_flag("flag", np.True_) is True
    refuses(lambda: check_integer("n", np.array([1, 2])), TypeError, "n must be an integer")
    refuses(lambda: check_number("x", True), TypeError, "x must be a number")
    refuses(lambda: check_integer("n", 4, most=3, unless="None"), ValueError, "n", "3", "None")


def test_costs_may_be_an_array_for_a_sampler_without_a_dataset() -> None:
    """Costs of numpy give the number of samples where nothing else does."""
    sampler = wids.ShardListSampler(None, lengths=[3, 2])
    batches = wids.BatchSampler(sampler, cost=np.ones(5), max_cost=2)
    assert sorted(index for batch in batches for index in batch) == list(range(5))
