"""Buffers of shared memory that one process fills and another returns after use.

    SharedBuffer    anonymous shared memory with a flag: free, or in use
    BufferSender    the buffers of the process that fills them, within a bound
    BufferReceiver  the same buffers in the process that reads them

The receiver opens a buffer once; from then on its number is enough. A buffer is free again when no
array refers to it any more in the receiver. If the receiver was forked meanwhile, the child may
have that array, too: then the buffer is not used again. It has no name in a file system, so the
kernel frees it when all its processes are gone, whatever ended them.
"""

from __future__ import annotations

import mmap
import os
import weakref
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from multiprocessing.reduction import DupFd
from multiprocessing.util import Finalize
from typing import Any

import numpy as np
import numpy.typing as npt

from wids.base.files import is_running
from wids.base.system import anonymous_file

__all__ = ["BufferReceiver", "BufferSender", "NewBuffer", "SharedBuffer"]

Bytes = npt.NDArray[np.uint8]

_HEAD_NBYTES = 64  # the flag; as long as a cache line, so that the data begins at one

# Batches differ in size. With some extra space, each buffer soon fits every batch.
_HEADROOM = 1.25

_FREE, _IN_USE, _RETIRED = 0, 1, 2


class _Forks:
    """The forks of this process, by which a lease knows whether a child has a copy of it."""

    def __init__(self) -> None:
        self._begun = self._ended = 0
        if hasattr(os, "register_at_fork"):  # where processes fork
            os.register_at_fork(
                before=self._begin, after_in_parent=self._end, after_in_child=self._end_all
            )

    def _begin(self) -> None:
        self._begun += 1

    def _end(self) -> None:
        self._ended += 1  # of several threads that fork at once, this one

    def _end_all(self) -> None:
        self._ended = self._begun

    def mark(self) -> int:
        """Return a number for `none_since`."""
        # A thread may take a lease while another one forks.
        return self._begun if self._begun == self._ended else -1

    def none_since(self, mark: int) -> bool:
        """Return whether this process was not forked since `mark` returned a number."""
        return self._begun == mark


_FORKS = _Forks()


class SharedBuffer:
    """Anonymous shared memory, with a flag: free, in use, or retired, which is never free again.

    Attributes:
        number: Its number among the buffers of its sender.
        nbytes: Its size, without the flag.
        fd: Its descriptor in the process that made it; -1 in another.
        data: Its memory.

    >>> buffer = SharedBuffer.make(0, 100)
    >>> buffer.take()
    >>> there = SharedBuffer.open(0, os.dup(buffer.fd), 100)
    >>> lease = there.lease()
    >>> buffer.data[:3] = 1, 2, 3
    >>> lease[:3].tolist(), buffer.free
    ([1, 2, 3], False)
    >>> del lease
    >>> buffer.free
    True
    """

    def __init__(self, number: int, fd: int, nbytes: int) -> None:
        self.number = number
        self.nbytes = nbytes
        self.fd = fd
        self._map = mmap.mmap(fd, _HEAD_NBYTES + nbytes)
        self.data = self._array()

    @classmethod
    def make(cls, number: int, nbytes: int) -> SharedBuffer:
        """Make a free buffer.

        Raises:
            OSError: There is no memory, or no descriptor, left.
        """
        fd = anonymous_file("wids-batch")
        try:
            os.ftruncate(fd, _HEAD_NBYTES + nbytes)
            buffer = cls(number, fd, nbytes)
        except BaseException:
            os.close(fd)
            raise
        weakref.finalize(buffer, os.close, fd)
        return buffer

    @classmethod
    def open(cls, number: int, fd: int, nbytes: int) -> SharedBuffer:
        """Open the buffer of another process by its descriptor, which is closed."""
        try:
            buffer = cls(number, fd, nbytes)
        finally:
            os.close(fd)
        buffer.fd = -1
        return buffer

    @property
    def free(self) -> bool:
        """Whether no process uses it."""
        return self._map[0] == _FREE

    @property
    def retired(self) -> bool:
        """Whether it is never free again."""
        return self._map[0] == _RETIRED

    def take(self) -> None:
        """Mark it as in use."""
        self._map[0] = _IN_USE

    def give_back(self) -> None:
        """Mark it as free."""
        self._map[0] = _FREE

    def retire(self) -> None:
        """Mark it as one that is never free again."""
        self._map[0] = _RETIRED

    def release(self) -> None:
        """Give its memory back to the system, for good; only for a buffer that nobody reads."""
        # The first page stays, which has the flag.
        os.ftruncate(self.fd, _HEAD_NBYTES)

    def lease(self) -> Bytes:
        """Return its memory; the buffer is free when no view of this array is left.

        If this process was forked meanwhile, it is retired instead, as the child may have a view.
        """
        mark = _FORKS.mark()
        lease = self._array()
        weakref.finalize(lease, _end_lease, self, os.getpid(), mark).atexit = False
        return lease

    def _array(self) -> Bytes:
        # Views of an array over a memoryview refer to that array, so it lives as long as they do.
        return np.frombuffer(memoryview(self._map)[_HEAD_NBYTES:], np.uint8)


def _end_lease(buffer: SharedBuffer, pid: int, mark: int) -> None:
    # A forked child that drops its copy of the array says nothing of the array in its parent.
    if os.getpid() != pid:
        return
    if _FORKS.none_since(mark):
        buffer.give_back()
    else:
        buffer.retire()


def _release_free(buffers: dict[str, list[SharedBuffer]]) -> None:
    for buffer in chain.from_iterable(buffers.values()):
        if buffer.free:
            with suppress(OSError):
                buffer.release()


class BufferSender:
    """The buffers of a process that fills them for another.

    Args:
        most_nbytes: Bound on the memory of all its buffers.

    >>> sender = BufferSender(most_nbytes=1000)
    >>> first = sender.take(400, ".jpg")
    >>> first.nbytes, sender.take(800, ".jpg")  # with some extra space; the second is out of bounds
    (500, None)
    >>> first.give_back()
    >>> sender.take(300, ".jpg") is first
    True
    """

    def __init__(self, most_nbytes: int) -> None:
        self._most_nbytes = most_nbytes
        # By field, since batches of one field have similar sizes.
        self._buffers: dict[str, list[SharedBuffer]] = {}
        self._next_number = 0
        self._unknown: set[int] = set()
        self._dropped: list[int] = []
        # The receiver has them mapped as long as it may get others; their pages would stay.
        Finalize(self, _release_free, (self._buffers,), exitpriority=0)

    def take(self, nbytes: int, field: str) -> SharedBuffer | None:
        """Return a free buffer of at least some size, marked as in use.

        Args:
            nbytes: The size.
            field: The field that it is for.

        Returns:
            None if the bound leaves no room, or the system none.
        """
        free = [buffer for buffer in self._buffers.get(field, ()) if buffer.free]
        buffer = next((each for each in free if each.nbytes >= nbytes), None)
        if buffer is None:
            # A buffer that is too small is replaced by a larger one, so that all soon fit.
            if free:
                self._drop(free[0], field)
            buffer = self._make(nbytes)
            if buffer is None:
                return None
            self._buffers.setdefault(field, []).append(buffer)
        buffer.take()
        return buffer

    def _make(self, nbytes: int) -> SharedBuffer | None:
        self._drop_retired()
        used = sum(buffer.nbytes for each in self._buffers.values() for buffer in each)
        room = self._most_nbytes - used
        if nbytes > room:
            return None
        size = min(room, max(1, int(nbytes * _HEADROOM)))
        try:
            buffer = SharedBuffer.make(self._next_number, size)
        except OSError:  # no memory or no descriptor is left: the values can be pickled
            return None
        self._next_number += 1
        self._unknown.add(buffer.number)
        return buffer

    def _drop_retired(self) -> None:
        for field, buffers in self._buffers.items():
            for buffer in [each for each in buffers if each.retired]:
                self._drop(buffer, field)

    def _drop(self, buffer: SharedBuffer, field: str) -> None:
        self._buffers[field].remove(buffer)
        if buffer.number in self._unknown:
            self._unknown.remove(buffer.number)
        else:
            self._dropped.append(buffer.number)

    def news(self, sent: list[SharedBuffer]) -> tuple[list[NewBuffer], list[int]]:
        """Return the buffers that are new to the receiver of a batch, and those that it can forget.

        Returns:
            Those of them that it does not know yet, and the numbers of those that it can forget.
        """
        new = [NewBuffer(each) for each in sent if each.number in self._unknown]
        self._unknown.difference_update(each.number for each in sent)
        dropped, self._dropped = self._dropped, []
        return new, dropped


@dataclass(frozen=True)
class NewBuffer:
    """A buffer that the receiver does not know; pickled to it with the descriptor."""

    buffer: SharedBuffer

    def __reduce__(self) -> tuple[Any, ...]:
        buffer = self.buffer
        # Of multiprocessing: the other process fetches the descriptor from this one by a socket.
        return _open, (buffer.number, DupFd(buffer.fd), buffer.nbytes)


def _open(number: int, descriptor: Any, nbytes: int) -> SharedBuffer:
    try:
        fd = descriptor.detach()
    except (OSError, EOFError) as error:
        raise RuntimeError(
            "a worker process ended before its batch was received; its own message, or the log of "
            f"the system, says why ({error})"
        ) from error
    return SharedBuffer.open(number, fd, nbytes)


class BufferReceiver:
    """The buffers of other processes that this process reads.

    >>> receiver = BufferReceiver()
    >>> sender = BufferSender(1000)
    >>> buffer = sender.take(10, ".txt")
    >>> there = SharedBuffer.open(buffer.number, os.dup(buffer.fd), buffer.nbytes)
    >>> receiver.learn(os.getpid(), [there], [])
    >>> receiver.lease(os.getpid(), buffer.number).nbytes
    12
    """

    def __init__(self) -> None:
        self._buffers: dict[int, dict[int, SharedBuffer]] = {}

    def learn(self, sender: int, new: list[SharedBuffer], dropped: list[int]) -> None:
        """Add buffers of a sender, given by its process id, and forget others."""
        if new:  # rare; at the begin of a pass, so the workers of the last one have ended
            for pid in [pid for pid in self._buffers if not is_running(pid)]:
                del self._buffers[pid]
        known = self._buffers.setdefault(sender, {})
        for number in dropped:
            known.pop(number, None)
        known.update({buffer.number: buffer for buffer in new})

    def lease(self, sender: int, number: int) -> Bytes:
        """Return the memory of a buffer, as `SharedBuffer.lease` does."""
        return self._buffers[sender][number].lease()
