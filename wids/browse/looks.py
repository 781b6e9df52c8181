"""Ways to look at a page of samples: which ones fit a dataset, and what each shows of a sample."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from wids.browse.columns import column_name
from wids.browse.failures import message_of
from wids.browse.fieldreader import MOST_LOOKED_AT
from wids.browse.vectors import (
    MOST_VECTOR_NBYTES,
    as_vector,
    document_in,
    is_array,
    is_document,
    vector_in,
)
from wids.codecs.formats import (
    OCTET_STREAM,
    Kind,
    field_kind,
    media_type,
    wrapper_of,
)
from wids.codecs.headers import HEADER_FACTS, read_header
from wids.display.conversation import read_turns
from wids.display.safejson import safe_number, safe_text
from wids.display.thumbnails import makes_picture
from wids.errors import WidsError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from wids.browse.fieldreader import FieldReader, LocatedSample

__all__ = [
    "LOOKS",
    "Looks",
    "add_contents",
    "find_looks",
    "look_named",
]

LOOKS = ("grid", "list", "table")

_LOOK_SAMPLES = 6
_LOOK_SHARDS = 8
_LOOK_VECTORS = 2
# A list in JSON is a vector by its name, or if it is long and not of tokens, which are integers.
_VECTOR_NAME = re.compile(r"emb|vec|feat|latent|umap|tsne|t-sne|pca", re.IGNORECASE)
_LONG = 64
_PLAIN_STEP = re.compile(r"[\w-]+")
_MOST_NAME = 80
# Kinds whose beginning is a value; of JSON, where it is broken or long.
_WORDS = {"list": ("class", "json"), "table": ("class", "json", "text")}
_READ: tuple[Kind, ...] = ("json", "text")  # kinds that a list shows as one reads them
_MOST_TEXT = 4_000  # characters of a text in a list
_MOST_TURNS = 6  # of a conversation in a list
_MOST_DRAWN_NBYTES = 16 << 20  # a longer sound has no waveform
_HEAD_NBYTES = 64 << 10
_HEADER_NBYTES = (2048, 64 << 10, 1 << 20)
_MOST_COLUMNS = 24
_MOST_VALUES = 200  # of a sample


class Looks(NamedTuple):
    """Ways to look at a dataset.

    Attributes:
        usual: The one that fits it, of `LOOKS`.
        vectors: Extensions of fields that are vectors, of which a map can be drawn, or names of
            columns of lists in JSON and in joined tables.
    """

    usual: str = "grid"
    vectors: tuple[str, ...] = ()


def look_named(name: str, looks: Looks) -> str:
    """Return the look of a request: the named one, or the usual one.

    Raises:
        ValueError: There is none of that name.

    >>> look_named("", Looks(usual="list")), look_named("table", Looks())
    ('list', 'table')
    """
    if name and name not in LOOKS:
        raise ValueError(f"look: expected one of {', '.join(LOOKS)}, got {name[:40]!r}")
    return name or looks.usual


def find_looks(reader: FieldReader) -> Looks | None:
    """Find what fits a dataset by its first samples; None if a shard would have to be fetched."""
    samples = list(islice(_first_samples(reader), _LOOK_SAMPLES))
    if not samples:
        return None
    vectors = {name for each in samples[:_LOOK_VECTORS] for name in _vectors_of(reader, each)}
    kinds = [{field_kind(field.extension) for field in each.fields} for each in samples]
    half = len(samples) / 2
    talks = sum(_turns_of(reader, each) is not None for each in samples) > half
    pictures = sum(bool(each & {"image", "video"}) for each in kinds) > half
    words = sum(bool(each & {"audio", "text"}) for each in kinds) > half
    usual = "list" if talks or (words and not pictures) else "grid"
    return Looks(usual, tuple(sorted(vectors)))


def _first_samples(reader: FieldReader) -> Iterator[LocatedSample]:
    """Yield samples from the beginning of the first shard that can be read without a download."""
    for shard_index in range(min(reader.num_shards, _LOOK_SHARDS)):
        try:
            if reader.tar_index(shard_index) is None:
                continue
            first = reader.first_index(shard_index)
            found = range(first, first + min(reader.num_samples(shard_index), _LOOK_SAMPLES))
            located = map(reader.locate, found)
            samples = [replace(each, fields=each.fields[:MOST_LOOKED_AT]) for each in located]
        except (WidsError, OSError):
            continue
        reader.fetch_ahead(samples, _fields_ahead)
        yield from samples
        return


def _vectors_of(reader: FieldReader, located: LocatedSample) -> Iterator[str]:
    for number, field in enumerate(located.fields):
        try:
            if is_document(field):
                yield from _lists_in(document_in(reader, located, number), field.extension)
            elif (
                is_array(field.extension)
                and field.nbytes <= MOST_VECTOR_NBYTES
                and vector_in(field.extension, reader.read(located, number)) is not None
            ):
                yield field.extension
        except (WidsError, OSError):
            continue


def _lists_in(document: Any, extension: str) -> Iterator[str]:
    """Yield the names of the columns that are vectors, up to two steps into a document."""
    paths: list[tuple[tuple[str, ...], Any]] = [((), document)]
    for path, value in paths:
        if isinstance(value, dict) and len(path) < 2:
            paths += [((*path, name), each) for name, each in value.items()]
        name = f"{extension}:{'.'.join(path)}" if path else extension
        # An outline names a column between commas.
        plain = all(map(_PLAIN_STEP.fullmatch, path)) and name.isprintable() and "," not in name
        if len(name) > _MOST_NAME or not plain:
            continue
        vector = as_vector(value)
        if vector is None:
            continue
        is_long = vector.size >= _LONG and any(isinstance(each, float) for each in value)
        if is_long or _VECTOR_NAME.search(name):
            yield name


def add_contents(
    reader: FieldReader, tiles: Iterable[tuple[dict[str, Any], LocatedSample | None]], look: str
) -> list[str]:
    """Add to the tiles of a page what a list or a table shows beside them.

    These are `values` of columns; in a list also `conversation` or `text`, and `audio`, where the
    sample has them.

    Args:
        reader: The dataset.
        tiles: As `wids.browse.samplepages.tiles` made them.
        look: One of `LOOKS`.

    Returns:
        The names in SQL of the columns whose values were added.
    """
    if look == "grid":
        return []
    found = [(tile, located) for tile, located in tiles if located is not None]
    reader.fetch_ahead((located for _, located in found), _fields_ahead)
    values: dict[int, dict[str, Any]] = {}
    for tile, located in found:
        try:
            if look == "list":
                tile.update(_content_of(reader, located))
            row = _values_of(reader, located, _WORDS[look])
            values[tile["position"]] = dict(islice(row, _MOST_VALUES))
        except (WidsError, OSError) as error:
            tile.setdefault("error", message_of(error, 500))
    counts = Counter(name for each in values.values() for name in each)
    columns = [name for name, _ in counts.most_common(_MOST_COLUMNS)]
    columns.sort(key=list(counts).index)  # in the order of the fields
    for tile, _ in found:
        if tile["position"] in values:
            tile["values"] = [values[tile["position"]].get(name) for name in columns]
    return columns


def _values_of(
    reader: FieldReader, located: LocatedSample, words: Collection[str]
) -> Iterator[tuple[str, Any]]:
    """Yield the single values of a sample, named as in SQL: words, JSON, facts of headers."""
    for number, field in enumerate(located.fields[:MOST_LOOKED_AT]):
        name = safe_text(field.extension.removeprefix(".").lower(), 100)
        kind = field_kind(field.extension)
        document = document_in(reader, located, number) if is_document(field) else None
        if document is not None:
            yield from _scalars((name,), document)
        elif kind in words and not wrapper_of(field.extension):
            text = bytes(reader.read(located, number, 0, 200)).decode("utf-8", "replace")
            yield column_name(name), safe_text(text.strip(), 200)
        elif kind in ("image", "audio", "video") and not wrapper_of(field.extension):
            facts = header_facts(reader, located, number)
            for fact in HEADER_FACTS[kind][:2]:
                if fact in facts:
                    yield column_name(name, fact), safe_number(facts[fact])


def _scalars(path: tuple[str, ...], value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the single values in an object and in the objects in it."""
    if isinstance(value, dict) and len(path) <= 3:
        for step, each in value.items():
            yield from _scalars((*path, safe_text(step, 100)), each)
    elif isinstance(value, str):
        yield column_name(*path), safe_text(value, 200)
    elif isinstance(value, bool | int | float):
        yield column_name(*path), value if isinstance(value, bool) else safe_number(value)


def header_facts(reader: FieldReader, located: LocatedSample, number: int) -> dict[str, float]:
    """Return what the header of a field states; nothing if it cannot be read."""
    field = located.fields[number]
    with suppress(WidsError, OSError, ValueError, ImportError):
        for nbytes in _HEADER_NBYTES:
            data = reader.read(located, number, 0, nbytes)
            facts = read_header(field.extension, data, whole=len(data) == field.nbytes)
            if facts is not None:
                return facts
    return {}


def _fields_ahead(located: LocatedSample) -> list[int]:
    """Return the numbers of the small fields whose content a list shows."""
    found = (located.first(kind, most_nbytes=_HEAD_NBYTES) for kind in _READ)
    return [number for number in found if number is not None]


def _content_of(reader: FieldReader, located: LocatedSample) -> dict[str, Any]:
    found = {"conversation": _turns_of(reader, located), "audio": _audio_of(reader, located)}
    if found["conversation"] is None:
        found["text"] = _text_of(reader, located)
    return {name: value for name, value in found.items() if value is not None}


def _turns_of(reader: FieldReader, located: LocatedSample) -> dict[str, Any] | None:
    """Return the first turns of the conversation of a sample."""
    for number, field in enumerate(located.fields):
        if field_kind(field.extension) != "json" or wrapper_of(field.extension):
            continue
        try:
            data = reader.read(located, number, 0, _HEAD_NBYTES)
        except (WidsError, OSError):
            continue
        turns = read_turns(data, count=_MOST_TURNS, whole=len(data) == field.nbytes)
        if turns is not None:
            return {"field": number, "extension": safe_text(field.extension, 40), **turns.as_dict()}
    return None


def _text_of(reader: FieldReader, located: LocatedSample) -> dict[str, Any] | None:
    number = located.first("text")
    if number is None:
        return None
    field = located.fields[number]
    data = reader.read(located, number, 0, 4 * _MOST_TEXT)
    text = bytes(data).decode("utf-8", "replace")
    more = len(data) < field.nbytes or len(text) > _MOST_TEXT
    return {
        "field": number,
        "extension": safe_text(field.extension, 40),
        "text": safe_text(text[:_MOST_TEXT], 10 * _MOST_TEXT),
        "more": more,
    }


def _audio_of(reader: FieldReader, located: LocatedSample) -> dict[str, Any] | None:
    number = located.first("audio")
    if number is None:
        return None
    field = located.fields[number]
    plain = media_type(field.extension)
    duration = header_facts(reader, located, number).get("duration")
    return {
        "number": number,
        "extension": safe_text(field.extension, 40),
        "media_type": None if plain == OCTET_STREAM else plain,
        "duration": None if duration is None else safe_number(duration),
        "wave": field.nbytes <= _MOST_DRAWN_NBYTES and makes_picture(field.extension),
    }
