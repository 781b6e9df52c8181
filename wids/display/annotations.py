"""Boxes, polygons, keypoints and masks in documents, in the ways that datasets write them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Literal, TypeGuard, get_args

from wids.display.safejson import safe_number, safe_text

__all__ = [
    "MOST_SHAPES",
    "Form",
    "FoundShapes",
    "Shape",
    "find_shapes",
    "shapes_of",
    "summarise_shapes",
]

Form = Literal["xywh", "xyxy"]
Kind = Literal["box", "polygon", "points", "mask"]
_Entry = tuple[str, Any, Any]  # name, value, and the label or list of labels of what is in it

MOST_SHAPES = 300
_MOST_SEARCHED = 2_000_000  # numbers of all shapes of a document
_MOST_LEVELS = 60
_MOST_RUNS = 20_000  # of a mask
_MOST_NUMBERS = 500_000  # of all shapes that are drawn
_MOST_OF_ONE = 120_000  # numbers of a shape
_MOST_SIDE = 65_535
_MOST_LABEL = 200
_DIGITS = 5  # of a number of a shape, behind its point
_BOX = re.compile(r"box|rect|roi", re.IGNORECASE)
_POLYGON = re.compile(r"segmentation|polygon|contour", re.IGNORECASE)
_POINTS = re.compile(r"keypoints|landmarks", re.IGNORECASE)
_LISTS_OF_LABELS = re.compile(r"labels|categories|names|classes")
_LABELS = ("label", "category", "class", "name", "category_name", "category_id", "id")
_NAMES = {"name", "category_name"}  # whose text is a name, also where it is made of digits
_DECIMAL = re.compile(r"0|[1-9][0-9]{0,8}")
_MOST_CATEGORIES = 10_000  # of a document
_SIDES: tuple[tuple[Form, tuple[str, ...]], ...] = (
    ("xyxy", ("xmin", "ymin", "xmax", "ymax")),
    ("xyxy", ("x1", "y1", "x2", "y2")),
    ("xyxy", ("left", "top", "right", "bottom")),
    ("xyxy", ("x0", "y0", "x1", "y1")),
    ("xywh", ("x", "y", "w", "h")),
    ("xywh", ("x", "y", "width", "height")),
    ("xywh", ("left", "top", "width", "height")),
)


@dataclass(frozen=True)
class Shape:
    """A shape in a picture.

    Attributes:
        kind: "box", "polygon", "points" or "mask".
        values: Its numbers; of polygons and points x and y in turn; of a mask x, y, width and
            height of rectangles in turn, in pixels.
        label: What it shows; "" if the document does not say it.
        form: What the numbers of a box mean: position and size, or two corners; None if unknown.
        category: The label, where it is the number of a class that the document does not name.
    """

    kind: Kind
    values: tuple[float, ...]
    label: str = ""
    form: Form | None = None
    category: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the shape as JSON, its numbers rounded to five digits."""
        return {
            "kind": self.kind,
            "values": [round(value, _DIGITS) for value in self.values],
            "label": self.label,
            "form": self.form,
            "category": self.category,
        }


@dataclass(frozen=True)
class FoundShapes:
    """The shapes of a document.

    Attributes:
        drawn: The first ones, at most 300, and fewer where they have many numbers.
        left_out: Number of others.
        whole: Whether the document was searched to its end.
    """

    drawn: tuple[Shape, ...]
    left_out: int
    whole: bool

    def as_dict(self) -> dict[str, Any]:
        """Return the shapes as JSON."""
        drawn = [shape.as_dict() for shape in self.drawn]
        return {"drawn": drawn, "left_out": self.left_out, "whole": self.whole}


def find_shapes(document: Any) -> FoundShapes:
    """Find the shapes in the values of a document, which must not contain itself.

    >>> find_shapes({"boxes": [[1, 2, 30, 40]] * 400}).left_out
    100
    """
    names = _categories_in(document)
    drawn: list[Shape] = []
    left_out = numbers = searched = 0
    for shape in _shapes_in("", document, None, _MOST_LEVELS):
        searched += len(shape.values)
        if searched > _MOST_SEARCHED:
            return FoundShapes(tuple(drawn), left_out, whole=False)
        fits = numbers < _MOST_NUMBERS and len(shape.values) <= _MOST_OF_ONE
        if fits and len(drawn) < MOST_SHAPES:
            drawn.append(_named(shape, names))
            numbers += len(shape.values)
        else:
            left_out += 1
    return FoundShapes(tuple(drawn), left_out, whole=True)


def summarise_shapes(document: Any) -> dict[str, Any]:
    """Return the shapes of a document as JSON, under "shapes"; nothing if there are none."""
    found = find_shapes(document)
    if found.whole and not found.drawn and not found.left_out:
        return {}
    return {"shapes": found.as_dict()}


def shapes_of(summary: Mapping[str, Any]) -> FoundShapes | None:
    """Return the shapes in the summary of a field.

    Args:
        summary: The summary; a decoder process, which is not trusted, may have made it.

    Returns:
        The shapes; None if it has none, or others than `summarise_shapes` makes.
    """
    try:
        shapes = summary["shapes"]
        drawn = tuple(map(_checked, shapes["drawn"]))
        return FoundShapes(drawn, int(shapes["left_out"]), shapes["whole"] is True)
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def _checked(shape: dict[str, Any]) -> Shape:
    kind, values, form, category = (shape[n] for n in ("kind", "values", "form", "category"))
    fits = kind in get_args(Kind) and form in (None, *get_args(Form))
    if not fits or not all(map(_is_number, values)) or type(category) not in (int, type(None)):
        raise ValueError("expected a shape as `Shape.as_dict` makes it")
    return Shape(kind, tuple(values), _word(shape["label"]), form, category)


class _Name(str):
    """A label that is no number of a class, whatever its letters are."""

    __slots__ = ()


def _shapes_in(name: str, value: Any, label: Any, levels: int) -> Iterator[Shape]:
    """Yield the shapes in a value; those below so many levels are passed over."""
    found = _in_object(value, label) if isinstance(value, Mapping) else ()
    found = _in_list(value, name, label) if isinstance(value, list) else found
    if isinstance(found, Shape):
        yield found
    elif levels:
        for entry in found:
            yield from _shapes_in(*entry, levels - 1)


def _in_list(values: list[Any], name: str, label: Any) -> Shape | Iterable[_Entry]:
    if values and all(map(_is_number, values)):
        return _of_numbers(values, name, label) or ()
    pairs = len(values) > 2 and all(
        isinstance(each, list) and len(each) in (2, 3) and all(map(_is_number, each))
        for each in values
    )
    if pairs and (_POLYGON.search(name) or _POINTS.search(name)):
        flat = tuple(number for each in values for number in each[:2])
        return _shape("polygon" if _POLYGON.search(name) else "points", flat, label)
    if not isinstance(label, list):
        return ((name, each, label) for each in values if isinstance(each, Mapping | list))
    return (
        (name, each, label[number] if number < len(label) else None)
        for number, each in enumerate(values)
        if isinstance(each, Mapping | list)
    )


def _of_numbers(values: list[Any], name: str, label: Any) -> Shape | None:
    if _BOX.search(name) and len(values) == 4:
        return _shape("box", tuple(values), label, "xyxy" if "xyxy" in name.lower() else None)
    if _POLYGON.search(name) and len(values) >= 6:
        return _shape("polygon", tuple(values), label)
    if _POINTS.search(name) and len(values) >= 2:
        return _shape("points", _visible(values), label)
    return None


def _in_object(document: Mapping[Any, Any], outer: Any) -> Shape | Iterable[_Entry]:
    label = _own_label(document, outer)
    rectangles = _mask_in(document.get("size"), document.get("counts"))
    if rectangles is not None:
        return _shape("mask", rectangles, label)
    for form, names in _SIDES:
        if all(_is_number(document.get(name)) for name in names):
            return _shape("box", tuple(document[name] for name in names), label, form)
    named = [(name if isinstance(name, str) else "", each) for name, each in document.items()]
    # Labels may lie in a list beside that of the boxes.
    beside = next(
        (
            each
            for name, each in named
            if isinstance(each, list) and _LISTS_OF_LABELS.fullmatch(name)
        ),
        label,
    )
    return ((name, each, beside) for name, each in named if isinstance(each, Mapping | list))


def _own_label(document: Mapping[Any, Any], outer: Any) -> Any:
    for name in _LABELS:
        value = document.get(name)
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            # The number of an annotation is no class.
            is_name = name == "id" or (name in _NAMES and isinstance(value, str))
            return _Name(_word(value)) if is_name else value
    return outer


def _shape(
    kind: Kind,
    values: tuple[float, ...],
    label: Any,
    form: Form | None = None,
) -> Shape:
    return Shape(kind, values, _word(label), form, _category(label))


def _category(label: Any) -> int | None:
    """Return the number of a class that a label is: 2, 2.0 or "2"; None for other labels."""
    is_whole = type(label) is float and label.is_integer()
    is_decimal = type(label) is str and _DECIMAL.fullmatch(label)
    number = safe_number(int(label)) if type(label) is int or is_whole or is_decimal else None
    return number if isinstance(number, int) else None


def _categories_in(document: Any) -> dict[int, str]:
    """Return the names of classes that a document of COCO has itself, by their numbers."""
    listed = document.get("categories") if isinstance(document, Mapping) else None
    names = {}
    for each in listed[:_MOST_CATEGORIES] if isinstance(listed, list) else ():
        number = _category(each.get("id")) if isinstance(each, Mapping) else None
        if number is not None and isinstance(each.get("name"), str):
            names[number] = safe_text(each["name"], _MOST_LABEL)
    return names


def _named(shape: Shape, names: Mapping[int, str]) -> Shape:
    """Return a shape with the name that its document has for its class."""
    if shape.category is None or shape.category not in names:
        return shape
    label = f"{shape.category} {names[shape.category]}"
    return replace(shape, label=label, category=None)


def _word(label: Any) -> str:
    if isinstance(label, str):
        return safe_text(label, _MOST_LABEL)
    return str(safe_number(label)) if isinstance(label, int | float) else ""


def _mask_in(size: Any, counts: Any) -> tuple[int, ...] | None:
    """Return a mask of COCO as rectangles; None if the size or the run lengths are invalid."""
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
    """Yield the rectangles, at most three, that cover a run of pixels in column-major order."""
    while start < stop:
        x, y = divmod(start, height)
        whole = 0 if y else (stop - start) // height
        high = height if whole else min(height - y, stop - start)
        yield from (x, y, whole or 1, high)
        start += (whole or 1) * high


def _unpacked(text: str) -> list[int] | None:
    """Return the run lengths that a string of COCO encodes; None if it is malformed.

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
    return plain and abs(value) < 1e9  # so neither infinite nor NaN


def _visible(values: Sequence[float]) -> tuple[float, ...]:
    """Return x and y of keypoints; COCO's have a third number, 0 for those that are not there."""
    thirds = values[2::3]
    if len(values) % 3 or any(each not in (0, 1, 2) for each in thirds):
        return tuple(values)
    points = zip(values[::3], values[1::3], thirds, strict=True)
    return tuple(number for x, y, is_there in points if is_there for number in (x, y))
