"""DALI 2.4 on the CPU: its WebDataset reader, threads, and libjpeg-turbo compiled into it.

Resizing is linear with DALI's antialiasing, its default. Shuffling goes through a buffer of 2,000.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from nvidia.dali import fn, pipeline_def, types

from peers import shared


def versions() -> dict[str, str]:
    return shared.versions("nvidia-dali-cuda120")


@pipeline_def
def pictures(paths: list[str], antialias: bool) -> Any:
    jpeg, label = fn.readers.webdataset(
        paths=paths, ext=["jpg", "cls"], random_shuffle=True, initial_fill=2000, name="reader"
    )
    image = fn.decoders.image(jpeg, device="cpu", output_type=types.RGB)
    resized = fn.resize(
        image,
        resize_x=224,
        resize_y=224,
        interp_type=types.INTERP_LINEAR,
        antialias=antialias,
    )
    return resized, label


def epoch_loader(
    folder: Path, options: dict[str, Any], *, antialias: bool = True
) -> Callable[[int], Iterator[Any]]:
    shards = json.loads((folder / "spec.json").read_text())["shardlist"]
    pipeline = pictures(
        [shard["url"] for shard in shards],
        antialias,
        batch_size=options["batch_size"],
        num_threads=options["workers"],
        device_id=None,
    )
    pipeline.build()
    total = sum(shard["nsamples"] for shard in shards)

    def epoch(_number: int) -> Iterator[Any]:
        for _ in range(total // options["batch_size"]):
            images, labels = pipeline.run()
            yield images.as_array(), labels

    return epoch
