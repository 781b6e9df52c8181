"""How classes and missing fields change over the shards of a dataset."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["OverShards", "ShardProfile", "over_shards"]

_MOST_BINS = 60  # of adjacent shards
_MOST_SHOWN_CLASSES = 10
_MOST_LACKING = 24


@dataclass(frozen=True)
class ShardProfile:
    """What is counted in a shard.

    Attributes:
        shard: Its number.
        num_samples: Samples in it.
        fields: Number of samples that have each field.
        classes: Number of samples of each class.
    """

    shard: int
    num_samples: int
    fields: Mapping[str, int]
    classes: Mapping[str, int]


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
    >>> first, last = ShardProfile(0, 2, {".x": 2}, one), ShardProfile(7, 2, {}, other)
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
