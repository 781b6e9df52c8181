"""Boxes, polygons, keypoints and masks of a sample, drawn over its picture.

The page finds the same shapes by the same rules, in `browse/static/shapes.js`.
"""

from __future__ import annotations

import colorsys
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Any, Literal, TypeGuard

import numpy as np

from wids.base.optional import load
from wids.base.text import clean
from wids.display.pixels import VOID, names_labels
from wids.display.thumbnails import Thumbnail, thumbnail
from wids.errors import DecodeError

if TYPE_CHECKING:
    from wids.display.fieldview import FieldView

__all__ = ["Overlay", "Shape", "draw_over", "overlay_of", "shapes_in"]

Form = Literal["xywh", "xyxy"]

_MOST = 300
_MOST_RUNS = 20_000  # of a mask
_MOST_NUMBERS = 500_000  # of all shapes together
_MOST_SIDE = 65_535
_MOST_WORD = 24
_BOX = re.compile(r"box|rect|roi", re.IGNORECASE)
_POLYGON = re.compile(r"segmentation|polygon|contour", re.IGNORECASE)
_POINTS = re.compile(r"keypoints|landmarks", re.IGNORECASE)
_LISTS_OF_LABELS = re.compile(r"labels|categories|names|classes")
_LABELS = ("label", "category", "class", "name", "category_name", "category_id", "id")
_SIDES: tuple[tuple[Form, tuple[str, ...]], ...] = (
    ("xyxy", ("xmin", "ymin", "xmax", "ymax")),
    ("xyxy", ("x1", "y1", "x2", "y2")),
    ("xyxy", ("left", "top", "right", "bottom")),
    ("xyxy", ("x0", "y0", "x1", "y1")),
    ("xywh", ("x", "y", "w", "h")),
    ("xywh", ("x", "y", "width", "height")),
    ("xywh", ("left", "top", "width", "height")),
)
_MASK_SHARE = 0.45  # of the colour of a mask
_POINT_RADIUS = 2


@dataclass(frozen=True)
class Overlay:
    """The image of a sample with what other fields say of it drawn over it.

    Attributes:
        field: Name of the field with the image.
        others: Names of the other fields.
        picture: The drawing.
    """

    field: str
    others: tuple[str, ...]
    picture: Thumbnail


@dataclass(frozen=True)
class Shape:
    """A shape in a picture.

    Attributes:
        kind: "box", "polygon", "points" or "mask".
        values: Its numbers; of polygons and points x and y in turn; of a mask x, y, width and
            height of rectangles in turn, in pixels.
        label: What it shows; "" if the document does not say it.
        form: What the numbers of a box mean: position and size, or two corners; None if unknown.
    """

    kind: Literal["box", "polygon", "points", "mask"]
    values: tuple[float, ...]
    label: str = ""
    form: Form | None = None


def shapes_in(tree: Any) -> list[Shape]:
    """Find the shapes in a JSON value, at most 300, and fewer where masks have many runs.

    >>> shapes_in({"objects": [{"bbox": [1, 2, 30, 40], "label": "cat"}]})
    [Shape(kind='box', values=(1, 2, 30, 40), label='cat', form=None)]
    """
    found: list[Shape] = []
    room = _MOST_NUMBERS
    for shape in islice(_walk(tree, "", None), _MOST):
        found.append(shape)
        room -= len(shape.values)
        if room <= 0:
            break
    return found


def _walk(value: Any, name: str, label: Any) -> Iterator[Shape]:
    if isinstance(value, Mapping):
        yield from _in_object(value, label)
    elif isinstance(value, list):
        yield from _in_list(value, name, label)


def _in_list(values: list[Any], name: str, label: Any) -> Iterator[Shape]:
    word = _word(label)
    if values and all(map(_is_number, values)):
        if _BOX.search(name) and len(values) == 4:
            corners: Form | None = "xyxy" if "xyxy" in name.lower() else None
            yield Shape("box", tuple(values), word, corners)
        elif _POLYGON.search(name) and len(values) >= 6:
            yield Shape("polygon", tuple(values), word)
        elif _POINTS.search(name) and len(values) >= 2:
            yield Shape("points", _visible(values), word)
        return
    pairs = len(values) > 2 and all(_is_pair(each) for each in values)
    if pairs and (_POLYGON.search(name) or _POINTS.search(name)):
        flat = tuple(number for each in values for number in each[:2])
        yield Shape("polygon" if _POLYGON.search(name) else "points", flat, word)
        return
    for place, each in enumerate(values):
        inner = label[place : place + 1] if isinstance(label, list) else [label]
        yield from _walk(each, name, inner[0] if inner else None)


def _in_object(document: Mapping[str, Any], outer: Any) -> Iterator[Shape]:
    own = (document[name] for name in _LABELS if _is_label(document.get(name)))
    label = next(own, outer)
    rectangles = _mask_in(document.get("size"), document.get("counts"))
    if rectangles is not None:
        yield Shape("mask", rectangles, _word(label))
        return
    for form, names in _SIDES:
        if all(_is_number(document.get(name)) for name in names):
            yield Shape("box", tuple(document[name] for name in names), _word(label), form)
            return
    # Labels may lie in a list beside that of the boxes.
    beside = next(
        (
            each
            for name, each in document.items()
            if _LISTS_OF_LABELS.fullmatch(name) and isinstance(each, list)
        ),
        label,
    )
    for name, each in document.items():
        yield from _walk(each, name, beside)


def _word(label: Any) -> str:
    return "" if label is None or isinstance(label, list) else str(label)


def _is_label(value: Any) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def _mask_in(size: Any, counts: Any) -> tuple[int, ...] | None:
    """Return a mask of COCO as rectangles; None if these are no size and lengths of runs."""
    runs = _unpacked(counts) if isinstance(counts, str) else counts
    if not (_are_integers(size) and len(size) == 2 and _are_integers(runs)):
        return None
    height, width = size
    if not (0 < height <= _MOST_SIDE and 0 < width <= _MOST_SIDE) or len(runs) > _MOST_RUNS:
        return None
    if min(runs, default=-1) < 0 or sum(runs) != height * width:
        return None
    found: list[int] = []
    ends = [0, *accumulate(runs)]
    for start, stop in zip(ends[1::2], ends[2::2], strict=False):
        found += _columns(start, stop, height)
    return tuple(found)


def _are_integers(values: Any) -> TypeGuard[list[int]]:
    return isinstance(values, list) and all(type(each) is int for each in values)


def _columns(start: int, stop: int, height: int) -> Iterator[int]:
    """Yield pixels in the order of columns, from one to another, as at most three rectangles."""
    while start < stop:
        x, y = divmod(start, height)
        whole = 0 if y else (stop - start) // height
        high = height if whole else min(height - y, stop - start)
        yield from (x, y, whole or 1, high)
        start += (whole or 1) * high


def _unpacked(text: str) -> list[int] | None:
    """Return the lengths of runs in a string of COCO; None if it is none.

    A character has five bits of a number. From the fourth number on, they are differences to the
    last but one.
    """
    runs: list[int] = []
    value = shift = 0
    for letter in text:
        code = ord(letter) - 48
        if not 0 <= code <= 63 or shift > 25 or len(runs) > _MOST_RUNS:
            return None
        value |= (code & 31) << shift
        shift += 5
        if code & 32:
            continue
        if code & 16:
            value |= -1 << shift
        runs.append(value + (runs[-2] if len(runs) > 2 else 0))
        value = shift = 0
    return None if shift else runs


def _is_number(value: Any) -> bool:
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return plain and math.isfinite(value) and abs(value) < 1e9


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) in (2, 3) and all(map(_is_number, value))


def _visible(values: Sequence[float]) -> tuple[float, ...]:
    """Return x and y of keypoints; COCO's have a third number, 0 for those that are not there."""
    thirds = values[2::3]
    if len(values) % 3 or any(each not in (0, 1, 2) for each in thirds):
        return tuple(values)
    points = zip(values[::3], values[1::3], thirds, strict=True)
    return tuple(number for x, y, is_there in points if is_there for number in (x, y))


def overlay_of(
    fields: Sequence[tuple[str, bytes | memoryview, FieldView]], size: int
) -> Overlay | None:
    """Draw the shapes in the JSON of a sample and its masks over its first image that is no mask.

    Args:
        fields: Name, contents and view of each field.
        size: Most pixels of the longer side.

    Returns:
        The drawing; None if there is no image, or nothing to draw over it.
    """
    images = [each for each in fields if each[2].kind == "image" and each[2].error is None]
    main = next((each for each in images if not names_labels(each[0])), None)
    if main is None:
        return None
    shapes, masks, others = [], [], []
    sides = _upright(main[2])
    for name, data, view in fields:
        found = shapes_in(view.summary.get("tree")) if view.kind == "json" else []
        shapes += found
        is_mask = view.kind == "image" and view.error is None and names_labels(name)
        drawn = _mask_of(name, data, view, sides, size) if is_mask else None
        masks += [] if drawn is None else [drawn]
        others += [name] if found or drawn is not None else []
    if not others:
        return None
    try:
        picture = thumbnail(main[0], main[1], size=size)
    except DecodeError:  # which is said where it is drawn alone
        return None
    return Overlay(main[0], tuple(others), draw_over(picture, sides, shapes[:_MOST], masks))


def _upright(view: FieldView) -> tuple[int, int]:
    width, height = view.summary["width"], view.summary["height"]
    return (height, width) if view.summary.get("orientation", 1) > 4 else (width, height)


def _mask_of(
    name: str, data: bytes | memoryview, view: FieldView, sides: tuple[int, int], size: int
) -> Thumbnail | None:
    """Return the label map of an image with given sides; None if a field is none."""
    width, height = _upright(view)
    if abs(width * sides[1] - height * sides[0]) > 0.02 * width * sides[1]:
        return None
    try:
        drawn = thumbnail(name, data, size=size)
    except DecodeError:
        return None
    return drawn if drawn.labels else None


def draw_over(
    picture: Thumbnail,
    size: tuple[int, int],
    shapes: Sequence[Shape],
    masks: Sequence[Thumbnail] = (),
) -> Thumbnail:
    """Draw shapes and masks over a picture.

    Args:
        picture: The picture.
        size: Width and height of the whole image, upright, in whose pixels the shapes are given;
            numbers up to 1 are shares of these.
        shapes: The shapes.
        masks: Pictures of label maps of the image; 0 and 255, which are no class, stay clear.
    """
    pil = load("PIL.Image", "pillow")
    pen = load("PIL.ImageDraw", "pillow")
    image = pil.open(io.BytesIO(picture.data)).convert("RGB")
    for mask in masks:
        image = _under(image, mask)
    others = [each for each in shapes if each.kind != "mask"]
    shares = bool(others) and all(
        -0.01 <= value <= 1.01 for shape in others for value in shape.values
    )
    form = _guessed(shapes, (1, 1) if shares else size)
    scale = image.size if shares else (image.width / size[0], image.height / size[1])
    colours = {
        label: _colour(place) for place, label in enumerate({each.label: 0 for each in shapes})
    }
    for shape in shapes:
        if shape.kind == "mask":
            image = _tinted(image, size, shape.values, colours[shape.label])
    draw = pen.Draw(image)
    for shape in others:
        _draw(draw, shape, shape.form or form, scale, colours[shape.label])
    stream = io.BytesIO()
    image.save(stream, "PNG", compress_level=1)
    return replace(
        picture, media_type="image/png", data=stream.getvalue(), labels=(), value_range=None
    )


def _under(image: Any, mask: Thumbnail) -> Any:
    """Return the image with the colours of a mask laid over it."""
    pil = load("PIL.Image", "pillow")
    labels = pil.open(io.BytesIO(mask.data)).convert("RGB")
    colours = np.asarray(labels.resize(image.size, pil.Resampling.NEAREST))
    clear = np.zeros(colours.shape[:2], np.bool_)
    for label in mask.labels:
        if label.value in (0, VOID):
            levels = [int(label.colour[at : at + 2], 16) for at in (1, 3, 5)]
            clear |= (colours == levels).all(axis=-1)
    pixels = np.asarray(image)
    mixed = (_MASK_SHARE * colours + (1 - _MASK_SHARE) * pixels).astype(np.uint8)
    return pil.fromarray(np.where(clear[..., None], pixels, mixed))


def _tinted(image: Any, size: tuple[int, int], values: Sequence[float], colour: str) -> Any:
    """Return the image with rectangles of the whole image laid over it in a colour."""
    pil = load("PIL.Image", "pillow")
    pen = load("PIL.ImageDraw", "pillow")
    stencil = pil.new("L", image.size)
    draw = pen.Draw(stencil)
    across, down = image.width / size[0], image.height / size[1]
    for x, y, width, height in zip(*(values[n::4] for n in range(4)), strict=True):
        left, top = min(int(x * across), image.width), min(int(y * down), image.height)
        right, bottom = (x + width) * across, (y + height) * down
        corners = (left, top, max(left, math.ceil(right) - 1), max(top, math.ceil(bottom) - 1))
        draw.rectangle(corners, fill=round(255 * _MASK_SHARE))
    return pil.composite(pil.new("RGB", image.size, colour), image, stencil)


def _guessed(shapes: Sequence[Shape], size: tuple[float, float]) -> Form:
    """Guess the form of boxes that do not say it: what lies in the image, COCO's if both do."""
    boxes = [each.values for each in shapes if each.kind == "box" and each.form is None]
    as_sizes = all(x + a <= 1.02 * size[0] and y + b <= 1.02 * size[1] for x, y, a, b in boxes)
    as_corners = all(a > x and b > y for x, y, a, b in boxes)
    return "xyxy" if as_corners and not as_sizes else "xywh"


def _draw(draw: Any, shape: Shape, form: Form, scale: Sequence[float], colour: str) -> None:
    values = list(shape.values)
    if shape.kind == "box" and form == "xywh":
        values[2:] = values[0] + values[2], values[1] + values[3]
    # Far outside, drawing takes time and shows nothing.
    limits = [2 * side for side in draw.im.size]
    points = [
        (_within(x * scale[0], limits[0]), _within(y * scale[1], limits[1]))
        for x, y in zip(values[::2], values[1::2], strict=False)
    ]
    if not points:
        return
    if shape.kind == "points":
        for x, y in points:
            corners = x - _POINT_RADIUS, y - _POINT_RADIUS, x + _POINT_RADIUS, y + _POINT_RADIUS
            draw.ellipse(corners, fill=colour, outline="white")
    elif shape.kind == "box":
        (left, right), (top, bottom) = (sorted(each) for each in zip(*points, strict=True))
        draw.rectangle((left, top, right, bottom), outline=colour, width=2)
    else:
        draw.line([*points, points[0]], fill=colour, width=2)
    if shape.label:
        _write(draw, points[0], clean(shape.label, _MOST_WORD), colour)


def _within(value: float, limit: float) -> float:
    return min(max(value, -limit), limit)


def _write(draw: Any, place: tuple[float, float], text: str, colour: str) -> None:
    plain = text.encode("ascii", "replace").decode()
    x, y = max(place[0], 0), max(place[1], 0)
    draw.rectangle(draw.textbbox((x + 1, y), plain), fill="white")
    draw.text((x + 1, y), plain, fill=colour)


def _colour(place: int) -> str:
    """Return a colour for the label of a number; neighbours differ much."""
    levels = colorsys.hls_to_rgb(place * 0.618 % 1, 0.42, 0.9)
    return "#{:02x}{:02x}{:02x}".format(*(round(255 * each) for each in levels))
