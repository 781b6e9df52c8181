"""What conditions and orders mean, against plain Python over a list of dicts."""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.pictures import plain
from helpers.shards import write_shards
from hypothesis import given, settings
from hypothesis import strategies as st

import wids

LANGUAGES = ("de", "en", None)
COUNT = 24
BIG = 2**63 - 2


def document(n: int) -> dict[str, Any]:
    found: dict[str, Any] = {"width": 100 * n, "lang": LANGUAGES[n % 3], "big": BIG + n % 2}
    found |= {"tags": ["dog", "cat"][: n % 3], "mixed": n if n % 2 else f"t{n}"}
    found |= {"objects": [{"label": "cat", "size": n}] * (n % 2), "image size": {"width": n}}
    found |= {
        "ok": n % 4 == 0,
        "score": [n / 8, math.nan, None][n % 3],
        "day": f"2024-05-{n + 1:02}",
    }
    return found | ({"rare": n} if n > 20 else {})


DOCUMENTS = [document(n) for n in range(COUNT)]
SAMPLES: list[dict[str, Any]] = []
for n in range(COUNT):
    each: dict[str, Any] = {"__key__": f"{'train' if n % 2 else 'val'}/{n:04}"}
    each |= {".json": json.dumps(DOCUMENTS[n]), ".png": plain(size=(n + 1, 2))}
    each |= {".txt": f"it's {n}"} if n % 3 else {}
    each |= {".cls": str(n % 5)} if n != 7 else {}
    each |= {".n.txt": str(n)}
    SAMPLES.append(each)
TABLE = {
    "key": [each["__key__"] for each in reversed(SAMPLES)],
    "made": [np.datetime64("2024-05-01") + (COUNT - 1 - n) for n in range(COUNT)],
    "weight": [None if n % 4 == 0 else n / 2 for n in reversed(range(COUNT))],
}
NAMES = ["cat", "dog", "owl", "hen", "cow"]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("set")
    write_shards(folder, SAMPLES, 8)
    (folder / "classes.txt").write_text("".join(f"{name}\n" for name in NAMES))
    whole = wids.open(folder, cache_dir=tmp_path_factory.mktemp("cache"))
    return whole.join({**TABLE, "made": np.array(TABLE["made"])})


def of(n: int) -> int | None:
    return None if n == 7 else n % 5


# In the language before, in SQL, and in Python of the number of a sample.
EVERY_KIND: list[tuple[str, str, Callable[[int], Any]]] = [
    (".cls == 3", "cls = 3", lambda n: of(n) == 3),
    (".cls in (1, 3)", "cls in (1, 3)", lambda n: of(n) in (1, 3)),
    (".cls == '3'", "cls = '3'", lambda n: of(n) == 3),
    (".cls == dog", "cls_name = 'dog'", lambda n: of(n) == 1),
    (".cls in (cat, owl)", "cls_name in ('cat', 'owl')", lambda n: of(n) in (0, 2)),
    (".cls contains o", "contains(cls_name, 'o')", lambda n: of(n) in (1, 2, 4)),
    (".json:width >= 512", "json.width >= 512", lambda n: n * 100 >= 512),
    (".json:lang == de", "json.lang = 'de'", lambda n: n % 3 == 0),
    (".json:'image size'.width < 3", 'json."image size".width < 3', lambda n: n < 3),
    ("'.n.txt' contains 1", "contains(\"n.txt\", '1')", lambda n: "1" in str(n)),
    (".n.txt == 7", "\"n.txt\" = '7'", lambda n: n == 7),
    (".n.txt > 7", 'try_cast("n.txt" as double) > 7', lambda n: n > 7),
    (".txt == 'it''s 5'", "txt = 'it''s 5'", lambda n: n == 5),
    (".txt contains 's 1'", "contains(txt, 's 1')", lambda n: n % 3 and str(n)[0] == "1"),
    (".json:tags contains dog", "list_contains(json.tags, 'dog')", lambda n: n % 3 > 0),
    (".json:tags contains cat", "'cat' in json.tags", lambda n: n % 3 == 2),
    (".json:tags.0 == dog", "json.tags[1] = 'dog'", lambda n: n % 3 > 0),
    (".json:tags.length == 2", "length(json.tags) = 2", lambda n: n % 3 == 2),
    ("", "list_contains([o.label for o in json.objects], 'cat')", lambda n: n % 2),
    (".json contains rare", "json.rare is not null", lambda n: n > 20),
    ("key contains train/", "contains(key, 'train/')", lambda n: n % 2),
    ("key == val/0004", "key = 'val/0004'", lambda n: n == 4),
    (".json:lang == null", "json.lang is null", lambda n: n % 3 == 2),
    (".json:lang != null", "json.lang is not null", lambda n: n % 3 < 2),
    (".txt == null", "txt is null", lambda n: n % 3 == 0),
    (".cls != 3", "cls is distinct from 3", lambda n: of(n) != 3),
    ("", "cls != 3", lambda n: of(n) not in (3, None)),
    ("not .cls in (1, 3)", "cls is null or cls not in (1, 3)", lambda n: of(n) not in (1, 3)),
    ("", "cls not in (1, 3)", lambda n: of(n) not in (1, 3, None)),
    (".json:score == nan", "json.score is null", lambda n: n % 3 > 0),
    (".json:score >= 1", "json.score >= 1", lambda n: n % 3 == 0 and n >= 8),
    (f".json:big == {BIG + 1}", f"json.big = {BIG + 1}", lambda n: n % 2),
    (".json:mixed == 3", "json.mixed = '3'", lambda n: n == 3),
    (".json:mixed == t4", "json.mixed = 't4'", lambda n: n == 4),
    (".json:mixed > 10", "try_cast(json.mixed as double) > 10", lambda n: n % 2 and n > 10),
    (".json:ok == true", "json.ok", lambda n: n % 4 == 0),
    (".png:width >= 20", "png.width >= 20", lambda n: n + 1 >= 20),
    (".txt:length > 6", "length(txt) > 6", lambda n: n % 3 and n > 9),
    (".made >= '2024-05-10'", "made >= '2024-05-10'", lambda n: n >= 9),
    (".json:day >= '2024-05-10'", "json.day >= '2024-05-10'", lambda n: n >= 9),
    (".weight == null", "weight is null", lambda n: n % 4 == 0),
    (".weight > 3 and .cls < 2", "weight > 3 and cls < 2", lambda n: n % 4 and n > 7 and n % 5 < 2),
    ("", "txt ilike '%IT%' and regexp_matches(key, '1[0-9]$')", lambda n: n % 3 and n // 10 == 1),
    ("", "coalesce(png.height, 0) = 2 and sizes.cls is null", lambda n: n == 7),
]  # fmt: skip


@pytest.mark.parametrize(
    ("before", "condition", "holds"), EVERY_KIND, ids=[each[1] for each in EVERY_KIND]
)
def test_every_kind_of_condition(
    dataset: Any, before: str, condition: str, holds: Callable[[int], Any]
) -> None:
    """It chooses what Python does; what was written before is an error that shows it."""
    wanted = [n for n in range(COUNT) if holds(n)]
    assert [sample[".json"]["width"] // 100 for sample in dataset.filter(condition)] == wanted
    chosen = dataset[::-3].filter(condition)
    assert [int(key[-4:]) for key in chosen.keys] == [n for n in range(COUNT)[::-3] if holds(n)]
    if re.search(r"(^|[\s('])\.[a-z]|contains\s", before):
        with pytest.raises(ValueError, match="Hint: in SQL, this is"):
            dataset.filter(before)


def test_the_hint_for_what_was_written_before_is_right(dataset: Any) -> None:
    """Where a comparison has one form in SQL, the hint chooses the same samples."""
    for before, condition, _ in EVERY_KIND:
        if before.startswith(
            (".cls", ".json:width", ".json:lang", ".json:tags.0", ".png", ".txt:")
        ):
            with pytest.raises(ValueError, match="Hint: ") as error:
                dataset.filter(before)
            hint = str(error.value).partition("this is ")[2]
            assert list(dataset.filter(hint).keys) == list(dataset.filter(condition).keys), hint


@pytest.mark.parametrize(
    ("order", "key"),
    [
        ("json.width desc", lambda n: -n),
        ("cls, json.width desc", lambda n: (of(n) is None, of(n) or 0, -n)),
        ("json.score desc", lambda n: (n % 3 > 0, -n if n % 3 == 0 else 0)),
        ("weight desc", lambda n: (n % 4 == 0, -n if n % 4 else 0)),
        ("weight nulls first", lambda n: (n % 4 > 0, n if n % 4 else 0)),
        ("key", lambda n: SAMPLES[n]["__key__"]),
        ("length(json.tags) desc, key desc", lambda n: (-(n % 3), n % 2 == 0 and 1, -n)),
    ],
)  # fmt: skip
def test_orders(dataset: Any, order: str, key: Callable[[int], Any]) -> None:
    """Nulls are last, and equal ones keep their order."""
    if "key desc" in order:
        wanted = sorted(range(COUNT), key=lambda n: SAMPLES[n]["__key__"], reverse=True)
        wanted.sort(key=lambda n: -(n % 3))
    else:
        wanted = sorted(range(COUNT), key=key)
    assert [int(each[-4:]) for each in dataset.order_by(order).keys] == wanted


def test_a_condition_is_kept_as_a_note(dataset: Any) -> None:
    """A view says how it was made, also when it is saved."""
    view = dataset.filter("cls = 3").order_by("json.width desc")
    assert view.made[-2:] == ("filter('cls = 3')", "order_by('json.width desc')")


# Random conditions: SQL of three truth values against Python's.
Value = tuple[str, Callable[[int], Any]]
NUMBERS: list[Value] = [
    ("cls", of),
    ("json.width", lambda n: 100 * n),
    ("json.score", lambda n: n / 8 if n % 3 == 0 else None),
    ("weight", lambda n: None if n % 4 == 0 else n / 2),
    ("json.rare", lambda n: n if n > 20 else None),
    ("png.width", lambda n: n + 1),
]
TEXTS: list[Value] = [
    ("json.lang", lambda n: LANGUAGES[n % 3]),
    ("txt", lambda n: f"it's {n}" if n % 3 else None),
    ("key", lambda n: SAMPLES[n]["__key__"]),
]
COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    ">=": lambda a, b: a >= b,
}
Truth = tuple[str, Callable[[int], bool | None]]


def comparison(value: Value, operator: str, other: Any) -> Truth:
    name, at = value
    compare = COMPARE[operator]
    text = repr(other) if not isinstance(other, str) else "'" + other.replace("'", "''") + "'"

    def holds(n: int) -> bool | None:
        found = at(n)
        return None if found is None else compare(found, other)

    return f"{name} {operator} {text}", holds


def both(one: Truth, other: Truth) -> Truth:
    def holds(n: int) -> bool | None:
        found = {one[1](n), other[1](n)}
        return False if False in found else None if None in found else True

    return f"({one[0]} and {other[0]})", holds


def negated(one: Truth) -> Truth:
    def holds(n: int) -> bool | None:
        found = one[1](n)
        return None if found is None else not found

    return f"not {one[0]}", holds


def unknown(value: Value) -> Truth:
    return f"{value[0]} is null", lambda n: value[1](n) is None


compared = st.one_of(
    st.builds(
        comparison,
        st.sampled_from(NUMBERS),
        st.sampled_from(list(COMPARE)),
        st.integers(-1, 5) | st.sampled_from([0.5, 1500, 21]),
    ),
    st.builds(
        comparison,
        st.sampled_from(TEXTS),
        st.sampled_from(list(COMPARE)),
        st.sampled_from(["de", "it's 5", "train/0011", ""]),
    ),
    st.builds(unknown, st.sampled_from(NUMBERS + TEXTS)),
)
conditions = st.recursive(
    compared,
    lambda inner: st.builds(both, inner, inner) | st.builds(negated, inner),
    max_leaves=6,
)


@settings(deadline=None, max_examples=60)
@given(conditions)
def test_random_conditions(dataset: Any, condition: Truth) -> None:
    """A comparison with what is missing is neither true nor false."""
    text, holds = condition
    found = [int(key[-4:]) for key in dataset.filter(text).keys]
    assert found == [n for n in range(COUNT) if holds(n)], text


def test_commands_take_the_same_conditions(
    dataset: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What they refuse is one line."""
    from wids.cli import main

    folder = dataset.slots[0].sources[0].leaf.source
    out = str(tmp_path / "some.json")
    options = ["--where", "json.width >= 2000", "--order-by", "json.width desc", "-o", out]
    assert main(["select", str(folder), *options]) == 0
    assert [sample[".json"]["width"] for sample in wids.open(out)] == [2300, 2200, 2100, 2000]
    for option in (["--where", "(select 1) = 1"], ["--order-by", "key; drop table x"]):
        assert main(["select", str(folder), *option, "-o", str(tmp_path / "x.json")]) == 1
        assert capsys.readouterr().err.splitlines()[-1].startswith("wids: ")
