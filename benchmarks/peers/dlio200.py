"""DLIO 2.0 reads its own samples from shards: by its torch loader, and by a `wids.Loader`.

DLIO names these classes by its options `reader_classname` and `data_loader_classname`. As its own
readers do, they decode each sample, and hand on an array of the size that the workload states.
"""

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from dlio_benchmark.common.enumerations import DataLoaderType, DatasetType
from dlio_benchmark.data_loader.base_data_loader import BaseDataLoader
from dlio_benchmark.reader.reader_handler import FormatReader
from PIL import Image

import wids

SHARDS = "DLIO_SHARDS"  # environment variable with the spec


def decode(sample: dict[str, Any]) -> np.ndarray:
    """Decode a sample as DLIO's own readers do."""
    if ".npz" in sample:
        return np.load(io.BytesIO(sample[".npz"]), allow_pickle=True)["x"][..., 0]
    return np.asarray(Image.open(io.BytesIO(sample[".jpeg"])))


class WidsReader(FormatReader):
    """Reads a sample at the index that DLIO's sampler gives to DLIO's loader."""

    def __init__(self, dataset_type: DatasetType, thread_index: int, _epoch: int) -> None:
        super().__init__(dataset_type, thread_index)
        self._samples = wids.open(os.environ[SHARDS], transformations="bytes")
        self._rows = {key: row for row, key in enumerate(self._samples.keys)}

    def read_index(self, global_sample_idx: int, _step: int) -> np.ndarray:
        """Read and decode a sample; return the array that stands for it."""
        name, _ = self.global_index_map[global_sample_idx]
        decode(self._samples[self._rows[Path(name).stem]])
        self.preprocess()
        return self._args.resized_image

    def open(self, filename: str) -> None:
        """Open nothing: shards are open."""

    def close(self, filename: str) -> None:
        """Close nothing."""

    def get_sample(self, filename: str, sample_index: int) -> None:
        """Not called, as samples are read by `read_index`."""

    def next(self) -> None:
        """Not called, as samples are read by `read_index`."""

    def finalize(self) -> None:
        """Keep the shards open for the next epoch."""

    def is_index_based(self) -> bool:
        """Say that `read_index` is there."""
        return True

    def is_iterator_based(self) -> bool:
        """Say that `next` is not there."""
        return False


class WidsLoader(BaseDataLoader):
    """Gives DLIO the batches of a `wids.Loader`."""

    def __init__(self, format_type: Any, dataset_type: DatasetType, epoch_number: int) -> None:
        super().__init__(format_type, dataset_type, epoch_number, DataLoaderType.PYTORCH)

    def read(self) -> None:
        """Open the shards."""
        resized = torch.as_tensor(np.asarray(self._args.resized_image))

        def decoded(sample: dict[str, Any]) -> torch.Tensor:
            decode(sample)
            return resized

        samples = wids.open(os.environ[SHARDS], transformations="bytes")
        sampler = wids.DistributedShardSampler(samples, self._args.comm_size, self._args.my_rank)
        self._loader = wids.Loader(
            samples.map(decoded),
            self.batch_size,
            sampler=sampler,
            collate_fn=torch.stack,
            num_workers=self._args.read_threads,
            drop_last=True,
        )

    def next(self) -> Iterator[torch.Tensor]:
        """Yield the batches of an epoch."""
        yield from self._loader

    def finalize(self) -> None:
        """Keep the loader for the next epoch."""
