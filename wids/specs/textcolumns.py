"""Columns of text and bytes, without a Python object for each row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar, overload

import numpy as np

from wids.base.keyhash import hash_packed

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["BytesColumn", "CheckedTexts", "Parts", "TextColumn", "Texts"]

T = TypeVar("T")
_PLAIN = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
_UTF8 = ("utf-8", "surrogateescape")  # names that are not UTF-8 survive the round trip


@dataclass(frozen=True)
class Parts:
    """Contents of a column of byte strings: prefix, middle parts and suffix of its rows.

    Attributes:
        num_rows: Number of rows.
        prefix: Common prefix of all rows.
        suffix: Common suffix of all rows, which does not overlap the prefix.
        blob: The middle parts of all rows, concatenated.
        ends: End offset of each row's middle part in the blob, shape `(num_rows,)`, not descending;
            None if all middle parts have one length, as those of digests and numbered URLs have.
    """

    num_rows: int
    prefix: bytes
    suffix: bytes
    blob: bytes | memoryview
    ends: NDArray[np.integer[Any]] | None

    def check(self) -> None:
        """Verify that every row lies inside the blob, since a file may be damaged.

        Raises:
            ValueError: A row lies outside the blob, or the blob is too long.
        """
        nbytes, ends = len(self.blob), self.ends
        if ends is None:
            fits = self.width * self.num_rows == nbytes
        elif len(ends) != self.num_rows or not len(ends):
            fits = nbytes == len(ends) == self.num_rows
        else:
            fits = bool(ends[0] >= 0 and ends[-1] == nbytes and (ends[1:] >= ends[:-1]).all())
        if not fits:
            raise ValueError(
                f"expected ends of {self.num_rows} rows within {nbytes} bytes, found others"
            )

    @property
    def is_plain(self) -> bool:
        """Whether rows differ only in characters without a special meaning in locations."""
        return not bytes(self.blob).translate(None, _PLAIN)

    @property
    def width(self) -> int:
        """Length of each row's middle part in bytes, if all have one length."""
        return len(self.blob) // self.num_rows if self.num_rows else 0


class BytesColumn(Sequence[bytes]):
    """Immutable sequence of byte strings, stored as common prefix, blob and common suffix.

    The prefix and suffix save memory for URLs, which share their beginning and end. A row is cut
    out of the blob on access. A pickled column is as small as the column in memory.

    >>> column = BytesColumn([b"train-000.tar", b"train-001.tar"])
    >>> column[1], len(column), column.nbytes
    (b'train-001.tar', 2, 14)
    """

    def __init__(self, rows: Iterable[bytes] | Parts) -> None:
        """Pack rows, or wrap existing parts.

        Raises:
            ValueError: The parts do not fit together.
        """
        self.parts = rows if isinstance(rows, Parts) else _parts_of(list(rows))
        self.parts.check()
        self._width = self.parts.width

    @property
    def nbytes(self) -> int:
        """Memory of the column in bytes."""
        parts = self.parts
        table = 0 if parts.ends is None else parts.ends.nbytes
        return len(parts.prefix) + len(parts.suffix) + len(parts.blob) + table

    def __len__(self) -> int:
        return self.parts.num_rows

    @overload
    def __getitem__(self, row: int) -> bytes: ...
    @overload
    def __getitem__(self, row: slice) -> Sequence[bytes]: ...
    def __getitem__(self, row: int | slice) -> bytes | Sequence[bytes]:
        if isinstance(row, slice):
            return _slice(self, row)
        if row < 0:
            row += len(self)
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} lies outside [0, {len(self)})")
        parts = self.parts
        if parts.ends is None:
            start, end = row * self._width, (row + 1) * self._width
        else:
            start, end = int(parts.ends[row - 1]) if row else 0, int(parts.ends[row])
        # `join` accepts a memoryview of a mapped file, `+` does not.
        return b"".join((parts.prefix, parts.blob[start:end], parts.suffix))

    def __iter__(self) -> Iterator[bytes]:
        parts = self.parts
        ends = parts.ends
        if ends is None:
            stops: Iterable[int] = (self._width * (row + 1) for row in range(len(self)))
        else:
            stops = ends.tolist()
        start = 0
        for end in stops:
            yield b"".join((parts.prefix, parts.blob[start:end], parts.suffix))
            start = end

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BytesColumn) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[type[BytesColumn], tuple[Parts]]:
        # Mapped bytes are pickled as a copy: the other machine may not have the file.
        parts = self.parts
        ends = None if parts.ends is None else np.array(parts.ends)
        return BytesColumn, (replace(parts, blob=bytes(parts.blob), ends=ends),)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} rows, {self.nbytes} bytes)"


class TextColumn(Sequence[str]):
    """Immutable sequence of strings, stored as UTF-8 in a `BytesColumn`.

    >>> list(TextColumn(["a.tar", "b.tar"]))
    ['a.tar', 'b.tar']
    """

    def __init__(self, rows: Iterable[str] | Parts, *, start: str = "") -> None:
        """Pack rows, or wrap existing parts in UTF-8.

        Args:
            rows: The rows, or the parts.
            start: Common beginning of all rows, which they do not have yet.

        Raises:
            ValueError: The parts do not fit together.
        """
        parts = rows if isinstance(rows, Parts) else [row.encode(*_UTF8) for row in rows]
        self._rows = BytesColumn(parts)
        if start:
            own = self._rows.parts
            self._rows = BytesColumn(replace(own, prefix=start.encode(*_UTF8) + own.prefix))

    @classmethod
    def constant(cls, text: str, num_rows: int) -> TextColumn:
        """Return a column that has one text in all rows.

        >>> list(TextColumn.constant("a", 2))
        ['a', 'a']
        """
        return cls(Parts(num_rows, text.encode(*_UTF8), b"", b"", None))

    @property
    def is_constant(self) -> bool:
        """Whether all rows are known to be equal without comparing them."""
        return not len(self.parts.blob) and self.parts.ends is None

    @property
    def parts(self) -> Parts:
        """Parts of the column, as UTF-8."""
        return self._rows.parts

    @property
    def nbytes(self) -> int:
        """Memory of the column in bytes."""
        return self._rows.nbytes

    def repeated_rows(self) -> NDArray[np.int64]:
        """Return the rows that have the text of an earlier row, in ascending order.

        >>> TextColumn(["a.tar", "b.tar", "a.tar"]).repeated_rows().tolist()
        [2]
        """
        parts = self.parts
        if parts.ends is None and parts.width:
            rows = np.frombuffer(parts.blob, f"S{parts.width}")
            if (rows[1:] > rows[:-1]).all():
                return np.zeros(0, np.int64)  # numbered in order, as most are: no need to sort
        ends = np.arange(1, len(self) + 1) * parts.width if parts.ends is None else parts.ends
        hashes = hash_packed(bytes(parts.blob), np.concatenate([[0], ends]).astype(np.int64))
        # Stable, so that the first of equal rows comes first.
        order = np.argsort(hashes, kind="stable")
        same = np.flatnonzero(hashes[order[1:]] == hashes[order[:-1]])
        alike = np.union1d(order[same], order[same + 1]).tolist()
        # Two different texts may have one hash.
        texts: set[str] = set()
        repeated = []
        for row in alike:
            text = self[row]
            if text in texts:
                repeated.append(row)
            texts.add(text)
        return np.array(repeated, np.int64)

    def rows_with(self, text: str) -> list[int]:
        """Return the rows that contain a text, in ascending order.

        >>> TextColumn(["a.tar", "b.tar"]).rows_with("b."), TextColumn(["a", "a"]).rows_with("a")
        ([1], [0, 1])
        """
        wanted, parts = text.encode(*_UTF8), self.parts
        # Prefix and suffix cut a text in a row at two places at most, so that three fifths of it
        # are whole. A million rows without it take some tens of milliseconds.
        places = (parts.prefix, parts.suffix, bytes(parts.blob))
        fifths = [wanted[i * len(wanted) // 5 : (i + 1) * len(wanted) // 5] for i in range(5)]
        if sum(any(fifth in place for place in places) for fifth in fifths) < 3:
            return []
        return [row for row, each in enumerate(self._rows) if wanted in each]

    def plain_ends(self) -> list[str] | None:
        """Return what follows the last slash of each location; None if that is not safe to cut out.

        >>> TextColumn(["s3://b/a-0.tar", "s3://b/a-1.tar"]).plain_ends()
        ['a-0.tar', 'a-1.tar']
        """
        parts = self.parts
        if not parts.num_rows or not parts.blob or b"/" in parts.suffix or not parts.is_plain:
            return None
        head, tail = parts.prefix.rpartition(b"/")[2].decode(*_UTF8), parts.suffix.decode(*_UTF8)
        middle, ends = bytes(parts.blob).decode("ascii"), parts.ends
        bounds = range(0, len(middle) + 1, parts.width) if ends is None else [0, *ends.tolist()]
        return [f"{head}{middle[start:stop]}{tail}" for start, stop in pairwise(bounds)]

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, row: int) -> str: ...
    @overload
    def __getitem__(self, row: slice) -> Sequence[str]: ...
    def __getitem__(self, row: int | slice) -> str | Sequence[str]:
        if isinstance(row, slice):
            return _slice(self, row)
        return self._rows[row].decode(*_UTF8)

    def __iter__(self) -> Iterator[str]:
        for row in self._rows:
            yield row.decode(*_UTF8)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TextColumn) and self._rows == other._rows

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} rows, {self.nbytes} bytes)"


class CheckedTexts(Sequence[str]):
    """Column of strings, each of which is checked and converted on access.

    A column of a stranger's file may have millions of rows, of which a program reads a few.

    Args:
        column: The column.
        convert: Function from a string and its row to the string that it stands for.

    >>> texts = CheckedTexts(TextColumn(["a", "b"]), lambda text, row: f"{row}:{text}")
    >>> texts[1], list(texts)
    ('1:b', ['0:a', '1:b'])
    """

    def __init__(self, column: TextColumn, convert: Callable[[str, int], str]) -> None:
        self._column = column
        self._convert = convert

    @property
    def is_constant(self) -> bool:
        """Whether all rows are known to be equal without comparing them."""
        return False

    @property
    def nbytes(self) -> int:
        """Memory of the column in bytes."""
        return self._column.nbytes

    def repeated_rows(self) -> NDArray[np.int64]:
        """Return the rows that have the text of an earlier row, in ascending order."""
        return self._column.repeated_rows()

    def rows_with(self, text: str) -> list[int]:
        """Return the rows that contain a text before they are converted, in ascending order."""
        return self._column.rows_with(text)

    def plain_ends(self) -> list[str] | None:
        """Return None, as rows are converted one by one."""
        return None

    def __len__(self) -> int:
        return len(self._column)

    @overload
    def __getitem__(self, row: int) -> str: ...
    @overload
    def __getitem__(self, row: slice) -> Sequence[str]: ...
    def __getitem__(self, row: int | slice) -> str | Sequence[str]:
        if isinstance(row, slice):
            return _slice(self, row)
        return self._convert(self._column[row], row % max(1, len(self)))

    def __iter__(self) -> Iterator[str]:
        return (self._convert(text, row) for row, text in enumerate(self._column))


Texts = TextColumn | CheckedTexts


def _slice(column: Sequence[T], rows: slice) -> list[T]:
    """Return the rows of a slice as a list."""
    return [column[row] for row in range(*rows.indices(len(column)))]


def _parts_of(rows: list[bytes]) -> Parts:
    if not rows:
        return Parts(0, b"", b"", b"", None)
    # A common prefix of the smallest and the largest row is a prefix of all rows.
    first, last = min(rows), max(rows)
    if first == last:
        return Parts(len(rows), first, b"", b"", None)
    prefix = _shared(first, last)
    # Without the prefix, since for "aa" and "aaa" prefix and suffix would overlap.
    rest = [row[len(prefix) :] for row in rows]
    suffix = rest[0]
    for row in rest:
        # Nearly every row ends so; only the others shorten the suffix.
        if not row.endswith(suffix):
            suffix = _shared(row[: -len(suffix) - 1 : -1], suffix[::-1])[::-1]
        if not suffix:
            break
    middle = [row[: len(row) - len(suffix)] for row in rest]
    blob = b"".join(middle)
    lengths = np.fromiter(map(len, middle), np.int64, len(middle))
    if (lengths == lengths[0]).all():
        return Parts(len(rows), prefix, suffix, blob, None)
    ends = np.cumsum(lengths)
    small = len(blob) < 2**32
    return Parts(len(rows), prefix, suffix, blob, ends.astype(np.uint32) if small else ends)


def _shared(first: bytes, last: bytes) -> bytes:
    """Return the common prefix of two strings."""
    # By halves: a row may have millions of bytes.
    fits, most = 0, min(len(first), len(last))
    while fits < most:
        middle = (fits + most + 1) // 2
        if first.startswith(last[fits:middle], fits):
            fits = middle
        else:
            most = middle - 1
    return first[:fits]
