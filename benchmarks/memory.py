"""What memory does a worker take, with ten thousand samples and with ten million?

A DataLoader with two workers reads the same number of random samples from a dataset of each size.
Shards of 100,000 empty samples are written, then listed as often as it takes under other names, so
that specs, indexes and lookups are those of ten million samples. Every shard has been indexed, as
from the second run on a machine on. Private memory is what a worker has for itself once it has read
(`Private_Clean` and `Private_Dirty` of `/proc/self/smaps_rollup`): pages that it shares with its
parent or the page cache count for nobody.

    python benchmarks/memory.py    # a minute
"""

import argparse
import gc
import json
import multiprocessing
import os
import re
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import common
import numpy as np
from torch.utils.data import DataLoader

import wids

SHARD_SAMPLES = 100_000
READS = 20_000
WORKERS = 2


def private_mib() -> float:
    """Weigh this process."""
    gc.collect()
    lines = Path("/proc/self/smaps_rollup").read_text()
    return sum(map(int, re.findall(r"Private_\w+: +(\d+) kB", lines))) / 1024


class Weighed:
    """A dataset whose every batch is the weight of the worker that read it, before and after."""

    def __init__(self, dataset: wids.ShardListDataset) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitems__(self, indexes: list[int]) -> tuple[float, float]:
        before = private_mib()
        self.dataset.__getitems__(indexes)
        return before, private_mib()


def write_shard(path: Path, nsamples: int) -> None:
    """Write a shard of samples with an empty field each."""
    with wids.TarWriter(path) as writer:
        for number in range(nsamples):
            writer.write({"__key__": f"{number:08d}", ".bin": b""})


def make_spec(folder: Path, num_samples: int) -> Path:
    """List one shard under as many names as the samples need, index all; return the spec."""
    per_shard = min(num_samples, SHARD_SAMPLES)
    first = folder / f"{per_shard}.tar"
    if not first.exists():
        write_shard(first, per_shard)
    shards = []
    for number in range(num_samples // per_shard):
        path = folder / f"{num_samples}-{number:04d}.tar"
        os.link(first, path)
        shards.append({"url": str(path), "nsamples": per_shard})
    spec = folder / f"{num_samples}.json"
    spec.write_text(json.dumps({"wids_version": 1, "shardlist": shards}))
    dataset = wids.ShardListDataset(spec, cache_dir=folder / "cache")
    for index in range(0, num_samples, per_shard):
        dataset[index]
    return spec


def measure(spec: Path) -> dict[str, Any]:
    """Read through workers, and weigh each before and after."""
    cache_dir = spec.parent / "cache"
    dataset = wids.ShardListDataset(spec, transformations="bytes", cache_dir=cache_dir)
    order = np.random.default_rng(0).integers(0, len(dataset), READS).tolist()
    batches = [order[:16], order[:16], order, order]
    loader = DataLoader(
        Weighed(dataset),
        batch_sampler=batches,
        num_workers=WORKERS,
        collate_fn=tuple,
        multiprocessing_context="fork",
    )
    weights = list(loader)[WORKERS:]
    return {
        "samples": len(dataset),
        "shards": len(dataset.shards),
        "private_mib": max(after for _, after in weights),
        "grown_mib": max(after - before for before, after in weights),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--samples", type=int, nargs="+", default=[10_000, 10_000_000])
    common.add_results_options(parser)
    arguments = parser.parse_args()
    spawn = multiprocessing.get_context("spawn")
    with (
        tempfile.TemporaryDirectory() as folder,
        # A process for each step, so that none weighs what another left behind.
        ProcessPoolExecutor(1, mp_context=spawn, max_tasks_per_child=1) as pool,
    ):
        folders = [Path(folder)] * len(arguments.samples)
        rows = list(pool.map(measure, pool.map(make_spec, folders, arguments.samples)))
    for row in rows:
        print(
            f"{row['samples']:>12,} samples in {row['shards']} shards: {row['private_mib']:.1f} "
            f"MiB private a worker, {row['grown_mib']:.1f} of them grown by {READS:,} reads"
        )
    arguments.out.mkdir(parents=True, exist_ok=True)
    results = {"name": "memory", "machine": common.machine(), "rows": rows}
    (arguments.out / "memory.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
