"""Random seeds for transformations: they depend on the epoch and the sample, not on the worker.

A batch of indexes carries the epoch to the worker that reads it. While a thread reads the samples
of the batch, a thread-local variable has the epoch.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from wids.base.arguments import check_integer
from wids.base.draws import READING, Draw, drawing
from wids.base.warn import warn
from wids.ordering.permute import derive_key

__all__ = ["IndexBatch", "check_same_number", "random_seed", "reading_batch"]

# Purpose of the key, distinct from those that the order derives from seed and epoch.
_SAMPLE_SEEDS = 0x73656564


class IndexBatch(list[int]):
    """Indexes of a batch, with the seed of their order and their epoch.

    Args:
        indexes: The indexes.
        seed: Seed of the order.
        epoch: Epoch of the batch.
        drawn_from: Number of samples that the sampler draws from.

    Attributes:
        seed, epoch, drawn_from: As given.
    """

    def __init__(self, indexes: Iterable[int], seed: int, epoch: int, drawn_from: int) -> None:
        super().__init__(indexes)
        self.seed, self.epoch, self.drawn_from = seed, epoch, drawn_from

    def __reduce__(self) -> tuple[Any, ...]:
        return IndexBatch, (list(self), self.seed, self.epoch, self.drawn_from)


def check_same_number(name: str, drawn_from: int, length: int) -> None:
    """Check that a sampler draws from as many samples as there are.

    After `view = dataset.filter(...)` a sampler is easily left over from the dataset. Most of its
    indexes exist in the view, too, and others would be left out without a word.

    Args:
        name: The argument, for the message.
        drawn_from: Number of samples that the sampler draws from.
        length: Number of samples that there are.

    Raises:
        ValueError: They differ.
    """
    if drawn_from != length:
        raise ValueError(
            f"{name}: the sampler draws from {drawn_from} samples, and there are {length}; make it "
            "over this very dataset or view"
        )


# For a sample that is read by itself, and for one of a batch without an epoch.
_ALONE, _UNKNOWN = Draw(), Draw(known=False)


@contextmanager
def reading_batch(indexes: Sequence[int], length: int) -> Iterator[None]:
    """Context manager that gives `random_seed` the epoch of a batch while it is read.

    Args:
        indexes: The indexes, in a sequence of samples.
        length: Number of samples of the sequence.

    Raises:
        ValueError: The sampler of the batch draws from another sequence.
    """
    draw = READING.draw
    if isinstance(indexes, IndexBatch):
        check_same_number("batch_sampler", indexes.drawn_from, length)
        draw = Draw(indexes.seed, indexes.epoch)
    # A plain list within a batch is its part in one dataset of a mixture, and of the same epoch.
    elif draw is None:
        draw = _UNKNOWN
    with drawing(draw):
        yield


def random_seed(sample: Mapping[str, Any] | int) -> int:
    """Return a seed for the random numbers of a transformation of a sample.

    It depends only on the seed of the sampler, the epoch and the index of the sample. Seeded by it,
    an augmentation differs from epoch to epoch and is the same for any number of workers, ranks and
    resumptions. The batches must come from a `wids.BatchSampler` or a `wids.Loader`. Batches of
    torch's own samplers have no epoch: they count as those of seed 0 and epoch 0, with a warning.
    A sample that is read by itself counts so, too, with a warning in a worker of a DataLoader.

    Args:
        sample: The sample, or its index in the dataset.

    Returns:
        A number in `[0, 2**63)`, which NumPy and torch accept as a seed.

    Raises:
        KeyError: The sample has no index, `__index__`.
        TypeError: It is neither a sample nor an index.
        ValueError: The index is negative.

    >>> random_seed({"__index__": 7}) == random_seed(7) != random_seed(8)
    True
    """
    if isinstance(sample, Mapping):
        index = sample["__index__"]
    else:
        index = check_integer("sample", sample, 0, unless="a sample")
    draw, data = READING.draw or _ALONE, sys.modules.get("torch.utils.data")
    in_loader = data is not None and data.get_worker_info() is not None
    if not draw.known or (draw is _ALONE and in_loader):
        warn(
            "random_seed does not know the epoch of this batch, so a sample has one seed in all "
            "epochs: give the DataLoader batch_sampler=wids.BatchSampler(sampler, batch_size) with "
            "a sampler of wids, or use wids.Loader"
        )
    return derive_key(draw.seed, draw.epoch, _SAMPLE_SEEDS, index) >> 1
