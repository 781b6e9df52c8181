"""The shards that this process has mapped: a bounded set, least recently used out first."""

import errno
import resource
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["OpenShards", "default_max_open_shards"]

T = TypeVar("T")

# The mapped tar and the mapped sidecar each keep a descriptor while they are open.
DESCRIPTORS_PER_SHARD = 2
MOST_OPEN_SHARDS = 4096


def default_max_open_shards() -> int:
    """Choose how many shards to keep open: at most a quarter of the descriptors allowed.

    >>> 1 <= default_max_open_shards() <= MOST_OPEN_SHARDS
    True
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return MOST_OPEN_SHARDS
    return max(1, min(MOST_OPEN_SHARDS, limit // (4 * DESCRIPTORS_PER_SHARD)))


class OpenShards(Generic[T]):
    """Keeps what `open_shard(shard_index)` returned for the shards used last.

    A hit costs two dict look-ups and moves nothing: it only marks the shard as used, and marked
    shards get a second chance when one has to go (the clock algorithm). No lock is taken. Two
    threads that miss the same shard at once both open it and one result stays, which is cheap; a
    lock would have to survive `fork` in a DataLoader, which is not.

    What is dropped is not closed: a reader in another thread, or a memoryview handed out, may
    still use it. Its memory map goes with the last reference.

    Attributes:
        limit: Most shards to keep open; at least 1.
        accesses: How often a shard was asked for.
        misses: How often it had to be opened.

    >>> opened = OpenShards(1, open_shard=str)
    >>> opened.get(0), opened.get(0), opened.get(1), opened.misses, len(opened)
    ('0', '0', '1', 2, 1)
    """

    def __init__(self, limit: int, open_shard: Callable[[int], T]) -> None:
        if limit < 1:
            raise ValueError(f"at least one shard must stay open, got a limit of {limit}")
        self.limit = limit
        self.accesses = 0
        self.misses = 0
        self._open_shard = open_shard
        self._shards: dict[int, T] = {}
        self._used: dict[int, bool] = {}

    def __len__(self) -> int:
        return len(self._shards)

    def get(self, shard_index: int) -> T:
        """Return an open shard, opening it first where needed.

        Raises:
            Exception: Whatever `open_shard` raises; nothing is kept then.
        """
        self.accesses += 1
        shard = self._shards.get(shard_index)
        if shard is None:
            return self._open(shard_index)
        self._used[shard_index] = True
        return shard

    def clear(self) -> None:
        """Forget all open shards."""
        self._shards.clear()
        self._used.clear()

    def _open(self, shard_index: int) -> T:
        self.misses += 1
        self._make_room(self.limit - 1)
        try:
            shard = self._open_shard(shard_index)
        except OSError as error:
            if error.errno not in {errno.EMFILE, errno.ENFILE} or not self._shards:
                raise
            # Others in this process hold descriptors too: make do with half.
            self._make_room(len(self._shards) // 2)
            shard = self._open_shard(shard_index)
        return self._shards.setdefault(shard_index, shard)

    def _make_room(self, most: int) -> None:
        """Drop shards until at most `most` are open, the oldest unmarked ones first."""
        for second_chance in (True, False):
            for shard_index in list(self._shards):
                if len(self._shards) <= most:
                    return
                if second_chance and self._used.pop(shard_index, False):
                    continue
                self._shards.pop(shard_index, None)
