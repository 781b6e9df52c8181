"""How fast does a `DeviceDecoder` decode JPEGs on a GPU, and how busy does it keep a network?

Photographs of 500 x 375 pixels at quality 90, random crops to 224 x 224, batches of 128, beside the
webdataset reader of DALI where it is installed. Busy is the rate of a ResNet-50 in bfloat16 fed by
each, over its rate on a batch that stays on the GPU. Needs a GPU and torchvision.

    python benchmarks/device_decoder.py FOLDER      # a folder of shards with .jpg and .cls

Result, H100 with 16 cores of a machine shared with others, medians of four rounds: one thread 9,700
pictures a second and 0.88 busy, two threads 13,500 and 0.88, DALI 2.4 21,500 and 0.93. On a quieter
machine: 10,200 and 0.95 with one thread, 20,500 with two.

Reason: reading and launching take 4 ms of Python a batch, under the lock that the training loop
needs to launch its own kernels; DALI does all of it in C++. Without the fused kernel, resizing one
picture after the other, a loop over the same decoder reached 8,300 pictures a second.
"""

import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

import wids

BATCH, SIDE, ROUNDS, SECONDS, WARM = 128, 224, 4, 2.5, 8
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
Batches = Iterator[torch.Tensor]


def with_wids(folder: str, threads: int) -> Batches:
    dataset = wids.ShardListDataset(folder, transformations="bytes", fields=(".jpg", ".cls"))
    decoder = wids.DeviceDecoder(
        "cuda", size=wids.RandomResizedCrop(SIDE), mean=MEAN, std=DEVIATION, dtype=torch.bfloat16
    )
    sampler = wids.DistributedShardSampler(dataset, num_replicas=1, rank=0)
    loader = wids.Loader(dataset, BATCH, sampler=sampler, num_workers=threads, device=decoder)
    while True:
        for batch in loader:
            yield batch[".jpg"]


def with_dali(folder: str) -> Batches:
    from nvidia.dali import fn, pipeline_def, types
    from nvidia.dali.plugin.pytorch import feed_ndarray

    @pipeline_def(batch_size=BATCH, num_threads=16, device_id=0)
    def pipeline() -> Any:
        paths = sorted(map(str, Path(folder).glob("*.tar")))
        encoded, _ = fn.readers.webdataset(
            paths=paths, ext=["jpg", "cls"], random_shuffle=True, initial_fill=1000
        )
        pictures = fn.decoders.image_random_crop(encoded, device="mixed", output_type=types.RGB)
        return fn.crop_mirror_normalize(
            fn.resize(pictures, size=(SIDE, SIDE)),
            dtype=types.FLOAT16,
            output_layout="CHW",
            mean=[255 * value for value in MEAN],
            std=[255 * value for value in DEVIATION],
        )

    made = pipeline()
    made.build()
    while True:
        (pictures,) = made.run()
        out = torch.empty(BATCH, 3, SIDE, SIDE, device="cuda", dtype=torch.float16)
        feed_ndarray(pictures.as_tensor(), out)
        yield out


def on_the_gpu() -> Batches:
    pictures = torch.randn(BATCH, 3, SIDE, SIDE, device="cuda", dtype=torch.bfloat16)
    pictures = pictures.contiguous(memory_format=torch.channels_last)
    while True:
        yield pictures


def trainer() -> Callable[[Batches], Batches]:
    from torchvision.models import resnet50

    network = resnet50().cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(network.parameters(), 0.01)

    def train(batches: Batches) -> Batches:
        for batch in batches:
            classes = torch.randint(0, 1000, (len(batch),), device="cuda")
            with torch.autocast("cuda", torch.bfloat16):
                scores = network(batch.contiguous(memory_format=torch.channels_last))
                loss = torch.nn.functional.cross_entropy(scores, classes)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            yield batch

    return train


def rate(batches: Batches) -> float:
    """Return the pictures a second of an iterator, measured for some seconds."""
    for _ in range(WARM):
        next(batches)
    torch.cuda.synchronize()
    count, started = 0, time.perf_counter()
    while time.perf_counter() - started < SECONDS:
        count += len(next(batches))
    torch.cuda.synchronize()
    return count / (time.perf_counter() - started)


def measure(folder: str) -> dict[str, list[tuple[float, float]]]:
    """Return the rate and the share of the network's own rate of each way, round by round."""
    ways: dict[str, Callable[[], Batches]] = {
        "DeviceDecoder, one thread": lambda: with_wids(folder, 1),
        "DeviceDecoder, two threads": lambda: with_wids(folder, 2),
        "DALI": lambda: with_dali(folder),
    }
    train = trainer()
    results = defaultdict(list)
    for _ in range(ROUNDS):
        alone = rate(train(on_the_gpu()))
        for name, way in ways.items():
            try:
                results[name].append((rate(way()), rate(train(way())) / alone))
            except ImportError as error:
                print(f"{name}: not measured ({error})")
    return results


if __name__ == "__main__":
    if not torch.cuda.is_available():
        sys.exit("this benchmark needs a GPU, and torch finds none")
    for name, rounds in measure(sys.argv[1]).items():
        decoded, busy = (statistics.median(column) for column in zip(*rounds, strict=True))
        print(f"{name}: {decoded:,.0f} pictures a second, network {busy:.2f} busy")
