"""Operations on all names of a buffer give the same results as Python on each name."""

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from wids.tar.grouping import NameTable, split_name

# Few letters, so that equal names, shared beginnings and lengths around a word of eight are common.
name = st.text("ab./_", max_size=20).map(str.encode)
names = st.lists(name, max_size=30)


def packed(strings):
    """Return a table of the strings, each ended by a zero byte."""
    return NameTable(b"".join(string + b"\0" for string in strings))


# Those around the length from which they are compared whole differ at one of their ends.
letters, lengths = st.sampled_from([b"a", b"b"]), st.integers(4090, 4110)
long_names = st.lists(
    st.builds(lambda letter, length, end: letter * length + end, letters, lengths, letters),
    max_size=6,
)


@given(names | long_names)
@example([b"%d" % (i * 7919 % 500) for i in range(2000)])
@example([b"n" * (1 << 20) + b".%d" % (i % 3) for i in range(12)])
def test_equal_strings(strings):
    """Strings, short and long, few and many, are equal, repeated and distinct as for Python."""
    table = packed(strings)
    assert [table.name(row) for row in range(len(table.starts))] == strings
    repeats = [i > 0 and strings[i] == strings[i - 1] for i in range(len(strings))]
    assert table.repeated(table.starts, table.ends).tolist() == repeats
    values, labels = table.distinct(table.starts, table.ends)
    assert values == list(dict.fromkeys(strings))
    assert [values[label] for label in labels.tolist()] == strings
    filled = packed(kept := [string for string in strings if string])
    assert filled.any_equal(filled.starts, filled.ends) == (len(set(kept)) < len(kept))


@given(st.lists(name.filter(bool), max_size=30), st.randoms(use_true_random=False))
def test_joined(strings, chance):
    """Any of the strings are concatenated in order."""
    table = packed(strings)
    rows = np.array(sorted(chance.sample(range(len(strings)), len(strings) // 2)), np.int64)
    expected = b"".join(strings[row] for row in rows.tolist())
    assert table.joined(table.starts[rows], table.ends[rows]) == expected


# Names as in most shards: of one pattern, so that each has its dots and slashes at the same places.
patterns = st.text("ab./_0", min_size=1, max_size=12)
alike = st.builds(
    lambda pattern, count: [pattern.replace("0", str(i % 10)).encode() for i in range(count)],
    patterns,
    st.integers(1, 25),
)


@given(names | alike, st.sampled_from(["first_dot", "last_dot"]))
def test_split(strings, rule):
    """Names are split or skipped as by the rule for a single name."""
    table = packed(strings)
    kept, dots = table.split(rule == "first_dot")
    for row, string in enumerate(strings):
        parts = split_name(string, rule)
        assert bool(kept[row]) == (not isinstance(parts, str))
        if kept[row]:
            cut = int(dots[row] - table.starts[row])
            assert (string[:cut], string[cut:]) == parts
