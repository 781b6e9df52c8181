"""Shards just given out: locked against eviction until their reader has opened them."""

from __future__ import annotations

import fcntl
import os
import threading
from contextlib import suppress

__all__ = ["Held", "Hold"]


class Hold:
    """A descriptor with a shared lock, by which evictors see that a shard is about to be used.

    Args:
        descriptor: Of the open shard; this object closes it.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._pid = os.getpid()
        with suppress(OSError):  # no locks here: a shard may then be evicted before it is opened
            fcntl.flock(descriptor, fcntl.LOCK_SH)

    def __del__(self) -> None:
        # A process that was forked meanwhile has the descriptor too, which alone would keep the
        # lock for as long as that one lives; nor is it for that one to end the lock.
        if self._pid == os.getpid():
            with suppress(OSError):
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        os.close(self._descriptor)


class Held(threading.local):
    """The shard that this thread was given last."""

    last: Hold | None = None
