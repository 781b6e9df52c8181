"""The page of a join: fields of other shards and columns of tables beside those of the shards."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.shards import MakeShard
from helpers.specimens import npy
from helpers.waiting import when_finished

import wids
from wids.browse.columns import column_name
from wids.browse.fieldreader import FieldReader, JoinedFields
from wids.browse.handlers import ApiHandlers
from wids.browse.scans import NotReadyError
from wids.cli import main
from wids.views.opening import shards_and_rows

COUNT = 12
KEYS = [f"k{number:02d}" for number in range(COUNT)]


@pytest.fixture(autouse=True)
def _in_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def joined(make_shard: MakeShard) -> Any:
    """Join twelve samples with captions in another order, and with a table that lacks one."""
    left = [{"__key__": key, ".cls": str(n), ".txt": f"old {n}"} for n, key in enumerate(KEYS)]
    right = [{"__key__": key, ".cap.txt": f"the caption of {key}"} for key in reversed(KEYS)]
    rows = []
    for start in (0, 5):
        numbers = slice(start, 5 if start == 0 else COUNT)
        rows.append([str(make_shard(f"{side}{start}.tar", all_[numbers]))
                     for side, all_ in (("left", left), ("right", right))])  # fmt: skip
    datasets = [wids.ShardListDataset(list(urls)) for urls in zip(*rows, strict=True)]
    table = "key,width,note\n" + "".join(f"{KEYS[n]},{100 * n},n{n}\n" for n in range(1, COUNT))
    Path("t.csv").write_text(table)
    return datasets[0].join(datasets[1]).join("t.csv", missing="fill")


@contextmanager
def handlers_of(samples: Any) -> Iterator[ApiHandlers]:
    """Open a saved view as `wids browse` does, which no torch is loaded in."""
    samples.save("page.json")
    options = {"transformations": "memoryview", "remote": "range"}
    with pytest.MonkeyPatch.context() as patch:
        # Else each process that answers for the server would load it with the dataset.
        patch.delitem(sys.modules, "torch.utils.data", raising=False)
        opened = wids.open("page.json", **options)
    dataset, chosen = shards_and_rows(opened, leftmost=True)
    reader = FieldReader(dataset, joined=JoinedFields(opened, chosen))
    handlers = ApiHandlers(reader, "test", chosen)
    try:
        yield handlers
    finally:
        handlers.close()


def finished(handlers: ApiHandlers, text: str) -> list[str]:
    """Return the keys that a filter finds."""
    found = when_finished(lambda: handlers.page({"where": text}))
    return [tile["key"] for tile in found["tiles"]]


def test_points_of_samples_that_a_join_leaves_out_have_no_colour(make_shard: MakeShard) -> None:
    """A map of a join of some samples colours these by their own values, and no others."""
    samples = [
        {"__key__": key, ".cls": str(n), ".npy": npy(np.eye(COUNT)[n])}
        for n, key in enumerate(KEYS)
    ]
    path = make_shard("left.tar", samples)
    kept = [2, 3, 7, 9]
    Path("t.csv").write_text("key,score\n" + "".join(f"{KEYS[n]},{n}.5\n" for n in kept))
    joined = wids.ShardListDataset([str(path)]).join("t.csv", missing="drop")
    with handlers_of(joined) as handlers:
        found = answered(handlers.map, {"field": ".npy", "colour": "score"})
    wanted = [n + 0.5 if n in kept else None for n in range(COUNT)]
    assert found["indexes"] == list(range(COUNT))
    assert found["colours"]["values"] == wanted
    assert found["chosen"] == [int(n in kept) for n in range(COUNT)]


def test_numbers_of_all_types_are_counted_and_picked(make_shard: MakeShard) -> None:
    """A column of a table is one of numbers for whatever type it was written with."""
    path = make_shard("left.tar", [{"__key__": key, ".txt": "a"} for key in KEYS])
    kinds = ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8")
    table = {"key": KEYS, **{kind: np.arange(COUNT, dtype=kind) for kind in kinds}}
    pq.write_table(pa.table(table), "t.parquet")
    with handlers_of(wids.ShardListDataset([str(path)]).join("t.parquet")) as handlers:
        facets = counted(handlers)
        assert {facets[kind]["kind"] for kind in kinds} == {"numbers"}
        found = answered(handlers.page, dict.fromkeys(kinds, "3..6,9"))
    assert [tile["index"] for tile in found["tiles"]] == [3, 4, 5, 9]


def test_columns_of_a_table_may_have_any_name(make_shard: MakeShard) -> None:
    """Names of SQL, and those that questions of the page use themselves, mean the columns."""
    names = ("order", "position", "value", "n")
    path = make_shard("left.tar", [{"__key__": key, ".cls": "1"} for key in KEYS])
    rows = [",".join([key, *[str(3 * (COUNT - n))] * 4]) for n, key in enumerate(KEYS)]
    Path("t.csv").write_text("\n".join([",".join(("key", *names)), *rows]))
    with handlers_of(wids.ShardListDataset([str(path)]).join("t.csv")) as handlers:
        columns = handlers.page({"look": "table"})["columns"]
        assert columns == ["cls", *(column_name(name) for name in names)]
        assert finished(handlers, "position > 30") == list(KEYS[:2])
        for name in columns[1:]:
            page = when_finished(lambda name=name: handlers.page({"sort": name}))
            assert [tile["key"] for tile in page["tiles"]] == list(reversed(KEYS))
            found = when_finished(lambda name=name: handlers.groups({"by": name, "across": "cls"}))
            assert [count for *_, count in found["groups"]] == [1] * COUNT
        facets = when_finished(lambda: handlers.facets({"where": "value > 30"}))["facets"]
        shown = {each["name"]: sum(each["now"]["counts"]) for each in facets}
        assert shown == dict.fromkeys([*columns, "shard_index"], 2)


def test_a_page_has_the_fields_of_both_sides(joined: Any) -> None:
    """Fields of a sample say where they are stored; a value that the table lacks is no field."""
    with handlers_of(joined) as handlers:
        page = handlers.sample({"i": "7"})
        fields = {each["extension"]: each for each in page["fields"]}
        assert list(fields) == [".cls", ".txt", ".cap.txt", ".width", ".note"]
        assert fields[".cap.txt"]["summary"]["text"] == "the caption of k07"
        assert fields[".cap.txt"]["stored"].endswith("right0.tar")
        assert fields[".note"]["stored"].endswith("t.csv")
        assert (fields[".txt"]["stored"], fields[".note"]["nbytes"]) == (None, 2)
        located = handlers.reader.locate(7)
        read = [bytes(handlers.reader.read(located, number, 0, 5)) for number in (2, 3)]
        assert read == [b"the c", b"700"]
        assert [each["extension"] for each in handlers.sample({"i": "0"})["fields"]][2:] == [
            ".cap.txt"
        ]
        tiles = handlers.page({"count": "3"})["tiles"]
        assert [tile["fields"][-1] for tile in tiles] == [".cap.txt", ".note", ".note"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("width >= 1000", [10, 11]),
        pytest.param("width is null or cls in (2, 3)", [0, 2, 3], marks=pytest.mark.slow),
        pytest.param("contains(\"cap.txt\", 'k0') and note = 'n3'", [3], marks=pytest.mark.slow),
    ],
)
def test_conditions_ask_for_joined_fields(joined: Any, text: str, expected: list[int]) -> None:
    """A condition is one of all fields, a wrong one is named, and its selection opens again."""
    some = joined[::-1].exclude(["k11"]) if "1000" in text else joined
    with handlers_of(some) as handlers:
        wanted = [KEYS[n] for n in expected if some is joined or n != 11]
        assert sorted(finished(handlers, text)) == wanted
        Path("found.json").write_text(
            json.dumps(handlers.selection({"where": text, "sort": "key desc"}))
        )
        assert list(wids.open("found.json").keys) == wanted[::-1]
        with pytest.raises(ValueError, match=r'column "wdth" not found(.|\n)*Perhaps: width'):
            finished(handlers, "wdth > 3")


def test_a_join_that_has_a_sample_twice_is_refused(joined: Any) -> None:
    """A page shows each sample of the left side once."""
    with pytest.raises(wids.SpecError, match="several times"):
        JoinedFields(joined, np.array([0, 1, 1]))


def test_replaced_fields_are_those_of_the_right_side(joined: Any) -> None:
    """A patched field is read from the other shards, and stored once."""
    left, right, _ = (slot.sources[0].leaf for slot in joined.slots)
    new = left.join(right, rename={".cap.txt": ".txt"}, replace=True, aligned=False)
    with handlers_of(new) as handlers:
        fields = handlers.sample({"i": "2"})["fields"]
        assert [each["extension"] for each in fields] == [".cls", ".txt"]
        assert fields[1]["summary"]["text"] == "the caption of k02"
    assert main(["info", "page.json"]) == 0


def test_short_fields_of_the_right_side_are_shown(make_shard: MakeShard) -> None:
    """Tiles of a join show its text, also if no field is longer than what a tile reads."""
    left = make_shard("l.tar", [{"__key__": key, ".json": "{}"} for key in KEYS])
    right = make_shard("r.tar", [{"__key__": key, ".o.txt": "x"} for key in reversed(KEYS)])
    joined = wids.ShardListDataset([str(left)]).join(wids.ShardListDataset([str(right)]))
    with handlers_of(joined) as handlers:
        assert [tile["key"] for tile in handlers.page({})["tiles"]] == KEYS
        located = handlers.reader.locate(0)
        assert bytes(handlers.reader.read(located, 1, 0, 16_000)) == b"x"


def test_an_old_value_is_not_shown_where_a_join_gives_none(joined: Any) -> None:
    """A replaced field of a sample without a counterpart is no field, as by index."""
    left, right, _ = (slot.sources[0].leaf for slot in joined.slots)
    new = left.join(right[:6], rename={".cap.txt": ".txt"}, replace=True, missing="fill")
    with handlers_of(new) as handlers:
        for index, sample in enumerate(new):
            shown = [each["extension"] for each in handlers.sample({"i": str(index)})["fields"]]
            assert (".txt" in shown) == (sample[".txt"] is not None)


def answered(endpoint: Callable[[Any], dict[str, Any]], query: dict[str, str]) -> dict[str, Any]:
    """Return the answer of an endpoint, once all that it needs is read."""

    def ask() -> dict[str, Any]:
        try:
            return endpoint(query)
        except NotReadyError as error:
            return error.progress

    return when_finished(ask)


def counted(handlers: ApiHandlers) -> dict[str, Any]:
    """Return the facets of the page by name, once all is counted."""
    found = answered(handlers.facets, {})
    return {facet["name"]: facet for facet in found["facets"]}


def counts(facet: dict[str, Any]) -> dict[str, int]:
    """Return how often each value of a facet occurs."""
    return dict(zip((value for value, _ in facet["values"]), facet["now"]["counts"], strict=True))


def sorted_by(handlers: ApiHandlers, sort: str) -> list[Any]:
    """Return the tiles of a page in an order."""
    return list(when_finished(lambda: handlers.page({"sort": sort}))["tiles"])


@pytest.mark.parametrize("source", ["shards", pytest.param("table", marks=pytest.mark.slow)])
def test_facets_count_what_a_join_gives(make_shard: MakeShard, source: str) -> None:
    """Facets and the order by a class have its new values where a join replaces it."""
    left = make_shard("l.tar", [{"__key__": key, ".cls": str(n % 3)} for n, key in enumerate(KEYS)])
    new = {key: 7 - n % 2 for n, key in enumerate(KEYS) if n != 5}
    if source == "shards":
        samples = [{"__key__": key, ".cls": str(value)} for key, value in reversed(new.items())]
        right: Any = wids.ShardListDataset([str(make_shard("r.tar", samples))])
    else:
        lines = "".join(f"{key},{value},{value}.5\n" for key, value in new.items())
        Path("t.csv").write_text(f"key,cls,guess\n{lines}")
        right = "t.csv"
    joined = wids.ShardListDataset([str(left)]).join(right, replace=True, missing="fill")
    values = [sample[".cls"] for sample in joined]
    with handlers_of(joined) as handlers:
        facets = counted(handlers)
        assert counts(facets["cls"]) == {"6": values.count(6), "7": values.count(7)}
        assert ("guess" in facets) == (source == "table")
        tiles = sorted_by(handlers, "cls")
        found = [values[KEYS.index(tile["key"])] for tile in tiles]
        assert found == [*sorted(each for each in values if each is not None), None]


def mapped(handlers: ApiHandlers, **query: str) -> dict[str, Any]:
    """Return a map with its colours, once all is read."""
    return answered(handlers.map, query)


def documents(prefix: str, names: list[str]) -> list[dict[str, str]]:
    """Make samples with a word, a number and a deeper number in JSON, of which one is damaged."""
    values: list[dict[str, Any]] = [
        {"word": f"{prefix}{n % 3}", "deep": {"n": n * n % 7}, "emb": [n / 2, n % 4, 1]}
        for n in range(len(names))
    ]
    texts = [json.dumps(each) if n != 4 else "{" for n, each in enumerate(values)]
    return [{"__key__": key, ".json": text} for key, text in zip(names, texts, strict=True)]


@pytest.mark.parametrize("form", ["of some", pytest.param("renamed", marks=pytest.mark.slow)])
def test_json_of_joined_shards_is_counted_sorted_and_coloured(
    make_shard: MakeShard, form: str
) -> None:
    """Values in JSON of the right side are columns like those of the left one."""
    rows = [[str(make_shard(f"{side}{start}.tar", every[start : start + 6])) for start in (0, 6)]
            for side, every in (("l", documents("old", KEYS)),
                                ("r", documents("new", KEYS)[::-1]))]  # fmt: skip
    left, right = map(wids.ShardListDataset, rows)
    how: dict[str, Any] = {"rename": {".json": ".new.json"}}
    if form != "renamed":
        how = {"replace": True}
    if form == "of some":
        right, how["missing"] = right[:9], "fill"
    joined = left.join(right, **how)
    name, column = (".new.json", '"new.json"') if form == "renamed" else (".json", "json")
    raw = [joined.read_raw(index).get(name) for index in range(COUNT)]
    texts = ["{" if text is None else bytes(text).decode() for text in raw]
    values = [None if text == "{" else json.loads(text) for text in texts]
    words = [each and each["word"] for each in values]
    with handlers_of(joined) as handlers:
        facets = counted(handlers)
        shown = counts(facets[f"{column}.word"])
        assert shown == {word: words.count(word) for word in set(words) - {None}}
        assert facets[f"{column}.word"]["now"]["missing"] == words.count(None)
        assert facets[f"{column}.deep.n"]["most"] == max(v["deep"]["n"] for v in values if v)
        tiles = sorted_by(handlers, f"{column}.deep.n desc")
        found = [values[KEYS.index(tile["key"])] for tile in tiles]
        numbers = [each and each["deep"]["n"] for each in found]
        known = [each for each in numbers if each is not None]
        assert known == sorted(known, reverse=True)
        assert numbers == known + [None] * (COUNT - len(known))
        table = handlers.page({"look": "table"})
        place = table["columns"].index(f"{column}.word")
        assert [tile["values"][place] for tile in table["tiles"]] == words
        plane = mapped(handlers, field=f"{name}:emb", colour=f"{column}.word")
        legend = [word for word, _ in plane["colours"]["legend"]]
        coloured = [legend[code] for code in plane["colours"]["values"]]
        assert coloured == [words[index] for index in plane["indexes"]]
        assert len(coloured) == COUNT - words.count(None)
    # What was kept of the left side is not what the join gives.
    with handlers_of(joined) as handlers:
        assert counts(counted(handlers)[f"{column}.word"]) == shown
