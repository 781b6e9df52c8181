"""Assignment of samples to the parts of a split, by hash or by exact shares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from wids.base.arguments import check_number
from wids.base.keyhash import hash_keys
from wids.base.warn import warn
from wids.ordering.permute import derive_key, permute

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "by_exact_share",
    "by_hash",
    "class_labels",
    "hash_values",
    "shuffled_ranks",
    "split_key",
    "warn_of_gaps",
]

Integers = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

# Purpose of a key, distinct from those of the orders.
_SPLIT = 0x73706C69

# Hashes that are looked at for gaps, and the least number of ranges of these.
_MOST_COMPARED, _FEWEST_RANGES = 1 << 20, 16


def split_key(seed: int, lineage: str | None) -> int:
    """Return the key of the hash by which samples are assigned to the parts of a split.

    Args:
        seed: Seed of the split.
        lineage: That of the samples; None if they are not part of a split by hash.
    """
    return derive_key(*([] if lineage is None else [int(lineage, 16)]), seed, _SPLIT)


def by_hash(hashes: Hashes, shares: Mapping[str, float]) -> Integers:
    """Return the number of the part of each sample, which depends on its hash alone.

    Args:
        hashes: Hash of each sample; samples with equal hashes are in the same part.
        shares: Share of each part, relative to the sum of all.

    Returns:
        Number of the part of each sample; int64.
    """
    ends = _running_shares(shares)
    # The upper 53 bits, which a float represents exactly.
    places = (hashes >> np.uint64(11)).astype(np.float64) / (1 << 53)
    return np.searchsorted(ends[:-1], places, "right").astype(np.int64)


def warn_of_gaps(hashes: Hashes, seed: int) -> None:
    """Warn if the hashes leave out a part of their range, as those of a part of a split do.

    Its lineage may be unknown: its shards were written by other programs, or its keys were listed.

    Args:
        hashes: Hash of each sample, or of its group, under the key of the split.
        seed: Seed of the split.
    """
    found = np.unique(hashes[:_MOST_COMPARED])
    # Chance leaves one of the ranges empty, in which 32 are expected, once in a billion times.
    num_ranges = len(found) // 32
    filled = (found >> np.uint64(32)) * np.uint64(num_ranges) >> np.uint64(32)
    if num_ranges >= _FEWEST_RANGES and len(np.unique(filled)) < num_ranges:
        warn(
            "split: these samples seem to be a part of another split with the same seed, by which "
            f"they would be divided unequally; give another seed than {seed}"
        )


def by_exact_share(ranks: Integers, classes: Any, shares: Mapping[str, float]) -> Integers:
    """Return the part of each sample, such that each part has its exact share of every class.

    Args:
        ranks: Distinct numbers: the samples of a class are assigned in ascending order of these.
        classes: Class of each sample; None for one class.
        shares: Share of each part, relative to the sum of all.

    Returns:
        Number of the part of each sample; int64.
    """
    ends = _running_shares(shares)
    parts = np.zeros(len(ranks), np.int64)
    _, labels = (None, parts) if classes is None else np.unique(classes, return_inverse=True)
    order = np.lexsort((ranks, labels))
    counts = np.bincount(labels) if len(ranks) else np.zeros(0, np.int64)
    firsts = np.cumsum(counts) - counts
    owed = np.zeros(len(ends))
    for first, count in zip(firsts.tolist(), counts.tolist(), strict=True):
        # Rounded after summing up: rounded shares might not add up to all samples.
        bounds = np.rint(ends * count).astype(np.int64)
        if len(counts) > 1:
            sizes = _sizes_of_class(np.diff(ends, prepend=0) * count, count, owed)
            bounds = np.cumsum(sizes)
        members = order[first : first + count]
        parts[members] = np.searchsorted(bounds[:-1], np.arange(count), "right")
    return parts


def _sizes_of_class(
    shares: npt.NDArray[np.float64], count: int, owed: npt.NDArray[np.float64]
) -> Integers:
    """Return how many samples of a class each part gets: its share, rounded up or down.

    Args:
        shares: Exact share of each part.
        count: Number of samples of the class.
        owed: What each part got too little of the classes before, which is changed. Whichever part
            is owed most is rounded up, so that the errors of many small classes do not add up.
    """
    sizes = np.floor(shares + 1e-9).astype(np.int64)
    owed += shares - sizes
    # Those whose share is a whole number are not rounded up.
    rounded = np.where(shares - sizes > 1e-9, owed, -np.inf)
    up = np.argsort(-rounded, kind="stable")[: count - int(sizes.sum())]
    sizes[up] += 1
    owed[up] -= 1
    return sizes


def shuffled_ranks(count: int, seed: int) -> Integers:
    """Return a permutation of `range(count)`."""
    places = np.arange(count, dtype=np.int64)
    return permute(places, max(1, count), derive_key(seed, _SPLIT))


def class_labels(values: Any, missing: Any) -> Any:
    """Return a label of each sample that can be sorted, and is the same within a class.

    Args:
        values: The class of each sample.
        missing: What stands for no class, which is a class of its own.

    >>> class_labels(["b", None, 3], None)
    ['=b', '', '=3']
    """
    if isinstance(values, np.ndarray) and values.ndim == 1:
        return values
    return ["" if value is missing else f"={value}" for value in values]


def hash_values(values: Any) -> Hashes:
    """Return the hash of the text of each value, so that 3 and "3" are equal."""
    items = values.tolist() if isinstance(values, np.ndarray) else list(values)
    distinct: dict[Any, int] = {}
    labels = np.array([distinct.setdefault(str(item), len(distinct)) for item in items], np.int64)
    return hash_keys(list(distinct))[labels] if len(labels) else np.zeros(0, np.uint64)


def _running_shares(shares: Mapping[str, float]) -> npt.NDArray[np.float64]:
    given = np.array([check_number(f"share {name}", share) for name, share in shares.items()])
    if len(given) < 2 or not (np.isfinite(given) & (given > 0)).all():
        raise ValueError(
            "split: expected at least two parts, each with a share above 0, such as "
            f"train=0.9, val=0.1; got {dict(shares)}"
        )
    ends: npt.NDArray[np.float64] = np.cumsum(given) / given.sum()
    return ends
