"""`OrderedSource`: the samples of one rank in the order of a sampler, as a data source of Grain.

It imports nothing of Grain, which asks a source for its length and for the element at a position.
"""

from functools import lru_cache
from typing import Any

from wids.base.arguments import check_integer
from wids.ordering.randomseeds import IndexBatch
from wids.ordering.samplers import ChunkedSampler, check_drawn_from, check_own

__all__ = ["OrderedSource"]

_BLOCK = 4096  # positions whose indexes are computed at a time


class OrderedSource:
    """Samples of one rank, epoch after epoch, for `grain.MapDataset.source` or `grain.DataLoader`.

    The position in Grain's checkpoints is all that a resumed run needs. `wids.random_seed` knows
    the epoch of each sample. The sampler deals to the ranks, so Grain must not shard or shuffle.

    Args:
        samples: A dataset or view.
        sampler: A sampler over it. Epochs count from 0; the sampler's own position has no effect.
        num_epochs: Number of epochs, at least 1.

    Raises:
        TypeError: The sampler is not of this library.
        ValueError: It draws from another number of samples, or `num_epochs` is below 1.

    >>> import tempfile, wids
    >>> folder = tempfile.mkdtemp()
    >>> with wids.ShardWriter(f"{folder}/a-%03d.tar") as writer:
    ...     for number in range(3):
    ...         writer.write({"__key__": str(number), ".cls": number})
    >>> samples = wids.ShardListDataset(folder)
    >>> source = OrderedSource(samples, wids.DistributedShardSampler(samples, 1, 0), num_epochs=2)
    >>> len(source), sorted(source[position][".cls"] for position in range(3))
    (6, [0, 1, 2])
    """

    def __init__(self, samples: Any, sampler: ChunkedSampler, num_epochs: int) -> None:
        check_own("sampler", sampler)
        check_drawn_from("sampler", sampler, len(samples))
        self._samples, self._sampler = samples, sampler
        self._num_epochs = check_integer("num_epochs", num_epochs, 1)
        self._of_epoch = len(sampler)
        # Grain reads with several threads, which may be in two blocks at a time.
        self._indexes = lru_cache(maxsize=4)(self._compute_indexes)

    def __len__(self) -> int:
        """Number of samples of this rank in all epochs."""
        return self._num_epochs * self._of_epoch

    def __getitem__(self, position: int) -> Any:
        """Return the sample at a position of the run.

        Raises:
            IndexError: The position is not in `[0, len(source))`.
        """
        if not 0 <= position < len(self):
            raise IndexError(
                f"position {position} is out of range: the source has {len(self)} samples in "
                f"{self._num_epochs} epochs"
            )
        epoch, step = divmod(int(position), self._of_epoch)
        block, offset = divmod(step, _BLOCK)
        index = self._indexes(epoch, block)[offset]
        batch = IndexBatch([index], self._sampler.seed, epoch, len(self._samples))
        return self._samples.__getitems__(batch)[0]

    def __repr__(self) -> str:  # by which Grain tells whether a checkpoint is of this source
        return f"OrderedSource({self._sampler!r}, num_epochs={self._num_epochs})"

    def __reduce__(self) -> tuple[Any, ...]:
        return OrderedSource, (self._samples, self._sampler, self._num_epochs)

    def _compute_indexes(self, epoch: int, block: int) -> list[int]:
        state = self._sampler.start(epoch)
        share, first = self._sampler.share(state), block * _BLOCK
        positions = share.positions(first, min(share.count, first + _BLOCK))
        indexes: list[int] = self._sampler.order(state).at(positions).tolist()
        return indexes
