"""Grouping of members into samples: keys, extensions, skipped members and errors."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wids.errors import ShardFormatError
from wids.tar.grouping import group_members, split_name


def group(names, **options):
    """Group names whose data would be at 512, 1024, ...; return `{key: {extension: offset}}`."""
    packed = b"".join(name.encode() + b"\0" for name in names)
    spans = np.array([[512 * (i + 1), i] for i in range(len(names))], np.int64).reshape(-1, 2)
    table = group_members(packed, spans, "x.tar", **options)
    samples = {}
    for i, set_id in enumerate(table.set_ids.tolist()):
        first, last = table.first_fields[i : i + 2]
        key = table.keys[table.key_starts[i] : table.key_starts[i + 1]].decode()
        extensions = [e.decode() for e in table.extension_sets[set_id]]
        offsets = table.spans[first:last, 0].tolist()
        samples[key] = dict(zip(extensions, offsets, strict=True))
    return samples, table


@pytest.mark.parametrize(
    ("name", "rule", "parts"),
    [
        (b"a.jpg", "first_dot", (b"a", b".jpg")),
        (b"a.seg.png", "first_dot", (b"a", b".seg.png")),
        (b"a.seg.png", "last_dot", (b"a.seg", b".png")),
        (b"v1.0/a.jpg", "first_dot", (b"v1.0/a", b".jpg")),
        (b"./a.JPG", "first_dot", (b"./a", b".JPG")),
        (b"v1.0/a", "first_dot", "no extension"),
        (b"a.", "first_dot", "no extension"),
        (b"", "first_dot", "no extension"),
        (b"x/.hidden.jpg", "last_dot", "hidden"),
        (b"__meta__/a.jpg", "first_dot", "meta"),
        (b"__meta__", "first_dot", "meta"),
        (b"./__meta__/a.jpg", "first_dot", "meta"),
        (b"train/__old__/a.jpg", "last_dot", "meta"),
        (b"d/__x__", "first_dot", "meta"),
        (b"____/a.jpg", "first_dot", "meta"),
        (b"__init__.py", "first_dot", (b"__init__", b".py")),
        (b"a__b__/c.jpg", "first_dot", (b"a__b__/c", b".jpg")),
        (b"__/c.jpg", "first_dot", (b"__/c", b".jpg")),
        (b"___/c.jpg", "first_dot", (b"___/c", b".jpg")),
        (b"_a.jpg", "first_dot", (b"_a", b".jpg")),
    ],
)
def test_split_name(name, rule, parts):
    """A name is split at the right dot of its last component, or the reason is returned."""
    assert split_name(name, rule) == parts


def test_skipped_members_are_counted_and_kept_apart():
    """Members of no sample are counted by reason and do not split a sample."""
    samples, table = group(["README", "a.jpg", ".DS_Store", "a.txt", "__meta__/x.json"])
    assert samples == {"a": {".jpg": 1024, ".txt": 2048}}
    assert table.skipped == {"no extension": 1, "hidden": 1, "meta": 1}
    assert table.other_names == b"README\0.DS_Store\0__meta__/x.json\0"
    assert table.spans[table.order, 0].tolist() == [512, 1024, 1536, 2048, 2560]


def test_interleaved_samples_are_an_error_that_names_both_places():
    """Separated members of one sample are an error, unless the whole shard is grouped."""
    names = ["a.jpg", "b.jpg", "a.txt", "b.txt"]
    with pytest.raises(
        ShardFormatError, match=r"'a.jpg'.* 512 and 'a.txt'.* 1536.*grouping='shard'"
    ):
        group(names)
    samples, table = group(names, grouping="shard")
    assert samples == {"a": {".jpg": 512, ".txt": 1536}, "b": {".jpg": 1024, ".txt": 2048}}
    assert table.spans[table.order, 0].tolist() == [512, 1024, 1536, 2048]


@pytest.mark.parametrize("grouping", ["adjacent", "shard"])
def test_doubled_members_are_an_error_that_names_both_places(grouping):
    """Two members for one field are an error that names both."""
    with pytest.raises(
        ShardFormatError, match=r"two members.*512 and 'a.jpg' with data at byte 1024"
    ):
        group(["a.jpg", "a.jpg", "b.jpg"], grouping=grouping)


short = st.text("ab._/1é", max_size=6)
key = st.text("ab1_é", min_size=1, max_size=20)


def by_hand(names, rule):
    """Group names one by one according to the rules; return None if they forbid it."""
    rows = [(split_name(name.encode(), rule), i) for i, name in enumerate(names)]
    rows = [(parts, i) for parts, i in rows if not isinstance(parts, str)]
    samples = {}
    for name_key, run in itertools.groupby(rows, key=lambda row: row[0][0]):
        fields = [(parts[1].decode(), 512 * (i + 1)) for parts, i in run]
        if name_key.decode() in samples or len(dict(fields)) < len(fields):
            return None
        samples[name_key.decode()] = dict(fields)
    return samples


@given(
    st.lists(st.one_of(short, st.builds("{}.{}".format, key, short))),
    st.sampled_from(["first_dot", "last_dot"]),
)
def test_any_names(names, rule):
    """Any names are grouped into the same samples as by a simple implementation of the rules."""
    names = [name for name in names if not name.endswith("/")]
    expected = by_hand(names, rule)
    if expected is None:
        with pytest.raises(ShardFormatError):
            group(names, key_rule=rule)
    else:
        assert group(names, key_rule=rule)[0] == expected
