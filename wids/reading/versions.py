"""Versions of shards that a dataset has read, compared whenever it opens a shard again."""

from __future__ import annotations

import hashlib
import mmap
import os
import sys
from dataclasses import dataclass
from multiprocessing.context import get_spawning_popen
from multiprocessing.reduction import DupFd
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.base.system import anonymous_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = ["SeenVersions", "ShardVersion"]


_NUM_FACTS = 3  # of a shard; 8 bytes each


@dataclass(frozen=True, slots=True)
class ShardVersion:
    """What is known of the version of an open shard.

    Attributes:
        index: Digest of its tar index: of names, places and samples.
        validator: ETag or date that its server gave; None where it gave none.
        content: Digest of its bytes; None where they were not read as a whole.
    """

    index: bytes
    validator: str | None = None
    content: str | None = None


class SeenVersions:
    """Versions of the shards of one dataset, by number.

    Threads may share it, and so do the processes that this one forks, or spawns by
    `multiprocessing`: what a worker notes, this process and its other workers compare with. Any
    other copy knows what the original knew.

    Args:
        num_shards: Number of shards.

    Attributes:
        keys_given: Whether keys of many samples were read, perhaps from a pack or from sidecars
            that no shard was compared with: the shards must fit them from then on.

    >>> seen = SeenVersions(2)
    >>> seen.note(1, ShardVersion(b"digest", validator='"1"'))
    True
    >>> seen.note(1, ShardVersion(b"digest", validator='"2"'))
    False
    >>> seen.forget(1)
    >>> seen.note(1, ShardVersion(b"digest", validator='"2"'))
    True
    """

    def __init__(self, num_shards: int) -> None:
        # Zero is unknown. Untouched pages of zeros take no memory, however many shards there are.
        self._facts = _shared_zeros(num_shards)
        self._fd: _Descriptor | None = None  # once a process was spawned
        self.keys_given = False

    def note(self, number: int, version: ShardVersion) -> bool:
        """Record the version of a shard; return False if it differs from the recorded one.

        Args:
            number: The shard.
            version: Its version, which counts from now on if it does not contradict the last one.
        """
        facts = np.array(
            [_hashed(version.index), _hashed(version.validator), _hashed(version.content)],
            np.uint64,
        )
        known = self._facts[number]
        index_same, validator_same, content_same = (known == 0) | (facts == 0) | (known == facts)
        # Replicas may give one file different validators, so the bytes count where they are known.
        by_content = bool(known[2] and facts[2])
        if not (index_same and (content_same if by_content else validator_same)):
            return False
        self._facts[number] = np.where(facts == 0, known, facts)
        return True

    def forget(self, number: int) -> None:
        """Forget the version of a shard, since its next version is wanted."""
        self._facts[number] = 0

    def clear(self) -> None:
        """Forget all versions; processes that shared them until now keep theirs."""
        self._facts, self._fd = _shared_zeros(len(self._facts)), None
        self.keys_given = False

    def __getstate__(self) -> tuple[Any, ...]:
        rows = np.flatnonzero(self._facts[:, 0])
        state = len(self._facts), self.keys_given, rows.tobytes(), self._facts[rows].tobytes()
        # Only a process that is being started inherits a descriptor.
        shared = None if get_spawning_popen() is None else self._descriptor()
        return (*state, None if shared is None else DupFd(shared.number))

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        num_shards, self.keys_given, rows, facts, inherited = state
        self._fd = None
        if inherited is not None:
            self._fd = _Descriptor(inherited.detach())
            self._facts = _mapped(num_shards, self._fd.number)
            return
        self._facts = _shared_zeros(num_shards)
        found = np.frombuffer(facts, np.uint64).reshape(-1, _NUM_FACTS)
        self._facts[np.frombuffer(rows, np.int64)] = found

    def _descriptor(self) -> _Descriptor | None:
        """Return the descriptor of the memory, for a process that is spawned; None without one."""
        if self._fd is None:
            try:
                fd = _Descriptor(anonymous_file("wids-versions"))
                os.ftruncate(fd.number, _nbytes(len(self._facts)))
                facts = _mapped(len(self._facts), fd.number)
            except OSError:  # no memory or no descriptor is left: that process gets a copy
                return None
            rows = np.flatnonzero(self._facts[:, 0])
            facts[rows] = self._facts[rows]
            self._facts, self._fd = facts, fd
        return self._fd


class _Descriptor:
    """File descriptor that is closed with the last reference to it."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        # When the interpreter ends, `os` may be gone already, and the process closes it.
        if not is_ending():
            os.close(self.number)


def _nbytes(num_shards: int) -> int:
    return max(1, num_shards * _NUM_FACTS * 8)  # there are no empty maps


def _shared_zeros(num_shards: int) -> NDArray[np.uint64]:
    """Return zeros in memory that this process shares with those that it forks from now on."""
    return _mapped(num_shards, -1)


def _mapped(num_shards: int, fd: int) -> NDArray[np.uint64]:
    """Map the facts in a file, or in new anonymous memory for -1; shared with other processes."""
    memory = mmap.mmap(fd, _nbytes(num_shards))
    return np.ndarray((num_shards, _NUM_FACTS), np.uint64, memory)


def _hashed(fact: bytes | str | None) -> int:
    """Return a 64-bit hash of a fact, never 0; return 0 for None."""
    if fact is None:
        return 0
    data = fact.encode(errors="surrogateescape") if isinstance(fact, str) else fact
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little") or 1
