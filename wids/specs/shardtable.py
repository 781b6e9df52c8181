"""The table of a spec's shards: a sequence of dicts that is held in columns."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from wids.errors import SpecError
from wids.specs.columns import BytesColumn, Parts, TextColumn

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "COLUMNS",
    "HEX_DIGITS",
    "MOST_SAMPLES",
    "UNKNOWN",
    "Shard",
    "ShardTable",
    "extras_of",
    "promised",
    "version_of",
]

UNKNOWN = -1  # in the columns of counts: the spec does not say
MOST_SAMPLES = 2**62  # sums and differences of global indexes stay within int64
HEX_DIGITS = {"md5sum": 32, "sha256": 64}
# What a table keeps in columns of its own; other keys of a shard go into the extras, as JSON.
COLUMNS = ("url", "nsamples", "filesize", *HEX_DIGITS)

Shard = dict[str, Any]


class ShardTable(Sequence[Shard]):
    """The shards of a spec: a read-only sequence of dicts, held in columns.

    A million shards take some tens of megabytes and no Python object each; a row is made when it
    is asked for.

    Attributes:
        urls: Location of each shard.
        nsamples: Samples in each; int64, shape `(len(table),)`, -1 where the spec does not say.
        filesize: Bytes of each; int64, shape `(len(table),)`, -1 where the spec does not say.
        digests: By field, "md5sum" or "sha256", the digest of each shard, b"" where the spec does
            not say; fields that no shard has are left out.
        extras: All other keys of each shard as the text of a JSON object, "" where there are none.

    >>> table = ShardTable([{"url": "a.tar", "nsamples": 2, "weight": 0.5}])
    >>> table[0]["weight"], table.nsamples.tolist()
    (0.5, [2])
    """

    urls: TextColumn
    nsamples: NDArray[np.int64]
    filesize: NDArray[np.int64]
    digests: Mapping[str, BytesColumn]
    extras: TextColumn

    def __init__(self, shards: Iterable[Shard]) -> None:
        rows = list(shards)
        self.urls = TextColumn(row["url"] for row in rows)
        self.nsamples = _counts(rows, "nsamples")
        self.filesize = _counts(rows, "filesize")
        self.digests = {
            field: BytesColumn(bytes.fromhex(row.get(field) or "") for row in rows)
            for field in HEX_DIGITS
            if any(row.get(field) for row in rows)
        }
        # As text: few shards have any, and a dict each would be a million objects.
        self.extras = TextColumn(map(extras_of, rows, range(len(rows))))

    @classmethod
    def of_columns(
        cls,
        urls: TextColumn,
        nsamples: NDArray[np.int64],
        filesize: NDArray[np.int64],
        digests: Mapping[str, BytesColumn],
        extras: TextColumn | None = None,
    ) -> ShardTable:
        """Make a table of columns that are there already, all of one length.

        Args:
            urls: As the attribute.
            nsamples: As the attribute.
            filesize: As the attribute.
            digests: As the attribute.
            extras: As the attribute; None where no shard has any.
        """
        table = cls.__new__(cls)
        table.urls = urls
        table.nsamples = nsamples
        table.filesize = filesize
        table.digests = digests
        if extras is None:
            extras = TextColumn(Parts(len(urls), b"", b"", b"", None))
        table.extras = extras
        return table

    @classmethod
    def joined(cls, tables: Sequence[ShardTable]) -> ShardTable:
        """Lay tables end to end."""
        if len(tables) == 1:
            return tables[0]
        fields = [field for field in HEX_DIGITS if any(field in each.digests for each in tables)]
        return cls.of_columns(
            TextColumn(chain.from_iterable(each.urls for each in tables)),
            np.concatenate([each.nsamples for each in tables]),
            np.concatenate([each.filesize for each in tables]),
            {
                field: BytesColumn(
                    chain.from_iterable(
                        each.digests.get(field) or repeat(b"", len(each)) for each in tables
                    )
                )
                for field in fields
            },
            TextColumn(chain.from_iterable(each.extras for each in tables)),
        )

    def inheriting(self, fields: Mapping[str, Any]) -> ShardTable:
        """Give each shard those of the fields that it does not have itself."""
        if not fields:
            return self
        # Shards of one dataset mostly say the same, so each text is put together once.
        made: dict[str, str] = {}
        for text in self.extras:
            if text not in made:
                made[text] = json.dumps({**fields, **json.loads(text or "{}")})
        extras = TextColumn(map(made.__getitem__, self.extras))
        return self.of_columns(self.urls, self.nsamples, self.filesize, self.digests, extras)

    def with_nsamples(self, nsamples: NDArray[np.int64]) -> ShardTable:
        """Return the same table with other sample counts, once the shards have been counted."""
        # The other columns are shared, not copied: they never change.
        return self.of_columns(self.urls, nsamples, self.filesize, self.digests, self.extras)

    def __len__(self) -> int:
        return len(self.urls)

    @overload
    def __getitem__(self, row: int) -> Shard: ...
    @overload
    def __getitem__(self, row: slice) -> Sequence[Shard]: ...
    def __getitem__(self, row: int | slice) -> Shard | Sequence[Shard]:
        if isinstance(row, slice):
            return [self[i] for i in range(*row.indices(len(self)))]
        shard: Shard = {"url": self.urls[row]}
        for field, column in (("nsamples", self.nsamples), ("filesize", self.filesize)):
            if (count := int(column[row])) != UNKNOWN:
                shard[field] = count
        for field, digests in self.digests.items():
            if digest := digests[row]:
                shard[field] = digest.hex()
        extras = self.extras[row]
        return {**shard, **json.loads(extras)} if extras else shard

    def __iter__(self) -> Iterator[Shard]:
        return (self[row] for row in range(len(self)))

    def __eq__(self, other: object) -> bool:
        # By rows: how URLs were cut into prefix and blob is no part of what a table says.
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __getstate__(self) -> dict[str, Any]:
        # A spec of a million shards goes to every worker, and most counts fit two or four bytes.
        counts = {name: _narrowed(getattr(self, name)) for name in ("nsamples", "filesize")}
        return {**self.__dict__, **counts}

    def __setstate__(self, state: dict[str, Any]) -> None:
        wide = {name: state[name].astype(np.int64) for name in ("nsamples", "filesize")}
        self.__dict__.update(state | wide)

    def __repr__(self) -> str:
        return f"ShardTable({len(self)} shards)"


def _narrowed(counts: NDArray[np.int64]) -> NDArray[np.signedinteger[Any]]:
    """Return the numbers in the narrowest type that holds them all."""
    largest = int(counts.max(initial=0))
    fitting = (kind for kind in (np.int8, np.int16, np.int32) if largest <= np.iinfo(kind).max)
    return counts.astype(next(fitting, np.int64))


def _counts(rows: list[Shard], field: str) -> NDArray[np.int64]:
    found = map(dict.get, rows, repeat(field))
    return np.fromiter(
        (UNKNOWN if count is None else count for count in found), np.int64, len(rows)
    )


def promised(shard: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a spec promises of a shard's bytes, by the names that `ShardCache` gives it.

    Args:
        shard: The shard's entry in the spec.

    >>> promised({"url": "a.tar", "filesize": 3072})
    {'filesize': 3072, 'md5sum': None, 'sha256': None}
    """
    return {field: shard.get(field) for field in ("filesize", *HEX_DIGITS)}


def version_of(shard: Mapping[str, Any]) -> str:
    """Return what tells a version of a shard from the next one at its URL; "" where nothing does.

    Args:
        shard: The shard's entry in the spec.

    >>> version_of({"url": "a.tar", "filesize": 3072}), version_of({"url": "a.tar"})
    ('3072', '')
    """
    # A digest before a size: an honest change may leave the size as it was.
    return str(shard.get("sha256") or shard.get("md5sum") or shard.get("filesize") or "")


def extras_of(row: Shard, number: int) -> str:
    """Write the keys of a shard that have no column as JSON, "" where there are none.

    Raises:
        SpecError: A value is none that JSON has; the message names the shard by its number.
    """
    extras = {key: value for key, value in row.items() if key not in COLUMNS}
    if not extras:
        return ""
    try:
        return json.dumps(extras, default=_as_json)
    except (TypeError, ValueError) as error:
        raise SpecError(
            f"shard {number}: {row['url']!r}: expected values that JSON can hold ({error}), "
            f"found {extras!r:.80}"
        ) from None


def _as_json(value: Any) -> Any:
    """Turn what a program puts into a list of shards into what JSON has for it."""
    if hasattr(value, "__fspath__"):
        return value.__fspath__()
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"no {type(value).__name__} in JSON")
