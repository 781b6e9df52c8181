"""Decode JPEGs on the GPU: raw bytes from the shards, pixels made where the network wants them.

On a GPU torchvision or nvImageCodec decodes the pictures; where there is neither, or no GPU, the
processor does, with the same steps and the same shapes.

python examples/decode_on_gpu.py                  # pictures of its own
python examples/decode_on_gpu.py train.json       # the .jpg fields of your shards
"""

import sys
import tempfile
import time

import numpy as np
import torch

import wids

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def draw_shards(folder: str, count: int = 512) -> str:
    """Write shards of noisy gradients, so that there is something to decode."""
    rng = np.random.default_rng(0)
    light = np.linspace(0, 220, 320)[None, :, None]
    with wids.ShardWriter(f"{folder}/drawn-%03d.tar", maxcount=256) as writer:
        for number in range(count):
            pixels = light + rng.integers(0, 36, (240, 320, 3))
            writer.write({"__key__": f"{number:05d}", ".jpg": pixels.astype(np.uint8)})
    return folder


def decode_epoch(source: str, device: str) -> float:
    """Decode every picture once, in batches on the device; return the pictures a second."""
    decoder = wids.DeviceDecoder(
        device,
        size=wids.RandomResizedCrop(224),
        mean=MEAN,
        std=DEVIATION,
        dtype=torch.bfloat16,
    )
    with wids.open(source, transformations="bytes", fields=(".jpg",)) as dataset:
        sampler = wids.DistributedShardSampler(dataset, num_replicas=1, rank=0)
        loader = wids.Loader(dataset, batch_size=128, sampler=sampler, device=decoder)
        started, count = time.perf_counter(), 0
        for batch in loader:
            pictures = batch[".jpg"]  # (128, 3, 224, 224), on the device, ready for the network
            count += len(pictures)
        return count / (time.perf_counter() - started)


if __name__ == "__main__":
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with tempfile.TemporaryDirectory() as folder:
        source = sys.argv[1] if len(sys.argv) > 1 else draw_shards(folder)
        rate = decode_epoch(source, device)
    print(f"{rate:,.0f} pictures a second on {device}")
