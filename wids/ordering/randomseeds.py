"""Random seeds for transformations: they depend on the epoch and the sample, not on the worker.

A batch of indexes carries the epoch to the worker that reads it; while its samples are read, the
epoch is known to the thread.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from wids.ordering.permute import derive_key

__all__ = ["IndexBatch", "random_seed", "reading_batch"]

# Apart from all that the order itself derives from a seed and an epoch.
_SAMPLE_SEEDS = 0x73656564


class IndexBatch(list[int]):
    """The indexes of a batch, with the seed of their order and the epoch that they are drawn in."""

    seed: int
    epoch: int


# Of each thread its own: a `wids.Loader` reads batches of two epochs side by side.
_reading = threading.local()


@contextmanager
def reading_batch(indexes: Sequence[int]) -> Iterator[None]:
    """Let `random_seed` know the epoch of a batch while its samples are read."""
    before = getattr(_reading, "draw", (0, 0))
    if isinstance(indexes, IndexBatch):
        _reading.draw = indexes.seed, indexes.epoch
    try:
        yield
    finally:
        _reading.draw = before


def random_seed(sample: Mapping[str, Any] | int) -> int:
    """Return a seed for what a transformation draws at random for a sample.

    It depends on the seed of the sampler, the epoch and the index of the sample, and on nothing
    else: an augmentation seeded by it is another one each epoch, and the same for any number of
    workers, ranks and resumptions. The batches must come from a `BatchSampler` or through a
    `wids.Loader`; a sample that is read by itself is taken to be of seed 0 and epoch 0.

    Args:
        sample: The sample, or its index in the dataset.

    Returns:
        A number in `[0, 2**63)`, as NumPy and torch take for a seed.

    >>> random_seed({"__index__": 7}) == random_seed(7) != random_seed(8)
    True
    """
    index = sample if isinstance(sample, int) else sample["__index__"]
    seed, epoch = getattr(_reading, "draw", (0, 0))
    return derive_key(seed, epoch, _SAMPLE_SEEDS, index) >> 1
