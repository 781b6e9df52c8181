"""`SpecCache`: cache of large specs as columns, which are mapped instead of parsed again.

A JSON of a million shards takes seconds and a gigabyte of memory to parse. So the parsed columns
are stored in the folder `specs` of the cache folder, and are mapped instead of parsing the JSON
again as long as its size and times are unchanged.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.base.arrayfile import read_arrays, write_arrays
from wids.base.hashing import DIGESTS
from wids.caching.cachefolder import SPECS_FOLDER, check_folder, choose_folder
from wids.log import logger
from wids.specs.shardtable import ShardTable, TextColumn

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from wids.specs.spec import DatasetSpec

__all__ = ["SpecCache"]

LEAST_NBYTES = 2_000_000  # a smaller JSON is parsed faster than its columns are found and checked
# Age from which on a JSON is cached: two writes within one tick of the clock give a file the same
# times, so a change could be missed.
SETTLED_NS = 2_000_000_000
MOST_FILES = 32  # of some tens of megabytes each
_FORMAT = 2  # of the columns
_SUFFIX = ".columns"


class SpecCache:
    """Cached columns of one JSON spec, stored in the cache folder.

    >>> SpecCache.of("no_such_spec.json", None, None) is None
    True
    """

    def __init__(self, path: Path, location: Path) -> None:
        self._path = path
        self._location = location
        self._identity = self._look()

    @classmethod
    def of(
        cls, location: str, base: str | None, cache_dir: str | os.PathLike[str] | None
    ) -> SpecCache | None:
        """Return the cache of a JSON spec; None if the spec is small or not a local file.

        Args:
            location: Path of the JSON.
            base: Folder or URL against which relative URLs are resolved; None for the JSON's own.
            cache_dir: The cache folder; None for the default one.
        """
        path = Path(location).expanduser()
        # Everything that determines the columns, apart from the content of the JSON. They are in
        # the machine's byte order, and machines of two orders may share a home folder.
        asked = [location, str(path.absolute()), base, sys.byteorder, _FORMAT, *DIGESTS]
        name = hashlib.sha256(repr([*asked, os.environ.get("HOME")]).encode()).hexdigest()
        try:
            if path.stat().st_size < LEAST_NBYTES:
                return None
            folder = choose_folder(cache_dir) / SPECS_FOLDER
            return cls(folder / f"{name[:32]}{_SUFFIX}", path)
        except (OSError, ValueError):  # no file has such a name; reading it says so
            return None

    def _look(self) -> list[int]:
        """Return numbers that change with the JSON file."""
        status = self._location.stat()
        return [
            status.st_dev,
            status.st_ino,
            status.st_size,
            status.st_mtime_ns,
            status.st_ctime_ns,  # programs cannot set it
        ]

    def load(self) -> dict[str, Any] | None:
        """Return the arguments of `DatasetSpec`; None if the JSON's present state is not cached."""
        try:
            check_folder(self._path.parent, shared=False)
            about, columns = read_arrays(self._path)
            if about["identity"] != self._identity:
                return None
            texts = {
                name: TextColumn(
                    num_rows,
                    bytes.fromhex(prefix),
                    bytes.fromhex(suffix),
                    columns[f"{name} blob"].data,
                    columns.get(f"{name} ends"),
                )
                for name, (num_rows, prefix, suffix) in about["texts"].items()
            }
            table = ShardTable(
                texts["urls"],
                columns["nsamples"],
                columns["filesize"],
                {field: columns[field] for field in DIGESTS if field in columns},
                texts["extras"],
                about["pack"],
            )
            return {"shards": table, **about["spec"]}
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError) as error:
            logger.debug("%s: parsed again: %s", self._location, error)
            return None

    def save(self, spec: DatasetSpec) -> None:
        """Store the columns of the spec, unless the JSON has changed; failures are only logged."""
        try:
            now = self._look()
            if now != self._identity or time.time_ns() - max(now[-2:]) <= SETTLED_NS:
                return
            folder = self._path.parent
            check_folder(folder, shared=False)
            table, texts = spec.shards, {}
            columns: dict[str, NDArray[Any]]
            columns = {"nsamples": table.nsamples, "filesize": table.filesize, **table.digests}
            for name in ("urls", "extras"):
                column: TextColumn = getattr(table, name)
                texts[name] = column.num_rows, column.prefix.hex(), column.suffix.hex()
                columns[f"{name} blob"] = np.frombuffer(column.blob, np.uint8)
                if column.ends is not None:
                    columns[f"{name} ends"] = column.ends
            named = {each: getattr(spec, each) for each in ("name", "base", "header", "catalogue")}
            about = {"identity": now, "spec": named, "texts": texts, "pack": table.pack}
            write_arrays(self._path, about, columns)
            files = sorted(folder.glob(f"*{_SUFFIX}"), key=lambda path: path.stat().st_mtime_ns)
            for path in files[:-MOST_FILES]:
                path.unlink(missing_ok=True)
        except (OSError, ValueError, TypeError) as error:
            logger.debug("%s: its columns are not cached: %s", self._location, error)
