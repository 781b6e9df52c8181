"""`ShardCache`: complete local files for the URLs of shards."""

from __future__ import annotations

import logging
import os
import stat
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from wids.base.files import is_newer
from wids.base.locks import file_lock
from wids.base.shardref import ShardRef
from wids.base.urls import display_url, is_local, local_path
from wids.caching.cachefolder import Entry, choose_folder, last_written, parts_of
from wids.caching.download import Download, Unpacking
from wids.caching.store import Store, folder_errors
from wids.caching.unpack import is_compressed_name, load_libraries
from wids.errors import FetchError
from wids.fetching.fetch import Fetcher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from wids.caching.eviction import CachedShard

__all__ = ["ShardCache", "StartingFolder"]

_log = logging.getLogger(__name__)
# Without a sign of life: a stopped process, or one on a machine that died, must not hold up all.
_PATIENCE_SECONDS = 300.0
_OTHER_VERSION = "put the right file there, or make the spec anew (`wids create`)"


class ShardCache:
    """Cache of shards in one folder, shared by all datasets and processes.

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
        starting_folder: Where relative paths of shards count from.

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
        self._store = Store(self.cache_dir, max_nbytes=self.cache_size, pin=keep, shared=shared)

    @staticmethod
    def is_local(url: str) -> bool:
        """Return whether a URL names a file of this machine."""
        return is_local(url)

    def make_ready(self, urls: Iterable[str]) -> None:
        """Import the modules that fetching these URLs takes, before this process is forked."""
        self.fetcher.make_ready(urls)
        load_libraries()

    def close(self) -> None:
        """Close connections, end the leases of shards given out, and wait for the disk."""
        self.fetcher.close()
        self._store.close()

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
        return self._get(ShardRef.of(shard), lambda: False)

    def prepare(
        self, shard: ShardRef | str, *, stopped: Callable[[], bool] = lambda: False
    ) -> Path:
        """Fetch a shard that will be read soon, and return its path.

        It counts as just used, but is not kept from eviction.

        Args:
            shard: As for `get`.
            stopped: Asked as bytes come; a download is given up once it returns True.

        Raises:
            StoppedError: It was given up.
            WidsError: All that `get` raises.
        """
        path = self._get(ShardRef.of(shard), stopped)
        self._store.release()
        return path

    def touch(self, path: Path) -> bool:
        """Count a shard as used now; return False if it is no longer there.

        Args:
            path: What `get` or `prepare` returned.
        """
        # Without a record: where `localname` put it. Not written: where nothing is evicted.
        return Entry(path.parent, path.name).mark_used() or path.exists()

    def discard(self, shard: ShardRef | str) -> bool:
        """Remove a fetched shard that turned out to be damaged, so that it is fetched anew.

        Args:
            shard: As for `get`.

        Returns:
            False where that would bring nothing better: the shard was not fetched by this cache,
            it has the promised digest, or it was discarded before in this process.
        """
        shard = ShardRef.of(shard)
        if is_local(shard.url) or self.localname is not None:
            return False
        return self._store.discard(self._entry_of_remote(shard), shard.digest_to_check)

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
        sizes = [0]
        for part in parts_of(self._entry_of_remote(ShardRef.of(shard)).path):
            with suppress(OSError):  # it may be whole, and renamed, by now
                sizes.append(part.stat().st_size)
        return max(sizes)

    def _get(self, shard: ShardRef, stopped: Callable[[], bool]) -> Path:
        if self.localname is not None:
            path = self.starting_folder.path_of(self.localname(shard.url))
            if not path.exists() and not is_local(shard.url):
                self._fetch_to(path, shard, stopped)
            return self._local(path, shard)
        if is_local(shard.url):
            return self._local(self.starting_folder.path_of(shard.url), shard)
        entry = self._entry_of_remote(shard)
        if not self._lease(entry):
            download = Download(shard, entry.path, self.fetcher, self._store, stopped=stopped)
            self._fill(entry, download)
        return entry.path

    def sidecar_path(
        self, url: str, path: Path, suffix: str, *, renew: bool = False
    ) -> Path | None:
        """Return the path of the sidecar of a shard.

        Args:
            url: The shard, as it was given to `get`.
            path: What `get` returned.
            suffix: What a sidecar's name adds to its shard's, such as ".idx".
            renew: The sidecar is to be written, since none that fits is there.

        Returns:
            The path beside a cached shard. For one used in place, the path beside it if a sidecar
            is there that is up to date or can be replaced; else one in the cache folder, whose name
            changes when the shard does. None where the folder cannot be used.
        """
        beside = path.with_name(path.name + suffix)
        if path.parent == self.cache_dir or _is_usable(beside, path, renew=renew):
            return beside
        try:
            self._store.check()
            entry = self._entry_of_local(path)
        except OSError as error:
            _log.warning("%s: no sidecar is kept: %s", display_url(url), error)
            return None
        return self.cache_dir / f"{entry.name}{suffix}"

    def index_lock_path(self, sidecar: Path) -> Path | None:
        """Return the lock file for making a sidecar; None where the folder cannot be used.

        Args:
            sidecar: What `sidecar_path` returned.
        """
        try:
            self._store.check()
        except OSError:
            return None
        return Entry.of(self.cache_dir, str(sidecar), "").index_lock_path

    def derived_path(self, shard: ShardRef | str, suffix: str) -> Path | None:
        """Return the path of a file derived from a shard, such as a column of it.

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
            self._store.check()
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
        """Return the shards in the folder, of all datasets, the least recently used first."""
        return self._store.shards()

    def verify(self) -> list[CachedShard]:
        """Read every cached shard again and remove those that are damaged.

        Returns:
            The removed ones; the next use fetches them anew.
        """
        return self._store.verify()

    def trim(self, max_nbytes: int) -> int:
        """Evict until the folder holds at most so many bytes, and remove what crashes left.

        Returns:
            Bytes by which the bound is still exceeded, since shards are pinned or being opened.
        """
        return self._store.trim(max_nbytes)

    def clear(self) -> None:
        """Remove every shard, pinned ones too, the kept specs, and all that crashes left."""
        self._store.clear()

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
        entry = self._entry_of_local(path)
        if not self._lease(entry):
            self._fill(entry, Unpacking(path, entry.path, self._store))
        return entry.path

    def _entry_of_remote(self, shard: ShardRef) -> Entry:
        """Return the entry of a shard by URL and version: a new version is a new file."""
        return Entry.of(self.cache_dir, shard.url, shard.version)

    def _entry_of_local(self, path: Path) -> Entry:
        status = path.stat()
        # The time of change too: a file rewritten with its old date and size is another file.
        version = f"{status.st_size}\0{status.st_mtime_ns}\0{status.st_ctime_ns}"
        return Entry.of(self.cache_dir, str(path.absolute()), version)

    def _lease(self, entry: Entry) -> bool:
        self._store.check()
        self._store.release()  # the caller has opened what was given out before
        return self._store.lease(entry)

    def _fill(self, entry: Entry, job: Download | Unpacking) -> None:
        """Download or unpack a shard that is not there, publish and lease it."""
        with self._fetching_alone(entry, job.shown, entry.path):
            if self._store.lease(entry):  # another process was faster
                return
            self._store.sweep_once()
            _log.info("fetching %s to %s", job.shown, entry.path)
            with folder_errors(entry.path):
                # Into a part beside it: whoever looks for the shard meanwhile finds none, not half
                # of one.
                part = job.run()
                try:
                    self._store.publish(entry, part)
                finally:
                    part.discard()

    def _fetching_alone(
        self, entry: Entry, shown: str, target: Path
    ) -> AbstractContextManager[None]:
        """Wait until no other process fetches a shard, as long as that one makes progress."""
        last_sign = partial(last_written, target)
        return file_lock(
            entry.lock_path, shown, patience_seconds=_PATIENCE_SECONDS, last_sign=last_sign
        )

    def _fetch_to(self, path: Path, shard: ShardRef, stopped: Callable[[], bool]) -> None:
        """Fetch a shard to the path that `localname` gave it."""
        self._store.check()
        entry = Entry.of(self.cache_dir, str(path.absolute()), "")
        with self._fetching_alone(entry, display_url(shard.url), path):
            if path.exists():
                return
            with folder_errors(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                part = Download(
                    shard, path, self.fetcher, self._store, stopped=stopped, keep_compressed=True
                ).run()
                try:
                    part.publish(path)
                finally:
                    part.discard()


def _checked_size(cache_size: int | None) -> int | None:
    """Return a valid `cache_size`; a text would otherwise fail only at the first download."""
    if cache_size is None:
        return None
    if isinstance(cache_size, bool) or not isinstance(cache_size, (int, float)):
        raise TypeError(f"cache_size: expected a number of bytes, got {cache_size!r}")
    # Asked this way round, so that NaN is refused too.
    if not cache_size >= 0:
        raise ValueError(f"cache_size: expected bytes, 0 or more, got {cache_size!r}")
    return cache_size


class StartingFolder:
    """The working folder at the time of creation, from which relative paths count ever after.

    A program may change its working folder between opening a dataset and reading it, and workers
    may start in another one.

    >>> StartingFolder().path_of("file:///data/a.tar")
    PosixPath('/data/a.tar')
    """

    def __init__(self) -> None:
        self._folder = _working_folder()

    def path_of(self, location: str | os.PathLike[str]) -> Path:
        """Return the path of a plain path or a `file:` URL.

        A relative one stays as it was given for as long as nobody has left the folder, since it is
        what messages name.

        Raises:
            FetchError: A `file:` URL names another host.
        """
        path = local_path(os.fspath(location))
        if path.is_absolute() or self._folder in {None, _working_folder()}:
            return path
        return Path(str(self._folder), path)


def _working_folder() -> str | None:
    try:
        return os.getcwd()  # noqa: PTH109 (its text is compared, each time a shard is opened)
    except OSError:  # it was removed
        return None


def _is_usable(beside: Path, shard: Path, *, renew: bool) -> bool:
    """Return whether a sidecar is there that is up to date or can be replaced.

    Args:
        beside: Path of the sidecar.
        shard: Path of its shard.
        renew: The sidecar is to be replaced, so that it is up to date does not count.
    """
    try:
        status = beside.stat()
        # A file cannot be renamed over a folder, and a pipe or device is nobody's sidecar.
        if not stat.S_ISREG(status.st_mode):
            return False
        newer = not renew and is_newer(status, shard.stat())
        return newer or os.access(beside.parent, os.W_OK)
    except OSError:
        return False
