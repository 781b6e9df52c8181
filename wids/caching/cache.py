"""`ShardCache`: from the URL of a shard to a local file that is whole."""

from __future__ import annotations

import logging
import os
import stat
import time
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path  # noqa: TC003 (named in public signatures)
from typing import TYPE_CHECKING, Any

from wids.base.hashing import hash_file
from wids.base.locks import file_lock
from wids.base.shardref import ShardRef
from wids.base.urls import display_url, is_local
from wids.caching import eviction
from wids.caching.cachefolder import (
    KEPT_SPECS,
    SPECS_FOLDER,
    Entry,
    Record,
    check_folder,
    choose_folder,
    open_cached,
    parts_of,
)
from wids.caching.durable import boot_token, settle
from wids.caching.filling import download_part, unpack_part
from wids.caching.holding import Held, Hold
from wids.caching.obstacles import folder_errors, is_replaceable, last_sign
from wids.caching.unpack import is_compressed_name, load_libraries
from wids.caching.whereabouts import StartingFolder, is_of_use
from wids.errors import CacheError, FetchError
from wids.fetching.fetch import Fetcher
from wids.fetching.partfile import no_space

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable

    from wids.caching.eviction import CachedShard
    from wids.caching.waits import WaitLog
    from wids.fetching.partfile import PartFile

    Fill = Callable[[Path], tuple[PartFile, dict[str, str]]]

__all__ = ["ShardCache"]

_log = logging.getLogger(__name__)
# Without a sign of life: a stopped process, or one on a machine that died, must not hold up all.
_PATIENCE_SECONDS = 300.0
_OTHER_VERSION = "put the right file there, or make the spec anew (`wids create`)"


class ShardCache:
    """Local files for the shards of any number of datasets, shared by all processes.

    Shards on this machine are used where they lie. Others are fetched once, checked, and kept in
    one folder under names that no two URLs share.

    Args:
        cache_dir: The folder; without, `WIDS_CACHE`, else the user's cache folder.
        cache_size: Bytes that the folder may hold; the least recently used shards go first.
        keep: Never evict what this cache gave out.
        allow_pipe: Whether `pipe:` URLs may start commands.
        localname: From a URL to the path it shall have. What is there is used in place; what is
            not is fetched to it.
        shared: Trust everyone who can write to the folder; without, such a folder is refused.
        fetcher: How to fetch.

    Raises:
        TypeError: `cache_size` is no number.
        ValueError: `cache_size` is negative, or no number of bytes.

    Attributes:
        waits: Where `get` notes how long it took, or None.
        starting_folder: Where relative paths of shards count from.
        num_fetched: Shards that this object brought here so far, in this process.

    >>> ShardCache().get("/no/such.tar")
    Traceback (most recent call last):
    wids.errors.FetchError: /no/such.tar: No such file or directory
    """

    def __init__(
        self,
        cache_dir: str | os.PathLike[str] | None = None,
        *,
        cache_size: int | None = None,
        keep: bool = False,
        allow_pipe: bool = False,
        localname: Callable[[str], str | os.PathLike[str]] | None = None,
        shared: bool = False,
        fetcher: Fetcher | None = None,
    ) -> None:
        self.cache_dir = choose_folder(cache_dir)
        self.cache_size = _checked_size(cache_size)
        self.keep = keep
        self.localname = localname
        self.shared = shared
        self.fetcher = fetcher or Fetcher(allow_pipe=allow_pipe)
        self.starting_folder = StartingFolder()
        self.waits: WaitLog | None = None
        self._pid = 0
        self._settling: list[threading.Thread] = []
        self._begin_process()

    def __getstate__(self) -> dict[str, Any]:
        mine = ("_held", "_pid", "_boot", "_checked", "_swept", "_settling")
        return {name: value for name, value in self.__dict__.items() if name not in mine}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin_process()

    @staticmethod
    def is_local(url: str) -> bool:
        """Tell whether a URL names a file of this machine."""
        return is_local(url)

    def make_ready(self, urls: Iterable[str]) -> None:
        """Import what fetching these takes, for a thread of a process that may be forked."""
        self.fetcher.make_ready(urls)
        load_libraries()

    def close(self) -> None:
        """Close connections, let go of the shards last given out, and wait for the disk."""
        self._held = Held()
        self.fetcher.close()
        while self._settling:
            self._settling.pop().join()

    def get(self, shard: ShardRef | str) -> Path:
        """Return the local file of a shard, fetching it if need be.

        Args:
            shard: What the spec says of it; or a path, or a URL of any scheme that can be fetched.

        Returns:
            Its path. A cached file is safe from eviction until the next call from the same
            thread; who has it open or mapped keeps it beyond that.

        Raises:
            FetchError: It cannot be had, or is no tar.
            IntegrityError: It is not as promised; nothing of it was kept.
            ShardFormatError: It is compressed and damaged.
            CacheError: The folder cannot be used: no space, no permission, not safe.
        """
        began = time.monotonic()
        try:
            return self._get(ShardRef.of(shard))
        finally:
            if self.waits is not None:
                self.waits.note(began, time.monotonic())

    def prepare(
        self, shard: ShardRef | str, *, stopped: Callable[[], bool] = lambda: False
    ) -> Path:
        """Fetch a shard that will be read soon, and return its path.

        It counts as just used, but nothing is held for the caller.

        Args:
            shard: As for `get`.
            stopped: Asked as bytes come; a download is given up once this is true.

        Raises:
            StoppedError: It was given up.
            WidsError: All that `get` raises.
        """
        path = self._get(ShardRef.of(shard), stopped)
        self._held.last = None
        return path

    def touch(self, path: Path) -> bool:
        """Count a shard as used just now; False if it is no longer there.

        Args:
            path: What `get` or `prepare` returned.
        """
        # The record's date is that of the last use. The clock is read here, since the kernel's date
        # of "now" stands still for some milliseconds, and who touches several means an order.
        now = time.time_ns()
        try:
            os.utime(Entry(path.parent, path.name).record_path, ns=(now, now))
        except (
            OSError
        ):  # no record where `localname` put it; no permission where nothing is evicted
            return path.exists()
        return True

    def spare(self, path: Path) -> None:
        """Count a shard as not used for the longest time, so that it is the next to go.

        Args:
            path: What `get` or `prepare` returned.
        """
        with suppress(OSError):  # evicted already, or no permission
            os.utime(Entry(path.parent, path.name).record_path, ns=(0, 0))

    def holds(self, shard: ShardRef | str) -> bool:
        """Return whether a remote shard lies in the folder; neither fetches nor reads it.

        `get` looks closer before it trusts the file.

        >>> ShardCache("/no/such/folder").holds("https://host/a.tar")
        False
        """
        return self._entry_of_remote(ShardRef.of(shard)).path.exists()

    def arrived_nbytes(self, shard: ShardRef | str) -> int:
        """Return how many bytes have come of a remote shard, whichever process fetches it.

        >>> ShardCache("/no/such/folder").arrived_nbytes("https://host/a.tar")
        0
        """
        entry = self._entry_of_remote(ShardRef.of(shard))
        sizes = [0]
        for part in parts_of(entry.path):
            with suppress(OSError):  # it may be whole, and renamed, by now
                sizes.append(part.stat().st_size)
        return max(sizes)

    def _get(self, shard: ShardRef, stopped: Callable[[], bool] = lambda: False) -> Path:
        url = shard.url
        if self.localname is not None:
            path = self.starting_folder.path_of(self.localname(url))
            if not path.exists() and not is_local(url):
                self._fetch_to(path, shard, stopped)
            return self._local(path, shard)
        if is_local(url):
            return self._local(self.starting_folder.path_of(url), shard)
        entry = self._entry_of_remote(shard)
        fill = partial(
            download_part,
            shard,
            fetcher=self.fetcher,
            make_room=self._make_room,
            stopped=stopped,
        )
        return self._cached(entry, display_url(url), fill)

    def sidecar_path(
        self, url: str, path: Path, suffix: str, *, renew: bool = False
    ) -> Path | None:
        """Return where the sidecar of a shard belongs.

        Args:
            url: The shard, as it was given to `get`.
            path: What `get` returned.
            suffix: What a sidecar's name adds to its shard's, such as ".idx".
            renew: The sidecar is to be written, since none that fits is there.

        Returns:
            The path beside a cached shard; for one used in place the path beside it if a file is
            there that can be replaced, or is newer and need not be; else one in the cache folder
            that changes when the shard does. None where the folder cannot be used: a dataset of
            local files needs none.
        """
        beside = path.with_name(path.name + suffix)
        if path.parent == self.cache_dir or is_of_use(beside, path, renew=renew):
            return beside
        try:
            self._check_folder()
            entry = self._entry_of_local(path)
        except OSError as error:
            _log.warning("%s: no sidecar is kept: %s", display_url(url), error)
            return None
        return self.cache_dir / f"{entry.name}{suffix}"

    def derived_path(self, shard: ShardRef | str, suffix: str) -> Path | None:
        """Return where something that is made from a shard belongs, such as a column of it.

        Always in the cache folder, so that nobody else put it there, and never fetches the shard.
        The path changes when a local shard does, or what is promised of a remote one.

        Args:
            shard: The shard, as for `get`.
            suffix: What the name adds to the shard's.

        Returns:
            The path; None where the folder cannot be used, or a local shard is not there.
        """
        shard = ShardRef.of(shard)
        url = shard.url
        try:
            self._check_folder()
            if self.localname is not None or is_local(url):
                name = url if self.localname is None else self.localname(url)
                local = self.starting_folder.path_of(name)
                return self.cache_dir / f"{self._entry_of_local(local).name}{suffix}"
        except OSError as error:
            _log.info("%s: nothing made from it is kept: %s", display_url(url), error)
            return None
        entry = self._entry_of_remote(shard)
        if not shard.digest_to_check:
            return self.cache_dir / f"{entry.name}{suffix}"  # goes when the shard goes
        # A digest vouches for the content, so this outlives the shard: an entry of its own.
        return self.cache_dir / f"{Entry.of(self.cache_dir, url, entry.name).name}{suffix}"

    def shards(self) -> list[CachedShard]:
        """Return what lies in the folder, of all datasets, the least recently used first."""
        return eviction.list_shards(self.cache_dir) if self.cache_dir.is_dir() else []

    def verify(self) -> list[CachedShard]:
        """Read every cached shard again and remove those that are damaged.

        Returns:
            The removed ones; the next use fetches them anew.
        """
        damaged = [shard for shard in self.shards() if not shard.is_whole()]
        return [shard for shard in damaged if eviction.evict(shard)]

    def trim(self, max_nbytes: int) -> int:
        """Evict until the folder holds at most so many bytes, and sweep what crashes left.

        Returns:
            Bytes by which the bound is still passed, since shards are pinned or just being opened.
        """
        if not self.cache_dir.is_dir():
            return 0
        eviction.sweep(self.cache_dir)
        return eviction.shrink(self.cache_dir, max_nbytes)

    def clear(self) -> None:
        """Remove every shard, pinned ones too, the kept specs, and all that crashes left."""
        for shard in self.shards():
            eviction.evict(shard)
        if self.cache_dir.is_dir():
            eviction.sweep(self.cache_dir, max_age_seconds=0)
        # Specs in another form, which any dataset makes anew from its JSON. Nothing else: whoever
        # takes his data folder for the cache may have a folder of that name in it.
        for path in (self.cache_dir / SPECS_FOLDER).glob(KEPT_SPECS):
            with suppress(OSError):  # removed by another
                path.unlink()

    def _begin_process(self) -> None:
        """Start without what belongs to one process only."""
        self._held = Held()
        self._pid = os.getpid()
        self._boot = boot_token()
        self._checked = self._swept = False
        self._settling = []
        self.num_fetched = 0

    def _check_folder(self) -> None:
        """Check the folder, once in each process."""
        if self._pid != os.getpid():
            self._begin_process()
        if not self._checked:
            check_folder(self.cache_dir, shared=self.shared)
            self._checked = True

    def _local(self, path: Path, shard: ShardRef) -> Path:
        try:
            status = path.stat()
        except OSError as error:
            raise FetchError(f"{path}: {error.strerror}") from error
        # To open a pipe would wait for its writer, for ever maybe.
        if not stat.S_ISREG(status.st_mode):
            raise FetchError(f"{path}: expected a regular file, found a folder, pipe or device")
        shard.check_size(str(path), status.st_size, remedy=_OTHER_VERSION)
        if not is_compressed_name(path.name):
            return path
        unpacked = partial(unpack_part, path, make_room=self._make_room)
        return self._cached(self._entry_of_local(path), str(path), unpacked)

    def _entry_of_remote(self, shard: ShardRef) -> Entry:
        """Name a shard by URL and version, so that a new version never meets the old file."""
        return Entry.of(self.cache_dir, shard.url, shard.version)

    def _entry_of_local(self, path: Path) -> Entry:
        status = path.stat()
        # The time of change too: a file rewritten with its old date and size is another file.
        version = f"{status.st_size}\0{status.st_mtime_ns}\0{status.st_ctime_ns}"
        return Entry.of(self.cache_dir, str(path.absolute()), version)

    def _cached(self, entry: Entry, shown: str, fill: Fill) -> Path:
        """Return the entry's path once it is whole and held; else fill it first."""
        self._check_folder()
        self._held.last = None  # the caller has opened what was given out before
        if not self._use(entry):
            with self._lock(entry.lock_path, shown, entry.path):
                if not self._use(entry):
                    self._fill(entry, shown, fill)
        return entry.path

    def _lock(self, path: Path, shown: str, target: Path) -> AbstractContextManager[None]:
        """Wait until no other process fetches a file, as long as that one makes progress."""
        with suppress(OSError):
            path.parent.mkdir(exist_ok=True)
        sign = partial(last_sign, target)
        return file_lock(path, shown, patience_seconds=_PATIENCE_SECONDS, last_sign=sign)

    def _use(self, entry: Entry) -> bool:
        """Hold a finished shard and note the use; False where there is none."""
        try:
            descriptor = open_cached(entry.path)
        except FileNotFoundError:
            return False
        except OSError as error:
            return is_replaceable(entry.path, error)
        held = Hold(descriptor)
        record = Record.load(entry.record_path)
        status = os.fstat(descriptor)
        # A rename puts a file over anything but a folder.
        if stat.S_ISDIR(status.st_mode):
            raise CacheError(f"{entry.path}: a folder is where a shard belongs; remove it")
        # An evictor may have unlinked it between the opening and the lock.
        if status.st_nlink == 0:
            return False
        regular = stat.S_ISREG(status.st_mode)
        if record is None or not regular or not self._is_same(record, status, entry.path):
            _log.warning("%s: not the file that was put there; fetching it anew", entry.path)
            return False
        with suppress(OSError):  # a folder that may only be read
            if self.keep:
                entry.pin_path.touch(mode=0o600)
            if not record.matches(status, self._boot):
                record.renewed(status).save(entry.record_path)
            os.utime(entry.record_path)
        self._held.last = held
        return True

    def _is_same(self, record: Record, status: os.stat_result, path: Path) -> bool:
        """Tell whether a file is the recorded one; where dates cannot tell, its digest does."""
        if record.matches(status, self._boot):
            return True
        if record.size != status.st_size or not record.digests:
            return False
        return hash_file(path, record.digests) == record.digests

    def _fill(self, entry: Entry, shown: str, fill: Fill) -> None:
        if not self._swept:
            eviction.sweep(self.cache_dir)
            # Once a process: to look through a folder of ten thousand shards takes longer than to
            # open one.
            self._swept = True
        _log.info("fetching %s to %s", shown, entry.path)
        with folder_errors(entry.path):
            # Into a part beside it: whoever looks for the shard meanwhile finds none, not half of
            # one.
            part, digests = fill(entry.path)
            try:
                # Held before it has its name: no evictor can come between.
                held = Hold(os.open(part.path, os.O_RDONLY | os.O_CLOEXEC))
                status = part.path.stat()
                stamp = (status.st_size, status.st_mtime_ns)
                record = Record(*stamp, shown, digests, boot=self._boot)
                if self.keep:
                    entry.pin_path.touch(mode=0o600)
                # The record first: with the shard's name all is there at once.
                record.save(entry.record_path)
                part.publish(entry.path)
                self._held.last = held
                self.num_fetched += 1
                self._settling = [thread for thread in self._settling if thread.is_alive()]
                self._settling.append(settle(entry))
            finally:
                part.discard()

    def _fetch_to(self, path: Path, shard: ShardRef, stopped: Callable[[], bool]) -> None:
        """Fetch a shard to the place that `localname` gave it."""
        self._check_folder()
        lock_path = Entry.of(self.cache_dir, str(path.absolute()), "").lock_path
        with self._lock(lock_path, display_url(shard.url), path):
            if path.exists():
                return
            with folder_errors(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                part, _ = download_part(
                    shard,
                    path,
                    fetcher=self.fetcher,
                    make_room=self._make_room,
                    stopped=stopped,
                    plain=False,
                )
                try:
                    part.publish(path)
                finally:
                    part.discard()

    def _make_room(self, part: PartFile, size: int | None) -> None:
        """Evict what must go for a part to grow to a size, and see that the disk has the space."""
        folder = part.path.parent
        # The part's size is on record by now, so others count it as taken.
        if self.cache_size is not None and folder == self.cache_dir:
            excess = eviction.shrink(folder, self.cache_size)
            if excess:
                _log.debug("%s: %d bytes over cache_size for now", folder, excess)
        stat = os.statvfs(folder)
        if size is not None and stat.f_bavail * stat.f_frsize < size - part.nbytes:
            raise no_space(part.path, size, "the disk is too full")


def _checked_size(cache_size: int | None) -> int | None:
    """Refuse a bound that cannot be meant; a text would fail only when the first shard comes."""
    if cache_size is None:
        return None
    if isinstance(cache_size, bool) or not isinstance(cache_size, (int, float)):
        raise TypeError(f"cache_size: expected a number of bytes, got {cache_size!r}")
    # Asked this way round, so that NaN is refused too.
    if not cache_size >= 0:
        raise ValueError(f"cache_size: expected bytes, 0 or more, got {cache_size!r}")
    return cache_size
