"""Pictures on terminals: by kitty's graphics protocol, or with coloured half blocks."""

from __future__ import annotations

import base64
import io
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TextIO, cast, get_args

import numpy as np

from wids.base.system import window_size

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["PICTURES", "Protocol", "Screen", "draw_blocks", "protocol_of", "screen_of"]

Protocol = Literal["kitty", "blocks", "none"]
PICTURES = ("auto", *get_args(Protocol))

UPPER_HALF = "▀"  # its colour is one pixel, its background the pixel below
RESET = "\x1b[0m"
CUBE_START = 16  # of the 256 colours the first 16 are the user's own, then come 6 x 6 x 6
GREYS_START = 232  # and 24 greys, from almost black on

_MOST_COLUMNS = 80
_USUAL_CELL = 10, 20  # pixels of a character, where the terminal does not say them
_MOST_CELL = 64
_KITTY_CHUNK = 4096  # characters of base64 in one escape


@dataclass(frozen=True)
class Screen:
    """How pictures are drawn on a terminal.

    Attributes:
        protocol: How pixels are sent.
        columns, rows: Most characters and lines of a picture.
        true_colour: Whether the terminal knows 24-bit colours; else half blocks have 256.
        cell: Pixels of the width and height of a character.
    """

    protocol: Protocol
    columns: int
    rows: int
    true_colour: bool = True
    cell: tuple[int, int] = _USUAL_CELL

    def box(self, rows: int) -> tuple[int, int]:
        """Return the most pixels of the width and height of a picture of so many lines."""
        if self.protocol == "blocks":
            return self.columns, 2 * rows
        return self.columns * self.cell[0], rows * self.cell[1]

    def draw(self, image: Any, rows: int) -> list[str]:
        """Draw a PIL image, made smaller where it is larger than so many lines.

        Returns:
            Lines, with escapes for the pixels and no others.
        """
        from PIL import Image

        if self.protocol == "none":
            return []
        small = _fitting(image, *self.box(rows))
        if self.protocol == "blocks":
            return draw_blocks(small, true_colour=self.true_colour)
        # A digit of 28 pixels is hard to see where a character has as many.
        times = min(self.box(rows)) // (2 * max(small.size))
        if times > 1:
            small = small.resize(
                (times * small.width, times * small.height), Image.Resampling.NEAREST
            )
        return ["".join(_kitty(small))]

    def patch(self, colour: str) -> str:
        """Return a small patch of a colour, "#rrggbb"."""
        levels = [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
        wide = "48;2;{};{};{}".format(*levels)
        return f"\x1b[{wide if self.true_colour else f'48;5;{_nearest_of_256(levels)}'}m  {RESET}"


def protocol_of(asked: str, output: TextIO, environment: Mapping[str, str]) -> Protocol:
    """Return how pictures are drawn.

    Args:
        asked: One of `PICTURES`.
        output: Where they are written.
        environment: Variables of the process.
    """
    if asked != "auto":
        return cast("Protocol", asked)
    terminal = environment.get("TERM", "")
    if not output.isatty() or "NO_COLOR" in environment or terminal == "dumb":
        return "none"
    # tmux and screen draw the window themselves, and drop what they do not know.
    between = "TMUX" in environment or terminal.startswith(("tmux", "screen"))
    named = "KITTY_WINDOW_ID" in environment or terminal in ("xterm-kitty", "xterm-ghostty")
    if not between and (named or environment.get("TERM_PROGRAM", "") in ("ghostty", "WezTerm")):
        return "kitty"
    # The half blocks of a drawing exist in Unicode only.
    return "blocks" if output.encoding.lower().startswith("utf") else "none"


def screen_of(protocol: Protocol, output: TextIO, columns: int, rows: int) -> Screen:
    """Return the screen for pictures on a terminal of a size in characters."""
    # Only terminals that know 24-bit colours say so, and not all that do; 256 do no harm.
    true_colour = os.environ.get("COLORTERM", "") in {"truecolor", "24bit"}
    # Room is left for the lines above; on a small window one scrolls.
    size = min(columns, _MOST_COLUMNS), max(rows - 12, 12)
    return Screen(protocol, *size, true_colour, _cell_of(output))


def _cell_of(output: TextIO) -> tuple[int, int]:
    """Return the pixels of a character, as the terminal says them."""
    try:
        rows, columns, width, height = window_size(output.fileno())
        cell = width // columns, height // rows
    except (OSError, ValueError, ZeroDivisionError):
        return _USUAL_CELL
    return cell if all(4 <= pixels <= _MOST_CELL for pixels in cell) else _USUAL_CELL


def _fitting(image: Any, width: int, height: int) -> Any:
    """Return an image as RGB within a box; transparent parts are white."""
    from PIL import Image

    image = image.convert("RGBA")
    scale = min(width / image.width, height / image.height, 1)
    size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    small = Image.new("RGB", size, "white")
    scaled = image if size == image.size else image.resize(size)
    small.paste(scaled, mask=scaled.getchannel("A"))
    return small


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


def draw_blocks(image: Any, *, true_colour: bool = True) -> list[str]:
    """Draw an RGB image with coloured half blocks, two pixels a character.

    Args:
        image: A PIL image.
        true_colour: Whether the terminal knows 24-bit colours; else 256 serve.

    Returns:
        The lines, with escapes for the colours and no others.
    """
    from PIL import Image

    even = Image.new("RGB", (image.width, image.height + image.height % 2), "white")
    even.paste(image)
    pixels = np.asarray(even).tolist()  # pixels: height rows of width [red, green, blue]
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
