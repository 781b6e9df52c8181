"""`TableRows`: the rows of a table, read as fields of the samples of a join.

Text and bytes in a table are decoded like a field in a shard, by the name of the field, and a
dataset that reads raw bytes gets bytes. Other values (numbers, truth values, lists, structs) are
returned as they are. A null, and a sample without a row, give None.
"""

from __future__ import annotations

import io
import json
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from wids.base.draws import within_sample
from wids.base.numbertext import equal_text
from wids.base.optional import load
from wids.codecs.formats import field_kind
from wids.errors import DecodeError
from wids.reading.pipeline import Pipeline
from wids.reading.ragged import Ragged, RaggedText, Values, fill_in, pack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from wids.reading.fieldfile import FieldFile
    from wids.reading.gather import Allocate
    from wids.reading.pipeline import BatchKind
    from wids.views.table import Table
    from wids.views.tablecolumns import Column

__all__ = ["Match", "TableRows"]

Integers = npt.NDArray[np.int64]


def _as_text(value: Any) -> str:
    """Return a value that JSON cannot represent, such as a date, as text."""
    if isinstance(value, bytes):
        raise TypeError(
            "bytes in a list or a struct cannot be written as JSON; leave out that column"
        )
    return str(value)


_as_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, default=_as_text).encode


class Match(NamedTuple):
    """The comparison that gives a sample its row.

    Attributes:
        field: A field of the samples such as ".json:uid"; None for their keys.
        column: The column of the table that must be equal; None for rows in the order of samples.
    """

    field: str | None
    column: str | None


class TableRows:
    """What a join with a table reads: a row is read like a sample of a dataset.

    Args:
        table: The table.
        fields: The column of each field.
        match: How the rows were found.
        pipeline: That of the samples.
        beside: Datasets beside whose shards the tables lie; none for a table named by itself.

    Attributes:
        table, fields, match, beside: As given.
        key: The column that must equal the key of a sample; None if rows were found otherwise.
        class_names: None; a table has no names of classes.
    """

    class_names: ClassVar[Mapping[int, str]] = {}

    def __init__(
        self,
        table: Table,
        fields: Mapping[str, str],
        match: Match,
        pipeline: Pipeline | None = None,
        beside: Sequence[Any] = (),
    ) -> None:
        from wids.codecs.decode import SampleDecoder

        self.table, self.fields, self.match = table, dict(fields), match
        self.beside = tuple(beside)
        # What a field found was compared there; reading would need the field again.
        self.key = match.column if match.field is None else None
        self._pipeline = pipeline or Pipeline("PIL", SampleDecoder())
        self._finish = {name: self._finisher(name) for name in self.fields}
        columns = table.columns
        self._readers = [
            (name, columns[column].at, self._finish[name]) for name, column in self.fields.items()
        ]
        self._key_at = None if self.key is None else _text_reader(columns[self.key])

    def __len__(self) -> int:
        return self.table.num_rows

    def read_as(self, row: int, number: int, _dataset: str | None = None) -> dict[str, Any]:
        """Return the fields of a row, and its key if it must be compared.

        Raises:
            DecodeError: A value cannot be decoded; `number` says for which sample.
        """
        label = {} if self._key_at is None else {"__key__": self._key_at(row)}
        return self.extended(label, row, number) or {}

    def extended(self, sample: dict[str, Any], row: int, number: int) -> dict[str, Any] | None:
        """Return a copy of a sample with the fields of a row.

        Returns:
            The copy; None if the sample has another key, or one of the fields already.
        """
        key_at = self._key_at
        try:
            if key_at is not None and key_at(row) != sample["__key__"]:
                return None
        except KeyError:  # a transformation made something else of the sample
            return None
        merged = sample.copy()
        for name, at, finish in self._readers:
            value = at(row)
            if value is None or finish is None:
                merged[name] = value
                continue
            try:
                merged[name] = within_sample(number, finish, value)
            except Exception as error:  # noqa: BLE001 (handled by `on_error` of the decoder)
                merged[name] = self._answer(error, name, row, number)
        # A field that was there before would have been replaced.
        return merged if len(merged) == len(sample) + len(self._readers) else None

    def read_batch_as(
        self, rows: Sequence[int], numbers: Sequence[int], _labels: Any = None
    ) -> list[dict[str, Any]]:
        """Return the fields of each row of a batch."""
        return [self.read_as(*each) for each in zip(rows, numbers, strict=True)]

    def read_raw(self, row: int, fields: Sequence[str] | None = None) -> dict[str, Any]:
        """Return the fields of a row as a shard would store them, without nulls."""
        sample: dict[str, Any] = {} if self._key_at is None else {"__key__": self._key_at(row)}
        for name, at, _ in self._readers:
            value = at(row) if fields is None or name in fields else None
            if value is not None:
                sample[name] = _encoder(name)(value)
        return sample

    def values_at(self, row: int) -> dict[str, Any]:
        """Return the values of a row as in the table, without nulls."""
        found = {name: at(row) for name, at, _ in self._readers}
        return {name: value for name, value in found.items() if value is not None}

    def arrow(self) -> Any:
        """Return the fields as a table of pyarrow, but those of arrays."""
        pa = load("pyarrow", "sql")
        columns = {
            name: self.table.columns[column].arrow()
            for name, column in self.fields.items()
            if field_kind(name) != "array"
        }
        return pa.table(columns)

    def plain_kind(self, field: str) -> type:
        """Return the type of the values of a field; str for values that are written as JSON."""
        column = self.table.columns[self.fields[field]]
        if column.kind == "bytes" or _holds_bytes(column):
            return bytes
        if column.kind != "numbers":
            return str
        kinds = {type(value) for value in map(column.at, column.first_rows()) if value is not None}
        if kinds <= {int, float} and kinds:
            return float if float in kinds else int
        return bool if kinds == {bool} else str

    def field_sizes(self, row: int) -> dict[str, int]:
        """Return the size in bytes of each field as it would be stored in a shard."""
        raw = self.read_raw(row)
        return {name: len(value) for name, value in raw.items() if name != "__key__"}

    def open_field(self, row: int, extension: str) -> FieldFile:
        """Open a value, as it would be stored in a shard, as a file that can be sought in.

        Raises:
            KeyError: The row has no such value.
        """
        from wids.reading.fieldfile import FieldFile

        data = self.read_raw(row, (extension,)).get(extension)
        if data is None:
            raise KeyError(f"row {row} of {self.table.name}: no field {extension!r}")
        return FieldFile(lambda start, stop: data[start:stop], len(data), extension)

    def is_near(self, _row: int) -> bool:
        """Return True: reading a row fetches no shard."""
        return True

    def gather(self, rows: Integers, extension: str) -> Values:
        """Return one field of a batch, decoded."""
        return self.column_at(rows, extension)

    def gather_bytes(self, rows: Integers, extension: str) -> Ragged:
        """Return one raw field of a batch, with all bytes in one buffer."""
        values, missing = self._taken(rows, extension)
        if len(missing):
            raise self._missing(extension, int(rows[missing[0]]))
        return _as_bytes(extension, values)

    @property
    def batch_kind(self) -> BatchKind:
        """Whether batches are made from "raw" or "decoded" fields, or from "samples"."""
        return self._pipeline.batch_kind

    def gather_fields(
        self,
        rows: Integers,
        _allocate: Callable[[str], Allocate] | None = None,
        _turn: AbstractContextManager[Any] | None = None,
    ) -> dict[str, Any] | None:
        """Return the fields of a batch as columns; None if raw ones are missing."""
        from wids.reading.collate import column_of

        batch: dict[str, Any] = {}
        if self.key is not None:
            keys = self.table.columns[self.key].take(rows)
            batch["__key__"] = list(map(equal_text, _plain_list(keys)))
        for name in self.fields:
            values, missing = self._taken(rows, name)
            if self.batch_kind == "raw":
                if len(missing):
                    return None
                batch[name] = _as_bytes(name, values)
            elif len(missing) or self._finish[name] is not None:
                samples = [self.read_as(row, row) for row in rows.tolist()]
                batch[name] = column_of([sample[name] for sample in samples])
            else:
                is_array = isinstance(values, np.ndarray)
                batch[name] = values if is_array else column_of(list(values))
        return batch

    def column_at(
        self, rows: Integers, extension: str, *path: str | int, fill: Any = None
    ) -> Values:
        """Return the column of some rows.

        Raises:
            DecodeError: A row has no value and there is no `fill`, or one cannot be decoded.
        """
        from wids.codecs.headers import is_stated, read_header
        from wids.reading.collate import follow_path

        values, missing = self._taken(rows, extension)
        finish = self._finisher(extension, arrays=True)
        if is_stated(extension, path):
            finish = partial(read_header, extension)
        if finish is not None or path:
            present = np.delete(rows, missing)
            items = [
                follow_path(self._decoded(finish, value, extension, row), path)
                for value, row in zip(self._items(extension, values), present.tolist(), strict=True)
            ]
            gaps = np.array([item is None for item in items], np.bool_)
            slots = np.delete(np.arange(len(rows)), missing)[gaps]
            missing = np.sort(np.concatenate([missing, slots]))
            values = pack([item for item in items if item is not None])
        if len(missing) and fill is None:
            raise self._missing(extension, int(rows[missing[0]]))
        return fill_in(values, missing, fill)

    def _taken(self, rows: Integers, extension: str) -> tuple[Values, Integers]:
        """Return the existing values of rows, and the slots of rows without one."""
        column = self.table.columns[self.fields[extension]]
        found = ~column.nulls_at(rows)
        return column.take(rows[found]), np.flatnonzero(~found)

    def __repr__(self) -> str:
        return f"{len(self.fields)} columns of {self.table.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return TableRows, (self.table, self.fields, self.match, self._pipeline, self.beside)

    def with_pipeline(self, pipeline: Pipeline | None, fields: Iterable[str] | None) -> TableRows:
        """Return the same rows with some of the fields, read through another pipeline."""
        wanted = self.fields if fields is None else {*fields}
        kept = {name: column for name, column in self.fields.items() if name in wanted}
        return TableRows(self.table, kept, self.match, pipeline, self.beside)

    def close(self) -> None:
        """Do nothing: a table holds no shard open."""

    def together(self, field: str) -> TableRows:
        """Return the same rows with all columns except bytes in one field.

        Args:
            field: Its name; a value is a dict of the values of a row, by the names of the columns.
        """
        table = self.table
        own = {
            name: column
            for name, column in self.fields.items()
            if table.columns[column].kind == "bytes" or _holds_bytes(table.columns[column])
        }
        names = [column for name, column in self.fields.items() if name not in own]
        if field in own:
            raise ValueError(f"columns_as: {field!r} is a column of bytes of {table.name}")
        joined = table.with_record(field, names) if names else table
        fields = own | ({field: field} if names else {})
        return TableRows(joined, fields, self.match, self._pipeline, self.beside)

    def _finisher(self, name: str, *, arrays: bool = False) -> Callable[[Any], Any] | None:
        """Return the function from a value in the table to that in a sample; None for unchanged."""
        from wids.codecs.decode import SampleDecoder
        from wids.codecs.documents import decode_text

        pipeline = self._pipeline
        # Raw samples, and samples without a decoder, get the bytes that a shard would hold.
        encoded = _encoder(name)
        if not arrays and pipeline.raw_kind is not None:
            viewed = pipeline.raw_kind == "memoryview"
            return (lambda value: memoryview(encoded(value))) if viewed else encoded
        first = next(iter(pipeline.transformations), None)
        if not arrays and not isinstance(first, SampleDecoder):
            return lambda value: io.BytesIO(encoded(value))
        decoder = pipeline.array_decoder if arrays else pipeline.decoder
        decode = decoder.decoder_of(name) or io.BytesIO
        # Numbers, and text that would only be decoded to itself, need no function.
        kind = self.table.columns[self.fields[name]].kind
        is_text = decode is io.BytesIO or decode is decode_text
        if kind == "numbers" or (kind == "text" and is_text):
            return None
        of_bytes = _uint8 if arrays and decode is io.BytesIO else decode

        def finish(value: Any) -> Any:
            if isinstance(value, bytes):
                return of_bytes(value)
            return decode(value.encode()) if isinstance(value, str) and not is_text else value

        return finish

    def _items(self, extension: str, values: Values) -> list[Any]:
        is_binary = self.table.columns[self.fields[extension]].kind == "bytes"
        items: list[Any] = _plain_list(values)
        return list(map(bytes, items)) if is_binary else items

    def _decoded(self, finish: Any, value: Any, name: str, row: int) -> Any:
        try:
            return value if finish is None else finish(value)
        except Exception as error:  # noqa: BLE001 (handled by `on_error` of the decoder)
            return self._answer(error, name, row, row)

    def _answer(self, error: Exception, name: str, row: int, number: int) -> Any:
        sample = {"__index__": number, "__shard__": self.table.name}
        if self._key_at is not None:
            sample["__key__"] = self._key_at(row)
        return self._pipeline.decoder.answer(error, name, sample)

    def _missing(self, extension: str, row: int) -> DecodeError:
        return DecodeError(
            f"column {extension!r}: {self.table.name}, column {self.fields[extension]!r}: row "
            f"{row} is null; fill= gives such samples a value"
        )


def _text_reader(column: Column) -> Callable[[int], str]:
    """Return the function from a row to the text of its value."""
    at = column.at
    return at if column.kind == "text" else lambda row: equal_text(at(row))


def _holds_bytes(column: Column) -> bool:
    """Return whether the first value of a column of objects is bytes."""
    if column.kind != "objects":
        return False
    values = map(column.at, range(len(column)))
    return isinstance(next((value for value in values if value is not None), None), bytes)


def _encoder(name: str) -> Callable[[Any], bytes]:
    """Return the function from a value of a table to the bytes of a field of a shard."""
    from wids.codecs.formats import FORMAT_OF, encode_field, format_suffix

    known = FORMAT_OF.get(format_suffix(name))
    encode = None if known is None else known.encode

    def encoded(value: Any) -> bytes:
        if isinstance(value, str):
            return value.encode("utf-8", "surrogatepass")
        if isinstance(value, bytes):
            return value
        if encode is not None:
            try:
                return encode_field(name, value)
            except TypeError:
                pass
        return _as_json(value.tolist() if isinstance(value, np.ndarray) else value).encode()

    return encoded


def _as_bytes(name: str, values: Values) -> Ragged:
    """Return values of a table as raw fields."""
    if isinstance(values, RaggedText):
        return Ragged(values.values, values.offsets)
    if isinstance(values, Ragged) and values.values.dtype == np.uint8:
        return values
    fields = [np.frombuffer(each, np.uint8) for each in map(_encoder(name), _plain_list(values))]
    return Ragged.of(fields) if fields else Ragged(np.empty(0, np.uint8), np.zeros(1, np.int64))


def _plain_list(values: Values) -> list[Any]:
    if isinstance(values, np.ndarray) and values.ndim == 1:
        plain: list[Any] = values.tolist()
        return plain
    return list(values)


def _uint8(data: bytes) -> npt.NDArray[np.uint8]:
    return np.frombuffer(data, np.uint8)
