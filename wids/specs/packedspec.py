"""The spec of a dataset in a pack, whose columns are mapped.

Rows that differ in plain letters alone, as those of numbered shards do, are checked as one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.base.hashing import DIGESTS
from wids.base.urls import display_url, is_local
from wids.base.valuesizes import json_nbytes
from wids.errors import SpecError
from wids.fetching.fetch import Fetcher, FetchPolicy
from wids.pack.packfile import Pack, open_pack
from wids.pack.packformat import unfit
from wids.specs import locations
from wids.specs.indexrules import rules_of
from wids.specs.rows import check_location, check_name
from wids.specs.shardtable import ShardTable, as_arrays, of_arrays, text_column
from wids.specs.spec import DatasetSpec, located_row
from wids.specs.textcolumns import TextColumn

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from wids.fetching.storesettings import StoreSettings

__all__ = ["load_packed_spec", "names_in", "table_columns"]

_MOST_LOCATION = 8192  # bytes of a name
_MOST_EXTRAS_NBYTES = 1 << 20  # of the values of one row
_TEXTS = ("url", "extras", *DIGESTS)


def table_columns(
    table: ShardTable,
) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, tuple[bytes, bytes]]]:
    """Return the columns of a table for a pack: arrays, and common ends of columns of text."""
    about, arrays = as_arrays(table)
    texts = {
        name: (bytes.fromhex(prefix), bytes.fromhex(suffix))
        for name, (prefix, suffix) in about["parts"].items()
    }
    return arrays, texts


def load_packed_spec(
    location: str,
    *,
    base: str | None = None,
    options: Mapping[str, Any] | None = None,
    allow_local: bool = False,
    cache_dir: str | os.PathLike[str] | None = None,
    store: StoreSettings | None = None,
) -> DatasetSpec:
    """Return the spec that a pack holds.

    Args:
        location: Path or URL of the pack.
        base: Folder or URL against which relative locations are resolved; by default the base that
            the pack states, else its folder.
        options: Top-level keys that replace those of the pack.
        allow_local: Allow a pack on a server to name files of this machine.
        cache_dir: Cache folder.
        store: Where the buckets of `s3:` URLs are.

    Raises:
        SpecError: What the pack holds is malformed.
        ShardFormatError: It is no pack, or damaged.
        FetchError: It cannot be read.
    """
    fetcher = Fetcher(FetchPolicy(store=store))
    pack = open_pack(location, cache_dir=cache_dir, fetcher=fetcher)
    shown = display_url(location)
    header = {**pack.directory.spec, **(options or {})}
    rules_of(header, shown)
    name = header.pop("name", None)
    check_name(name, shown)
    folder = locations.folder_of(location)
    own = header.pop("base", None)
    if base is None and own:
        check_location(own, shown, "base")
        base = locations.join(folder, own)
        if is_local(base) and not (is_local(location) or allow_local):
            raise SpecError(
                f"{shown}: base: {base!r:.200} is a file of this machine, which a pack from a "
                "server may not name; pass allow_local=True if you trust the server"
            )
    base = folder if base is None else base
    table = _Source(pack, location, base, allow_local).table()
    return DatasetSpec(table, name=name, base=base, header=header, pack=pack)


def names_in(pack: Pack) -> TextColumn:
    """Return the names of the shards in a pack, unchecked.

    Raises:
        ShardFormatError: The pack has none, or they do not fit.
    """
    try:
        prefix, suffix = pack.directory.texts["url"]
        there = [name for name in ("url blob", "url ends") if name in pack.directory.arrays]
        columns = {name: pack.column(name) for name in there}
        return text_column(pack.header.num_shards, prefix.hex(), suffix.hex(), "url", columns)
    except (KeyError, ValueError) as error:
        raise unfit(pack.location, "names of shards", f"{error}") from error


@dataclass(frozen=True)
class _Source:
    """What a table of shards is made from; pickled in place of the table.

    Attributes:
        pack: The pack.
        location: Its location, as given.
        base: Folder or URL against which relative locations are resolved.
        allow_local: Allow a pack on a server to name files of this machine.
    """

    pack: Pack
    location: str
    base: str
    allow_local: bool

    def table(self) -> ShardTable:
        """Return the table of shards, over the bytes of the pack."""
        pack = self.pack
        # Later versions may have other texts.
        texts = {name: each for name, each in pack.directory.texts.items() if name in _TEXTS}
        about = {
            "num_rows": pack.header.num_shards,
            "parts": {name: [each.hex() for each in parts] for name, parts in texts.items()},
        }
        names = ["nsamples", "filesize"]
        names += [f"{name} {part}" for name in texts for part in ("blob", "ends")]
        there = [name for name in names if name in pack.directory.arrays]
        try:
            stored = of_arrays(about, {name: pack.column(name) for name in there})
        except (KeyError, ValueError) as error:
            raise unfit(self.location, "columns of shards", f"{error}") from error
        # Places of keys are numbers of samples, so the counts have to agree with their number.
        total = int(stored.nsamples.sum())
        if total != pack.header.num_samples or (stored.nsamples < 0).any():
            found = f"{total} in its table"
            raise unfit(self.location, f"{pack.header.num_samples} samples by its header", found)
        if not len(stored):
            raise SpecError(f"{display_url(self.location)}: holds no shards")
        return ShardTable.of_columns(
            self._located(stored.urls),
            stored.nsamples,
            stored.filesize,
            stored.digests,
            self._checked(stored.extras),
            pack=pack.location,
            remake=self.table,
        )

    def _located(self, names: TextColumn) -> TextColumn:
        """Return the locations of shards by their names in the pack."""
        longest = len(names.prefix) + int(np.diff(names.bounds).max()) + len(names.suffix)
        if names.is_plain and names.prefix + names.suffix and longest <= _MOST_LOCATION:
            first = names[0]
            location = self._location_of(first, 0)
            varying = first[len(names.prefix.decode("utf-8", "surrogateescape")) :]
            # All rows are resolved as the first one, since they differ in plain letters alone.
            if location.endswith(varying):
                start = location[: len(location) - len(varying)].encode("utf-8", "surrogateescape")
                return TextColumn.of_parts(len(names), start, names.suffix, names.blob, names.ends)
        return TextColumn(self._location_of(name, row) for row, name in enumerate(names))

    def _location_of(self, name: str, row: int) -> str:
        url: str = located_row(
            {"url": name},
            display_url(self.location),
            row,
            self.base,
            allow_local=self.allow_local,
        )["url"]
        return url

    def _checked(self, extras: TextColumn) -> TextColumn:
        """Return the other keys of shards, each text checked once."""
        if extras.is_constant:
            return TextColumn.constant(self._checked_extras(extras[0], 0), len(extras))
        found: dict[str, str] = {}
        for row, text in enumerate(extras):
            if text not in found:
                found[text] = self._checked_extras(text, row)
        return TextColumn(map(found.__getitem__, extras))

    def _checked_extras(self, text: str, row: int) -> str:
        """Return the other keys of one shard as JSON, with resolved locations."""
        if not text:
            return ""
        where = f"{display_url(self.location)}: shard {row}"
        if json_nbytes(text, _MOST_EXTRAS_NBYTES) > _MOST_EXTRAS_NBYTES:
            raise SpecError(f"{where}: its values could take over {_MOST_EXTRAS_NBYTES} bytes")
        try:
            extras = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise SpecError(f"{where}: expected an object, found {error}") from error
        if not isinstance(extras, dict) or not isinstance(extras.get("dataset", ""), str):
            raise SpecError(f"{where}: expected an object, found {text!r:.80}")
        row_of_spec = {**extras, "url": "x.tar"}
        shown = display_url(self.location)
        extras = located_row(row_of_spec, shown, row, self.base, allow_local=self.allow_local)
        return json.dumps({key: value for key, value in extras.items() if key != "url"})
