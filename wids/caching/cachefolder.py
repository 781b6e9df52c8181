"""Cache folder: choice of its path, checks of its permissions, and the files of an entry."""

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

from wids.base.arguments import check_path
from wids.base.files import new_part_path, parse_part_name, write_atomically
from wids.base.hashing import DIGESTS
from wids.base.urls import base_name, display_url, plain_name, resembles_url, without_secrets
from wids.errors import CacheError
from wids.fetching.partfile import state_path

__all__ = [
    "JOINS_FOLDER",
    "KEPT_FILES",
    "PACKS_FOLDER",
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

SPECS_FOLDER = "specs"  # subfolder of the cache folder for large specs
JOINS_FOLDER = "joins"  # for files of the catalogue
PACKS_FOLDER = "packs"  # for the tables of remote packs
_DIGEST = "[0-9a-f]" * 32
# The names of the files there, as patterns.
KEPT_FILES = {
    SPECS_FOLDER: f"{_DIGEST}.columns",
    JOINS_FOLDER: f"{_DIGEST}.*",
    PACKS_FOLDER: f"{_DIGEST}.table",
}
_ENVIRONMENT = "WIDS_CACHE"
_MAX_RECORD_NBYTES = 1 << 20
_ALGORITHMS = {"crc32", *(kind.algorithm for kind in DIGESTS.values())}
_KINDS_IN_RECORD = {
    "size": int,
    "mtime_ns": int,
    "boot": str,
    "digests": dict,
    "validator": str,
    "weak_etag": str,
}
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def open_cached(path: Path) -> int:
    """Open a file of the folder and return its descriptor; follow no link, wait for no pipe.

    Raises:
        OSError: The file does not exist, is a link, or may not be read.
    """
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)


def choose_folder(cache_dir: str | os.PathLike[str] | None) -> Path:
    """Return the cache folder: the argument, else `WIDS_CACHE`, else the user's cache folder.

    Raises:
        CacheError: It is a URL.
        TypeError: The argument is no path.

    >>> choose_folder("/data/cache")
    PosixPath('/data/cache')
    """
    given = check_path("cache_dir", cache_dir) if cache_dir else None
    chosen = given or os.environ.get(_ENVIRONMENT)
    if chosen and resembles_url(chosen):
        raise CacheError(
            f"{display_url(chosen)}: is a URL; set cache_dir or {_ENVIRONMENT} to a "
            "folder of this machine"
        )
    if chosen:
        return Path(chosen).expanduser().absolute()
    import platformdirs

    return Path(platformdirs.user_cache_dir("wids"))


def check_folder(folder: Path, *, shared: bool) -> None:
    """Create the folder if it is missing, and raise if another user could write to it.

    Args:
        folder: An absolute path.
        shared: Trust all users who can write to the folder, and let all users write to a new one.

    Raises:
        CacheError: It cannot be created, is not a folder, or is not safe; the message says what to
            do.
    """
    try:
        if not folder.exists():
            # The mode is explicit, since a lax umask would let all users write to a parent folder
            # and exchange the cache.
            for parent in reversed([each for each in folder.parents if not each.exists()]):
                parent.mkdir(mode=0o755, exist_ok=True)
            folder.mkdir(mode=0o777 if shared else 0o700, exist_ok=True)
        status = folder.stat()
    except OSError as error:
        raise CacheError(
            f"{display_url(str(folder))}: cannot be used as cache folder ({error.strerror}); "
            f"set cache_dir or {_ENVIRONMENT} to a folder you can write to"
        ) from without_secrets(error)
    if not stat.S_ISDIR(status.st_mode):
        shown = display_url(str(folder))
        raise CacheError(f"{shown}: is not a folder; set cache_dir or {_ENVIRONMENT} to one")
    if not shared:
        _refuse_unsafe(folder, status)


def _refuse_unsafe(folder: Path, status: os.stat_result) -> None:
    shown = display_url(str(folder))
    remedy = f"set cache_dir or {_ENVIRONMENT} elsewhere, or trust everyone with shared=True"
    user = os.geteuid()
    if status.st_uid not in (user, 0):
        raise CacheError(
            f"{shown}: belongs to user {status.st_uid}, not to you ({user}), who could "
            f"exchange any shard in it; {remedy}"
        )
    if status.st_mode & _OTHERS_WRITE:
        raise CacheError(
            f"{shown}: other users can write to it (mode {stat.S_IMODE(status.st_mode):04o}) and "
            f"exchange any shard in it; run chmod go-w on it, {remedy}"
        )
    # The sticky bit, as on /tmp, lets only its owner rename an entry of the folder.
    for parent in folder.parents:
        mode = parent.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise CacheError(
                f"{shown}: any user can rename it, since {display_url(str(parent))} is writable "
                f"for all (mode {stat.S_IMODE(mode):04o}); run chmod o-w or +t on that, or {remedy}"
            )


@dataclass(frozen=True)
class Record:
    """Size, date, origin and digests of a shard in the cache, stored beside it as JSON.

    Attributes:
        size: Bytes of the file.
        mtime_ns: Modification time; if size or time differ, the file is not the recorded one.
        url: URL of its origin, without user and query.
        digests: Hexadecimal digests of the file, by algorithm.
        boot: Machine and boot that wrote the file; "" once the file is known to be on disk.
        validator: Strong ETag or date that the server sent; "" if it sent none.
        weak_etag: Weak ETag that it sent; "" if it sent none.
    """

    size: int
    mtime_ns: int
    url: str
    digests: dict[str, str]
    boot: str
    validator: str = ""
    weak_etag: str = ""

    def renewed(self, status: os.stat_result) -> Record:
        """Return a copy of the record with the date in `status`, for a copy of the file."""
        return replace(self, mtime_ns=status.st_mtime_ns, boot="")

    def matches(self, status: os.stat_result, boot: str) -> bool:
        """Return whether a file is known to be the recorded one.

        Args:
            status: Current status of the file.
            boot: The present boot of this machine.
        """
        same = (self.size, self.mtime_ns) == (status.st_size, status.st_mtime_ns)
        return same and self.boot in ("", boot)


@dataclass(frozen=True)
class Entry:
    """Entry of the cache: a shard, its record, and the other files beside it.

    The modification time of the record is the time of the shard's last use; only this class reads
    and sets it.

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
        # The digest is of the whole URL, since two folders may have shards of the same name. A zero
        # byte separates URL and version, since no URL contains one.
        whole = f"{source}\0{version}".encode(errors="surrogatepass")
        digest = hashlib.sha256(whole).hexdigest()[:32]
        return cls(folder, f"{digest}-{plain_name(base_name(source))}")

    @property
    def path(self) -> Path:
        """Path of the shard."""
        return self.folder / self.name

    @property
    def record_path(self) -> Path:
        """Path of its record."""
        return self.folder / f"{self.name}.ok"

    @property
    def pin_path(self) -> Path:
        """Path of an empty file that protects the shard from eviction."""
        return self.folder / f"{self.name}.pin"

    @property
    def lock_path(self) -> Path:
        """Path of the lock file for fetching the shard, one of 4096."""
        return self.folder / "locks" / f"{self.name[:3]}.lock"

    @property
    def index_lock_path(self) -> Path:
        """Path of the lock file for building its index, one of 4096."""
        return self.folder / "locks" / f"{self.name[:3]}-index.lock"

    @property
    def last_used(self) -> float | None:
        """Time of the shard's last use, in seconds since 1970; None without a record."""
        try:
            return self.record_path.stat().st_mtime
        except OSError:
            return None

    def mark_used(self) -> bool:
        """Set the last use to now; return False if the record is missing or not writable."""
        # The kernel's "now" advances in steps of milliseconds, which would lose the order of shards
        # that are marked in quick succession.
        now = time.time_ns()
        try:
            os.utime(self.record_path, ns=(now, now))
        except OSError:
            return False
        return True

    def load_record(self) -> Record | None:
        """Return the record, or None if there is no readable one."""
        try:
            # JSON, not pickle: whoever can write here must not be able to run code. `open_cached`
            # does not block on a pipe.
            with os.fdopen(open_cached(self.record_path), "rb") as stream:
                fields = json.loads(stream.read(_MAX_RECORD_NBYTES))
            fields = {"validator": "", "weak_etag": ""} | fields  # older records have none
            record = Record(**{name: fields[name] for name in Record.__dataclass_fields__})
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None
        typed = all(isinstance(fields[name], kind) for name, kind in _KINDS_IN_RECORD.items())
        return record if typed and record.digests.keys() <= _ALGORITHMS else None

    def save_record(self, record: Record, *, used: bool) -> None:
        """Write the record.

        Args:
            record: The record.
            used: Set the shard's last use to now; otherwise it is kept.

        Raises:
            OSError: The record cannot be written.
        """
        last_used = None if used else self.last_used
        write_atomically(self.record_path, json.dumps(asdict(record)).encode(), mtime=last_used)


def parts_of(target: Path) -> list[Path]:
    """Return the partial files of a target, of living and dead processes."""
    return sorted(target.parent.glob(f".{glob.escape(target.name)}.*.part"))


def last_written(target: Path) -> float:
    """Return the latest modification time of a target's partial files, in seconds since 1970."""
    times = [0.0]
    for part in parts_of(target):
        with suppress(OSError):
            times.append(part.stat().st_mtime)
    return max(times)


def claim_part(target: Path) -> Path:
    """Return the path of this process's partial file, taken over from a dead process if possible.

    Only one process can take over a part: the first one renames it, and a second finds nothing.
    """
    mine = new_part_path(target)
    for part in parts_of(target):
        name = parse_part_name(part.name)
        if name is None or not name.is_orphaned:
            continue
        state = state_path(part)
        with suppress(OSError):
            if mine.exists():  # one is enough
                part.unlink()
                state.unlink()
            else:
                part.rename(mine)
                state.rename(state_path(mine))
    return mine
