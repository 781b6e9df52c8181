"""Store of shards in the cache folder: leases, publication, disk space, eviction.

On a fast network, waiting for the disk would take longer than the download of a shard. A shard is
therefore renamed as soon as it is checked, with a record that names the current boot. Once the
shard is on disk, the record becomes final. After a power failure, a record that is not final names
an earlier boot, and the shard is verified by its digest before it is used.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import shutil
import stat
import sys
import threading
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from wids.base.files import sync_folder
from wids.base.hashing import hash_file
from wids.base.system import boot_id, flush_to_disk, lock_shared, unlock
from wids.base.urls import display_url, without_secrets
from wids.caching import eviction
from wids.caching.cachefolder import Entry, Record, check_folder, open_cached
from wids.errors import CacheError, WidsError
from wids.fetching.partfile import no_space
from wids.log import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from wids.fetching.partfile import PartFile

__all__ = ["Store", "folder_errors"]


class Store:
    """Shards in one cache folder, which all processes of the machine share.

    Args:
        folder: The cache folder.
        max_nbytes: Bytes that it may hold, or None for any number.
        pin: Never evict the shards that are leased or published here.
        shared: Trust all users who can write to the folder.

    Attributes:
        folder: The cache folder.
    """

    def __init__(self, folder: Path, *, max_nbytes: int | None, pin: bool, shared: bool) -> None:
        self.folder = folder
        self._max_nbytes = max_nbytes
        self._pin = pin
        self._shared = shared
        self._begin_process()

    def __getstate__(self) -> dict[str, Any]:
        kept = ("folder", "_max_nbytes", "_pin", "_shared")
        return {name: self.__dict__[name] for name in kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin_process()

    def _begin_process(self) -> None:
        """Initialise the state of this process, such as leases and threads."""
        self._pid = os.getpid()
        # Where the system tells none, each process is as a boot of its own: it verifies by digest
        # what another has not yet flushed to the disk.
        known = os.uname().nodename + (boot_id() or secrets.token_hex(8))
        self._boot = hashlib.sha256(known.encode()).hexdigest()[:16]
        self._leases = _LastLease()
        self._settling: list[threading.Thread] = []
        self._checked = self._swept = False
        self._discarded: set[Entry] = set()

    def check(self) -> None:
        """Make the folder if it is missing, and refuse an unsafe one, once in each process.

        Raises:
            CacheError: It cannot be used.
        """
        if self._pid != os.getpid():
            self._begin_process()
        # Its existence is checked each time: a user may remove it while the process runs.
        if not self._checked or not os.path.exists(self.folder):  # noqa: PTH110 (for each column)
            check_folder(self.folder, shared=self._shared)
            self._checked = True

    def release(self) -> None:
        """End the last lease of this thread."""
        lease, self._leases.last = self._leases.last, None
        if lease is not None:
            lease.end()
            self._restore_bound(lease.path)

    def close(self) -> None:
        """End all leases, and wait until the disk has the published shards."""
        self.release()
        self._leases = _LastLease()
        while self._settling:
            self._settling.pop().join()
        self._restore_bound(None)

    def _restore_bound(self, last: Path | None) -> None:
        """Evict shards down to a bound that was exceeded while they were leased.

        Args:
            last: The shard used last, which is not evicted: with a bound smaller than one shard,
                each shard would otherwise be evicted as soon as it is downloaded.
        """
        # The bound may be that of another process, which may end no lease any more.
        bound = eviction.exceeded_bound(self.folder)
        if bound is not None:
            with suppress(OSError):  # a folder that was removed, or may only be read
                eviction.shrink(self.folder, bound, spared=last)

    def lease(self, entry: Entry) -> bool:
        """Lease a finished shard to this thread, and count it as used.

        The lease keeps it from eviction until the thread leases another shard.

        Returns:
            False if there is no such shard, or it is not the recorded one.

        Raises:
            CacheError: The file there can be neither used nor replaced.
        """
        try:
            descriptor = open_cached(entry.path)
        except FileNotFoundError:
            return False
        except OSError as error:
            # A link is not followed, since it could lead to any file; but replacing the link itself
            # loses nothing. The same is true of a socket. Others may be shards of another user.
            if error.errno not in {errno.ELOOP, errno.ENXIO}:
                shown = display_url(str(entry.path))
                raise CacheError(f"{shown}: {error.strerror}; remove it") from without_secrets(
                    error
                )
            logger.warning(
                "%s: a link or socket where a shard belongs; fetching it again", entry.path
            )
            return False
        lease = _Lease(descriptor, entry.path)
        status = os.fstat(descriptor)
        # A rename cannot replace a folder.
        if stat.S_ISDIR(status.st_mode):
            shown = display_url(str(entry.path))
            raise CacheError(f"{shown}: expected a shard, found a folder; remove it")
        # An evictor may have unlinked it between the opening and the lock.
        if status.st_nlink == 0:
            return False
        record = entry.load_record()
        recorded = record is not None and stat.S_ISREG(status.st_mode)
        if record is not None and recorded and not record.matches(status, self._boot):
            # Its date has changed, or it may not have been on the disk at a power failure.
            recorded = (
                record.size == status.st_size
                and bool(record.digests)
                and hash_file(entry.path, record.digests) == record.digests
            )
        if record is None or not recorded:
            logger.warning("%s: not the file that was downloaded; fetching it again", entry.path)
            return False
        with suppress(OSError):  # a read-only folder
            if self._pin:
                entry.pin_path.touch(mode=0o600)
            if not record.matches(status, self._boot):
                entry.save_record(record.renewed(status), used=True)
        entry.mark_used()
        self._leases.last = lease
        self._restore_bound(entry.path)  # the lease that this thread had before has ended
        return True

    def sweep_once(self) -> None:
        """Remove the leftovers of killed processes, once in each process."""
        # Listing a folder of ten thousand shards takes longer than opening one.
        if not self._swept:
            eviction.sweep(self.folder)
            self._swept = True

    def publish(self, entry: Entry, part: PartFile) -> None:
        """Give a finished part its name in the cache, and lease it to this thread.

        Args:
            entry: Its entry.
            part: The part, finished.

        Raises:
            OSError: The disk fails.
        """
        # Leased before it has its name, so that it cannot be evicted in between.
        lease = _Lease(os.open(part.path, os.O_RDONLY), entry.path)
        status = part.path.stat()
        record = Record(
            status.st_size,
            status.st_mtime_ns,
            part.name,
            part.digests,
            boot=self._boot,
            validator=part.version.validator or "",
            weak_etag=part.version.weak_etag or "",
        )
        if self._pin:
            entry.pin_path.touch(mode=0o600)
        # The record is written first, so that every named shard has one.
        entry.save_record(record, used=True)
        part.publish(entry.path)
        self._leases.last = lease
        self._settling = [thread for thread in self._settling if thread.is_alive()]
        thread = threading.Thread(target=_settle, args=(entry,), daemon=True)
        thread.start()
        self._settling.append(thread)

    def discard(self, entry: Entry, promised: dict[str, str]) -> bool:
        """Evict a shard that turned out to be damaged, once in each process.

        Args:
            entry: Its entry.
            promised: Algorithm to the digest that the spec promises.

        Returns:
            Whether the shard is gone. If not, another download does not help.
        """
        if entry in self._discarded:
            return False
        self._discarded.add(entry)
        self.release()
        # A shard with the promised digest is damaged at its source, too.
        with suppress(OSError):
            if promised and hash_file(entry.path, promised) == promised:
                return False
        found = [shard for shard in eviction.list_shards(self.folder) if shard.path == entry.path]
        # Damaged compressed data is not kept. With a digest, it is that of the source.
        if not found:
            return not promised
        # All threads that waited for the download lease the damaged shard. The first one to notice
        # evicts it in spite of the other leases.
        return any(eviction.evict(shard, leased=True) for shard in found)

    def make_room(self, part: PartFile) -> int:
        """Evict shards so that a part can grow; return the size that it may grow to.

        Args:
            part: The part, in the cache folder or elsewhere. Its current bytes are reserved.

        Raises:
            CacheError: The disk is too full for the whole file.
        """
        folder, bound = part.path.parent, self._max_nbytes
        if folder != self.folder:
            bound = None
        # Before any shard is evicted, which would be in vain.
        wanted = part.version.nbytes
        missing = 0 if wanted is None else wanted - part.nbytes
        free = shutil.disk_usage(folder).free
        if free < missing and bound is not None:
            free += eviction.evictable_nbytes(folder, bound, missing)
        if free < missing:
            raise no_space(part.path, wanted, "the disk is too full")
        if bound is None:
            return sys.maxsize
        excess = eviction.shrink(folder, bound)
        if excess:
            logger.debug("%s: temporarily %d bytes over cache_size", self.folder, excess)
        return eviction.room_for(part.nbytes)


class _Lease:
    """Read lease: a shared lock on an open shard, which keeps it from eviction.

    Args:
        descriptor: Descriptor of the open shard; the lease closes it.
        path: The shard.

    Attributes:
        path: The shard.
    """

    def __init__(self, descriptor: int, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = descriptor
        self._pid = os.getpid()
        with suppress(OSError):  # without locks, a shard may be evicted before it is opened
            lock_shared(descriptor)

    def end(self) -> None:
        """End the lease; harmless when it has ended."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        # A forked child shares descriptor and lock: closing alone would leave the lock to the
        # child, and the child must not end the lock of its parent.
        if self._pid == os.getpid():
            with suppress(OSError):
                unlock(descriptor)
        os.close(descriptor)

    def __del__(self, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        # When the interpreter ends, `os` may be gone already, and the process ends the lease.
        if not is_ending():
            self.end()


class _LastLease(threading.local):
    """The last lease of each thread."""

    last: _Lease | None = None


@contextmanager
def folder_errors(target: Path) -> Iterator[None]:
    """Translate errors of the disk into a `CacheError` that names the folder.

    Args:
        target: The file that is written.
    """
    try:
        yield
    except WidsError:
        raise
    except OSError as error:
        raise CacheError(
            f"{display_url(str(target.parent))}: {target.name} is not in this folder yet, and "
            f"cannot be written to it ({error.strerror}); set cache_dir or WIDS_CACHE to a folder "
            "that you can write to"
        ) from without_secrets(error)


def _settle(entry: Entry) -> None:
    """Flush a published shard to the disk, then make its record final."""
    try:
        descriptor = open_cached(entry.path)
    except OSError:
        return  # evicted already
    try:
        flush_to_disk(descriptor)
        sync_folder(entry.folder)
        record = entry.load_record()
        if record is not None and _is_still(entry, descriptor):
            entry.save_record(replace(record, boot=""), used=False)
            # If it was evicted between check and save, the new record must be removed as well.
            if not _is_still(entry, descriptor):
                entry.record_path.unlink(missing_ok=True)
    except FileNotFoundError:
        pass  # evicted in the meantime
    except OSError as error:
        logger.warning(
            "%s: cannot be flushed to the disk (%s); it will be fetched again", entry.path, error
        )
        with suppress(OSError):
            entry.record_path.unlink()  # the shard stays for processes that are about to open it
    finally:
        os.close(descriptor)


def _is_still(entry: Entry, descriptor: int) -> bool:
    """Return whether the open file is the one at the path of the entry."""
    try:
        return os.path.samestat(os.fstat(descriptor), entry.path.stat())
    except FileNotFoundError:
        return False
