"""This library, with JPEGs decoded at 224 x 224 from their compressed data."""

from collections.abc import Callable, Iterable
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
    folder: Path, options: dict[str, Any], **settings: Any
) -> Callable[[int], Iterable[Any]]:
    decode = wids.ImageDecoder("numpy", "RGB", wids.Resize((224, 224)), **settings)
    samples = wids.ShardListDataset(
        folder / "spec.json", transformations=decode, fields=(".jpg", ".cls")
    )
    samples.add_transform(pair)
    sampler = wids.ChunkedSampler(samples, chunksize=2000, shuffle=True)

    def epoch(number: int) -> DataLoader:
        sampler.set_epoch(number)
        return DataLoader(
            samples,
            batch_size=options["batch_size"],
            sampler=sampler,
            num_workers=options["workers"],
            collate_fn=shared.stack,
        )

    return epoch
