"""Batches of a dataset, made field by field if possible, else sample by sample.

raw       the dataset hands fields over raw: one buffer a field, filled from the maps
decoded   the dataset decodes: `.npy` and `.cls` for the whole batch, other fields one by one
samples   everything else: the samples are read as they are, and collated
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.base.processes import num_cores
from wids.reading.collate import collate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from wids.reading.pipeline import BatchKind
    from wids.reading.samplesequence import SampleSequence

__all__ = ["Batch", "BufferPool", "Pools", "batch_maker", "useful_threads"]

Batch = Any

MOST_THREADS = 8  # by default; beyond, Python's own work keeps more of them from running at once

# Spare buffers that are kept; batches that a caller hoarded and then dropped are let go.
_MOST_SPARE = 16

# Batches differ in size. With some room each buffer soon fits every batch.
_HEADROOM = 1.25


def batch_maker(
    dataset: Any, collate_fn: Callable[[list[Any]], Batch] | None, pools: Pools | None = None
) -> Callable[[Sequence[int]], Batch]:
    """Return the fastest function that makes batches of a dataset.

    Args:
        dataset: A `SampleSequence`, or anything with `dataset[index]`.
        collate_fn: What makes a batch of a list of samples; None for `wids.reading.collate`.
        pools: Where the memory of batches comes from; None: new memory each time.

    Returns:
        A function that threads may share: from indexes to a batch.
    """
    by_sample = _SampleBatches(dataset, collate_fn, pools)
    if collate_fn is None and _kind(dataset) != "samples":
        return _FieldBatches(dataset, by_sample, pools)
    return by_sample


def useful_threads(dataset: Any, collate_fn: object) -> int:
    """Return the number of threads above which batches are not made faster.

    One copies raw fields as fast as Python lets any number of them; decoders and what users write
    can use as many as there are cores.
    """
    raw = _kind(dataset) == "raw" and collate_fn is None
    return 1 if raw else min(MOST_THREADS, num_cores())


def _kind(dataset: SampleSequence | Any) -> BatchKind:
    # Anything with `dataset[index]` can be loaded, sample by sample.
    kind: BatchKind = getattr(dataset, "batch_kind", "samples")
    return kind


class Pools:
    """Buffer pools, one for each field, since batches of one field have similar sizes."""

    def __init__(self) -> None:
        self._pools: dict[str, BufferPool] = {}

    def __call__(self, field: str) -> Callable[[int], np.ndarray]:
        """Return the allocator for batches of a field."""
        return self._pools.setdefault(field, BufferPool()).allocate

    def __reduce__(self) -> tuple[type[Pools], tuple[()]]:
        # Memory does not travel.
        return Pools, ()


class _SampleBatches:
    """Makes a batch by reading its samples and collating them."""

    def __init__(
        self, dataset: Any, collate_fn: Callable[[list[Any]], Batch] | None, pools: Pools | None
    ) -> None:
        self._dataset = dataset
        self._read = getattr(dataset, "__getitems__", None) or self._read_each
        self._collate_fn = collate_fn
        self._allocate = None if pools is None else pools("")

    def __call__(self, indexes: Sequence[int]) -> Batch:
        samples = self._read(indexes)
        if self._collate_fn is None:
            return collate(samples, self._allocate)
        return self._collate_fn(samples)

    def _read_each(self, indexes: Sequence[int]) -> list[Any]:
        samples = []
        for index in indexes:
            try:
                samples.append(self._dataset[index])
            except Exception as error:
                error.add_note(f"while reading sample {index}")
                raise
        return samples


class _FieldBatches:
    """Makes a batch field by field."""

    def __init__(
        self, dataset: SampleSequence, by_sample: _SampleBatches, pools: Pools | None
    ) -> None:
        self._dataset = dataset
        self._by_sample = by_sample
        self._pools = pools
        # Copying holds the interpreter. Threads that would take it from each other every few
        # milliseconds make a batch take half as long again, so they go one at a time.
        self._turn = threading.Lock()

    def __call__(self, indexes: Sequence[int]) -> dict[str, Any]:
        batch = self._dataset.gather_fields(indexes, self._pools, self._turn)
        # Where the samples differ, the message about it is made where each one is seen.
        return self._by_sample(indexes) if batch is None else batch


class BufferPool:
    """Pool of memory for batches, reused after the last view of a batch is gone.

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
        """Return an uninitialised array of `nbytes` bytes."""
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
