"""Eviction of the least recently used shards."""

from __future__ import annotations

import os
import re
import time
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from wids.base.files import file_lock, parse_part_name, write_atomically
from wids.base.hashing import hash_file
from wids.base.system import lock_exclusively
from wids.caching.cachefolder import JOINS_FOLDER, KEPT_FILES, Entry, open_cached
from wids.fetching.partfile import (
    PIECE_NBYTES,
    STATE_SUFFIX,
    can_resume,
    state_path,
    stated_version,
)
from wids.log import logger

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from wids.caching.cachefolder import Record

__all__ = [
    "CachedShard",
    "evict",
    "evictable_nbytes",
    "exceeded_bound",
    "list_shards",
    "room_for",
    "room_for_file",
    "shrink",
    "sweep",
]

_FILE = re.compile(r"([0-9a-f]{32})-.")
_NOTES = (".ok", ".pin")  # files about a shard, useless without it
_MARGIN_NBYTES = 16 << 10  # for records of a few hundred bytes, which other processes may write
_LOCK_TIMEOUT_SECONDS = 30.0
_RESUME_SECONDS = 3600.0  # how long a dead process's part is kept for resumption
_FOREIGN_SECONDS = 24 * 3600.0  # for parts of other machines, whose processes cannot be checked


@dataclass
class CachedShard:
    """A shard in the cache folder, with the files beside it.

    Attributes:
        path: The shard; for a shard outside the folder, its sidecar.
        nbytes: Total size of all its files.
        last_used: Time of its last use, in seconds since 1970.
        files: All its files, the shard first.
    """

    path: Path
    nbytes: int = 0
    last_used: float = 0.0
    files: list[Path] = field(default_factory=list)

    @property
    def entry(self) -> Entry:
        """Its entry in the cache."""
        return Entry(self.path.parent, self.path.name)

    @property
    def pinned(self) -> bool:
        """Whether it may not be evicted."""
        return self.entry.pin_path.exists()

    @property
    def record(self) -> Record | None:
        """Its record, or None if there is none."""
        return self.entry.load_record()

    def is_whole(self) -> bool:
        """Return whether the shard, read again, still has the recorded digests."""
        record = self.record
        if record is None:
            return not self.path.name.endswith(".tar")  # a sidecar of a shard that lies elsewhere
        try:
            return hash_file(self.path, record.digests) == record.digests
        except OSError:
            return False


def list_shards(folder: Path) -> list[CachedShard]:
    """Return the shards in a cache folder, the least recently used first; none if it is missing."""
    if not folder.is_dir():
        return []
    groups: dict[str, CachedShard] = {}
    for path, status in _files(folder):
        match = _FILE.match(path.name)
        if match is None:
            continue
        shard = groups.setdefault(match[1], CachedShard(path))
        if len(path.name) < len(shard.path.name):
            shard.path = path
        shard.files.append(path)
        shard.nbytes += status.st_size
        shard.last_used = max(shard.last_used, status.st_mtime)
    for shard in groups.values():
        shard.files.sort(key=lambda path: len(path.name))
        if (last_used := shard.entry.last_used) is not None:
            shard.last_used = last_used
    held = []
    for shard in groups.values():
        first, *others = shard.files
        # A record or pin without its shard takes no space; `sweep` removes it later.
        if first.suffix not in _NOTES or any(each.name.startswith(first.name) for each in others):
            held.append(shard)
    return sorted(held, key=lambda shard: shard.last_used)


def _kept_joins(folder: Path) -> list[CachedShard]:
    """Return the files that joins keep, each by itself; the date of a file is its last use."""
    joins = folder / JOINS_FOLDER
    if not joins.is_dir():
        return []
    return [
        CachedShard(path, status.st_size, status.st_mtime, [path])
        for path, status in _files(joins)
        if fnmatchcase(path.name, KEPT_FILES[JOINS_FOLDER])
    ]


def room_for(nbytes: int) -> int:
    """Return the bytes to reserve for a download that has received `nbytes`.

    The reservation grows with the received bytes: if the size that a server states were reserved,
    a false size could evict every shard.

    >>> room_for(0) >> 10, room_for(100 << 20) >> 20
    (256, 150)
    """
    # The reservation is proportional, so that a large shard makes room a few times and not once per
    # megabyte. It has at least one piece, so that room is made before the bytes are written.
    return nbytes + max(nbytes // 2, PIECE_NBYTES)


def evictable_nbytes(folder: Path, max_nbytes: int, wanted_nbytes: int) -> int:
    """Return the number of bytes that eviction would free for a file of a given size.

    Args:
        folder: The cache folder.
        max_nbytes: The bound of the folder.
        wanted_nbytes: Size of the file.
    """
    every = [*list_shards(folder), *_kept_joins(folder)]
    held = sum(shard.nbytes for shard in every if not shard.pinned)
    return min(held, max(0, held + wanted_nbytes - max_nbytes))


def shrink(folder: Path, max_nbytes: int, *, spared: Path | None = None) -> int:
    """Evict shards, the least recently used first, until the folder is within a bound.

    Pinned shards are kept, and so are those that a process is about to open. If these, or running
    downloads, exceed the bound, `exceeded_bound` returns it until it holds again.

    Args:
        folder: The cache folder.
        max_nbytes: The bound, which includes the reservations of running downloads.
        spared: A shard that is not evicted.

    Returns:
        Bytes by which the bound is still exceeded; 0 if it holds.
    """
    with _turn(folder):
        return _shrink(folder, max_nbytes, spared=spared)


@contextmanager
def room_for_file(folder: Path, max_nbytes: int, nbytes: int) -> Iterator[None]:
    """Evict shards to make room for a small file that the `with` block writes.

    Args:
        folder: The cache folder.
        max_nbytes: The bound of the folder.
        nbytes: Size of the file.
    """
    with _turn(folder):
        excess = _shrink(folder, max_nbytes, coming_nbytes=nbytes)
        yield
        if excess:  # there was not enough room, so the new file may be evicted at once
            _shrink(folder, max_nbytes)


def exceeded_bound(folder: Path) -> int | None:
    """Return the bound that the folder currently exceeds, or None if its bounds hold.

    The end of a read lease calls this, and then evicts what could not be evicted before.
    """
    try:
        return int(_mark_path(folder).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _worth(entry: CachedShard) -> float:
    """Return a sort key: the entry with the least is evicted first."""
    return entry.last_used


def _shrink(
    folder: Path, max_nbytes: int, *, coming_nbytes: int = 0, spared: Path | None = None
) -> int:
    # Parts are listed first: one that is published in between is counted twice rather than missed.
    reserved, orphans = _parts(folder)
    entries = sorted([*orphans, *list_shards(folder), *_kept_joins(folder)], key=_worth)
    bound = max(0, max_nbytes - _MARGIN_NBYTES)
    excess = sum(entry.nbytes for entry in entries) + reserved + coming_nbytes - bound
    # Excess that running downloads or leases cause is temporary: it is noted, so that the process
    # that ends its lease evicts the rest.
    passing = reserved > 0
    for entry in entries:
        if excess <= 0:
            break
        if entry.path == spared or entry.pinned:
            continue
        if evict(entry):
            logger.info("evicted %s (%d bytes)", entry.path, entry.nbytes)
            excess -= entry.nbytes
        else:
            passing = True
    excess = max(0, excess - (max_nbytes - bound))
    exceeded, marked = excess > 0 and passing, exceeded_bound(folder)
    with suppress(OSError):  # no folder of locks: the next download restores the bound
        if exceeded and (marked is None or marked > max_nbytes):
            write_atomically(_mark_path(folder), str(max_nbytes).encode())
        elif marked is not None and not exceeded and max_nbytes <= marked:
            _mark_path(folder).unlink()
    return excess


def _mark_path(folder: Path) -> Path:
    return folder / "locks" / "exceeded"


def _parts(folder: Path) -> tuple[int, list[CachedShard]]:
    """Return the bytes reserved by running downloads, and the parts of dead processes."""
    reserved = 0
    orphans = []
    for path, status in _files(folder):
        name = parse_part_name(path.name)
        if name is None:
            continue
        if name.is_orphaned:
            files = [path, state_path(path)]
            orphans.append(CachedShard(path, status.st_size, status.st_mtime, files))
        else:
            version, room = stated_version(path), room_for(status.st_size)
            stated = 0 if version is None else version.nbytes  # without one, no download yet
            reserved += max(status.st_size, room if stated is None else min(stated, room))
    return reserved, orphans


def evict(shard: CachedShard, *, leased: bool = False) -> bool:
    """Remove a shard and the files beside it; return False if a process is about to open it.

    A process that has the shard mapped can still read it: the space is freed when the last such
    process unmaps it.

    Args:
        shard: The shard.
        leased: Remove it even if a process is about to open it.
    """
    try:
        descriptor = open_cached(shard.files[0])
    except OSError:
        return False
    try:
        # A reader holds a read lease, a shared lock, until it has opened the shard.
        if not leased:
            lock_exclusively(descriptor)
        # Another process may have replaced the file since this one opened it.
        if os.path.samestat(os.fstat(descriptor), shard.files[0].stat()):
            for path in shard.files:
                path.unlink(missing_ok=True)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def sweep(folder: Path, max_age_seconds: float = _RESUME_SECONDS) -> int:
    """Remove what killed processes left: parts that were not resumed, records without a shard.

    Args:
        folder: The cache folder.
        max_age_seconds: Age from which the part of a dead process is removed; a day for processes
            of other machines, which cannot be checked.

    Returns:
        Number of removed files.
    """
    removed = 0
    now = time.time()
    for path, status in list(_files(folder)):
        age = now - status.st_mtime
        part = path.with_name(path.name.removesuffix(STATE_SUFFIX))
        name = parse_part_name(part.name)
        # A partial file is kept as long as its download may continue; its state file never
        # outlives it. A record or pin is kept for a while, since a shard is published after it.
        if name is not None:
            alone = not part.exists()
            wanted = can_resume(stated_version(part)) and not path.with_name(name.target).exists()
            patience = max_age_seconds if wanted else 0.0
            stale = alone or age >= (patience if name.is_orphaned else _FOREIGN_SECONDS)
        else:
            lonely = path.suffix in _NOTES and not path.with_suffix("").exists()
            stale = lonely and age >= max_age_seconds
        if stale:
            with suppress(OSError):
                path.unlink()
                removed += 1
    return removed


def _files(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):  # gone since it was listed
                if entry.is_file(follow_symlinks=False):
                    yield folder / entry.name, entry.stat(follow_symlinks=False)


def _turn(folder: Path) -> AbstractContextManager[None]:
    """Return the eviction lock; without working locks, more may be evicted than necessary."""
    lock = folder / "locks" / "evict.lock"
    return file_lock(lock, str(folder), patience_seconds=_LOCK_TIMEOUT_SECONDS)
