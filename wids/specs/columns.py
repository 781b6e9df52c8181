"""Columns of text and bytes: a million rows without a million Python objects."""

from collections.abc import Iterable, Iterator, Sequence
from typing import overload

import numpy as np

__all__ = ["BytesColumn", "TextColumn"]


class BytesColumn(Sequence[bytes]):
    """An immutable sequence of byte strings in three parts: common prefix, blob, common suffix.

    URLs of one dataset share their beginning and end, digests share nothing; both fit. A row is
    cut out of the blob when it is asked for. Pickles as small as it is.

    >>> column = BytesColumn([b"train-000.tar", b"train-001.tar"])
    >>> column[1], len(column), column.nbytes
    (b'train-001.tar', 2, 22)
    """

    def __init__(self, rows: Iterable[bytes]) -> None:
        rows = list(rows)
        prefix = _common_prefix(rows)
        rest = [row[len(prefix) :] for row in rows]
        suffix = _common_prefix([row[::-1] for row in rest])[::-1]
        middle = [row[: len(row) - len(suffix)] for row in rest]
        self._prefix = prefix
        self._suffix = suffix
        self._blob = b"".join(middle)
        small = len(self._blob) < 2**32
        lengths = np.fromiter(map(len, middle), np.int64, len(middle))
        self._ends = np.cumsum(lengths).astype(np.uint32 if small else np.int64)

    @property
    def nbytes(self) -> int:
        """Memory that the column holds, in bytes."""
        return len(self._prefix) + len(self._suffix) + len(self._blob) + self._ends.nbytes

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, row: int) -> bytes: ...
    @overload
    def __getitem__(self, row: slice) -> Sequence[bytes]: ...
    def __getitem__(self, row: int | slice) -> bytes | Sequence[bytes]:
        if isinstance(row, slice):
            return [self[i] for i in range(*row.indices(len(self)))]
        if row < 0:
            row += len(self)
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} lies outside [0, {len(self)})")
        start = int(self._ends[row - 1]) if row else 0
        return self._prefix + self._blob[start : int(self._ends[row])] + self._suffix

    def __iter__(self) -> Iterator[bytes]:
        start = 0
        for end in self._ends.tolist():
            yield self._prefix + self._blob[start:end] + self._suffix
            start = end

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BytesColumn) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} rows, {self.nbytes} bytes)"


class TextColumn(Sequence[str]):
    """An immutable sequence of strings, held as UTF-8 in a `BytesColumn`.

    >>> list(TextColumn(["a.tar", "b.tar"]))
    ['a.tar', 'b.tar']
    """

    def __init__(self, rows: Iterable[str]) -> None:
        self._rows = BytesColumn(row.encode("utf-8", "surrogateescape") for row in rows)

    @property
    def nbytes(self) -> int:
        """Memory that the column holds, in bytes."""
        return self._rows.nbytes

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, row: int) -> str: ...
    @overload
    def __getitem__(self, row: slice) -> Sequence[str]: ...
    def __getitem__(self, row: int | slice) -> str | Sequence[str]:
        if isinstance(row, slice):
            return [self[i] for i in range(*row.indices(len(self)))]
        return self._rows[row].decode("utf-8", "surrogateescape")

    def __iter__(self) -> Iterator[str]:
        for row in self._rows:
            yield row.decode("utf-8", "surrogateescape")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TextColumn) and self._rows == other._rows

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} rows, {self.nbytes} bytes)"


def _common_prefix(rows: list[bytes]) -> bytes:
    if not rows:
        return b""
    # What the smallest and the largest share, all between them share too.
    first, last = min(rows), max(rows)
    for place, byte in enumerate(first):
        if byte != last[place]:
            return first[:place]
    return first
