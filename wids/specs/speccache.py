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
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wids.base.arrayfile import read_arrays, write_arrays
from wids.base.hashing import DIGESTS
from wids.caching.cachefolder import SPECS_FOLDER, check_folder, choose_folder
from wids.log import logger

if TYPE_CHECKING:
    from wids.specs.spec import DatasetSpec

__all__ = ["CACHED_SPECS", "CachedSpecs", "SpecCache"]

_SUFFIX = ".columns"


@dataclass(frozen=True)
class CachedSpecs:
    """Limits that decide which specs are cached, and how many.

    Attributes:
        least_nbytes: Size of the smallest JSON; a smaller one is parsed faster than its columns are
            found and checked.
        settled_ns: Age in nanoseconds from which on a JSON is cached. Two writes within one tick of
            the clock give a file the same times, so a change could be missed.
        most_files: Number of specs that are kept, of some tens of megabytes each.
    """

    least_nbytes: int = 2_000_000
    settled_ns: int = 2_000_000_000
    most_files: int = 32


CACHED_SPECS = CachedSpecs()


class SpecCache:
    """Cached columns of one JSON spec, stored in the cache folder.

    >>> SpecCache.of("no_such_spec.json", None, None) is None
    True
    """

    def __init__(
        self, folder: Path, location: str, base: str | None, cached: CachedSpecs = CACHED_SPECS
    ) -> None:
        self._cached = cached
        self._location = Path(location).expanduser()
        # Everything that determines the columns, apart from the content of the JSON.
        asked = [
            location,
            str(self._location.absolute()),
            base,
            # The columns are in the machine's byte order, and machines of two orders may share a
            # home folder.
            sys.byteorder,
            # A version with fewer digests stored the others as keys that are not checked.
            *DIGESTS,
            os.environ.get("HOME"),
        ]
        name = hashlib.sha256(repr(asked).encode("utf-8", "surrogateescape")).hexdigest()
        self._folder = folder
        self._path = folder / f"{name[:32]}{_SUFFIX}"
        self._identity = self._look()

    @classmethod
    def of(
        cls,
        location: str,
        base: str | None,
        cache_dir: str | os.PathLike[str] | None,
        cached: CachedSpecs = CACHED_SPECS,
    ) -> SpecCache | None:
        """Return the cache of a JSON spec; None if the spec is small or not a local file.

        Args:
            location: Path of the JSON.
            base: Folder or URL against which relative URLs are resolved; None for the JSON's own.
            cache_dir: The cache folder; None for the default one.
            cached: Which specs are cached.
        """
        try:
            if os.stat(os.path.expanduser(location)).st_size < cached.least_nbytes:  # noqa: PTH111, PTH116
                return None
            return cls(choose_folder(cache_dir) / SPECS_FOLDER, location, base, cached)
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
        from wids.specs.shardtable import of_arrays

        try:
            check_folder(self._folder, shared=False)
            about, columns = read_arrays(self._path)
            if about["identity"] != self._identity:
                return None
            named = {name: about[name] for name in ("name", "base", "header", "catalogue")}
            return {"shards": of_arrays(about, columns), **named}
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            logger.debug("%s: parsed again: %s", self._location, error)
            return None

    def save(self, spec: DatasetSpec) -> None:
        """Store the columns of the spec, unless the JSON has changed; failures are only logged."""
        from wids.specs.shardtable import as_arrays

        try:
            now = self._look()
            settled = time.time_ns() - max(now[-2:]) > self._cached.settled_ns
            if now != self._identity or not settled:
                return
            check_folder(self._folder, shared=False)
            about, columns = as_arrays(spec.shards)
            about |= {"identity": now, "name": spec.name, "base": spec.base, "header": spec.header}
            about["catalogue"] = spec.catalogue
            write_arrays(self._path, about, columns)
            files = sorted(
                self._folder.glob(f"*{_SUFFIX}"), key=lambda path: path.stat().st_mtime_ns
            )
            for path in files[: -self._cached.most_files]:
                path.unlink(missing_ok=True)
        except (OSError, ValueError, TypeError) as error:
            logger.debug("%s: its columns are not cached: %s", self._location, error)
