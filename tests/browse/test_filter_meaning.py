"""Filters have the meaning of the same expression in Python."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from wids.views.filtering import plain_value
from wids.views.filterlanguage import (
    MISSING,
    OPERATORS,
    Comparison,
    comparisons_of,
    evaluate,
    in_quotes,
    parse_filter,
    split_column,
    with_class_names,
)

# A filter and the same condition in Python, whose `and`, `or`, `not` and parentheses bind alike.
Pair = tuple[str, str]

NUMBERS = st.integers(-5, 5) | st.sampled_from([0.5, -1.25, 3.0])
WORDS = st.sampled_from(["cat", "dog", "a", "ab", "Tom", "on a mat"])
SAMPLES = st.fixed_dictionaries({"n": NUMBERS, "m": NUMBERS, "s": WORDS, "t": WORDS})


def quoted(text: str) -> str:
    return f"'{text}'"


def comparison_of_numbers() -> st.SearchStrategy[Pair]:
    """Compare a number of the sample with a number."""
    return st.builds(
        lambda name, symbol, number: (
            f".json:{name} {symbol} {number}",
            f"sample[{name!r}] {symbol} {number}",
        ),
        st.sampled_from("nm"),
        st.sampled_from(["==", "!=", "<", "<=", ">", ">="]),
        NUMBERS,
    )


def comparison_of_texts() -> st.SearchStrategy[Pair]:
    """Compare a text of the sample with a text."""
    return st.builds(
        lambda name, symbol, word: (
            f".json:{name} {symbol} {quoted(word)}",
            f"{quoted(word)} in sample[{name!r}]"
            if symbol == "contains"
            else f"sample[{name!r}] {symbol} {quoted(word)}",
        ),
        st.sampled_from("st"),
        st.sampled_from(["==", "!=", "<", "<=", ">", ">=", "contains"]),
        WORDS,
    )


def choice_of_several() -> st.SearchStrategy[Pair]:
    """Look for a value of the sample among several."""

    def pair(name: str, values: list[Any]) -> Pair:
        return (
            f".json:{name} in ({', '.join(map(repr, values))})",
            f"sample[{name!r}] in ({', '.join(map(repr, values))},)",
        )

    numbers = st.builds(pair, st.sampled_from("nm"), st.lists(NUMBERS, min_size=1, max_size=3))
    texts = st.builds(pair, st.sampled_from("st"), st.lists(WORDS, min_size=1, max_size=3))
    return numbers | texts


def joined(parts: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
    """Join conditions without redundant parentheses."""
    two = st.tuples(parts, st.sampled_from([" and ", " or "]), parts).map(
        lambda drawn: (drawn[0][0] + drawn[1] + drawn[2][0], drawn[0][1] + drawn[1] + drawn[2][1])
    )
    return st.one_of(
        two,
        parts.map(lambda pair: ("not " + pair[0], "not " + pair[1])),
        parts.map(lambda pair: (f"({pair[0]})", f"({pair[1]})")),
    )


CONDITIONS = st.recursive(
    comparison_of_numbers() | comparison_of_texts() | choice_of_several(), joined, max_leaves=8
)


def truth(text: str, sample: dict[str, Any]) -> bool:
    """Return the result of a filter for a sample with one JSON field."""
    found = plain_value(".json", json.dumps(sample).encode())
    return bool(evaluate(parse_filter(text), lambda each: each.holds(found)))


@given(CONDITIONS, SAMPLES)
def test_filters_mean_what_python_means(pair: Pair, sample: dict[str, Any]) -> None:
    """Comparisons, precedence and parentheses are those of Python."""
    filter_text, python = pair
    assume(len(filter_text) <= 1000)
    assert truth(filter_text, sample) == eval(python, {"sample": sample})


@given(CONDITIONS, st.data())
def test_blanks_do_not_change_the_meaning(pair: Pair, data: st.DataObject) -> None:
    """Any white space outside of quotes is equivalent to one blank."""
    text = pair[0]
    pieces = text.split("'")
    for place in range(0, len(pieces), 2):  # those between quotes stay
        gap = data.draw(st.sampled_from([" ", "  ", "\t", "\n "]))
        pieces[place] = pieces[place].replace(" ", gap)
    assume(sum(map(len, pieces)) < 900)
    assert parse_filter("'".join(pieces)) == parse_filter(text)


@given(CONDITIONS)
def test_comparisons_are_listed_from_left_to_right(pair: Pair) -> None:
    """Each comparison is listed once, in the order of the text."""
    condition = parse_filter(pair[0])
    listed = [each.path[0] for each in comparisons_of(condition)]
    assert listed == [piece[0] for piece in pair[0].split(".json:")[1:]]


@given(CONDITIONS, st.lists(SAMPLES, min_size=1, max_size=6))
def test_whole_columns_give_what_samples_give(pair: Pair, samples: list[dict[str, Any]]) -> None:
    """A filter gives the same result by columns as by samples."""
    condition = parse_filter(pair[0])
    together = evaluate(
        condition, lambda each: np.array([each.holds(sample) for sample in samples])
    )
    assert together.tolist() == [truth(pair[0], sample) for sample in samples]


INTEGERS = st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3)
VALUES = INTEGERS | st.integers(-(2**80), 2**80) | st.floats(allow_nan=False)
NUMERIC = sorted(each for each in OPERATORS if OPERATORS[each].of_column is not None)


@given(st.lists(st.integers(-(2**53), 2**53)), st.sampled_from(NUMERIC), st.lists(VALUES))
def test_columns_of_integers_compare_as_single_integers(
    column: list[int], symbol: str, values: list[Any]
) -> None:
    """Numbers beyond 64 bits compare with a column as with its elements."""
    assume(values)
    value = tuple(values) if symbol == "in" else values[0]
    comparison = Comparison(".cls", (), symbol, value)
    assert comparison.is_numeric
    found = comparison.holds_each(np.array(column, np.int64))
    assert found.tolist() == [comparison.holds(each) for each in column]


@given(st.lists(st.floats()), st.sampled_from(NUMERIC), st.floats(allow_nan=False))
def test_columns_of_floats_compare_as_single_floats(
    column: list[float], symbol: str, value: float
) -> None:
    """NaN and infinities in a column compare as single values."""
    comparison = Comparison(".score", (), symbol, (value,) if symbol == "in" else value)
    found = comparison.holds_each(np.array(column, np.float64))
    assert found.tolist() == [comparison.holds(each) for each in column]


@pytest.mark.parametrize(
    ("text", "numeric"),
    [
        (".cls == 3", True), (".cls in (1, 2.5)", True), (".cls == true", False),
        (".cls == null", False), (".cls == cat", False), (".cls in (1, cat)", False),
        (".cls contains 3", False), (".cls == '3'", False),
    ],
)  # fmt: skip
def test_only_comparisons_with_numbers_can_use_columns(text: str, numeric: bool) -> None:
    """Booleans and texts are compared sample by sample."""
    (comparison,) = comparisons_of(parse_filter(text))
    assert comparison.is_numeric is numeric


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        ("3", 3), ("-2", -2), ("1e3", 1000.0), ("0.5", 0.5), ("true", True), ("null", None),
        ("NaN", "NaN"), ("Infinity", "Infinity"), ("007", "007"), ("1.", 1.0), ("'3'", "3"),
        (".5", 0.5), ("+2", 2), ("1_0", "1_0"), ("0x10", "0x10"), ("True", True), ("None", None),
        ('"true"', "true"), ("''", ""), ("n01440764", "n01440764"), ("a-b/c.d", "a-b/c.d"),
        ("[1]", "[1]"), ("{}", "{}"),
    ],
)  # fmt: skip
def test_values_are_read_as_numbers_or_as_text(typed: str, value: Any) -> None:
    """A quoted value is text, and a value that is no number is text."""
    comparison = parse_filter(f".json == {typed}")
    assert isinstance(comparison, Comparison)
    assert (comparison.value, type(comparison.value)) == (value, type(value))


QUOTING = st.text(st.sampled_from("""'"'" a.:()=,\\\n\u00e9""") | st.characters(), max_size=20)


def written_in(quote: str, text: str) -> str:
    """Write a text as SQL does, in which the quote is written twice."""
    return quote + text.replace(quote, quote + quote) + quote


@given(
    QUOTING,
    QUOTING,
    QUOTING,
    st.sampled_from(["==", "!=", "<", "<=", ">", ">=", "contains", "in", "not in"]),
    st.sampled_from(["'", '"']),
)
def test_texts_with_any_quotes_compare_as_python_compares_them(
    key: str, there: str, asked: str, symbol: str, quote: str
) -> None:
    """Within quotes of either kind, the same quote written twice stands for itself."""
    python = {
        "==": there == asked, "!=": there != asked, "<": there < asked, "<=": there <= asked,
        ">": there > asked, ">=": there >= asked, "contains": asked in there,
        "in": there in (asked, "x"), "not in": there not in (asked, "x"),
    }  # fmt: skip
    value = written_in(quote, asked)
    value = f"({value}, {written_in(quote, 'x')})" if symbol.endswith("in") else value
    assume(key)
    for name in (written_in(quote, key), in_quotes(key)):
        condition = parse_filter(f".json:{name} {symbol} {value} and .json:z != 'it''s'")
        assert bool(evaluate(condition, lambda each: each.holds({key: there}))) is python[symbol]
        assert split_column(f".json:{name}") == (".json", (key,))
        field = name[0] + "." + name[1:]
        found = parse_filter(f"{field} == {in_quotes(asked)}")
        assert found == Comparison(f".{key}", (), "==", asked)
        assert split_column(field) == (f".{key}", ())


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        ("''", ""), ("""'a "b" c'""", 'a "b" c'), ('"it\'s"', "it's"), ("it's", "it's"),
        ('5"', '5"'), (r"'C:\dir'", r"C:\dir"), (r"'\'", "\\"), ("\"''\"", "''"),
    ],
)  # fmt: skip
def test_quotes_that_are_written_once_mean_what_they_meant(typed: str, value: str) -> None:
    """A text without its own quote is what stands in the quotes, and a backslash is a letter."""
    for text in (typed, f"{typed} and key != 'x'", f"{typed} or .txt == ''"):
        first = comparisons_of(parse_filter(f".json:a == {text}"))[0]
        assert first.value == value


@pytest.mark.parametrize("typed", ["'it's'", "'''", "'a'''b'", '"""', "'a' 'b'", "'a'\"b\""])
def test_quotes_without_an_end_are_refused(typed: str) -> None:
    """A quote that is neither written twice nor the end of its text is no filter."""
    with pytest.raises(ValueError, match="cannot read"):
        parse_filter(f".json:a == {typed}")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", min_size=1), inner),
    max_leaves=8,
)


def walk(value: Any, steps: list[str]) -> Any:
    """Follow a path into a JSON value."""
    for step in steps:
        try:
            value = value[int(step)] if isinstance(value, list) else value[step]
        except (LookupError, TypeError, ValueError):
            return MISSING
    return value


@given(JSON, st.lists(st.sampled_from(["a", "b", "ab", "0", "1", "2"]), min_size=1, max_size=3))
def test_paths_lead_where_python_would_go(value: Any, steps: list[str]) -> None:
    """A path follows keys of objects and indexes of lists, or finds nothing."""
    comparison = parse_filter(f".json:{'.'.join(steps)} != null")
    assert isinstance(comparison, Comparison)
    there = walk(value, steps)
    assert comparison.path == tuple(steps)
    assert comparison.follow(value) is there
    assert comparison.holds(value) is (there is not None and there is not MISSING)
    assert Comparison(".json", comparison.path, "==", None).holds(value) is not comparison.holds(
        value
    )


NAMES = {1: "cat", 2: "dog", 3: "cat"}  # two numbers of one name


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (".cls == cat", {1, 3}), (".cls != cat", {2}), (".cls in (cat, 2)", {1, 2, 3}),
        ("not .cls == cat", {2}), (".cls contains a", {1, 3}),
        (".cls == 2 or .cls == cat", {1, 2, 3}),
        (".cls < cat", set()), (".cls:deep == cat", set()), (".other == cat", set()),
    ],
)  # fmt: skip
def test_each_number_of_a_name_is_meant(text: str, expected: set[int]) -> None:
    """A name that two classes share matches both; `<` and paths take no names."""
    condition = with_class_names(parse_filter(text), lambda field: field == ".cls", NAMES)
    found = {n for n in NAMES if evaluate(condition, lambda each, n=n: each.holds(n))}
    assert found == expected


@pytest.mark.parametrize("depth", [10, 49])
def test_nesting_is_read_up_to_its_bound(depth: int) -> None:
    """Parentheses and `not` may be nested up to a bound."""
    assert truth("(" * depth + ".json:a == 1" + ")" * depth, {"a": 1})
    assert truth("not " * depth + ".json:a == 1", {"a": 1}) is (depth % 2 == 0)


def test_an_error_shows_where_reading_stopped() -> None:
    """The error shows a part of the remaining text."""
    with pytest.raises(ValueError, match=r"cannot read '\)\) trailing'"):
        parse_filter("(.a == 1 and .b == 2))) trailing")
    with pytest.raises(ValueError, match=r"cannot read '\(the end\)'"):
        parse_filter(".a == 1 and ")
