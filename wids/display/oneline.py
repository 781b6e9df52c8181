"""A field in one line of text: for terminals, and for the captions of pictures."""

import json
from typing import Any

from wids.display.fieldview import FieldView

__all__ = ["array_line", "bars", "content_line"]

MAX_LINE = 2_000  # characters, before whoever prints it cuts it to a width
BARS = "▁▂▃▄▅▆▇█"


def content_line(view: FieldView) -> str:
    r"""Say in one line what a field holds, or why it cannot be decoded.

    The line may hold whatever the field holds, line breaks and escapes of terminals too:
    `wids.base.text.clean` makes it fit to print.

    >>> from wids.display.fieldview import view_field
    >>> content_line(view_field(".cls", b"1", class_names=["cat", "dog"]))
    '1 (dog)'
    >>> content_line(view_field(".json", b'{"a": [1, 2]}'))
    '{"a": [1, 2]}'
    """
    if view.error is not None:
        return f"cannot be decoded: {view.error}"
    return LINES[view.kind](view.summary)[:MAX_LINE]


def array_line(figures: dict[str, Any]) -> str:
    """Say in one line what an array holds.

    Args:
        figures: What `wids.display.arrayview.describe_array` gave.

    >>> import numpy as np
    >>> from wids.display.arrayview import describe_array
    >>> array_line(describe_array("", np.arange(3.0)))
    'float64, 3: 0, 1, 2; 0 to 2, mean 1, std 0.8165'
    """
    shape = " x ".join(map(str, figures["shape"])) or "one number"
    values = ", ".join(map(_short, figures["values"]))
    more = (
        ", ..." if figures["nbytes"] and _count(figures["shape"]) > len(figures["values"]) else ""
    )
    parts = [f"{figures['dtype']}, {shape}: {values}{more}"]
    if figures.get("min") is not None:
        parts.append(f"{_short(figures['min'])} to {_short(figures['max'])}")
        parts[-1] += f", mean {_short(figures['mean'])}, std {_short(figures['std'])}"
    parts += [f"{figures[name]} {name}" for name in ("nan", "inf") if figures.get(name)]
    named = f"{figures['name']}: " if figures["name"] else ""
    return named + "; ".join(parts)


def bars(counts: list[int]) -> str:
    """Draw a histogram in one line.

    >>> bars([0, 1, 4])
    ' ▂█'
    """
    # At least one, so that a histogram of nothing is blank and no division by zero.
    top = max(counts, default=0) or 1
    return "".join(BARS[-(-count * 8 // top) - 1] if count else " " for count in counts)


def _count(shape: list[Any]) -> int:
    """Count the elements of an array, or give a large number where JSON could not hold a length."""
    total = 1
    for length in shape:
        total *= length if isinstance(length, int) else 1 << 60
    return total


def _short(number: object) -> str:
    return f"{number:.4g}" if isinstance(number, float) else str(number)


def _image(summary: dict[str, Any]) -> str:
    turned = summary["orientation"]
    exif = "" if turned == 1 else f", EXIF orientation {turned}"
    shape = f"{summary['width']} x {summary['height']}, {summary['mode']}"
    return f"{summary['format']} image, {shape}{exif}"


def _text(summary: dict[str, Any]) -> str:
    return repr(summary["text"]) + (" ..." if summary["truncated"] else "")


def _document(summary: dict[str, Any]) -> str:
    if "tree" in summary:
        # Letters as they are: captions come in all scripts, and `clean` knows what may be printed.
        return json.dumps(summary["tree"], ensure_ascii=False)
    return _text(summary) if "text" in summary else _bytes(summary)


def _class(summary: dict[str, Any]) -> str:
    name = summary["name"]
    return str(summary["value"]) + ("" if name is None else f" ({name})")


def _arrays(summary: dict[str, Any]) -> str:
    lines = " | ".join(map(array_line, summary["arrays"]))
    if summary["num_arrays"] == 1:
        return lines
    return f"{summary['num_arrays']} arrays" + (f" | {lines}" if lines else "")


def _sound_or_film(summary: dict[str, Any]) -> str:
    if "note" in summary:
        return str(summary["note"])
    parts = [summary["format"]]
    if summary["duration"] is not None:
        parts.append(f"{summary['duration']:.1f} s")
    if "width" in summary:
        parts.append(f"{summary['width']} x {summary['height']}")
        parts.append(f"{summary['rate'] or '?'} frames/s")
    else:
        parts.append(f"{summary['rate']} Hz")
        parts.append(f"{summary['channels']} channel{'s' * (summary['channels'] != 1)}")
    return ", ".join(map(str, parts))


def _bytes(summary: dict[str, Any]) -> str:
    # What a row of the dump shows between its offset and its text.
    shown = " ".join(row[10:57].strip() for row in summary["hex"][:2])
    return f"bytes: {shown}" + (" ..." if summary["truncated"] or len(summary["hex"]) > 2 else "")


LINES = {
    "array": _arrays,
    "audio": _sound_or_film,
    "bytes": _bytes,
    "class": _class,
    "image": _image,
    "json": _document,
    "text": _text,
    "video": _sound_or_film,
}
