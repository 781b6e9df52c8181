"""Wrong arguments of views are refused where they are given, by their name."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.refusals import refuses

import wids


@pytest.fixture
def dataset(tmp_path: Path) -> wids.ShardListDataset:
    with wids.ShardWriter(tmp_path / "t-%03d.tar", maxcount=5) as writer:
        for number in range(10):
            writer.write({"__key__": f"{number:04d}", ".cls": number, ".txt": "x"})
    return wids.ShardListDataset(tmp_path)


def table(dataset: wids.ShardListDataset) -> list[tuple[Callable[..., Any], str, Any, Any]]:
    """Return calls, the argument of each, and values with which they fail: TypeError, ValueError.

    The value is passed by the name of the argument.
    """
    keys = ["0001"]
    select_keys = partial(dataset.select_keys, keys)
    exclude = partial(dataset.exclude, keys)
    join = partial(dataset.join, dataset)
    split = partial(dataset.split, a=1, b=2)
    return [
        (dataset.select, "chosen", [1.5, [1.5], ["a"], {1: 2}, None, 5, "x"], [[True]]),
        (dataset.take, "num_samples", ["x", 1.5, None, True], [-1, 11]),
        (partial(dataset.take, 3), "seed", ["x", 1.5, None], []),
        (dataset.filter, "condition", [5, None], []),
        (dataset.order_by, "order", [5, None], [""]),
        (split, "seed", ["x", 1.5, None], []),
        (split, "by", [5, None], ["x", [1]]),
        (split, "stratify", [5], ["x"]),
        (partial(dataset.split, b=2), "a", ["x", None], [0, -1, float("nan")]),
        (dataset.map, "function", [5, None, "x"], []),
        (dataset.join, "right", [5, None], []),
        (join, "missing", [], ["x", 5]),
        (join, "fields", [5, [5]], ["x"]),
        (join, "rename", [5, "x", ["a"]], []),
        (join, "replace", [2, "no"], []),
        (join, "aligned", [2, "no"], []),
        (partial(wids.concat, [dataset, dataset]), "names", [5, "x", [5, 6]], [["a"]]),
        (dataset.select_keys, "keys", [5, None, [5], "nofile"], []),
        (select_keys, "column", [5, None], ["x"]),
        (select_keys, "missing", [], ["x", 5]),
        (exclude, "column", [5, None], ["x"]),
        (exclude, "missing", [], ["x", 5]),
        (dataset.exclude, "unwanted", [5, None, 1.5, iter(keys)], []),
        (dataset.index_of, "key", [5, None, [1]], []),
        (dataset.take(3).save, "path", [5, None], ["x.txt"]),
        (dataset.take(3).column, "extension", [5, None], ["cls"]),
        (dataset.take(3).show, "index", ["x", 1.5, None], []),
    ]


def test_wrong_arguments_of_views_are_named(dataset: wids.ShardListDataset) -> None:
    """Each argument of a view with a wrong value is refused by its name."""
    for call, name, of_wrong_type, of_wrong_value in table(dataset):
        for value in of_wrong_type:
            refuses(partial(call, **{name: value}), TypeError, name)
        for value in of_wrong_value:
            refuses(partial(call, **{name: value}), ValueError, name)
    over: Any = lambda values: values > 3  # noqa: E731
    refuses(lambda: dataset.filter(over, "x"), ValueError, "columns")
    refuses(lambda: dataset.filter("cls > 3", ".cls"), ValueError, "columns")
    refuses(lambda: dataset.filter(lambda _: 5, ".cls"), ValueError, "condition")
    with pytest.raises(IndexError, match="99"):
        dataset.select([99])
    with pytest.raises(ValueError, match="parts: expected at least one"):
        wids.concat([])


def test_values_of_numpy_are_accepted(dataset: wids.ShardListDataset) -> None:
    """Views take integers, floats and flags of numpy."""
    count: Any = np.int64(3)
    flag: Any = np.True_
    assert len(dataset.take(count, seed=count)) == 3
    assert len(dataset.select(np.array([0, -1], np.int32))) == 2
    share: Any = np.float32(0.5)
    parts = dataset.split(by="sample", seed=count, a=share, b=share)
    assert [len(part) for part in parts.values()] == [5, 5]
    assert len(dataset.join(dataset.take(10), replace=flag, aligned=flag)) == 10
    assert "key" in str(dataset.take(5).show(count))


def test_a_filter_by_a_function_of_a_sample_names_the_other_ways(make_shard) -> None:
    """A function that expects a sample, or a column that no sample has, is a clear error."""
    shard = make_shard("a.tar", [{"__key__": f"{i}", ".cls": str(i)} for i in range(4)])
    dataset = wids.ShardListDataset([str(shard)])
    with pytest.raises(ValueError, match="columns: expected the names of the columns"):
        dataset.filter(lambda sample: sample[".cls"] == 3)
    with pytest.raises(ValueError, match=r"it gets \.cls as arrays of all samples, not a sample"):
        dataset.filter(lambda sample: sample[".cls"] == 3, ".cls")
    with pytest.raises(ValueError, match=r"no sample has .*'\.clss'"):
        dataset.filter(lambda classes: classes < 9, ".clss", fill=0)
    assert len(dataset.filter(lambda classes: classes < 2, ".cls", fill=9)) == 2


def test_unsigned_indexes_outside_are_refused(dataset: wids.ShardListDataset) -> None:
    """One that is too large for int64 does not count from the end."""
    for index in (2**64 - 1, 2**63, 10):
        with pytest.raises(IndexError, match=str(index)):
            dataset[np.array([0, index], np.uint64)]
    assert [s[".cls"] for s in dataset[np.array([9, 0], np.uint64)]] == [9, 0]
    assert len(dataset[np.array([], np.uint64)]) == 0


def test_masked_arrays_are_refused(dataset: wids.ShardListDataset) -> None:
    """A masked value is neither a sample nor a truth value; an array that masks none is taken."""
    hidden = np.arange(10) < 2
    truths = np.ma.array(np.ones(10, bool), mask=hidden)
    for chosen in (truths, np.ma.array(np.arange(10), mask=hidden)):
        with pytest.raises(TypeError, match="without masked values"):
            dataset[chosen]
        with pytest.raises(TypeError, match="without masked values"):
            dataset.exclude(chosen)
    with pytest.raises(TypeError, match="filter: condition: .* without masked values"):
        dataset.filter(lambda cls: truths, ".cls")
    assert len(dataset[truths.filled(False)]) == 8
    assert len(dataset[np.ma.array(np.arange(10))]) == 10
