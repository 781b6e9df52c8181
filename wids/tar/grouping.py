"""Grouping of tar members into samples by their keys and extensions.

The key of `train/0001.seg.png` is `train/0001`, its extension `.seg.png`: the name is cut at the
first dot of its last component, or at the last dot if `key_rule` is "last_dot". There are two
implementations. The fast one handles all names at once, if each sample's members are neighbours.
The slow one goes name by name, for all other shards and for errors.

`merged_sample` looks for samples that a dot in their keys has merged into one.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from wids.errors import ShardFormatError
from wids.tar.nametable import META, NameTable

if TYPE_CHECKING:
    import os

__all__ = [
    "DOTTED_KEYS",
    "Grouping",
    "KeyRule",
    "SampleTable",
    "group_members",
    "merged_sample",
    "split_name",
]

KeyRule = Literal["first_dot", "last_dot"]
Grouping = Literal["adjacent", "shard"]
_Integers = NDArray[np.int64]

# What to do about samples that a dot in their keys has merged.
DOTTED_KEYS = (
    'if so, key_rule="last_dot" (--key-rule last_dot) reads them as such; if not, '
    'key_rule="first_dot" says so'
)
# All that is looked at of a shard for them, so that opening it takes no longer.
_MOST_SETS, _MOST_SAMPLES, _MOST_NBYTES = 64, 1 << 14, 1 << 16
_MANY = 8  # fields of one sample that end alike
_NUMBERED = re.compile(rb"\.[0-9]+\.")
_NAMED = re.compile(rb"(\.[A-Za-z]{2}[^.]*)+\.[^.]*")  # as .left.jpg, a field also of one sample


@dataclass(frozen=True)
class SampleTable:
    """The samples of one shard; its members reordered so that a sample's fields are neighbours.

    Attributes:
        spans: Offset and size of each member in bytes: the fields of sample 0, of sample 1, and so
            on, then the members of no sample; shape `(num_members, 2)`.
        first_fields: Sample `i` has the rows `[first_fields[i], first_fields[i + 1])` of `spans`;
            shape `(num_samples + 1,)`.
        keys: The keys end to end.
        key_starts: Key `i` is `keys[key_starts[i] : key_starts[i + 1]]`; shape
            `(num_samples + 1,)`.
        extension_sets: The distinct tuples of extensions, in order of appearance.
        set_ids: Index of the tuple of each sample; shape `(num_samples,)`.
        order: Row of `spans` that holds each member, in archive order; None where rows are in
            archive order already; shape `(num_members,)`.
        other_names: Names of the members of no sample, each ended by a zero byte.
        skipped: Number of members in no sample, by reason.
    """

    spans: _Integers
    first_fields: _Integers
    keys: bytes
    key_starts: _Integers
    extension_sets: list[tuple[bytes, ...]]
    set_ids: _Integers
    order: _Integers | None
    other_names: bytes
    skipped: dict[str, int]


def split_name(name: bytes, key_rule: KeyRule = "first_dot") -> tuple[bytes, bytes] | str:
    """Split a member's name into key and extension, or return why it belongs to no sample.

    Args:
        name: The name as stored.
        key_rule: Dot of the last path component to cut at.

    Returns:
        `(key, extension)`, the extension with its dot; or the reason: `"no extension"`,
        `"hidden"` (`.nfs01.jpg`) or `"meta"` (`__meta__`, with any word inside, is a component).

    >>> split_name(b"train/0001.seg.png"), split_name(b"v1.2/a.b.jpg", "last_dot")
    ((b'train/0001', b'.seg.png'), (b'v1.2/a.b', b'.jpg'))
    >>> split_name(b"README"), split_name(b"a/.index"), split_name(b"__meta__/x.json")
    ('no extension', 'hidden', 'meta')
    """
    base = name.rfind(b"/") + 1
    if b"__" in name and META.search(name):
        return "meta"
    if name.startswith(b".", base):
        return "hidden"
    dot = name.find(b".", base) if key_rule == "first_dot" else name.rfind(b".", base)
    if dot < 0 or dot == len(name) - 1:
        return "no extension"
    return name[:dot], name[dot:]


def group_members(
    packed_names: bytes,
    spans: _Integers,
    shard: str | os.PathLike[str],
    *,
    key_rule: KeyRule = "first_dot",
    grouping: Grouping = "adjacent",
) -> SampleTable:
    r"""Group a shard's members into samples.

    Args:
        packed_names: The members' names in archive order, each ended by a zero byte.
        spans: Offset and size of each, bytes; shape `(num_members, 2)`.
        shard: Name of the shard in messages.
        key_rule: Dot of a name to cut at.
        grouping: `"adjacent"`: a sample is a run of members with one key, and it is an error if the
            key occurs again later. `"shard"`: all members with one key are a sample; samples are
            in the order of their first members.

    Raises:
        ShardFormatError: Two members of one sample have the same extension, or members of one
            sample are apart (with `grouping="adjacent"`); the message names both members.
        ValueError: No such rule or grouping.

    >>> table = group_members(b"a.txt\0a.cls\0b.txt\0", np.zeros((3, 2), np.int64), "x.tar")
    >>> table.keys, table.first_fields.tolist(), table.extension_sets
    (b'ab', [0, 2, 3], [(b'.txt', b'.cls'), (b'.txt',)])
    """
    if key_rule not in ("first_dot", "last_dot"):
        raise ValueError(f"key_rule must be 'first_dot' or 'last_dot', got {key_rule!r}")
    if grouping not in ("adjacent", "shard"):
        raise ValueError(f"grouping must be 'adjacent' or 'shard', got {grouping!r}")
    # In nearly every shard the members of a sample are neighbours; the fast way then makes no
    # object for each name. Only the slow way can name the two members of an error.
    table = _group_at_once(packed_names, spans, key_rule)
    if table is None:
        names = packed_names.split(b"\0")[:-1]
        skipped: Counter[str] = Counter()
        samples: dict[bytes, dict[bytes, int]] = {}
        others: list[int] = []
        last_key: bytes | None = None
        for number, name in enumerate(names):
            parts = split_name(name, key_rule)
            if isinstance(parts, str):
                skipped[parts] += 1
                others.append(number)
                continue
            key, extension = parts
            fields = samples.setdefault(key, {})
            # Duplicates are checked first, because the message "members are apart" would mislead
            # there.
            earlier = fields.get(extension)
            if earlier is None and fields and key != last_key and grouping == "adjacent":
                earlier = next(reversed(fields.values()))
            if earlier is not None:
                raise ShardFormatError(_clash(shard, names, spans, earlier, number))
            fields[extension] = number
            last_key = key
        rows = np.array(
            [p for fields in samples.values() for p in fields.values()] + others, np.int64
        )
        sets: dict[tuple[bytes, ...], int] = {}
        set_ids = [sets.setdefault(tuple(fields), len(sets)) for fields in samples.values()]
        table = SampleTable(
            spans=spans[rows],
            first_fields=np.cumsum([0, *map(len, samples.values())]),
            keys=b"".join(samples),
            key_starts=np.cumsum([0, *map(len, samples)]),
            extension_sets=list(sets),
            set_ids=np.array(set_ids, np.int64),
            order=_order(rows),
            other_names=b"".join(names[number] + b"\0" for number in others),
            skipped=skipped,
        )
    return table


def _group_at_once(packed: bytes, spans: _Integers, key_rule: KeyRule) -> SampleTable | None:
    """Group members whose samples are runs with distinct keys, or return None if they are not."""
    # All names are cut at once, by arrays of starts, dots and ends, without a string for each.
    names = NameTable(packed)
    kept, dots = names.split(key_rule == "first_dot")
    rows = np.flatnonzero(kept)
    others = np.flatnonzero(~kept)
    starts, dots, ends = names.starts[rows], dots[rows], names.ends[rows]
    # A sample begins where the key differs from the previous one.
    firsts = np.flatnonzero(~names.repeated(starts, dots))
    first_fields = np.append(firsts, len(rows))
    extensions, labels = names.distinct(dots, ends)
    sets, set_ids = _distinct_runs(labels, first_fields)
    key_starts, key_ends = starts[firsts], dots[firsts]
    # Either an error, whose two members the slow way names, or a shard for the other grouping.
    if any(len(set(run)) < len(run) for run in sets) or names.any_equal(key_starts, key_ends):
        return None
    other_names = [names.name(row) for row in others.tolist()]
    return SampleTable(
        spans=np.concatenate((spans[rows], spans[others])) if len(others) else spans,
        first_fields=first_fields,
        keys=names.joined(key_starts, key_ends),
        key_starts=np.concatenate(([0], np.cumsum(key_ends - key_starts))),
        extension_sets=[tuple(extensions[label] for label in run) for run in sets],
        set_ids=set_ids,
        order=_order(np.concatenate((rows, others))) if len(others) else None,
        other_names=b"".join(name + b"\0" for name in other_names),
        skipped=Counter(str(split_name(name, key_rule)) for name in other_names),
    )


def _distinct_runs(labels: _Integers, bounds: _Integers) -> tuple[list[list[int]], _Integers]:
    """Return the distinct runs of labels between bounds, and the number of each run among them."""
    num_runs = len(bounds) - 1
    length = len(labels) // num_runs if num_runs else 0
    if num_runs and len(labels) == num_runs * length and (np.diff(bounds) == length).all():
        # Fast path: most shards have the same fields in every sample.
        table = labels.reshape(num_runs, length)
        if (table == table[0]).all():
            return [table[0].tolist()], np.zeros(num_runs, np.int64)
    # As keys of a dict, the bytes of a run are cheaper than a tuple of its labels.
    packed = labels.tobytes()
    edges = (bounds * labels.itemsize).tolist()
    ids: dict[bytes, int] = {}
    set_ids = [
        ids.setdefault(packed[start:end], len(ids)) for start, end in itertools.pairwise(edges)
    ]
    return [np.frombuffer(run, labels.dtype).tolist() for run in ids], np.array(set_ids, np.int64)


def _order(rows: _Integers) -> _Integers | None:
    """Return the row of each member, given the member of each row; None if they are equal."""
    return None if (np.diff(rows) > 0).all() else np.argsort(rows)


def _clash(
    shard: str | os.PathLike[str], names: list[bytes], spans: _Integers, earlier: int, later: int
) -> str:
    first, second = (
        f"{names[number].decode('utf-8', 'replace')!r} with data at byte {spans[number, 0]}"
        for number in (earlier, later)
    )
    if names[earlier] == names[later]:
        return (
            f"{shard}: two members for one field: {first} and {second}; expected distinct names: "
            "pack the shard again"
        )
    return (
        f"{shard}: members of one sample are apart: {first} and {second}, with other samples "
        "between; expected neighbours: pack the shard in order, or group with grouping='shard' "
        "(--grouping shard)"
    )


def merged_sample(extension_sets: list[bytes], set_ids: NDArray[np.integer]) -> str:
    """Describe a sample that may be several, whose keys have dots; return "" if none is found.

    By the usual rule the key of `v1/img.0001.jpg` is `v1/img`, and so is that of `v1/img.0002.jpg`:
    both images become fields of one sample. Nothing in an archive tells such fields from the frames
    or views of one sample, but frames and views have the same names in each sample.

    Args:
        extension_sets: The distinct sets of extensions in a shard, each joined by `/`.
        set_ids: The set of each sample, by the usual rule.
    """
    sets = [names[:_MOST_NBYTES].split(b"/") for names in extension_sets[:_MOST_SETS]]
    in_sets = Counter(name for names in sets for name in names)
    for number, names in enumerate(sets):
        dotted = [name for name in names if name.count(b".") > 1]
        endings = Counter(name.rpartition(b".")[2] for name in dotted)
        alike = [name for name in dotted if endings[name.rpartition(b".")[2]] > 1]
        if not alike:
            continue
        (samples,) = np.nonzero(set_ids[:_MOST_SAMPLES] == number)
        alone = [name for name in alike if in_sets[name] == 1 == len(samples)]
        numbered = [name for name in alike if _NUMBERED.match(name)]
        if (
            # All of its fields have a dot, and no other sample has these.
            (len(alone) > 1 and len(dotted) == len(names) and not all(map(_NAMED.fullmatch, alone)))
            or len(alone) >= _MANY
            # As `cat.0.jpg` to `cat.999.jpg` beside `dog.0.jpg` to `dog.999.jpg`.
            or len(numbered) > max(_MANY, len(set_ids))
        ):
            shown = ", ".join(repr(name.decode("utf-8", "replace")[:80]) for name in alike[:2])
            more = f" and {len(alike) - 2} more" * (len(alike) > 2)
            where = f"sample {samples[0]} has" if len(samples) else "a sample has"
            return (
                f"{where} the fields {shown}{more}, which end alike, and may be several samples "
                "with dots in their keys"
            )
    return ""
