"""Columns: one field of all samples, without reading the others, and kept for the next time."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.base.progress import progress
from wids.base.urls import display_url
from wids.codecs.framing import CenterCrop, Resize
from wids.codecs.images import ImageDecoder
from wids.errors import DecodeError, ShardFormatError
from wids.log import logger
from wids.reading.columnfile import ColumnPart, ColumnSource, load_column, save_column
from wids.reading.columnvalues import Values, fill_in, join, pack
from wids.reading.fieldstream import read_field
from wids.reading.pipeline import images_as_arrays, pixels_as_array

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from wids.base.shardref import ShardRef
    from wids.caching.cache import ShardCache
    from wids.codecs.decode import Decoder, SampleDecoder
    from wids.reading.openshards import OpenShard
    from wids.specs.shardtable import ShardTable
    from wids.tar.sidecar import IndexRules

__all__ = ["ColumnReader"]

# Framings that give the same part of a picture each time.
# By name, not by what they are not: a new framing is random until somebody says otherwise.
STEADY_FRAMINGS = (type(None), Resize, CenterCrop)


@dataclass(frozen=True)
class ColumnReader:
    """Reads the column of one field from every shard of a dataset.

    Attributes:
        extension: The field.
        path: Which value in the field: keys and places, from the outermost one on.
        decoder: What decodes the field.
        rules: How members are gathered into samples.
        cache: Where columns are kept.
        open_shard: From the number of a shard to the open shard.
    """

    extension: str
    path: tuple[str | int, ...]
    decoder: SampleDecoder
    rules: IndexRules
    cache: ShardCache
    open_shard: Callable[[int], OpenShard]

    def __post_init__(self) -> None:
        if not self.extension.startswith("."):
            raise ValueError(f"column: an extension begins with a dot, got {self.extension!r}")
        for step in self.path:
            if not isinstance(step, (str, int)):
                raise TypeError(
                    f"column: expected keys and places, one argument each, got {step!r}; "
                    'column(".json", "box", 0) is the first number of each box'
                )

    def read(self, shards: ShardTable, fill: Any = None) -> Values:
        """Read the column of all shards, in order.

        Args:
            shards: The dataset's shards.
            fill: What stands for a value that a sample lacks; None makes it an error.

        Raises:
            DecodeError: A field is missing or damaged.
        """
        parts, start = [], 0
        name = "".join([self.extension, *(f"[{step!r}]" for step in self.path)])
        numbers = range(len(shards))
        for number in progress(numbers, desc=f"reading {name}", unit="shard"):
            part = self.read_shard(number, shards[number])
            if len(part.missing) and fill is None:
                raise self._missing(number, shards[number], start, int(part.missing[0]))
            parts.append(fill_in(part.values, part.missing, fill))
            start += shards[number]["nsamples"]
        return join(parts)

    def read_shard(self, number: int, description: ShardRef) -> ColumnPart:
        """Return the column of one shard: the one kept, or a new one, which is then kept.

        Args:
            number: The shard.
            description: Its entry in the spec.

        Returns:
            The values of those samples that have one, and the places of the others.

        Raises:
            DecodeError: A field is damaged.
        """
        # Nothing to keep, and nothing that would say what type its values have.
        if not description["nsamples"]:
            return ColumnPart([], np.empty(0, np.int64))
        source = ColumnSource(
            self.extension,
            self.path,
            self._name or "",
            self.rules,
            description["nsamples"],
        )
        path = self._path_of(description, source)
        if path is not None:
            try:
                return load_column(path, source)
            except FileNotFoundError:
                logger.debug("%s: not there yet", path)
            except (OSError, ShardFormatError) as error:
                logger.warning("%s; it is read from its shard again", error)
        opened = self.open_shard(number)
        part = self._made(opened)
        # Of what came by range nobody could tell later which version of the shard it was of.
        if path is not None and (opened.shard.memory is not None or description.digests):
            self._keep(path, source, part)
        return part

    def _path_of(self, description: ShardRef, source: ColumnSource) -> Path | None:
        """Return where the column of a shard is kept; None where it is not to be."""
        if self._name is None:
            return None
        return self.cache.derived_path(description, source.suffix())

    def _keep(self, path: Path, source: ColumnSource, part: ColumnPart) -> None:
        try:
            # Columns count against the bound like shards, so what was kept may push something out.
            if save_column(path, source, part) and self.cache.cache_size is not None:
                self.cache.trim(self.cache.cache_size)
        except OSError as error:  # a folder that may only be read; the next time reads it again
            logger.info("%s: the column is not kept: %s", path, error)

    def _made(self, opened: OpenShard) -> ColumnPart:
        values: list[Any] = []
        missing: list[int] = []
        decode = self._decode
        for place, data in enumerate(read_field(opened.shard, self.extension)):
            if data is None:
                missing.append(place)
                continue
            try:
                value = decode(data)
            except Exception as error:  # noqa: BLE001 (the sample decoder says what it means)
                value = opened.answer_error(self.decoder, error, self.extension, place)
            value = _followed(value, self.path)
            if value is None:
                missing.append(place)
            else:
                values.append(value)
        return ColumnPart(pack(values), np.array(missing, np.int64))

    @cached_property
    def _settled(self) -> SampleDecoder:
        """The decoder with images as arrays, and no copy before the arrays become one."""
        # Packing copies the values into one array; a copy of each before that would be wasted.
        return images_as_arrays(self.decoder).replace(copy=False)

    @cached_property
    def _name(self) -> str | None:
        """What stands for the decoder in the name of a kept column; None for one not to keep."""
        on_error = self.decoder.on_error
        name = name_decoder(self._decode)
        return f"{name}, {on_error}" if name and isinstance(on_error, str) else None

    @cached_property
    def _decode(self) -> Decoder:
        """The function that decodes the field; bytes that nothing decodes are an array of them."""
        decode = self._settled.decoder_of(self.extension)
        if isinstance(decode, ImageDecoder):  # one of the user's, among the decoders
            return pixels_as_array(decode)
        return _as_bytes if decode is None or decode is io.BytesIO else decode

    def _missing(self, number: int, description: ShardRef, start: int, place: int) -> DecodeError:
        sample = self.open_shard(number).shard.read(place)
        found = ", ".join(name for name in sample if name[0] == ".")
        what = f"no value at {list(self.path)} in field" if self.path else "no field"
        reason = f"{what} {self.extension!r} (its fields: {found})"
        if self.extension in sample:
            try:
                self.decoder.replace(on_error="raise")({self.extension: sample[self.extension]})
            except DecodeError as error:  # an error that was answered by None
                reason = str(error)
        return DecodeError(
            f"column {self.extension!r}: sample {start + place}, key {sample['__key__']!r}, shard "
            f"{display_url(description['url'])!r}: {reason}; fill= says what stands for what is "
            "missing"
        )


def _as_bytes(data: bytes | memoryview) -> np.ndarray:
    return np.frombuffer(data, np.uint8)


def _followed(value: Any, path: tuple[str | int, ...]) -> Any:
    """Go into a value, step by step; None where a step leads nowhere."""
    for step in path:
        listed = isinstance(value, (list, tuple, np.ndarray)) and isinstance(step, int)
        inside = listed or isinstance(value, Mapping)
        try:
            value = value[step] if inside else None
        except LookupError:
            return None
    return value


def name_decoder(decode: Decoder) -> str | None:
    """Name a decoder with its settings, so that equal names mean equal values.

    Returns:
        None where it cannot be known: functions of the user, and pictures cut at random.
    """
    if isinstance(decode, ImageDecoder):
        return repr(decode) if type(decode.size) in STEADY_FRAMINGS else None
    if isinstance(decode, partial):
        parts = [decode.func, *decode.args]
        names = [name_decoder(part) if callable(part) else repr(part) for part in parts]
        known = [name for name in names if name is not None]
        settings = [f"{name}={value!r}" for name, value in sorted(decode.keywords.items())]
        return f"({', '.join(known + settings)})" if len(known) == len(names) else None
    home, name = getattr(decode, "__module__", ""), getattr(decode, "__qualname__", "<")
    # A lambda or a user's function may change under its name, and so would what was kept.
    return None if "<" in name or not home.startswith("wids.") else f"{home}.{name}"
