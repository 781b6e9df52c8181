"""Splits: which part each sample of a sequence is in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from wids.base.arguments import check_number
from wids.base.keyhash import hash_keys
from wids.ordering.permute import derive_key, derive_keys, permute

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["by_exact_share", "by_hash", "hash_values", "seeded", "shuffled_ranks"]

Integers = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

# Apart from all that orders derive from a seed.
_SPLIT = 0x73706C69


def by_hash(hashes: Hashes, shares: Mapping[str, float], seed: int) -> Integers:
    """Return the number of the part of each sample, by its hash alone.

    Args:
        hashes: One for each sample; samples of one hash are in one part.
        shares: The share of each part, relative to their sum.
        seed: Another seed puts them into other parts.
    """
    ends = _running_shares(shares)
    # 53 bits, which a float holds exactly.
    places = (seeded(hashes, seed) >> np.uint64(11)).astype(np.float64) / (1 << 53)
    return np.searchsorted(ends[:-1], places, "right").astype(np.int64)


def seeded(hashes: Hashes, seed: int) -> Hashes:
    """Return other hashes of the same, for each seed."""
    return derive_keys(derive_key(seed, _SPLIT), hashes.view(np.int64))


def by_exact_share(ranks: Integers, classes: Any, shares: Mapping[str, float]) -> Integers:
    """Return the number of the part of each sample, with exact shares of every class.

    Args:
        ranks: The order in which the samples of a class are dealt out; distinct.
        classes: A value for each sample; None for one class.
        shares: The share of each part, relative to their sum.
    """
    ends = _running_shares(shares)
    parts = np.zeros(len(ranks), np.int64)
    _, labels = (None, parts) if classes is None else np.unique(classes, return_inverse=True)
    order = np.lexsort((ranks, labels))
    counts = np.bincount(labels) if len(ranks) else np.zeros(0, np.int64)
    firsts = np.cumsum(counts) - counts
    for first, count in zip(firsts.tolist(), counts.tolist(), strict=True):
        # Borders of the running sum, each rounded by itself: no sample is lost between two.
        bounds = np.rint(ends * count).astype(np.int64)
        members = order[first : first + count]
        parts[members] = np.searchsorted(bounds[:-1], np.arange(count), "right")
    return parts


def shuffled_ranks(count: int, seed: int) -> Integers:
    """Return a permutation of `range(count)`."""
    places = np.arange(count, dtype=np.int64)
    return permute(places, max(1, count), derive_key(seed, _SPLIT))


def hash_values(values: Any) -> Hashes:
    """Return a hash of each value, by its text: a 3 and a "3" are one group."""
    items = values.tolist() if isinstance(values, np.ndarray) else list(values)
    distinct: dict[Any, int] = {}
    labels = np.array([distinct.setdefault(str(item), len(distinct)) for item in items], np.int64)
    return hash_keys(list(distinct))[labels] if len(labels) else np.zeros(0, np.uint64)


def _running_shares(shares: Mapping[str, float]) -> npt.NDArray[np.float64]:
    given = np.array([check_number(f"share {name}", share) for name, share in shares.items()])
    if len(given) < 2 or not (np.isfinite(given) & (given > 0)).all():
        raise ValueError(
            "split: expected at least two parts with a share above 0 each, such as "
            f"train=0.9, val=0.1; got {dict(shares)}"
        )
    ends: npt.NDArray[np.float64] = np.cumsum(given) / given.sum()
    return ends
