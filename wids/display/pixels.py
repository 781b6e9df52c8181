"""Pixels of arrays and of images that are data: grey levels, and label maps in distinct colours.

Class-index masks, depth maps and 16-bit images look black if their values are taken for grey
levels. So masks with few values are drawn with one colour per value, and other arrays are stretched
over all grey levels. An `ArrayDrawing` states which value has which colour or level.
"""

import colorsys
import math
import re
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "MAX_DARK",
    "MAX_UNNAMED_LABELS",
    "VOID",
    "ArrayDrawing",
    "Label",
    "draw_array",
    "draw_labels",
    "draw_values",
    "every_nth",
    "is_picture",
    "label_values",
    "levels",
    "names_labels",
]

MIN_SIDE = 8  # smaller matrices are easier to read as numbers
MAX_RATIO = 64  # of the sides; a longer strip would look like a line
CHANNELS = (1, 3, 4)
MAX_LABELS = 256  # distinct values in a field whose name says that it holds labels
MAX_UNNAMED_LABELS = 64  # distinct values in other fields
MAX_DARK = 64  # greater values are visible as grey levels, so the field may be a grey image
VOID = 255  # "no class" in most masks of bytes
LABEL_NAMES = re.compile(r"mask|seg|label|class|instance|panoptic|semantic|annotation|index")
_BAND_SIZE = 1 << 20  # values that are turned into levels at a time
_KEPT_RANGES = ((0.0, 1.0), (0.0, 255.0))


class Label(NamedTuple):
    """One value of a label map.

    Attributes:
        value: The value in the mask.
        colour: Its colour in the drawing, "#rrggbb".
        share: Share of the pixels, in (0, 1].
    """

    value: int
    colour: str
    share: float


@dataclass(frozen=True)
class ArrayDrawing:
    """Pixels to show, and their meaning.

    Attributes:
        pixels: uint8, shape (height, width), (height, width, 3) or (height, width, 4).
        labels: Legend of a label map, ascending by value; empty for other drawings.
        value_range: Least and greatest value if these were drawn black and white; else None.
    """

    pixels: np.ndarray
    labels: tuple[Label, ...] = ()
    value_range: tuple[float, float] | None = None


def is_picture(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
    """Return whether an array can be shown as a picture.

    Args:
        shape: (height, width), with 1, 3 or 4 channels first or last, and any number of leading
            axes of length 1.
        dtype: Type of the elements; booleans, integers and floats can be shown.

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
    """Return height, width, channels (0 for none) and whether the channels are the first axis."""
    while len(shape) > 2 and shape[0] == 1:
        shape = shape[1:]
    if len(shape) == 2:
        return (*shape, 0, False)
    if len(shape) == 3 and shape[2] in CHANNELS:
        return (*shape, False)
    if len(shape) == 3 and shape[0] in CHANNELS:
        return (*shape[1:], shape[0], True)
    return None


def draw_array(array: np.ndarray, side: int, *, named_labels: bool = False) -> ArrayDrawing:
    """Draw an array.

    Args:
        array: An array that `is_picture` accepts; only the elements that are drawn are read.
        side: Most pixels of a side. For larger arrays, every n-th row and column is taken.
        named_labels: Whether the name of the field says that it holds labels.

    Raises:
        ValueError: The array makes no picture.
    """
    layout = _layout(array.shape)
    if layout is None or not is_picture(array.shape, array.dtype):
        raise ValueError(f"an array of shape {array.shape} and type {array.dtype} is no picture")
    channels, first = layout[2:]
    planes = array.reshape(array.shape[-3:] if channels else array.shape[-2:])
    if first:
        planes = planes.transpose(1, 2, 0)
    planes = every_nth(planes, side)
    return draw_values(planes[..., 0] if channels == 1 else planes, named_labels=named_labels)


def every_nth(values: np.ndarray, side: int) -> np.ndarray:
    """Return every n-th row and column, so that no side is longer than `side`."""
    # First of all, so that little of a mapped array of gigabytes is read.
    step = max(1, math.ceil(max(values.shape[:2]) / side))
    return values[::step, ::step]


def draw_values(values: np.ndarray, *, named_labels: bool = False) -> ArrayDrawing:
    """Draw values as a label map if they are one, else as grey levels or colours.

    Args:
        values: Booleans, integers or floats, shape (height, width) or with 3 or 4 channels.
        named_labels: Whether the name of the field says that it holds labels.

    >>> draw_values(np.arange(1200).reshape(30, 40)).value_range
    (0.0, 1199.0)
    """
    found = label_values(values, named_labels=named_labels)
    if found is not None:
        return draw_labels(values, found)
    low, high = _extent(values) or (0.0, 0.0)
    kept = values.dtype == np.uint8 or (low, high) in _KEPT_RANGES
    return ArrayDrawing(levels(values), value_range=None if kept else (low, high))


def names_labels(extension: str) -> bool:
    """Return whether a field holds labels, by its extension.

    >>> names_labels(".seg.png"), names_labels(".depth.png")
    (True, False)
    """
    return LABEL_NAMES.search(extension.lower()) is not None


def label_values(values: np.ndarray, *, named_labels: bool) -> np.ndarray | None:
    """Return the distinct values of a label map, ascending; None for other arrays.

    A label map has few distinct integers. An array of bytes counts as grey levels if some of its
    values are bright, unless the name of the field says that it holds labels.

    >>> mask = np.zeros((30, 40), np.uint8)
    >>> mask[10:20], mask[20:] = 3, 255
    >>> label_values(mask, named_labels=False)
    array([  0,   3, 255], dtype=uint8)
    """
    if values.ndim != 2 or values.dtype.kind not in "iu" or not values.size:
        return None
    most = MAX_LABELS if named_labels else MAX_UNNAMED_LABELS
    # A few rows are enough to recognise most photographs.
    if np.unique(values[:: max(1, len(values) // 16)]).size > most:
        return None
    found = np.unique(values)
    one_value_a_pixel = found.size * 4 > values.size
    if not 1 < found.size <= most or one_value_a_pixel or found.tolist() == [0, VOID]:
        return None
    if values.dtype == np.uint8 and not named_labels and found[found < VOID].max() > MAX_DARK:
        return None
    return found


def draw_labels(
    values: np.ndarray, found: np.ndarray, colours: np.ndarray | None = None
) -> ArrayDrawing:
    """Draw a label map.

    Args:
        values: Integers, shape (height, width).
        found: Their distinct values, ascending.
        colours: A colour for each of these values, uint8, shape (len(found), 3). By default the
            colour depends on the value alone, so that a class has one colour in all masks.
    """
    if colours is None:
        colours = np.array([_colour_of(value) for value in found.tolist()], np.uint8)
    places = np.searchsorted(found, values)
    counts = np.bincount(places.ravel(), minlength=found.size)
    labels = tuple(
        Label(value, "#{:02x}{:02x}{:02x}".format(*colour), count / values.size)
        for value, colour, count in zip(
            found.tolist(), colours.tolist(), counts.tolist(), strict=True
        )
    )
    return ArrayDrawing(colours[places], labels)


def _colour_of(value: int) -> tuple[int, int, int]:
    """Return the colour of a label: dark for 0, the usual background; light for 255, "no class"."""
    if value in {0, VOID}:
        return (38, 42, 51) if value == 0 else (222, 222, 222)
    # Hues at steps of the golden ratio never repeat; brightness varies to separate close hues.
    hue = value * 0.6180339887498949 % 1.0
    brightness = (0.95, 0.72, 0.84)[value % 3]
    colour = colorsys.hsv_to_rgb(hue, (0.65, 0.85)[value % 2], brightness)
    return tuple(round(255 * part) for part in colour)  # type: ignore[return-value]


def _extent(values: np.ndarray) -> tuple[float, float] | None:
    """Return the values drawn as black and as white; None if no value is finite."""
    with np.errstate(invalid="ignore"):
        finite = np.isfinite(values)
    known = values[finite]
    if not known.size:
        return None
    low, high = float(known.min()), float(known.max())
    # Booleans, and colours in [0, 1] or in [0, 255], keep their levels.
    if values.dtype.kind == "b" or (values.ndim == 3 and low >= 0):
        return 0.0, next((top for _, top in _KEPT_RANGES if high <= top), high)
    return low, high


def levels(values: np.ndarray) -> np.ndarray:
    """Turn values into uint8 levels.

    Bytes stay as they are; booleans, and colours in [0, 1] or in [0, 255], keep their levels. Other
    arrays, such as depth and 16-bit images, are stretched from their least to their greatest finite
    value; values that are not finite become 0.

    Args:
        values: Booleans, integers or floats, shape (height, width) or with 3 or 4 channels.

    >>> levels(np.array([[0.0, 500.0, np.nan, 1000.0]]))
    array([[  0, 128,   0, 255]], dtype=uint8)
    """
    if values.dtype == np.uint8:
        return values
    extent = _extent(values)
    if extent is None:
        return np.zeros(values.shape, np.uint8)
    found = np.empty(values.shape, np.uint8)
    # In bands, because float64 takes four times the memory of 16 bits.
    rows = max(1, _BAND_SIZE // max(1, values[:1].size))
    for top in range(0, len(values), rows):
        found[top : top + rows] = _stretched(values[top : top + rows], *extent)
    return found


def _stretched(values: np.ndarray, low: float, high: float) -> np.ndarray:
    # Halved, because the difference of the extremes of float64 overflows. Warnings are off, because
    # damaged files may hold signalling NaNs.
    with np.errstate(invalid="ignore"):
        halves = values.astype(np.float64) / 2
    low, high = low / 2, high / 2
    scaled = np.where(np.isfinite(halves), halves - low, 0.0) / ((high - low) or 1.0)
    return np.rint(255 * scaled).astype(np.uint8)
