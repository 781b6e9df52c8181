"""Near-duplicates and outliers: samples whose vectors are very close to others, or far from all.

Each vector is compared with every other in blocks, in the background. Kept are the nearest few of
each sample, so that memory grows with the number of samples alone, and any threshold is applied at
once.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from wids.browse.scans import PATIENT_SECONDS, SOON_SECONDS
from wids.browse.vectors import VectorVisitor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from wids.browse.fieldreader import FieldReader
    from wids.browse.scans import Scans
    from wids.ordering.permute import Integers

__all__ = [
    "STEPS",
    "NearestFew",
    "NeighbourVisitor",
    "Neighbours",
    "Singled",
    "groups_of",
    "nearest_few",
]

_NEIGHBOURS = 5
STEPS = 100  # of the comparison, after each of which its progress is told
_BLOCK_NUMBERS = 4_000_000  # similarities that are in memory at a time, 4 bytes each
_MOST_SINGLED = 10_000  # samples in the order of a request
_MOST_KEPT = 4
_THRESHOLD = re.compile(r"-?\d(\.\d{1,6})?")
_COUNT = re.compile(r"\d{1,6}")


class NearestFew(NamedTuple):
    """The nearest neighbours of some vectors, the nearest first.

    Attributes:
        numbers: Numbers of the neighbours of each vector; shape `(n, k)`.
        likeness: 1 - d * d / 2 for each, where d is their distance; of vectors of length 1, that is
            the cosine.
    """

    numbers: Integers
    likeness: np.ndarray


def _comparable(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Return two matrices and a number, so that `left @ right.T + number` are the likenesses.

    Vectors are scaled to length 1, except those of two numbers: these are points of a map, which
    are centred and scaled to a mean square distance of 1 from the middle. They may be changed in
    place, so that large ones are in memory once.
    """
    if vectors.shape[1] > 2:
        rows = vectors.astype(np.float32, copy=False)
        # By their greatest number first, since squares of huge and tiny numbers are beyond floats.
        rows /= np.maximum(np.abs(rows).max(axis=1, keepdims=True), np.float32(1e-45))
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.float32(1e-30))
        return rows, rows, 0.0
    points = vectors.astype(np.float64)
    points -= points.mean(axis=0)
    points /= np.sqrt(np.mean(np.einsum("ij,ij->i", points, points))) or 1.0
    halves = -np.einsum("ij,ij->i", points, points)[:, None] / 2
    ones = np.ones_like(halves)
    left = np.concatenate([points, halves, ones], axis=1)
    right = np.concatenate([points, ones, halves], axis=1)
    return left, right, 1.0


def nearest_few(
    left: np.ndarray, right: np.ndarray, start: int, stop: int, count: int
) -> NearestFew:
    """Return the nearest neighbours of the vectors `[start, stop)` among all others.

    Args:
        left: One row for each vector.
        right: One row for each vector; the products with `left` are the likenesses.
        start: The first vector.
        stop: Where they end.
        count: Neighbours of each; fewer than there are vectors.

    >>> rows = np.eye(3)[[0, 1, 0, 2]]
    >>> nearest_few(rows, rows, 0, 3, 1).numbers.tolist()
    [[2], [0], [0]]
    """
    numbers = np.empty((stop - start, count), np.int64)
    likeness = np.empty((stop - start, count), left.dtype)
    step = max(1, _BLOCK_NUMBERS // max(len(right), 1))
    for first in range(start, stop, step):
        last = min(first + step, stop)
        here = np.arange(last - first)
        near = left[first:last] @ right.T
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


class NeighbourVisitor:
    """Visitor that reads the vectors of a field, shard by shard, and then compares them in steps.

    Args:
        source: Reads the vectors.
        num_shards: Number of shards; visits of greater numbers are steps of the comparison.

    Attributes:
        source: As given.
        indexes: Index of the sample of each vector; known once all are compared.
        nearest: The nearest neighbours of each vector.
        width: Numbers of a vector.
        num_zeros: Number of vectors that are left out, as all their numbers are 0.
    """

    def __init__(self, source: VectorVisitor, num_shards: int) -> None:
        self.source = source
        self.indexes: Integers = np.empty(0, np.int64)
        self.nearest = NearestFew(np.empty((0, 1), np.int64), np.empty((0, 1)))
        self.width = 0
        self.num_zeros = 0
        self._num_shards = num_shards
        self._compared: tuple[np.ndarray, np.ndarray, float] | None = None

    def visit(self, shard_index: int) -> bool:
        """Read the vectors of a shard, or compare some of them."""
        step = shard_index - self._num_shards
        if step < 0:
            return self.source.visit(shard_index)
        if self._compared is None:
            self._begin()
        if self._compared is not None:
            left, right, base = self._compared
            start, stop = (len(left) * each // STEPS for each in (step, step + 1))
            found = nearest_few(left, right, start, stop, self.nearest.numbers.shape[1])
            self.nearest.numbers[start:stop] = found.numbers
            # Rounded, as products are not exact: what is equal shall be 1.
            alike = (found.likeness.astype(np.float64) + base).round(6)
            self.nearest.likeness[start:stop] = np.minimum(alike, 1)
        if step == STEPS - 1:
            self._compared = None  # the vectors, which are not needed any more
        return True

    def _begin(self) -> None:
        """Take the vectors that were read; of fewer than two, nothing is compared.

        Zeros alone have no direction by which to compare them; as a point of a map, they are one.
        """
        indexes, vectors = self.source.take()
        if vectors.shape[1] > 2:
            some: np.ndarray = np.abs(vectors).max(axis=1) > 0
            if not some.all():
                self.num_zeros = len(some) - int(some.sum())
                indexes, vectors = indexes[some], vectors[some]
        if len(vectors) < 2:
            return
        self.indexes, self.width = indexes, vectors.shape[1]
        self._compared = _comparable(vectors)
        # What could not be compared is its own neighbour, and nobody else's.
        count = min(_NEIGHBOURS, len(vectors) - 1)
        numbers = np.repeat(np.arange(len(vectors))[:, None], count, axis=1)
        self.nearest = NearestFew(numbers, np.ones(numbers.shape))


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


class Neighbours:
    """Near-duplicates and outliers of a dataset, by its fields of vectors.

    Args:
        reader: The dataset.
        scans: Background scans, which read and compare the vectors.
    """

    def __init__(self, reader: FieldReader, scans: Scans) -> None:
        self._reader = reader
        self._scans = scans
        self._singled = lru_cache(_MOST_KEPT)(_singled)

    def asked(
        self, query: Mapping[str, str], *, patient: bool = False
    ) -> tuple[Singled | None, dict[str, Any]] | None:
        """Return the samples that `near` or `far` of a request single out.

        Args:
            query: The request. `near` is a field and the least likeness of near-duplicates, such as
                ".emb.npy,0.98"; `far` is a field and the number of outliers.
            patient: Whether to wait long for the comparison.

        Returns:
            None without either; else the samples (None while vectors are compared), and the
            progress.

        Raises:
            ValueError: They are malformed, or the request has both.
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
        num_shards = self._reader.num_shards
        scan = self._scans.get(
            ("neighbours", field),
            lambda: NeighbourVisitor(VectorVisitor(self._reader, field), num_shards),
            range(num_shards + STEPS),
        )
        scan.join(PATIENT_SECONDS if patient else SOON_SECONDS)
        visitor, progress = scan.visitor, scan.progress()
        if not progress["finished"]:
            return None, progress
        return self._singled(visitor, name, bound), progress


def _singled(visitor: NeighbourVisitor, name: str, bound: str) -> Singled:
    """Single out near-duplicates, in groups, or the samples that are farthest from others.

    The latter by the last of their few neighbours, so that an outlier is one even if another lies
    beside it.
    """
    indexes, nearest, source = visitor.indexes, visitor.nearest, visitor.source
    if name == "near":
        order, ranks = _by_groups(nearest, float(bound))
        numbers = nearest.likeness[:, 0]
    else:
        last = nearest.likeness[:, -1]
        order = np.argsort(last, kind="stable")[: min(int(bound), _MOST_SINGLED)]
        ranks = np.full(len(last), -1)
        numbers = np.sqrt(np.maximum(2 - 2 * last, 0)).round(6)
    shown = order[:_MOST_SINGLED]
    notes = {
        int(indexes[each]): (
            int(ranks[each]),
            float(numbers[each]),
            int(indexes[nearest.numbers[each, 0]]),
        )
        for each in shown.tolist()
    }
    left_out = {**source.left_out, "with zeros alone": visitor.num_zeros}
    about = {
        "kind": name,
        "num_groups": int(ranks.max(initial=-1)) + 1,
        "num_found": len(order),
        "width": visitor.width,
        "compared": len(indexes),
        "neighbours": nearest.numbers.shape[1],
        "num_wanted": source.num_wanted,
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
