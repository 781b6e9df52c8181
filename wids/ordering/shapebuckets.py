"""`shape_buckets`: shapes of similar numbers of pixels for images, by width and height."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from wids.base.arguments import check_integer, check_number

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["shape_buckets"]


def shape_buckets(
    widths: "ArrayLike",
    heights: "ArrayLike",
    *,
    pixels: int = 1 << 20,
    step: int = 64,
    most_aspect: float = 2.0,
) -> NDArray[np.int64]:
    """Choose a shape of at most `pixels` pixels for each image, of the nearest aspect ratio.

    Pass the result as the `shape` of a `BatchSampler`, and resize each image to its shape.

    Args:
        widths: Width of each image, above 0.
        heights: Height of each.
        pixels: Width times height of a shape, at most.
        step: Widths and heights of shapes are multiples of it, at least 1.
        most_aspect: The longer side of a shape to the shorter one, at most; at least 1.

    Returns:
        Width and height of the shape of each image; int64, shape `(n, 2)`.

    Raises:
        ValueError: An argument is out of its range.

    >>> shape_buckets([640, 1000, 300], [480, 1000, 900]).tolist()
    [[1152, 896], [1024, 1024], [704, 1408]]
    """
    step = check_integer("step", step, 1)
    most_aspect = check_number("most_aspect", most_aspect, 1)
    if check_number("pixels", pixels) < step * step:
        raise ValueError(f"pixels must be at least step * step = {step * step}, got {pixels}")
    pixels = int(pixels)
    try:
        wide, high = np.asarray(widths, np.float64), np.asarray(heights, np.float64)
    except (TypeError, ValueError):
        raise TypeError(
            "widths and heights must be a number for each image, got "
            f"{widths!r:.80} and {heights!r:.80}"
        ) from None
    given = np.stack([wide, high]) if wide.shape == high.shape else np.zeros(1)
    if wide.ndim != 1 or not ((given > 0) & (given < np.inf)).all():
        raise ValueError(
            f"widths and heights must be a number above 0 for each image, got arrays of the shapes "
            f"{wide.shape} and {high.shape}"
        )
    # By area over side, for every side that is in reach.
    sides = np.arange(step, pixels // step + 1, step)
    shapes = np.stack([sides, pixels // sides // step * step], axis=1)
    shapes = np.concatenate([shapes, shapes[:, ::-1]])
    shapes = np.unique(shapes[shapes.max(axis=1) <= most_aspect * shapes.min(axis=1)], axis=0)
    ratios = np.log(shapes[:, 0] / shapes[:, 1])
    # Of one ratio the largest.
    order = np.lexsort([-shapes[:, 0], ratios])
    order = order[np.diff(ratios[order], prepend=-np.inf) > 0]
    shapes, ratios = shapes[order], ratios[order]
    wanted = np.log(wide / high)
    nearest = np.searchsorted((ratios[1:] + ratios[:-1]) / 2, wanted)
    return np.asarray(shapes[nearest], np.int64)
