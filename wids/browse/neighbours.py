"""Near-duplicates and outliers: samples whose vectors are very close to others, or far from all.

Each vector is compared with every other in blocks, in the background. Kept are the nearest few of
each sample, so that memory grows with the number of samples alone, and any threshold is applied at
once.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from wids.browse.scans import Scans
    from wids.ordering.permute import Integers

__all__ = ["NearestFew", "Singled", "compare", "groups_of", "nearest_few", "singled_out"]

_NEIGHBOURS = 5
_STEPS = 100  # of the comparison, after each of which its progress is told
_BLOCK_NUMBERS = 4_000_000  # similarities that are in memory at a time, 4 bytes each
_MOST_SINGLED = 10_000  # samples in the order of a request
_THRESHOLD = re.compile(r"-?\d(\.\d{1,6})?")
_COUNT = re.compile(r"\d{1,6}")


class NearestFew(NamedTuple):
    """The nearest neighbours of some vectors, the nearest first.

    Attributes:
        numbers: Numbers of the neighbours of each vector; shape `(n, k)`.
        likeness: The cosine for each.
    """

    numbers: Integers
    likeness: np.ndarray


def nearest_few(rows: np.ndarray, start: int, stop: int, count: int) -> NearestFew:
    """Return the nearest neighbours of the vectors `[start, stop)` among all others.

    Args:
        rows: One row for each vector; their products are the likenesses.
        start: The first vector.
        stop: Where they end.
        count: Neighbours of each; fewer than there are vectors.

    >>> rows = np.eye(3)[[0, 1, 0, 2]]
    >>> nearest_few(rows, 0, 3, 1).numbers.tolist()
    [[2], [0], [0]]
    """
    numbers = np.empty((stop - start, count), np.int64)
    likeness = np.empty((stop - start, count), rows.dtype)
    step = max(1, _BLOCK_NUMBERS // max(len(rows), 1))
    for first in range(start, stop, step):
        last = min(first + step, stop)
        here = np.arange(last - first)
        near = rows[first:last] @ rows.T
        near[here, here + first] = -np.inf  # itself
        for rank in range(count):
            best = near.argmax(axis=1)
            numbers[first - start : last - start, rank] = best
            likeness[first - start : last - start, rank] = near[here, best]
            near[here, best] = -np.inf
    return NearestFew(numbers, likeness)


def groups_of(nearest: NearestFew, least: float) -> Integers:
    """Join vectors that are at least so much alike, directly or by others between them.

    Args:
        nearest: The nearest neighbours of each vector.
        least: The least likeness.

    Returns:
        For each vector, the smallest number of a vector of its group, which is its own if it is
        alone.

    >>> some = NearestFew(np.array([[2], [0], [0], [1]]), np.array([[0.9], [0.2], [0.9], [0.8]]))
    >>> groups_of(some, 0.8).tolist()
    [0, 1, 0, 1]
    """
    ones, ranks = np.nonzero(nearest.likeness >= least)
    others = nearest.numbers[ones, ranks]
    groups = np.arange(len(nearest.numbers))
    while True:
        low = np.minimum(groups[ones], groups[others])
        joined = groups.copy()
        # The groups themselves are joined, not their vectors alone, so that few rounds are enough.
        np.minimum.at(joined, groups[ones], low)
        np.minimum.at(joined, groups[others], low)
        joined = joined[joined]
        if (joined == groups).all():
            return groups
        groups = joined


class Compared(NamedTuple):
    """Vectors that were compared with each other.

    Attributes:
        indexes: Index of the sample of each vector.
        nearest: The nearest neighbours of each vector.
        num_zeros: Number of vectors that are left out, as all their numbers are 0.
    """

    indexes: Integers
    nearest: NearestFew
    num_zeros: int


def compare(indexes: Integers, vectors: np.ndarray) -> Generator[None, None, Compared]:
    """Compare vectors that a scan has read by their directions; yields after each step.

    Zeros alone have no direction.

    Args:
        indexes: Index of the sample of each vector.
        vectors: Finite floats; shape `(n, width)`. They are changed in place.

    Raises:
        ValueError: They are of two numbers, which are places of a map.
    """
    if vectors.shape[1] == 2:
        raise ValueError(
            "near, far: expected vectors of more than two numbers, as directions are compared; "
            "the map shows which places of two numbers lie close"
        )
    some: np.ndarray = np.abs(vectors).max(axis=1, initial=0) > 0
    num_zeros = len(some) - int(some.sum())
    if num_zeros:
        indexes, vectors = indexes[some], vectors[some]
    total = len(vectors)
    if total < 2:
        nothing = NearestFew(np.empty((0, 1), np.int64), np.empty((0, 1)))
        return Compared(indexes[:0], nothing, num_zeros)
    rows = vectors.astype(np.float32, copy=False)
    # By their greatest number first, since squares of huge and tiny numbers are beyond floats.
    rows /= np.maximum(np.abs(rows).max(axis=1, keepdims=True), np.float32(1e-45))
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.float32(1e-30))
    count = min(_NEIGHBOURS, total - 1)
    nearest = NearestFew(np.empty((total, count), np.int64), np.empty((total, count)))
    for step in range(_STEPS):
        start, stop = (total * each // _STEPS for each in (step, step + 1))
        found = nearest_few(rows, start, stop, count)
        nearest.numbers[start:stop] = found.numbers
        # Rounded, as products are not exact: what is equal shall be 1.
        alike = found.likeness.astype(np.float64).round(6)
        nearest.likeness[start:stop] = np.minimum(alike, 1)
        yield
    return Compared(indexes, nearest, num_zeros)


class Singled(NamedTuple):
    """Samples that were singled out, in the order in which they are shown.

    Attributes:
        indexes: Their indexes.
        notes: For each index, the group of the sample (0, 1, 2 ...; -1 for none), a number, and the
            index of the nearest other sample. Of near-duplicates, the number is the likeness to
            that one, of outliers the distance to the last of a few neighbours.
        about: What was compared, as JSON.
    """

    indexes: Integers
    notes: Mapping[int, tuple[int, float, int]]
    about: Mapping[str, Any]


def singled_out(scans: Scans, query: Mapping[str, str], *, patient: bool = False) -> Singled | None:
    """Return the samples that `near` or `far` of a request single out; None without either.

    Args:
        scans: Background scans, which read and compare the vectors.
        query: The request. `near` is a field and the least likeness of near-duplicates, such as
            ".emb.npy,0.98"; `far` is a field and the number of outliers.
        patient: Whether to wait long for the comparison.

    Raises:
        ValueError: They are malformed, or the request has both.
        NotReadyError: Vectors are still compared.
    """
    found = [name for name in ("near", "far") if query.get(name)]
    if len(found) > 1:
        raise ValueError("near, far: expected one of the two; leave out the other")
    if not found:
        return None
    name, text = found[0], query[found[0]]
    field, _, bound = text.rpartition(",")
    form = _THRESHOLD if name == "near" else _COUNT
    if not field or not form.fullmatch(bound):
        example = ".emb.npy,0.98" if name == "near" else ".emb.npy,100"
        raise ValueError(
            f"{name}: expected a field and a number, such as {example}, got {text[:60]!r}"
        )
    compared, scan = scans.finished(field, compare, _STEPS, patient=patient)
    indexes, nearest, num_zeros = compared
    if name == "near":
        order, ranks = _by_groups(nearest, float(bound))
        numbers = nearest.likeness[:, 0]
    else:
        # The last of the few neighbours, so that an outlier is one even if another lies beside it.
        last = nearest.likeness[:, -1]
        order = np.argsort(last, kind="stable")[: min(int(bound), _MOST_SINGLED)]
        ranks = np.full(len(last), -1)
        numbers = np.sqrt(np.maximum(2 - 2 * last, 0)).round(6)
    shown = order[:_MOST_SINGLED]
    others = indexes[nearest.numbers[shown, 0]]
    noted = (each[shown].tolist() for each in (ranks, numbers))
    notes = dict(
        zip(indexes[shown].tolist(), zip(*noted, others.tolist(), strict=True), strict=True)
    )
    left_out = {**scan.vectors.left_out, "with zeros alone": num_zeros}
    about = {
        "kind": name,
        "num_groups": int(ranks.max(initial=-1)) + 1,
        "num_found": len(order),
        "compared": len(indexes),
        "neighbours": nearest.numbers.shape[1],
        "num_wanted": scan.vectors.num_wanted,
        "left_out": {why: count for why, count in left_out.items() if count},
    }
    return Singled(indexes[shown], notes, about)


def _by_groups(nearest: NearestFew, least: float) -> tuple[Integers, Integers]:
    """Return the vectors that have near-duplicates, by groups, and the rank of each one's group.

    Groups with the nearest pair come first; within one, vectors have the order of the dataset.
    """
    groups = groups_of(nearest, least)
    sizes = np.bincount(groups, minlength=len(groups))
    members = np.flatnonzero(sizes[groups] > 1)
    best = np.full(len(groups), -np.inf)
    np.maximum.at(best, groups[members], nearest.likeness[members, 0])
    heads = np.unique(groups[members])
    heads = heads[np.argsort(-best[heads], kind="stable")]
    ranks = np.full(len(groups), -1)
    ranks[heads] = range(len(heads))
    ranks = ranks[groups]
    order: Integers = members[np.argsort(ranks[members], kind="stable")]
    return order, ranks
