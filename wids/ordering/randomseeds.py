"""Random seeds for transformations: they depend on the epoch and the sample, not on the worker.

A batch of indexes carries the epoch to the worker that reads it; while its samples are read, the
epoch is known to the thread.
"""

import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from wids.base.warn import warn
from wids.ordering.permute import derive_key

__all__ = ["IndexBatch", "random_seed", "reading_batch"]

# Apart from all that the order itself derives from a seed and an epoch.
_SAMPLE_SEEDS = 0x73656564


class IndexBatch(list[int]):
    """The indexes of a batch, with the seed of their order and the epoch that they are drawn in."""

    seed: int
    epoch: int


class _Draw(NamedTuple):
    """What a thread that reads samples knows of where they were drawn."""

    seed: int = 0
    epoch: int = 0
    known: bool = True


_FETCHER = "torch.utils.data._utils.fetch"

# A sample that is read by itself, and one of a batch that does not say where it was drawn.
_ALONE, _UNKNOWN = _Draw(), _Draw(known=False)

# Of each thread its own: a `wids.Loader` reads batches of two epochs side by side.
_reading = threading.local()


@contextmanager
def reading_batch(indexes: Sequence[int]) -> Iterator[None]:
    """Let `random_seed` know the epoch of a batch while its samples are read."""
    before = getattr(_reading, "draw", _ALONE)
    if isinstance(indexes, IndexBatch):
        _reading.draw = _Draw(indexes.seed, indexes.epoch)
    # The part of a batch that lies in one dataset of a mixture is of the batch's epoch.
    elif before is _ALONE:
        _reading.draw = _UNKNOWN
    try:
        yield
    finally:
        _reading.draw = before


def random_seed(sample: Mapping[str, Any] | int) -> int:
    """Return a seed for what a transformation draws at random for a sample.

    It depends on the seed of the sampler, the epoch and the index of the sample, and on nothing
    else: an augmentation seeded by it is another one each epoch, and the same for any number of
    workers, ranks and resumptions. The batches must come from a `BatchSampler` or through a
    `wids.Loader`; those of torch's own do not know their epoch, which is warned of, and count as
    those of seed 0 and epoch 0. So does a sample that is read by itself, which is warned of only
    where a DataLoader reads it.

    Args:
        sample: The sample, or its index in the dataset.

    Returns:
        A number in `[0, 2**63)`, as NumPy and torch take for a seed.

    >>> random_seed({"__index__": 7}) == random_seed(7) != random_seed(8)
    True
    """
    index = sample if isinstance(sample, int) else sample["__index__"]
    draw = getattr(_reading, "draw", _ALONE)
    if not draw.known or (draw is _ALONE and _in_loader()):
        warn(
            "random_seed does not know the epoch of this batch, so a sample has one seed in all "
            "epochs: give the DataLoader batch_sampler=wids.BatchSampler(sampler, batch_size) with "
            "a sampler of wids, or use wids.Loader"
        )
    return derive_key(draw.seed, draw.epoch, _SAMPLE_SEEDS, index) >> 1


def _in_loader() -> bool:
    """Return whether a DataLoader asks for the sample, in a worker or with `batch_size=None`."""
    data = sys.modules.get("torch.utils.data")
    if data is None or data.get_worker_info() is not None:
        return data is not None
    # Without workers nothing but the calls that led here tells its reads from those of a program.
    frame: Any = sys._getframe(1)  # noqa: SLF001 (inspect.stack() reads source files)
    while frame is not None and frame.f_globals.get("__name__") != _FETCHER:
        frame = frame.f_back
    return frame is not None
