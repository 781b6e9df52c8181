"""FFCV 1.0.2 with raw fields: threads that copy bytes into padded batches of its own file.

The shards are converted on first use. How long each field is stands beside it as a number, since a
padded row does not say.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from ffcv.fields import BytesField, IntField
from ffcv.fields.basics import IntDecoder
from ffcv.fields.bytes import BytesDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.writer import DatasetWriter

from peers import shared
from peers.tarfiles import samples_of


def versions() -> dict[str, str]:
    return shared.versions("ffcv")


class Raw:
    """What the converter reads: each field as an array, and its length."""

    def __init__(self, folder: Path) -> None:
        self.samples = list(samples_of(folder))

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        fields = self.samples[index]
        arrays = [np.frombuffer(field, np.uint8) for field in fields]
        return (*arrays, *map(len, fields))


def converted(folder: Path) -> tuple[Path, int]:
    """Write FFCV's file beside the shards; return it and the number of fields."""
    width = len(next(samples_of(folder)))
    target = folder / "raw.beton"
    if not target.is_file():
        part = folder / "raw.beton.part"
        fields: dict[str, Any] = {f"field{i}": BytesField() for i in range(width)}
        fields |= {f"size{i}": IntField() for i in range(width)}
        DatasetWriter(str(part), fields, num_workers=1).from_indexed_dataset(Raw(folder))
        part.rename(target)
    return target, width


def convert(folder: Path) -> Path:
    """Write FFCV's file beside the shards; return it."""
    return converted(folder)[0]


def epoch_loader(
    folder: Path, options: dict[str, Any]
) -> Callable[[int], Iterator[tuple[int, int]]]:
    path, width = converted(folder)
    pipelines: dict[str, Any] = {f"field{i}": [BytesDecoder()] for i in range(width)}
    pipelines |= {f"size{i}": [IntDecoder()] for i in range(width)}
    loader = Loader(
        str(path),
        batch_size=options["batch_size"],
        num_workers=options["workers"],
        order=OrderOption.RANDOM,
        os_cache=True,
        pipelines=pipelines,
    )

    def epoch(_number: int) -> Iterator[tuple[int, int]]:
        for batch in loader:
            yield len(batch[0]), int(sum(sizes.sum() for sizes in batch[width:]))

    return epoch
