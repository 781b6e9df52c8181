"""Eviction of the least recently used shards."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import time
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from wids.base.files import parse_part_name, write_atomically
from wids.base.hashing import hash_file
from wids.base.locks import file_lock
from wids.caching.cachefolder import Entry, open_cached
from wids.fetching.partfile import PIECE_NBYTES

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

_log = logging.getLogger(__name__)
_FILE = re.compile(r"([0-9a-f]{32})-.")
_STATE_SUFFIX = ".json"  # of the file with the state of a part, beside it
_NOTES = (".ok", ".pin")  # files about a shard, worth nothing without it
_MARGIN_NBYTES = 16 << 10  # for records of a few hundred bytes, which come and go meanwhile
_LOCK_TIMEOUT_SECONDS = 30.0
_RESUME_SECONDS = 3600.0  # how long a dead process's part waits for someone to go on with it
_FOREIGN_SECONDS = 24 * 3600.0  # on another machine nobody can tell whether its maker lives


@dataclass
class CachedShard:
    """A shard in the cache folder, with the files beside it.

    Attributes:
        path: The shard; without one, the sidecar of a shard that lies elsewhere.
        nbytes: Of all its files.
        last_used: When it was last given out, in seconds since 1970.
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
        """Its record; None where there is none."""
        return self.entry.load_record()

    def is_whole(self) -> bool:
        """Read the shard again; return whether its digest is still the recorded one."""
        record = self.record
        if record is None:
            return not self.path.name.endswith(".tar")  # a sidecar of a shard that lies elsewhere
        try:
            return hash_file(self.path, record.digests) == record.digests
        except OSError:
            return False


def list_shards(folder: Path) -> list[CachedShard]:
    """Return the shards in a cache folder, the least recently used first."""
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
    # A record or a pin that outlived its shard by a moment holds nothing; `sweep` takes it.
    held = [shard for shard in groups.values() if not _is_left_over(shard)]
    return sorted(held, key=lambda shard: shard.last_used)


def _is_left_over(shard: CachedShard) -> bool:
    """Return whether only a record or pin is left of a shard."""
    first, *others = shard.files
    return first.suffix in _NOTES and not any(path.name.startswith(first.name) for path in others)


def room_for(nbytes: int) -> int:
    """Return how many bytes to reserve for a download, from how many have come.

    Room is made as bytes come: the size that a server states is a claim, by which it could have
    every shard evicted.

    >>> room_for(0) >> 10, room_for(100 << 20) >> 20
    (256, 150)
    """
    # In proportion, so that a large shard makes room a few times and not once each megabyte. At
    # least one piece, so that room is always made before the bytes that take it.
    return nbytes + max(nbytes // 2, PIECE_NBYTES)


def evictable_nbytes(folder: Path, max_nbytes: int, wanted_nbytes: int) -> int:
    """Return how many bytes eviction would free for a file of a size.

    Args:
        folder: The cache folder.
        max_nbytes: The bound of the folder.
        wanted_nbytes: Size of the file.
    """
    held = sum(shard.nbytes for shard in list_shards(folder) if not shard.pinned)
    return min(held, max(0, held + wanted_nbytes - max_nbytes))


def shrink(folder: Path, max_nbytes: int, *, spared: Path | None = None) -> int:
    """Evict shards, the least recently used first, until the folder is within a bound.

    Pinned shards stay, and those that a process is about to open. Where these, or downloads under
    way, keep the bound from being held, `exceeded_bound` returns it until it is held.

    Args:
        folder: The cache folder.
        max_nbytes: The bound, with room for the downloads under way.
        spared: A shard that stays.

    Returns:
        Bytes by which the bound is still exceeded; 0 if it holds.
    """
    with _turn(folder):
        return _shrink(folder, max_nbytes, spared=spared)


@contextmanager
def room_for_file(folder: Path, max_nbytes: int, nbytes: int) -> Iterator[None]:
    """Make room for a small file that the block writes, in no process else meanwhile.

    Args:
        folder: The cache folder.
        max_nbytes: The bound of the folder.
        nbytes: Size of the file.
    """
    with _turn(folder):
        excess = _shrink(folder, max_nbytes, coming_nbytes=nbytes)
        yield
        if excess:  # larger than the bound, it goes again
            _shrink(folder, max_nbytes)


def exceeded_bound(folder: Path) -> int | None:
    """Return the bound that a folder was last left beyond; None where it holds.

    Who ends a lease asks, and evicts what could not be evicted before.
    """
    try:
        return int(_mark_path(folder).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _worth(entry: CachedShard) -> float:
    """Return what keeps a shard: those with the least are evicted first."""
    return entry.last_used


def _shrink(
    folder: Path, max_nbytes: int, *, coming_nbytes: int = 0, spared: Path | None = None
) -> int:
    # Parts first: one that is published meanwhile is then counted twice, never missed.
    reserved, orphans = _parts(folder)
    entries = sorted([*orphans, *list_shards(folder)], key=_worth)
    bound = max(0, max_nbytes - _MARGIN_NBYTES)
    excess = sum(entry.nbytes for entry in entries) + reserved + coming_nbytes - bound
    passing = reserved > 0
    for entry in entries:
        if excess <= 0:
            break
        if entry.path == spared or entry.pinned:
            continue
        if evict(entry):
            _log.info("evicted %s (%d bytes)", entry.path, entry.nbytes)
            excess -= entry.nbytes
        else:
            passing = True
    excess = max(0, excess - (max_nbytes - bound))
    _mark_exceeded(folder, max_nbytes, exceeded=excess > 0 and passing)
    return excess


def _mark_exceeded(folder: Path, max_nbytes: int, *, exceeded: bool) -> None:
    """Record that a bound is exceeded for now, or that it is held again."""
    marked = exceeded_bound(folder)
    with suppress(OSError):  # a folder without locks: the next download makes up for it
        if exceeded and (marked is None or marked > max_nbytes):
            write_atomically(_mark_path(folder), str(max_nbytes).encode())
        elif marked is not None and not exceeded and max_nbytes <= marked:
            _mark_path(folder).unlink()


def _mark_path(folder: Path) -> Path:
    return folder / "locks" / "exceeded"


def _parts(folder: Path) -> tuple[int, list[CachedShard]]:
    """Return the bytes that downloads have or will have soon, and the parts of dead processes."""
    reserved = 0
    orphans = []
    for path, status in _files(folder):
        name = parse_part_name(path.name)
        if name is None:
            continue
        if name.is_orphaned:
            files = [path, path.with_name(path.name + _STATE_SUFFIX)]
            orphans.append(CachedShard(path, status.st_size, status.st_mtime, files))
        else:
            stated = _stated_nbytes(path)
            reserved += int(max(status.st_size, min(stated, room_for(status.st_size))))
    return reserved, orphans


def evict(shard: CachedShard, *, leased: bool = False) -> bool:
    """Remove a shard and the files beside it; return False if a process is about to open it.

    A process that has it mapped keeps it: the space is freed when the last of them lets go.

    Args:
        shard: The shard.
        leased: Remove it even if a process is about to open it.
    """
    try:
        descriptor = open_cached(shard.files[0])
    except OSError:
        return False
    try:
        # Readers hold a lease, a shared lock, from when they are given a shard until they open it.
        if not leased:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Another process may have put a new file there since this one was opened.
        if os.path.samestat(os.fstat(descriptor), shard.files[0].stat()):
            for path in shard.files:
                path.unlink(missing_ok=True)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def sweep(folder: Path, max_age_seconds: float = _RESUME_SECONDS) -> int:
    """Remove what killed processes left: parts that nobody resumed, records without a shard.

    Args:
        folder: The cache folder.
        max_age_seconds: Age from which a dead process's part is removed; where it cannot be known
            whether its process lives, that is a day.

    Returns:
        How many files were removed.
    """
    removed = 0
    now = time.time()
    for path, status in list(_files(folder)):
        age = now - status.st_mtime
        part = path.with_name(path.name.removesuffix(_STATE_SUFFIX))
        name = parse_part_name(part.name)
        if name is not None:
            alone = not part.exists()
            wanted = _is_resumable(part, path.with_name(name.target))
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


def _is_resumable(part: Path, target: Path) -> bool:
    """Return whether a partial file can be resumed, and its file is not there yet."""
    state = _state(part) or {}
    return any(value is not None for value in state.values()) and not target.exists()


def _files(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):  # gone since it was listed
                if entry.is_file(follow_symlinks=False):
                    yield folder / entry.name, entry.stat(follow_symlinks=False)


def _stated_nbytes(part: Path) -> float:
    """Return the size that a server states for a download; infinity where it states none."""
    state = _state(part)
    if state is None:
        return 0  # not begun, or no download
    size = state.get("size")
    return size if isinstance(size, int) else float("inf")


def _state(part: Path) -> dict[str, Any] | None:
    """Return what is noted of a download beside its part; None where there is nothing readable."""
    with suppress(OSError, ValueError):
        state = json.loads(part.with_name(part.name + _STATE_SUFFIX).read_text(encoding="utf-8"))
        return state if isinstance(state, dict) else None
    return None


def _turn(folder: Path) -> AbstractContextManager[None]:
    """Let one process at a time evict; without locks, more may be evicted than need be."""
    lock = folder / "locks" / "evict.lock"
    return file_lock(lock, str(folder), patience_seconds=_LOCK_TIMEOUT_SECONDS)
