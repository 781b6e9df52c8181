"""Pictures on terminals: by kitty's graphics protocol, as sixels, or with coloured half blocks."""

from __future__ import annotations

import base64
import io
import os
import re
import select
import time
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, TextIO, cast, get_args

import numpy as np

from wids.base.system import window_size

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["PICTURES", "Protocol", "Screen", "draw_blocks", "protocol_of", "screen_of"]

Protocol = Literal["kitty", "sixel", "blocks", "none"]
PICTURES = ("auto", *get_args(Protocol))

UPPER_HALF = "▀"  # its colour is one pixel, its background the pixel below
RESET = "\x1b[0m"
CUBE_START = 16  # of the 256 colours the first 16 are the user's own, then come 6 x 6 x 6
GREYS_START = 232  # and 24 greys, from almost black on

_MOST_COLUMNS = 80
_USUAL_CELL = 10, 20  # pixels of a character, where the terminal does not say them
_MOST_CELL = 64
_KITTY_CHUNK = 4096  # characters of base64 in one escape
_SIXEL_ROWS = 6
_SIXEL_COLOURS = 256
# The question which kind of terminal it is; all answer it, and name 4 among what they know if that
# has sixels.
_ATTRIBUTES = b"\x1b[c"
_ANSWER = re.compile(rb"\x1b\[\?([0-9;]*)c")
_SIXELS = b"4"
_MOST_ANSWER_NBYTES = 1000


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
        if self.protocol == "kitty":
            return ["".join(_kitty(small))]
        return [_sixel(small)]

    def patch(self, colour: str) -> str:
        """Return a small patch of a colour, "#rrggbb"."""
        levels = [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
        wide = "48;2;{};{};{}".format(*levels)
        return f"\x1b[{wide if self.true_colour else f'48;5;{_nearest_of_256(levels)}'}m  {RESET}"


def protocol_of(
    asked: str, output: TextIO, environment: Mapping[str, str], *, wait_seconds: float = 0.5
) -> Protocol:
    """Return how pictures are drawn.

    Args:
        asked: One of `PICTURES`.
        output: Where they are written.
        environment: Variables of the process.
        wait_seconds: How long to wait for a terminal that does not say what it knows.
    """
    if asked != "auto":
        return cast("Protocol", asked)
    terminal = environment.get("TERM", "")
    if not output.isatty() or "NO_COLOR" in environment or terminal == "dumb":
        return "none"
    # tmux and screen draw the window themselves, and drop what they do not know.
    between = "TMUX" in environment or terminal.startswith(("tmux", "screen"))
    if not between and _is_kitty(terminal, environment):
        return "kitty"
    if not between and _has_sixels(output, wait_seconds):
        return "sixel"
    # The half blocks of a drawing exist in Unicode only.
    return "blocks" if output.encoding.lower().startswith("utf") else "none"


def _is_kitty(terminal: str, environment: Mapping[str, str]) -> bool:
    """Return whether a terminal says that it has kitty's protocol, as some others have."""
    named = "KITTY_WINDOW_ID" in environment or terminal in ("xterm-kitty", "xterm-ghostty")
    return named or environment.get("TERM_PROGRAM", "") in ("ghostty", "WezTerm")


def _has_sixels(output: TextIO, wait_seconds: float) -> bool:
    """Ask a terminal whether it has sixels; no answer in time means that it has none."""
    try:
        import termios
        import tty

        descriptor = os.open(os.ttyname(output.fileno()), os.O_RDWR | os.O_NOCTTY)
    except (ImportError, OSError, ValueError):
        return False
    try:
        # What was typed ahead would be taken for the answer, and a job in the background stopped.
        if _is_readable(descriptor, 0) or not _is_in_front(descriptor):
            return False
        before = termios.tcgetattr(descriptor)
        try:
            tty.setcbreak(descriptor, termios.TCSADRAIN)
            os.write(descriptor, _ATTRIBUTES)
            return _SIXELS in _attributes(descriptor, wait_seconds)
        finally:
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
    except (OSError, termios.error):
        return False
    finally:
        os.close(descriptor)


def _is_in_front(descriptor: int) -> bool:
    with suppress(OSError):  # not the terminal that controls this process, so it does not stop it
        return os.tcgetpgrp(descriptor) == os.getpgrp()
    return True


def _is_readable(descriptor: int, seconds: float) -> bool:
    return bool(select.select([descriptor], [], [], seconds)[0])


def _attributes(descriptor: int, seconds: float) -> list[bytes]:
    """Read the answer of a terminal: numbers of what it knows, after that of its kind."""
    answer, end = b"", time.monotonic() + seconds
    while len(answer) < _MOST_ANSWER_NBYTES:
        if not _is_readable(descriptor, max(end - time.monotonic(), 0)):
            break
        answer += os.read(descriptor, 64)
        if found := _ANSWER.search(answer):
            return found[1].split(b";")[1:]
    return []


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


def _sixel(image: Any) -> str:
    """Return the escape that shows an image as sixels: six rows in one line of characters."""
    few = image.quantize(_SIXEL_COLOURS)
    pixels = np.asarray(few)
    palette = np.array(few.getpalette("RGB"), np.int64).reshape(-1, 3)
    used = np.unique(pixels).tolist()
    percents = {number: (palette[number] * 100 + 127) // 255 for number in used}
    # 1: pixels that no colour has stay as they are; the ratio of a pixel's sides; the size.
    parts = [f'\x1bP0;1;0q"1;1;{image.width};{image.height}']
    parts += ["#{};2;{};{};{}".format(number, *percents[number]) for number in used]
    for top in range(0, len(pixels), _SIXEL_ROWS):
        band = pixels[top : top + _SIXEL_ROWS]
        weights = (1 << np.arange(len(band)))[:, None]
        lines = []
        for number in np.unique(band).tolist():
            bits = ((band == number) * weights).sum(axis=0)
            lines.append(f"#{number}{''.join(_runs(bits.tolist()))}")
        parts.append("$".join(lines) + "-")
    return "".join(parts) + "\x1b\\"


def _runs(bits: list[int]) -> Iterator[str]:
    for value, run in groupby(bits):
        count, letter = len(list(run)), chr(63 + value)
        yield f"!{count}{letter}" if count > 3 else letter * count


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
