"""The filter language: its meaning, and that it runs no code."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from helpers.browsing import browsing
from helpers.shards import write_shard
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import wids
from wids.views.filtering import matching, plain_value
from wids.views.filterlanguage import evaluate, parse_filter, with_class_names

SAMPLE = {
    "key": "cat/0001",
    ".cls": b"3\n",
    ".score": b"0.75",
    ".txt": b"a cat on a mat",
    ".json": json.dumps(
        {
            "size": {"width": 640, "height": 480},
            "tags": ["cat", "indoor"],
            "ok": True,
            "none": None,
            "name": "Tom",
            "n": "7",
        }
    ).encode(),
    ".bad.json": b"{",
}


def jpeg(width: int, height: int) -> bytes:
    """Return a black picture."""
    stream = io.BytesIO()
    Image.new("RGB", (width, height)).save(stream, "JPEG")
    return stream.getvalue()


def holds(text: str) -> bool:
    def value_of(field: str) -> Any:
        return SAMPLE["key"] if field == "key" else plain_value(field, SAMPLE.get(field))

    return bool(evaluate(parse_filter(text), lambda each: each.holds(value_of(each.field))))


@pytest.mark.parametrize(
    "text",
    [
        ".cls == 3",
        ".cls=3",
        "  .cls  >=3 ",
        ".cls == '3'",
        ".cls != 4",
        ".score > 0.7 and .score<1",
        ".txt contains cat",
        ".txt contains 'on a'",
        ".json:size.width >= 640 and .json:size.height < 500",
        ".json:tags contains indoor",
        ".json:tags.1 == indoor",
        ".json:tags contains 'cat' and .cls == 3",
        ".json:ok == true",
        ".json:none == null",
        '.json:name == "Tom"',
        ".json:name < Tomas",
        ".json:n == 7",
        ".missing != 3",
        ".json:no.such != 1",
        "key contains cat/",
        "key == cat/0001",
        ".bad.json:a != 1",
        ".cls == 4 or .cls == 3",
        "not .cls == 4",
        "not not .cls == 3",
        ".cls in (1, 2, 3)",
        ".json:name in (Tom, 'Ann Lee')",
        ".cls == 3 or .cls == 4 and .cls == 5",
        "(.cls == 4 or .cls == 3) and not (.txt contains dog or .missing == 1)",
        "((key contains cat))and(.cls==3)",
        "not .missing in (1)",
        ".missing == null",
        ".missing in (null)",
        ".json:no.such in (3, null)",
        "not .missing != null",
    ],
)
def test_what_holds(text: str):
    """Each of these filters matches the sample."""
    assert holds(text)


@pytest.mark.parametrize(
    "text",
    [
        ".cls == 4",
        ".cls == true",
        ".missing != null",
        ".bad.json:a == null",
        ".json:ok == 1",
        ".json:ok > 0",
        ".missing == 3",
        ".missing < 3",
        ".json:no.such > 0",
        ".json:tags.9 == cat",
        ".json:name > 3",
        ".txt contains dog",
        ".cls contains 3",
        ".bad.json:a == 1",
        ".cls == 3 and .cls == 4",
        "(.cls == 3 or .cls == 4) and .cls == 5",
        "not .cls == 3",
        ".cls in (1, '2', three)",
    ],
)
def test_what_does_not_hold(text: str):
    """None of these filters matches the sample."""
    assert not holds(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "3",
        ".cls",
        ".cls == ",
        ".cls == 3 or",
        ".cls in 3",
        ".cls in ()",
        ".cls in (3",
        "(.cls == 3",
        ".cls == 3)",
        "not",
        "not " * 60 + ".a == 1",
        ".cls == 3 and",
        "== 3",
        "cls == 3",
        ".cls == 3; import os",
        ".a == 1 " * 200,
        ".cls == 'x",
    ],
)
def test_what_is_no_filter_is_refused(text: str):
    """A malformed or too long filter is an error that shows the position."""
    with pytest.raises(ValueError, match=r"filter: expected"):
        parse_filter(text)


@given(st.text(st.characters(codec="utf-8"), max_size=60))
def test_any_text_is_a_filter_or_a_value_error(text: str):
    """Any text is a filter or raises a ValueError."""
    try:
        conditions = parse_filter(text)
    except ValueError:
        return
    assert evaluate(conditions, lambda each: each.holds({"a": 1})) in (True, False)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists), st.text())
def test_any_json_can_be_compared(value, word: str):
    """A comparison of any two values is true or false."""
    found = plain_value(".json", json.dumps(value).encode())
    for operator in ("==", "!=", "<", "<=", ">", ">=", "contains"):
        for wanted in ("3", "true", "null", "'x'"):
            condition = parse_filter(f".json {operator} {wanted}")
            assert condition.holds(found) in (True, False)
    assert isinstance(plain_value(".txt", word.encode("utf-8", "replace")), str | int | float)


@given(st.binary(max_size=50))
def test_any_bytes_are_a_value(data: bytes):
    """A field of any bytes can be read as a value."""
    plain_value(".cls", data)
    plain_value(".json", data)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (".cls == cat", {3}), (".cls != cat", {5, 7}), (".cls in (cat, dog)", {3, 5}),
        (".cls contains o", {5, 7}), (".cls == 3", {3}), (".cls == bird", set()),
        (".txt == cat", set()),
    ],
)  # fmt: skip
def test_names_of_classes_stand_for_their_numbers(text: str, expected: set[int]):
    """Class names can be used for a class field and not for other fields."""
    names = {3: "cat", 5: "dog", 7: "cow"}
    condition = with_class_names(parse_filter(text), lambda field: field == ".cls", names)
    found = {n for n in names if evaluate(condition, lambda each, n=n: each.holds(n))}
    assert found == expected


def test_an_unknown_field_or_class_is_said(tmp_path: Path):
    """A field that no sample has is an error; a field of a later shard and a class are named."""
    paths = [
        write_shard(tmp_path / "a.tar", [{"__key__": "a", ".cls": "1", ".txt": "x"}]),
        write_shard(tmp_path / "b.tar", [{"__key__": "b", ".cls": "0", ".late": "1"}]),
    ]
    with browsing([str(path) for path in paths], class_names={0: "cat", 1: "dog"}) as server:
        late = server.ask_until_finished("page", where=".late == 1")
        assert (late["total"], late["filtering"]["unknown_fields"]) == (1, [])
        kind = server.ask_until_finished("page", where=".txt > 3")["filtering"]
        assert kind["hint"] == "3 is a number, and .txt has none; a value of it is 'x'"
        owl = server.ask_until_finished("page", where=".cls == owl")["filtering"]
        assert (owl["found"], owl["hint"]) == (
            0,
            "no class has the name 'owl'; the first names are cat, dog",
        )
        where = ".typo == 1 or .cls == 2"
        with pytest.raises(AssertionError, match="no sample has a field '.typo'.*has .cls, .txt"):
            server.ask_until_finished("page", where=where)
        with pytest.raises(AssertionError, match="has .cls, .txt; .* a colon.*: '.txt:length'"):
            server.ask_until_finished("page", where=".txt.length > 3")
        with pytest.raises(AssertionError, match="got the filter '.typo==1'"):
            server.ask_until_finished("page", q=".typo==1")


def test_a_field_too_large_to_read_is_not_null(tmp_path: Path):
    """On the page, null stands for what a sample lacks; of a large field nothing is known."""
    texts = ["x", "y" * (1 << 20) + "y", None]
    samples = [
        {"__key__": f"k{n}", ".cls": "1"} | ({".txt": text} if text else {})
        for n, text in enumerate(texts)
    ]
    with browsing([str(write_shard(tmp_path / "a.tar", samples))]) as server:
        for where, expected in (
            (".txt == null", [2]),
            (".txt != null", [0, 1]),
            (".txt == x", [0]),
        ):
            page = server.ask_until_finished("page", where=where)
            assert [tile["index"] for tile in page["tiles"]] == expected


@pytest.mark.parametrize(
    "where",
    [
        ".jpg:width != null",
        ".jpg:width == null",
        ".jpg:width in (null, 16)",
        ".jpg:width not in (null, 16)",
        "not (.jpg:width == null) and .jpg:height > 5",
        ".jpg:width == '16'",
        ".jpg:width != 16",
        ".txt:length == null",
        ".txt:length != null or .jpg:width > 20",
    ],
)
def test_facts_of_headers_mean_the_same_as_in_a_view(tmp_path: Path, where: str):
    """The page finds what `filter` finds, by null, lists and words, where fields are missing."""
    pictures = [jpeg(16 + n % 3, 4 + n) for n in range(6)] + [None, b"\xff\xd8 damaged", None]
    samples = [
        {"__key__": f"k{n}", ".cls": "1"}
        | ({".jpg": picture} if picture else {})
        | ({".txt": "x" * n} if n % 4 else {})
        for n, picture in enumerate(pictures)
    ]
    bare = [{"__key__": f"b{n}", ".cls": "1", ".jpg": b"", ".txt": "a"} for n in range(3)]
    names = {"a.tar": samples, "b.tar": bare}
    paths = [str(write_shard(tmp_path / name, each)) for name, each in names.items()]
    with wids.ShardListDataset(paths, fields=[".cls"]) as dataset:
        expected = [sample["__key__"] for sample in dataset[matching(dataset, where)]]
    with browsing(paths) as server:
        page = server.ask_until_finished("page", where=where)
        assert [tile["key"] for tile in page["tiles"]] == expected
