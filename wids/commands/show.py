"""One sample for the eye: what each field holds, and images drawn in the terminal."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.codecs.decode import decode_field
from wids.wording import clean, format_nbytes

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["describe_sample", "draw_image", "field_names", "sample_lines"]

_UPPER_HALF = "▀"  # its colour is one pixel, its background the pixel below


def field_names(sample: Mapping[str, Any]) -> list[str]:
    """Name the fields of a sample, without what says where it comes from.

    >>> field_names({"__key__": "a", ".txt": b""})
    ['.txt']
    """
    return [name for name in sample if name.startswith(".")]


def describe_sample(sample: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Decode each field of a raw sample and say what it is; a bad field spoils no other.

    Args:
        sample: A sample as it was read, its fields as bytes.

    Returns:
        What `wids show --json` prints, and the values that could be decoded by extension.
    """
    fields, values = {}, {}
    for extension in field_names(sample):
        data = sample[extension]
        try:
            value = decode_field(extension, data)
            summary = {"summary": summarise(value)}
            if isinstance(value, int | str) or extension.lower().endswith(".json"):
                summary["value"] = value
            values[extension] = value
        except Exception as error:  # noqa: BLE001 (whatever a decoder raises belongs to the field)
            summary = {"error": str(error)}
        fields[extension] = {"nbytes": len(data), **summary}
    description = {
        "index": sample["__index__"],
        "key": sample["__key__"],
        "dataset": sample["__dataset__"],
        "shard": sample["__shard__"],
        "shardindex": sample["__shardindex__"],
        "fields": fields,
    }
    return description, values


def summarise(value: Any) -> str:
    r"""Say in one line what a decoded value is.

    >>> summarise("two\nlines"), summarise({"a": [1, 2]}), summarise(io.BytesIO(b"\x00raw"))
    ("'two\\nlines'", '{"a": [1, 2]}', "bytes: b'\\x00raw'")
    """
    if isinstance(value, io.BytesIO):
        return f"bytes: {value.getvalue()[:200]!r}"
    if hasattr(value, "getbands") and hasattr(value, "size"):  # a PIL image
        value.load()  # PIL reads the pixels only now: a cut image must not pass for a whole one
        width, height = value.size
        return f"{value.format or ''} image, {width} x {height}, {value.mode}".strip()
    if hasattr(value, "dtype") and hasattr(value, "shape"):  # an array or tensor
        shape = " x ".join(map(str, value.shape)) or "one number"
        sample = value.reshape(-1)[:8].tolist()
        return f"array of {value.dtype}, {shape}: {str(sample)[:-1]}{', ...' * (value.size > 8)}]"
    if isinstance(value, dict | list):
        try:
            return json.dumps(value, ensure_ascii=False)
        except TypeError:
            return repr(value)
    return repr(value)


def sample_lines(description: Mapping[str, Any], total: int, width: int) -> list[str]:
    """Lay out the description of a sample.

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
    fields = description["fields"]
    name_width = max(map(len, map(clean, fields)), default=0)
    for extension, field in fields.items():
        text = field.get("summary") or f"cannot be decoded: {field['error']}"
        size = format_nbytes(field["nbytes"])
        lines.append(clean(f"  {clean(extension):<{name_width}}  {size:>8}  {text}", width))
    return lines


def draw_image(image: Any, columns: int, rows: int) -> list[str]:
    """Draw an image with coloured half blocks, two pixels a character.

    Args:
        image: A PIL image; transparent parts are drawn on white.
        columns: Most characters in a line.
        rows: Most lines.

    Returns:
        The lines, with 24-bit colour escapes.
    """
    from PIL import Image

    image = image.convert("RGBA")
    scale = min(columns / image.width, 2 * rows / image.height, 1)
    size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    small = Image.new("RGB", (size[0], size[1] + size[1] % 2), "white")
    scaled = image.resize(size)
    small.paste(scaled, mask=scaled.getchannel("A"))
    pixels = np.asarray(small).tolist()  # pixels: height rows of width [red, green, blue]
    return [
        "".join(map(_half_block, upper, lower)) + "\x1b[0m"
        for upper, lower in zip(pixels[::2], pixels[1::2], strict=True)
    ]


def _half_block(upper: list[int], lower: list[int]) -> str:
    return "\x1b[38;2;{};{};{};48;2;{};{};{}m".format(*upper, *lower) + _UPPER_HALF
