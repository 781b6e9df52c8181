"""Opening of the tables beside the shards of a dataset, local or remote, as one table."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from wids.base.threads import DaemonThreadPool
from wids.base.urls import (
    base_name,
    display_url,
    is_local,
    local_path,
    scheme_of,
    without_query,
)
from wids.errors import FetchError, SpecError
from wids.fetching.transport import AbsentError
from wids.specs.locations import folder_of, join
from wids.views.table import FileStamp, Origin, Table, stamp_of
from wids.views.tablecolumns import Column
from wids.views.tablesources import TableSource, table_source

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from wids.caching.cache import ShardCache

__all__ = ["beside_shards", "table_beside"]

_MOST_NAMED = 20
_FETCHED_AT_ONCE = 8


def beside_shards(
    pattern: str,
    shards: Iterable[str],
    *,
    missing: str,
    stamp: FileStamp | None = None,
    cache: ShardCache | None = None,
) -> TableSource:
    """Open the tables beside the shards of a dataset as one table.

    Args:
        pattern: Path or URL of a table, relative to the folder of its shard, with `{shard}` for
            the name of the shard without `.tar`.
        shards: Locations of the shards.
        missing: "error", or something else to pass over shards without a table.
        stamp: What all files together must have.
        cache: Where tables of remote shards are fetched to.

    Returns:
        All rows, with the columns that all tables have.

    Raises:
        ValueError: The pattern has no `{shard}`, or a table is missing or damaged.
        FetchError: A table cannot be fetched.
        SpecError: The files are not those with the stamp.
    """
    if "{shard}" not in pattern:
        raise ValueError(
            f"join_tables: expected a pattern such as '{{shard}}.parquet', got "
            f"{display_url(pattern)!r}; one "
            "table for all shards is joined by join()"
        )
    locations = [table_beside(pattern, shard) for shard in shards]
    there = _present(locations, cache)
    lost = [each for each in locations if each not in there]
    if lost and (missing == "error" or not there):
        raise ValueError(
            f"join_tables: {len(lost)} of {len(locations)} shards have no table, the first would "
            f'be {display_url(lost[0])}; missing="drop" leaves out samples without a row'
        )
    # One after the other: the next may evict a file that is not open yet.
    opened = [_open(location, cache) for location in there]
    stamps = [mark for _, mark in opened]
    found = _stamp_of_all(zip(map(base_name, there), stamps, strict=True))
    if stamp is not None and stamp.digest != found.digest:
        raise SpecError(
            f"{display_url(pattern)}: the tables beside the shards have changed since they were "
            "joined; join them again, or restore the files"
        )
    sources = [source for source, _ in opened]
    names = [name for name in sources[0].names if all(name in source.names for source in sources)]

    def read(wanted: Sequence[str]) -> Table:
        tables = []
        for location, source in zip(there, sources, strict=True):
            if cache is not None and not is_local(location):
                cache.get_table(location)  # which may have been evicted
            tables.append(source.read(wanted))
        columns = {
            name: Column([piece for table in tables for piece in table.columns[name].pieces])
            for name in wanted
        }
        return Table(columns, Origin(pattern, found, is_pattern=True))

    lacking = _partial_columns(there, sources, names)
    return TableSource(names, read, f"the tables {display_url(pattern)}", lacking=lacking)


def _partial_columns(
    locations: Sequence[str], sources: Sequence[TableSource], common: Sequence[str]
) -> str:
    """Return a warning of columns that some tables lack, which no sample gets; "" if none do."""
    every = dict.fromkeys(name for source in sources for name in source.names)
    partial = [name for name in every if name not in common]
    if not partial:
        return ""
    tables = zip(locations, sources, strict=True)
    lacking = [location for location, source in tables if partial[0] not in source.names]
    return (
        f"join_tables: no sample gets {', '.join(map(repr, partial[:_MOST_NAMED]))}, which not all "
        f"tables have; {len(lacking)} of {len(locations)} lack {partial[0]!r}, the first is "
        f"{display_url(lacking[0])}; add the column there, or name the wanted ones by fields="
    )


def table_beside(pattern: str, shard: str) -> str:
    """Return the location of the table of a shard.

    >>> table_beside("{shard}.parquet", "https://host/a/00000.tar?key=1")
    'https://host/a/00000.parquet?key=1'
    >>> table_beside("../meta/{shard}.csv", "s3://bucket/a/00000.tar.gz")
    's3://bucket/meta/00000.csv'
    >>> table_beside("{shard}", "https://host/file:x.tar")
    'https://host/file:x'
    """
    path = without_query(shard)
    file = local_path(shard).name if is_local(shard) else PurePosixPath(path).name
    name = re.sub(r"\.tar(\.gz|\.zst)?$", "", file)
    # What the pattern itself says counts: a shard may be called "file:x.tar" or "~x.tar".
    if scheme_of(pattern):
        return pattern.replace("{shard}", name)
    pattern = os.path.expanduser(pattern)  # noqa: PTH111 (which raises for an unknown user)
    table = pattern.replace("{shard}", name)
    if is_local(shard):
        return str(local_path(shard).absolute().parent / table)
    if pattern.startswith("/"):
        return table
    return f"{join(folder_of(shard), f'./{table}')}{shard[len(path) :]}"


def _present(locations: Sequence[str], cache: ShardCache | None) -> list[str]:
    """Return the locations that have a table, after fetching those that are remote."""

    def is_there(location: str) -> bool:
        if is_local(location):
            return local_path(location).exists()
        if cache is None:
            raise FetchError(
                f"{display_url(location)}: is remote, and the samples are of no dataset with a "
                "cache folder; fetch the table, and name its folder in the pattern"
            )
        try:
            cache.get_table(location)
        except AbsentError:
            return False
        finally:
            cache.release()
        return True

    with DaemonThreadPool(_FETCHED_AT_ONCE, "wids-tables") as pool:
        flags = list(pool.map(is_there, locations))
    return [location for location, found in zip(locations, flags, strict=True) if found]


def _open(location: str, cache: ShardCache | None) -> tuple[TableSource, FileStamp]:
    remote = cache is not None and not is_local(location)
    path = cache.get_table(location) if remote and cache else local_path(location)
    try:
        return table_source(path, url=location if remote else None), stamp_of(path)
    except ValueError as error:
        raise ValueError(f"{display_url(location)}: {error}") from error


def _stamp_of_all(stamps: Iterable[tuple[str, FileStamp]]) -> FileStamp:
    """Return one stamp for several files, which depends on their names and contents."""
    nbytes, digest = 0, hashlib.sha256()
    for name, stamp in stamps:
        nbytes += stamp.nbytes
        digest.update(f"{name} {stamp.digest}\n".encode("utf-8", "surrogateescape"))
    return FileStamp(nbytes, digest.hexdigest())
