"""`ShardCache`: complete local files for the URLs of shards."""

from __future__ import annotations

import os
import stat
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from wids.base.arguments import check_callable, check_flag
from wids.base.optional import load_if_present
from wids.base.shardref import ShardRef, Version, is_newer
from wids.base.urls import (
    display_url,
    is_compressed_name,
    is_local,
    local_path,
    scheme_of,
    without_secrets,
)
from wids.caching.cachefolder import (
    JOINS_FOLDER,
    KEPT_FILES,
    Entry,
    check_folder,
    choose_folder,
    last_written,
)
from wids.errors import CacheError, FetchError
from wids.log import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from wids.caching.eviction import CachedShard
    from wids.caching.store import Store
    from wids.fetching.fetch import Fetcher
    from wids.fetching.partfile import PartFile
    from wids.fetching.storesettings import StoreSettings

__all__ = ["ShardCache", "StartingFolder", "local_copy", "version_of_file"]

# The others do not wait for ever for a process that was stopped or whose machine died.
_PATIENCE_SECONDS = 300.0
_OTHER_VERSION = "put the right file there, or create the spec again (`wids create`)"


class ShardCache:
    """Cache of shards in one folder, shared by all datasets and processes.

    Local shards are used in place. Remote shards are downloaded once, checked, and kept in one
    folder, each URL under a file name of its own.

    Args:
        cache_dir: The folder; by default `WIDS_CACHE`, else the user's cache folder.
        cache_size: Bytes that the folder may hold; the least recently used shards are evicted.
        keep: Never evict the shards that this cache has returned.
        allow_pipe: Whether `pipe:` URLs may start commands.
        localname: Returns the local path of a URL. A file there is used in place; a missing one is
            fetched to it.
        shared: Trust all users who can write to the folder; otherwise such a folder is refused.
        fetcher: Fetches the shards; by default a new one.
        store: Where the buckets of `s3:` URLs are, for the new one.

    Raises:
        TypeError: `cache_size` is not a number.
        ValueError: `cache_size` is negative or NaN.

    Attributes:
        starting_folder: Base of relative paths of shards.

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
        store: StoreSettings | None = None,
    ) -> None:
        self.cache_dir = choose_folder(cache_dir)
        self.cache_size = _checked_size(cache_size)
        keep, shared = check_flag("keep", keep), check_flag("shared", shared)
        self._allow_pipe = check_flag("allow_pipe", allow_pipe)
        self.keep = keep
        self.localname = localname
        if localname is not None:
            check_callable("localname", localname, "a function from a URL to a path")
        self.shared = shared
        self.store = store
        if fetcher is not None:
            self._fetcher = fetcher
        self.starting_folder = StartingFolder()

    # Both are made when they are first used, since local shards need neither. `setdefault` gives
    # the same one to all threads.
    @property
    def fetcher(self) -> Fetcher:
        """Fetches the shards."""
        made: Fetcher | None = self.__dict__.get("_fetcher")
        if made is None:
            from wids.fetching.fetch import Fetcher, FetchPolicy

            new = Fetcher(FetchPolicy(store=self.store), allow_pipe=self._allow_pipe)
            made = self.__dict__.setdefault("_fetcher", new)
        return made

    @fetcher.setter
    def fetcher(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher

    @property
    def _store(self) -> Store:
        made: Store | None = self.__dict__.get("_made_store")
        if made is None:
            from wids.caching.store import Store

            store = Store(
                self.cache_dir, max_nbytes=self.cache_size, pin=self.keep, shared=self.shared
            )
            made = self.__dict__.setdefault("_made_store", store)
        return made

    def make_ready(self, urls: Iterable[str]) -> None:
        """Import the modules that downloads of these URLs need, before this process is forked."""
        import encodings.ascii  # noqa: F401 (of a lock's record)

        import wids.caching.download
        import wids.caching.store  # noqa: F401

        self.fetcher.make_ready(urls)
        for library in ("filelock", "zstandard"):
            load_if_present(library)

    def close(self) -> None:
        """Close connections, end all leases, and wait for the disk."""
        for each in (self.__dict__.get("_fetcher"), self.__dict__.get("_made_store")):
            if each is not None:
                each.close()

    def get(self, shard: ShardRef | str, *, stopped: Callable[[], bool] = lambda: False) -> Path:
        """Return the local file of a shard, fetching it if need be.

        Args:
            shard: Its entry in a spec, a path, or a URL of a supported scheme.
            stopped: Called while bytes arrive; the download is stopped once it returns True.

        Returns:
            Its path. A cached file is not evicted before the next call from the same thread. A
            process that has it open or mapped can read it even after it is evicted.

        Raises:
            FetchError: The shard cannot be downloaded, or is not a tar.
            IntegrityError: Its size or digest differs from the promised one; nothing was kept.
            ShardFormatError: Its compressed data is damaged.
            CacheError: The folder is full, not writable or not safe.
            StoppedError: The download was stopped.
        """
        shard = ShardRef.of(shard)
        try:
            path = self.local_path_of(shard.url)
            if path is not None:
                if not is_local(shard.url) and not path.exists():
                    self._fetch_to(path, shard, stopped)
                return self._local(path, shard)
            entry = self._entry_of_remote(shard)
            if not self._lease(entry):
                self._download(shard, entry, stopped=stopped)
        except CacheError as error:
            # The disk and the folder know no URL; but which shard it was for may tell the reason.
            raise CacheError(f"{display_url(shard.url)}: {error}") from error.__cause__
        return entry.path

    def get_table(self, url: str) -> Path:
        """Return the local file of a table at a URL, fetching it if need be.

        It counts against the bound of the folder and is evicted like a shard.

        Args:
            url: A URL of a supported scheme.

        Raises:
            FetchError: It cannot be downloaded, or is a page; an `AbsentError` if there is none.
            CacheError: The folder is full, not writable or not safe.
        """
        from wids.caching.download import check_table

        entry = self.entry_of_url(url, "table")  # a version that no shard has
        if not self._lease(entry):
            self._download(ShardRef.of(url), entry, keep_compressed=True, check=check_table)
        return entry.path

    def prepare(
        self, shard: ShardRef | str, *, stopped: Callable[[], bool] = lambda: False
    ) -> Path:
        """Fetch a shard that will be read soon, and return its path.

        It counts as just used, but is not kept from eviction.

        Args:
            shard: As for `get`.
            stopped: As for `get`.

        Raises:
            StoppedError: The download was stopped.
            WidsError: As for `get`.
        """
        path = self.get(shard, stopped=stopped)
        self.release()
        return path

    def release(self) -> None:
        """Allow the eviction of the shard that `get` last returned to this thread.

        Call it once the shard is open. If the cache exceeds its bound, the shard may be evicted at
        once. Without this call, it may be evicted from the thread's next call of `get` on.
        """
        if "_made_store" in self.__dict__:
            self._store.release()

    def touch(self, path: Path) -> bool:
        """Count a shard as used now; return False if it is no longer there.

        Args:
            path: Path that `get` or `prepare` returned.
        """
        # Files of `localname` have no record, and the folder may be read-only.
        return Entry(path.parent, path.name).mark_used() or path.exists()

    def discard(self, shard: ShardRef | str) -> bool:
        """Remove a damaged shard from the cache, so that it is downloaded again.

        Args:
            shard: As for `get`.

        Returns:
            Whether another download can help. It cannot if this cache did not download the shard,
            if the shard has the promised digest, or if this process discarded it before.
        """
        shard = ShardRef.of(shard)
        if is_local(shard.url) or self.localname is not None:
            return False
        return self._store.discard(self._entry_of_remote(shard), shard.digest_to_check)

    def holds(self, shard: ShardRef | str) -> bool:
        """Return whether a remote shard is in the folder, without fetching or verifying it.

        Args:
            shard: As for `get`.

        >>> ShardCache("/no/such/folder").holds("https://host/a.tar")
        False
        """
        return self._entry_of_remote(ShardRef.of(shard)).path.exists()

    def version_of(self, shard: ShardRef | str) -> Version:
        """Return what is known of the version of a shard's file, without opening or fetching it.

        Args:
            shard: The shard, or its URL.

        >>> ShardCache("/no/such/folder").version_of("https://host/a.tar") == Version()
        True
        """
        shard = ShardRef.of(shard)
        path = self.local_path_of(shard.url)
        if path is not None:
            if not is_compressed_name(path.name):
                return version_of_file(path)
            try:  # that of the file it is unpacked to
                return Version(file=self._entry_of_local(path).name)
            except OSError:
                return Version()
        record = self._entry_of_remote(shard).load_record()
        if record is None:
            return Version()
        digests = [f"{name}:{digest}" for name, digest in sorted(record.digests.items())]
        return Version(
            validator=record.validator or None,
            weak_etag=record.weak_etag or None,
            content=" ".join(digests) or None,
        )

    def local_path_of(self, url: str) -> Path | None:
        """Return the path of a shard that does not belong to the cache; None for one that does.

        Args:
            url: The shard.

        >>> ShardCache("/no/such/folder").local_path_of("/data/a.tar")
        PosixPath('/data/a.tar')
        """
        if self.localname is not None:
            return self.starting_folder.path_of(self.localname(url))
        return self.starting_folder.path_of(url) if is_local(url) else None

    def sidecar_path(
        self, url: str, path: Path, suffix: str, *, renew: bool = False
    ) -> Path | None:
        """Return the path of the sidecar of a shard.

        Args:
            url: The shard, as it was given to `get`.
            path: Path that `get` returned.
            suffix: Added to the name of the shard, such as ".idx".
            renew: Whether the caller will write the sidecar, because none is valid.

        Returns:
            For a cached shard, the path beside it. For a local shard, also the path beside it if
            the sidecar there is up to date or can be replaced; otherwise a path in the cache
            folder, whose name changes with the shard. None if the folder cannot be used.
        """
        beside = path.with_name(path.name + suffix)
        if path.parent == self.cache_dir:
            return beside
        with suppress(OSError):
            status = beside.stat()
            # A folder cannot be replaced by a rename, and a pipe or device is no sidecar.
            if stat.S_ISREG(status.st_mode) and (
                (not renew and is_newer(status, path.stat())) or os.access(beside.parent, os.W_OK)
            ):
                return beside
        try:
            self._store.check()
            entry = self._entry_of_local(path)
        except OSError as error:
            logger.warning("%s: its sidecar cannot be cached: %s", display_url(url), error)
            return None
        return self.cache_dir / f"{entry.name}{suffix}"

    def index_lock_path(self, sidecar: Path) -> Path | None:
        """Return the lock file for making a sidecar; None if the folder cannot be used.

        Args:
            sidecar: Path that `sidecar_path` returned.
        """
        try:
            self._store.check()
        except OSError:
            return None
        return Entry.of(self.cache_dir, str(sidecar), "").index_lock_path

    def room_for_file(self, nbytes: int) -> AbstractContextManager[None]:
        """Return a context in which a sidecar is written to the folder, within the bound.

        Args:
            nbytes: Size of the sidecar.
        """
        if self.cache_size is None:
            return nullcontext()
        from wids.caching.eviction import room_for_file

        return room_for_file(self.cache_dir, self.cache_size, nbytes)

    def derived_path(self, shard: ShardRef | str, suffix: str) -> Path | None:
        """Return the path of a file derived from a shard, such as a column of it.

        The file is always in the cache folder, where only trusted users can write. The shard is not
        downloaded. The path changes when a local shard, or the promised size or digest of a remote
        shard, changes.

        Args:
            shard: The shard, as for `get`.
            suffix: Added to the name of the shard.

        Returns:
            The path; None if the folder cannot be used, or a local shard is missing.
        """
        shard = ShardRef.of(shard)
        url = shard.url
        try:
            self._store.check()
            local = self.local_path_of(url)
            if local is not None:
                return self.cache_dir / f"{self._entry_of_local(local).name}{suffix}"
        except OSError as error:
            logger.info("%s: the files made from it cannot be cached: %s", display_url(url), error)
            return None
        entry = self._entry_of_remote(shard)
        if not shard.digest_to_check:
            return self.cache_dir / f"{entry.name}{suffix}"  # removed with the shard
        # A promised digest keeps the file valid after the shard is evicted, so it has an entry of
        # its own.
        return self.cache_dir / f"{self.entry_of_url(url, entry.name).name}{suffix}"

    def joins_folder(self) -> Path | None:
        """Return the folder for files of the catalogue; None if it cannot be used."""
        folder = self.cache_dir / JOINS_FOLDER
        try:
            self._store.check()
            check_folder(folder, shared=self.shared)
        except OSError as error:
            logger.info("%s: the catalogue cannot be kept: %s", folder, error)
            return None
        return folder

    def shards(self) -> list[CachedShard]:
        """Return the shards in the folder, of all datasets, the least recently used first."""
        from wids.caching.eviction import list_shards

        return list_shards(self.cache_dir)

    def verify(self) -> list[CachedShard]:
        """Read every cached shard again and remove those that are damaged.

        Returns:
            The removed shards; their next use downloads them again.
        """
        from wids.caching.eviction import evict

        damaged = [shard for shard in self.shards() if not shard.is_whole()]
        return [shard for shard in damaged if evict(shard)]

    def trim(self, max_nbytes: int) -> int:
        """Evict shards until the cache has at most `max_nbytes`; remove leftovers of crashes.

        Args:
            max_nbytes: The bound, in bytes.

        Returns:
            Bytes above the bound that remain, in shards that are pinned or being opened.
        """
        from wids.caching.eviction import shrink, sweep

        if not self.cache_dir.is_dir():
            return 0
        sweep(self.cache_dir)
        return shrink(self.cache_dir, max_nbytes)

    def clear(self) -> None:
        """Remove all shards, pinned ones too, kept specs, packs and joins, leftovers of crashes."""
        from wids.caching.eviction import evict, sweep

        for shard in self.shards():
            evict(shard)
        if self.cache_dir.is_dir():
            sweep(self.cache_dir, max_age_seconds=0)
        # A dataset parses its spec again if the kept one is gone. Other files stay: a user whose
        # cache is a data folder may have a folder of that name in it.
        for folder, names in KEPT_FILES.items():
            for path in (self.cache_dir / folder).glob(names):
                with suppress(OSError):  # removed by another
                    path.unlink()

    def _local(self, path: Path, shard: ShardRef) -> Path:
        try:
            status = path.stat()
        except OSError as error:
            shown = display_url(str(path))
            raise FetchError(f"{shown}: {error.strerror}") from without_secrets(error)
        # Opening a pipe would wait for its writer.
        if not stat.S_ISREG(status.st_mode):
            raise FetchError(
                f"{display_url(str(path))}: expected a regular file, found a folder, pipe or device"
            )
        if shard.filesize is not None:
            shard.check_size(display_url(str(path)), status.st_size, remedy=_OTHER_VERSION)
        if not is_compressed_name(path.name):
            return path
        entry = self._entry_of_local(path)
        if not self._lease(entry):
            from wids.caching.download import unpack_shard

            shown = display_url(str(path))
            self._fill(entry, shown, partial(unpack_shard, path, entry.path, self._store, shown))
        return entry.path

    def _entry_of_remote(self, shard: ShardRef) -> Entry:
        """Return the entry of a shard; each version of a URL has an entry of its own."""
        return self.entry_of_url(shard.url, shard.version)

    def entry_of_url(self, url: str, version: str) -> Entry:
        """Return the entry of a URL; two stores may have buckets of one name.

        Args:
            url: The URL.
            version: Text that differs between versions of the file.
        """
        # A store without an endpoint, too, is not the one that the file of stores names; its
        # profile may name one.
        if self.store is not None and scheme_of(url) in {"s3", "s3a"}:
            version = f"{version}\0{self.store.endpoint or self.store.profile or ''}"
        return Entry.of(self.cache_dir, url, version)

    def _entry_of_local(self, path: Path) -> Entry:
        status = path.stat()
        # The status change time is part of the version: a file may be rewritten with the same date
        # and size.
        version = f"{status.st_size}\0{status.st_mtime_ns}\0{status.st_ctime_ns}"
        return Entry.of(self.cache_dir, str(path.absolute()), version)

    def _lease(self, entry: Entry) -> bool:
        self._store.check()
        if self._store.lease(entry):
            return True
        self._store.release()  # the caller has opened the previous shard by now
        return False

    def _download(self, shard: ShardRef, entry: Entry, **options: Any) -> None:
        from wids.caching.download import download

        make = partial(download, shard, entry.path, self.fetcher, self._store, **options)
        self._fill(entry, display_url(shard.url), make)

    def _fill(self, entry: Entry, shown: str, make: Callable[[], PartFile]) -> None:
        """Download or unpack a missing shard, publish and lease it."""
        lease, publish = partial(self._store.lease, entry), partial(self._store.publish, entry)
        self._make_alone(entry, entry.path, shown, lease, make, publish)

    def _fetch_to(self, path: Path, shard: ShardRef, stopped: Callable[[], bool]) -> None:
        """Fetch a shard to the path that `localname` gave it."""
        from wids.caching.download import download

        self._store.check()
        entry = Entry.of(self.cache_dir, str(path.absolute()), "")
        options: Any = {"stopped": stopped, "keep_compressed": True}
        make = partial(download, shard, path, self.fetcher, self._store, **options)
        self._make_alone(
            entry, path, display_url(shard.url), path.exists, make, lambda part: part.publish(path)
        )

    def _make_alone(
        self,
        entry: Entry,
        target: Path,
        shown: str,
        is_there: Callable[[], bool],
        make: Callable[[], PartFile],
        publish: Callable[[PartFile], None],
    ) -> None:
        """Make a missing file, while other processes wait as long as this one makes progress."""
        from wids.base.files import file_lock
        from wids.caching.store import folder_errors

        sign = partial(last_written, target)
        with file_lock(entry.lock_path, shown, patience_seconds=_PATIENCE_SECONDS, last_sign=sign):
            if is_there():  # another process was faster
                return
            self._store.sweep_once()
            logger.info("fetching %s to %s", shown, display_url(str(target)))
            with folder_errors(target):
                target.parent.mkdir(parents=True, exist_ok=True)
                # The bytes go to a part beside it, so that no other process finds half a shard.
                part = make()
                try:
                    publish(part)
                finally:
                    part.discard()


def _checked_size(cache_size: int | None) -> int | None:
    """Return a valid `cache_size`; a string would otherwise fail only at the first download."""
    if cache_size is None:
        return None
    if isinstance(cache_size, bool) or not isinstance(cache_size, (int, float)):
        raise TypeError(f"cache_size: expected a number of bytes, got {cache_size!r}")
    # `not >=` also refuses NaN, which `<` would accept.
    if not cache_size >= 0:
        raise ValueError(f"cache_size: expected bytes, 0 or more, got {cache_size!r}")
    return cache_size


class StartingFolder:
    """Working folder at the time of creation, as the base of relative paths.

    A program may change its working folder between opening a dataset and reading it, and workers
    may start in another one.

    >>> StartingFolder().path_of("file:///data/a.tar")
    PosixPath('/data/a.tar')
    """

    def __init__(self) -> None:
        self._folder = _working_folder()

    def path_of(self, location: str | os.PathLike[str]) -> Path:
        """Return the path of a plain path or a `file:` URL.

        A relative path is returned unchanged, for short messages, while the working folder is the
        same.

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


@contextmanager
def local_copy(url: str, cache_dir: str | os.PathLike[str] | None = None) -> Iterator[Path]:
    """Context manager that provides a local file of a shard.

    Args:
        url: Path or URL of the shard; a local shard is used in place.
        cache_dir: Folder that keeps a remote shard; by default the copy is removed on exit.

    Raises:
        FetchError: The shard could not be fetched.
    """
    if is_local(url) or cache_dir is not None:
        yield ShardCache(cache_dir).get(url)
        return
    # Not in the cache folder: a thousand shards read once would evict those that a run uses.
    with TemporaryDirectory(prefix="wids-") as folder:
        cache = ShardCache(folder)
        try:
            yield cache.get(url)
        finally:
            cache.close()  # waits for pending writes into the folder


def version_of_file(path: str | os.PathLike[str]) -> Version:
    """Return the version of a local shard, which is none that is known if it is missing.

    Args:
        path: Its path.
    """
    try:
        status = os.stat(path)  # noqa: PTH116 (of thousands of shards, each time)
    except OSError:
        return Version()
    return Version(file=f"{status.st_size} {status.st_mtime_ns}")
