"""`SeenVersions`: the recorded version of each shard of a dataset."""

from __future__ import annotations

import hashlib
import mmap
import os
import platform
import sys
from base64 import b64decode, b64encode
from dataclasses import dataclass
from functools import cache
from multiprocessing.context import get_spawning_popen
from multiprocessing.reduction import DupFd
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.base.system import anonymous_file, boot_id
from wids.base.urls import display_url, is_local

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from wids.fetching.transport import ReplacedError

__all__ = ["SeenVersions", "ShardVersion", "replaced_error"]


_NUM_FACTS = 4  # of a shard; 8 bytes each
_STAMP = 3  # the one of them that holds on one machine alone
_BOUND, _BY_PACK = 0, 1  # marks of all shards, in a row of their own behind those of the shards


@dataclass(frozen=True, slots=True)
class ShardVersion:
    """What is known of the version of a shard, or of what was made of it.

    Attributes:
        index: Digest of its tar index: of names, offsets and samples.
        validator: ETag or date that its server gave; None where it gave none.
        content: Digest of its bytes; None where they were not read as a whole.
        stamp: Size and date of its file; None for a file that was fetched.
    """

    index: bytes | None = None
    validator: str | None = None
    content: str | None = None
    stamp: str | None = None


class SeenVersions:
    """Versions of the shards of one dataset, by number.

    Threads may share it, and so do the processes that this one forks, or spawns by
    `multiprocessing`: what a worker notes, this process and its other workers compare with. Any
    other copy knows what the original knew.

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
        self._facts = _shared_zeros(num_shards)
        self._fd: _Descriptor | None = None  # once a process was spawned

    @property
    def bound(self) -> bool:
        """Whether keys or values were returned; from then on, another version is an error."""
        return bool(self._facts[-1, _BOUND])

    def bind(self, *, by_pack: bool = False) -> None:
        """Make other versions errors from now on, with `by_pack` also of shards not opened yet."""
        self._facts[-1, _BOUND] = 1
        if by_pack:
            self._facts[-1, _BY_PACK] = 1

    @property
    def by_pack(self) -> bool:
        """Whether keys were taken from a pack, so that shards opened later must match it."""
        return bool(self._facts[-1, _BY_PACK])

    def saved(self) -> str:
        """Return the tar indexes to which a saved view is bound, as text; "" if it is not bound."""
        from wids.tar.sidecar import VERSION as SIDECAR_VERSION

        hashes = self._facts[:-1, 0].astype("<u8")
        if not (self.bound and hashes.any()):
            return ""
        return f"{SIDECAR_VERSION}:{b64encode(hashes.tobytes()).decode()}"

    def restore(self, saved: str) -> None:
        """Bind the dataset to the tar indexes that a view was saved with.

        Raises:
            ValueError: They are of another number of shards.
        """
        from wids.tar.sidecar import VERSION as SIDECAR_VERSION

        version, _, text = saved.partition(":")
        hashes = np.frombuffer(b64decode(text, validate=True), "<u8")
        if len(hashes) != len(self._facts) - 1:
            raise ValueError(f"expected {len(self._facts) - 1} shards, found {len(hashes)}")
        if version == str(SIDECAR_VERSION):  # indexes of another form have other digests
            self._facts[:-1, 0] = hashes
            self.bind()

    def known(self) -> list[int]:
        """Return the numbers of the shards of which something is known."""
        return np.flatnonzero(self._facts[:-1].any(axis=1)).tolist()

    def read(self) -> NDArray[np.bool_]:
        """Return a mask of the shards whose files or first bytes were read."""
        return np.asarray(self._facts[:-1, 1:].any(axis=1))

    def note(self, number: int, version: ShardVersion) -> bool:
        """Record the version of a shard; return False if it differs from the recorded one.

        Args:
            number: The shard.
            version: Its version, which is recorded unless it contradicts the recorded one.
        """
        facts = _hashes(version)
        known = self._facts[number]
        same = (known == 0) | (facts == 0) | (known == facts)
        # Replicas may give one file different validators, so the bytes count where they are known.
        by_content = bool(known[2] and facts[2])
        if not (same[0] and (same[2] if by_content else same[1]) and same[_STAMP]):
            return False
        self._facts[number] = np.where(facts == 0, known, facts)
        return True

    def exchange(self, number: int, version: ShardVersion) -> None:
        """Record another version of a shard in place of the earlier one."""
        self._facts[number] = _hashes(version)

    def forget(self, number: int) -> None:
        """Forget the version of a shard, also that in a pack; any next version is accepted."""
        self._facts[number] = 0
        self._facts[-1, _BY_PACK] = 0

    def clear(self) -> None:
        """Forget all versions, unless they are bound; processes that shared them keep theirs."""
        if not self.bound:
            self._facts, self._fd = _shared_zeros(len(self._facts) - 1), None

    def __getstate__(self) -> tuple[Any, ...]:
        rows = np.flatnonzero(self._facts.any(axis=1))
        state = len(self._facts) - 1, rows.tobytes(), self._facts[rows].tobytes(), _machine()
        # Only a process that is being started inherits a descriptor.
        shared = None if get_spawning_popen() is None else self._descriptor()
        return (*state, None if shared is None else DupFd(shared.number))

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        num_shards, rows, facts, machine, inherited = state
        self._fd = None
        if inherited is not None:
            self._fd = _Descriptor(inherited.detach())
            self._facts = _mapped(num_shards, self._fd.number)
            return
        self._facts = _shared_zeros(num_shards)
        found = np.frombuffer(facts, np.uint64).reshape(-1, _NUM_FACTS)
        self._facts[np.frombuffer(rows, np.int64)] = found
        if machine != _machine():  # its file at the same path has a date of its own
            self._facts[:-1, _STAMP] = 0

    def _descriptor(self) -> _Descriptor | None:
        """Return the descriptor of the memory, for a process that is spawned; None without one."""
        if self._fd is None:
            try:
                fd = _Descriptor(anonymous_file("wids-versions"))
                os.ftruncate(fd.number, _nbytes(len(self._facts) - 1))
                facts = _mapped(len(self._facts) - 1, fd.number)
            except OSError:  # no memory or no descriptor is left: that process gets a copy
                return None
            rows = np.flatnonzero(self._facts.any(axis=1))
            facts[rows] = self._facts[rows]
            self._facts, self._fd = facts, fd
        return self._fd


def replaced_error(url: str) -> ReplacedError:
    """Return the error for a shard of another version than the recorded one."""
    from wids.fetching.transport import ReplacedError

    cure = (
        "open the dataset again to read the new file, after `wids pack` if it has a pack, and "
        "choose its samples again"
    )
    shown = f"{display_url(url)}: the shard was replaced"
    if is_local(url):
        return ReplacedError(
            f"{shown} since its keys or values were read, by which samples may have been chosen; "
            f"{cure}"
        )
    return ReplacedError(
        f"{shown} on its server since this dataset read it, or its keys, for the first time; "
        f"{cure}. If several servers behind the URL send different validators for one file, make "
        'them agree, or open the dataset with remote="whole"'
    )


class _Descriptor:
    """File descriptor that is closed with the last reference to it."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        # When the interpreter ends, `os` may be gone already, and the process closes it.
        if not is_ending():
            os.close(self.number)


def _nbytes(num_shards: int) -> int:
    return (num_shards + 1) * _NUM_FACTS * 8


def _shared_zeros(num_shards: int) -> NDArray[np.uint64]:
    """Return zeros in memory that this process shares with those that it forks from now on."""
    return _mapped(num_shards, -1)


def _mapped(num_shards: int, fd: int) -> NDArray[np.uint64]:
    """Map the facts in a file, or in new anonymous memory for -1; shared with other processes."""
    memory = mmap.mmap(fd, _nbytes(num_shards))
    return np.ndarray((num_shards + 1, _NUM_FACTS), np.uint64, memory)


@cache
def _machine() -> str:
    """Return an identifier of this machine, as far as the system provides one."""
    return platform.node() + boot_id()


def _hashes(version: ShardVersion) -> NDArray[np.uint64]:
    facts = (version.index, version.validator, version.content, version.stamp)
    return np.array([_hashed(fact) for fact in facts], np.uint64)


def _hashed(fact: bytes | str | None) -> int:
    """Return a 64-bit hash of a fact, never 0; return 0 for None."""
    if fact is None:
        return 0
    data = fact.encode(errors="surrogateescape") if isinstance(fact, str) else fact
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little") or 1
