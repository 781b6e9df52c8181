"""Versions of shards that a dataset has read, compared whenever it opens a shard again."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

__all__ = ["SeenVersions", "ShardVersion"]


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

    Threads may share it. A copy, such as that of a worker, knows what the original knew.

    Args:
        num_shards: Number of shards.

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
        self._facts = np.zeros((num_shards, 3), np.uint64)

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
        """Forget all versions."""
        self._facts = np.zeros_like(self._facts)

    def __getstate__(self) -> tuple[int, bytes, bytes]:
        rows = np.flatnonzero(self._facts[:, 0])
        return len(self._facts), rows.tobytes(), self._facts[rows].tobytes()

    def __setstate__(self, state: tuple[int, bytes, bytes]) -> None:
        num_shards, rows, facts = state
        self._facts = np.zeros((num_shards, 3), np.uint64)
        self._facts[np.frombuffer(rows, np.int64)] = np.frombuffer(facts, np.uint64).reshape(-1, 3)


def _hashed(fact: bytes | str | None) -> int:
    """Return a 64-bit hash of a fact, never 0; return 0 for None."""
    if fact is None:
        return 0
    data = fact.encode(errors="surrogateescape") if isinstance(fact, str) else fact
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little") or 1
