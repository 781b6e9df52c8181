"""`ShardTable`: the shards of a spec, stored in columns; `TextColumn`: one of strings."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from wids.base.hashing import DIGESTS
from wids.base.keyhash import hash_packed
from wids.base.shardref import ShardRef
from wids.base.urls import display_url
from wids.errors import SpecError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "COLUMNS",
    "DOUBTFUL_KEYS",
    "MOST_SAMPLES",
    "UNKNOWN",
    "ShardTable",
    "TextColumn",
    "digest_rows",
    "digest_texts",
    "extras_of",
]

UNKNOWN = -1  # in the columns of counts: not given by the spec
MOST_SAMPLES = 2**62  # sums and differences of global indexes stay within int64
DOUBTFUL_KEYS = "doubtful_keys"  # of a shard: why a sample may be several whose keys have dots
# Keys that have a column of their own; other keys of a shard are stored in the extras, as JSON.
COLUMNS = ("url", "nsamples", "filesize", *DIGESTS)
_UTF8 = ("utf-8", "surrogateescape")  # names that are not UTF-8 survive the round trip


@dataclass(eq=False, repr=False)
class ShardTable(Sequence[ShardRef]):
    """Read-only sequence of the shards of a spec, stored in columns.

    A million shards take some tens of megabytes, without a Python object for each; a row is
    created on access.

    Attributes:
        urls: Location of each shard.
        nsamples: Samples of each shard; int64, shape `(len(table),)`, -1 if unknown.
        filesize: Bytes of each shard; int64, shape `(len(table),)`, -1 if unknown.
        digests: Digests of the shards by field, "md5sum" or "sha256": uint8, one row of bytes for
            each shard, which are those of the text "unknown???..." if it is not given; a field that
            no shard has is left out.
        extras: All other keys of each shard as the text of a JSON object, "" if there are none.
        pack: Path or URL of the pack whose rows are the shards in this order; None for none.

    >>> table = ShardTable.of([{"url": "a.tar", "nsamples": 2, "weight": 0.5}])
    >>> table[0]["weight"], table.nsamples.tolist()
    (0.5, [2])
    """

    urls: TextColumn
    nsamples: NDArray[np.int64]
    filesize: NDArray[np.int64]
    digests: Mapping[str, NDArray[np.uint8]]
    extras: TextColumn
    pack: str | None = None

    @classmethod
    def of(cls, shards: Iterable[Mapping[str, Any]]) -> ShardTable:
        """Return the table of entries of a spec.

        Raises:
            SpecError: JSON cannot hold a value of one.
            ValueError: A digest has another length, or other characters.
        """
        rows = list(shards)
        return cls(
            TextColumn.of(row["url"] for row in rows),
            _counts(rows, "nsamples"),
            _counts(rows, "filesize"),
            {
                field: digest_rows([row.get(field) for row in rows], field)
                for field in DIGESTS
                if any(row.get(field) for row in rows)
            },
            # As text: few shards have extras, and a dict for each would be a million objects.
            TextColumn.of(map(extras_of, rows, range(len(rows)))),
        )

    @classmethod
    def joined(cls, tables: Sequence[ShardTable]) -> ShardTable:
        """Return the concatenation of tables."""
        if len(tables) == 1:
            return tables[0]
        tables = [each.with_rows_of_pack() for each in tables]
        fields = [field for field in DIGESTS if any(field in each.digests for each in tables)]
        return cls(
            TextColumn.of(chain.from_iterable(each.urls for each in tables)),
            np.concatenate([each.nsamples for each in tables]),
            np.concatenate([each.filesize for each in tables]),
            {
                field: np.concatenate(
                    [
                        each.digests.get(field, digest_rows([None] * len(each), field))
                        for each in tables
                    ]
                )
                for field in fields
            },
            TextColumn.of(chain.from_iterable(each.extras for each in tables)),
        )

    def inheriting(self, fields: Mapping[str, Any]) -> ShardTable:
        """Return a table whose shards get these fields unless they have values of their own."""
        if not fields:
            return self
        # Most shards of a dataset have the same extras, so each distinct text is merged once.
        made: dict[str, str] = {}
        for text in self.extras[:1] if self.extras.is_constant else self.extras:
            if text not in made:
                made[text] = json.dumps({**fields, **json.loads(text or "{}")})
        if len(made) == 1:
            extras = TextColumn.constant(next(iter(made.values())), len(self))
        else:
            extras = TextColumn.of(map(made.__getitem__, self.extras))
        return replace(self, extras=extras)

    def with_rows_of_pack(self) -> ShardTable:
        """Return a table that names pack and row with each shard, so that it may be joined."""
        if self.pack is None:
            return self
        rows = enumerate(self.extras)
        texts = (
            json.dumps({"pack": f"{self.pack}#{row}", **json.loads(text or "{}")})
            for row, text in rows
        )
        return replace(self, extras=TextColumn.of(texts), pack=None)

    def __len__(self) -> int:
        return len(self.urls)

    @overload
    def __getitem__(self, row: int) -> ShardRef: ...
    @overload
    def __getitem__(self, row: slice) -> Sequence[ShardRef]: ...
    def __getitem__(self, row: int | slice) -> ShardRef | Sequence[ShardRef]:
        if isinstance(row, slice):
            return [self[i] for i in range(*row.indices(len(self)))]
        text_of_extras = self.extras[row]
        extras = json.loads(text_of_extras) if text_of_extras else {}
        pack = extras.pop("pack", None)
        if self.pack is not None:
            pack = f"{self.pack}#{row % len(self)}"
        return ShardRef(
            self.urls[row],
            nsamples=_known(self.nsamples[row]),
            filesize=_known(self.filesize[row]),
            digests={
                name: data.hex()
                for name, column in self.digests.items()
                if (data := column[row].tobytes()) != _unknown(len(data))
            },
            index=extras.pop("index", None),
            pack=pack,
            dataset=extras.pop("dataset", None),
            extras=extras,
        )

    def __iter__(self) -> Iterator[ShardRef]:
        return (self[row] for row in range(len(self)))

    def __eq__(self, other: object) -> bool:
        # By rows: equal tables may cut their URLs into prefix and blob differently.
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __getstate__(self) -> dict[str, Any]:
        # Every worker gets a copy of the spec, and most counts fit two or four bytes.
        counts = {name: _narrowed(getattr(self, name)) for name in ("nsamples", "filesize")}
        digests = {name: np.array(column) for name, column in self.digests.items()}  # of a map
        return {**self.__dict__, **counts, "digests": digests}

    def __setstate__(self, state: dict[str, Any]) -> None:
        wide = {name: state[name].astype(np.int64) for name in ("nsamples", "filesize")}
        self.__dict__.update(state | wide)

    def __repr__(self) -> str:
        return f"ShardTable({len(self)} shards)"


def digest_rows(digests: Sequence[str | None], field: str) -> NDArray[np.uint8]:
    """Return the column of digests that are given in hex digits, "" or None for unknown ones.

    Raises:
        ValueError: One has other characters or another length.
    """
    width = _width(field)
    data = [bytes.fromhex(each) if each else _unknown(width) for each in digests]
    # Both lengths, since `fromhex` skips blanks.
    if any(len(each) not in {0, 2 * width} for each in digests if each is not None) or any(
        len(each) != width for each in data
    ):
        raise ValueError(f"expected {2 * width} hex digits of {field}, found others")
    return np.frombuffer(b"".join(data), np.uint8).reshape(-1, width)


def digest_texts(column: NDArray[np.uint8]) -> list[str]:
    """Return the digests of a column in hex digits, "" for unknown ones."""
    width = 2 * column.shape[1]
    text, unknown = column.tobytes().hex(), _unknown(column.shape[1]).hex()
    found = (text[at : at + width] for at in range(0, len(text), width))
    return ["" if each == unknown else each for each in found]


def _unknown(width: int) -> bytes:
    """Return what stands for a digest that is not given, and which no shard has."""
    return b"unknown".ljust(width, b"?")


def _width(field: str) -> int:
    return DIGESTS[field].num_hex // 2


def _narrowed(counts: NDArray[np.int64]) -> NDArray[np.signedinteger[Any]]:
    """Return the numbers in the narrowest integer type that can hold all of them."""
    largest = int(counts.max(initial=0))
    fitting = (kind for kind in (np.int8, np.int16, np.int32) if largest <= np.iinfo(kind).max)
    return counts.astype(next(fitting, np.int64))


def _counts(rows: list[Mapping[str, Any]], field: str) -> NDArray[np.int64]:
    found = (row.get(field) for row in rows)
    return np.fromiter(
        (UNKNOWN if count is None else count for count in found), np.int64, len(rows)
    )


def _known(count: np.int64) -> int | None:
    return None if count == UNKNOWN else int(count)


def extras_of(row: Mapping[str, Any], number: int) -> str:
    """Return those keys of a shard that have no column, as JSON; "" if there are none.

    Raises:
        SpecError: JSON cannot hold one of the values; the message names the shard by its number.
    """
    extras = {key: value for key, value in row.items() if key not in COLUMNS}
    if not extras:
        return ""
    try:
        return json.dumps(extras, default=_as_json)
    except (TypeError, ValueError) as error:
        raise SpecError(
            f"shard {number}: {display_url(row['url'])!r}: expected values that JSON can hold "
            f"({error}) under the keys {list(extras)!r:.80}"
        ) from None


def _as_json(value: Any) -> Any:
    """Return the JSON form of a path or a NumPy scalar; raise TypeError for other types."""
    if hasattr(value, "__fspath__"):
        return value.__fspath__()
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"no {type(value).__name__} in JSON")


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
