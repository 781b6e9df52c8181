"""Columns of tables with random access to rows, without parsing.

    Numbers    values in an array: numbers, truth values, or one row of an array per sample
    Texts      text or bytes in one buffer with offsets, as in Arrow
    Objects    any other values: lists and structs of Arrow, or Python objects
    Records    the values of several columns as one dict
    Column     concatenation of one or several of these pieces

The arrays may be views of a mapped file.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from wids.base.keyhash import hash_keys, hash_packed
from wids.base.numbertext import equal_text
from wids.base.optional import load
from wids.errors import SpecError
from wids.reading.ragged import Ragged, RaggedText, Values, join, pack, take

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["Column", "Kind", "Numbers", "Objects", "Piece", "Records", "Texts"]

Integers = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]
Kind = Literal["numbers", "text", "bytes", "objects"]
Parts = tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]

_BLOCK = 1 << 16  # rows that are hashed at a time


class Piece(Protocol):
    """Protocol of a piece: adjacent rows of a column.

    Attributes:
        at: Function from a row in `[0, len)`, unchecked, to its value; None for a null.
        nulls: Whether each value is null; None if none is.
        kind: What the values are.
    """

    at: Callable[[int], Any]
    nulls: Flags | None
    kind: Kind

    def __len__(self) -> int:
        """Return the number of rows."""

    def take(self, rows: Integers) -> Values:
        """Return the values of some rows, none of which is null."""

    def hashes(self, start: int, stop: int) -> Hashes:
        """Return the hash of the `equal_text` of each value in a range of rows."""

    def parts(self) -> Parts:
        """Return the arguments that make this piece again: the arrays, then the others."""


class Numbers:
    """Values in an array, whose first axis is the rows.

    Args:
        values: Of booleans or numbers, in the order of bytes of this machine.
        nulls: Whether each is null; None if none is.
    """

    def __init__(self, values: npt.NDArray[Any], nulls: Flags | None = None) -> None:
        self._values, self.nulls = values, nulls
        self.kind: Kind = "numbers"
        plain = values.ndim == 1 and values.dtype != np.float16  # which no memoryview reads
        get = values.data.__getitem__ if plain and len(values) else self._copied
        self.at: Callable[[int], Any] = get if nulls is None else _unless_null(get, nulls)

    def _copied(self, row: int) -> Any:
        found = self._values[row]
        return found.item() if found.ndim == 0 else found.copy()

    def __len__(self) -> int:
        return len(self._values)

    def take(self, rows: Integers) -> Values:
        """Return the values of some rows, none of which is null."""
        return np.asarray(self._values[rows])

    def hashes(self, start: int, stop: int) -> Hashes:
        """Return the hash of the `equal_text` of each value in a range of rows."""
        return hash_keys(list(map(equal_text, self._values[start:stop].tolist())))

    def parts(self) -> Parts:
        """Return the arguments that make this piece again: the arrays, then the others."""
        return _given(values=self._values, nulls=self.nulls), {}


class Texts:
    """Texts or bytes.

    Args:
        offsets: Where each begins in the data, and the end of the last; ascending.
        data: All of them, end to end; uint8.
        nulls: Whether each is null; None if none is.
        binary: Whether they are bytes.
    """

    def __init__(
        self,
        offsets: npt.NDArray[Any],
        data: npt.NDArray[np.uint8],
        nulls: Flags | None = None,
        *,
        binary: bool = False,
    ) -> None:
        self._offsets, self._data, self.nulls = offsets, data, nulls
        self._starts, self._bytes = offsets.data, data.data
        self._wrap: Any = Ragged if binary else RaggedText
        self.kind: Kind = "bytes" if binary else "text"
        get = self._bytes_at if binary else self._text_at
        self.at: Callable[[int], Any] = get if nulls is None else _unless_null(get, nulls)

    def _text_at(self, row: int) -> str:
        starts = self._starts
        return str(self._bytes[starts[row] : starts[row + 1]], "utf-8")

    def _bytes_at(self, row: int) -> bytes:
        starts = self._starts
        return bytes(self._bytes[starts[row] : starts[row + 1]])

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def take(self, rows: Integers) -> Values:
        """Return the values of some rows, none of which is null."""
        starts = self._offsets[rows].astype(np.int64)
        stops = self._offsets[rows + 1].astype(np.int64)
        offsets = np.concatenate([[0], np.cumsum(stops - starts)]).astype(np.int64)
        values = np.empty(max(0, int(offsets[-1])), np.uint8)
        target, source = values.data, self._bytes
        spans = zip(offsets.tolist(), starts.tolist(), stops.tolist(), strict=False)
        for offset, start, stop in spans:
            target[offset : offset + stop - start] = source[start:stop]
        found: Values = self._wrap(values, offsets)
        return found

    def hashes(self, start: int, stop: int) -> Hashes:
        """Return the hash of the text of each value in a range of rows."""
        offsets = self._offsets[start : stop + 1].astype(np.int64)
        return hash_packed(bytes(self._bytes[offsets[0] : offsets[-1]]), offsets - offsets[0])

    def parts(self) -> Parts:
        """Return the arguments that make this piece again: the arrays, then the others."""
        first, last = int(self._offsets[0]), int(self._offsets[-1])
        arrays = _given(
            offsets=self._offsets - first, data=self._data[first:last], nulls=self.nulls
        )
        return arrays, {"binary": self._wrap is Ragged}


class Objects:
    """Values that cannot be stored in an array.

    Args:
        values: A list; or an array of Arrow, whose values have `as_py`.
        nulls: Whether each is null; None if none is.
    """

    def __init__(self, values: Sequence[Any], nulls: Flags | None = None) -> None:
        self._values, self.nulls = values, nulls
        self.kind: Kind = "objects"
        plain = isinstance(values, list)
        self.at: Callable[[int], Any] = values.__getitem__ if plain else self._converted

    def _converted(self, row: int) -> Any:
        value: Any = self._values[row]
        try:
            return value.as_py()
        except (ArithmeticError, ValueError, LookupError) as error:
            raise SpecError(
                f"row {row} of a piece of the table: Python has no value for this {value.type} "
                f"({error}); expected dates from year 1 to 9999 and time zones that exist"
            ) from error

    def __len__(self) -> int:
        return len(self._values)

    def take(self, rows: Integers) -> Values:
        """Return the values of some rows, none of which is null."""
        return pack([self.at(row) for row in rows.tolist()])

    def hashes(self, start: int, stop: int) -> Hashes:
        """Return the hash of the text of each value in a range of rows."""
        return hash_keys([equal_text(self.at(row)) for row in range(start, stop)])

    def parts(self) -> Parts:
        """Return the arguments that make this piece again: the arrays, then the others."""
        return _given(nulls=self.nulls), {"values": self._values}


class Records:
    """Rows of several columns, each as a dict with None for a null.

    Args:
        columns: Of one length, by the names in the dict.
    """

    def __init__(self, columns: Mapping[str, Column]) -> None:
        self._columns = dict(columns)
        self.nulls: Flags | None = None
        self.kind: Kind = "objects"
        self.at: Callable[[int], Any] = self._dict_of

    def _dict_of(self, row: int) -> dict[str, Any]:
        found = {name: column.at(row) for name, column in self._columns.items()}
        return {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in found.items()
        }

    def __len__(self) -> int:
        return min(map(len, self._columns.values()), default=0)

    def take(self, rows: Integers) -> Values:
        """Return the dicts of some rows."""
        return [self.at(row) for row in rows.tolist()]

    def hashes(self, start: int, stop: int) -> Hashes:
        """Return the hash of the text of each dict in a range of rows."""
        return hash_keys([str(self.at(row)) for row in range(start, stop)])

    def parts(self) -> Parts:
        """Return the arguments that make this piece again: the arrays, then the others."""
        return {}, {"columns": self._columns}


class Column:
    """A column of a table.

    Args:
        pieces: Its rows.

    Attributes:
        pieces: Those that have rows.
        kind: What the values are; "objects" for values of several kinds.
        at: Function from a row in `[0, len)`, unchecked, to its value; None for a null.

    >>> column = Column([Numbers(np.array([1, 2])), Objects(["x", None], np.array([False, True]))])
    >>> len(column), [column.at(row) for row in range(4)], column.kind
    (4, [1, 2, 'x', None], 'objects')
    """

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.pieces = [piece for piece in pieces if len(piece)]
        self._ends = np.cumsum([len(piece) for piece in self.pieces], dtype=np.int64)
        self._search: list[int] = self._ends.tolist()
        self._starts = [0, *self._search[:-1]] if self.pieces else []
        # Nulls alone, as in a table where nothing failed, are of any kind.
        some = [each for each in self.pieces if each.nulls is None or not each.nulls.all()]
        kinds: set[Kind] = {piece.kind for piece in some}
        self.kind: Kind = kinds.pop() if len(kinds) == 1 else "objects"
        single = len(self.pieces) == 1
        self.at: Callable[[int], Any] = self.pieces[0].at if single else self._in_piece

    def _in_piece(self, row: int) -> Any:
        number = bisect_right(self._search, row)
        return self.pieces[number].at(row - self._starts[number])

    def __len__(self) -> int:
        return self._search[-1] if self._search else 0

    def _by_piece(self, rows: Integers) -> list[tuple[Piece, Integers, Integers]]:
        """Return the pieces that hold some rows, with their slots and their rows in the piece."""
        if len(self.pieces) == 1:
            return [(self.pieces[0], np.arange(len(rows)), rows)]
        numbers = np.searchsorted(self._ends, rows, "right").astype(np.uint16)
        order = np.argsort(numbers, kind="stable")  # which for 16 bits is a radix sort
        present, cuts = np.unique(numbers[order], return_index=True)
        groups = np.split(order, cuts[1:]) if len(present) else []
        return [
            (self.pieces[number], slots, rows[slots] - self._starts[number])
            for number, slots in zip(present.tolist(), groups, strict=True)
        ]

    def first_rows(self) -> list[int]:
        """Return the first row that is not null, for each piece that has one."""
        found = []
        for piece, start in zip(self.pieces, self._starts, strict=True):
            first = 0 if piece.nulls is None else int(np.argmin(piece.nulls))
            if piece.nulls is None or not piece.nulls[first]:
                found.append(start + first)
        return found

    def nulls(self) -> Flags | None:
        """Return whether each value is null; None if none is."""
        if all(piece.nulls is None for piece in self.pieces):
            return None
        flags = np.zeros(len(self), np.bool_)
        for piece, start, end in zip(self.pieces, self._starts, self._search, strict=True):
            if piece.nulls is not None:
                flags[start:end] = piece.nulls
        return flags

    def nulls_at(self, rows: Integers) -> Flags:
        """Return whether the values of some rows are null."""
        nulls = np.zeros(len(rows), np.bool_)
        for piece, slots, local in self._by_piece(rows):
            if piece.nulls is not None:
                nulls[slots] = piece.nulls[local]
        return nulls

    def take(self, rows: Integers) -> Values:
        """Return the values of some rows, none of which is null, in their order."""
        groups = self._by_piece(rows)
        if len(groups) == 1:
            return groups[0][0].take(rows if len(self.pieces) == 1 else groups[0][2])
        joined = join([piece.take(local) for piece, _, local in groups])
        slots = [slots for _, slots, _ in groups]
        return take(joined, np.argsort(np.concatenate(slots))) if slots else []

    def arrow(self) -> Any:
        """Return the values as an array of pyarrow; those of several types as texts.

        A time with a zone is the time in that zone.
        """
        pa, compute = load("pyarrow", "sql"), load("pyarrow.compute", "sql")
        chunks = [_arrow_of_piece(piece) for piece in self.pieces]
        try:
            columns = [pa.table({"values": chunk}) for chunk in chunks]
            found = pa.concat_tables(columns, promote_options="permissive")["values"]
        except (pa.ArrowException, TypeError):
            texts = [pa.array(map(_text_of, chunk.to_pylist()), pa.string()) for chunk in chunks]
            found = pa.chunked_array(texts)
        zoned = pa.types.is_timestamp(found.type) and found.type.tz is not None
        return compute.local_timestamp(found) if zoned else found

    def hashes(self) -> Hashes:
        """Return the hash of the `equal_text` of each value; that of a null is meaningless."""
        found = np.empty(len(self), np.uint64)
        for piece, first in zip(self.pieces, self._starts, strict=True):
            for start in range(0, len(piece), _BLOCK):
                stop = min(start + _BLOCK, len(piece))
                found[first + start : first + stop] = piece.hashes(start, stop)
        return found


def _given(**arrays: npt.NDArray[Any] | None) -> dict[str, npt.NDArray[Any]]:
    return {name: array for name, array in arrays.items() if array is not None}


def _unless_null(get: Callable[[int], Any], nulls: Flags) -> Callable[[int], Any]:
    """Wrap a function from rows to values so that it returns None for nulls."""
    is_null = nulls.data

    def get_unless_null(row: int) -> Any:
        return None if is_null[row] else get(row)

    return get_unless_null


def _arrow_of_piece(piece: Piece) -> Any:
    """Return a piece of a column as an array of pyarrow."""
    pa = load("pyarrow", "sql")
    arrays, rest = piece.parts()
    nulls = piece.nulls
    values = arrays.get("values", rest.get("values"))
    if isinstance(piece, Texts):
        offsets = np.ascontiguousarray(arrays["offsets"], np.int64)
        there = None if nulls is None else pa.py_buffer(np.packbits(~nulls, bitorder="little"))
        buffers = [there, pa.py_buffer(offsets), pa.py_buffer(arrays["data"])]
        kind = pa.large_binary() if rest["binary"] else pa.large_string()
        return pa.Array.from_buffers(kind, len(piece), buffers)
    if isinstance(values, np.ndarray) and values.ndim == 1:
        if values.dtype.kind == "f":  # a NaN, which would be larger than all numbers, is null
            values = values.astype(np.float64)
            nulls = np.isnan(values) if nulls is None else nulls | np.isnan(values)
        return pa.array(values, mask=nulls)
    if isinstance(values, pa.Array):
        return values
    items = [piece.at(row) for row in range(len(piece))]
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
