"""Map of a field of vectors: a point for each sample, by the two principal components.

Vectors of two numbers are shown as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Generator

    from wids.browse.catalogueclient import CatalogueClient
    from wids.browse.scans import Scans
    from wids.ordering.permute import Integers

__all__ = ["Plane", "inside", "inside_polygon", "map_of", "principal_plane"]

_FAR = 100  # times the median length; a longer vector is shortened to it
_ITERATIONS = 20
_BLOCK = 8  # vectors of the subspace; more than two, so that two become exact soon
_MOST_CORNERS = 200


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
    if vectors.shape[1] == 2 or not len(vectors):
        return vectors.astype(np.float64).reshape(-1, 2), 1.0, 0
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


def project(indexes: Integers, vectors: np.ndarray) -> Generator[None, None, Plane]:
    """Make the map of vectors that a scan has read; in one step."""
    points, share, num_shortened = principal_plane(vectors)
    yield
    return Plane(indexes, points, vectors.shape[1], share, num_shortened)


def inside(scans: Scans, text: str) -> Integers:
    """Return the indexes of the samples inside an outline of a map.

    Args:
        scans: Background scans, which read the vectors.
        text: The field and the corners, such as ".emb.npy,0,0,1,0,1,1".

    Raises:
        ValueError: It is malformed.
        NotReadyError: The vectors are still read.
    """
    field, *numbers = text.split(",")
    try:
        corners = np.array(numbers, np.float64).reshape(-1, 2)
    except ValueError:
        corners = np.empty((0, 2))
    if not (3 <= len(corners) <= _MOST_CORNERS and np.isfinite(corners).all()):
        raise ValueError(
            "inside: expected a field and the corners of an outline, such as "
            f".emb.npy,0,0,1,0,1,1, got {text[:60]!r}"
        )
    plane, _ = scans.finished(field, project, 1, patient=True)
    found: Integers = plane.indexes[inside_polygon(plane.points, corners)]
    return found


def map_of(scans: Scans, catalogue: CatalogueClient, field: str, colour: str) -> dict[str, Any]:
    """Return a map as JSON.

    Args:
        scans: Background scans, which read the vectors.
        catalogue: Has the columns by which points are coloured.
        field: As for `wids.browse.vectors.VectorReader`.
        colour: Name of the column that colours the points; "" for none.

    Raises:
        ValueError: There is no such column.
        NotReadyError: The vectors or the catalogue are still read.
        CatalogueError: The catalogue cannot be built.
    """
    plane, told = scans.finished(field, project, 1)
    columns: list[str] = []
    colours = None
    if catalogue.is_installed:
        facets, _ = catalogue.ask("facets")
        columns = [each["name"] for each in facets["facets"] if each["kind"] != "shards"]
    if colour and len(plane.indexes):
        colours, _ = catalogue.ask("colours", plane.indexes, column=colour)
    return {
        **told,
        "columns": columns,
        "colours": colours,
        "width": plane.width,
        "share": plane.share,
        "num_shortened": plane.num_shortened,
        "indexes": plane.indexes.tolist(),
        "places": [float(f"{each:.5g}") for each in plane.points.ravel().tolist()],
    }
