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
from hashlib import blake2b
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from wids.errors import ShardFormatError

if TYPE_CHECKING:
    import os

__all__ = [
    "DOTTED_KEYS",
    "Grouping",
    "KeyRule",
    "NameTable",
    "SampleTable",
    "group_members",
    "merged_sample",
    "split_name",
]

# A path component between double underscores; each name ends in a zero byte or at the end.
_META = re.compile(rb"(?<![^/\0])__[^/\0]*__(?![^/\0])")

_Integers = NDArray[np.int64]
_Flags = NDArray[np.bool_]
_Words = NDArray[np.uint64]

# With more distinct values than this, a dict is faster than one array comparison for each value.
_FEW = 32
# Longer strings are few and are compared whole. To compare eight bytes of all strings at a time is
# fast for many short strings, but takes seconds for one name of a megabyte.
_LONG_NBYTES = 4096
_MIX = np.uint64(0x9E3779B97F4A7C15)
_SHIFTS = np.array([56, 56, 48, 40, 32, 24, 16, 8, 0], np.uint64)


KeyRule = Literal["first_dot", "last_dot"]
Grouping = Literal["adjacent", "shard"]

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
    if b"__" in name and _META.search(name):
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


class NameTable:
    r"""Table of names, each ended by a zero byte, in one buffer; compared eight bytes at a time.

    All names of a shard are handled at once, without a Python object for each. Strings are given by
    two arrays: their starts and ends in the buffer.

    Attributes:
        starts: First byte of each name; shape `(num_names,)`.
        ends: Its zero byte; shape `(num_names,)`.

    >>> table = NameTable(b"a.txt\0a.cls\0")
    >>> table.starts.tolist(), table.ends.tolist(), table.name(1)
    ([0, 6], [5, 11], b'a.cls')
    """

    def __init__(self, packed: bytes) -> None:
        self._packed = packed
        self._bytes = np.frombuffer(packed, np.uint8)
        self.ends = np.flatnonzero(self._bytes == 0)
        self.starts = np.concatenate((self.ends[:0], [0], self.ends[:-1] + 1))[: len(self.ends)]
        # Word `i` is the bytes [i, i + 8): words overlap, and the last ones need padding.
        self._words: _Words = np.ndarray((len(packed),), "<u8", packed + bytes(8), 0, (1,))

    def name(self, row: int) -> bytes:
        """Return one name."""
        return self._packed[self.starts[row] : self.ends[row]]

    def split(self, at_first_dot: bool) -> tuple[_Flags, _Integers]:
        """Find the dot between key and extension in the last component of each name.

        Returns:
            `(kept, dots)`, both of shape `(num_names,)`: whether a name has such a dot, with text
            on both sides, and no component like `__meta__`; and the position of the dot.
        """
        bases = self._bases()
        dots = self._dots(bases, at_first_dot)
        kept = (self._bytes[bases] != ord(".")) & (dots > bases) & (dots + 1 < self.ends)
        # Plain searches take a hundredth of the time of one with the pattern, and a search for one
        # byte a tenth of theirs.
        packed = self._packed
        if b"_" in packed and (b"__/" in packed or b"__\0" in packed):
            for found in _META.finditer(packed):
                kept[self.ends.searchsorted(found.start())] = False
        return kept, dots

    def _bases(self) -> _Integers:
        """Return where the last component of each name begins."""
        slashes = np.flatnonzero(self._bytes == ord("/"))
        table = self._by_name(slashes)
        if table is not None:
            return table[:, -1] + 1 if table.size else self.starts
        # With the sentinel, a search never leaves the array. A position found in another name is
        # recognised by the bounds of this name.
        slashes = np.append(-1, slashes)
        bases: _Integers = slashes[slashes.searchsorted(self.ends) - 1] + 1
        return np.maximum(self.starts, bases)

    def _dots(self, bases: _Integers, at_first_dot: bool) -> _Integers:
        """Return the first or last dot of each name from a position on; if none, any number."""
        dots = np.flatnonzero(self._bytes == ord("."))
        table = self._by_name(dots)
        if table is not None and table.size:
            column: _Integers = table[:, 0 if at_first_dot else -1]
            # If folders have dots, the first one may be theirs.
            if table.shape[1] == 1 or not at_first_dot or (column >= bases).all():
                return column
        dots = np.concatenate(([-1], dots, [len(self._bytes)]))  # sentinels, as above
        return dots[dots.searchsorted(bases) if at_first_dot else dots.searchsorted(self.ends) - 1]

    def _by_name(self, positions: _Integers) -> _Integers | None:
        """Return ascending positions, one row per name; None if their numbers differ."""
        # Names of one shard are alike; then no position has to be searched for.
        if not len(self.ends) or len(positions) % len(self.ends):
            return None
        table = positions.reshape(len(self.ends), -1)
        within = (table[:, :1] >= self.starts[:, None]) & (table[:, -1:] < self.ends[:, None])
        return table if within.all() else None

    def repeated(self, starts: _Integers, ends: _Integers) -> _Flags:
        """Return which strings equal the previous one."""
        lengths = ends - starts
        equal = np.zeros(len(starts), np.bool_)
        # Most pairs differ in length or, where keys are counted, in the last byte.
        lasts = self._bytes[np.maximum(ends, 1) - 1]
        alike = (lasts[1:] == lasts[:-1]) | (lengths[1:] == 0)
        rows = 1 + np.flatnonzero(alike & (lengths[1:] == lengths[:-1]))
        equal[rows] = self._equal(starts[rows], starts[rows - 1], lengths[rows])
        return equal

    def distinct(self, starts: _Integers, ends: _Integers) -> tuple[list[bytes], _Integers]:
        """Return the distinct strings in order of appearance, and the label of each string."""
        # Each pass takes the first remaining string and labels all that equal it: a shard has few
        # extensions, so these are few passes over the arrays.
        labels = np.zeros(len(starts), np.int64)
        values: dict[bytes, int] = {}
        lengths = ends - starts
        # The first eight bytes distinguish most strings. They prove shorter strings equal, too,
        # because names hold no zero bytes.
        heads = self._words[starts] << _unwanted_bits(lengths)
        heads[lengths == 0] = 0
        rest = np.arange(len(starts))
        while len(rest) and len(values) < _FEW:
            first = rest[0]
            same = heads[rest] == heads[first]
            if lengths[first] >= 8:
                same &= lengths[rest] == lengths[first]
                like = rest[same]
                same[same] = self._equal(
                    starts[like], np.broadcast_to(starts[first], len(like)), lengths[like]
                )
            labels[rest[same]] = len(values)
            values[self._packed[starts[first] : ends[first]]] = len(values)
            rest = rest[~same]
        for row in rest.tolist():
            value = self._packed[starts[row] : ends[row]]
            labels[row] = values.setdefault(value, len(values))
        return list(values), labels

    def any_equal(self, starts: _Integers, ends: _Integers) -> bool:
        """Return whether any two of the strings are equal."""
        digests = np.sort(self._digests(starts, ends))
        if (digests[1:] != digests[:-1]).all():
            return False
        # Different strings may have equal digests, by chance or because an attacker chose them so.
        pairs = zip(starts.tolist(), ends.tolist(), strict=True)
        return len({self._packed[start:end] for start, end in pairs}) < len(starts)

    def joined(self, starts: _Integers, ends: _Integers) -> bytes:
        """Return the concatenation of the strings, which must not overlap."""
        if len(starts) > 1:
            start, step, length = (
                int(starts[0]),
                int(starts[1] - starts[0]),
                int(ends[0] - starts[0]),
            )
            # Fast path: names with numbers of fixed width, all of one length.
            if (starts[1:] - starts[:-1] == step).all() and (ends - starts == length).all():
                shape = len(starts), length
                return np.ndarray(shape, np.uint8, self._packed, start, (step, 1)).tobytes()
        # A running sum of +1 at starts and -1 at ends is 1 within the strings and 0 between them.
        steps = np.zeros(len(self._bytes) + 1, np.int8)
        steps[starts] = 1
        steps[ends] -= 1
        return self._bytes[np.cumsum(steps[:-1], dtype=np.int8).view(np.bool_)].tobytes()

    def _equal(self, starts: _Integers, other_starts: _Integers, lengths: _Integers) -> _Flags:
        """Return which strings equal their counterparts of the same length."""
        equal = np.ones(len(starts), np.bool_)
        packed = self._packed
        long = lengths > _LONG_NBYTES
        for row in np.flatnonzero(long).tolist():
            start, other, length = int(starts[row]), int(other_starts[row]), int(lengths[row])
            equal[row] = packed[start : start + length] == packed[other : other + length]
        rows = np.flatnonzero(~long)
        if len(rows) < len(starts):
            starts, other_starts, lengths = starts[rows], other_starts[rows], lengths[rows]
        while len(rows):
            # Only rows that are equal so far and longer than these eight bytes go on.
            differing = self._words[starts] ^ self._words[other_starts]
            same = (differing << _unwanted_bits(lengths)) == 0
            equal[rows] = same
            same &= lengths > 8
            if not same.any():
                break
            rows, lengths = rows[same], lengths[same] - 8
            starts, other_starts = starts[same] + 8, other_starts[same] + 8
        return equal

    def _digests(self, starts: _Integers, ends: _Integers) -> _Words:
        """Return a number for each string, equal for equal strings."""
        lengths = ends - starts
        digests = lengths.astype(np.uint64)
        long = lengths > _LONG_NBYTES
        for row in np.flatnonzero(long).tolist():
            value = self._packed[starts[row] : ends[row]]
            digests[row] = int.from_bytes(blake2b(value, digest_size=8).digest())
        rows = np.flatnonzero(~long)
        if len(rows) < len(starts):
            starts, lengths = starts[rows], lengths[rows]
        while len(rows):
            mixed = (digests[rows] ^ (self._words[starts] << _unwanted_bits(lengths))) * _MIX
            digests[rows] = mixed ^ (mixed >> np.uint64(31))
            more = lengths > 8
            rows, starts, lengths = rows[more], starts[more] + 8, lengths[more] - 8
        return digests


def _unwanted_bits(nbytes_left: _Integers) -> _Words:
    """Return the shift in bits that leaves the given number of bytes of a word."""
    return _SHIFTS.take(nbytes_left, mode="clip")
