"""Samples as JSON: a tile of the grid, and the page of one sample with all its fields."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

from wids.base.threads import DaemonThreadPool
from wids.browse.failures import message_of
from wids.codecs.formats import OCTET_STREAM, field_kind, format_suffix, media_type, wrapper_of
from wids.display.fieldview import FieldView, hex_rows, is_packed, outline_arrays, view_field
from wids.display.pixels import names_labels
from wids.display.safejson import safe_text
from wids.display.thumbnails import makes_picture
from wids.errors import WidsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from wids.browse.decoders import Decoders
    from wids.browse.source import FieldPlace, SamplePlace, Source

__all__ = ["FieldViews", "fields_ahead", "sample_page", "tiles"]

_CAPTION_CHARACTERS = 160
# A longer text is a document, and its first line says little of it.
_MOST_CAPTION_NBYTES = 64 << 10
_MOST_MEDIA_NBYTES = 16 << 20
_MOST_MEDIA_FAR_NBYTES = 1 << 20
_MOST_FIELDS = 200
_MOST_KEY = 300

# Beyond this a field is not read to be described: its beginning is shown, and a player, where the
# browser has one, reads what it needs.
_MOST_VIEW_NBYTES = 64 << 20
_HEAD_NBYTES = 4096
# Suffixes of images, those of photographs first; words in names of images made from others.
_LIKELY = (".jpg", ".jpeg", ".webp", ".avif", ".png")
_DERIVED = re.compile(r"depth|normal|flow|edge|alpha|disparity|thumb")
_VIEW_THREADS = 8
_VIEW_SECONDS = 3.0  # that a page waits for the headers of its fields
_DECODED_KINDS = ("image", "audio", "video", "array")
_BINARY_DOCUMENTS = (".cbor", ".mp", ".msgpack")


def tiles(
    source: Source, positions: Iterable[tuple[int, int]], class_names: Mapping[int, str]
) -> list[dict[str, Any]]:
    """Describe the samples of a page of the grid; what cannot be read says why.

    Args:
        source: The dataset.
        positions: `(position in the order, index)` of each.
        class_names: Names of classes, by number.
    """
    found: list[tuple[int, int, SamplePlace | Exception]] = []
    for position, index in positions:
        try:
            found.append((position, index, source.place(index)))
        except (WidsError, OSError) as error:
            found.append((position, index, error))
    source.fetch_ahead(
        (place for *_, place in found if not isinstance(place, Exception)), fields_ahead
    )
    return [_tile(source, *each, class_names) for each in found]


def fields_ahead(place: SamplePlace) -> list[int]:
    """Choose the fields that a tile shows: its picture, and small ones that say something."""
    picture = _picture(place)
    numbers = [] if picture is None else [picture]
    return numbers + [number for number in (_labels(place), _caption(place)) if number is not None]


def _tile(
    source: Source,
    position: int,
    index: int,
    place: SamplePlace | Exception,
    class_names: Mapping[int, str],
) -> dict[str, Any]:
    tile: dict[str, Any] = {"position": position, "index": index}
    if isinstance(place, Exception):
        return {**tile, "key": None, "error": message_of(place, 500)}
    tile["version"] = place.version
    tile["key"] = safe_text(place.key, _MOST_KEY)
    tile["fields"] = [safe_text(field.extension, 40) for field in place.fields[:12]]
    tile["kind"] = _main_kind(place)
    try:
        tile |= _face(source, place)
        for name, number in (("label", _labels(place)), ("caption", _caption(place))):
            if number is not None and name not in tile:
                tile[name] = _short(source, place, number, class_names)
    except (WidsError, OSError) as error:
        tile["error"] = message_of(error, 500)
    return tile


def _face(source: Source, place: SamplePlace) -> dict[str, Any]:
    """Name the field that makes the picture; an array that makes none says what it is."""
    number = _picture(place)
    if number is None or field_kind(place.fields[number].extension) != "array":
        return {"picture": number}
    field = place.fields[number]
    # Sixty of them would take too long to fetch, or to unpack.
    if field.nbytes > _MOST_CAPTION_NBYTES and (place.by_range or is_packed(field.extension)):
        return {"picture": number}
    arrays, drawn = outline_arrays(field.extension, source.read(place, number))
    if drawn:
        return {"picture": number}
    what = "cannot be decoded" if arrays is None else ", ".join(arrays[:3])
    return {"picture": None, "caption": safe_text(f"{field.extension}: {what}", 100)}


def _first(place: SamplePlace, kinds: tuple[str, ...], most_nbytes: int) -> int | None:
    """Find the first field of the first kind that the sample has."""
    for kind in kinds:
        for number, field in enumerate(place.fields):
            # What is packed is no text before it is unpacked, which a tile is not worth.
            plain = kind not in ("text", "json") or not wrapper_of(field.extension)
            if plain and field.nbytes <= most_nbytes and field_kind(field.extension) == kind:
                return number
    return None


def _picture(place: SamplePlace) -> int | None:
    images = [n for n, field in enumerate(place.fields) if field_kind(field.extension) == "image"]
    if images:
        return min(images, key=lambda number: _likelihood(place.fields[number].extension))
    number = _first(place, ("array",), 1 << 62)
    if number is not None:
        return number
    # Of a film or a sound all bytes are read to draw it, which is much where they must come first.
    most = _MOST_MEDIA_FAR_NBYTES if place.by_range else _MOST_MEDIA_NBYTES
    number = _first(place, ("video", "audio"), most)
    drawn = number is not None and makes_picture(place.fields[number].extension)
    return number if drawn else None


def _likelihood(extension: str) -> tuple[bool, int]:
    """Return a rank that is less for images that look like the sample: photographs before masks."""
    derived = names_labels(extension) or _DERIVED.search(extension.lower()) is not None
    suffix = format_suffix(extension)
    return derived, _LIKELY.index(suffix) if suffix in _LIKELY else len(_LIKELY)


def _labels(place: SamplePlace) -> int | None:
    return _first(place, ("class",), 200)


def _caption(place: SamplePlace) -> int | None:
    return _first(place, ("text", "json"), _MOST_CAPTION_NBYTES)


def _main_kind(place: SamplePlace) -> str:
    """Name the kind that stands for a sample without a picture."""
    kinds = [field_kind(field.extension) for field in place.fields]
    order = ("image", "video", "audio", "array", "text", "json", "class", "bytes")
    return min(kinds, key=order.index, default="bytes")


def _short(
    source: Source, place: SamplePlace, number: int, class_names: Mapping[int, str]
) -> dict[str, Any] | str:
    """Return a class with its name, or the beginning of a text."""
    extension = place.fields[number].extension
    data = source.read(place, number)
    if field_kind(extension) == "class":
        view = view_field(extension, data, class_names=class_names)
        if view.error is None:
            return dict(view.summary)
        return {"value": "?", "name": None}
    text = bytes(data[: 4 * _CAPTION_CHARACTERS]).decode("utf-8", "replace")
    return safe_text(" ".join(text.split()), _CAPTION_CHARACTERS)


def sample_page(
    source: Source, place: SamplePlace, describe: FieldViews, start: int = 0
) -> dict[str, Any]:
    """Describe one sample and its fields from number `start` on, as many as a page holds.

    Args:
        source: The dataset.
        place: The sample.
        describe: Describes its fields.
        start: Number of the first field.
    """
    # A sample of a hostile tar may have a million fields; they come in pieces.
    start = max(0, start)
    shown = range(start, min(start + _MOST_FIELDS, len(place.fields)))
    source.fetch_ahead([place], lambda _: shown)
    return {
        "index": place.index,
        "key": safe_text(place.key, 10 * _MOST_KEY),
        "shard": place.shard_index,
        "local_index": place.local_index,
        "version": place.version,
        "url": safe_text(place.url, 2000),
        "nbytes": sum(field.nbytes for field in place.fields),
        "fields": [
            _field_row(place, number, view)
            for number, view in zip(shown, describe.views(place, shown), strict=True)
        ],
        "fields_left_out": max(0, len(place.fields) - shown.stop),
    }


def _field_row(place: SamplePlace, number: int, view: FieldView) -> dict[str, Any]:
    field = place.fields[number]
    plain = media_type(field.extension)
    return {
        "number": number,
        "extension": safe_text(field.extension, 200),
        "offset": field.offset,
        "nbytes": field.nbytes,
        "kind": view.kind,
        "summary": view.summary,
        "error": view.error,
        "media_type": None if plain == OCTET_STREAM else plain,
        "wave": view.kind == "audio" and _has_wave(field),
    }


def _has_wave(field: FieldPlace) -> bool:
    """Return whether the waveform of a sound is drawn."""
    return field.nbytes <= _MOST_MEDIA_NBYTES and makes_picture(field.extension)


class FieldViews:
    """Describes the fields of samples, strangers' formats in decoder processes.

    Args:
        source: The dataset.
        decoders: Decoder processes.
        class_names: Names of classes, by number.
    """

    def __init__(self, source: Source, decoders: Decoders, class_names: Mapping[int, str]) -> None:
        self._source = source
        self._decoders = decoders
        self._class_names = class_names
        self._pool = DaemonThreadPool(_VIEW_THREADS, "wids-view")

    def close(self) -> None:
        """Begin no more."""
        self._pool.close()

    def views(self, place: SamplePlace, numbers: Iterable[int]) -> list[FieldView]:
        """Describe fields, at the same time; one that takes long holds up the others a moment."""
        futures = [
            (number, self._pool.submit(self._view, place, number))
            if _needs_decoder(place.fields[number].extension)
            else (number, None)
            for number in numbers
        ]
        plain = {n: self._view(place, n) for n, future in futures if future is None}
        end = time.monotonic() + _VIEW_SECONDS
        found = []
        for number, future in futures:
            try:
                left = max(end - time.monotonic(), 0)
                found.append(plain[number] if future is None else future.result(left))
            except TimeoutError:
                message = f"not described within {_VIEW_SECONDS:g} s; reload to try again"
                found.append(_failed(place.fields[number], message))
        return found

    def _view(self, place: SamplePlace, number: int) -> FieldView:
        field = place.fields[number]
        try:
            if field.nbytes > _MOST_VIEW_NBYTES:
                return _view_of_huge(self._source, place, number)
            if _needs_decoder(field.extension):
                return self._decoders.view(
                    field.extension, field.nbytes, lambda: self._source.pieces(place, number)
                )
            data = self._source.read(place, number)
            return view_field(field.extension, data, class_names=self._class_names)
        except (WidsError, OSError) as error:
            return _failed(field, message_of(error))


def _needs_decoder(extension: str) -> bool:
    """Return whether a field is of a format that is not simple enough to be read right here."""
    packed = is_packed(extension) or format_suffix(extension) in _BINARY_DOCUMENTS
    return packed or field_kind(extension) in _DECODED_KINDS


def _failed(field: FieldPlace, message: str) -> FieldView:
    return FieldView(field_kind(field.extension), field.nbytes, {}, safe_text(message, 1000))


def _view_of_huge(source: Source, place: SamplePlace, number: int) -> FieldView:
    field = place.fields[number]
    kind = field_kind(field.extension)
    summary = {"hex": hex_rows(source.read(place, number, 0, _HEAD_NBYTES)), "truncated": True}
    note = f"not read whole to be shown: more than {_MOST_VIEW_NBYTES >> 20} MiB"
    # A player asks for ranges, so it plays what is too large to be read at once.
    kept = kind if kind in ("audio", "video") else "bytes"
    return FieldView(kept, field.nbytes, {**summary, "note": note})
