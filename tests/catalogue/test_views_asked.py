"""The table `samples` of views: each value is that of the sample, as reading gives it."""

import datetime as dt
import json
from decimal import Decimal

import numpy as np
import pytest
from helpers.pictures import plain
from helpers.shards import write_shard

import wids


def opened(path, samples, shards=2, **options):
    path.mkdir()
    for number in range(shards):
        part = samples[number::shards]
        write_shard(path / f"{path.name}{number}.tar", part)
    return wids.open(path, cache_dir=path.parent / "cache", **options)


@pytest.fixture(scope="module")
def sides(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sides")
    keys = [f"k{number:02}" for number in range(12)]
    base = [
        {"__key__": key, ".cls": str(n % 3), ".txt": f" text {n}\n", ".json": f'{{"n": {n}}}'}
        for n, key in enumerate(keys)
    ]
    # Only some have the field, others have it on the other side.
    uneven = [
        {"__key__": key, ".cap.txt": f"mine {n}", ".bin": "x"}
        if n % 2
        else {"__key__": key, ".bin": "y"}
        for n, key in enumerate(keys)
    ]
    other = [
        {"__key__": key, ".json": f'{{"n": "{n}", "m": [{n}]}}', ".note.txt": f"note {n}"}
        | ({} if n % 2 else {".cap.txt": f"theirs {n}"})
        for n, key in reversed(list(enumerate(keys)))
        if n != 5
    ]
    return {
        "base": opened(folder / "base", base),
        "uneven": opened(folder / "uneven", uneven),
        "other": opened(folder / "other", other, shards=3),
    }


TABLE = {
    "key": [f"k{number:02}" for number in range(11, 1, -1)],
    "when": list(np.arange("2024-01-01T12", "2024-01-11T12", 24, "M8[h]").astype("M8[s]").tolist()),
    "day": [dt.date(2024, 2, number + 1) for number in range(10)],
    "score": [None if number == 3 else number / 4 for number in range(10)],
    "price": [Decimal(number) / 10 for number in range(10)],
    "tags": [["a"] * number for number in range(10)],
    "meta.json": [f'{{"deep": {{"er": {number}}}}}' for number in range(10)],
    "index": list(range(10)),
    "caption": [f"it's {number}" for number in range(10)],
}


def views(sides):
    base, uneven, other = sides["base"], sides["uneven"], sides["other"]
    arrow = pytest.importorskip("pyarrow").table(TABLE)
    renamed = base.join(other, missing="fill", rename={".json": ".other.json"})
    replaced = base.join(other, missing="fill", replace=True)
    dropped = base.join(other, missing="drop", fields=[".note.txt"])
    yield "selection", base[[5, 1, 1, 11]]
    yield "renamed", renamed
    yield "replaced", replaced
    yield "dropped", dropped
    yield "both", uneven.join(other, missing="fill")
    yield "aligned", base.join(uneven)
    yield "table", base.join(arrow, missing="fill")
    yield (
        "table-replaces",
        base.join({"key": TABLE["key"], "txt": TABLE["caption"]}, missing="drop", replace=True),
    )
    yield "joined-twice", base.join(arrow, missing="fill").join(other, missing="drop", replace=True)
    yield "join-of-a-join", uneven.join(other.join(arrow, missing="fill"), missing="fill")[::-1]
    yield "concatenated", wids.concat([renamed[2:5], dropped, base, replaced[::2], renamed])
    yield "mixture", wids.Mixture([renamed, base.join(uneven)], weights=[1, 2])
    both = uneven.join(other, missing="fill").rename({".t.txt": ".note.txt;.cap.txt"})
    yield "alternatives", both
    yield (
        "renamed-before",
        base.rename({".json": ".txt", ".txt": ".json"}).join(
            other.rename({".u.txt": ".note.txt", ".u.json": ".json"}), missing="drop"
        ),
    )
    left = base.with_options(fields=[".cls"])
    yield "unread-fields", left.join(other, missing="drop")


NAMES = """
selection renamed replaced dropped both aligned table table-replaces joined-twice join-of-a-join
concatenated mixture unread-fields alternatives renamed-before
"""


@pytest.mark.parametrize("name", NAMES.split())
def test_each_value_is_that_of_the_sample(sides, name):
    view = dict(views(sides))[name]
    rows = view.sql("select * from samples order by index").arrow().to_pylist()
    assert [row["index"] for row in rows] == list(range(len(view)))
    for row, sample in zip(rows, view, strict=True):
        assert row["key"] == sample["__key__"]
        assert row["shard"] == sample["__shard__"]
        for extension, value in sample.items():
            column = {".index": "index_"}.get(extension, extension[1:])
            if extension[:2] != "__" and column != "bin":
                assert same(row[column], value), (extension, row, sample)
        for extension, size in view.field_sizes(row["index"]).items():
            assert row["sizes"].get(extension[1:]) in (None, size)
            assert row["sizes"].get(extension[1:]) or name.startswith(("table", "join"))


def same(found, value):
    """Return whether a value of SQL is that of a sample; a lacking name is null in SQL."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, dict):
        return all(same(found[name], each) for name, each in value.items())
    if isinstance(found, str) and not isinstance(value, str):  # values of several types
        return found == str(value)
    return found == value


def test_functions_are_applied_after_the_question(sides):
    mapped = sides["base"].map(len)
    assert [*mapped.sql("select count(*) from samples where cls = 1")] == [(4,)]


def test_items_of_lists_have_no_columns(sides):
    for samples in (wids.concat([["a", "b"]]), wids.concat([sides["base"], ["a"]])):
        with pytest.raises(TypeError, match=r"filter\(callable"):
            samples.sql("select 1")


def test_names_of_classes_are_those_of_each_part(tmp_path):
    found = []
    for number, names in enumerate((["cat", "dog"], ["dog", "owl"])):
        folder = tmp_path / str(number)
        folder.mkdir()
        write_shard(
            folder / "s.tar", [{"__key__": f"{number}{n}", ".cls": str(n)} for n in range(2)]
        )
        spec = {"wids_version": 1, "classes": names, "shardlist": [{"url": "s.tar", "nsamples": 2}]}
        (folder / "s.json").write_text(json.dumps(spec))
        found.append(wids.open(folder / "s.json", cache_dir=tmp_path / "cache"))
    both = wids.concat(found, classes="any")
    assert [*both.sql("select key from samples where cls_name = 'dog' order by index")] == [
        ("01",),
        ("10",),
    ]


def test_headers_and_names_of_joined_fields(sides, tmp_path):
    base = sides["base"]
    samples = [
        {"__key__": each["__key__"], ".png": plain(size=(n, 2))} for n, each in enumerate(base, 1)
    ]
    pictures = opened(tmp_path / "pictures", samples, shards=1)
    joined = base.join(pictures, rename={".png": ".mask.png"})
    assert [*joined.sql('select index from samples where "mask.png".width = 7')] == [(6,)]
