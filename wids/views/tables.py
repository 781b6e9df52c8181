"""`Table`: columns with random access to rows; and `TableRows`, the rows as fields of samples.

Text and bytes in a table are decoded like a field in a shard, by the name of the field, and a
dataset that reads raw bytes gets bytes. Other values (numbers, truth values, lists, structs) are
returned as they are. A null, and a sample without a row, give None.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from wids.base.arrayfile import read_arrays
from wids.base.draws import within_sample
from wids.base.keyhash import hash_keys, hash_packed
from wids.base.numbertext import equal_text
from wids.base.optional import load
from wids.base.urls import display_url
from wids.codecs.formats import field_kind
from wids.errors import DecodeError, SpecError, WidsError
from wids.reading.pipeline import Pipeline
from wids.reading.ragged import Ragged, RaggedText, Values, fill_in, join, pack, take
from wids.views.rows import shared_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractContextManager

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
    """A column of a table, in pieces.

    Args:
        pieces: Arrays of Arrow, but no dictionaries or views; arrays of numpy, whose first axis is
            the rows; texts; or sequences of any other values, None among them for a null.

    Attributes:
        stored: The pieces that have rows.
        kind: What the values are; "objects" for values of several kinds.
        at: Function from a row in `[0, len)`, unchecked, to its value; None for a null.

    >>> column = Column([np.array([1, 2]), ["x", None]])
    >>> len(column), [column.at(row) for row in range(4)], column.kind
    (4, [1, 2, 'x', None], 'objects')
    """

    def __init__(self, pieces: Sequence[Any]) -> None:
        self.stored = [each for each in pieces if len(each)]
        self._pieces = list(map(_Piece, self.stored))
        self._ends: list[int] = np.cumsum(list(map(len, self.stored)), dtype=np.int64).tolist()
        self._starts = [0, *self._ends][: len(self.stored)]
        # Nulls alone, as in a table where nothing failed, are of any kind.
        some = [each for each in self._pieces if each.nulls is None or not each.nulls.all()]
        kinds = {piece.kind for piece in some}
        self.kind: Kind = kinds.pop() if len(kinds) == 1 else "objects"
        single = len(self._pieces) == 1
        self.at: Callable[[int], Any] = self._pieces[0].at if single else self._in_piece

    def _in_piece(self, row: int) -> Any:
        number = bisect_right(self._ends, row)
        return self._pieces[number].at(row - self._starts[number])

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __reduce__(self) -> tuple[Any, ...]:
        return Column, (self.stored,)

    def take(self, rows: Integers) -> Values:
        """Return the values of some rows, none of which is null, in their order."""
        if len(self._pieces) == 1:
            return self._pieces[0].take(rows)
        numbers = np.searchsorted(self._ends, rows, "right")
        order = np.argsort(numbers, kind="stable")
        present, cuts = np.unique(numbers[order], return_index=True)
        groups = zip(present.tolist(), np.split(order, cuts[1:]), strict=False)
        found = [self._pieces[n].take(rows[group] - self._starts[n]) for n, group in groups]
        return take(join(found), np.argsort(order)) if found else []

    @cached_property
    def nulls(self) -> Flags:
        """Whether each value is null."""
        found = np.zeros(len(self), np.bool_)
        for piece, start, end in zip(self._pieces, self._starts, self._ends, strict=True):
            found[start:end] = False if piece.nulls is None else piece.nulls
        return found

    def hashes(self) -> npt.NDArray[np.uint64]:
        """Return the hash of the `equal_text` of each value; that of a null is meaningless."""
        blocks = [np.zeros(0, np.uint64)]
        for piece in self._pieces:
            count = len(piece.stored)
            starts = range(0, count, _HASHED_AT_ONCE)
            blocks += [piece.hashes(each, min(each + _HASHED_AT_ONCE, count)) for each in starts]
        return np.concatenate(blocks)

    @property
    def holds_bytes(self) -> bool:
        """Whether the values are bytes, as far as the first one tells."""
        values = map(self.at, range(len(self)))
        return isinstance(next((each for each in values if each is not None), None), bytes)

    def arrow(self) -> Any:
        """Return the values as an array of pyarrow; those of several types as texts.

        A NaN is null, and a time with a zone is the time in that zone.
        """
        pa, compute = load("pyarrow", "sql"), load("pyarrow.compute", "sql")
        chunks = list(map(_as_arrow, self._pieces))
        try:
            columns = [pa.table({"values": chunk}) for chunk in chunks]
            found = pa.concat_tables(columns, promote_options="permissive")["values"]
        except (pa.ArrowException, TypeError):
            texts = [pa.array(map(_text_of, chunk.to_pylist()), pa.string()) for chunk in chunks]
            found = pa.chunked_array(texts, pa.string())  # a type also where there is no row
        zoned = pa.types.is_timestamp(found.type) and found.type.tz is not None
        return compute.local_timestamp(found) if zoned else found


class _Piece:
    """Adjacent rows of a column.

    Args:
        stored: What the piece is made of.

    Attributes:
        stored: As given.
        values: The same as numbers, texts or bytes, over the same memory; else as it is.
        nulls: Whether each value is null; None if none is.
        kind: What the values are.
        at: Function from a row to its value; None for a null.
    """

    def __init__(self, stored: Any) -> None:
        self.stored = self.values = stored
        self.nulls: Flags | None = None
        self.kind: Kind = "objects"
        self.at: Callable[[int], Any]
        if type(stored).__module__ == "pyarrow.lib":
            self.values = _values_of_arrow(stored)
            self.at = partial(_as_py, self.values)
            if stored.null_count:
                self.nulls = stored.is_null().to_numpy(zero_copy_only=False)
        else:
            self.at = stored.__getitem__
            if isinstance(stored, list) and any(item is None for item in stored):
                self.nulls = np.array([item is None for item in stored], np.bool_)
        values = self.values
        if isinstance(values, np.ndarray):
            self.kind = "numbers"
            plain = values.ndim == 1 and values.dtype != np.float16  # which no memoryview reads
            self.at = values.data.__getitem__ if plain else partial(_copied, values)
        elif isinstance(values, RaggedText | Ragged):
            self.kind = "text" if isinstance(values, RaggedText) else "bytes"
            self.at = _slice_reader(values)
        if self.nulls is not None:
            is_null, get = self.nulls.data, self.at
            self.at = lambda row: None if is_null[row] else get(row)

    def take(self, rows: Integers) -> Values:
        if self.kind == "objects":
            return pack([self.at(row) for row in rows.tolist()])
        return take(self.values, rows)

    def hashes(self, start: int, stop: int) -> npt.NDArray[np.uint64]:
        if self.kind == "text":
            offsets = self.values.offsets[start : stop + 1].astype(np.int64)
            data = self.values.values[offsets[0] : offsets[-1]]
            return hash_packed(data.tobytes(), offsets - offsets[0])
        return hash_keys([equal_text(self.at(row)) for row in range(start, stop)])


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


def _slice_reader(values: RaggedText | Ragged) -> Callable[[int], Any]:
    starts, data = values.offsets.data, values.values.data
    if isinstance(values, RaggedText):
        return lambda row: str(data[starts[row] : starts[row + 1]], "utf-8", "surrogatepass")
    return lambda row: bytes(data[starts[row] : starts[row + 1]])


def _values_of_arrow(array: Any) -> Any:
    """Return numbers, lists of numbers of one length, texts and bytes over the same memory."""
    types, kind = load("pyarrow", "parquet").types, array.type

    def buffer(number: int, dtype: Any, count: int) -> npt.NDArray[Any]:
        found = np.frombuffer(array.buffers()[number], dtype)
        return found[array.offset : array.offset + count]

    if types.is_boolean(kind):
        return array.fill_null(False).to_numpy(zero_copy_only=False)
    if types.is_integer(kind) or types.is_floating(kind):
        return buffer(1, kind.to_pandas_dtype(), len(array))
    if types.is_fixed_size_list(kind) and not array.null_count:
        items = array.flatten()
        if not items.null_count and (types.is_floating(items.type) or types.is_integer(items.type)):
            return items.to_numpy().reshape(len(array), kind.list_size)
    name = str(kind)
    if name.removeprefix("large_") in {"string", "binary"}:
        offsets = buffer(1, np.int64 if name[:5] == "large" else np.int32, len(array) + 1)
        data = np.frombuffer(array.buffers()[2] or b"", np.uint8)
        return RaggedText(data, offsets) if name[-6:] == "string" else Ragged(data, offsets)
    return array


def _as_arrow(piece: _Piece) -> Any:
    """Return a piece of a column as an array of pyarrow."""
    pa, compute = load("pyarrow", "sql"), load("pyarrow.compute", "sql")
    found = piece.stored
    if isinstance(found, np.ndarray) and found.ndim == 1:
        found = pa.array(found)
    if isinstance(found, pa.Array):
        if pa.types.is_floating(found.type):  # a NaN would be larger than all numbers
            found = found.cast(pa.float64())
            return compute.if_else(compute.is_nan(found), None, found)
        if pa.types.is_fixed_size_list(found.type):
            return found.cast(pa.list_(found.type.value_type))
        return found
    items = [piece.at(row) for row in range(len(found))]
    items = [each.tolist() if isinstance(each, np.ndarray) else each for each in items]
    try:
        return pa.array(items)
    except (pa.ArrowException, OverflowError):  # values of several types
        return pa.array(map(_text_of, items), pa.string())


def _text_of(value: Any) -> str | None:
    """Return a value of a column of several types as text, as the catalogue has it."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, default=str)


class _Records(Sequence[dict[str, Any]]):
    """Rows of several columns, each as a dict with None for a null."""

    def __init__(self, columns: Mapping[str, Column]) -> None:
        self._columns = dict(columns)

    def __len__(self) -> int:
        return min(map(len, self._columns.values()), default=0)

    def __getitem__(self, row: Any) -> Any:
        found = {name: column.at(row) for name, column in self._columns.items()}
        arrays = {n: value.tolist() for n, value in found.items() if isinstance(value, np.ndarray)}
        return found | arrays


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
        location: Path or URL of the file; or, for tables that lie beside shards, the pattern of
            their paths, with `{shard}` for the name of a shard.
        stamp: That of the file, or of all files, when they were read.
        beside: The datasets beside whose shards the tables lie; none for one file.
        is_relative: Whether the path was given relative to the current folder.
    """

    location: str
    stamp: FileStamp
    beside: tuple[Any, ...] = ()
    is_relative: bool = False


class Table:
    """Columns of one length, some of which are read.

    A large one in memory is pickled as the path of a file, which lasts as long as the table.

    Args:
        names: Names of all columns.
        read: Function that reads some of them.
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
        read: Callable[[Sequence[str]], Mapping[str, Column]],
        origin: Origin | None = None,
        *,
        in_order: bool = False,
        reopen: Callable[[], Table] | None = None,
    ) -> None:
        self.names, self._read, self.origin = list(names), read, origin
        self.in_order, self._reopen = in_order, reopen
        self.name = "the table" if origin is None else display_url(origin.location)
        self.columns: dict[str, Column] = {}
        self.num_rows = 0

    @classmethod
    def of(cls, columns: Mapping[str, Column], origin: Origin | None = None) -> Table:
        """Return a table of columns that are read already.

        Raises:
            ValueError: They have different lengths.
        """
        return cls(list(columns), lambda names: {each: columns[each] for each in names}, origin)

    def only(self, names: Sequence[str]) -> Table:
        """Return the table with some of its columns, which are read.

        Raises:
            ValueError: They have different lengths, or the file is damaged.
            OSError: It cannot be read.
        """
        found = Table(self.names, self._read, self.origin, reopen=self._reopen)
        found.columns = dict(self._read(names))
        lengths = {name: len(column) for name, column in found.columns.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"{self.name}: expected columns of one length, got {lengths}")
        found.num_rows = next(iter(lengths.values()), 0)
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        if self._reopen is None:
            buffers: list[pickle.PickleBuffer] = []
            image = pickle.dumps(self.columns, 5, buffer_callback=buffers.append)
            arrays = {f"{n}": np.asarray(each.raw()) for n, each in enumerate(buffers)}
            if sum(array.nbytes for array in arrays.values()) <= _MOST_PICKLED_NBYTES:
                return _again, (partial(Table.of, self.columns, self.origin), list(self.columns))
            path = shared_file(self, "wids-table-", None, arrays)
            self._reopen = partial(_of_file, image, str(path), self.origin)
        return _again, (self._reopen, list(self.columns))

    def with_record(self, name: str, names: Sequence[str]) -> Table:
        """Return the table with one more column, of dicts with the values of other columns.

        Args:
            name: Name of the new column.
            names: Names of the columns in it.
        """
        record = Column([_Records({each: self.columns[each] for each in names})])
        columns = {**self.columns, name: record}
        reopen = partial(self.with_record, name, list(names))
        return Table(list(columns), lambda _: columns, self.origin, reopen=reopen).only(names)


def _again(reopen: Callable[[], Table], names: Sequence[str]) -> Table:
    """Return a table with the same columns in another process; unpickling calls this."""
    return reopen().only(names)


def _of_file(image: bytes, path: str, origin: Origin | None) -> Table:
    """Return a table whose columns another process wrote to a file."""
    try:
        _, arrays = read_arrays(Path(path))
    except OSError as error:
        raise WidsError(
            f"{path}: the joined table lies in this file, which is gone ({error}); a pickled join "
            "is for processes that run beside the one that made it: join a table in a file, or "
            "join it again"
        ) from error
    buffers = [arrays[f"{number}"].data for number in range(len(arrays))]
    return Table.of(pickle.loads(image, buffers=buffers), origin)  # noqa: S301 (part of a pickle)


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

    def together(self, field: str) -> TableRows:
        """Return the same rows with all columns except bytes in one field.

        Args:
            field: Its name; a value is a dict of the values of a row, by the names of the columns.
        """
        table = self.table
        own = {n: column for n, column in self.fields.items() if table.columns[column].holds_bytes}
        names = [column for name, column in self.fields.items() if name not in own]
        if field in own:
            raise ValueError(f"columns_as: {field!r} is a column of bytes of {table.name}")
        if names:
            table, own = table.with_record(field, names), own | {field: field}
        return TableRows(table, own, self.key, self._pipeline)

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
