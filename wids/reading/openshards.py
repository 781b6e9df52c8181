"""The shards that this process has mapped: a bounded set, least recently used out first."""

import errno
import resource
from collections.abc import Callable
from typing import Protocol, TypeVar

__all__ = ["Counting", "OpenShards", "default_max_open_shards"]


class Counting(Protocol):
    """What is kept here: it counts how often it was used, since whoever reads does that best."""

    uses: int


T = TypeVar("T", bound=Counting)

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


class OpenShards(dict[int, T]):
    """Keeps what `open_shard(shard_index)` returned for the shards used last.

    `opened[shard_index]` is an open shard, opened first where needed; the caller adds to its
    `uses`. A hit is a look-up in a dict and moves nothing: shards that were used since the last
    time get a second chance when one has to go (the clock algorithm). No lock is taken. Two
    threads that miss the same shard at once both open it and one result stays, which is cheap; a
    lock would have to survive `fork` in a DataLoader, which is not.

    What is dropped is not closed: a reader in another thread, or a memoryview handed out, may
    still use it. Its memory map goes with the last reference.

    Attributes:
        limit: Most shards to keep open; at least 1.
        misses: How often one had to be opened.

    >>> from types import SimpleNamespace
    >>> opened = OpenShards(1, open_shard=lambda number: SimpleNamespace(number=number, uses=0))
    >>> opened[0].number, opened[0].number, opened[1].number, opened.misses, len(opened)
    (0, 0, 1, 2, 1)
    """

    def __init__(self, limit: int, open_shard: Callable[[int], T]) -> None:
        super().__init__()
        if limit < 1:
            raise ValueError(f"at least one shard must stay open, got a limit of {limit}")
        self.limit = limit
        self.misses = 0
        self._open_shard = open_shard
        self._spared: dict[int, int] = {}
        self._past_uses = 0

    @property
    def accesses(self) -> int:
        """How often a shard was used, those included that are not open any more."""
        return self._past_uses + sum(shard.uses for shard in list(self.values()))

    def __missing__(self, shard_index: int) -> T:
        self.misses += 1
        self._make_room(self.limit - 1)
        try:
            shard = self._open_shard(shard_index)
        except OSError as error:
            if error.errno not in {errno.EMFILE, errno.ENFILE} or not self:
                raise
            # Others in this process hold descriptors too: make do with half.
            self._make_room(len(self) // 2)
            shard = self._open_shard(shard_index)
        return self.setdefault(shard_index, shard)

    def drop(self, useless: Callable[[T], bool], *, spare_used: bool = False) -> int:
        """Drop shards that are useless by now; returns how many.

        Args:
            useless: Tells whether a shard should rather not be kept.
            spare_used: Keep those that were used since they were last spared.
        """
        before = len(self)
        for shard_index, shard in list(self.items()):
            if useless(shard):
                self._drop(shard_index, shard, second_chance=spare_used)
        return before - len(self)

    def clear(self) -> None:
        """Forget all open shards."""
        self._make_room(0)

    def _make_room(self, most: int) -> None:
        """Drop shards until at most `most` are open, the oldest unused ones first."""
        for second_chance in (True, False):
            for shard_index, shard in list(self.items()):
                if len(self) <= most:
                    return
                self._drop(shard_index, shard, second_chance=second_chance)

    def _drop(self, shard_index: int, shard: T, *, second_chance: bool) -> None:
        # The use that it was opened for is none that speaks for keeping it.
        if second_chance and shard.uses > self._spared.get(shard_index, 1):
            self._spared[shard_index] = shard.uses
        elif self.pop(shard_index, None) is not None:
            # Another thread may have dropped it meanwhile, and counted its uses.
            self._spared.pop(shard_index, None)
            self._past_uses += shard.uses
