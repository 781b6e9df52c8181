"""How fast are samples on a network file system, through a map and by positional reads?

    python benchmarks/network_read.py /mnt/shared/somewhere

The folder lies on the file system to be measured; shards of 180 and 300 MB are written there on
first use. Before each pass, their pages are dropped from the memory of this machine; what the
server keeps in its memory stays there. Each row is the median of some rounds, in which both ways
take turns.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import wids

# Bytes of a sample, and number of samples.
KINDS = {"9 kB": (8_000, 20_000), "101 kB": (100_000, 3_000)}
BATCH = 64
BATCHES = 6


def prepare(folder: Path, kind: str) -> str:
    """Write the shards of a kind unless they are there; return their spec."""
    nbytes, count = KINDS[kind]
    place = folder / f"network-read-{nbytes}"
    spec = place / "spec.json"
    if not spec.exists():
        rng = np.random.default_rng(0)
        with wids.ShardWriter(place / "%03d.tar", maxcount=count // 10, spec=spec) as writer:
            for number in range(count):
                data = rng.bytes(nbytes + int(rng.integers(0, 2000)))
                writer.write({"__key__": f"{number:06d}", ".bin": data, ".cls": 1})
    return str(spec)


def forget(spec: str) -> None:
    """Drop the pages of all shards from memory; none may be mapped."""
    for path in Path(spec).parent.glob("*.tar"):
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def single(dataset, indexes) -> int:
    return sum(len(dataset[index][".bin"]) for index in indexes[:BATCH].tolist())


def batches(dataset, indexes) -> int:
    """Read batches as a DataLoader does."""
    parts = indexes[: BATCH * BATCHES].reshape(BATCHES, BATCH).tolist()
    return sum(len(sample[".bin"]) for part in parts for sample in dataset.__getitems__(part))


def gathered(dataset, indexes) -> int:
    """Read one field of batches as `wids.Loader` does."""
    parts = indexes[: BATCH * BATCHES].reshape(BATCHES, BATCH).tolist()
    return sum(len(dataset.gather_bytes(part, ".bin").values) for part in parts)


PASSES: dict[str, tuple[Callable[..., int], bool]] = {
    "single samples, random": (single, True),
    "batches of 64, random": (batches, True),
    "`gather_bytes` of 64, random": (gathered, True),
    "`gather_bytes` of 64, in order": (gathered, False),
}


def measure(spec: str, access: str, name: str) -> tuple[float, float]:
    """Return samples and megabytes a second of one pass."""
    forget(spec)
    read, shuffled = PASSES[name]
    with wids.ShardListDataset(spec, transformations="bytes", access=access) as dataset:
        numbers = np.arange(len(dataset))
        indexes = np.random.default_rng(1).permutation(numbers) if shuffled else numbers
        dataset.keys_at(numbers[:: len(numbers) // 10])  # opens the shards
        start = time.perf_counter()
        nbytes = read(dataset, indexes)
        seconds = time.perf_counter() - start
    count = BATCH if read is single else BATCH * BATCHES
    return count / seconds, nbytes / seconds / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    print("| samples of | read as | mmap, samples/s | pread, samples/s | pread, MB/s | x mmap |")
    print("|---|---|--:|--:|--:|--:|")
    for kind in KINDS:
        spec = prepare(arguments.folder, kind)
        for name in PASSES:
            found: dict[str, list[tuple[float, float]]] = {"mmap": [], "pread": []}
            for _ in range(arguments.rounds):
                for access, rates in found.items():
                    rates.append(measure(spec, access, name))
            mapped, by_position = (
                [statistics.median(column) for column in zip(*rates, strict=True)]
                for rates in found.values()
            )
            ratio = by_position[0] / mapped[0]
            print(
                f"| {kind} | {name} | {mapped[0]:,.0f} | {by_position[0]:,.0f} | "
                f"{by_position[1]:,.0f} | {ratio:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
