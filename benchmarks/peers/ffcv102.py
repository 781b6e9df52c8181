"""FFCV 1.0.2: its own file, threads, and libjpeg-turbo with OpenCV compiled into it.

The shards are converted to its format on first use, with the JPEGs encoded again at quality 90. A
picture is cut to its largest middle square and resized by OpenCV's INTER_AREA, which is FFCV's way
to 224 x 224 without randomness.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from ffcv.fields import IntField, RGBImageField
from ffcv.fields.basics import IntDecoder
from ffcv.fields.rgb_image import CenterCropRGBImageDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.writer import DatasetWriter
from PIL import Image

from peers import files, shared


def versions() -> dict[str, str]:
    return shared.versions("ffcv")


class Pictures:
    """What the converter reads: whole pictures and their classes."""

    def __init__(self, folder: Path) -> None:
        self.files = files.Files(folder)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        with Image.open(self.files.paths[index]) as image:
            return np.array(image.convert("RGB")), self.files.labels[index]


def converted(folder: Path) -> Path:
    """Write FFCV's file beside the shards."""
    target = folder / "images.beton"
    if not target.is_file():
        part = folder / "images.beton.part"
        fields = {"image": RGBImageField(write_mode="jpg", jpeg_quality=90), "label": IntField()}
        DatasetWriter(str(part), fields, num_workers=2).from_indexed_dataset(Pictures(folder))
        part.rename(target)
    return target


def epoch_loader(folder: Path, options: dict[str, Any]) -> Callable[[int], Iterable[Any]]:
    decoder = CenterCropRGBImageDecoder((224, 224), ratio=1)
    loader = Loader(
        str(converted(folder)),
        batch_size=options["batch_size"],
        num_workers=options["workers"],
        order=OrderOption.RANDOM,
        os_cache=True,
        pipelines={"image": [decoder], "label": [IntDecoder()]},
    )
    return lambda _epoch: loader
