"""`ShardTable`: the shards of a spec, stored in columns."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from wids.base.hashing import DIGESTS
from wids.base.shardref import ShardRef
from wids.base.urls import display_url
from wids.errors import SpecError
from wids.specs.textcolumns import TextColumn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

__all__ = [
    "COLUMNS",
    "DOUBTFUL_KEYS",
    "MOST_SAMPLES",
    "UNKNOWN",
    "ShardTable",
    "digest_rows",
    "digest_texts",
    "extras_of",
]

UNKNOWN = -1  # in the columns of counts: not given by the spec
MOST_SAMPLES = 2**62  # sums and differences of global indexes stay within int64
DOUBTFUL_KEYS = "doubtful_keys"  # of a shard: why a sample may be several whose keys have dots
# Keys that have a column of their own; other keys of a shard are stored in the extras, as JSON.
COLUMNS = ("url", "nsamples", "filesize", *DIGESTS)


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
