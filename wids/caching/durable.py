"""Bringing a published shard to the disk for good, while its reader already uses it.

Waiting for the disk before a shard may be used would cost more than its download where the network
is the faster of the two. So a shard gets its name as soon as it is checked, and its record says in
which boot of the machine that was. Only when the disk has it does the record become final. After a
power failure a record that is not final names an older boot, and the shard is read and checked
against its digest once before it is used.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from wids.base.files import sync_folder
from wids.caching.cachefolder import Record, open_cached

if TYPE_CHECKING:
    from wids.caching.cachefolder import Entry

__all__ = ["boot_token", "settle"]

_log = logging.getLogger(__name__)


def boot_token() -> str:
    """Return a name for this boot of this machine."""
    known = os.uname().nodename
    with suppress(OSError):
        known += Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
    return hashlib.sha256(known.encode()).hexdigest()[:16]


def settle(entry: Entry) -> threading.Thread:
    """Bring a shard to the disk in the background, then make its record final.

    Args:
        entry: The published shard.

    Returns:
        The running thread; it ends with the process if that ends first.
    """
    thread = threading.Thread(target=_settle, args=(entry,), daemon=True)
    thread.start()
    return thread


def _settle(entry: Entry) -> None:
    try:
        descriptor = open_cached(entry.path)
    except OSError:
        return  # evicted already
    try:
        os.fsync(descriptor)
        sync_folder(entry.folder)
        record = Record.load(entry.record_path)
        if record is not None and _is_still(entry, descriptor):
            last_used = entry.record_path.stat().st_mtime
            replace(record, boot="").save(entry.record_path, last_used)
            # An eviction between the check and the save took the old record; this one must follow.
            if not _is_still(entry, descriptor):
                entry.record_path.unlink(missing_ok=True)
    except FileNotFoundError:
        pass  # evicted in the meantime
    except OSError as error:
        _log.warning("%s: the disk could not keep it (%s); not used again", entry.path, error)
        with suppress(OSError):
            entry.record_path.unlink()  # whoever was given the shard may still open it
    finally:
        os.close(descriptor)


def _is_still(entry: Entry, descriptor: int) -> bool:
    """Tell whether the open file is the one in the shard's place."""
    try:
        return os.path.samestat(os.fstat(descriptor), entry.path.stat())
    except FileNotFoundError:
        return False
