"""Near-duplicates and outliers: samples whose vectors are very close to others, or far from all.

Each vector is compared with every other in blocks, in the background. Kept are the nearest few of
each sample, so that memory grows with the number of samples alone, and any threshold is applied at
once.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from wids.browse.scans import Scans
    from wids.ordering.permute import Integers

__all__ = ["Singled", "compare", "groups_of", "nearest_few", "singled_out"]

_NEIGHBOURS = 5
_STEPS = 500  # of the comparison; the similarities of one, of 50,000 vectors, take 20 MB
_MOST_SINGLED = 10_000  # samples in the order of a request
_THRESHOLD = re.compile(r"-?\d(\.\d{1,6})?")
_COUNT = re.compile(r"\d{1,6}")


def nearest_few(rows: np.ndarray, start: int, stop: int, count: int) -> tuple[Integers, np.ndarray]:
    """Return the nearest neighbours of the vectors `[start, stop)` among all others.

    Args:
        rows: One row for each vector; their products are the likenesses.
        start: The first vector.
        stop: Where they end.
        count: Neighbours of each; fewer than there are vectors.

    Returns:
        Their numbers, the nearest first, and the likeness to each; shapes `(stop - start, count)`.

    >>> rows = np.eye(3)[[0, 1, 0, 2]]
    >>> nearest_few(rows, 0, 3, 1)[0].tolist()
    [[2], [0], [0]]
    """
    numbers = np.empty((stop - start, count), np.int64)
    likeness = np.empty((stop - start, count), rows.dtype)
    here = np.arange(stop - start)
    near = rows[start:stop] @ rows.T
    near[here, here + start] = -np.inf  # itself
    for rank in range(count):
        numbers[:, rank] = best = near.argmax(axis=1)
        likeness[:, rank] = near[here, best]
        near[here, best] = -np.inf
    return numbers, likeness


def groups_of(numbers: Integers, likeness: np.ndarray, least: float) -> Integers:
    """Join vectors that are at least so much alike, directly or by others between them.

    Args:
        numbers: Numbers of the nearest neighbours of each vector.
        likeness: The likeness to each.
        least: The least likeness.

    Returns:
        For each vector, the smallest number of a vector of its group, which is its own if it is
        alone.

    >>> groups_of(np.array([[2], [0], [0], [1]]), np.array([[0.9], [0.2], [0.9], [0.8]]), 0.8)
    array([0, 1, 0, 1])
    """
    ones, ranks = np.nonzero(likeness >= least)
    others = numbers[ones, ranks]
    groups = np.arange(len(numbers))
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
        numbers: Numbers of the nearest neighbours of each vector, the nearest first; shape
            `(n, k)`.
        likeness: The cosine for each.
        num_zeros: Number of vectors that are left out, as all their numbers are 0.
    """

    indexes: Integers
    numbers: Integers
    likeness: np.ndarray
    num_zeros: int


def compare(indexes: Integers, vectors: np.ndarray) -> Generator[None, None, Compared]:
    """Compare vectors that a scan has read by their directions; yields after each step.

    Zeros alone have no direction.

    Args:
        indexes: Index of the sample of each vector.
        vectors: Finite floats; shape `(n, width)`.

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
    indexes, vectors = indexes[some], vectors[some]  # so that one copy of them is in memory
    total = len(vectors)
    if total < 2:
        return Compared(indexes[:0], np.empty((0, 1), np.int64), np.empty((0, 1)), num_zeros)
    # By their greatest number first, since squares of huge and tiny numbers are beyond floats.
    vectors /= np.maximum(np.abs(vectors).max(axis=1, keepdims=True), np.float32(1e-45))
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.float32(1e-30))
    found = []
    for start, stop in pairwise(total * each // _STEPS for each in range(_STEPS + 1)):
        found.append(nearest_few(vectors, start, stop, min(_NEIGHBOURS, total - 1)))
        yield
    numbers, likeness = map(np.concatenate, zip(*found, strict=True))
    # Rounded, as products are not exact: what is equal shall be 1.
    likeness = np.minimum(likeness.astype(np.float64).round(6), 1)
    return Compared(indexes, numbers, likeness, num_zeros)


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
    asked = [name for name in ("near", "far") if query.get(name)]
    if len(asked) > 1:
        raise ValueError("near, far: expected one of the two; leave out the other")
    if not asked:
        return None
    name, text = asked[0], query[asked[0]]
    field, _, bound = text.rpartition(",")
    form = _THRESHOLD if name == "near" else _COUNT
    if not field or not form.fullmatch(bound):
        example = ".emb.npy,0.98" if name == "near" else ".emb.npy,100"
        raise ValueError(
            f"{name}: expected a field and a number, such as {example}, got {text[:60]!r}"
        )
    found, told = scans.finished(field, compare, _STEPS, patient=patient)
    indexes, numbers, likeness, num_zeros = found
    if name == "near":
        order, ranks = _by_groups(numbers, likeness, float(bound))
        values = likeness[:, 0]
    else:
        # The last of the few neighbours, so that an outlier is one even if another lies beside it.
        last = likeness[:, -1]
        order = np.argsort(last, kind="stable")[: min(int(bound), _MOST_SINGLED)]
        ranks = np.full(len(last), -1)
        values = np.sqrt(np.maximum(2 - 2 * last, 0)).round(6)
    shown = order[:_MOST_SINGLED]
    others = indexes[numbers[shown, 0]]
    noted = (each[shown].tolist() for each in (ranks, values))
    notes = dict(
        zip(indexes[shown].tolist(), zip(*noted, others.tolist(), strict=True), strict=True)
    )
    zeros = {"with zeros alone": num_zeros} if num_zeros else {}
    about = {
        "kind": name,
        "num_groups": int(ranks.max(initial=-1)) + 1,
        "num_found": len(order),
        "compared": len(indexes),
        "neighbours": numbers.shape[1],
        "num_wanted": told["num_wanted"],
        "left_out": {**told["left_out"], **zeros},
    }
    return Singled(indexes[shown], notes, about)


def _by_groups(numbers: Integers, likeness: np.ndarray, least: float) -> tuple[Integers, Integers]:
    """Return the vectors that have near-duplicates, by groups, and the rank of each one's group.

    Groups with the nearest pair come first; within one, vectors have the order of the dataset.
    """
    groups = groups_of(numbers, likeness, least)
    members = np.flatnonzero(np.bincount(groups, minlength=len(groups))[groups] > 1)
    own = groups[members]
    best = np.full(len(groups), -np.inf)
    np.maximum.at(best, own, likeness[members, 0])
    order: Integers = members[np.lexsort((own, -best[own]))]
    ranks = np.full(len(groups), -1)
    ranks[order] = np.cumsum(np.diff(groups[order], prepend=-1) != 0) - 1
    return order, ranks
