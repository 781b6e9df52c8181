"""Make the shards that the benchmarks read.

`images`: crops of real photographs as JPEG, a class and a JSON description; about 20 kB a sample.
`tokens`: one `.npy` of about 200 bytes a sample, where the cost of a read is all overhead.

The photographs are the public-domain pictures inside the wheel of scikit-image; nothing else of
it is used. The tars are written with Python's `tarfile`, so that no library reads what it wrote.
Shards are uneven on purpose.

    python benchmarks/data.py                 # about 300 MB under .bench/data, some seconds
    python benchmarks/data.py --size full     # about 2.3 GB: 60,000 images, 1,000,000 token samples
"""

import argparse
import io
import itertools
import json
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

BENCH = Path(__file__).resolve().parents[1] / ".bench"
PHOTO_WHEEL = "scikit-image==0.26.0"
PHOTOS = [
    *("astronaut.png", "chelsea.png", "coffee.png", "ihc.png", "rocket.jpg", "retina.jpg"),
    *("motorcycle_left.png", "motorcycle_right.png", "hubble_deep_field.jpg"),
]

Sample = dict[str, bytes]


@dataclass(frozen=True)
class Size:
    """How much data to make: samples and shards of each kind."""

    images: int
    tokens: int
    shards: int


SIZES = {
    "tiny": Size(images=60, tokens=200, shards=3),
    "small": Size(images=4_000, tokens=50_000, shards=20),
    "default": Size(images=8_000, tokens=100_000, shards=20),
    "full": Size(images=60_000, tokens=1_000_000, shards=30),
}


def uneven_lengths(total: int, num_shards: int, seed: int = 0) -> list[int]:
    """Split `total` samples over shards of uneven length, none of them empty.

    >>> sum(uneven_lengths(1000, 7)), min(uneven_lengths(7, 7))
    (1000, 1)
    """
    cuts = np.random.default_rng(seed).choice(total - 1, num_shards - 1, replace=False) + 1
    ends = [*sorted(int(cut) for cut in cuts), total]
    return [end - start for start, end in itertools.pairwise([0, *ends])]


def photos() -> list[Image.Image]:
    """Load the photographs, fetching the wheel that holds them on first use."""
    folder = BENCH / "photos"
    if not (folder / "skimage" / "data").is_dir():
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder)]
        subprocess.run([*pip, PHOTO_WHEEL], check=True)
    return [Image.open(folder / "skimage" / "data" / name).convert("RGB") for name in PHOTOS]


def image_samples(count: int) -> Iterator[Sample]:
    """Cut `count` crops of 256-400 x 256-300 pixels from the photographs."""
    sources, rng = photos(), np.random.default_rng(1)
    for number in range(count):
        label = int(rng.integers(len(sources)))
        source = sources[label]
        width, height = int(rng.integers(256, 401)), int(rng.integers(256, 301))
        left = int(rng.integers(source.width - width + 1))
        top = int(rng.integers(source.height - height + 1))
        stream = io.BytesIO()
        crop = source.crop((left, top, left + width, top + height))
        crop.save(stream, "JPEG", quality=int(rng.integers(85, 91)))
        about = {"number": number, "photo": PHOTOS[label], "left": left, "top": top}
        yield {
            ".cls": str(label).encode(),
            ".jpg": stream.getvalue(),
            ".json": json.dumps(about).encode(),
        }


def token_samples(count: int) -> Iterator[Sample]:
    """Make `count` arrays of 36 random 16-bit tokens, stored as .npy files of 200 bytes."""
    rng = np.random.default_rng(2)
    for _ in range(count):
        stream = io.BytesIO()
        np.save(stream, rng.integers(0, 50_000, 36, dtype=np.uint16))
        yield {".npy": stream.getvalue()}


def write_shards(folder: Path, samples: Iterator[Sample], lengths: list[int]) -> None:
    """Write the samples as ustar shards, a spec, and the table that the floor reads by.

    The spec holds absolute paths, as wids 0.1.11 wants them. `table.npz` holds, for each sample,
    its shard, and for each of its members the offset and size of the data, both in bytes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    shards, places = [], []
    for shard_index, nsamples in enumerate(lengths):
        path = folder / f"shard-{shard_index:04d}.tar"
        with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
            for number, sample in enumerate(itertools.islice(samples, nsamples)):
                places.append(add_members(tar, f"{shard_index:04d}{number:07d}", sample))
        shards.append(
            {"url": str(path), "nsamples": nsamples, "filesize": path.stat().st_size},
        )
    # The array `places` has the shape (num_samples, members, 2).
    np.savez(folder / "table.npz", places=places, shards=np.repeat(range(len(lengths)), lengths))
    spec = {"wids_version": 1, "name": folder.name, "shardlist": shards}
    (folder / "spec.json").write_text(json.dumps(spec, indent=1))  # last: it says "complete"


def add_members(tar: tarfile.TarFile, key: str, sample: Sample) -> list[tuple[int, int]]:
    """Append the members of one sample; return the offset and size of each one's data."""
    places = []
    for extension, data in sample.items():
        member = tarfile.TarInfo(key + extension)
        member.size = len(data)
        places.append((tar.offset + tarfile.BLOCKSIZE, len(data)))
        tar.addfile(member, io.BytesIO(data))
    return places


MAKERS: dict[str, Callable[[int], Iterator[Sample]]] = {
    "images": image_samples,
    "tokens": token_samples,
}


def prepare(kind: str, size: str = "default", root: Path = BENCH / "data") -> Path:
    """Make one kind of data unless it is there; return its folder, which holds spec.json.

    Args:
        kind: "images" or "tokens".
        size: A key of `SIZES`.
        root: Where the data of all kinds and sizes lie.
    """
    folder = root / f"{kind}-{size}"
    if not (folder / "spec.json").is_file():
        started = time.perf_counter()
        count = getattr(SIZES[size], kind)
        write_shards(folder, MAKERS[kind](count), uneven_lengths(count, SIZES[size].shards))
        took = time.perf_counter() - started
        print(f"made {count:,} samples of {kind} in {took:.0f} s: {folder}", file=sys.stderr)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--size", choices=sorted(SIZES), default="default")
    size = parser.parse_args().size
    for kind in MAKERS:
        prepare(kind, size)


if __name__ == "__main__":
    main()
