"""Facets: counts of values over shards, and of what a filter leaves."""

import json
import math
import operator as op
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.browsing import browsing
from helpers.pictures import draw, save
from helpers.shards import write_shard
from helpers.waiting import when_finished
from hypothesis import given, settings
from hypothesis import strategies as st

import wids
from wids.base.arrayfile import read_arrays, write_arrays
from wids.browse.fieldreader import FieldReader
from wids.browse.handlers import ApiHandlers
from wids.browse.joinedfields import JoinedFields
from wids.browse.tallies import NumberTally
from wids.reading.shardlist import ShardList
from wids.views.filtering import matching
from wids.views.filterlanguage import in_quotes
from wids.views.opening import shards_and_rows


def facets_of(server: Any, **query: str) -> dict[str, Any]:
    found = server.ask_until_finished("facets", **query)
    return {facet["name"]: facet for facet in found["facets"]} | {"": found}


@pytest.fixture
def mixed(tmp_path: Path) -> list[str]:
    """Write three shards of 20 samples; some lack a field, some fields are damaged."""
    paths = []
    for shard in range(3):
        samples = []
        for place in range(20):
            number = 20 * shard + place
            sample = {"__key__": f"k{number}", ".cls": str(number % 3), ".txt": "\u00e9" * number}
            sample[".jpg"] = save(draw(8 + number, 9), "JPEG") if number != 7 else b"no picture"
            document = {"n": number, "name": "ab"[number % 2], "deep": {"x": number / 7}}
            sample[".json"] = json.dumps(document) if number % 10 else "{"
            if number == 30:
                del sample[".cls"]
            samples.append(sample)
        paths.append(str(write_shard(tmp_path / f"{shard}.tar", samples)))
    return paths


def test_facets_count_what_a_filter_leaves(mixed: list[str]) -> None:
    """Classes, headers, JSON and lengths are counted in all samples and in those of a filter."""
    with browsing(mixed, class_names={1: "one"}) as server:
        every = facets_of(server)
        classes = sorted(map(tuple, every[".cls"]["values"]))
        assert classes == [(0, 19, None), (1, 20, "one"), (2, 20, None)]
        assert every[".cls"]["missing"] == 1
        width = every[".jpg:width"]
        assert (width["count"], width["missing"], width["least"], width["most"]) == (59, 1, 8, 67)
        assert (every[".json:n"]["count"], every[".json:n"]["missing"]) == (54, 6)
        assert dict(row[:2] for row in every[".json:name"]["values"]) == {"a": 24, "b": 30}
        assert every[".json:deep.x"]["most"] == pytest.approx(59 / 7)
        assert every[".txt:length"]["most"] == 59
        assert every[""]["by_shard"] == {"step": 1, "counts": [20, 20, 20]}
        some = facets_of(server, where=".cls == one and .jpg:width < 48", q="k1")
        numbers = [n for n in range(40) if n % 3 == 1 and n != 7 and f"k{n}".startswith("k1")]
        assert some[""]["samples"] == len(numbers)
        assert some[".json:n"]["count"] == len([n for n in numbers if n % 10])
        assert some[""]["by_shard"]["counts"] == [len([n for n in numbers if n < 20]), 0, 0]
        assert facets_of(server, shard="1-2")[".txt:length"]["least"] == 20
        assert server.ask("page", shard="1-2", count=1)["tiles"][0]["key"] == "k20"
        assert server.ask("page", shard="2", order="shuffled")["total"] == 20
        found = server.ask_until_finished("page", where=".txt:length == 3 and .cls in (zero, 0)")
        assert [tile["key"] for tile in found["tiles"]] == ["k3"]
        assert "shard: expected" in server.get("api/page", shard="2-3").json()["error"]


NUMBERS = st.lists(
    st.one_of(st.integers(-50, 900), st.floats(allow_nan=True, allow_infinity=True)), max_size=40
)


@given(st.lists(NUMBERS, max_size=4))
def test_no_number_is_lost_in_a_histogram(parts: list[list[float]]) -> None:
    """Every number is in one bin, whatever the order and range of the numbers."""
    tally = NumberTally()
    for part in parts:
        tally.add(np.array(part, np.float64))
    numbers = [each for part in parts for each in part if not math.isnan(each)]
    told = tally.as_dict()
    assert told["count"] == len(numbers)
    assert told["missing"] == sum(map(len, parts)) - len(numbers)
    if numbers:
        assert sum(told["bins"]) == len(numbers)
        assert (float(told["least"]), float(told["most"])) == (min(numbers), max(numbers))
        assert len(told["bins"]) <= 33
        assert math.isfinite(told["low"])


def test_bins_are_those_of_numpy() -> None:
    """Numbers that are spread evenly are counted as NumPy counts them."""
    numbers = np.random.default_rng(0).uniform(0, 1, 5000)
    tally = NumberTally()
    for part in np.split(numbers, 5):
        tally.add(part)
    told = tally.as_dict()
    edges = told["low"] + told["width"] * np.arange(len(told["bins"]) + 1)
    assert told["bins"] == np.histogram(numbers, edges)[0].tolist()


OPERATIONS = {"==": op.eq, "!=": op.ne, "<": op.lt, "<=": op.le, ">": op.gt, ">=": op.ge}


def edges_of(told: dict[str, Any]) -> list[float]:
    """Return the edges of bins as the page writes them into a filter."""
    low, width = told["low"], told["width"]
    places = range(round(low / width), round(low / width) + len(told["bins"]) + 1)
    return [float(f"{place * width:.15g}") for place in places]


DECIMALS = st.lists(
    st.one_of(
        st.integers(0, 600).map(lambda n: n / 100),
        st.integers(10**15, 10**15 + 700).map(float),
        st.integers(-40, 90).map(float),
        st.floats(-5, 5),
    ),
    min_size=1,
    max_size=60,
)


@given(DECIMALS, st.integers(1, 5), st.randoms(use_true_random=False))
def test_bins_hold_what_a_filter_by_their_edges_finds(
    numbers: list[float], every: int, chance: Any
) -> None:
    """All numbers, and some of them in any order, are counted between the edges that are shown."""
    everything, some = NumberTally(), NumberTally()
    chosen = numbers[::every]
    for tally, values in ((everything, numbers), (some, chosen)):
        mixed = chance.sample(values, len(values))
        for start in range(0, len(mixed), 20):
            tally.add(np.array(mixed[start : start + 20]))
    bins = everything.bins()
    for tally, values in ((everything, numbers), (some, chosen)):
        told = tally.as_dict(bins)
        edges = edges_of(told)
        edges[0], edges[-1] = -math.inf, math.inf  # the outermost hold what lies far beyond
        between = pairwise(edges)
        counts = [sum(low <= each < stop for each in values) for low, stop in between]
        assert told["bins"] == counts


def test_numbers_of_a_filter_are_counted_in_the_bins_of_all(tmp_path: Path) -> None:
    """The bars of the samples shown and of all samples stand for the same ranges."""
    many = [n % 70 for n in range(1200)]
    texts = [json.dumps({"many": each, "part": each / 10}) for each in many]
    samples = [{"__key__": f"k{n}", ".json": text} for n, text in enumerate(texts)]
    with browsing([str(write_shard(tmp_path / "a.tar", samples))]) as server:
        every, some = facets_of(server), facets_of(server, where=".json:many < 60")
        for name, scale in ((".json:many", 1), (".json:part", 10)):
            whole, now = every[name], some[name]
            assert (whole["low"], whole["width"]) == (now["low"], now["width"])
            edges = edges_of(whole)
            for tally, least in ((whole, 70), (now, 60)):
                values = [each / scale for each in many if each < least]
                assert tally["bins"] == [
                    sum(low <= each < high for each in values) for low, high in pairwise(edges)
                ]


def test_a_class_that_is_no_number_is_a_value_of_its_own(tmp_path: Path) -> None:
    """A word or a decimal among the numbers of classes is counted, found by a filter and sorted."""
    labels = [str(n % 3) for n in range(30)]
    labels[7], labels[11], labels[13] = "cat", "1.5", ""
    samples = [{"__key__": f"{n:02d}", ".cls": each, ".txt": ""} for n, each in enumerate(labels)]
    del samples[20][".cls"]
    with browsing([str(write_shard(tmp_path / "a.tar", samples))], class_names={1: "one"}) as found:
        facet = facets_of(found)[".cls"]
        assert [row for row in facet["values"] if row[1] == 1] == [["cat", 1, None], [1.5, 1, None]]
        assert facet["missing"] == 2
        for text, key in (("cat", "07"), ("1.5", "11")):
            page = found.ask_until_finished("page", where=f".cls == {text}")
            assert [tile["key"] for tile in page["tiles"]] == [key]
        keys = [tile["key"] for tile in found.ask("page", sort=".cls", count=60)["tiles"]]
        words = {"cat": 3.0, "": 4.0}
        places = [words[each] if each in words else float(each) for each in labels]
        places[20] = 4.0
        assert keys == [f"{n:02d}" for n in sorted(range(30), key=places.__getitem__)]


def in_javascript(number: float) -> str:
    """Return a float as JavaScript writes it: up to 1e21 without an exponent."""
    is_long = number.is_integer() and abs(number) < 1e21
    return str(int(Decimal(repr(number)))) if is_long else repr(number)


WHOLE = st.sampled_from([0, 5, 2**53, 2**60, 2**63, 2**64, 10**22, 10**25, 10**300, 10**400])
LARGE = st.builds(
    lambda n, more, sign: sign * (n + more), WHOLE, st.integers(-3, 3), st.sampled_from([1, -1])
)
ANY = LARGE | st.floats() | st.sampled_from([2.0**53, 2.0**60, 1e25, 1e300, math.inf, -math.inf])


@given(st.lists(ANY | st.none(), min_size=1, max_size=40), st.integers(1, 4))
@settings(max_examples=10)
def test_numbers_of_any_size_are_counted_sorted_and_filtered_as_in_python(
    tmp_path_factory: pytest.TempPathFactory, values: list[Any], every: int
) -> None:
    """Integers that floats round, and infinities, are where Python's comparisons put them."""
    folder = tmp_path_factory.mktemp("numbers")
    documents = [json.dumps({"v": each}) for each in values]
    there = [n for n, each in enumerate(values) if each is not None and str(each) != "nan"]
    with page_of(folder, {"json": documents}, joined=False) as handlers:
        dataset = wids.ShardListDataset([str(folder / f"{k}.tar") for k in range(2)][: len(values)])
        for reverse in (False, True):
            expected = sorted(there, key=values.__getitem__, reverse=reverse)
            expected += [n for n in range(len(values)) if n not in there]
            if there:
                assert found_in(handlers, sort="-.json:v" if reverse else ".json:v") == expected
        asked = [values[n] for n in there[::every]]
        for number, (symbol, compare) in zip(asked, cycle(OPERATIONS.items()), strict=False):
            where = f".json:v {symbol} {number!r}"
            known = [n for n in there if compare(values[n], number)]
            known += [n for n in range(len(values)) if symbol == "!=" and n not in there]
            assert found_in(handlers, where=where) == sorted(known), where
            assert list(dataset[matching(dataset, where)].keys) == [
                f"{n:03d}" for n in sorted(known)
            ], where
        facet = facet_in(handlers, ".json:v")
        assert facet.get("count", 0) == len(there)
        if not there:
            return
        ends = [values[expected[len(there) - 1]], values[expected[0]]]
        assert [
            int(each) if str(each).lstrip("-").isdigit() else float(each)
            for each in (facet["least"], facet["most"])
        ] == ends
        bins = facet["bins"]
        edges = [in_javascript(each) for each in edges_of(facet)]
        for place, (low, high) in enumerate(pairwise(edges)):
            where = [f".json:v >= {low}"] * (place > 0) + [f".json:v < {high}"] * (
                place + 1 < len(bins)
            )
            if where:
                assert len(found_in(handlers, where=" and ".join(where))) == bins[place], where
            if bins[place] and where:
                now = facet_in(handlers, ".json:v", where=" and ".join(where))
                assert [each for each in now["bins"] if each] == [bins[place]]


LABELS = ["3", "cat", " cat\n", "3.0", "dup", "5", "6", "line\nbreak", "7", "or", "9", "8", "it's"]
LABELS += ["2", "1", "1.5", "007", "odd", "", "true", "Infinity", "9007199254740993", "00"]
LABELS += ["9007199254740992", "1e400", "-4", "x" * 300]
NAMED = {
    3: "cat",
    5: "dup",
    6: "dup",
    7: "line\nbreak",
    8: "or",
    1: "2",
    10: "it's",
    9: "long" * 90,
}
NAMED |= {11: "true", 12: "-4", 2**53 + 1: "vast"}


def asked(facet: dict[str, Any], value: Any, name: str | None) -> str:
    """Return the filter that a click on an entry of a facet writes, as the page does."""
    shown = value if value in facet.get("by_number", []) or name is None else name
    return f"{facet['name']} == {in_quotes(shown) if isinstance(shown, str) else shown}"


@contextmanager
def page_of(folder: Path, columns: dict[str, list[Any]], *, joined: bool) -> Iterator[ApiHandlers]:
    """Open samples that have the values of columns as fields of shards, or from a joined table."""
    total = len(next(iter(columns.values())))
    rows: list[Any] = [{"__key__": f"{n:03d}", ".txt": ""} for n in range(total)]
    if not joined:
        for name, values in columns.items():
            for row, value in zip(rows, values, strict=True):
                row[f".{name}"] = value
    half = (total + 1) // 2
    parts = [rows[:half], rows[half:]] if total > 1 else [rows]
    paths = [str(write_shard(folder / f"{k}.tar", part)) for k, part in enumerate(parts)]
    samples: Any = ShardList(paths, transformations="memoryview", cache_dir=folder / "cache")
    chosen, beside = None, None
    if joined:
        table = {"key": [row["__key__"] for row in rows], **columns}
        beside = wids.ShardListDataset(paths, cache_dir=folder / "cache").join(table)
        samples, chosen = shards_and_rows(beside, leftmost=True)
    fields = None if beside is None else JoinedFields(beside, chosen)
    handlers = ApiHandlers(FieldReader(samples, joined=fields), "test", NAMED, None, chosen)
    try:
        yield handlers
    finally:
        handlers.close()


def facet_in(handlers: ApiHandlers, name: str, **query: str) -> dict[str, Any]:
    found = when_finished(lambda: handlers.facets(query))["facets"]
    return next((each for each in found if each["name"] == name), {"values": []})


def found_in(handlers: ApiHandlers, **query: str) -> list[int]:
    page = when_finished(lambda: handlers.page({"count": "240", **query}))
    return [tile["index"] for tile in page["tiles"]]


@pytest.mark.parametrize("joined", [False, True], ids=["field", "table"])
@given(st.lists(st.sampled_from(LABELS), min_size=1, max_size=30), st.booleans())
@settings(max_examples=10)
def test_each_class_is_one_entry(
    tmp_path_factory: pytest.TempPathFactory, joined: bool, labels: list[str], are_numbers: bool
) -> None:
    """Where samples have numbers, names or both, entries part the samples as filters do."""
    are_numbers = are_numbers or joined  # a table has no other classes
    labels = [each for each in labels if each.isdigit() or not are_numbers] or ["3"]
    folder = tmp_path_factory.mktemp("labels")
    with page_of(folder, {"cls": labels}, joined=joined) as handlers:
        facet = facet_in(handlers, ".cls")
        found: list[int] = []
        for value, count, name in facet["values"]:
            where = asked(facet, value, name)
            found += found_in(handlers, where=where)
            assert len(found_in(handlers, where=where)) == count, (where, labels, facet)
            assert facet_in(handlers, ".cls", where=where)["values"] == [[value, count, name]]
        empty = sum(not each or len(each) > 200 for each in labels)
        assert len(found) == len(set(found)) == len(labels) - empty


MIXED = [True, 1, 1.0, "true", "1", 0, False, " 1.0", "TRUE", "0", "word", "nan", 2.5, "2.50"]


def test_values_of_a_facet_are_those_that_a_filter_tells_apart(tmp_path: Path) -> None:
    """Of mixed types in JSON, and of texts alone, each value is counted as a filter finds it."""
    samples = [
        {
            "__key__": f"{n:03d}",
            ".json": json.dumps(
                {"mixed": MIXED[n % 14], "text": ["1", "1.0", "true", "TRUE", "007"][n % 5]}
            ),
        }
        for n in range(420)
    ]
    paths = [str(write_shard(tmp_path / f"{k}.tar", samples[k::3])) for k in range(3)]
    with browsing(paths) as server:
        facets = facets_of(server)
        counts = {json.dumps(value): n for value, n, _ in facets[".json:mixed"]["values"]}
        assert counts == {
            "1": 120, "true": 90, "0": 60, "2.5": 60, "false": 30, '"word"': 30, '"nan"': 30
        }  # fmt: skip
        assert len(facets[".json:text"]["values"]) == 5
        for name in (".json:mixed", ".json:text"):
            for value, count, _ in facets[name]["values"]:
                where = f"{name} == " + (f"'{value}'" if type(value) is str else json.dumps(value))
                page = server.ask_until_finished("page", where=where)
                assert (where, page["filtering"]["found"]) == (where, count)
                (now,) = facets_of(server, where=where)[name]["values"]
                assert now[:2] == [value, count]


def test_shards_that_cannot_be_read_keep_their_place(tmp_path: Path) -> None:
    """The counts by shard have one for each shard, 0 where it is damaged."""
    rows = []
    for shard in range(5):
        samples = [{"__key__": f"{shard}-{n}", ".cls": "1"} for n in range(10 + shard)]
        rows.append((str(write_shard(tmp_path / f"{shard}.tar", samples)), 10 + shard))
    for damaged in (0, 2):
        Path(rows[damaged][0]).write_bytes(b"no archive" * 1000)
    with browsing(rows) as server:
        found = server.ask_until_finished("facets")
        assert found["by_shard"] == {"step": 1, "counts": [0, 11, 0, 13, 14]}
        some = server.ask_until_finished("facets", shard="1-3")
        assert some["by_shard"] == {"step": 1, "counts": [11, 0, 13]}


def written(folder: Path, hue: str) -> Path:
    """Write a shard of ten documents with a hue and a number."""
    documents = [json.dumps({"hue": hue, "n": n, "is_new": n < 3}) for n in range(10)]
    samples = [{"__key__": f"k{n}", ".json": text} for n, text in enumerate(documents)]
    return write_shard(folder / "a.tar", samples)


def test_the_next_server_need_not_parse_the_documents(tmp_path: Path) -> None:
    """Values in JSON are kept in the cache folder, for facets and for filters."""
    path = written(tmp_path, "red")
    with browsing([str(path)]) as server:
        first = facets_of(server)
    # What is kept is given another word, so that its use can be seen.
    for file in (tmp_path / "wids-cache").rglob("*.column"):
        about, arrays = read_arrays(file)
        if about["kind"] == "values":
            about["words"] = [
                words and ["kept" if w == "red" else w for w in words] for words in about["words"]
            ]
            write_arrays(file, about, {name: array.copy() for name, array in arrays.items()})
    with browsing([str(path)]) as server:
        where = ".json:hue == kept and .json:is_new == true"
        assert server.ask_until_finished("page", where=where)["total"] == 3
        again = facets_of(server)
        assert again[".json:hue"]["values"] == [["kept", 10, None]]
        assert again[".json:n"] == first[".json:n"]
        assert again[".json:is_new"] == first[".json:is_new"]


def test_filters_of_words_are_those_of_samples(tmp_path: Path) -> None:
    """Words, numbers, truth values, null, lists and damaged documents compare as one by one."""
    values = [
        "cat",
        "dog",
        3,
        3.0,
        "3",
        True,
        "true",
        None,
        ["cat"],
        {"cat": 1},
        1 << 70,
        "c\u00e4t",
    ]
    texts = [json.dumps({"hue": value}) for value in ["cat"] * 40 + values] + ["{}", "{", "[]"]
    texts += [
        '{"hue": NaN}',
        '{"hue": "\\ud800"}',
        '{"hue": "dog", "hue": "cat"}',
        '{"hue": "c\u00e4t"}',
    ]
    texts += [
        b'\xef\xbb\xbf{"hue": "cat"}',
        '{"hue": "cat"}'.encode("utf-16-le"),
        b'{"hue": "c\xfft"}',
    ]
    samples = [{"__key__": f"k{n}", ".json": text} for n, text in enumerate(texts)]
    path = write_shard(tmp_path / "a.tar", samples)
    dataset = wids.ShardListDataset([str(path)], transformations="bytes")
    with browsing([str(path)]) as server:
        for value in ("cat", "3", "'3'", "true", "c\u00e4t", "nothing", "(cat, 3)"):
            for operator in ("in", "not in") if value[0] == "(" else ("==", "!=", "<", "contains"):
                where = f".json:hue {operator} {value}"
                found = server.ask_until_finished("page", where=where, count=100)
                expected = [sample["__key__"] for sample in dataset[matching(dataset, where)]]
                assert [tile["key"] for tile in found["tiles"]] == expected, where
