"""Names in one buffer: whatever is asked of all of them at once is what Python says one by one."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from wids.tar.grouping import split_name
from wids.tar.nametable import NameTable

# Few letters, so that equal names, shared beginnings and lengths around a word of eight are common.
name = st.text("ab./_", max_size=20).map(str.encode)
names = st.lists(name, max_size=30)


def packed(strings):
    """Return a table of the strings, each ended by a zero byte."""
    return NameTable(b"".join(string + b"\0" for string in strings))


@given(names)
def test_names_are_found(strings):
    """Each name is cut where its zero bytes are."""
    table = packed(strings)
    assert [table.name(row) for row in range(len(table.starts))] == strings


@given(names)
def test_repeated(strings):
    """A string repeats the one before exactly when Python finds them equal."""
    table = packed(strings)
    expected = [i > 0 and strings[i] == strings[i - 1] for i in range(len(strings))]
    assert table.repeated(table.starts, table.ends).tolist() == expected


@given(names)
def test_distinct(strings):
    """Distinct strings come in order of appearance, with everyone's place among them."""
    table = packed(strings)
    values, labels = table.distinct(table.starts, table.ends)
    assert values == list(dict.fromkeys(strings))
    assert [values[label] for label in labels.tolist()] == strings


def test_very_many_distinct_strings():
    """Hundreds of distinct strings are told apart as well as a few."""
    strings = [b"%d" % (i * 7919 % 500) for i in range(2000)]
    table = packed(strings)
    values, labels = table.distinct(table.starts, table.ends)
    assert len(values) == 500
    assert [values[label] for label in labels.tolist()] == strings


@given(names)
def test_any_equal(strings):
    """Equal strings anywhere are noticed, and different ones never mistaken for equal."""
    strings = [string for string in strings if string]
    table = packed(strings)
    assert table.any_equal(table.starts, table.ends) == (len(set(strings)) < len(strings))


@given(st.lists(name.filter(bool), max_size=30), st.randoms(use_true_random=False))
def test_joined(strings, chance):
    """Any of the strings, in order, come one behind the other."""
    table = packed(strings)
    rows = np.array(sorted(chance.sample(range(len(strings)), len(strings) // 2)), np.int64)
    expected = b"".join(strings[row] for row in rows.tolist())
    assert table.joined(table.starts[rows], table.ends[rows]) == expected


@given(names, st.sampled_from(["first_dot", "last_dot"]))
def test_split(strings, rule):
    """Names are cut, or left out, just where the rule for one name does so."""
    table = packed(strings)
    kept, dots = table.split(rule == "first_dot")
    for row, string in enumerate(strings):
        parts = split_name(string, rule)
        assert bool(kept[row]) == (not isinstance(parts, str))
        if kept[row]:
            cut = int(dots[row] - table.starts[row])
            assert (string[:cut], string[cut:]) == parts


letters, lengths = st.sampled_from([b"a", b"b"]), st.integers(4090, 4110)
long_names = st.lists(
    st.builds(lambda letter, length, end: letter * length + end, letters, lengths, letters),
    max_size=6,
)


@settings(deadline=None, max_examples=50)
@given(long_names)
def test_long_strings_are_compared_as_short_ones_are(strings):
    """Strings around and above the length from which they are compared whole are told apart."""
    table = packed(strings)
    assert table.any_equal(table.starts, table.ends) == (len(set(strings)) < len(strings))
    values, labels = table.distinct(table.starts, table.ends)
    assert [values[label] for label in labels.tolist()] == strings
    repeats = [i > 0 and strings[i] == strings[i - 1] for i in range(len(strings))]
    assert table.repeated(table.starts, table.ends).tolist() == repeats


def test_names_of_a_megabyte():
    """Names as long as an extended header may make them are told apart by their last byte."""
    strings = [b"n" * (1 << 20) + b".%d" % (i % 3) for i in range(12)]
    table = packed(strings)
    values, labels = table.distinct(table.starts, table.ends)
    assert (len(values), labels.tolist()) == (3, [0, 1, 2] * 4)
    assert table.any_equal(table.starts, table.ends)
