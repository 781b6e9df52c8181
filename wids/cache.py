"""`ShardCache`: from the URL of a shard to a local file that is whole."""

from __future__ import annotations

import fcntl
import logging
import os
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from wids.cachefolder import Entry, Record, check_folder, choose_folder, new_part_path
from wids.errors import CacheError, FetchError
from wids.fetch import Fetcher
from wids.partfile import Expected, PartFile
from wids.urls import display_url, is_local, local_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from wids.fetch import Stream

__all__ = ["ShardCache"]

_log = logging.getLogger(__name__)
_BLOCK = 512
_LOCK_REPORT_SECONDS = 10.0
_SHOWN_NBYTES = 80


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
        self.cache_size = cache_size
        self.keep = keep
        self.localname = localname
        self.shared = shared
        self.fetcher = fetcher or Fetcher(allow_pipe=allow_pipe)
        self._held: dict[int, int] = {}
        self._ready_pid: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_held": {}, "_ready_pid": None}

    @staticmethod
    def is_local(url: str) -> bool:
        """Tell whether a URL names a file of this machine."""
        return is_local(url)

    def get(
        self,
        url: str,
        *,
        filesize: int | None = None,
        md5sum: str | None = None,
        sha256: str | None = None,
    ) -> Path:
        """Return the local file of a shard, fetching it if need be.

        Args:
            url: A path, or a URL of any scheme that can be fetched.
            filesize: Bytes it must have.
            md5sum: MD5 it must have when fetched, hexadecimal.
            sha256: SHA-256 it must have when fetched, hexadecimal.

        Returns:
            Its path. A cached file may be evicted after the next call from the same thread; who
            has it open or mapped keeps it.

        Raises:
            FetchError: It cannot be had, or is no tar.
            IntegrityError: It is not as promised; nothing of it was kept.
            CacheError: The folder cannot be used: no space, no permission, not safe.
        """
        url = os.fspath(url)
        expected = Expected(filesize, md5sum, sha256)
        if self.localname is not None:
            path = local_path(os.fspath(self.localname(url)))
            if path.exists() or is_local(url):
                return _in_place(path, expected)
            return self._fetch_to(path, url, expected)
        if is_local(url):
            return _in_place(local_path(url), expected)
        return self._cached(self._entry(url, expected), url, expected)

    def sidecar_path(self, url: str, path: Path, suffix: str) -> Path | None:
        """Return where the sidecar of a shard belongs.

        Args:
            url: The shard, as it was given to `get`.
            path: What `get` returned.
            suffix: What a sidecar's name adds to its shard's, such as ".idx".

        Returns:
            The path beside a cached shard; for one used in place the path beside it if a file is
            there, else one in the cache folder that changes when the shard does. None where the
            folder cannot be used: a dataset of local files needs none.
        """
        beside = path.with_name(path.name + suffix)
        if path.parent == self.cache_dir or beside.exists():
            return beside
        try:
            self._prepare()
            status = path.stat()
        except OSError as error:
            _log.warning("%s: no sidecar is kept: %s", display_url(url), error)
            return None
        version = f"{status.st_size}\0{status.st_mtime_ns}"
        entry = Entry.of(self.cache_dir, str(path.absolute()), version)
        return self.cache_dir / f"{entry.name}{suffix}"

    def _entry(self, url: str, expected: Expected) -> Entry:
        version = expected.sha256 or expected.md5sum or str(expected.filesize or "")
        return Entry.of(self.cache_dir, url, version.lower())

    def _cached(self, entry: Entry, url: str, expected: Expected) -> Path:
        self._prepare()
        if not self._use(entry):
            with self._lock(entry.lock_path, url):
                if not self._use(entry):
                    self._fetch_entry(entry, url, expected)
                    self._use(entry)
        return entry.path

    def _prepare(self) -> None:
        """Check the folder once in each process."""
        if self._ready_pid != os.getpid():
            check_folder(self.cache_dir, shared=self.shared)
            for descriptor in self._held.values():
                os.close(descriptor)  # a parent's: it still holds its own
            self._held = {}
            self._ready_pid = os.getpid()

    def _use(self, entry: Entry) -> bool:
        """Hold a finished shard and note the use; False where there is none."""
        try:
            descriptor = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise CacheError(f"{entry.path}: {error.strerror}; remove it") from error
        with suppress(OSError):  # a file system without locks: eviction may come early
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        record = Record.load(entry.record_path)
        status = os.fstat(descriptor)
        if record is None or not record.matches(status) or status.st_nlink == 0:
            os.close(descriptor)
            return False
        with suppress(OSError):  # a folder that may only be read
            os.utime(entry.record_path)
        self._hold(descriptor)
        return True

    def _hold(self, descriptor: int) -> None:
        """Keep the last shard of this thread from eviction until the caller has opened it."""
        thread = threading.get_ident()
        previous = self._held.pop(thread, None)
        self._held[thread] = descriptor
        if previous is not None:
            os.close(previous)

    @contextmanager
    def _lock(self, path: Path, url: str) -> Iterator[None]:
        """Hold the lock of a shard, so that only one process fetches it."""
        try:
            path.parent.mkdir(mode=0o777 if self.shared else 0o700, exist_ok=True)
            lock = FileLock(path, thread_local=False)
            while not lock.is_locked:
                try:
                    lock.acquire(timeout=_LOCK_REPORT_SECONDS)
                except Timeout:
                    _log.info("%s: another process is fetching it; waiting", display_url(url))
        except (OSError, NotImplementedError) as error:
            _log.warning("%s: fetching without a lock (%s)", display_url(url), error)
            yield
            return
        try:
            yield
        finally:
            lock.release()

    def _fetch_entry(self, entry: Entry, url: str, expected: Expected) -> None:
        def publish(part: PartFile, digests: dict[str, str]) -> None:
            status = part.path.stat()
            shown = display_url(url)
            record = Record(status.st_size, status.st_mtime_ns, shown, digests, self.keep)
            record.save(entry.record_path)

        self._fetch(entry.path, url, expected, publish)

    def _fetch_to(self, path: Path, url: str, expected: Expected) -> Path:
        self._prepare()
        lock_path = Entry.of(self.cache_dir, str(path.absolute()), "").lock_path
        with self._lock(lock_path, url):
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                self._fetch(path, url, expected, lambda part, digests: None)
        return _in_place(path, expected)

    def _fetch(
        self,
        target: Path,
        url: str,
        expected: Expected,
        publish: Callable[[PartFile, dict[str, str]], None],
    ) -> None:
        _log.info("fetching %s to %s", display_url(url), target)
        try:
            part = PartFile(new_part_path(target), display_url(url), expected)
        except OSError as error:
            raise CacheError(f"{target.parent}: cannot write ({error.strerror})") from error
        try:
            with part:
                stream = self.fetcher.download(url, part, lambda size: None)
                _check_tar(url, part, stream, expected)
                digests = part.finish()
            publish(part, digests)
            part.path.replace(target)
            _sync_folder(target.parent)
        finally:
            part.discard()


def _in_place(path: Path, expected: Expected) -> Path:
    try:
        size = path.stat().st_size
    except OSError as error:
        raise FetchError(f"{path}: {error.strerror}") from error
    expected.check_size(str(path), size)
    return path


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _check_tar(url: str, part: PartFile, stream: Stream, expected: Expected) -> None:
    """Refuse what is no tar, such as the login page of a proxy, and a tar that may be cut."""
    head = part.head(_BLOCK)
    if not _starts_tar(head):
        raise FetchError(
            f"{display_url(url)}: no tar archive came, but {part.nbytes} bytes of type "
            f"{stream.content_type or 'unknown'!r} that begin with {head[:_SHOWN_NBYTES]!r}; "
            f"nothing was kept"
        )
    promised = expected.filesize is not None or expected.digests
    if not (stream.delimited or promised) and part.tail(2 * _BLOCK).strip(b"\0"):
        raise FetchError(
            f"{display_url(url)}: the server named no length, and what came does not end as a tar "
            f"does: it was cut. Give filesize or md5sum in the spec to be sure"
        )


def _starts_tar(head: bytes) -> bool:
    """Tell whether a file begins with a tar header or, as an empty archive, with zeros."""
    if len(head) < _BLOCK:
        return False
    if not head.strip(b"\0"):
        return True
    try:
        stated = int(head[148:156].strip(b" \0") or b"-1", 8)
    except ValueError:
        return False
    fields = head[:148] + b" " * 8 + head[156:]
    signed = sum(fields) - 256 * sum(byte > 127 for byte in fields)
    return stated in (sum(fields), signed)
