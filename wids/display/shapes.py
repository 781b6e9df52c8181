"""Boxes, polygons, keypoints and masks of a sample, drawn over its picture."""

from __future__ import annotations

import colorsys
import io
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.base.optional import load
from wids.base.text import clean
from wids.display.annotations import MOST_SHAPES, Form, Shape, shapes_of
from wids.display.pixels import VOID, names_labels
from wids.display.thumbnails import TURNS, Thumbnail, thumbnail
from wids.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wids.display.fieldview import FieldView

__all__ = ["Overlay", "draw_over", "overlay_of"]

_MOST_WORD = 24
_MASK_SHARE = 0.45  # of the colour of a mask
_POINT_RADIUS = 2


@dataclass(frozen=True)
class Overlay:
    """The image of a sample with what other fields say of it drawn over it.

    Attributes:
        field: Name of the field with the image.
        others: Names of the other fields.
        picture: The drawing; None if nothing was found to draw, though not all was searched.
        said: What is not drawn; "" if everything is.
    """

    field: str
    others: tuple[str, ...]
    picture: Thumbnail | None
    said: str


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
    shapes: list[Shape] = []
    masks, others, cut = [], [], []
    left_out = 0
    for name, data, view in fields:
        document = shapes_of(view.summary) if view.kind == "json" else None
        found = () if document is None else document.drawn
        shapes += found
        left_out += 0 if document is None else document.left_out
        cut += [name] if document is not None and not document.whole else []
        is_mask = view.kind == "image" and view.error is None and names_labels(name)
        drawn = _mask_of(name, data, view, main[2], size) if is_mask else None
        masks += [] if drawn is None else [drawn]
        others += [name] if found or drawn is not None else []
    said = _not_drawn(len(shapes), left_out, cut)
    if not others:
        return Overlay(main[0], (), None, said) if said else None
    try:
        picture = thumbnail(main[0], main[1], size=size)
    except DecodeError:  # which is said where it is drawn alone
        return None
    turned = _as_shown(shapes[:MOST_SHAPES], main[2])
    drawing = draw_over(picture, _upright(main[2]), turned, masks)
    return Overlay(main[0], tuple(others), drawing, said)


def _not_drawn(num_found: int, left_out: int, cut: Sequence[str]) -> str:
    """Return in words what of the shapes is not drawn."""
    total = num_found + left_out
    drawn = min(num_found, MOST_SHAPES)
    said = [f"The first {drawn:,} of {total:,} shapes are drawn."] if drawn < total else []
    if cut:
        named = ", ".join(cut)
        said.append(f"Not searched to its end for shapes, since it is too large: {named}.")
    return " ".join(said)


def _as_shown(shapes: Sequence[Shape], main: FieldView) -> Sequence[Shape]:
    """Return shapes in the pixels of an image as it is shown.

    Some programs ignore EXIF. If shapes lie in the image as it is stored, and not as it is shown,
    they are turned with it.
    """
    shown, orientation = _upright(main), main.summary.get("orientation", 1)
    stored = shown[::-1]
    if orientation <= 4 or _lie_in(shapes, shown) or not _lie_in(shapes, stored):
        return shapes
    form = _guessed(shapes, stored)
    return [_transposed(shape, shape.form or form, stored, orientation) for shape in shapes]


def _lie_in(shapes: Sequence[Shape], size: tuple[int, int]) -> bool:
    """Return whether all shapes end before the right and the lower edge of an image."""
    form = _guessed(shapes, size)
    return all(
        value <= 1.02 * size[number % 2]
        for shape in shapes
        for number, value in enumerate(_corners(shape, form))
    )


def _corners(shape: Shape, form: Form) -> list[float]:
    """Return x and y of each point; a box, or a rectangle of a mask, gives two opposite corners."""
    values = list(shape.values)
    if shape.kind == "mask" or (shape.kind == "box" and (shape.form or form) == "xywh"):
        for at in range(0, len(values) - 3, 4):
            values[at + 2 : at + 4] = values[at] + values[at + 2], values[at + 1] + values[at + 3]
    return values


def _transposed(shape: Shape, form: Form, stored: tuple[int, int], orientation: int) -> Shape:
    """Return a shape in stored pixels in those of the image turned, by one of 5 to 8."""
    width, height = stored
    values: list[float] = []
    points = _corners(shape, form)
    for x, y in zip(points[::2], points[1::2], strict=False):
        values.append(height - y if orientation in (6, 7) else y)
        values.append(width - x if orientation in (7, 8) else x)
    if shape.kind in ("polygon", "points"):
        return replace(shape, values=tuple(values))
    for at in range(0, len(values), 4):
        (left, right), (top, bottom) = (
            sorted(values[at : at + 4 : 2]),
            sorted(values[at + 1 : at + 4 : 2]),
        )
        sides = (right - left, bottom - top) if shape.kind == "mask" else (right, bottom)
        values[at : at + 4] = left, top, *sides
    return replace(shape, values=tuple(values), form="xyxy" if shape.kind == "box" else None)


def _upright(view: FieldView) -> tuple[int, int]:
    width, height = view.summary["width"], view.summary["height"]
    return (height, width) if view.summary.get("orientation", 1) > 4 else (width, height)


def _mask_of(
    name: str, data: bytes | memoryview, view: FieldView, main: FieldView, size: int
) -> Thumbnail | None:
    """Return the label map of an image, upright; None if the field is not a label map.

    A mask with the sides of an image that EXIF turns is turned with it: it was drawn for the pixels
    as they are stored.
    """
    sides, shown = _upright(view), _upright(main)
    turn = None
    if not _are_alike(sides, shown):
        orientation = main.summary.get("orientation", 1)
        if orientation <= 4 or not _are_alike(sides, shown[::-1]):
            return None
        turn = TURNS[orientation]
    try:
        drawn = thumbnail(name, data, size=size)
    except DecodeError:
        return None
    if not drawn.labels:
        return None
    return drawn if turn is None else _turned(drawn, turn)


def _are_alike(sides: tuple[int, int], others: tuple[int, int]) -> bool:
    """Return whether two images have the same ratio of width to height, but for rounding."""
    (width, height), (wide, high) = sides, others
    return abs(width * high - height * wide) <= 0.02 * width * high


def _turned(drawn: Thumbnail, turn: str) -> Thumbnail:
    pil = load("PIL.Image", "pillow")
    image = pil.open(io.BytesIO(drawn.data)).transpose(pil.Transpose[turn])
    stream = io.BytesIO()
    image.save(stream, "PNG", compress_level=1)
    return replace(drawn, data=stream.getvalue(), width=image.width, height=image.height)


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
        label: _colour(number) for number, label in enumerate({each.label: 0 for each in shapes})
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
    values = _corners(shape, form)
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


def _write(draw: Any, corner: tuple[float, float], text: str, colour: str) -> None:
    plain = text.encode("ascii", "replace").decode()
    x, y = max(corner[0], 0), max(corner[1], 0)
    draw.rectangle(draw.textbbox((x + 1, y), plain), fill="white")
    draw.text((x + 1, y), plain, fill=colour)


def _colour(number: int) -> str:
    """Return a colour for the label of a number; neighbours differ much."""
    levels = colorsys.hls_to_rgb(number * 0.618 % 1, 0.42, 0.9)
    return "#{:02x}{:02x}{:02x}".format(*(round(255 * each) for each in levels))
