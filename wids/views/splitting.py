"""Assignment of samples to the parts of a split, by hash or by exact shares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from wids.base.arguments import check_number
from wids.base.keyhash import hash_keys
from wids.base.warn import warn
from wids.ordering.permute import derive_key, derive_keys, permute
from wids.views.columnnames import MISSING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from wids.reading.ragged import Values

__all__ = ["hash_values", "part_numbers"]

Integers = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

# Purpose of a key, distinct from those of the orders.
_SPLIT = 0x73706C69

# Hashes that are looked at for gaps, and the least number of ranges of these.
_MOST_COMPARED, _FEWEST_RANGES = 1 << 20, 16


def part_numbers(
    shares: Mapping[str, float],
    count: int,
    groups: Hashes | None,
    classes: Values | None,
    seed: int,
    lineage: str | None,
) -> tuple[Integers, str | None]:
    """Return the number of the part of each sample, and the lineage of the parts.

    Args:
        shares: Share of each part, relative to the sum of all.
        count: Number of samples.
        groups: Hash of the key of each sample, or of its group: the part depends on it alone. None
            for exact shares of all samples.
        classes: Class of each sample, of each of which a part has its exact share; None for one.
        seed: Seed of the split.
        lineage: That of the samples; None if they are not part of a split by hash.
    """
    ends = _running_shares(shares)
    labels: Any = classes
    if classes is not None and not (isinstance(classes, np.ndarray) and classes.ndim == 1):
        # Texts, which can be sorted; a sample without a value is of a class of its own.
        labels = ["" if value is MISSING else f"={value}" for value in classes]
    if groups is None:
        places = np.arange(count, dtype=np.int64)
        ranks = permute(places, max(1, count), derive_key(seed, _SPLIT))
        return _by_exact_share(ranks, labels, ends), lineage
    key = derive_key(*([] if lineage is None else [int(lineage, 16)]), seed, _SPLIT)
    hashes = derive_keys(key, groups.view(np.int64))
    _warn_of_gaps(hashes, seed)
    if labels is not None:
        ranks = np.argsort(np.argsort(hashes, kind="stable"))
        numbers = _by_exact_share(ranks, labels, ends)
    else:
        # The upper 53 bits, which a float represents exactly.
        at = (hashes >> np.uint64(11)).astype(np.float64) / (1 << 53)
        numbers = np.searchsorted(ends[:-1], at, "right")
    return numbers, f"{key:016x}"


def _warn_of_gaps(hashes: Hashes, seed: int) -> None:
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


def _by_exact_share(ranks: Integers, classes: Any, ends: npt.NDArray[np.float64]) -> Integers:
    """Return the part of each sample, such that each part has its exact share of every class.

    Args:
        ranks: Distinct numbers: the samples of a class are assigned in ascending order of these.
        classes: Class of each sample; None for one class.
        ends: Shares of the parts up to each; the last is 1.

    Returns:
        Number of the part of each sample; int64.
    """
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
