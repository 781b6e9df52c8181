"""Decode JPEGs on the GPU: raw bytes from the shards, pixels made where the network wants them.

Takes torchvision with CUDA, or nvImageCodec (the package nvidia-nvimgcodec-cu12); where there is
neither, or no GPU, it says so and ends.

python examples/decode_on_gpu.py                  # pictures of its own
python examples/decode_on_gpu.py train.json       # the .jpg fields of your shards
"""

import sys
import tempfile
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

import wids

Decode = Callable[[list[bytes]], list[torch.Tensor]]


def draw_shards(folder: str, count: int = 2048) -> str:
    """Write shards of noisy gradients, so that there is something to decode."""
    rng = np.random.default_rng(0)
    light = np.linspace(0, 220, 320)[None, :, None]
    with wids.ShardWriter(f"{folder}/drawn-%03d.tar", maxcount=256) as writer:
        for number in range(count):
            pixels = light + rng.integers(0, 36, (240, 320, 3))
            writer.write({"__key__": f"{number:05d}", ".jpg": pixels.astype(np.uint8)})
    return folder


def by_torchvision(batch: list[bytes]) -> list[torch.Tensor]:
    from torchvision.io import ImageReadMode, decode_jpeg

    encoded = [torch.frombuffer(bytearray(data), dtype=torch.uint8) for data in batch]
    return decode_jpeg(encoded, mode=ImageReadMode.RGB, device="cuda")


@cache
def nvimgcodec_decoder() -> Any:
    from nvidia import nvimgcodec

    return nvimgcodec.Decoder()


def by_nvimgcodec(batch: list[bytes]) -> list[torch.Tensor]:
    images = nvimgcodec_decoder().decode(batch)
    return [torch.as_tensor(image, device="cuda").permute(2, 0, 1) for image in images]


def find_decoder(trial: bytes) -> tuple[Decode | None, str]:
    """Return what decodes on the GPU, or None and the reasons why nothing does."""
    if not torch.cuda.is_available():
        return None, "torch finds no CUDA device"
    reasons = []
    for decode in (by_torchvision, by_nvimgcodec):
        try:
            decode([trial])  # a build without CUDA shows only when it is used
        except (ImportError, RuntimeError, OSError, AttributeError) as error:
            reasons.append(f"{decode.__name__}: {error}")
        else:
            return decode, ""
    return None, "; ".join(reasons)


def decode_epoch(dataset: wids.ShardListDataset, decode: Decode) -> float:
    """Decode every picture and bring it to 224 x 224; return the mean of all pixels."""
    sampler = wids.DistributedShardSampler(dataset, seed=0)
    means = []
    for batch in DataLoader(dataset, batch_size=64, sampler=sampler, collate_fn=list):
        for image in decode([sample[".jpg"] for sample in batch]):
            small = torch.nn.functional.interpolate(
                image[None].float(), (224, 224), mode="bilinear", antialias=True
            )
            means.append(small.mean())  # stays on the GPU: nothing waits for it
    return torch.stack(means).mean().item()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        source = sys.argv[1] if len(sys.argv) > 1 else draw_shards(folder)
        with wids.ShardListDataset(source, transformations="bytes", fields=(".jpg",)) as dataset:
            decode, reasons = find_decoder(dataset[0][".jpg"])
            if decode is None:
                sys.exit(print(f"skipped: no JPEG is decoded on a GPU here ({reasons})"))
            started = time.perf_counter()
            mean = decode_epoch(dataset, decode)
            rate = len(dataset) / (time.perf_counter() - started)
    print(f"{len(dataset)} pictures, {rate:,.0f} a second, mean {mean:.1f}")
