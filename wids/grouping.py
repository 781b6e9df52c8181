"""Members to samples: which members share a key, and under which extension each is a field.

The key of `train/0001.seg.png` is `train/0001`, its extension `.seg.png`: the name is cut at the
first dot of its last component (or at the last one, by the other rule).
"""

import os
from collections import Counter
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from wids.errors import ShardFormatError

__all__ = ["Grouping", "KeyRule", "SampleTable", "group_members", "split_name"]

KeyRule = Literal["first_dot", "last_dot"]
Grouping = Literal["adjacent", "shard"]


@dataclass(frozen=True)
class SampleTable:
    """The samples of one shard; its members reordered so that a sample's fields are neighbours.

    Attributes:
        spans: Offset and size of each member, bytes: the fields of sample 0, of sample 1, and so
            on, then the members of no sample; shape `(num_members, 2)`, int64.
        first_fields: Sample `i` has the rows `[first_fields[i], first_fields[i + 1])` of `spans`;
            shape `(num_samples + 1,)`, int64.
        keys: The keys, one behind the other.
        key_starts: Key `i` is `keys[key_starts[i] : key_starts[i + 1]]`; shape
            `(num_samples + 1,)`, int64.
        extension_sets: The distinct tuples of extensions, in order of appearance.
        set_ids: Which of them a sample has; shape `(num_samples,)`, int64.
        order: Row of `spans` that holds each member, in archive order; None where rows are in
            archive order already; shape `(num_members,)`, int64.
        other_names: Names of the members of no sample, each ended by a zero byte.
        skipped: How many members are in no sample, by reason.
    """

    spans: NDArray[np.int64]
    first_fields: NDArray[np.int64]
    keys: bytes
    key_starts: NDArray[np.int64]
    extension_sets: list[tuple[str, ...]]
    set_ids: NDArray[np.int64]
    order: NDArray[np.int64] | None
    other_names: bytes
    skipped: dict[str, int]


def split_name(name: str, key_rule: KeyRule = "first_dot") -> tuple[str, str] | str:
    """Split a member's name into key and extension, or say why it belongs to no sample.

    Args:
        name: The name as stored.
        key_rule: Which dot of the last path component parts them.

    Returns:
        `(key, extension)`, the dot being the extension's; or the reason: `"no extension"`,
        `"hidden"` (`.nfs01.jpg`) or `"meta"` (below or named `__meta__`, with any word inside).

    >>> split_name("train/0001.seg.png"), split_name("v1.2/a.b.jpg", "last_dot")
    (('train/0001', '.seg.png'), ('v1.2/a.b', '.jpg'))
    >>> split_name("README"), split_name("a/.index"), split_name("__meta__/x.json")
    ('no extension', 'hidden', 'meta')
    """
    base = name.rfind("/") + 1
    first_component = name.partition("/")[0]
    if len(first_component) >= 4 and first_component[:2] == first_component[-2:] == "__":
        return "meta"
    if name.startswith(".", base):
        return "hidden"
    dot = name.find(".", base) if key_rule == "first_dot" else name.rfind(".", base)
    if dot < 0 or dot == len(name) - 1:
        return "no extension"
    return name[:dot], name[dot:]


def group_members(
    packed_names: bytes,
    spans: NDArray[np.int64],
    shard: str | os.PathLike[str],
    *,
    key_rule: KeyRule = "first_dot",
    grouping: Grouping = "adjacent",
) -> SampleTable:
    """Group a shard's members into samples.

    Args:
        packed_names: The members' names in archive order, each ended by a zero byte.
        spans: Offset and size of each, bytes; shape `(num_members, 2)`.
        shard: What to call the shard in messages.
        key_rule: Which dot of a name parts key and extension.
        grouping: `"adjacent"`: a sample is a run of members with one key, and the same key again
            further on is an error. `"shard"`: all members with one key are a sample, which stands
            where its first member stands.

    Raises:
        ShardFormatError: Two members of one sample have the same extension, or members of one
            sample are apart (with `grouping="adjacent"`); the message names both places.
    """
    names = packed_names.decode("utf-8", "surrogateescape").split("\0")[:-1]
    skipped: Counter[str] = Counter()
    samples: dict[str, dict[str, int]] = {}
    others: list[int] = []
    last_key: str | None = None
    for place, name in enumerate(names):
        parts = split_name(name, key_rule)
        if isinstance(parts, str):
            skipped[parts] += 1
            others.append(place)
            continue
        key, extension = parts
        fields = samples.setdefault(key, {})
        if fields and key != last_key and grouping == "adjacent":
            earlier = next(reversed(fields.values()))
            raise ShardFormatError(_apart(shard, spans, names, earlier, place))
        if extension in fields:
            raise ShardFormatError(_doubled(shard, spans, names, fields[extension], place))
        fields[extension] = place
        last_key = key
    return _table(spans, samples, others, names, dict(skipped))


def _table(spans, samples, others, names, skipped):  # type: ignore[no-untyped-def]
    rows = np.array([p for fields in samples.values() for p in fields.values()] + others, np.int64)
    counts = [len(fields) for fields in samples.values()]
    keys = [key.encode("utf-8", "surrogateescape") for key in samples]
    sets: dict[tuple[str, ...], int] = {}
    set_ids = [sets.setdefault(tuple(fields), len(sets)) for fields in samples.values()]
    in_order = bool((np.diff(rows) > 0).all())
    return SampleTable(
        spans=spans[rows] if len(rows) else spans,
        first_fields=np.cumsum([0, *counts]),
        keys=b"".join(keys),
        key_starts=np.cumsum([0, *map(len, keys)]),
        extension_sets=list(sets),
        set_ids=np.array(set_ids, np.int64),
        order=None if in_order else np.argsort(rows),
        other_names="".join(names[i] + "\0" for i in others).encode("utf-8", "surrogateescape"),
        skipped=skipped,
    )


def _apart(shard, spans, names, earlier, later):  # type: ignore[no-untyped-def]
    return (
        f"{shard}: members of one sample are apart: {names[earlier]!r} with data at byte "
        f"{spans[earlier, 0]} and {names[later]!r} at byte {spans[later, 0]}, with "
        "other samples between; expected neighbours. Pack the shard in order, or group with "
        "grouping='shard'"
    )


def _doubled(shard, spans, names, earlier, later):  # type: ignore[no-untyped-def]
    return (
        f"{shard}: two members for one field: {names[earlier]!r} with data at byte "
        f"{spans[earlier, 0]} and {names[later]!r} at byte {spans[later, 0]}; "
        "expected distinct names. Pack the shard anew"
    )
