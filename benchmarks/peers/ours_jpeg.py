"""This library, with JPEGs decoded at 224 x 224 from their compressed data."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader

import wids
from peers import shared


def versions() -> dict[str, str]:
    return shared.versions("simplejpeg", "opencv-python-headless") | {"wids": wids.__version__}


def pair(sample: dict[str, Any]) -> tuple[Any, int]:
    return sample[".jpg"], sample[".cls"]


def epoch_loader(
    folder: Path, options: dict[str, Any], *, threads: bool = False, **settings: Any
) -> Callable[[int], Iterable[Any]]:
    decode = wids.ImageDecoder("numpy", "RGB", wids.Resize((224, 224)), **settings)
    samples = wids.ShardListDataset(
        folder / "spec.json", transformations=decode, fields=(".jpg", ".cls")
    )
    sampler = wids.ChunkedSampler(samples, chunksize=2000, shuffle=True)
    common = {"batch_size": options["batch_size"], "num_workers": options["workers"]}

    def by_threads(number: int) -> Iterator[Any]:
        sampler.set_epoch(number)
        for batch in wids.Loader(samples, sampler=sampler, **common):
            yield batch[".jpg"], batch[".cls"]

    def by_workers(number: int) -> DataLoader:
        sampler.set_epoch(number)
        return DataLoader(samples, sampler=sampler, collate_fn=shared.stack, **common)

    if threads:
        return by_threads
    samples.add_transform(pair)
    return by_workers
