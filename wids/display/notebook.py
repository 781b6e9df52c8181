"""Samples and datasets as text and as HTML for notebooks: pictures inline, everything else escaped.

Styles are attributes of the elements, since some notebooks drop style sheets. Colours are derived
from the colour of the text or are translucent greys, to suit light and dark backgrounds. The HTML
loads nothing and has no scripts, so that every viewer of HTML can show it.
"""

from __future__ import annotations

import base64
import html
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from wids.base.text import clean, columns_of, format_nbytes
from wids.base.urls import display_url
from wids.codecs.arrays import encode_npy
from wids.codecs.formats import media_type
from wids.display.fieldview import (
    ClassNames,
    Field,
    FieldView,
    array_line,
    bars,
    class_name,
    content_line,
    label_names,
    view_field,
)
from wids.display.shapes import Overlay, overlay_of
from wids.display.thumbnails import CUT_IS_SAID, Thumbnail, thumbnail
from wids.errors import DecodeError

__all__ = ["DatasetFacts", "Markup", "SampleView", "dataset_html", "sample_html", "show", "tag"]

EMPTY_TAGS = {"br", "img"}  # elements without content and end tag
MAX_FIELDS = 50  # of a sample; further ones are only counted
MAX_TEXT = 4_000  # characters of a text or document
MAX_ROWS = 16  # of a hex dump
MAX_MEDIA_NBYTES = 2 << 20  # of a sound or video that is embedded
MAX_PICTURES_NBYTES = 2 << 20  # of all pictures of a page
PICTURE_SIDE = 256  # pixels, in the page of a sample
TILE_SIDE = 128  # pixels, in the grid of a dataset
MAX_LEGEND = 32  # labels of a mask that are named

MAX_REPR = 10_000  # characters of the `repr` of a value of unknown type
MAX_NAME = 30  # columns of a field's name
LINE_WIDTH = 120  # characters of a line of `repr`

GREY = "rgba(128,128,128,.14)"
LINE = "1px solid rgba(128,128,128,.28)"
BASE = "font:13px/1.5 system-ui,sans-serif;text-align:left"
CARD = f"{BASE};border:{LINE};border-radius:8px;padding:12px 16px;max-width:820px;overflow:hidden"
# Isolated, so that right-to-left characters in a key do not reverse the text after it.
ISOLATED = "unicode-bidi:isolate;overflow-wrap:anywhere"
CODE = "font-family:ui-monospace,monospace;font-size:12px"
CHIP = (
    f"{CODE};background:{GREY};border-radius:5px;padding:1px 6px;margin:0 6px 2px 0;"
    "display:inline-block;max-width:220px;unicode-bidi:isolate;overflow-wrap:break-word"
)
FAINT = "opacity:.65"
PLAIN = (
    "border:0;background:none;color:inherit"  # overrides the notebook's style of tables and `pre`
)
PRE = (
    f"{CODE};{ISOLATED};{PLAIN};margin:0;padding:0;max-height:18em;overflow:auto;"
    "white-space:pre-wrap"
)
CELL = f"{PLAIN};border-top:{LINE};padding:6px 14px 6px 0;vertical-align:top;text-align:left"
# Takes the rest of the width; a long line scrolls or breaks inside.
REST = "width:100%;max-width:0;overflow:hidden"
BAD = "color:#d1495b;overflow-wrap:anywhere"


class Markup(str):
    """Text that is already HTML; any other string is escaped when it is put into a tag."""

    __slots__ = ()


def tag(name: str, *parts: str | Iterable[str], **attributes: object) -> Markup:
    """Build an HTML element.

    Args:
        name: The element's name.
        parts: Its contents in order: strings, which are escaped unless they are `Markup`, or
            iterables of strings.
        attributes: Its attributes; a trailing `_` of a name is dropped, and an attribute that is
            None is left out.

    >>> print(tag("b", "a<b", tag("i", "c"), style="color:red", title=None))
    <b style="color:red">a&lt;b<i>c</i></b>
    """
    written = "".join(
        f' {key.rstrip("_")}="{html.escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in EMPTY_TAGS:
        return Markup(f"<{name}{written}>")
    content = "".join(
        each if isinstance(each, Markup) else html.escape(each)
        for part in parts
        for each in _strings(part)
    )
    return Markup(f"<{name}{written}>{content}</{name}>")


def _strings(part: str | Iterable[str]) -> Iterable[str]:
    return [part] if isinstance(part, str) else part


@dataclass(frozen=True, repr=False)
class SampleView:
    """View of a sample: `print` writes lines of text, a notebook shows pictures.

    Attributes:
        fields: Its fields, in their order.
        facts: The origin of the sample: `key`, `index`, `shard` and so on.
        class_names: The name of each class, by its number; or None.

    >>> print(SampleView.of({"__key__": "a", "__index__": 3, ".cls": b"1", ".txt": b"one"}))
    sample 3, key a
      .cls       1 B  1
      .txt       3 B  'one'
    """

    fields: tuple[Field, ...]
    facts: Mapping[str, Any]
    class_names: ClassNames | None = None

    @classmethod
    def of(cls, sample: Mapping[str, Any], class_names: ClassNames | None = None) -> Self:
        """Make a view of a sample, raw or decoded.

        Args:
            sample: A sample of a dataset: fields by name, as bytes, streams, decoded values, or
                results of transformations.
            class_names: The name of each class, by its number.
        """
        # Transformations may give a sample keys of any type; they are shown as text.
        items = [(str(name), value) for name, value in sample.items()]
        facts = {name.strip("_"): value for name, value in items if _is_fact(name)}
        fields = (_field(name, value) for name, value in items if not _is_fact(name))
        return cls(tuple(fields), facts, class_names)

    def views(self) -> dict[str, FieldView]:
        """View each field, by its name."""
        return {
            field.name: view_field(field.format, field.data, class_names=self.class_names)
            for field in self.fields
        }

    @property
    def title(self) -> str:
        """Index and key of the sample, as text."""
        parts = [f"sample {self.facts['index']}"] if "index" in self.facts else ["sample"]
        parts += [f"key {self.facts['key']}"] if "key" in self.facts else []
        return ", ".join(parts)

    def lines(self, width: int = LINE_WIDTH) -> list[str]:
        """Lay the sample out as text that is safe to print.

        Args:
            width: Most characters of a line.
        """
        names = [clean(field.name, MAX_NAME) for field in self.fields]
        name_width = max(map(columns_of, names), default=0)
        lines = [clean(self.title, width)]
        for name, field, view in zip(names, self.fields, self.views().values(), strict=True):
            size = format_nbytes(view.nbytes) if field.stored else ""
            padding = " " * (name_width - columns_of(name))
            line = f"  {name}{padding}  {size:>8}  {clean(content_line(view))}"
            lines.append(clean(line, width))
        return lines

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        return sample_html(self)


def show(sample: Mapping[str, Any], *, class_names: ClassNames | None = None) -> SampleView:
    """Show one sample: in a notebook as a table with pictures, else as text.

    Args:
        sample: A sample of a dataset, decoded or raw.
        class_names: The name of each class, by its number.

    >>> show({"__key__": "a", ".cls": 1}, class_names=["cat", "dog"])
    sample, key a
      .cls            1 (dog)
    """
    if not isinstance(sample, Mapping):
        raise TypeError(f"expected a sample, a dict of fields, got a {type(sample).__name__}")
    return SampleView.of(sample, class_names)


def _is_fact(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _field(name: str, value: Any) -> Field:
    """Return the bytes of a field; a decoded value is encoded for display."""
    if isinstance(value, io.BytesIO | bytearray):
        value = bytes(value if isinstance(value, bytearray) else value.getbuffer())
    if isinstance(value, bytes | memoryview):
        return Field(name, name if name.startswith(".") else f".{name}", value, stored=True)
    try:
        return Field(name, *_shown(name, value), stored=False)
    except Exception as error:  # noqa: BLE001 (an object of any type may fail in any way)
        text = f"{type(value).__name__}, which cannot be shown: {error}"
        return Field(name, ".txt", text.encode("utf-8", "replace"), stored=False)


def _shown(name: str, value: Any) -> tuple[str, bytes]:
    """Return the extension of a format that suits a decoded value, and its bytes in that."""
    if isinstance(value, np.generic):
        value = value.item()  # an array without axes is shown as a number
    if isinstance(value, str):
        return ".txt", value.encode("utf-8", "backslashreplace")
    if isinstance(value, int) and not isinstance(value, bool) and name.lower().endswith(".cls"):
        return ".cls", str(value).encode()
    if hasattr(value, "getbands") and hasattr(value, "save"):  # a PIL image
        stream = io.BytesIO()
        known = value.mode in {"1", "L", "LA", "P", "RGB", "RGBA", "I;16"}
        (value if known else value.convert("RGB")).save(stream, "PNG", compress_level=1)
        return ".png", stream.getvalue()
    if hasattr(value, "dtype") and hasattr(value, "shape"):  # an array, or a tensor on any device
        value = value.detach().cpu() if hasattr(value, "detach") else value
        return ".npy", encode_npy(np.asarray(value))
    try:
        return ".json", json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace")
    except (TypeError, ValueError, RecursionError):
        return ".txt", repr(value)[:MAX_REPR].encode("utf-8", "backslashreplace")


@dataclass(frozen=True)
class DatasetFacts:
    """Facts of a dataset that its page shows.

    Attributes:
        kind: The name of its class.
        name: Its name.
        nsamples: Number of samples.
        nshards: Number of shards.
        nbytes: Total size of the shards in bytes; None if the spec does not state all sizes.
        fields: The fields of the first sample and their sizes in bytes; None if unknown.
    """

    kind: str
    name: str
    nsamples: int
    nshards: int
    nbytes: int | None
    fields: Sequence[tuple[str, int]] | None = None


def dataset_html(
    facts: DatasetFacts, samples: Iterable[SampleView | Exception], note: str | None = None
) -> Markup:
    """Return the HTML of a dataset: its facts and a grid of samples.

    Args:
        facts: Facts of the dataset.
        samples: The samples of the grid; an error stands for one that could not be read.
        note: A further line of text.
    """
    counts = [_counted(facts.nsamples, "sample"), _counted(facts.nshards, "shard")]
    if facts.nbytes is not None:
        counts.append(format_nbytes(facts.nbytes))
    parts = [
        tag(
            "div",
            tag("b", clean(facts.name, 100), style=f"font-size:15px;{ISOLATED}"),
            tag("span", f" {facts.kind}", style=FAINT),
        ),
        tag("div", " · ".join(counts)),
    ]
    if facts.fields:
        chips = [_chip(name, format_nbytes(nbytes)) for name, nbytes in facts.fields[:MAX_FIELDS]]
        parts.append(tag("div", chips, style="margin-top:4px"))
    pictures = _Pictures(TILE_SIDE)
    tiles = [_tile(sample, pictures) for sample in samples]
    if tiles:
        grid = "display:flex;flex-wrap:wrap;gap:10px;margin-top:10px"
        parts.append(tag("div", tiles, style=grid))
    if note is not None:
        parts.append(tag("div", clean(note, 500), style=f"{FAINT};margin-top:8px"))
    return tag("div", parts, style=CARD)


def sample_html(sample: SampleView) -> Markup:
    """Return the HTML of a sample: a table of its fields, each shown by its kind."""
    views = sample.views()
    overlay = overlay_of(
        [(each.format, each.data, views[each.name]) for each in sample.fields[:MAX_FIELDS]],
        PICTURE_SIDE,
    )
    names = label_names(sample.class_names, (each.format for each in sample.fields))
    pictures = _Pictures(PICTURE_SIDE, names, legends=True, overlay=overlay)
    rows = [
        tag(
            "tr",
            tag("td", _chip(field.name), style=CELL),
            tag(
                "td",
                format_nbytes(views[field.name].nbytes) if field.stored else "",
                style=f"{CELL};white-space:nowrap;{FAINT}",
            ),
            tag("td", _content(field, views[field.name], pictures), style=f"{CELL};{REST}"),
            style="background:none",
        )
        for field in sample.fields[:MAX_FIELDS]
    ]
    parts = [tag("b", clean(sample.title, 200), style=ISOLATED)]
    if "shard" in sample.facts:
        # Notebooks are shared, so they show no password and no signature.
        place = clean(display_url(str(sample.facts["shard"])), 300)
        if "shardindex" in sample.facts:
            place += f", sample {sample.facts['shardindex']} in it"
        parts.append(tag("div", place, style=f"{FAINT};{ISOLATED}"))
    # Jupyter's style sheet fixes the width of table columns, so that names would cover contents.
    table = (
        "border-collapse:collapse;table-layout:auto;margin:8px 0 0;width:100%;font:inherit;border:0"
    )
    parts.append(tag("table", rows, style=table))
    if len(sample.fields) > MAX_FIELDS:
        parts.append(tag("div", f"and {len(sample.fields) - MAX_FIELDS} more fields", style=FAINT))
    return tag("div", parts, style=CARD)


class _Pictures:
    """Draws the pictures of one page, whose total size is bounded.

    Args:
        side: Pixels of the longer side of a picture.
        class_names: The name of each class, by its number.
        legends: Whether label maps have a legend below them.
        overlay: What is drawn beside the image that it is of.
    """

    def __init__(
        self,
        side: int,
        class_names: ClassNames | None = None,
        *,
        legends: bool = False,
        overlay: Overlay | None = None,
    ) -> None:
        self.side = side
        self.overlay = overlay
        self.left = MAX_PICTURES_NBYTES
        self._class_names = class_names
        self._legends = legends

    def draw(self, extension: str, data: bytes | memoryview) -> Markup:
        """Return an `img` of a field, or a line with the reason why there is none."""
        try:
            picture = thumbnail(extension, data, size=self.side)
        except DecodeError as error:
            return tag("div", clean(error, 160), style=BAD)
        return self.show(picture, extension)

    def show(self, picture: Thumbnail, name: str) -> Markup:
        """Return an `img` of a picture, with its legend, or a line if there is no room for it."""
        self.left -= len(picture.data)
        if self.left < 0:
            return tag("div", "not drawn: this page has many pictures", style=FAINT)
        # Small pictures are enlarged without smoothing: a digit of 28 pixels is hard to see.
        scale = max(1, self.side // 2 // max(picture.width, picture.height))
        drawn = tag(
            "img",
            src=f"data:{picture.media_type};base64,{base64.b64encode(picture.data).decode()}",
            width=picture.width * scale,
            height=picture.height * scale,
            alt=name,
            style="max-width:100%;height:auto;border-radius:4px;margin:0;display:block"
            + (";image-rendering:pixelated" if scale > 1 else ""),
        )
        below = _legend(picture, self._class_names) if self._legends else []
        if picture.is_cut:
            below = [*below, tag("div", CUT_IS_SAID, style=BAD)]
        return tag("div", drawn, below) if below else drawn


def _legend(picture: Thumbnail, class_names: ClassNames | None) -> list[Markup]:
    """Return the entries of a label map's legend, or the range of stretched values."""
    if picture.value_range is not None:
        low, high = picture.value_range
        return [tag("div", f"black {low:.4g}, white {high:.4g}", style=FAINT)]
    entries = []
    for label in picture.labels[:MAX_LEGEND]:
        name = class_name(class_names, label.value)
        text = f"{label.value}{f' {name}' if name else ''} {label.share:.1%}"
        swatch = (
            f"display:inline-block;width:10px;height:10px;border:{LINE};margin-right:4px;"
            f"background:{label.colour}"
        )
        entries.append(tag("span", tag("span", style=swatch), clean(text, 60), style=CHIP))
    if len(picture.labels) > MAX_LEGEND:
        entries.append(tag("span", f"and {len(picture.labels) - MAX_LEGEND} more", style=FAINT))
    return [tag("div", entries, style="margin-top:4px")] if entries else []


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' * (count != 1)}"


def _chip(name: str, size: str = "") -> Markup:
    parts = [clean(name, 60)]
    if size:
        parts.append(tag("span", f" {size}", style=FAINT))
    return tag("span", parts, style=CHIP)


def _tile(sample: SampleView | Exception, pictures: _Pictures) -> Markup:
    """Return the tile of a sample: its picture or some text, its index, key and label."""
    frame = f"width:{TILE_SIDE}px;font-size:12px;line-height:1.35"
    box = (
        f"height:{TILE_SIDE}px;display:flex;align-items:center;justify-content:center;"
        f"overflow:hidden;background:{GREY};border-radius:6px;margin-bottom:4px"
    )
    if isinstance(sample, Exception):
        text = f"{type(sample).__name__}: {sample}"
        return tag("div", tag("div", clean(text, 160), style=f"{box};{BAD}"), style=frame)
    views = sample.views()
    picture = _first_picture(sample, views, pictures)
    cut = f"overflow:hidden;text-overflow:ellipsis;white-space:nowrap;{ISOLATED}"
    lines = [
        tag("span", str(sample.facts.get("index", "")), style=FAINT),
        f" {clean(sample.facts.get('key', ''), 80)}",
    ]
    label = _label(views, with_text=picture is not None)
    return tag(
        "div",
        tag("div", picture or _instead(views), style=box),
        tag("div", lines, style=cut, title=clean(sample.facts.get("key", ""), 300)),
        tag("div", clean(label, 80), style=f"{cut};{FAINT}", title=clean(label, 300)),
        style=frame,
    )


def _first_picture(
    sample: SampleView, views: dict[str, FieldView], pictures: _Pictures
) -> Markup | None:
    """Return the first picture of a sample; images go before arrays, sound and video."""
    for kinds in (("image",), ("array", "audio", "video")):
        for field in sample.fields:
            view = views[field.name]
            # Not every array makes a picture, and a `note` means that a library is missing.
            drawable = view.summary.get("picture", "note" not in view.summary)
            if view.kind in kinds and view.error is None and drawable:
                return pictures.draw(field.format, field.data)
    return None


def _instead(views: dict[str, FieldView]) -> Markup:
    """Return text in place of a picture: an error, or the beginning of the field."""
    failed = next((view for view in views.values() if view.kind == "image" and view.error), None)
    if failed is not None:
        return tag("div", clean(content_line(failed), 160), style=f"{BAD};padding:6px")
    order = ("text", "json", "array", "class", "audio", "video", "bytes")
    found = sorted(
        views.values(), key=lambda view: order.index(view.kind) if view.kind in order else 0
    )
    text = (found[0].summary.get("text") or content_line(found[0])) if found else "no fields"
    return tag("div", clean(" ".join(text.split()), 120), style=f"{ISOLATED};padding:6px;{FAINT}")


def _label(views: dict[str, FieldView], *, with_text: bool) -> str:
    """Return the label of a sample: its class, else its text."""
    kinds = ("class", "text") if with_text else ("class",)
    for kind in kinds:
        for view in views.values():
            if view.kind == kind and view.error is None:
                return view.summary["text"] if kind == "text" else content_line(view)
    return ""


# --- the fields of a sample, by kind -------------------------------------------------------------


def _content(field: Field, view: FieldView, pictures: _Pictures) -> list[str]:
    if view.error is not None:
        shown = _text(view.summary) if "text" in view.summary else _dump(view.summary)
        return [tag("div", clean(content_line(view), 500), style=BAD), *shown]
    if view.kind in CONTENTS:
        return CONTENTS[view.kind](field, view, pictures)
    return [tag("span", clean(content_line(view), 500), style=ISOLATED)]


def _image(field: Field, view: FieldView, pictures: _Pictures) -> list[str]:
    line = tag("div", clean(content_line(view)), style=FAINT)
    drawn, overlay = pictures.draw(field.format, field.data), pictures.overlay
    if overlay is None or overlay.field != field.format:
        return [drawn, line]
    left_out = [tag("div", clean(overlay.said, 300), style=FAINT)] if overlay.said else []
    if overlay.picture is None:
        return [drawn, line, *left_out]
    said = clean(f"with {', '.join(overlay.others)}", 100)
    parts = [pictures.show(overlay.picture, said), tag("div", said, style=FAINT), *left_out]
    row = "display:flex;flex-wrap:wrap;gap:12px"
    return [tag("div", tag("div", drawn, line), tag("div", parts), style=row)]


def _array(field: Field, view: FieldView, pictures: _Pictures) -> list[str]:
    parts: list[str] = []
    if view.summary["picture"]:
        parts.append(pictures.draw(field.format, field.data))
    for figures in view.summary["arrays"]:
        parts.append(tag("div", clean(array_line(figures), 500), style=ISOLATED))
        histogram = figures.get("histogram")
        if histogram is not None and len(histogram["counts"]) > 1:
            drawn = bars(histogram["counts"])
            parts.append(tag("div", drawn, style=f"{CODE};{FAINT};line-height:1;white-space:pre"))
    hidden = view.summary["num_arrays"] - len(view.summary["arrays"])
    return [*parts, f"and {hidden} more arrays"] if hidden else parts


def _document(_field: Field, view: FieldView, _pictures: _Pictures) -> list[str]:
    if "tree" not in view.summary:
        return _text(view.summary) if "text" in view.summary else _dump(view.summary)
    text = json.dumps(view.summary["tree"], indent=2, ensure_ascii=False)
    return _text({"text": text, "truncated": False})


def _player(field: Field, view: FieldView, _pictures: _Pictures) -> list[str]:
    """Return a line of facts, below a player if the format is known and the file is small."""
    line = tag("div", clean(content_line(view), 200), style=FAINT)
    kind = media_type(field.format)
    if not kind.startswith(("audio/", "video/")) or len(field.data) > MAX_MEDIA_NBYTES:
        return [line]
    source = f"data:{kind};base64,{base64.b64encode(field.data).decode()}"
    style = f"max-width:100%;{f'max-height:{PICTURE_SIDE}px' if view.kind == 'video' else ''}"
    return [tag(view.kind, src=source, controls="", preload="metadata", style=style), line]


def _text(summary: dict[str, Any]) -> list[str]:
    text = summary["text"]
    cut = summary.get("truncated") or len(text) > MAX_TEXT
    # Line breaks are kept; other control characters are escaped, since a browser drops or obeys
    # them.
    lines = "\n".join(clean(line) for line in text[:MAX_TEXT].splitlines())
    return [tag("pre", lines + (" …" if cut else ""), style=PRE)]


def _dump(summary: dict[str, Any]) -> list[str]:
    rows = summary["hex"][:MAX_ROWS]
    more = " …" if summary["truncated"] or len(summary["hex"]) > MAX_ROWS else ""
    return [tag("pre", "\n".join(rows) + more, style=f"{PRE};white-space:pre")]


CONTENTS: dict[str, Callable[[Field, FieldView, _Pictures], list[str]]] = {
    "array": _array,
    "audio": _player,
    "bytes": lambda _field, view, _pictures: _dump(view.summary),
    "image": _image,
    "json": _document,
    "text": lambda _field, view, _pictures: _text(view.summary),
    "video": _player,
}
