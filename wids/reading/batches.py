"""Batches of a dataset, made field by field if possible, else sample by sample.

raw       fields stay raw: one buffer for each field, filled from the maps
decoded   fields are decoded: `.npy` and `.cls` for the whole batch, other fields one by one
samples   in all other cases, the samples are read one by one and collated
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.base.system import num_cores
from wids.reading.collate import Missing, collate
from wids.reading.loaderstats import counted_as
from wids.reading.pipeline import note_missing_dot
from wids.reading.ragged import Ragged

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from wids.reading.pipeline import BatchKind
    from wids.reading.samplesequence import SampleSequence

__all__ = ["Batch", "BufferPool", "Pools", "batch_maker", "useful_threads"]

Batch = Any

MOST_THREADS = 8  # by default; the interpreter lock keeps more from running at the same time

# Number of unused buffers that are kept; further ones, after a caller drops many batches, are
# freed.
_MOST_SPARE = 16

# Batches differ in size. With some extra space, each buffer soon fits every batch.
_HEADROOM = 1.25


def batch_maker(
    dataset: Any,
    collate_fn: Callable[[list[Any]], Batch] | None,
    pools: Pools,
    missing: Missing = "error",
) -> Callable[[Sequence[int]], Batch]:
    """Return the fastest function that makes batches of a dataset.

    Args:
        dataset: A `SampleSequence`, or anything with `dataset[index]`.
        collate_fn: Function from a list of samples to a batch; None for `wids.reading.collate`.
        pools: Where the memory of batches comes from.
        missing: What samples without a field have, as for `collate`.

    Returns:
        A thread-safe function from indexes to a batch.
    """
    collated = collate_fn or partial(collate, missing=missing, tensors=False, allocate=pools(""))

    def read_each(indexes: Sequence[int]) -> list[Any]:
        samples = []
        for index in indexes:
            try:
                samples.append(dataset[index])
            except Exception as error:
                error.add_note(f"while reading sample {index}")
                raise
        return samples

    read = getattr(dataset, "__getitems__", None) or read_each

    def by_sample(indexes: Sequence[int]) -> Batch:
        samples = read(indexes)
        with counted_as("collate"):
            try:
                return collated(samples)
            except Exception as error:
                if samples:
                    note_missing_dot(error, samples[0])
                error.add_note(f"while collating samples {[*indexes]}")
                raise

    if collate_fn is not None or _kind(dataset) == "samples":
        return by_sample
    may_lack = {*missing} if isinstance(missing, Mapping) else set()
    # Copying holds the interpreter lock. If threads took it from each other every few milliseconds,
    # a batch would take 1.5 times as long, so only one thread copies at a time.
    turn = threading.Lock()

    def by_field(indexes: Sequence[int]) -> Batch:
        batch = dataset.gather_fields(indexes, pools, turn)
        if batch is not None and batch.keys() >= may_lack:
            return batch
        # The samples have different fields: each gets what it lacks, or it is an error.
        batch = by_sample(indexes)
        if _kind(dataset) == "raw":
            for name, column in batch.items():
                if all(isinstance(each, bytes | memoryview) for each in column):
                    batch[name] = Ragged.of([np.frombuffer(each, np.uint8) for each in column])
        labels = {"__key__", "__index__"}
        return {name: batch[name] for name in batch if name in labels or name[:2] != "__"}

    return by_field


def useful_threads(dataset: Any, collate_fn: object) -> int:
    """Return the number of threads above which batches are not made faster.

    Copying raw fields holds the interpreter lock, so one thread is enough. Decoders and functions
    of users can use as many threads as there are cores.
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
        # Memory is not pickled.
        return Pools, ()


class BufferPool:
    """Pool of memory for batches, reused after the last view of a batch is gone.

    The kernel has to clear new memory page by page, which takes longer than copying a batch into
    it. Callers do not have to release a batch: its memory is not reused while an array, a view or a
    tensor refers to it. Thread-safe.

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
        try:
            owner = self._spare.pop()
        except IndexError:
            owner = np.empty(0, np.uint8)
        if len(owner) < max(1, nbytes):
            # It replaces a buffer that is too small, so that all soon fit.
            owner = np.empty(max(1, int(nbytes * _HEADROOM)), np.uint8)
        # Views of an array over a memoryview refer to that array and not to the underlying owner.
        # So when the array is freed, no view of the memory is left.
        lease = np.frombuffer(owner.data, np.uint8)
        weakref.finalize(lease, self._spare.append, owner).atexit = False
        return lease[:nbytes]
