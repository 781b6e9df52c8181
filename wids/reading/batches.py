"""What makes a batch of a list of indexes: field by field where that can be, else by sample.

raw       the dataset hands fields over raw: one buffer a field, filled from the maps
decoded   the dataset decodes: `.npy` and `.cls` for the whole batch, other fields one by one
samples   everything else: the samples are read as they are, and collated
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wids.reading.bufferpool import BufferPool
from wids.reading.collate import collate, column_of
from wids.reading.shardlist import ShardList

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np

    from wids.reading.gather import Gathering
    from wids.reading.ragged import Ragged

__all__ = ["Batch", "batch_maker"]

Batch = Any


def batch_maker(
    dataset: Any, collate_fn: Callable[[list[Any]], Batch] | None, *, reuse: bool
) -> Callable[[Sequence[int]], Batch]:
    """Choose the fastest way to the batches of a dataset.

    Args:
        dataset: Anything with `dataset[index]`.
        collate_fn: What makes a batch of a list of samples; None for `wids.reading.collate`.
        reuse: Put batches into memory of earlier ones that nobody refers to any more.

    Returns:
        A function that threads may share: from indexes to a batch.
    """
    pools = _Pools() if reuse else None
    by_sample = _SampleBatches(dataset, collate_fn, pools)
    if collate_fn is None and isinstance(dataset, ShardList) and dataset.serves_fields:
        return _FieldBatches(dataset, by_sample, pools)
    return by_sample


class _Pools:
    """A pool for each field: their batches differ in size, and those of one hardly do."""

    def __init__(self) -> None:
        self._pools: dict[str, BufferPool] = {}

    def __call__(self, field: str) -> Callable[[int], np.ndarray]:
        return self._pools.setdefault(field, BufferPool()).allocate


class _SampleBatches:
    """Reads samples, and collates them."""

    def __init__(
        self, dataset: Any, collate_fn: Callable[[list[Any]], Batch] | None, pools: _Pools | None
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
    """Gathers the fields of a batch, one after the other."""

    def __init__(self, dataset: ShardList, by_sample: _SampleBatches, pools: _Pools | None) -> None:
        self._dataset = dataset
        self._by_sample = by_sample
        self._pools = pools

    def __call__(self, indexes: Sequence[int]) -> dict[str, Any]:
        dataset = self._dataset
        gathering = dataset.locate_batch(indexes)
        names = gathering.field_names(dataset.fields)
        if names is None:
            # The samples differ, and the message about it is made where each one is seen.
            by_sample: dict[str, Any] = self._by_sample(indexes)
            return by_sample
        batch: dict[str, Any] = {"__key__": gathering.keys, "__index__": gathering.indexes}
        with dataset.announced(gathering, names):
            gathering.find(names)
            for name in names:
                batch[name] = self._column(gathering, name)
        return batch

    def _column(self, gathering: Gathering, name: str) -> np.ndarray | Ragged | list[Any]:
        allocate = None if self._pools is None else self._pools(name)
        if not self._dataset.transformations:
            return gathering.copy_bytes(name, allocate)
        decoder = self._dataset.field_decoder
        stacked = gathering.stack(name, decoder)
        if stacked is not None:
            return stacked
        column: np.ndarray | list[Any] = column_of(gathering.values(name, decoder), allocate)
        return column
