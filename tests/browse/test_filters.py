"""The filter language: what it means, and that nothing in it runs."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wids.browse.filterlanguage import parse_filter
from wids.browse.filters import plain_value

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


def holds(text: str) -> bool:
    return all(
        each.holds(
            SAMPLE["key"]
            if each.field == "key"
            else plain_value(each.field, SAMPLE.get(each.field))
        )
        for each in parse_filter(text)
    )


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
    ],
)
def test_what_holds(text: str):
    """Each of these is true of the sample."""
    assert holds(text)


@pytest.mark.parametrize(
    "text",
    [
        ".cls == 4",
        ".cls == true",
        ".missing == null",
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
    ],
)
def test_what_does_not_hold(text: str):
    """Each of these is false of the sample."""
    assert not holds(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "3",
        ".cls",
        ".cls == ",
        ".cls == 3 or .cls == 4",
        ".cls == 3 and",
        "== 3",
        "cls == 3",
        ".cls == 3; import os",
        ".a == 1 " * 200,
        ".cls == 'x",
    ],
)
def test_what_is_no_filter_is_refused(text: str):
    """The error says where reading stopped, or that the text is too long."""
    with pytest.raises(ValueError, match=r"filter: expected"):
        parse_filter(text)


@given(st.text(st.characters(codec="utf-8"), max_size=60))
def test_any_text_is_a_filter_or_a_value_error(text: str):
    """Whatever is typed, nothing else happens."""
    try:
        conditions = parse_filter(text)
    except ValueError:
        return
    for condition in conditions:
        assert condition.holds({"a": 1}) in (True, False)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists), st.text())
def test_any_json_can_be_compared(value, word: str):
    """A comparison of anything with anything is true or false."""
    found = plain_value(".json", json.dumps(value).encode())
    for operator in ("==", "!=", "<", "<=", ">", ">=", "contains"):
        for wanted in ("3", "true", "null", "'x'"):
            (condition,) = parse_filter(f".json {operator} {wanted}")
            assert condition.holds(found) in (True, False)
    assert isinstance(plain_value(".txt", word.encode("utf-8", "replace")), str | int | float)


@given(st.binary(max_size=50))
def test_any_bytes_are_a_value(data: bytes):
    """A field that is no text and no JSON is a value all the same."""
    plain_value(".cls", data)
    plain_value(".json", data)
