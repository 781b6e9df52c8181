"""`OrderedDataModule`: a dataset in the order of a sampler, as the data of Lightning's Trainer.

Importing it imports Lightning and torchdata, which `import wids` does not.
"""

from typing import Any

from lightning.pytorch import LightningDataModule  # type: ignore[import-not-found]
from torchdata.stateful_dataloader import StatefulDataLoader  # type: ignore[import-untyped]

from wids.ordering.batchsampler import BatchSampler
from wids.ordering.samplers import (
    ChunkedSampler,
    DistributedShardSampler,
    check_drawn_from,
    check_own,
)

__all__ = ["OrderedDataModule"]


class OrderedDataModule(LightningDataModule):  # type: ignore[misc]  # not installed for mypy
    """Exact epochs of all ranks, which go on in their middle from Lightning's checkpoints.

    The trainer must have `use_distributed_sampler=False`: the samplers deal to the ranks.

    Args:
        train: Dataset or view to train with.
        batch_size: Samples of a batch of a rank.
        val: Dataset or view to validate with, in the order of storage; None for no validation.
        sampler: Sampler over `train`; by default a `DistributedShardSampler`.
        options: Further options of torchdata's `StatefulDataLoader`, such as `num_workers`.

    Raises:
        TypeError: The sampler is not of this library.
        ValueError: The sampler draws from another number of samples.

    Example:
        ```python
        data = OrderedDataModule(wids.open("train.json"), 64, num_workers=4)
        Trainer(use_distributed_sampler=False, max_epochs=3).fit(model, datamodule=data)
        ```
    """

    def __init__(
        self,
        train: Any,
        batch_size: int,
        *,
        val: Any = None,
        sampler: ChunkedSampler | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        if sampler is not None:
            check_own("sampler", sampler)
            check_drawn_from("sampler", sampler, len(train))
        self._train, self._val = train, val
        self._batch_size, self._sampler, self._options = batch_size, sampler, options

    def train_dataloader(self) -> StatefulDataLoader:
        """Return the loader of training, whose state Lightning saves in its checkpoints."""
        return self._loader(self._train, self._sampler or DistributedShardSampler(self._train))

    def val_dataloader(self) -> Any:
        """Return the loader of validation, in which ranks have equally many samples."""
        if self._val is None:
            return []
        return self._loader(self._val, DistributedShardSampler(self._val, shuffle=False))

    def _loader(self, samples: Any, sampler: ChunkedSampler) -> StatefulDataLoader:
        batches = BatchSampler(sampler, self._batch_size)
        return StatefulDataLoader(samples, batch_sampler=batches, **self._options)
