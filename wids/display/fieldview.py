"""Views of one field of a sample, for web pages, notebooks and terminals."""

import itertools
import json
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from wids.codecs.documents import decode_cbor, decode_class, decode_json, decode_msgpack
from wids.codecs.formats import (
    Kind,
    field_kind,
    format_suffix,
    is_class,
    unpack_field,
    wrapper_of,
)
from wids.display.annotations import summarise_shapes
from wids.display.arrayview import named_arrays, summarise_arrays
from wids.display.conversation import read_turns
from wids.display.mediaview import summarise_audio, summarise_image, summarise_video
from wids.display.pixels import is_picture
from wids.display.safejson import TreeTooLargeError, safe_number, safe_text, safe_tree
from wids.errors import DecodeError

__all__ = [
    "ClassNames",
    "FieldView",
    "array_line",
    "bars",
    "class_name",
    "content_line",
    "hex_rows",
    "is_packed",
    "label_names",
    "outline_arrays",
    "unpacked",
    "view_field",
]

ClassNames = Sequence[str] | Mapping[Any, str]
Data = bytes | memoryview
Summary = dict[str, Any]

MAX_TEXT = 20_000  # characters
MAX_TREE_NBYTES = 1 << 18  # largest document that is parsed
MAX_TURNS_NBYTES = 1 << 20  # part of a document in which turns of a conversation are looked for
MAX_SHAPES_NBYTES = 4 << 20  # largest document that is parsed to find its shapes
MAX_HEX_NBYTES = 4096
MAX_CLASS_NBYTES = 4096  # of a class with the blanks around it; Python parses 4,300 digits
MAX_UNPACKED = 64 << 20  # bytes that a compressed field may unpack to
BACKGROUND = re.compile(r"_*(background|bg|void|unlabell?ed|ignored?|none|other)_*", re.IGNORECASE)
SNIFFED_NBYTES = 1024  # number of bytes that decide whether a field of unknown kind is text
MAX_NAME = 200  # characters of the name of a class
MAX_MESSAGE = 1_000  # characters of an error
DOCUMENTS: dict[str, Callable[[Data], Any]] = {
    ".cbor": decode_cbor,
    ".json": decode_json,
    ".mp": decode_msgpack,
    ".msgpack": decode_msgpack,
}
NAMES_SHAPES = re.compile(rb"bbox|boxes|segmentation|polygon|keypoints")
PARSING = threading.Lock()


class Field(NamedTuple):
    """Field of a sample as bytes that `view_field` understands.

    Attributes:
        name: Name of the field in the sample, such as ".jpg" or "image".
        format: Extension that says how to read `data`.
        data: The bytes.
        stored: Whether the shard holds these bytes; False if they encode a decoded value.
    """

    name: str
    format: str
    data: bytes | memoryview
    stored: bool


@dataclass(frozen=True)
class FieldView:
    """View of one field.

    Attributes:
        kind: "image", "text", "json", "class", "array", "audio", "video" or "bytes".
        nbytes: Bytes of the field as it is stored.
        summary: Bounded in size and depth, and JSON as it stands (no NaN, no lone surrogate, no
            integer beyond 2**53). By kind:

            image: `width`, `height`, `mode`, `format`, `orientation` (EXIF's, 1 to 8).
            text: `text`, its beginning; `truncated`.
            json: `tree`; or `text` and `truncated` if the document is too large for a tree; and
            `conversation`, its first turns, if it is one (see `wids.display.conversation`).
            class: `value`, a number or, beyond 2**53, its digits; `name` or None.
            array: `arrays`, a list of `name`, `dtype`, `shape`, `nbytes`, `values`, `picture` and,
            for numbers, `min`, `max`, `mean`, `std`, `nan`, `inf`, `histogram`, `sampled` (see
            `wids.display.arrayview.describe_array`); `num_arrays`; `picture`.
            audio: `duration` in seconds, `rate` in frames per second, `channels`, `format`.
            video: `duration`, `rate`, `width`, `height`, `format`.
            bytes: `hex`, the rows of a hex dump of the beginning; `truncated`.

            Audio and video have `unlike` if their bytes are of another format than the extension,
            and only `note` if the library that reads them is not installed.
        error: Why the field cannot be decoded, else None. On an error, `summary` holds the hex dump
            `hex` and `truncated` in addition to what could be read.
    """

    kind: Kind
    nbytes: int
    summary: Summary = field(default_factory=dict)
    error: str | None = None


def view_field(extension: str, data: Data, *, class_names: ClassNames | None = None) -> FieldView:
    """Describe a field; its contents can neither raise an error nor run code.

    Images are not decoded. Of large fields only the beginning is read, or the elements of an array
    that its statistics use.

    Args:
        extension: With its leading dot, such as ".seg.png" or ".json.gz".
        data: The whole field.
        class_names: The name of each class, by its number.

    >>> view_field(".cls", b"1", class_names=["cat", "dog"])
    FieldView(kind='class', nbytes=1, summary={'value': 1, 'name': 'dog'}, error=None)
    >>> view_field(".json", b"[1").error
    "JSONDecodeError: Expecting ',' delimiter: line 1 column 3 (char 2)"
    """
    kind = field_kind(extension)
    content = data
    try:
        content = unpacked(extension, data)
        if kind == "bytes" and _looks_like_text(content):
            kind = "text"
        if kind == "class":
            return FieldView(kind, len(data), _view_class(content, class_names))
        return FieldView(kind, len(data), VIEWS[kind](format_suffix(extension), content))
    except Exception as error:  # noqa: BLE001 (whatever a decoder raises belongs to the field)
        summary = {**_beginning(kind, content), **_view_bytes("", content)}
        return FieldView(kind, len(data), summary, _reason(error))


def is_packed(extension: str) -> bool:
    """Return whether a field must be decompressed to be described.

    >>> is_packed(".npy"), is_packed(".npz"), is_packed(".txt.gz")
    (False, True, True)
    """
    return bool(wrapper_of(extension)) or format_suffix(extension) == ".npz"


def outline_arrays(extension: str, data: Data) -> tuple[list[str] | None, bool]:
    """Describe the arrays of a field by type and shape, without reading their values.

    Args:
        extension: With its leading dot.
        data: The whole field.

    Returns:
        Type and shape of each array, or None if the field cannot be decoded; and whether one of
        them can be shown as a picture.

    >>> outline_arrays(".npy", b"none")
    (None, False)
    """
    try:
        found = named_arrays(format_suffix(extension), unpacked(extension, data))
    except Exception:  # noqa: BLE001 (whatever a decoder raises belongs to the field)
        return None, False
    words = [f"{array.dtype} {list(array.shape)}" for _, array in found]
    return words, any(is_picture(array.shape, array.dtype) for _, array in found)


def unpacked(extension: str, data: Data) -> Data:
    """Unpack a compressed field of at most 64 MiB; return other fields unchanged.

    Raises:
        DecodeError: It is damaged, or unpacks to more.
        ModuleNotFoundError: zstandard is not installed.

    >>> unpacked(".txt", b"as it is")
    b'as it is'
    """
    wrapper = wrapper_of(extension)
    if not wrapper:
        return data
    return unpack_field(wrapper, data, MAX_UNPACKED)


def hex_rows(data: Data) -> list[str]:
    """Return a hex dump, sixteen bytes per row: offset, bytes, and ASCII characters.

    >>> hex_rows(b"wids")
    ['00000000  77 69 64 73                                      wids']
    """
    return [
        f"{start:08x}  {bytes(data[start : start + 16]).hex(' '):<47}  {_ascii(data, start)}"
        for start in range(0, len(data), 16)
    ]


def _ascii(data: Data, start: int) -> str:
    return "".join(
        chr(byte) if 32 <= byte < 127 else "." for byte in itertools.islice(data, start, start + 16)
    )


def _view_bytes(_suffix: str, data: Data) -> Summary:
    return {"hex": hex_rows(data[:MAX_HEX_NBYTES]), "truncated": len(data) > MAX_HEX_NBYTES}


def _view_text(_suffix: str, data: Data) -> Summary:
    # A character takes at most four bytes, so these bytes hold all characters that are shown.
    text = _decoded(data, 4 * MAX_TEXT)
    truncated = len(data) > 4 * MAX_TEXT or len(text) > MAX_TEXT
    return {"text": safe_text(text, MAX_TEXT), "truncated": truncated}


def _decoded(data: Data, limit: int) -> str:
    """Decode the first `limit` bytes of UTF-8 text, which may end within a character."""
    start = bytes(data[:limit])
    try:
        return start.decode()
    except UnicodeDecodeError as error:
        if len(data) <= limit or error.start < len(start) - 3:
            raise
        return start[: error.start].decode()


def _view_document(suffix: str, data: Data) -> Summary:
    if len(data) > MAX_TREE_NBYTES:
        return {**_view_long_document(suffix, data), **_shapes_of_long(suffix, data)}
    try:
        document = DOCUMENTS[suffix](data)
    except RecursionError:
        return _view_long_document(suffix, data)
    try:
        tree = safe_tree(document)
    except (TreeTooLargeError, RecursionError):
        # A document of CBOR may contain itself.
        shapes = {} if suffix == ".cbor" else summarise_shapes(document)
        return {**_view_long_document(suffix, data), **shapes}
    return {"tree": tree, **_conversation(suffix, data), **summarise_shapes(tree)}


def _shapes_of_long(suffix: str, data: Data) -> Summary:
    """Return the shapes of a document too large for a tree; a huge one is not searched."""
    if suffix == ".cbor":
        return {}
    if len(data) <= MAX_SHAPES_NBYTES:
        # One at a time: the values may take thirty times the memory of the document.
        with PARSING, suppress(Exception):  # its text is shown, whatever is wrong with the rest
            return summarise_shapes(DOCUMENTS[suffix](data))
        return {}
    named = NAMES_SHAPES.search(data[:MAX_TEXT])
    return {"shapes": {"drawn": [], "left_out": 0, "whole": False}} if named else {}


def _view_long_document(suffix: str, data: Data) -> Summary:
    """View a document that is no tree of a bounded size: its text, or its bytes."""
    if suffix != ".json":
        return _view_bytes(suffix, data)
    return {**_view_text(suffix, data), **_conversation(suffix, data)}


def _conversation(suffix: str, data: Data) -> Summary:
    """Return the first turns of a document that is a conversation; else nothing."""
    if suffix != ".json":
        return {}
    whole = len(data) <= MAX_TURNS_NBYTES
    turns = read_turns(data[:MAX_TURNS_NBYTES], whole=whole)
    return {} if turns is None else {"conversation": turns.as_dict()}


def _view_class(data: Data, class_names: ClassNames | None) -> Summary:
    if len(data) > MAX_CLASS_NBYTES:
        raise DecodeError(f"a class is a number of a few digits, this field has {len(data)} bytes")
    value = decode_class(data)
    return {"value": safe_number(value), "name": class_name(class_names, value)}


def class_name(class_names: ClassNames | None, value: int) -> str | None:
    """Return the name of a class; None where it has none.

    >>> class_name(["cat", "dog"], 1), class_name({"7": "cow"}, 7), class_name(None, 0)
    ('dog', 'cow', None)
    """
    names = class_names if class_names is not None else {}
    if isinstance(names, Mapping):
        name = names.get(value, names.get(str(value)))  # JSON has text for keys
    else:
        name = names[value] if 0 <= value < len(names) else None
    return None if name is None else safe_text(str(name), MAX_NAME)


def label_names(class_names: ClassNames | None, extensions: Iterable[str]) -> ClassNames | None:
    """Return the names of the values of label maps in a sample; None where they have none.

    Names of classes are those of a field such as `.cls` where there is one, whose numbers say
    nothing of the values of a mask, unless 0 is named as the background.

    Args:
        class_names: Names of classes.
        extensions: Extensions of the fields of the sample.

    >>> label_names(["cat", "dog"], [".png", ".cls"]) is None, label_names(["sky"], [".png"])
    (True, ['sky'])
    >>> label_names({0: "background", 1: "cat"}, [".png", ".cls"])
    {0: 'background', 1: 'cat'}
    """
    if not any(map(is_class, extensions)):
        return class_names
    named = class_name(class_names, 0)
    return class_names if named is not None and BACKGROUND.fullmatch(named.strip()) else None


def _beginning(kind: Kind, data: Data) -> Summary:
    """Return the view of a document that cannot be decoded: the beginning of its text."""
    if kind not in {"text", "json", "class"}:
        return {}
    text = bytes(data[: 4 * MAX_TEXT]).decode("utf-8", "replace")
    return {"text": safe_text(text, MAX_TEXT)}


def _looks_like_text(data: Data) -> bool:
    """Return whether a field of unknown kind begins with printable UTF-8."""
    try:
        text = _decoded(data, SNIFFED_NBYTES)
    except UnicodeDecodeError:
        return False
    return bool(text) and all(letter.isprintable() or letter in "\t\n\r" for letter in text)


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())
    name = type(error).__name__
    return safe_text(text if name == "DecodeError" else f"{name}: {text}", MAX_MESSAGE)


VIEWS: dict[str, Callable[[str, Data], Summary]] = {
    "array": summarise_arrays,
    "audio": summarise_audio,
    "bytes": _view_bytes,
    "image": summarise_image,
    "json": _view_document,
    "text": _view_text,
    "video": summarise_video,
}


MAX_LINE = 2_000  # characters; the caller cuts the line to its width
BARS = "▁▂▃▄▅▆▇█"


def content_line(view: FieldView) -> str:
    r"""Return a summary line of a field, or the reason why it cannot be decoded.

    The line may hold any characters of the field, even line breaks and terminal escapes. Pass it
    through `wids.base.text.clean` before printing it.

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
    """Return a summary line of an array.

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
    # At least 1, so that a histogram of no values is blank and does not divide by zero.
    top = max(counts, default=0) or 1
    return "".join(BARS[-(-count * 8 // top) - 1] if count else " " for count in counts)


def _count(shape: list[Any]) -> int:
    """Count the elements of an array; return a large number if JSON could not hold a length."""
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
        # Letters of all scripts are kept, since `clean` escapes what must not be printed.
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
    if "unlike" in summary:
        parts.append(summary["unlike"])
    return ", ".join(map(str, parts))


def _bytes(summary: dict[str, Any]) -> str:
    # The column of a dump's row between offset and text.
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
