"""Boxes, polygons, keypoints and masks of a sample, drawn over its picture as an SVG."""

from __future__ import annotations

import base64
import colorsys
import html
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from wids.base.text import clean
from wids.display.annotations import MOST_SHAPES, Form, FoundShapes, Shape, shapes_of
from wids.display.pixels import names_labels
from wids.display.thumbnails import Thumbnail, thumbnail
from wids.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from wids.display.fieldview import FieldView

__all__ = ["Overlay", "draw_over", "overlay_of"]

_MOST_WORD = 24
_LETTER = 11  # pixels of the height of a label
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
    """Draw the shapes in the JSON of a sample over its first image that is no mask.

    Args:
        fields: Name, contents and view of each field.
        size: Most pixels of the longer side.

    Returns:
        The drawing; None if there is no image, or nothing to draw over it.
    """
    images = [each for each in fields if each[2].kind == "image" and each[2].error is None]
    main = next((each for each in images if not names_labels(each[0])), None)
    found = {name: shapes for name, _, view in fields if (shapes := shapes_of(view.summary))}
    said = _not_drawn(found)
    others = tuple(name for name, each in found.items() if each.drawn)
    if main is None or not (others or said):
        return None
    if not others:
        return Overlay(main[0], (), None, said)
    try:
        picture = thumbnail(main[0], main[1], size=size)
    except DecodeError:  # which is said where it is drawn alone
        return None
    drawn = [shape for each in found.values() for shape in each.drawn][:MOST_SHAPES]
    facts = main[2].summary
    stored = facts["width"], facts["height"]
    return Overlay(main[0], others, draw_over(picture, stored, drawn, facts["orientation"]), said)


def _not_drawn(found: Mapping[str, FoundShapes]) -> str:
    """Return in words what of the shapes is not drawn."""
    num_found = sum(len(each.drawn) for each in found.values())
    total = num_found + sum(each.left_out for each in found.values())
    drawn = min(num_found, MOST_SHAPES)
    said = [f"The first {drawn:,} of {total:,} shapes are drawn."] if drawn < total else []
    if cut := [name for name, each in found.items() if not each.whole]:
        named = ", ".join(cut)
        said.append(f"Not searched to its end for shapes, since it is too large: {named}.")
    return " ".join(said)


def draw_over(
    picture: Thumbnail, stored: tuple[int, int], shapes: Sequence[Shape], orientation: int = 1
) -> Thumbnail:
    """Draw shapes over a picture.

    Args:
        picture: The picture, upright.
        stored: Width and height of the whole image, as it is stored.
        shapes: The shapes, in pixels of the image as it is shown. Some programs ignore EXIF: shapes
            that lie in the stored image alone are turned with it. Numbers up to 1 are shares of the
            sides.
        orientation: Number of EXIF's orientation of the image, 1 (upright) to 8.

    Returns:
        An SVG that holds the picture.
    """
    shown = stored[::-1] if orientation > 4 else stored
    turned = orientation > 4 and not _lie_in(shapes, shown) and _lie_in(shapes, stored)
    sides = stored if turned else shown
    numbers = [value for shape in shapes if shape.kind != "mask" for value in shape.values]
    shares = bool(numbers) and all(-0.01 <= value <= 1.01 for value in numbers)
    form = _guessed(shapes, (1, 1) if shares else sides)
    across, down = sides if shares else (1, 1)

    def place(x: float, y: float) -> tuple[float, float]:
        """Return a point in the image as it is shown."""
        x, y = x * across, y * down
        if not turned:
            return x, y
        width, height = stored
        return height - y if orientation in (6, 7) else y, width - x if orientation in (7, 8) else x

    unit = shown[0] / picture.width  # of a pixel of the picture
    colours: dict[str, str] = {}
    drawn = []
    for shape in shapes:
        colour = colours.setdefault(shape.label, _colour(len(colours)))
        values = _corners(shape, form)
        points = [place(x, y) for x, y in zip(values[::2], values[1::2], strict=False)]
        line = f'fill="none" stroke="{colour}" stroke-width="{2 * unit:g}"'
        if shape.kind == "points":
            dot = f'r="{_POINT_RADIUS * unit:g}" fill="{colour}" stroke="white"'
            drawn += [f'<circle cx="{x:g}" cy="{y:g}" {dot}/>' for x, y in points]
        elif shape.kind == "polygon":
            corners = " ".join(f"{x:g},{y:g}" for x, y in points)
            drawn.append(f'<polygon points="{corners}" {line}/>')
        else:  # rectangles, by two opposite corners each
            line = f'fill="{colour}" fill-opacity=".45"' if shape.kind == "mask" else line
            path = "".join(
                f"M{left:g} {top:g}H{right:g}V{bottom:g}H{left:g}Z"
                for (left, top), (right, bottom) in zip(points[::2], points[1::2], strict=False)
            )
            drawn.append(f'<path d="{path}" {line}/>')
        if shape.label and points:
            x, y = max(points[0][0], 0), max(points[0][1], 0) + _LETTER * unit
            word = html.escape(clean(shape.label, _MOST_WORD))
            drawn.append(
                f'<text x="{x:g}" y="{y:g}" font-size="{_LETTER * unit:g}" fill="{colour}" '
                f'stroke="white" stroke-width="{3 * unit:g}" paint-order="stroke" '
                f'font-family="sans-serif">{word}</text>'
            )
    width, height = shown
    text = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">'
        f'<image width="{width}" height="{height}" preserveAspectRatio="none" '
        f'href="data:{picture.media_type};base64,{base64.b64encode(picture.data).decode()}"/>'
        f"{''.join(drawn)}</svg>"
    )
    return replace(
        picture, media_type="image/svg+xml", data=text.encode(), labels=(), value_range=None
    )


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


def _guessed(shapes: Sequence[Shape], size: tuple[float, float]) -> Form:
    """Guess the form of boxes that do not say it: what lies in the image, COCO's if both do."""
    boxes = [each.values for each in shapes if each.kind == "box" and each.form is None]
    as_sizes = all(x + a <= 1.02 * size[0] and y + b <= 1.02 * size[1] for x, y, a, b in boxes)
    as_corners = all(a > x and b > y for x, y, a, b in boxes)
    return "xyxy" if as_corners and not as_sizes else "xywh"


def _colour(number: int) -> str:
    """Return a colour for the label of a number; neighbours differ much."""
    levels = colorsys.hls_to_rgb(number * 0.618 % 1, 0.42, 0.9)
    return "#{:02x}{:02x}{:02x}".format(*(round(255 * each) for each in levels))
