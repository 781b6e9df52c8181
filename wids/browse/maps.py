"""Map of a field of vectors: a point for each sample, by the two principal components.

Of a large dataset, samples at even distances are taken, as many as fit a bounded memory. Vectors of
two numbers are shown as they are.
"""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from wids.browse.catalogueclient import NotBuiltError
from wids.browse.looks import vector_of, vectors_of
from wids.browse.scans import PATIENT_SECONDS, SOON_SECONDS
from wids.errors import WidsError

if TYPE_CHECKING:
    from wids.browse.catalogueclient import CatalogueClient
    from wids.browse.fieldreader import FieldReader, LocatedSample
    from wids.browse.scans import Scans
    from wids.ordering.permute import Integers

__all__ = ["Maps", "Plane", "VectorVisitor", "inside_polygon", "principal_plane"]

_MOST_POINTS = 50_000
_MOST_NUMBERS = 16_000_000  # of all vectors together, 4 bytes each
_LOOK_SAMPLES = 6
_ROWS_A_REQUEST = 256
_FAR = 100  # times the median length; a longer vector is shortened to it
_ITERATIONS = 20
_BLOCK = 8  # vectors of the subspace; more than two, so that two become exact soon
_MOST_CORNERS = 200
_NUMBER = re.compile(r"-?\d{1,12}(\.\d{1,12})?(e-?\d{1,3})?")


class Plane(NamedTuple):
    """Points of a map.

    Attributes:
        indexes: Index of the sample of each point, ascending.
        points: Its two coordinates; shape `(n, 2)`.
        width: Numbers of a vector.
        share: Share of the variance that the two coordinates show.
        num_shortened: Number of vectors that were shortened, because they are far too long.
    """

    indexes: Integers
    points: np.ndarray
    width: int
    share: float
    num_shortened: int


def principal_plane(vectors: np.ndarray) -> tuple[np.ndarray, float, int]:
    """Project vectors to their two principal components.

    Args:
        vectors: Finite floats; shape `(n, width)`. They are changed in place.

    Returns:
        The coordinates, shape `(n, 2)`; the share of the variance that they show; and the number of
        vectors that were shortened, to 100 times the median length. Vectors of two numbers are
        returned as they are.

    >>> points, share, _ = principal_plane(np.array([[0.0, 0, 0], [1, 1, 0], [2, 2, 0]]))
    >>> bool(np.allclose(np.abs(points[:, 0]), [2**0.5, 0, 2**0.5])), round(share, 3)
    (True, 1.0)
    """
    if vectors.shape[1] == 2:
        return vectors.astype(np.float64), 1.0, 0
    # A few vectors that are far too long would leave no room for all others. The lengths are
    # those of doubles, whose squares neither vanish nor overflow.
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))
    usual = float(np.median(lengths)) or float(lengths.max()) or 1.0
    factors = np.minimum(1, _FAR * usual / np.maximum(lengths, usual)) / usual
    np.multiply(vectors, factors[:, None], out=vectors, casting="unsafe")
    vectors -= vectors.mean(axis=0)
    total = float(np.einsum("ij,ij->", vectors, vectors, dtype=np.float64))
    size = min(_BLOCK, *vectors.shape)
    axes = np.random.default_rng(0).normal(size=(vectors.shape[1], size)).astype(vectors.dtype)
    for _ in range(_ITERATIONS):
        axes, _ = np.linalg.qr(vectors.T @ (vectors @ axes))
    # Within the subspace, the components are exact.
    inner = (vectors @ axes).astype(np.float64)
    _, found = np.linalg.eigh(inner.T @ inner)
    best = found[:, ::-1][:, :2]
    # The sign of a component is free; the map of the same vectors shall be the same.
    loads = axes.astype(np.float64) @ best
    best = best * np.where(loads[np.abs(loads).argmax(axis=0), range(best.shape[1])] < 0, -1, 1)
    points = np.zeros((len(vectors), 2))
    points[:, : best.shape[1]] = inner @ best
    share = float((points**2).sum() / total) if total > 0 else 1.0
    return points * usual, min(share, 1.0), int((lengths > _FAR * usual).sum())


def inside_polygon(points: np.ndarray, corners: np.ndarray) -> np.ndarray:
    """Return which points lie in a polygon, by the even-odd rule.

    Args:
        points: Points; shape `(n, 2)`.
        corners: Corners in their order; shape `(m, 2)`.

    >>> square = np.array([[0.0, 0], [2, 0], [2, 2], [0, 2]])
    >>> inside_polygon(np.array([[1.0, 1], [3, 1]]), square).tolist()
    [True, False]
    """
    inside = np.zeros(len(points), np.bool_)
    x, y = points[:, 0], points[:, 1]
    for (x1, y1), (x2, y2) in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        if y1 == y2:
            continue
        crosses = (y1 > y) != (y2 > y)
        inside ^= crosses & (x < x1 + (y - y1) / (y2 - y1) * (x2 - x1))
    return inside


class VectorVisitor:
    """Visitor that collects the vectors of one field.

    Args:
        reader: The dataset.
        field: Extension of the field, or name of a column of lists in JSON.

    Attributes:
        num_wanted: Samples whose vectors are read.
        left_out: Number of these that have no point, by the reason.
    """

    def __init__(self, reader: FieldReader, field: str) -> None:
        self.num_wanted = 0
        self.left_out = dict.fromkeys(("no vector", "NaN or infinite", "of another width"), 0)
        self._reader = reader
        self._field, _, path = field.partition(":")
        self._path = tuple(path.split(".")) if path else ()
        self._by_width: dict[int, list[tuple[int, np.ndarray]]] = {}
        self._room = _MOST_NUMBERS
        self._wanted: Integers | None = None
        self._lock = threading.Lock()
        self._plane: Plane | None = None

    def visit(self, shard_index: int) -> bool:
        """Read the vectors of one shard."""
        reader = self._reader
        if reader.tar_index(shard_index) is None:
            return reader.num_samples(shard_index) == 0
        first = reader.first_index(shard_index)
        if self._wanted is None:
            total = len(self._reader)
            width = 1
            for index in range(first, min(first + _LOOK_SAMPLES, total)):
                vector = self._vector_at(self._reader.locate(index))
                width = max(width, 0 if vector is None else vector.size)
            count = max(1, min(total, _MOST_POINTS, _MOST_NUMBERS // width))
            self._wanted = np.arange(count, dtype=np.int64) * total // count
        ends = [first, first + reader.num_samples(shard_index)]
        low, high = np.searchsorted(self._wanted, ends)
        indexes = self._wanted[low:high]
        for start in range(0, len(indexes), _ROWS_A_REQUEST):
            self._read(shard_index, indexes[start : start + _ROWS_A_REQUEST])
        return True

    def _read(self, shard_index: int, indexes: Integers) -> None:
        self.num_wanted += len(indexes)
        found = vectors_of(self._reader, shard_index, indexes, self._field)
        for index, vector in zip(indexes[found.rows].tolist(), found.vectors, strict=True):
            self._add(index, vector)
        self.left_out["no vector"] += len(indexes) - len(found.rows) - len(found.others)
        located = [self._reader.locate(index) for index in indexes[found.others].tolist()]
        self._reader.fetch_ahead(located, self._numbers)
        for each in located:
            self._add(each.index, self._vector_at(each))

    def _add(self, index: int, vector: np.ndarray | None) -> None:
        if vector is None or vector.size > self._room:
            self.left_out["no vector"] += 1
        elif not np.isfinite(vector).all():
            self.left_out["NaN or infinite"] += 1
        else:
            self._room -= vector.size
            self._by_width.setdefault(vector.size, []).append((index, vector))

    def _numbers(self, located: LocatedSample) -> list[int]:
        return [n for n, field in enumerate(located.fields) if field.extension == self._field]

    def _vector_at(self, located: LocatedSample) -> np.ndarray | None:
        try:
            found = (
                vector_of(self._reader, located, n, self._path) for n in self._numbers(located)
            )
            return next(found, None)
        except (WidsError, OSError):
            return None

    def plane(self) -> Plane:
        """Return the points; of vectors of several widths, those of the commonest."""
        with self._lock:
            if self._plane is None:
                indexes, vectors = self.take()
                if not indexes.size:
                    self._plane = Plane(indexes, np.empty((0, 2)), 0, 0.0, 0)
                else:
                    points, share, far = principal_plane(vectors)
                    self._plane = Plane(indexes, points, vectors.shape[1], share, far)
            return self._plane

    def take(self) -> tuple[Integers, np.ndarray]:
        """Return the indexes and vectors of the commonest width, and keep none of them."""
        if not self._by_width:
            return np.empty(0, np.int64), np.empty((0, 0), np.float32)
        width = max(self._by_width, key=lambda each: len(self._by_width[each]))
        rows = sorted(self._by_width.pop(width), key=lambda row: row[0])
        self.left_out["of another width"] = sum(map(len, self._by_width.values()))
        self._by_width.clear()
        indexes = np.array([index for index, _ in rows], np.int64)
        return indexes, np.stack([vector for _, vector in rows])


class Maps:
    """Maps of the fields of vectors of a dataset.

    Args:
        reader: The dataset.
        scans: Background scans, which read the vectors.
        catalogue: Has the columns by which points are coloured.
    """

    def __init__(self, reader: FieldReader, scans: Scans, catalogue: CatalogueClient) -> None:
        self._reader = reader
        self._scans = scans
        self._catalogue = catalogue

    def inside(self, text: str) -> Integers:
        """Return the indexes of the samples inside an outline of a map.

        Args:
            text: The field and the corners, such as ".emb.npy,0,0,1,0,1,1".

        Raises:
            ValueError: It is malformed, or the map is still read.
        """
        field, *numbers = text.split(",")
        if len(numbers) % 2 or not 6 <= len(numbers) <= 2 * _MOST_CORNERS:
            raise ValueError(
                "inside: expected a field and the corners of an outline, such as "
                f".emb.npy,0,0,1,0,1,1, got {text[:60]!r}"
            )
        if not all(map(_NUMBER.fullmatch, numbers)):
            raise ValueError(f"inside: expected numbers behind the field, got {text[:60]!r}")
        visitor, progress = self._visited(field, PATIENT_SECONDS)
        if not progress["finished"]:
            done = f"{progress['shards_done']} of {progress['num_shards']} shards"
            raise ValueError(f"inside: the map is still read ({done}); reload the page")
        plane = visitor.plane()
        corners = np.array(numbers, np.float64).reshape(-1, 2)
        found: Integers = plane.indexes[inside_polygon(plane.points, corners)]
        return found

    def as_dict(self, field: str, colour: str) -> dict[str, Any]:
        """Return a map as JSON; until all vectors are read, its progress alone.

        Args:
            field: Extension of the field.
            colour: Name of the column that colours the points; "" for none.

        Raises:
            ValueError: There is no such column.
            CatalogueError: The catalogue cannot be built.
        """
        visitor, progress = self._visited(field, SOON_SECONDS)
        told: dict[str, Any] = {"columns": [], "colours": None}
        try:
            if self._catalogue.is_installed:
                facets, _ = self._catalogue.ask("facets")
                told["columns"] = [facet["name"] for facet in facets["facets"]]
            if not progress["finished"]:
                return {**progress, **told}
            plane = visitor.plane()
            if colour and len(plane.indexes):
                told["colours"], _ = self._catalogue.ask("colours", plane.indexes, column=colour)
        except NotBuiltError as error:
            return {**error.progress, **told}
        return {
            **progress,
            **told,
            "width": plane.width,
            "share": plane.share,
            "num_shortened": plane.num_shortened,
            "num_wanted": visitor.num_wanted,
            "left_out": {name: count for name, count in visitor.left_out.items() if count},
            "indexes": plane.indexes.tolist(),
            "places": [float(f"{each:.5g}") for each in plane.points.ravel().tolist()],
        }

    def _visited(self, field: str, seconds: float) -> tuple[VectorVisitor, dict[str, Any]]:
        scan = self._scans.get(
            ("map", field),
            lambda: VectorVisitor(self._reader, field),
            range(self._reader.num_shards),
        )
        scan.join(seconds)
        return scan.visitor, scan.progress()
