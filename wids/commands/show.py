"""One sample on a terminal: a line per field, and its pictures.

Pictures are sent by kitty's graphics protocol, or drawn with coloured half blocks.
"""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from wids.base.optional import load
from wids.base.text import clean, columns_of, format_nbytes
from wids.base.urls import display_url
from wids.display.fieldview import (
    FieldView,
    class_name,
    content_line,
    label_names,
    unpacked,
    view_field,
)
from wids.display.mediaview import checked_image
from wids.display.thumbnails import CUT_IS_SAID, thumbnail
from wids.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from wids.display.fieldview import ClassNames
    from wids.display.thumbnails import Thumbnail

__all__ = [
    "Screen",
    "describe_sample",
    "draw_pictures",
    "field_names",
    "sample_lines",
    "screen_of",
]


MAX_NAME = 30  # columns of a field's name
MIN_ROWS = 8  # of a picture, however many there are
MAX_LEGEND = 16  # labels of a mask that are named

_MOST_COLUMNS = 80
_CELL = 10, 20  # pixels of the width and height of a character, as they are in most windows
_KITTY_CHUNK = 4096  # characters of base64 in one escape
_UPPER_HALF = "▀"  # its colour is one pixel, its background the pixel below
_RESET = "\x1b[0m"
# The 256 colours that all terminals have in common: the first 16 are the user's own, then come a
# cube of 6 x 6 x 6, and greys from almost black on.
_OWN_COLOURS = 16
_CUBE = list(product((0, 95, 135, 175, 215, 255), repeat=3))
_COLOURS = np.array(_CUBE + [(grey, grey, grey) for grey in range(8, 239, 10)])


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
        sample: A sample as it was read, its fields as bytes, or None as a join gives them.
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
    extension: str, data: bytes | memoryview | None, class_names: ClassNames | None
) -> dict[str, Any]:
    if data is None:
        said = "None: the joined data have no value for this sample"
        return {"kind": "none", "nbytes": 0, "summary": said, "details": {}, "value": None}
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


@dataclass(frozen=True)
class Screen:
    """How pictures are drawn on a terminal.

    Attributes:
        columns, rows: Most characters and lines of a picture.
        kitty: Whether the pixels are sent by kitty's protocol; else half blocks are drawn.
        true_colour: Whether the terminal knows 24-bit colours; else half blocks have 256.
    """

    columns: int
    rows: int
    kitty: bool = False
    true_colour: bool = True

    def box(self, rows: int) -> tuple[int, int]:
        """Return the most pixels of the width and height of a picture of so many lines."""
        width, height = _CELL if self.kitty else (1, 2)
        return width * self.columns, height * rows

    def draw(self, image: Any, rows: int) -> list[str]:
        """Draw a PIL image, made smaller where it is larger than so many lines.

        Returns:
            Lines, with escapes for the pixels and no others.
        """
        small = image.convert("RGBA")
        small.thumbnail(self.box(rows))
        if self.kitty:
            return ["".join(_kitty(_on_white(small)))]
        pixels = np.asarray(_on_white(small))  # pixels: height rows of width (red, green, blue)
        if len(pixels) % 2:
            pixels = np.concatenate([pixels, np.full_like(pixels[:1], 255)])
        return [
            "".join(map(self._half_block, upper, lower)) + _RESET
            for upper, lower in zip(pixels[::2], pixels[1::2], strict=True)
        ]

    def _half_block(self, upper: Sequence[int], lower: Sequence[int]) -> str:
        return f"\x1b[38;{self._colour(upper)};48;{self._colour(lower)}m{_UPPER_HALF}"

    def _colour(self, levels: Sequence[int]) -> str:
        if self.true_colour:
            return "2;{};{};{}".format(*levels)
        return f"5;{_OWN_COLOURS + np.square(_COLOURS - levels).sum(axis=1).argmin()}"

    def patch(self, colour: str) -> str:
        """Return a small patch of a colour, "#rrggbb"."""
        return f"\x1b[48;{self._colour([*bytes.fromhex(colour[1:])])}m  {_RESET}"


def screen_of(
    asked: str, output: TextIO, environment: Mapping[str, str], columns: int, rows: int
) -> Screen | None:
    """Return the screen for pictures; None where none are drawn.

    Args:
        asked: "kitty", "blocks", "none", or "auto" for what the terminal can.
        output: Where they are written.
        environment: Variables of the process.
        columns: Characters of a line of the terminal.
        rows: Number of its lines.
    """
    terminal = environment.get("TERM", "")
    if asked == "auto":
        # tmux and screen draw the window themselves, and drop what they do not know.
        between = "TMUX" in environment or terminal.startswith(("tmux", "screen"))
        named = "KITTY_WINDOW_ID" in environment or terminal in ("xterm-kitty", "xterm-ghostty")
        named = named or environment.get("TERM_PROGRAM", "") in ("ghostty", "WezTerm")
        if not output.isatty() or "NO_COLOR" in environment or terminal == "dumb":
            asked = "none"
        elif named and not between:
            asked = "kitty"
        else:  # the half blocks of a drawing exist in Unicode only
            asked = "blocks" if output.encoding.lower().startswith("utf") else "none"
    if asked == "none":
        return None
    # Only terminals that know 24-bit colours say so, and not all that do; 256 do no harm.
    true_colour = environment.get("COLORTERM", "") in {"truecolor", "24bit"}
    # Room is left for the lines above; on a small window one scrolls.
    return Screen(min(columns, _MOST_COLUMNS), max(rows - 12, 12), asked == "kitty", true_colour)


def _on_white(image: Any) -> Any:
    """Return an image as RGB, whose transparent parts are white."""
    from PIL import Image

    opaque = Image.new("RGB", image.size, "white")
    opaque.paste(image, mask=image.getchannel("A"))
    return opaque


def _kitty(image: Any) -> Iterator[str]:
    """Yield the escapes that show an image by kitty's protocol, as a PNG."""
    stream = io.BytesIO()
    image.save(stream, "PNG", compress_level=1)
    text = base64.b64encode(stream.getvalue()).decode()
    chunks = [text[at : at + _KITTY_CHUNK] for at in range(0, len(text), _KITTY_CHUNK)]
    for number, chunk in enumerate(chunks):
        # a=T: show it at once; f=100: PNG; q=2: answer nothing, which the shell would read.
        head = "a=T,f=100,q=2," if number == 0 else ""
        yield f"\x1b_G{head}m={int(number + 1 < len(chunks))};{chunk}\x1b\\"


def draw_pictures(
    sample: Mapping[str, Any], screen: Screen, class_names: ClassNames | None = None
) -> list[str]:
    """Draw the image fields of a raw sample, each below its name.

    Args:
        sample: A sample as it was read, its fields as bytes.
        screen: How they are drawn; several pictures share its lines, as far as one can still see
            something.
        class_names: The name of each class, by its number, for the legends of label maps.
    """
    lines = []
    drawable = [name for name in field_names(sample) if _is_drawable(name, sample[name])]
    rows = max(screen.rows // max(len(drawable), 1), min(screen.rows, MIN_ROWS))
    for extension in drawable:
        lines += ["", clean(extension)]
        try:
            small = thumbnail(extension, sample[extension], size=max(screen.box(rows)))
        except DecodeError as error:
            lines.append(clean(error))
            continue
        picture = load("PIL.Image", "pillow").open(io.BytesIO(small.data))
        lines += screen.draw(picture, rows)
        lines += [CUT_IS_SAID] if small.is_cut else []
        lines += _legend(small, screen, label_names(class_names, field_names(sample)))
    return lines


def _legend(picture: Thumbnail, screen: Screen, class_names: ClassNames | None) -> list[str]:
    """Return a line of the values of a label map, or of the range of stretched values."""
    if picture.value_range is not None:
        low, high = picture.value_range
        return [f"{low:g} black, {high:g} white"]
    entries = []
    for label in picture.labels[:MAX_LEGEND]:
        name = class_name(class_names, label.value)
        said = f"{label.value}{'' if name is None else f' {clean(name, MAX_NAME)}'}"
        entries.append(f"{screen.patch(label.colour)} {said} {100 * label.share:.2g} %")
    more = len(picture.labels) - MAX_LEGEND
    return ["   ".join([*entries, *([f"and {more} more"] if more > 0 else [])])] if entries else []


def _is_drawable(extension: str, data: bytes | memoryview) -> bool:
    view = view_field(extension, data)
    # A wave says little in a few characters; what a film is, its first frame tells.
    return view.error is None and (
        view.kind in {"image", "video"} or bool(view.summary.get("picture"))
    )
