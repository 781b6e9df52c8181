"""`TextColumn`: strings without a Python object for each row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from wids.base.keyhash import hash_packed

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["TextColumn"]

_UTF8 = ("utf-8", "surrogateescape")  # names that are not UTF-8 survive the round trip


@dataclass(eq=False, repr=False)
class TextColumn(Sequence[str]):
    """Immutable sequence of strings, which are cut out of one buffer of UTF-8 when they are read.

    What all rows begin and end with is stored once, since URLs of shards differ in some digits. A
    million of them take 6 MB, in memory and pickled; a `StringDType` of numpy takes 145 MB, and
    58 MB pickled. The buffer may be a mapped file.

    Attributes:
        num_rows: Number of rows.
        prefix: Common prefix of all rows.
        suffix: Common suffix of all rows, which does not overlap the prefix.
        blob: The middle parts of all rows, one after the other.
        ends: End of each middle part in the blob, shape `(num_rows,)`, not descending; None if all
            have one length.

    >>> column = TextColumn.of(["train-000.tar", "train-001.tar"])
    >>> column[1], column.prefix, bytes(column.blob), column.suffix
    ('train-001.tar', b'train-00', b'01', b'.tar')
    """

    num_rows: int
    prefix: bytes
    suffix: bytes
    blob: bytes | memoryview
    ends: NDArray[np.integer[Any]] | None

    @classmethod
    def of(cls, rows: Iterable[str], *, start: str = "") -> TextColumn:
        """Return the column of some rows.

        Args:
            rows: The rows.
            start: Common beginning of all rows, which they do not have yet.
        """
        encoded = [row.encode(*_UTF8) for row in rows]
        prefix = suffix = b""
        if encoded:
            # A common prefix of the smallest and the largest row is a prefix of all rows.
            prefix = _common(min(encoded), max(encoded))
            encoded = [row[len(prefix) :] for row in encoded]
            turned = [row[::-1] for row in encoded]
            suffix = _common(min(turned), max(turned))[::-1]
            encoded = [row[: len(row) - len(suffix)] for row in encoded]
        lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
        ends: NDArray[np.integer[Any]] | None = None
        if len(lengths) and (lengths != lengths[0]).any():
            ends = np.cumsum(lengths)
            ends = ends.astype(np.uint32) if ends[-1] < 2**32 else ends
        prefix = start.encode(*_UTF8) + prefix
        return cls(len(encoded), prefix, suffix, b"".join(encoded), ends)

    @classmethod
    def constant(cls, text: str, num_rows: int) -> TextColumn:
        """Return a column that has one text in all rows.

        >>> list(TextColumn.constant("a", 2))
        ['a', 'a']
        """
        return cls(num_rows, text.encode(*_UTF8), b"", b"", None)

    @property
    def is_constant(self) -> bool:
        """Whether all rows are known to be equal without comparing them."""
        return not len(self.blob) and self.ends is None

    @property
    def nbytes(self) -> int:
        """Memory of the column in bytes."""
        ends = 0 if self.ends is None else self.ends.nbytes
        return len(self.prefix) + len(self.suffix) + len(self.blob) + ends

    @property
    def _width(self) -> int:
        """Length of each middle part, if all have one."""
        return len(self.blob) // (self.num_rows or 1)

    @property
    def bounds(self) -> NDArray[np.int64]:
        """Begin of each middle part in the blob, and the end of the last."""
        if self.ends is None:
            return np.arange(self.num_rows + 1, dtype=np.int64) * self._width
        return np.concatenate([[0], self.ends]).astype(np.int64)

    def repeated_rows(self) -> NDArray[np.int64]:
        """Return the rows that have the text of an earlier row, in ascending order.

        >>> TextColumn.of(["a.tar", "b.tar", "a.tar"]).repeated_rows().tolist()
        [2]
        """
        if self.ends is None and self._width:
            rows = np.frombuffer(self.blob, f"S{self._width}")
            if (rows[1:] > rows[:-1]).all():
                return np.zeros(0, np.int64)  # numbered in order, as most are: no need to sort
        hashes = hash_packed(bytes(self.blob), self.bounds)
        # Stable, so that the first of equal rows comes first.
        order = np.argsort(hashes, kind="stable")
        return np.sort(order[1:][hashes[order[1:]] == hashes[order[:-1]]])

    def rows_with(self, text: str) -> list[int]:
        """Return the rows that contain a text, in ascending order.

        >>> TextColumn.of(["a.tar", "b.tar"]).rows_with("b."), TextColumn.of(["a"]).rows_with("a")
        ([1], [0])
        """
        if self.is_constant:
            return list(range(len(self))) if len(self) and text in self[0] else []
        return [row for row, each in enumerate(self) if text in each]

    def __len__(self) -> int:
        return self.num_rows

    @overload
    def __getitem__(self, row: int) -> str: ...
    @overload
    def __getitem__(self, row: slice) -> Sequence[str]: ...
    def __getitem__(self, row: int | slice) -> str | Sequence[str]:
        if isinstance(row, slice):
            return [self[each] for each in range(*row.indices(len(self)))]
        if row < 0:
            row += len(self)
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} lies outside [0, {len(self)})")
        if self.ends is None:
            start, end = row * self._width, (row + 1) * self._width
        else:
            start, end = int(self.ends[row - 1]) if row else 0, int(self.ends[row])
        return self._text(start, end)

    def __iter__(self) -> Iterator[str]:
        return (self._text(start, end) for start, end in pairwise(self.bounds.tolist()))

    def _text(self, start: int, end: int) -> str:
        # `join` accepts a memoryview of a mapped file, `+` does not.
        return b"".join((self.prefix, self.blob[start:end], self.suffix)).decode(*_UTF8)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TextColumn) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __getstate__(self) -> dict[str, Any]:
        # Mapped bytes are pickled as a copy: the other machine may not have the file.
        ends = None if self.ends is None else np.array(self.ends)
        return {**self.__dict__, "blob": bytes(self.blob), "ends": ends}

    def __repr__(self) -> str:
        return f"TextColumn({len(self)} rows, {self.nbytes} bytes)"


def _common(first: bytes, last: bytes) -> bytes:
    """Return the common prefix of two strings."""
    pairs = enumerate(zip(first, last, strict=False))
    return first[: next((at for at, (a, b) in pairs if a != b), min(len(first), len(last)))]
