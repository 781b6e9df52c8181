"""One sample as text: a line per field, and images drawn with characters."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.base.optional import load
from wids.base.text import clean, columns_of, format_nbytes
from wids.base.urls import display_url
from wids.display.fieldview import FieldView, content_line, unpacked, view_field
from wids.display.mediaview import checked_image
from wids.display.thumbnails import thumbnail
from wids.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from wids.display.fieldview import ClassNames

__all__ = ["describe_sample", "draw_image", "draw_pictures", "field_names", "sample_lines"]

MAX_NAME = 30  # columns of a field's name
MIN_ROWS = 8  # of a picture, however many there are
UPPER_HALF = "▀"  # its colour is one pixel, its background the pixel below
RESET = "\x1b[0m"
CUBE_START = 16  # of the 256 colours the first 16 are the user's own, then come 6 x 6 x 6
GREYS_START = 232  # and 24 greys, from almost black on


def field_names(sample: Mapping[str, Any]) -> list[str]:
    """Return the names of a sample's fields, without keys such as `__key__`.

    >>> field_names({"__key__": "a", ".txt": b""})
    ['.txt']
    """
    return [name for name in sample if name.startswith(".")]


def describe_sample(
    sample: Mapping[str, Any], class_names: ClassNames | None = None
) -> dict[str, Any]:
    """Return a description of each field of a raw sample; a damaged field affects no other.

    Args:
        sample: A sample as it was read, its fields as bytes.
        class_names: The name of each class, by its number.

    Returns:
        What `wids show --json` prints: of each field its `kind`, `nbytes`, a line of `summary`,
        the `details` of its view, its `value` where it is short and plain, and any `error`.
    """
    return {
        "index": sample["__index__"],
        "key": sample["__key__"],
        "dataset": sample["__dataset__"],
        "shard": display_url(str(sample["__shard__"])),
        "shardindex": sample["__shardindex__"],
        "fields": {
            extension: _describe_field(extension, sample[extension], class_names)
            for extension in field_names(sample)
        },
    }


def _describe_field(
    extension: str, data: bytes | memoryview, class_names: ClassNames | None
) -> dict[str, Any]:
    view = _checked(view_field(extension, data, class_names=class_names), extension, data)
    described = {
        "kind": view.kind,
        "nbytes": view.nbytes,
        "summary": content_line(view),
        "details": view.summary,
    }
    if view.error is not None:
        return {**described, "error": view.error}
    return described | _plain_value(view)


def _checked(view: FieldView, extension: str, data: bytes | memoryview) -> FieldView:
    """Return the view of a field, with an error if it is an image that cannot be decoded."""
    if view.kind != "image" or view.error is not None:
        return view
    try:
        checked_image(unpacked(extension, data)).load()
    except DecodeError:  # too large to be tried, which is no fault of it
        return view
    except Exception as error:  # noqa: BLE001 (whatever Pillow raises belongs to the field)
        return replace(view, error=str(error))
    return view


def _plain_value(view: FieldView) -> dict[str, Any]:
    """Return the value of a field that JSON can hold."""
    if view.kind == "text" and view.summary["truncated"]:
        return {}
    names = {"class": "value", "json": "tree", "text": "text"}
    name = names.get(view.kind)
    return {"value": view.summary[name]} if name in view.summary else {}


def sample_lines(description: Mapping[str, Any], total: int, width: int) -> list[str]:
    """Format the description of a sample as lines.

    Args:
        description: What `describe_sample` gave.
        total: Number of samples of the dataset.
        width: Columns of the terminal; longer lines are cut.
    """
    lines = [
        f"sample {description['index']} of {total}",
        f"key    {clean(description['key'])}",
        f"shard  {clean(description['shard'])}, sample {description['shardindex']} in it",
        "",
    ]
    fields = [(clean(name, MAX_NAME), each) for name, each in description["fields"].items()]
    name_width = max((columns_of(name) for name, _ in fields), default=0)
    for name, field in fields:
        padding = " " * (name_width - columns_of(name))
        size = format_nbytes(field["nbytes"])
        lines.append(clean(f"  {name}{padding}  {size:>8}  {clean(field['summary'])}", width))
    return lines


def draw_pictures(
    sample: Mapping[str, Any], columns: int, rows: int, *, true_colour: bool = True
) -> list[str]:
    """Draw the image fields of a raw sample, each below its name.

    Args:
        sample: A sample as it was read, its fields as bytes.
        columns: Most characters in a line.
        rows: Most lines of a picture; several share them, as far as one can still see something.
        true_colour: Whether the terminal knows 24-bit colours; else 256 serve.
    """
    lines = []
    drawable = [name for name in field_names(sample) if _is_drawable(name, sample[name])]
    rows = max(rows // max(len(drawable), 1), min(rows, MIN_ROWS))
    for extension in drawable:
        lines += ["", clean(extension)]
        try:
            small = thumbnail(extension, sample[extension], size=max(columns, 2 * rows))
        except DecodeError as error:
            lines.append(clean(error))
            continue
        image = load("PIL.Image", "pillow").open(io.BytesIO(small.data))
        lines += draw_image(image, columns, rows, true_colour=true_colour)
    return lines


def _is_drawable(extension: str, data: bytes | memoryview) -> bool:
    view = view_field(extension, data)
    # A wave says little in a few characters; what a film is, its first frame tells.
    return view.error is None and (
        view.kind in {"image", "video"} or bool(view.summary.get("picture"))
    )


def draw_image(image: Any, columns: int, rows: int, *, true_colour: bool = True) -> list[str]:
    """Draw an image with coloured half blocks, two pixels a character.

    Args:
        image: A PIL image; transparent parts are drawn on white.
        columns: Most characters in a line.
        rows: Most lines.
        true_colour: Whether the terminal knows 24-bit colours; else 256 serve.

    Returns:
        The lines, with escapes for the colours and no others.
    """
    from PIL import Image

    image = image.convert("RGBA")
    scale = min(columns / image.width, 2 * rows / image.height, 1)
    size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    small = Image.new("RGB", (size[0], size[1] + size[1] % 2), "white")
    scaled = image.resize(size)
    small.paste(scaled, mask=scaled.getchannel("A"))
    pixels = np.asarray(small).tolist()  # pixels: height rows of width [red, green, blue]
    half_block = _half_block if true_colour else _half_block_of_256
    return [
        "".join(map(half_block, upper, lower)) + RESET
        for upper, lower in zip(pixels[::2], pixels[1::2], strict=True)
    ]


def _half_block(upper: list[int], lower: list[int]) -> str:
    return "\x1b[38;2;{};{};{};48;2;{};{};{}m".format(*upper, *lower) + UPPER_HALF


def _half_block_of_256(upper: list[int], lower: list[int]) -> str:
    return f"\x1b[38;5;{_nearest_of_256(upper)};48;5;{_nearest_of_256(lower)}m{UPPER_HALF}"


def _nearest_of_256(colour: list[int]) -> int:
    """Return the closest of the 256 colours that all terminals have in common."""
    # The cube's levels are 0, 95, 135, 175, 215 and 255; the greys run 8, 18, ..., 238.
    steps = [0 if level < 48 else 1 if level < 115 else (level - 35) // 40 for level in colour]
    in_cube = [0 if step == 0 else 55 + 40 * step for step in steps]
    grey = min(max(round((sum(colour) / 3 - 8) / 10), 0), 23)
    in_greys = [8 + 10 * grey] * 3
    if _distance(colour, in_greys) < _distance(colour, in_cube):
        return GREYS_START + grey
    return CUBE_START + 36 * steps[0] + 6 * steps[1] + steps[2]


def _distance(one: list[int], other: list[int]) -> int:
    return sum((a - b) ** 2 for a, b in zip(one, other, strict=True))
