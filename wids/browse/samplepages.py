"""Samples as JSON: a tile of the grid, and the page of one sample with all its fields."""

from __future__ import annotations

import functools
import json
import re
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from wids.base.urls import display_url
from wids.browse.decoders import Job
from wids.browse.failures import message_of
from wids.browse.fieldreader import MOST_LOOKED_AT
from wids.browse.looks import header_facts
from wids.codecs.formats import OCTET_STREAM, field_kind, format_suffix, media_type
from wids.display.annotations import MOST_SHAPES, FoundShapes, Shape, find_shapes, shapes_of
from wids.display.fieldview import (
    FieldView,
    class_name,
    hex_rows,
    is_packed,
    label_names,
    outline_arrays,
    view_field,
)
from wids.display.pixels import names_labels
from wids.display.safejson import safe_text
from wids.display.thumbnails import makes_picture
from wids.errors import WidsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from wids.browse.decoders import Decoders
    from wids.browse.fieldreader import FieldReader, LocatedSample
    from wids.display.fieldview import ClassNames

__all__ = ["Describer", "tiles"]

_CAPTION_CHARACTERS = 160
# A longer text is a document, whose first line does not describe it.
_MOST_CAPTION_NBYTES = 64 << 10
_MOST_MEDIA_NBYTES = 16 << 20
_MOST_MEDIA_FAR_NBYTES = 1 << 20
_MOST_FIELDS = 200
_MOST_KEY = 300
_MOST_BOXES = 40  # on a tile
# What documents with boxes have, as `wids.display.annotations` knows them.
_BOXES = re.compile(rb'box|rect|roi|"(xmin|x[01]?|left)"', re.IGNORECASE)

# A larger field is not read to be described. Its beginning is shown, and the browser's player, if
# it has one for the format, requests the ranges that it needs.
_MOST_VIEW_NBYTES = 64 << 20
_HEAD_NBYTES = 4096
# Suffixes of images, those of photographs first; words in names of images made from others.
_LIKELY = (".jpg", ".jpeg", ".webp", ".avif", ".png")
_DERIVED = re.compile(r"depth|normal|flow|edge|alpha|disparity|thumb")
_MOST_SHAPE_NUMBERS = 1_000_000  # of a sample
_DECODED_KINDS = ("image", "audio", "video", "array")
_BINARY_DOCUMENTS = (".cbor", ".mp", ".msgpack")


def tiles(
    reader: FieldReader,
    positions: Iterable[tuple[int, int]],
    class_names: Mapping[int, str],
) -> list[tuple[dict[str, Any], LocatedSample | None]]:
    """Return the tiles of a page of the grid, each with its sample; None for an unreadable one.

    Such a tile has an error message.

    Args:
        reader: The dataset.
        positions: `(position in the order, index)` of each sample.
        class_names: Names of classes, by number.
    """
    found: list[tuple[dict[str, Any], LocatedSample | None]] = []
    for position, index in positions:
        tile: dict[str, Any] = {"position": position, "index": index, "key": None}
        located = None
        try:
            located = reader.locate(index)
        except (WidsError, OSError) as error:
            tile["error"] = message_of(error, 500)
        found.append((tile, located))
    reader.fetch_ahead(
        (located for _, located in found if located is not None),
        lambda located: {number for number in _on_tile(located) if number is not None},
    )
    for tile, located in found:
        if located is not None:
            tile.update(_tile(reader, located, class_names))
    return found


def _on_tile(located: LocatedSample) -> tuple[int | None, ...]:
    """Return the numbers of the fields that a tile shows: picture, class, caption and boxes."""
    caption = located.first("text", "json", most_nbytes=_MOST_CAPTION_NBYTES)
    document = located.first("json", most_nbytes=_MOST_CAPTION_NBYTES)
    return _picture(located), located.first("class", most_nbytes=200), caption, document


def _tile(
    reader: FieldReader, located: LocatedSample, class_names: Mapping[int, str]
) -> dict[str, Any]:
    tile: dict[str, Any] = {
        "version": reader.version,
        "key": safe_text(located.key, _MOST_KEY),
        "fields": [safe_text(field.extension, 40) for field in located.fields[:12]],
        "kind": _main_kind(located),
    }
    film = located.first("video") if tile["kind"] == "video" else None
    plays = film is not None and media_type(located.fields[film].extension) != OCTET_STREAM
    tile["film"] = film if plays else None  # which a browser may play
    picture, label, caption, document = _on_tile(located)
    try:
        tile |= _face(reader, located, picture)
        said = {"label": label, "caption": caption}
        numbers = {number for number in (*said.values(), document) if number is not None}
        data = {number: bytes(reader.read(located, number)) for number in numbers}
        for name, number in said.items():
            if number is not None and name not in tile:
                extension = located.fields[number].extension
                tile[name] = _short(extension, data[number], class_names)
        if document is not None and tile["picture"] is not None:
            tile |= _boxes(reader, located, tile["picture"], data[document])
    except (WidsError, OSError) as error:
        tile["error"] = message_of(error, 500)
    return tile


def _face(reader: FieldReader, located: LocatedSample, number: int | None) -> dict[str, Any]:
    """Return the picture or caption of a tile, as JSON."""
    if number is None or field_kind(located.fields[number].extension) != "array":
        return {"picture": number}
    field = located.fields[number]
    # The arrays of sixty tiles would take too long to fetch, to unpack or to read.
    is_slow = located.by_range or is_packed(field.extension)
    if field.nbytes > (_MOST_CAPTION_NBYTES if is_slow else _MOST_MEDIA_NBYTES):
        return {"picture": number}
    arrays, drawn = outline_arrays(field.extension, reader.read(located, number))
    if drawn:
        return {"picture": number}
    what = "cannot be decoded" if arrays is None else ", ".join(arrays[:3])
    return {"picture": None, "caption": safe_text(f"{field.extension}: {what}", 100)}


def _picture(located: LocatedSample) -> int | None:
    looked_at = located.fields[:MOST_LOOKED_AT]
    images = [n for n, field in enumerate(looked_at) if field_kind(field.extension) == "image"]
    if images:
        return min(images, key=lambda number: _likelihood(located.fields[number].extension))
    number = located.first("array")
    if number is not None:
        return number
    # To draw a video or a sound, all its bytes are read, which takes long for a remote shard.
    most = _MOST_MEDIA_FAR_NBYTES if located.by_range else _MOST_MEDIA_NBYTES
    number = located.first("video", "audio", most_nbytes=most)
    drawn = number is not None and makes_picture(located.fields[number].extension)
    return number if drawn else None


def _likelihood(extension: str) -> tuple[bool, int]:
    """Return a sort key by which photographs come before images made from others, such as masks."""
    derived = names_labels(extension) or _DERIVED.search(extension.lower()) is not None
    suffix = format_suffix(extension)
    return derived, _LIKELY.index(suffix) if suffix in _LIKELY else len(_LIKELY)


def _main_kind(located: LocatedSample) -> str:
    """Return the kind of field that represents a sample without a picture."""
    kinds = [field_kind(field.extension) for field in located.fields[:MOST_LOOKED_AT]]
    order = ("image", "video", "audio", "array", "text", "json", "class", "bytes")
    return min(kinds, key=order.index, default="bytes")


def _boxes(
    reader: FieldReader, located: LocatedSample, picture: int, text: bytes
) -> dict[str, Any]:
    """Return the boxes that the JSON of a sample names, and the sides of its image as stored."""
    if field_kind(located.fields[picture].extension) != "image" or not _BOXES.search(text):
        return {}
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    boxes = [shape for shape in find_shapes(document).drawn if shape.kind == "box"][:_MOST_BOXES]
    facts = header_facts(reader, located, picture) if boxes else {}
    if not facts.get("width"):
        return {}
    sides = [facts["width"], facts["height"]]
    return {"boxes": [shape.as_dict() for shape in boxes], "sides": sides}


def _short(extension: str, data: bytes, class_names: Mapping[int, str]) -> dict[str, Any] | str:
    """Return a class with its name, or the beginning of a text."""
    if field_kind(extension) == "class":
        view = view_field(extension, data, class_names=class_names)
        if view.error is None:
            return dict(view.summary)
        return {"value": "?", "name": None}
    text = data[: 4 * _CAPTION_CHARACTERS].decode("utf-8", "replace")
    return safe_text(" ".join(text.split()), _CAPTION_CHARACTERS)


@dataclass(frozen=True)
class Describer:
    """Describes and draws samples; complex formats are read in decoder processes.

    Attributes:
        reader: The dataset.
        decoders: Decoder processes.
        class_names: Names of classes, by number.
        wait_seconds: Longest wait for the descriptions of a sample.
    """

    reader: FieldReader
    decoders: Decoders
    class_names: Mapping[int, str]
    wait_seconds: float

    def page(self, located: LocatedSample, start: int = 0) -> dict[str, Any]:
        """Describe one sample, and its fields from number `start` on, up to the bound of a page."""
        # A sample of a hostile tar may have a million fields, so a response has a bounded number.
        start = max(0, start)
        shown = range(start, min(start + _MOST_FIELDS, len(located.fields)))
        self.reader.fetch_ahead([located], lambda _: shown)
        views = zip(shown, self._views(located, shown), strict=True)
        return {
            "index": located.index,
            "key": safe_text(located.key, 10 * _MOST_KEY),
            "shard": located.shard_index,
            "local_index": located.local_index,
            "version": self.reader.version,
            "url": safe_text(display_url(located.shard.url), 2000),
            "nbytes": sum(field.nbytes for field in located.fields),
            "fields": [self._row(located, number, view) for number, view in views],
            "picture": _picture(located),
            "fields_left_out": max(0, len(located.fields) - shown.stop),
        }

    def _row(self, located: LocatedSample, number: int, found: FieldView | None) -> dict[str, Any]:
        field = located.fields[number]
        plain = media_type(field.extension)
        view = found or FieldView(field_kind(field.extension), field.nbytes, {})
        is_drawn = field.nbytes <= _MOST_MEDIA_NBYTES and makes_picture(field.extension)
        is_own = field.home is self.reader.dataset
        return {
            "number": number,
            "extension": safe_text(field.extension, 200),
            "offset": max(field.offset, 0),
            "nbytes": field.nbytes,
            "kind": view.kind,
            "summary": view.summary,
            "error": view.error,
            "late": found is None,
            "media_type": None if plain == OCTET_STREAM else plain,
            "stored": None if is_own else safe_text(field.location, 2000),
            "wave": view.kind == "audio" and is_drawn,
            "strip": view.kind == "video" and is_drawn,
        }

    def _views(self, located: LocatedSample, numbers: Sequence[int]) -> list[FieldView | None]:
        """Describe fields in parallel.

        Returns:
            The descriptions; None for a field that takes longer than the others wait for it. The
            next request for it gets the description that is under way.
        """
        jobs: dict[int, Job] = {}
        for number in numbers:
            field = located.fields[number]
            if _needs_decoder(field.extension) and field.nbytes <= _MOST_VIEW_NBYTES:
                jobs[number] = self._begin(located, number, "view")
        end = time.monotonic() + self.wait_seconds
        found = [self._view(located, number, jobs.get(number), end) for number in numbers]
        names = label_names(self.class_names, (each.extension for each in located.fields))
        _finish_shapes((view for view in found if view is not None), names)
        return found

    def _view(
        self, located: LocatedSample, number: int, job: Job | None, end: float
    ) -> FieldView | None:
        """Describe a field here, or wait until `end` for the job that describes it."""
        field = located.fields[number]
        try:
            if job is not None:
                view: FieldView = job.result.result(max(end - time.monotonic(), 0))
                return replace(view, summary=dict(view.summary))  # which is kept as it was found
            if field.nbytes > _MOST_VIEW_NBYTES:
                return _view_of_huge(self.reader, located, number)
            data = self.reader.read(located, number)
            return view_field(field.extension, data, class_names=self.class_names)
        except TimeoutError:
            return None
        except (WidsError, OSError) as error:
            message = safe_text(message_of(error), 1000)
            return FieldView(field_kind(field.extension), field.nbytes, {}, message)

    def drawn(self, located: LocatedSample, number: int, size: int, *, strip: bool = False) -> Job:
        """Return the job that draws a field, which is done already if the picture is kept.

        Of slow pictures, those that somebody waits for are drawn first, in their order.

        Args:
            located: The sample.
            number: Number of the field.
            size: Most pixels of the longer side.
            strip: Whether to draw frames of a video in place of the first alone.
        """
        return self._begin(located, number, "thumbnail", size=size, strip=strip)

    def _begin(
        self,
        located: LocatedSample,
        number: int,
        call: Literal["view", "thumbnail"],
        **options: Any,
    ) -> Job:
        field = located.field(number)
        job = Job(call, field.extension, field.nbytes, **options)
        pieces = functools.partial(self.reader.pieces, located, number)
        return self.decoders.begin(job, pieces, (located.index, number, *options.values()))


def _finish_shapes(views: Iterable[FieldView], class_names: ClassNames | None) -> None:
    """Name the classes of shapes, and bound the shapes of all fields together."""
    count, room = MOST_SHAPES, _MOST_SHAPE_NUMBERS
    for view in views:
        found = shapes_of(view.summary)
        view.summary.pop("shapes", None)
        if found is None:
            continue
        drawn: list[Shape] = []
        for shape in found.drawn:
            if not count or room < len(shape.values):
                break
            count, room = count - 1, room - len(shape.values)
            name = None if shape.category is None else class_name(class_names, shape.category)
            label = shape.label if name is None else f"{shape.category} {name}"
            drawn.append(replace(shape, label=label))
        left_out = found.left_out + len(found.drawn) - len(drawn)
        view.summary["shapes"] = FoundShapes(tuple(drawn), left_out, found.whole).as_dict()


def _needs_decoder(extension: str) -> bool:
    """Return whether the format of a field is too complex to be read safely in this process."""
    packed = is_packed(extension) or format_suffix(extension) in _BINARY_DOCUMENTS
    return packed or field_kind(extension) in _DECODED_KINDS


def _view_of_huge(reader: FieldReader, located: LocatedSample, number: int) -> FieldView:
    field = located.fields[number]
    kind = field_kind(field.extension)
    summary = {"hex": hex_rows(reader.read(located, number, 0, _HEAD_NBYTES)), "truncated": True}
    note = f"not read whole to be shown: more than {_MOST_VIEW_NBYTES >> 20} MiB"
    # A player requests ranges, so it can play a field that is too large to be read at once.
    kept = kind if kind in ("audio", "video") else "bytes"
    return FieldView(kept, field.nbytes, {**summary, "note": note})
