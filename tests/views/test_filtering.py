"""`filter`, `sort_by`, `split`, `map` and `with_options`: checked against what Python would do."""

import io
import json
import operator as op
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import wids
from wids.codecs.formats import encode_field
from wids.views.splitting import by_exact_share

COUNT = 60
OPERATIONS = {"==": op.eq, "!=": op.ne, "<": op.lt, "<=": op.le, ">": op.gt, ">=": op.ge}
RECORDS = [
    {"w": 100 + 7 * n % 40, "name": f"n{n % 5}", "tags": ["a"] * (n % 3)} for n in range(COUNT)
]
KEYS = [f"{'cat' if n % 2 else 'dog'}/{n:03d}" for n in range(COUNT)]


@pytest.fixture
def dataset(make_shard: Callable[..., Path]) -> wids.ShardListDataset:
    """Write sixty samples in four shards, every tenth without a class."""
    rows = []
    for shard in range(4):
        samples = []
        for n in range(15 * shard, 15 * shard + 15):
            sample = {"__key__": KEYS[n], ".json": json.dumps(RECORDS[n]), ".txt": f"text {n}"}
            samples.append(sample | ({".cls": str(n % 4)} if n % 10 else {}))
        rows.append((str(make_shard(f"{shard}.tar", samples)), 15))
    names = ["ant", "bee", "cow", "doe"]
    return wids.ShardListDataset(rows, options={"classes": names}, cache_dir=None)


def numbers(view: Any) -> list[int]:
    return [int(sample["__key__"][-3:]) for sample in view]


FILTERS: list[tuple[str, Callable[[int], bool]]] = [
    (".cls == 2", lambda n: n % 4 == 2 and n % 10 != 0),
    (".cls in (cow, ant)", lambda n: n % 2 == 0 and n % 10 != 0),
    (".cls != bee", lambda n: n % 4 != 1 or n % 10 == 0),
    (".json:w >= 120", lambda n: RECORDS[n]["w"] >= 120),
    (".json:name == n3 and not .json:w < 110", lambda n: n % 5 == 3 and RECORDS[n]["w"] >= 110),
    (".txt contains '1' or key contains cat", lambda n: "1" in str(n) or n % 2 == 1),
    (".json:tags contains a and (.cls == 1 or .cls == 3)", lambda n: n % 3 > 0 and n % 2 == 1),
    ("key == 'dog/004'", lambda n: n == 4),
    ("not (.cls == 2 or .json:w > 100)", lambda n: RECORDS[n]["w"] == 100 and n % 4 != 2),
]


@pytest.mark.parametrize(("text", "holds"), FILTERS)
def test_a_filter_means_what_it_says(
    dataset: wids.ShardListDataset, text: str, holds: Callable[[int], bool]
) -> None:
    """Of a dataset, a view, a concatenation and a join it chooses the samples that Python would."""
    expected = [n for n in range(COUNT) if holds(n)]
    assert numbers(dataset.filter(text)) == expected
    backwards = dataset[::-1]
    assert numbers(backwards.filter(text)) == expected[::-1]
    both = dataset[:20] + dataset[20:]
    assert numbers(both.filter(text)) == expected
    if ".json" not in text and ".txt" not in text:
        other = dataset.with_options(fields=[".txt", ".json"])
        assert numbers(dataset.with_options(fields=[".cls"]).join(other).filter(text)) == expected


def test_a_misspelt_class_is_warned_of(dataset: wids.ShardListDataset) -> None:
    """A name that no class has chooses nothing, which is said; numbers in quotes are values."""
    for text in (".cls == owl", "not .cls != owl", ".cls in (2, cow, owl)"):
        with pytest.warns(wids.WidsWarning, match="no class has the name 'owl'.*ant, bee"):
            dataset.filter(text)
    assert numbers(dataset.filter(".cls == '2'")) == numbers(dataset.filter(".cls == 2"))
    assert not len(dataset.filter(".txt == owl"))


def test_a_filter_may_be_a_function_of_columns(dataset: wids.ShardListDataset) -> None:
    """It gets arrays, one for each column named, and returns truth values."""
    view = dataset.filter(
        lambda width, name: (width > 110) & np.array([n == "n1" for n in name]),
        ".json:w",
        ".json:name",
    )
    assert numbers(view) == [n for n in range(COUNT) if RECORDS[n]["w"] > 110 and n % 5 == 1]
    for wrong in (lambda width: width, lambda width: [True]):
        with pytest.raises(ValueError, match="60 samples"):
            dataset.filter(wrong, ".json:w")
    with pytest.raises(ValueError, match="a column such as"):
        dataset.filter(lambda width: width > 1, "json:w")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (".clss == 1", r"'\.clss'; the first sample has \.json, \.txt"),
        (".json:width > 3", r"'width' in field '\.json'; .* name, tags, w"),
        (".json:name.first == x", r"'name\.first'.* name, tags, w"),
        (".none contains x or key == y", r"'\.none'"),
        (".cls ==", "cannot read"),
        (".txt in ['a', 'b']", r"cannot read .*; a list is in round brackets: in \(cat, dog\)"),
        (".json.w == 3", r"no sample has a field '.json.w'.*colon before it: '.json:w'"),
        (".txt == tabby cat", r"quotes around what has blanks \(.cls == 'tabby cat'.* read 'cat'"),
        (".'a b' > 3", r"'\.a b' > 3\); cannot read"),
    ],
)
def test_what_no_sample_has_is_an_error(
    dataset: wids.ShardListDataset, text: str, named: str
) -> None:
    """A slip in a name does not give an empty view; the message names what there is."""
    with pytest.raises(ValueError, match=named):
        dataset.filter(text)
    assert len(dataset[:0].filter(".clss == 1")) == 0


def test_damaged_fields_fulfil_no_filter(make_shard: Callable[..., Path]) -> None:
    """A field that is no JSON spoils no other sample."""
    samples = [{"__key__": str(n), ".json": "{" if n == 1 else f'{{"w": {n}}}'} for n in range(3)]
    dataset = wids.ShardListDataset([str(make_shard("d.tar", samples))])
    assert [
        sample["__key__"]
        for sample in dataset.filter(".json:w >= 1").with_options(transformations="bytes")
    ] == ["2"]


def test_a_damaged_sample_spoils_no_other(make_shard: Callable[..., Path]) -> None:
    """Columns of views without it, and filters on headers, do not stumble over its fields."""
    stream = io.BytesIO()
    Image.new("RGB", (7, 5)).save(stream, "PNG")
    samples = [
        {"__key__": f"k{n}", ".cls": "x" if n == 2 else str(n), ".png": stream.getvalue()}
        for n in range(6)
    ]
    samples[4][".png"] = "no picture"
    dataset = wids.ShardListDataset([str(make_shard("d.tar", samples))])
    assert list(dataset.filter(".png:width == 7").keys) == ["k0", "k1", "k2", "k3", "k5"]
    assert dataset.exclude(["k2"]).column(".cls").tolist() == [0, 1, 3, 4, 5]
    assert dataset[3:].column(".cls").tolist() == [3, 4, 5]
    assert dataset[[5, 0]].column(".png", "width").tolist() == [7, 7]
    with pytest.raises(wids.DecodeError, match="'k2'"):
        dataset[1:4].column(".cls")
    with pytest.raises(ValueError, match="the first sample has height, width"):
        dataset.filter(".png:size > 4")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (".json:w > .5", 59), (".json:w > +0.5", 59), (".json:w >= 5.", 55), (".json:w < 1e1", 10),
        (".json:w in (1., 2)", 2), (".json:w == -0", 1),
    ],
)  # fmt: skip
def test_numbers_are_read_as_they_are_written(
    make_shard: Callable[..., Path], text: str, expected: int
) -> None:
    """A number may begin or end with its point, and have a sign."""
    samples = [{"__key__": f"k{n}", ".json": f'{{"w": {n}}}'} for n in range(60)]
    dataset = wids.ShardListDataset([str(make_shard("n.tar", samples))])
    assert len(dataset.filter(text)) == expected
    with pytest.warns(wids.WidsWarning, match="'10%' is a text, and .json:w has none"):
        assert not len(dataset.filter(".json:w > 10%"))


def test_values_that_are_all_null_are_known(make_shard: Callable[..., Path]) -> None:
    """A view whose samples all have null for a value is no error, but a misspelt name is."""
    values = ("null", "null", "3")
    samples = [{"__key__": f"k{n}", ".json": f'{{"w": {each}}}'} for n, each in enumerate(values)]
    view = wids.ShardListDataset([str(make_shard("w.tar", samples))])[:2]
    assert (len(view.filter(".json:w != 3")), len(view.filter(".json:w > 3"))) == (2, 0)
    with pytest.raises(ValueError, match="no sample has a value 'v'"):
        view.filter(".json:v > 3")


def test_samples_are_sorted_by_a_column(dataset: wids.ShardListDataset) -> None:
    """Equal values keep their order, in both directions."""
    widths = [record["w"] for record in RECORDS]
    ascending = sorted(range(COUNT), key=widths.__getitem__)
    assert numbers(dataset.sort_by(".json:w")) == ascending
    descending = sorted(range(COUNT), key=lambda n: -widths[n])
    assert numbers(dataset.sort_by(".json:w", descending=True)) == descending
    assert numbers(dataset.sort_by("key")) == sorted(range(COUNT), key=KEYS.__getitem__)
    by_name = sorted(range(COUNT), key=lambda n: RECORDS[n]["name"])
    assert numbers(dataset.sort_by(".json:name")) == by_name
    with pytest.raises(ValueError, match=r"sort_by: column: .* in '\.json', got dict.*"):
        dataset.sort_by(".json")


def test_parts_of_a_split_are_all_of_it(dataset: wids.ShardListDataset) -> None:
    """Each sample is in one part, which depends on its key and the seed alone."""
    parts = dataset.split(train=0.7, val=0.2, test=0.1, seed=3)
    found = {name: set(numbers(view)) for name, view in parts.items()}
    assert sorted(n for each in found.values() for n in each) == list(range(COUNT))
    assert 30 < len(found["train"]) < 54
    others = dataset[::-2].split(train=7, val=2, test=1, seed=3)
    assert all(set(numbers(others[name])) <= found[name] for name in found)
    again = dataset.split(train=0.7, val=0.2, test=0.1, seed=4)
    assert set(numbers(again["train"])) != found["train"]
    for wrong in ({}, {"train": 1}, {"train": 1, "val": 0}, {"train": 1, "val": -1}):
        with pytest.raises(ValueError, match="at least two parts"):
            dataset.split(**wrong)


def test_a_split_may_have_exact_shares(dataset: wids.ShardListDataset) -> None:
    """By sample the counts are exact; stratified, they are for every class."""
    for parts in (
        dataset.split(by="sample", train=0.75, val=0.25),
        dataset.split(stratify=".json:name", train=0.75, val=0.25),
    ):
        assert (len(parts["train"]), len(parts["val"])) == (45, 15)
    names = [RECORDS[n]["name"] for n in numbers(parts["val"])]
    assert sorted(names) == sorted(f"n{n % 5}" for n in range(15))


@pytest.mark.parametrize(
    "shares", [{"a": 0.8, "b": 0.1, "c": 0.1}, {"a": 0.95, "b": 0.05}, {"a": 1, "b": 1, "c": 1}]
)
@pytest.mark.parametrize("size", [1, 3, 5])
def test_shares_of_small_classes_add_up(shares: dict[str, float], size: int) -> None:
    """Each class is rounded by less than one sample, and their sum has the shares."""
    classes = np.repeat(np.arange(100), size)
    numbers = by_exact_share(np.random.default_rng(1).permutation(100 * size), classes, shares)
    total = sum(shares.values())
    for part, share in enumerate(shares.values()):
        assert abs((numbers == part).sum() - 100 * size * share / total) <= 1
        of_each = np.bincount(classes[numbers == part], minlength=100)
        assert (abs(of_each - size * share / total) < 1).all()


def test_groups_stay_together(dataset: wids.ShardListDataset) -> None:
    """Samples of one value of a column, or of one given group, are in one part."""
    for by in (".json:name", [n // 5 for n in range(COUNT)]):
        parts = dataset.split(by=by, one=0.5, other=0.5, seed=1)
        groups = {n: RECORDS[n]["name"] if isinstance(by, str) else n // 5 for n in range(COUNT)}
        seen = [{groups[n] for n in numbers(view)} for view in parts.values()]
        assert not seen[0] & seen[1]
        assert seen[0]
        assert seen[1]
    with pytest.raises(ValueError, match="60 samples, got 1"):
        dataset.split(by=["x"], one=1, other=1)
    with pytest.raises(ValueError, match="either groups"):
        dataset.split(by=".json:name", stratify=".json:w", one=1, other=1)


def labelled(sample: Any) -> Any:
    return sample["__key__"], sample["__index__"], sample.get(".cls")


def broken(sample: Any) -> Any:
    raise RuntimeError("no")


def test_a_function_makes_the_samples(dataset: wids.ShardListDataset) -> None:
    """One by one and in batches the samples are its results; fields stay what is stored."""
    mapped = dataset[5:].map(labelled)
    assert len(mapped) == COUNT - 5
    assert mapped[1] == (KEYS[6], 1, 2)
    assert mapped.__getitems__([3, 1]) == [mapped[3], mapped[1]]
    assert list(mapped)[-1] == mapped[-1]
    assert mapped[[2, 1]][0] == (KEYS[7], 0, 3)
    assert list(mapped.gather([1], ".txt")) == ["text 6"]
    assert list(mapped.column(".json", "w"))[:2] == [RECORDS[5]["w"], RECORDS[6]["w"]]
    assert mapped.batch_kind == "samples"
    assert mapped.with_options(fields=[".txt"])[1] == (KEYS[6], 1, None)
    assert "labelled" in repr(mapped)
    with pytest.raises(RuntimeError) as raised:
        dataset[5:].map(broken)[2]
    assert f"sample 2, key {KEYS[7]!r}" in raised.value.__notes__[0]


def test_one_dataset_is_read_in_several_ways(dataset: wids.ShardListDataset) -> None:
    """`with_options` changes what is named and leaves the rest, of a dataset and of views."""
    raw = dataset.with_options(transformations="bytes")
    assert raw[1][".cls"] == b"1"
    assert dataset[1][".cls"] == 1
    texts = raw.with_options(fields=[".txt"])
    assert {name for name in texts[1] if name[0] == "."} == {".txt"}
    assert texts[1][".txt"] == b"text 1"
    assert {name for name in texts.with_options(fields=None)[1] if name[0] == "."} > {".txt"}
    shouted = dataset.with_options(decoders={".txt": lambda data: bytes(data).decode().upper()})
    assert shouted[3][".txt"] == "TEXT 3"
    view = (dataset[3:5] + dataset)[::2].with_options(transformations="bytes", fields=[".txt"])
    assert [sample[".txt"] for sample in view[:2]] == [b"text 3", b"text 0"]
    with pytest.raises(ValueError, match="decodes none"):
        raw.with_options(on_error="collect")
    before = dataset.get_stats()[0]
    assert raw[1]["__key__"] == dataset[1]["__key__"]
    assert dataset.get_stats()[0] == before + 2  # the same open shards
    mixed = wids.Mixture([dataset, dataset[:9]], [3, 1], 40).with_options(transformations="bytes")
    assert (mixed.weights, mixed.num_samples) == ([3, 1], 40)
    assert mixed[0][".txt"] == b"text 0"


@pytest.mark.parametrize("extension", [".json.gz", ".msgpack", ".cbor", ".cbor.gz"])
def test_values_of_every_kind_of_document_are_compared(
    make_shard: Callable[..., Path], extension: str
) -> None:
    """Documents of any format, packed or not, are compared by value, of mixed kinds too."""
    there = [5.5, 2, "a", None, "3.5"]
    rows = [
        {"__key__": f"k{n}", extension: encode_field(extension, {"n": value})}
        for n, value in enumerate(there)
    ]
    dataset = wids.ShardListDataset([(str(make_shard("a.tar", rows)), len(rows))])
    for text, expected in (
        (f"{extension}:n > 3", ["k0", "k4"]),
        (f"{extension}:n == a", ["k2"]),
        (f"{extension}:n == null", ["k3"]),
        (f"{extension}:n != 2", ["k0", "k2", "k3", "k4"]),
    ):
        assert list(dataset.filter(text).keys) == expected, text
    with pytest.raises(ValueError, match="no sample has a value 'm'.* the first sample has n"):
        dataset.filter(f"{extension}:m == 3")


def test_packed_texts_are_compared_as_texts(make_shard: Callable[..., Path]) -> None:
    """A filter looks into a packed text, and one that is damaged fulfils `!=` alone."""
    rows = [
        {"__key__": f"k{n}", ".txt.gz": encode_field(".txt.gz", f"dog {n}\n")} for n in range(3)
    ]
    rows.append({"__key__": "k3", ".txt.gz": b"damaged"})
    dataset = wids.ShardListDataset([(str(make_shard("a.tar", rows)), len(rows))])
    assert list(dataset.filter(".txt.gz contains 'dog 1'").keys) == ["k1"]
    assert list(dataset.filter(".txt.gz == 'dog 2\n'").keys) == ["k2"]
    assert list(dataset.filter(".txt.gz != 'dog 2\n'").keys) == ["k0", "k1", "k3"]


LARGE = [2**53 - 1, 2**53, 2**53 + 1, 2**60 + 1, -(2**53) - 1]


@pytest.mark.parametrize("more", [[], [None], [0.5], [2**64 + 1], ["floats"]], ids=str)
@pytest.mark.parametrize("value", ["9007199254740992.0", "9007199254740993", "1.2e+16", "-9.1e15"])
def test_large_numbers_are_compared_exactly(
    make_shard: Callable[..., Path], value: str, more: list[Any]
) -> None:
    """Integers beyond those that floats hold compare by value, as Python compares them."""
    there = [float(number) for number in LARGE] if more == ["floats"] else [*LARGE, *more]
    rows = [
        {"__key__": f"k{n}", ".json": json.dumps({"x": number} if number is not None else {})}
        for n, number in enumerate(there)
    ]
    dataset = wids.ShardListDataset([(str(make_shard("a.tar", rows)), len(rows))])
    typed = json.loads(value)
    for operator, compare in OPERATIONS.items():
        expected = [
            f"k{n}"
            for n, number in enumerate(there)
            if (operator == "!=" if number is None else compare(number, typed))
        ]
        assert list(dataset.filter(f".json:x {operator} {value}").keys) == expected, operator
    equal = [f"k{n}" for n, number in enumerate(there) if number == typed]
    assert list(dataset.filter(f".json:x in (7, {value})").keys) == equal


def test_texts_are_compared_as_samples_have_them(make_shard: Callable[..., Path]) -> None:
    """Blanks at the ends count, as in columns and samples; a warning says if they alone differ."""
    texts = ["cat\n", " cat", "dog"]
    samples = [{"__key__": f"k{n}", ".txt": each} for n, each in enumerate(texts)]
    dataset = wids.ShardListDataset([str(make_shard("t.tar", samples))])
    for index, text in enumerate(texts):
        assert dataset[index][".txt"] == dataset.column(".txt")[index] == text
        assert dataset.filter(f".txt == '{text}'").keys[0] == dataset.keys[index]
    assert len(dataset.filter(".txt contains cat")) == 2
    for condition, count in ((".txt == cat", 0), (".txt in (cat, owl)", 0), (".txt != cat", 3)):
        with pytest.warns(wids.WidsWarning, match=r"no \.txt is the text 'cat', but .* ' cat'"):
            assert len(dataset.filter(condition)) == count
