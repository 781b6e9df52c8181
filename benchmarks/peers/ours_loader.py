"""This library without pickling: `wids.Loader`."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import wids
from peers import shared


def versions() -> dict[str, str]:
    return shared.versions() | {"wids": wids.__version__}


def epoch_loader(
    folder: Path, options: dict[str, Any], *, workers: int | None = None
) -> Callable[[int], Iterator[tuple[int, int]]]:
    samples = wids.ShardListDataset(folder / "spec.json", transformations="bytes")
    sampler = wids.ChunkedSampler(samples, chunksize=2000)
    workers = options["workers"] if workers is None else workers
    loader = wids.Loader(samples, options["batch_size"], sampler=sampler, num_workers=workers)

    def epoch(number: int) -> Iterator[tuple[int, int]]:
        sampler.set_epoch(number)
        for batch in loader:
            fields = (column for name, column in batch.items() if name[0] == ".")
            yield len(batch["__key__"]), sum(int(column.offsets[-1]) for column in fields)

    return epoch
