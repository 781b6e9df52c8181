"""Columns with gaps: samples whose field or value is missing, null or NaN, against plain Python."""

import json
import math
from typing import Any

import numpy as np
import pytest
from helpers.shards import MakeShard

import wids

pytestmark = pytest.mark.filterwarnings("ignore:catalogue:wids.WidsWarning")
LOST = object()
SCORES: list[Any] = [0.5, None, LOST, 0.9, math.nan, 0.1, None, 0.5]
INDEXES = range(len(SCORES))
# What Python's own reader finds; a missing value is None like null.
FOUND = [None if score is LOST else score for score in SCORES]
KNOWN = [n for n in INDEXES if FOUND[n] is not None and FOUND[n] == FOUND[n]]
GAPS = [n for n in INDEXES if n not in KNOWN]


@pytest.fixture
def dataset(make_shard: MakeShard) -> wids.ShardListDataset:
    samples = []
    for n in INDEXES:
        record = {"i": n, "tags": [f"t{n % 3}", n]}
        record |= {} if SCORES[n] is LOST else {"score": SCORES[n]}
        sample = {
            "__key__": f"k{n}",
            ".json": json.dumps(record),
            ".bad.json": '{"a": 1}' if n == 7 else "{",
        }
        samples.append(sample | ({".txt": f"x{n}"} if n % 2 else {}))
    rows = [
        (str(make_shard(f"{n}.tar", samples[n : n + 3])), len(samples[n : n + 3]))
        for n in (0, 3, 6)
    ]
    return wids.ShardListDataset(rows, cache_dir=None)


def numbers(view: Any) -> list[int]:
    return [int(key[1:]) for key in view.keys]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("json.score is null", GAPS),
        ("json.score is not null", KNOWN),
        ("json.score is null or json.score = 0.9", sorted([*GAPS, FOUND.index(0.9)])),
        ("json.score is distinct from 0.5", [n for n in INDEXES if FOUND[n] != 0.5]),
        ("json.score != 0.5", [n for n in KNOWN if FOUND[n] != 0.5]),
        ("json.score <= 0.5", [n for n in KNOWN if FOUND[n] <= 0.5]),
        ("not json.score <= 0.5", [n for n in KNOWN if FOUND[n] > 0.5]),
        ("txt is null", [0, 2, 4, 6]),
        ("json.score is not null and txt is not null", [3, 5, 7]),
        ('sizes."bad.json" > 0 and "bad.json" is null', list(range(7))),
    ],
)  # fmt: skip
def test_null_stands_for_what_is_missing(
    dataset: wids.ShardListDataset, text: str, expected: list[int]
) -> None:
    """A missing field or value is null, like a NaN of JSON and a damaged document."""
    assert numbers(dataset.filter(text)) == expected
    assert numbers(dataset[::-1].filter(text)) == expected[::-1]


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("json.score", FOUND),
        ("txt", [f"x{n}" if n % 2 else None for n in INDEXES]),
        ("json.tags[1]", [f"t{n % 3}" for n in INDEXES]),
        ("json.i", list(INDEXES)),
        ("key", [f"k{n}" for n in INDEXES]),
    ],
)
def test_gaps_are_sorted_last(
    dataset: wids.ShardListDataset, column: str, values: list[Any], descending: bool
) -> None:
    """In both directions, in storage order; equal values keep their order, too."""
    known = [n for n in INDEXES if values[n] is not None and values[n] == values[n]]
    order = sorted(known, key=values.__getitem__, reverse=descending)
    rest = [n for n in INDEXES if n not in known]
    assert numbers(dataset.order_by(f"{column} desc" if descending else column)) == order + rest


def test_gaps_are_a_class_and_no_group(dataset: wids.ShardListDataset) -> None:
    """Stratified, samples without a value are shared out like a class; groups they have none."""
    parts = dataset.split(stratify=".txt", a=1, b=1)
    assert {name: sum(n % 2 == 0 for n in numbers(part)) for name, part in parts.items()} == {
        "a": 2,
        "b": 2,
    }
    with pytest.raises(ValueError, match=r"3 of 8 samples .*filter\('json.score is not null'\)"):
        dataset.split(by=".json:score", a=1, b=1)
    scored = dataset.filter("json.score is not null")
    assert sum(map(len, scored.split(by=".json:score", a=1, b=1).values())) == len(KNOWN)
    column = dataset.column(".json:score", fill="none")
    parts = dataset.split(by=column, a=1, b=1)
    assert [n for n in INDEXES if FOUND[n] is None] in (
        [n for n in numbers(part) if FOUND[n] is None] for part in parts.values()
    )
    assert sum(map(len, dataset.split(by=np.arange(8), a=1, b=1).values())) == 8


def test_gaps_have_no_key(dataset: wids.ShardListDataset) -> None:
    """A column in which some samples have no value chooses, and leaves out, the others."""
    assert numbers(dataset.select_keys(["x7", "x3"], column=".txt")) == [7, 3]
    assert numbers(dataset.exclude(["x7", "x3"], column=".txt")) == [0, 1, 2, 4, 5, 6]


def test_a_function_is_told_what_stands_for_gaps(dataset: wids.ShardListDataset) -> None:
    """`fill` goes to the columns of a function; a filter in a text has none."""
    over = dataset.filter(lambda score: score > 0.3, ".json:score", fill=math.nan)
    assert numbers(over) == [n for n in KNOWN if FOUND[n] > 0.3]
    with pytest.raises(wids.DecodeError, match="fill="):
        dataset.filter(lambda score: score > 0.3, ".json:score")
    with pytest.raises(ValueError, match="fill"):
        dataset.filter("json.score > 0.3", fill=0)


def test_columns_are_named_as_in_filters(dataset: wids.ShardListDataset) -> None:
    """`column` takes a name in one text, of datasets and of views; `key` is a column."""
    for samples in (dataset, dataset[2:6], dataset[:3] + dataset[3:]):
        assert list(samples.column(".json:i")) == list(samples.column(".json", "i"))
        assert list(samples.column(".json:tags.1")) == list(samples.column(".json:i"))
        assert samples.column("key") == list(samples.keys)
    by_key = dataset.filter(lambda key: key > "k5", "key")
    assert numbers(by_key) == [6, 7]
    both = dataset.filter(lambda key, txt: (key == "k3") | (txt == "x5"), "key", ".txt", fill="")
    assert numbers(both) == [3, 5]


def test_values_that_are_all_null_are_known(dataset: wids.ShardListDataset) -> None:
    """A view whose samples have null alone has the value."""
    nulls = dataset[[1, 6]]
    assert numbers(nulls.filter("json.score is distinct from 0.5")) == [1, 6]
    assert numbers(nulls.order_by("json.score desc")) == [1, 6]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            ".json:scroe",
            "no sample has a value 'scroe' in field '.json'; the first sample has i, sc",
        ),
        (".jsn:score", "no sample has a field '.jsn'; the first sample has .bad.json, .json"),
    ],
)
@pytest.mark.parametrize("fill", [0, math.nan, "none", [1]])
def test_a_column_of_nothing_but_fill_is_warned_of(
    dataset: wids.ShardListDataset, name: str, expected: str, fill: Any
) -> None:
    """A column that no sample has is misspelt: one warning says what the first sample has."""
    for samples in (dataset, dataset[::-1], dataset + dataset):
        shown = repr(fill).replace("[", r"\[")
        with pytest.warns(wids.WidsWarning, match=f"{expected}.*are the fill, {shown}") as caught:
            assert len(samples.column(name, fill=fill)) == len(samples)
        assert len(caught) == 1


def test_a_column_whose_values_equal_the_fill_is_not_warned_of(
    make_shard: MakeShard,
) -> None:
    """Values may be those of the fill, or null, in all samples."""
    shard = make_shard("0.tar", [{"__key__": "a", ".cls": "0", ".json": '{"n": null, "t": "x"}'}])
    dataset = wids.ShardListDataset([(str(shard), 1)])
    for samples in (dataset, dataset[::-1], dataset.join({"key": ["a"], "score": [None]})):
        assert list(samples.column(".cls", fill=0)) == [0]
        assert list(samples.column(".json:n", fill=0)) == [0]
        assert list(samples.column(".json:t", fill="x")) == ["x"]
    assert list(samples.column(".score", fill=0)) == [0]
