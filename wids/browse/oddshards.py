"""Odd shards: those whose samples differ from those of the others, with what is different."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from wids.display.safejson import safe_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["OddShard", "OverShards", "ShardProfile", "odd_shards", "over_shards"]

_LEAST_SHARDS = 3  # of fewer, none is the rule
_LEAST_SAMPLES = 20  # of fewer, shares say nothing
_FAR_SHARE = 0.3  # difference of two shares that is odd
_FAR_FACTOR = 3.0
_MOST_ODD = 20
_MOST_BINS = 60  # of adjacent shards
_MOST_SHOWN_CLASSES = 10
_MOST_LACKING = 24


@dataclass(frozen=True)
class ShardProfile:
    """What is compared of a shard.

    Attributes:
        shard: Its number.
        num_samples: Samples in it.
        median_nbytes: Median size of a sample.
        fields: Number of samples that have each field.
        classes: Number of samples of each class.
    """

    shard: int
    num_samples: int
    median_nbytes: float
    fields: Mapping[str, int]
    classes: Mapping[str, int]


@dataclass(frozen=True)
class OddShard:
    """A shard that differs from the others, and the reasons in words."""

    shard: int
    reasons: tuple[str, ...]


class OverShards(NamedTuple):
    """How classes and missing fields change over the shards, in bins of adjacent ones.

    Attributes:
        shards: The first shard of each bin.
        samples: Samples in each bin.
        classes: The commonest classes, each with its samples in each bin.
        missing: For each field that samples lack, their number in each bin.
    """

    shards: list[int]
    samples: list[int]
    classes: list[tuple[str, list[int]]]
    missing: dict[str, list[int]]


def over_shards(profiles: Sequence[ShardProfile]) -> OverShards:
    """Sum up the profiles of adjacent shards.

    >>> one, other = ({"a": 2}, {"a": 1, "b": 1})
    >>> first, last = ShardProfile(0, 2, 9, {".x": 2}, one), ShardProfile(7, 2, 9, {}, other)
    >>> found = over_shards([first, last])
    >>> found.shards, found.classes, found.missing
    ([0, 7], [('a', [2, 1]), ('b', [0, 1])], {'.x': [0, 2]})
    """
    ordered = sorted(profiles, key=lambda profile: profile.shard)
    step = max(1, -(-len(ordered) // _MOST_BINS))
    bins = [ordered[first : first + step] for first in range(0, len(ordered), step)]
    totals: Counter[str] = Counter()
    fields: Counter[str] = Counter()
    for profile in ordered:
        totals.update(profile.classes)
        fields.update(profile.fields)
    samples = [sum(profile.num_samples for profile in each) for each in bins]
    lacking = [field for field, count in fields.most_common() if count < sum(samples)]
    return OverShards(
        [each[0].shard for each in bins],
        samples,
        [
            (label, [sum(profile.classes.get(label, 0) for profile in each) for each in bins])
            for label, _ in totals.most_common(_MOST_SHOWN_CLASSES)
        ],
        {
            field: [
                sum(profile.num_samples - profile.fields.get(field, 0) for profile in each)
                for each in bins
            ]
            for field in lacking[:_MOST_LACKING]
        },
    )


def odd_shards(
    profiles: Sequence[ShardProfile], names: Mapping[str, str] | None = None
) -> list[OddShard]:
    """Find the shards that differ from the others.

    Args:
        profiles: Of all shards that are compared.
        names: Names of classes, by their labels.

    >>> alike = [ShardProfile(n, 100, 50.0, {".a": 100}, {}) for n in range(4)]
    >>> odd_shards([*alike, ShardProfile(4, 100, 500.0, {".a": 10}, {})])
    [OddShard(shard=4, reasons=('samples of 500 B (median), 50 B in the others', \
'.a is in 10 % of its samples, in 100 % of those of the others'))]
    """
    filled = [each for each in profiles if each.num_samples]
    if len(filled) < _LEAST_SHARDS:
        return []
    nbytes = float(np.median([each.median_nbytes for each in filled]))
    count = float(np.median([each.num_samples for each in filled]))
    fields, classes = (
        _summed(each.fields for each in filled),
        _summed(each.classes for each in filled),
    )
    total = sum(each.num_samples for each in filled)
    found = []
    for each in filled:
        reasons = []
        if each.num_samples * _FAR_FACTOR < count:
            reasons.append(f"{each.num_samples} samples, {count:,.0f} in the others")
        if each.num_samples >= _LEAST_SAMPLES:
            reasons += _of_sizes(each, nbytes)
            others = max(total - each.num_samples, 1)
            reasons += _of_fields(each, fields, others)
            reasons += _of_classes(each, classes, names or {})
        if reasons:
            found.append(OddShard(each.shard, tuple(reasons)))
    return found[:_MOST_ODD]


def _summed(counts: Iterable[Mapping[str, int]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return total


def _of_sizes(each: ShardProfile, nbytes: float) -> list[str]:
    if nbytes / _FAR_FACTOR <= each.median_nbytes <= nbytes * _FAR_FACTOR:
        return []
    return [f"samples of {each.median_nbytes:,.0f} B (median), {nbytes:,.0f} B in the others"]


def _of_fields(each: ShardProfile, fields: Mapping[str, int], others: int) -> list[str]:
    reasons = []
    for name, total in fields.items():
        here = each.fields.get(name, 0) / each.num_samples
        there = (total - each.fields.get(name, 0)) / others
        if abs(here - there) > _FAR_SHARE:
            reasons.append(
                f"{safe_text(name, 60)} is in {here:.0%} of its samples, in {there:.0%} of those "
                "of the others"
            )
    return [reason.replace("%", " %") for reason in reasons[:3]]


def _of_classes(
    each: ShardProfile, classes: Mapping[str, int], names: Mapping[str, str]
) -> list[str]:
    here_total = sum(each.classes.values())
    others = sum(classes.values()) - here_total
    if here_total < _LEAST_SAMPLES or not others:
        return []
    shares = {
        label: (each.classes.get(label, 0) / here_total,
                (total - each.classes.get(label, 0)) / others)
        for label, total in classes.items()
    }  # fmt: skip
    far = sum(abs(here - there) for here, there in shares.values()) / 2
    if far <= _FAR_SHARE:
        return []
    label, (here, there) = max(shares.items(), key=lambda row: abs(row[1][0] - row[1][1]))
    shown = safe_text(names.get(label, label), 60)
    return [
        f"class {shown} has {here:.0%} of its samples, {there:.0%} in the others".replace("%", " %")
    ]
