"""Memory for batches that is used again as soon as nobody looks at it any more."""

from __future__ import annotations

import weakref
from collections import deque

import numpy as np
import numpy.typing as npt

__all__ = ["BufferPool"]

# Spare buffers that are kept; batches that a caller hoarded and then dropped are let go.
_MOST_SPARE = 16

# Batches differ in size. With some room each buffer soon fits every batch.
_HEADROOM = 1.25


class BufferPool:
    """Hands out arrays of bytes, and takes their memory back when the last view of one is gone.

    Fresh memory has to be cleared by the kernel page by page, which takes longer than copying a
    batch into it. Nobody has to say when a batch is done with: as long as an array, a view, or a
    tensor made of one refers to it, its memory is not touched. May be shared by threads.

    >>> pool = BufferPool()
    >>> batch = pool.allocate(1000)
    >>> address, view = batch.ctypes.data, batch[10:20]
    >>> del batch
    >>> pool.allocate(1000).ctypes.data == address
    False
    >>> del view
    >>> pool.allocate(1000).ctypes.data == address
    True
    """

    def __init__(self) -> None:
        self._spare: deque[npt.NDArray[np.uint8]] = deque(maxlen=_MOST_SPARE)

    def allocate(self, nbytes: int) -> npt.NDArray[np.uint8]:
        """Return an array of that many bytes, of any content."""
        owner = self._take(nbytes)
        # An array over a memoryview is where views of it end: they refer to it and not to what is
        # behind. So when it goes, nothing looks at the memory any more.
        lease = np.frombuffer(owner.data, np.uint8)
        weakref.finalize(lease, self._spare.append, owner).atexit = False
        return lease[:nbytes]

    def _take(self, nbytes: int) -> npt.NDArray[np.uint8]:
        try:
            owner = self._spare.pop()
        except IndexError:
            return np.empty(max(1, int(nbytes * _HEADROOM)), np.uint8)
        # One that is too small is dropped for a larger one, so that sizes settle.
        return owner if len(owner) >= nbytes else np.empty(int(nbytes * _HEADROOM), np.uint8)
