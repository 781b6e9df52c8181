"""Arrays as pictures: which ones make one, and the levels of grey or colour that they become."""

import math
from typing import Any

import numpy as np

__all__ = ["is_picture", "levels", "pixels_of"]

MIN_SIDE = 8  # a 4 x 4 matrix is better read as numbers
MAX_RATIO = 64  # of the sides; a thinner strip would be a line
CHANNELS = (1, 3, 4)


def is_picture(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
    """Tell whether an array is one that can be looked at.

    Args:
        shape: (height, width), with 1, 3 or 4 channels first or last, and any number of leading
            axes of length 1.
        dtype: Booleans, integers and floats make pictures.

    >>> is_picture((3, 32, 48), np.dtype("f4")), is_picture((768,), np.dtype("f4"))
    (True, False)
    """
    if dtype.kind not in "biuf":
        return False
    layout = _layout(shape)
    if layout is None:
        return False
    height, width = layout[:2]
    return min(height, width) >= MIN_SIDE and max(height, width) <= MAX_RATIO * min(height, width)


def _layout(shape: tuple[int, ...]) -> tuple[int, int, int, bool] | None:
    """Return height, width, channels (0 for none) and whether these come first."""
    while len(shape) > 2 and shape[0] == 1:
        shape = shape[1:]
    if len(shape) == 2:
        return (*shape, 0, False)
    if len(shape) == 3 and shape[2] in CHANNELS:
        return (*shape, False)
    if len(shape) == 3 and shape[0] in CHANNELS:
        return (*shape[1:], shape[0], True)
    return None


def pixels_of(array: np.ndarray, side: int) -> np.ndarray:
    """Draw an array.

    Args:
        array: One for which `is_picture` holds; only what is drawn of it is read.
        side: Most pixels of a side. Of larger arrays each n-th row and column is taken.

    Returns:
        uint8, shape (height, width), (height, width, 3) or (height, width, 4).

    Raises:
        ValueError: The array makes no picture.
    """
    layout = _layout(array.shape)
    if layout is None or not is_picture(array.shape, array.dtype):
        raise ValueError(f"an array of shape {array.shape} and type {array.dtype} is no picture")
    height, width, channels, first = layout
    planes = array.reshape(array.shape[-3:] if channels else array.shape[-2:])
    if first:
        planes = planes.transpose(1, 2, 0)
    step = max(1, math.ceil(max(height, width) / side))
    # Taken before anything is computed, so that a mapped array of gigabytes is hardly touched.
    picked = planes[::step, ::step]
    return levels(picked[..., 0] if channels == 1 else picked)


def levels(values: np.ndarray) -> np.ndarray:
    """Turn values into uint8 levels.

    Bytes stay as they are; truth values, and colours in [0, 1] or in [0, 255], keep their levels.
    Everything else (depth, 16-bit images, label maps) is stretched from its least to its greatest
    finite value; what is not finite becomes 0.

    Args:
        values: Booleans, integers or floats, shape (height, width) or with 3 or 4 channels.

    >>> levels(np.array([[0.0, 500.0, np.nan, 1000.0]]))
    array([[  0, 128,   0, 255]], dtype=uint8)
    """
    if values.dtype == np.uint8:
        return values
    # Halved, as the difference of the extremes of float64 is beyond float64. A signalling NaN, as
    # damaged files have them, would warn here.
    with np.errstate(invalid="ignore"):
        halves = values.astype(np.float64) / 2
    finite = np.isfinite(halves)
    if not finite.any():
        return np.zeros(values.shape, np.uint8)
    low, high = halves[finite].min(), halves[finite].max()
    if values.dtype.kind == "b" or (values.ndim == 3 and low >= 0):
        low, high = 0.0, next((top for top in (0.5, 127.5) if high <= top), high)
    scaled = np.where(finite, halves - low, 0.0) / ((high - low) or 1.0)
    return np.rint(255 * scaled).astype(np.uint8)
