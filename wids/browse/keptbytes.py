"""`KeptBytes`: mapping of the values used last, bounded by their bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["KeptBytes"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class KeptBytes(Generic[K, V]):
    """Mapping whose values together take a bounded number of bytes; thread-safe.

    Args:
        limit_nbytes: Most bytes to keep; a single value larger than this is not kept at all.

    >>> kept = KeptBytes(10)
    >>> kept.put("a", "first", 6), kept.put("b", "second", 6)
    (None, None)
    >>> kept.get("a"), kept.get("b"), kept.nbytes
    (None, 'second', 6)
    """

    def __init__(self, limit_nbytes: int) -> None:
        self.limit_nbytes = limit_nbytes
        self.nbytes = 0
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()
        # Requests run in threads, and concurrent reordering could corrupt an OrderedDict.
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        """Return the value of a key, or None."""
        with self._lock:
            found = self._values.get(key)
            if found is None:
                return None
            self._values.move_to_end(key)
            return found[0]

    def put(self, key: K, value: V, nbytes: int) -> None:
        """Keep a value that counts as so many bytes, in place of one of the same key."""
        with self._lock:
            self.nbytes -= self._values.pop(key, (None, 0))[1]
            if nbytes > self.limit_nbytes:
                return
            self.nbytes += nbytes
            self._values[key] = (value, nbytes)
            while self.nbytes > self.limit_nbytes:
                self.nbytes -= self._values.popitem(last=False)[1][1]
