"""Cache folder: its path, its safety, and the files of an entry in it."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import stat
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from wids.base.files import new_part_path, parse_part_name, write_atomically
from wids.base.hashing import DIGESTS
from wids.base.urls import base_name
from wids.caching.unpack import plain_name
from wids.errors import CacheError

__all__ = [
    "KEPT_SPECS",
    "SPECS_FOLDER",
    "Entry",
    "Record",
    "check_folder",
    "choose_folder",
    "claim_part",
    "last_written",
    "open_cached",
    "parts_of",
]

SPECS_FOLDER = "specs"  # where large specs are kept, below the cache folder
KEPT_SPECS = "[0-9a-f]" * 32 + ".columns"  # matches the names of the files there
_ENVIRONMENT = "WIDS_CACHE"
_MAX_RECORD_NBYTES = 1 << 20
_ALGORITHMS = {"crc32", *(kind.algorithm for kind in DIGESTS.values())}
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def open_cached(path: Path) -> int:
    """Open a file of the folder for reading, without following links or waiting for a pipe.

    Raises:
        OSError: It is not there, is a link, or may not be read.
    """
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)


def choose_folder(cache_dir: str | os.PathLike[str] | None) -> Path:
    """Return the cache folder: the argument, else `WIDS_CACHE`, else the user's cache folder.

    >>> choose_folder("/data/cache")
    PosixPath('/data/cache')
    """
    chosen = cache_dir or os.environ.get(_ENVIRONMENT)
    if chosen:
        return Path(chosen).expanduser().absolute()
    import platformdirs

    return Path(platformdirs.user_cache_dir("wids"))


def check_folder(folder: Path, *, shared: bool) -> None:
    """Make the folder if it is missing, and refuse one that another user could write to.

    Args:
        folder: An absolute path.
        shared: Trust everyone who can write there, and let all users write to a new folder.

    Raises:
        CacheError: It cannot be made, is no folder, or is not safe; says what to do.
    """
    try:
        if not folder.exists():
            _make_folder(folder, 0o777 if shared else 0o700)
        status = folder.stat()
    except OSError as error:
        raise CacheError(
            f"{folder}: cannot be used as cache folder ({error.strerror}); set cache_dir or "
            f"{_ENVIRONMENT} to a folder you can write to"
        ) from error
    if not stat.S_ISDIR(status.st_mode):
        raise CacheError(f"{folder}: is no folder; set cache_dir or {_ENVIRONMENT} to one")
    if not shared:
        _refuse_unsafe(folder, status)


def _make_folder(folder: Path, mode: int) -> None:
    # Whatever the umask: a parent that all users can write to would make the cache unsafe.
    for parent in reversed([each for each in folder.parents if not each.exists()]):
        parent.mkdir(mode=0o755, exist_ok=True)
    folder.mkdir(mode=mode, exist_ok=True)


def _refuse_unsafe(folder: Path, status: os.stat_result) -> None:
    remedy = f"set cache_dir or {_ENVIRONMENT} elsewhere, or trust everyone with shared=True"
    if status.st_uid not in (os.geteuid(), 0):
        raise CacheError(
            f"{folder}: belongs to user {status.st_uid}, not to you ({os.geteuid()}), who could "
            f"exchange any shard in it; {remedy}"
        )
    if status.st_mode & _OTHERS_WRITE:
        raise CacheError(
            f"{folder}: other users can write to it (mode {stat.S_IMODE(status.st_mode):04o}) and "
            f"exchange any shard in it; run chmod go-w on it, {remedy}"
        )
    # The sticky bit, as on /tmp, lets only the owner rename what lies there.
    for parent in folder.parents:
        mode = parent.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise CacheError(
                f"{folder}: any user can rename it, since {parent} is writable for all "
                f"(mode {stat.S_IMODE(mode):04o}); run chmod o-w or +t on that, or {remedy}"
            )


@dataclass(frozen=True)
class Record:
    """Size, date, origin and digests of a shard in the cache, kept beside it as JSON.

    Attributes:
        size: Bytes of the file.
        mtime_ns: Its modification time; both must agree, or the file is not the one recorded.
        url: Where it came from, without user and query.
        digests: Algorithm to hexadecimal digest of the file.
        boot: In which boot of which machine it was written, for as long as the disk may not have
            it; "" from then on.
    """

    size: int
    mtime_ns: int
    url: str
    digests: dict[str, str]
    boot: str

    def is_sound(self) -> bool:
        """Return whether the fields are of their types, and the digests of known algorithms."""
        kinds: dict[str, type] = {"size": int, "mtime_ns": int, "boot": str, "digests": dict}
        typed = all(isinstance(getattr(self, name), kind) for name, kind in kinds.items())
        return typed and self.digests.keys() <= _ALGORITHMS

    def renewed(self, status: os.stat_result) -> Record:
        """Return the record of the same content with the date of a copy."""
        return replace(self, mtime_ns=status.st_mtime_ns, boot="")

    def matches(self, status: os.stat_result, boot: str) -> bool:
        """Return whether the file must still be the recorded one.

        Args:
            status: The file now.
            boot: The present boot of this machine.
        """
        same = (self.size, self.mtime_ns) == (status.st_size, status.st_mtime_ns)
        return same and self.boot in ("", boot)


@dataclass(frozen=True)
class Entry:
    """Entry of the cache: a shard, its record, and the other files beside it.

    When a shard was last used is the modification time of its record; only this class reads and
    sets it.

    Attributes:
        folder: The cache folder.
        name: File name: a digest, a dash, a readable part.

    >>> Entry.of(Path("/c"), "https://host/a.tar?x=1", "").name
    '58de3aec4d86e77b3e26c7f571dfef93-a.tar'
    """

    folder: Path
    name: str

    @classmethod
    def of(cls, folder: Path, source: str, version: str) -> Entry:
        """Return the entry of a source, such as a URL, in a version, such as a digest."""
        # The whole URL, as two folders may hold shards of one name; a zero byte, which none has,
        # ends it.
        key = hashlib.sha256(f"{source}\0{version}".encode(errors="surrogatepass")).hexdigest()
        return cls(folder, f"{key[:32]}-{plain_name(base_name(source))}")

    @property
    def path(self) -> Path:
        """The shard."""
        return self.folder / self.name

    @property
    def record_path(self) -> Path:
        """Its record."""
        return self.folder / f"{self.name}.ok"

    @property
    def pin_path(self) -> Path:
        """An empty file that keeps the shard from eviction."""
        return self.folder / f"{self.name}.pin"

    @property
    def lock_path(self) -> Path:
        """The lock file for fetching it, one of 4096."""
        return self.folder / "locks" / f"{self.name[:3]}.lock"

    @property
    def index_lock_path(self) -> Path:
        """The lock file for making its index, one of 4096."""
        return self.folder / "locks" / f"{self.name[:3]}-index.lock"

    @property
    def last_used(self) -> float | None:
        """When the shard was last given out, in seconds since 1970; None without a record."""
        try:
            return self.record_path.stat().st_mtime
        except OSError:
            return None

    def mark_used(self) -> bool:
        """Count the shard as used now; False where there is no record, or it cannot be written."""
        # The clock is read here: the kernel's date of "now" stands still for some milliseconds, and
        # who marks several means an order.
        now = time.time_ns()
        try:
            os.utime(self.record_path, ns=(now, now))
        except OSError:
            return False
        return True

    def load_record(self) -> Record | None:
        """Return the record; None where there is no readable one."""
        try:
            # JSON and no pickle: whoever can write here must not be able to run code. What is no
            # file is not waited for.
            with os.fdopen(open_cached(self.record_path), "rb") as stream:
                fields = json.loads(stream.read(_MAX_RECORD_NBYTES))
            record = Record(**{name: fields[name] for name in Record.__dataclass_fields__})
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None
        return record if record.is_sound() else None

    def save_record(self, record: Record, *, used: bool) -> None:
        """Write the record.

        Args:
            record: The record.
            used: Count the shard as used now; without, its last use stays as it was.

        Raises:
            OSError: It cannot be written.
        """
        last_used = None if used else self.last_used
        write_atomically(self.record_path, json.dumps(asdict(record)).encode(), mtime=last_used)


def parts_of(target: Path) -> list[Path]:
    """Return the partial files that processes, living or dead, have begun for a file."""
    return sorted(target.parent.glob(f".{glob.escape(target.name)}.*.part"))


def last_written(target: Path) -> float:
    """Return when a partial file was last written to, in seconds since 1970."""
    times = [0.0]
    for part in parts_of(target):
        with suppress(OSError):
            times.append(part.stat().st_mtime)
    return max(times)


def claim_part(target: Path) -> Path:
    """Return the path of a partial file, which may hold what a dead process left.

    Only one process can take a part over: it is renamed first, and who comes second finds nothing.
    """
    mine = new_part_path(target)
    for part in parts_of(target):
        name = parse_part_name(part.name)
        if name is None or not name.is_orphaned:
            continue
        state = part.with_name(part.name + ".json")
        with suppress(OSError):
            if mine.exists():  # one is enough
                part.unlink()
                state.unlink()
            else:
                part.rename(mine)
                state.rename(mine.with_name(mine.name + ".json"))
    return mine
