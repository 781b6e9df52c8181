"""Bytes kept for the next request: the least recently used go first."""

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["KeptBytes"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class KeptBytes(Generic[K, V]):
    """A mapping whose values hold at most so many bytes together; safe to use from threads.

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
        # Requests run in threads, and an OrderedDict may be torn by two that reorder it.
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        """Return what is kept under a key, or None."""
        with self._lock:
            found = self._values.get(key)
            if found is None:
                return None
            self._values.move_to_end(key)
            return found[0]

    def put(self, key: K, value: V, nbytes: int) -> None:
        """Keep a value that counts as so many bytes."""
        if nbytes > self.limit_nbytes:
            return
        with self._lock:
            replaced = self._values.pop(key, None)
            self.nbytes += nbytes - (replaced[1] if replaced else 0)
            self._values[key] = (value, nbytes)
            while self.nbytes > self.limit_nbytes:
                _, (_, freed) = self._values.popitem(last=False)
                self.nbytes -= freed
