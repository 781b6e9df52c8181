"""`Table`: columns of Arrow with random access to rows; and `TableRows`, the rows as fields.

Text and bytes in a table are decoded like a field in a shard, by the name of the field, and a
dataset that reads raw bytes gets bytes. Other values (numbers, truth values, lists, structs) are
returned as they are. A null, and a sample without a row, give None.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from bisect import bisect_right
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from wids.base.draws import within_sample
from wids.base.keyhash import hash_keys, hash_packed
from wids.base.numbertext import equal_text
from wids.base.optional import load
from wids.base.urls import display_url
from wids.codecs.formats import field_kind
from wids.errors import DecodeError, SpecError, WidsError
from wids.reading.pipeline import Pipeline
from wids.reading.ragged import Ragged, RaggedText, Values, fill_in, join, pack, take
from wids.views.rows import shared_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from wids.reading.fieldfile import FieldFile
    from wids.reading.gather import Allocate
    from wids.reading.pipeline import BatchKind

__all__ = ["Column", "FileStamp", "Origin", "Table", "TableRows", "stamp_of"]

Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Kind = Literal["numbers", "text", "bytes", "objects"]

_MOST_PICKLED_NBYTES = 32 << 10  # what is larger is shared through a file
_HASHED_AT_ONCE = 1 << 16  # rows
_BLOCK_NBYTES = 64 << 10
_MOST_BLOCKS = 64  # of a file, spread evenly, that its digest covers


class Column:
    """A column of a table.

    Args:
        values: A chunked array of pyarrow, valid, and of no dictionaries or views.

    Attributes:
        values: As given.
        kind: What they are; "objects" for what numpy and texts cannot hold.
        at: Function from a row in `[0, len)`, unchecked, to its value; None for a null.

    >>> import pyarrow
    >>> column = Column(pyarrow.chunked_array([[1, 2], [None]]))
    >>> len(column), [column.at(row) for row in range(3)], column.kind
    (3, [1, 2, None], 'numbers')
    """

    def __init__(self, values: Any) -> None:
        chunks = [chunk for chunk in values.chunks if len(chunk)]
        self.values = values
        self._pieces = list(map(_values_of, chunks))
        self._ends: list[int] = np.cumsum(list(map(len, chunks)), dtype=np.int64).tolist()
        self._starts = [0, *self._ends]
        self._readers = list(map(_reader, chunks, self._pieces))
        kinds = set(map(_kind_of, self._pieces))
        self.kind: Kind = kinds.pop() if len(kinds) == 1 else "objects"
        self.at: Callable[[int], Any] = self._readers[0] if len(chunks) == 1 else self._in_piece

    def _in_piece(self, row: int) -> Any:
        number = bisect_right(self._ends, row)
        return self._readers[number](row - self._starts[number])

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: Integers) -> Values:
        """Return the values of some rows, none of which is null, in their order."""
        if self.kind == "objects":
            return pack([self.at(row) for row in rows.tolist()])
        if len(self._pieces) == 1:
            return take(self._pieces[0], rows)
        numbers = np.searchsorted(self._ends, rows, "right")
        order = np.argsort(numbers, kind="stable")
        present, cuts = np.unique(numbers[order], return_index=True)
        groups = zip(present.tolist(), np.split(order, cuts[1:]), strict=False)
        found = [take(self._pieces[n], rows[group] - self._starts[n]) for n, group in groups]
        return take(join(found), np.argsort(order)) if found else []

    @cached_property
    def nulls(self) -> Flags:
        """Whether each value is null."""
        found: Flags = self.values.is_null().to_numpy()
        return found

    def hashes(self) -> npt.NDArray[np.uint64]:
        """Return the hash of the `equal_text` of each value; that of a null is meaningless."""
        found = [np.zeros(0, np.uint64)]
        for start in range(0, len(self), _HASHED_AT_ONCE):
            stop = min(start + _HASHED_AT_ONCE, len(self))
            if self.kind == "text":
                part = _values_of(self.values.slice(start, stop - start).combine_chunks())
                offsets = part.offsets.astype(np.int64)
                data = part.values[offsets[0] : offsets[-1]].tobytes()
                found.append(hash_packed(data, offsets - offsets[0]))
            else:
                found.append(hash_keys([equal_text(self.at(row)) for row in range(start, stop)]))
        return np.concatenate(found)

    def arrow(self) -> Any:
        """Return the values as SQL takes them.

        A NaN is null, and a time with a zone is the time in that zone.
        """
        pa, compute = load("pyarrow", "sql"), load("pyarrow.compute", "sql")
        found, kind = self.values, self.values.type
        if pa.types.is_floating(kind):  # a NaN would be larger than all numbers
            found = found.cast(pa.float64())
            return compute.if_else(compute.is_nan(found), None, found)
        if _is_tensor(kind):
            kind = kind.storage_type
            found = pa.chunked_array([chunk.storage for chunk in found.chunks], kind)
        if pa.types.is_fixed_size_list(kind):
            is_half = pa.types.is_float16(kind.value_type)  # which SQL has not
            return found.cast(pa.list_(pa.float32() if is_half else kind.value_type))
        zoned = pa.types.is_timestamp(kind) and kind.tz is not None
        return compute.local_timestamp(found) if zoned else found


def _kind_of(values: Any) -> Kind:
    if isinstance(values, np.ndarray):
        return "numbers"
    if isinstance(values, RaggedText):
        return "text"
    return "bytes" if isinstance(values, Ragged) else "objects"


def _reader(array: Any, values: Any) -> Callable[[int], Any]:
    """Return the function from a row of an array to its value; None for a null.

    Args:
        array: An array of pyarrow.
        values: What `_values_of` returns of it.
    """
    get: Callable[[int], Any]
    if isinstance(values, np.ndarray):
        plain = values.ndim == 1 and values.dtype != np.float16  # which no memoryview reads
        get = values.data.__getitem__ if plain else partial(_copied, values)
    elif isinstance(values, RaggedText | Ragged):
        get = _slicer(values)
    else:
        get = partial(_as_py, array)
    if not array.null_count or _kind_of(values) == "objects":
        return get
    is_null = array.is_null().to_numpy(zero_copy_only=False).data
    return lambda row: None if is_null[row] else get(row)


def _is_tensor(kind: Any) -> bool:
    return isinstance(kind, load("pyarrow", "parquet").FixedShapeTensorType)


def _copied(values: npt.NDArray[Any], row: int) -> Any:
    found = values[row]
    return found.copy() if found.ndim else found.item()


def _as_py(array: Any, row: int) -> Any:
    value = array[row]
    try:
        return value.as_py()
    except (ArithmeticError, ValueError, LookupError) as error:
        raise SpecError(
            f"row {row} of a piece of the table: Python has no value for this {value.type} "
            f"({error}); expected dates from year 1 to 9999 and time zones that exist"
        ) from error


def _slicer(values: RaggedText | Ragged) -> Callable[[int], Any]:
    starts, data = values.offsets.data, values.values.data
    if isinstance(values, RaggedText):
        return lambda row: str(data[starts[row] : starts[row + 1]], "utf-8", "surrogatepass")
    return lambda row: bytes(data[starts[row] : starts[row + 1]])


def _values_of(array: Any) -> Any:
    """Return numbers, arrays of one shape, texts and bytes over the same memory; else the array."""
    types, kind = load("pyarrow", "parquet").types, array.type

    def buffer(number: int, dtype: Any, count: int) -> npt.NDArray[Any]:
        found = np.frombuffer(array.buffers()[number], dtype)
        return found[array.offset : array.offset + count]

    if types.is_boolean(kind):
        return array.fill_null(False).to_numpy(zero_copy_only=False)
    if types.is_integer(kind) or types.is_floating(kind):
        return buffer(1, kind.to_pandas_dtype(), len(array))
    shape = tuple(kind.shape) if _is_tensor(kind) else ()
    if types.is_fixed_size_list(kind):
        shape = (kind.list_size,)
    if shape and not array.null_count:
        items = (array.storage if _is_tensor(kind) else array).flatten()
        if not items.null_count and (
            types.is_floating(items.type)
            or types.is_integer(items.type)
            or types.is_boolean(items.type)
        ):
            return items.to_numpy(zero_copy_only=False).reshape(len(array), *shape)
    name = str(kind)
    if name.removeprefix("large_") in {"string", "binary"}:
        offsets = buffer(1, np.int64 if name[:5] == "large" else np.int32, len(array) + 1)
        data = np.frombuffer(array.buffers()[2] or b"", np.uint8)
        return RaggedText(data, offsets) if name[-6:] == "string" else Ragged(data, offsets)
    return array


@dataclass(frozen=True)
class FileStamp:
    """Size, digest and date of a file, by which a change of it is detected.

    Attributes:
        nbytes: Size of the file.
        digest: SHA-256 of its blocks: all of a file of up to 4 MiB; of a larger one 64 blocks of
            64 KiB, with the first and the last, where Parquet and Arrow keep their footers.
        mtime_ns: When it was written; None to compare the digest, as on another machine.
    """

    nbytes: int
    digest: str
    mtime_ns: int | None = None

    def check(self, path: Path, title: str) -> None:
        """Check that a file is still the one with this stamp.

        Raises:
            SpecError: It has changed.
            OSError: It cannot be read.
        """
        found = path.stat()
        same = (found.st_size, found.st_mtime_ns) == (self.nbytes, self.mtime_ns)
        if self.mtime_ns is None:
            same = found.st_size == self.nbytes and stamp_of(path).digest == self.digest
        if not same:
            raise SpecError(
                f"{title}: the table has changed since it was joined ({self.nbytes} bytes then, "
                f"{found.st_size} now); join it again, or restore the file"
            )


def stamp_of(path: Path) -> FileStamp:
    """Return the stamp of a file.

    Raises:
        OSError: It cannot be read.
        SpecError: It is a folder, a pipe or a device.
    """
    if path.exists() and not path.is_file():  # opening a pipe would wait for its writer
        raise SpecError(f"{path}: expected a table as a file, found a folder, pipe or device")
    with path.open("rb", buffering=0) as stream:
        status = os.fstat(stream.fileno())
        digest = hashlib.sha256(b"%d" % status.st_size)
        last = max(0, status.st_size - _BLOCK_NBYTES)
        count = min(_MOST_BLOCKS, -(-status.st_size // _BLOCK_NBYTES))
        for block in range(count):
            stream.seek(last * block // max(1, count - 1))
            digest.update(stream.read(_BLOCK_NBYTES))
    return FileStamp(status.st_size, digest.hexdigest(), status.st_mtime_ns)


class Origin(NamedTuple):
    """Where a table was read from.

    Attributes:
        locations: Path or URL of each file, one or several.
        stamp: That of the file, or of all files, when they were read.
        is_relative: Whether a path was given relative to the current folder.
    """

    locations: tuple[str, ...]
    stamp: FileStamp
    is_relative: bool

    @property
    def title(self) -> str:
        """What messages call it: the first location, without credentials."""
        more = f" and {len(self.locations) - 1} more" if len(self.locations) > 1 else ""
        return f"{display_url(self.locations[0])}{more}"


class Table:
    """Columns of Arrow, some of which are read.

    A large one in memory is pickled as the path of a file, which lasts as long as the table.

    Args:
        names: Names of all columns.
        read: Function that reads some of them, as a table of pyarrow.
        origin: Where it is read from; None if it was always in memory.
        in_order: Whether its rows are in the order of the samples, as those of an array.
        reopen: Function that opens the same table in another process; None to send the columns
            there.

    Attributes:
        names, origin, in_order: As given.
        columns: Those that are read, by their names.
        num_rows: Number of values in each of these.
        name: What messages call it: its location without credentials, or "the table".
    """

    def __init__(
        self,
        names: Sequence[str],
        read: Callable[[Sequence[str]], Any],
        origin: Origin | None = None,
        *,
        in_order: bool = False,
        reopen: Callable[[], Table] | None = None,
    ) -> None:
        self.names, self._read, self.origin = list(names), read, origin
        self.in_order, self._reopen = in_order, reopen
        self.name = "the table" if origin is None else origin.title
        self.columns: dict[str, Column] = {}
        self.num_rows = 0

    def only(self, names: Sequence[str]) -> Table:
        """Return the table with some of its columns, which are read.

        Raises:
            ValueError: The file is damaged.
            OSError: It cannot be read.
        """
        found = Table(self.names, self._read, self.origin, reopen=self._reopen)
        read = self._read(names)
        found.columns = {name: Column(read[name]) for name in names}
        found.num_rows = read.num_rows
        return found

    def arrow(self) -> Any:
        """Return the columns that are read, as a table of pyarrow."""
        columns = {name: column.values for name, column in self.columns.items()}
        return load("pyarrow", "parquet").table(columns)

    def __reduce__(self) -> tuple[Any, ...]:
        if self._reopen is None:
            pa, found = load("pyarrow", "parquet"), self.arrow()
            small = found.nbytes <= _MOST_PICKLED_NBYTES
            path = None if small else str(shared_path(self, "wids-table-"))
            sink = pa.BufferOutputStream() if path is None else pa.OSFile(path, "wb")
            with sink, pa.ipc.new_stream(sink, found.schema) as writer:
                writer.write_table(found)
            source = sink.getvalue().to_pybytes() if path is None else path
            reopen = partial(_of_stream, source, self.origin)
            if path is None:
                return _again, (reopen, list(self.columns))
            self._reopen = reopen
        return _again, (self._reopen, list(self.columns))


def _again(reopen: Callable[[], Table], names: Sequence[str]) -> Table:
    """Return a table with the same columns in another process; unpickling calls this."""
    return reopen().only(names)


def _of_stream(source: bytes | str, origin: Origin | None) -> Table:
    """Return a table whose columns another process wrote, to a file if they are large."""
    pa = load("pyarrow", "parquet")
    try:
        data = pa.memory_map(source) if isinstance(source, str) else source
    except OSError as error:
        raise WidsError(
            f"{source!r}: the joined table lies in this file, which is gone ({error}); a pickled "
            "join is for processes that run beside the one that made it: join a table in a file, "
            "or join it again"
        ) from error
    found = pa.ipc.open_stream(data).read_all()
    return Table(found.column_names, found.select, origin)


class TableRows:
    """What a join with a table reads: a row is read like a sample of a dataset.

    Args:
        table: The table.
        fields: The column of each field.
        key: The column that must equal the key of a sample; None if rows were found otherwise.
        pipeline: That of the samples.

    Attributes:
        table, fields, key: As given.
        class_names: None; a table has no names of classes.
    """

    class_names: ClassVar[Mapping[int, str]] = {}

    def __init__(
        self,
        table: Table,
        fields: Mapping[str, str],
        key: str | None,
        pipeline: Pipeline | None = None,
    ) -> None:
        from wids.codecs.decode import SampleDecoder

        self.table, self.fields, self.key = table, dict(fields), key
        self._pipeline = pipeline or Pipeline("PIL", SampleDecoder())
        columns = table.columns
        self._readers = [
            (name, columns[column].at, self._finisher(name)) for name, column in self.fields.items()
        ]
        self._key_at: Callable[[int], str] | None = None
        if key is not None:
            at = columns[key].at
            self._key_at = at if columns[key].kind == "text" else lambda n: equal_text(at(n))

    def __len__(self) -> int:
        return self.table.num_rows

    def __repr__(self) -> str:
        return f"{len(self.fields)} columns of {self.table.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return TableRows, (self.table, self.fields, self.key, self._pipeline)

    def with_pipeline(self, pipeline: Pipeline | None, fields: Iterable[str] | None) -> TableRows:
        """Return the same rows with some of the fields, read through another pipeline."""
        wanted = self.fields if fields is None else {*fields}
        kept = {name: column for name, column in self.fields.items() if name in wanted}
        return TableRows(self.table, kept, self.key, pipeline)

    # Samples.

    def read_as(self, row: int, number: int, _dataset: str | None = None) -> dict[str, Any]:
        """Return the fields of a row, and its key if it must be compared.

        Raises:
            DecodeError: A value cannot be decoded; `number` says for which sample.
        """
        return self.extended(self._labels(row), row, number) or {}

    def _labels(self, row: int) -> dict[str, Any]:
        return {} if self._key_at is None else {"__key__": self._key_at(row)}

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
        sample = self._labels(row)
        for name, at, _ in self._readers:
            value = at(row) if fields is None or name in fields else None
            if value is not None:
                sample[name] = _encoder(name)(value)
        return sample

    def values_at(self, row: int) -> dict[str, Any]:
        """Return the values of a row as in the table, without nulls."""
        found = {name: at(row) for name, at, _ in self._readers}
        return {name: value for name, value in found.items() if value is not None}

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

    def close(self) -> None:
        """Do nothing: a table holds no shard open."""

    # Columns and batches.

    def arrow(self) -> Any:
        """Return the fields as a table of pyarrow, but those of arrays."""
        kept = {n: column for n, column in self.fields.items() if field_kind(n) != "array"}
        columns = {name: self.table.columns[column].arrow() for name, column in kept.items()}
        return load("pyarrow", "sql").table(columns)

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

        samples = self.read_batch_as(rows.tolist(), rows.tolist())
        batch: dict[str, Any] = {}
        if self._key_at is not None:
            batch["__key__"] = [sample["__key__"] for sample in samples]
        for name in self.fields:
            values = [sample[name] for sample in samples]
            if self.batch_kind != "raw":
                batch[name] = column_of(values)
            elif any(value is None for value in values):
                return None
            else:
                batch[name] = _as_bytes(name, values)
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

        finish = self._finisher(extension, arrays=True)
        if is_stated(extension, path):
            finish = partial(read_header, extension)
        if finish is None and not path:
            values, missing = self._taken(rows, extension)
        else:
            at, items = self.table.columns[self.fields[extension]].at, []
            for row in rows.tolist():
                value = at(row)
                try:
                    value = value if value is None or finish is None else finish(value)
                except Exception as error:  # noqa: BLE001 (handled by `on_error` of the decoder)
                    value = self._answer(error, extension, row, row)
                items.append(follow_path(value, path))
            missing = np.array([at for at, item in enumerate(items) if item is None], np.int64)
            values = pack([item for item in items if item is not None])
        if len(missing) and fill is None:
            raise self._missing(extension, int(rows[missing[0]]))
        return fill_in(values, missing, fill)

    def _taken(self, rows: Integers, extension: str) -> tuple[Values, Integers]:
        """Return the existing values of rows, and the slots of rows without one."""
        column = self.table.columns[self.fields[extension]]
        nulls = column.nulls[rows]
        return column.take(rows[~nulls]), np.flatnonzero(nulls)

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
        as_array = partial(np.frombuffer, dtype=np.uint8)
        of_bytes = as_array if arrays and decode is io.BytesIO else decode

        def finish(value: Any) -> Any:
            if isinstance(value, bytes):
                return of_bytes(value)
            return decode(value.encode()) if isinstance(value, str) and not is_text else value

        return finish

    def _answer(self, error: Exception, name: str, row: int, number: int) -> Any:
        sample = {"__index__": number, "__shard__": self.table.name, **self._labels(row)}
        return self._pipeline.decoder.answer(error, name, sample)

    def _missing(self, extension: str, row: int) -> DecodeError:
        return DecodeError(
            f"column {extension!r}: {self.table.name}, column {self.fields[extension]!r}: row "
            f"{row} is null; fill= gives such samples a value"
        )


def _as_text(value: Any) -> str:
    """Return a value that JSON cannot represent, such as a date, as text."""
    if isinstance(value, bytes):
        raise TypeError(
            "bytes in a list or a struct cannot be written as JSON; leave out that column"
        )
    return str(value)


_as_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, default=_as_text).encode


def _encoder(name: str) -> Callable[[Any], bytes]:
    """Return the function from a value of a table to the bytes of a field of a shard."""
    from wids.codecs.formats import FORMAT_OF, encode_field, format_suffix

    known = FORMAT_OF.get(format_suffix(name))
    has_format = known is not None and known.encode is not None

    def encoded(value: Any) -> bytes:
        if isinstance(value, str):
            return value.encode("utf-8", "surrogatepass")
        if isinstance(value, bytes | memoryview):
            return bytes(value)
        if has_format:
            with suppress(TypeError):
                return encode_field(name, value)
        return _as_json(value.tolist() if isinstance(value, np.ndarray) else value).encode()

    return encoded


def _as_bytes(name: str, values: Values) -> Ragged:
    """Return values of a table as raw fields."""
    if isinstance(values, RaggedText):
        return Ragged(values.values, values.offsets)
    if isinstance(values, Ragged) and values.values.dtype == np.uint8:
        return values
    plain = values.tolist() if isinstance(values, np.ndarray) and values.ndim == 1 else values
    fields = [np.frombuffer(each, np.uint8) for each in map(_encoder(name), plain)]
    return Ragged.of(fields) if fields else Ragged(np.empty(0, np.uint8), np.zeros(1, np.int64))
