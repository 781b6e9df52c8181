"""Values of unlike kinds in filters: what compares, what is warned of, what may be written."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import wids

RECORDS: list[dict[str, Any]] = [
    {
        "n": n / 2,
        "word": f"w{n}",
        "digits": f"{n}0",
        "code": f"{n:03d}",
        "flag": n % 2 == 0,
        "list": [n, f"t{n}"],
        "sp ace": {"a.b": n},
        "it's": n,
    }
    for n in range(6)
]
TEXTS = ["7", "007", "20.5", "0x10", "a 7", "inf"]


@pytest.fixture
def dataset(make_shard: Callable[..., Path]) -> wids.ShardListDataset:
    samples = [
        {"__key__": f"{n:06d}", ".json": json.dumps(RECORDS[n]), ".txt": TEXTS[n], ".cls": str(n)}
        for n in range(6)
    ]
    return wids.ShardListDataset([(str(make_shard("k.tar", samples)), 6)], cache_dir=None)


def chosen(dataset: wids.ShardListDataset, text: str) -> list[int]:
    return [int(key) for key in dataset.filter(text).keys]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # A text that is a number counts as that number, beside a number.
        (".json:digits >= 30", [3, 4, 5]),
        (".json:digits == 3e1", [3]),
        (".json:n < '1.0'", [0, 1]),
        (".json:n < inf", [0, 1, 2, 3, 4, 5]),
        (".json:n > -inf and .json:n in ('.5', +1, 2.)", [1, 2, 4]),
        # Two texts compare as texts.
        (".json:digits < '3'", [0, 1, 2]),
        (".json:code == 003", [3]),
        (".json:code in (004, 002)", [2, 4]),
        # A text field is compared as it is written, and as a number beside numbers.
        (".txt == 7", [0]),
        (".txt == 007", [1]),
        (".txt contains 7", [0, 1, 4]),
        (".txt contains 20.50 or .txt contains 0x", [3]),
        (".txt > 20", [2, 5]),
        (".txt == inf", [5]),
        # In a list, values count; in texts, what was typed.
        (".json:list contains 3", [3]),
        (".json:list contains t3", [3]),
        (".json:flag == 'true'", [0, 2, 4]),
        # Keys are texts.
        ("key == 000002", [2]),
        ("key > 000003", [4, 5]),
        ("__key__ in (000001, '000004')", [1, 4]),
        ("key not in (000001, 000004) and not key == 000000", [2, 3, 5]),
        # Other ways to write it.
        (".cls not in (1, 3)", [0, 2, 4, 5]),
        ("not .cls not in (1, 3)", [1, 3]),
        (".json:'sp ace'.'a.b' == 4", [4]),
        ('.json:"sp ace"."a.b">=4', [4, 5]),
        (".json:it's == 1", [1]),
        (".json:list.0 == 2", [2]),
        ("'.json':n == 1", [2]),
    ],
)
def test_what_a_filter_compares(
    dataset: wids.ShardListDataset, text: str, expected: list[int]
) -> None:
    """Numbers compare as numbers, texts as texts, whatever form they are written in."""
    assert chosen(dataset, text) == expected


@pytest.mark.parametrize(
    ("text", "expected", "message"),
    [
        (".json:n > 10%", [], "'10%' is a text, and .json:n has none; a value of it is 0.0"),
        ("not .json:n > 1_0", [0, 1, 2, 3, 4, 5], "'1_0' is a text"),
        (".json:n in (.5, 0x1)", [1], "'0x1' is a text"),
        (".json:n > .json:digits", [], "'.json:digits' is a text"),
        (".json:n != abc", [0, 1, 2, 3, 4, 5], "'abc' is a text"),
        (".json:word > 3", [], "3 is a number, and .json:word has none; a value of it is 'w0'"),
        (".json:flag == 1", [], "1 is a number"),
        (".json:n == true", [], "True is a truth value"),
        (".json:flag > false", [], "False is a truth value"),
        (".json:list == t1", [], "'t1' is a text.*contains looks inside"),
        (
            ".json:n contains 1",
            [],
            ".json:n is a number such as 0.0, and contains looks in texts, lists and objects",
        ),
        (".cls > cat", [], "'cat' is a text"),
        (".cls == 3;", [], "'3;' is a text"),
        (
            ".json:n == none",
            [],
            "'none' is a text, and .json:n has none;.*; null, in small letters",
        ),
        (".json:word == NULL", [], "no .json:word is the text 'NULL'; null, in small letters"),
        (".json:digits in (NaN, 30)", [3], "no .json:digits is the text 'NaN'; null"),
        (".txt > 5 and .json:word < 1e3", [], "1000.0 is a number"),
    ],
)
def test_what_can_never_hold_is_warned_of(
    dataset: wids.ShardListDataset, text: str, expected: list[int], message: str
) -> None:
    """A value of a kind that no sample has is probably a slip, also under `not`, `!=` and `in`."""
    with pytest.warns(wids.WidsWarning, match=message):
        assert chosen(dataset, text) == expected


@pytest.mark.parametrize("words", [["5", "true", "x"], ["x", "5", "true"], ["true", "x", "5"]])
def test_a_text_may_be_of_several_kinds(make_shard: Callable[..., Path], words: list[str]) -> None:
    """Whichever comes first, a comparison that one text fulfils is not warned of."""
    samples = [{"__key__": str(n), ".txt": word} for n, word in enumerate(words)]
    dataset = wids.ShardListDataset([(str(make_shard("w.tar", samples)), 3)])
    for word in words:
        assert chosen(dataset, f".txt == {word}") == [words.index(word)]
    assert chosen(dataset, ".txt in (5, true)") == [n for n in range(3) if words[n] != "x"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (".cls > cat", "'cat' is a text"),
        (
            ".cls contains zz",
            "no class has a name that contains 'zz'; the first names are cat, dog",
        ),
        (".cls contains 3", "no class has a name that contains '3'"),
    ],
)
def test_names_of_classes_have_no_order(
    make_shard: Callable[..., Path], text: str, message: str
) -> None:
    """They are equal to a number, or are looked in, and compare in no other way."""
    path = make_shard("c.tar", [{"__key__": str(n), ".cls": str(n)} for n in range(2)])
    dataset = wids.ShardListDataset([(str(path), 2)], options={"classes": ["cat", "dog"]})
    assert len(dataset.filter(".cls contains a")) == len(dataset.filter(".cls not in (dog)")) == 1
    with pytest.warns(wids.WidsWarning, match=message):
        assert not len(dataset.filter(text))


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (".json:'sp ace'.'a.b'", list(range(6))),
        (".json:sp ace.'a.b'", list(range(6))),
        (".json:it's", list(range(6))),
        (".json:list.0", list(range(6))),
        (".cls", list(range(6))),
        ("__key__", [f"{n:06d}" for n in range(6)]),
    ],
)
def test_columns_are_named_by_their_steps(
    dataset: wids.ShardListDataset, column: str, expected: list[Any]
) -> None:
    """Quotes keep dots and blanks in a name."""
    assert list(dataset.column(column)) == expected
    assert [int(key) for key in dataset.sort_by(column, descending=True).keys] == [5, 4, 3, 2, 1, 0]


@pytest.mark.parametrize(
    "text", [".json:a..b == 1", ".json:.a == 1", ".json:'a == 1", "'json' == 1"]
)
def test_steps_of_a_path_have_names(dataset: wids.ShardListDataset, text: str) -> None:
    """Two dots in a row, or one at an end, are a slip."""
    with pytest.raises(ValueError, match="cannot read"):
        dataset.filter(text)
    with pytest.raises(ValueError, match="column"):
        dataset.column(text.partition(" ")[0])
