"""How fast is training by byte range, without a disk, beside local shards and whole-shard fetching?

Command: `python benchmarks/range_training.py` (needs Debian's nginx-light; 0.6 GB of disk).

Ten shards of 500 samples of 100 kB from nginx on the loopback, behind a proxy that adds 20 ms to
each round trip, that of a new connection included, and that can bound the bandwidth. One pass of a
`wids.Loader` with a `DistributedShardSampler`, each in a fresh process with an empty cache folder;
the sidecars are fetched, too. `first` is the time of the first batch of 64; imports
are not counted.

- `decode`, `decode apart`: JPEG pictures decoded to arrays, which takes most of the time of a local
  pass. The bandwidth has no bound.
- `line 40 MB/s`: raw fields, over a line of 40 MB/s that all connections share.
- `10 MB/s a connection`: raw fields, from a server that gives each connection 10 MB/s.
- `first batch`: the first batch by range in round trips, of 2 s so that nothing else counts. By
  design they are four: a connection and a request for the sidecars of its shards, which are asked
  for together, and the same for its bytes.

`local` reads the same shards from the disk, `whole` fetches each shard into the cache folder before
its samples are read, with `fetch_ahead`, `range` needs no disk and holds at most 256 MB.

Client, nginx and the proxy share the processors, but in `decode apart`: there nginx and the proxy
have the first processor and the client the others, in each of its three ways, as if the server were
another machine. On a machine of two processors this row compares a client by range with a local
one: in `decode`, `local` has both processors, and the others share them with the server. What each
client takes of them is in the table (`client CPU`, which includes its kernel time), and so is what
the proxy takes (`proxy CPU`).
"""

import argparse
import io
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import common
import numpy as np
from PIL import Image
from webserver import delayed, nginx

import wids
from wids.tar.sidecar import SIDECAR_SUFFIX
from wids.tar.tarindex import TarIndex

SHARDS, PER_SHARD, NBYTES, BATCH = 10, 500, 100_000, 64
PROCESSORS = sorted(os.sched_getaffinity(0))
APART = "decode apart"
MEMORY, ROUND_TRIP_SECONDS = 256_000_000, 0.02
LINES: dict[str, dict[str, float]] = {
    "decode": {},
    APART: {},
    "line 40 MB/s": {"rate_in_all": 40e6},
    "10 MB/s a connection": {"rate": 10e6},
}
WORKER = """
import gc, json, resource, sys, time
import numpy, requests, torch, wids
from wids.reading.shardlist import ShardList
rows, folder, remote, kind, memory, most = json.loads(sys.argv[1])
wids.Loader, wids.DistributedShardSampler  # imported
cpu_seconds = lambda: sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
gc.collect()  # what the imports left, which would be collected during the pass
began, cpu_before = time.perf_counter(), cpu_seconds()
dataset = wids.ShardListDataset(
    rows, cache_dir=folder, remote=remote, transformations=kind, memory=memory
)
sampler = wids.DistributedShardSampler(dataset, num_replicas=1, rank=0, interleave=4)
ahead = dataset.fetch_ahead(sampler) if remote == "whole" and "://" in rows[0][0] else None
batches = iter(wids.Loader(dataset, batch_size=64, sampler=sampler, tensors=False, num_workers=2))
count, first, peak = 0, None, 0
for batch in batches:
    first = first or time.perf_counter() - began
    count += len(batch["__key__"])
    prefetch = batches._schedule and batches._schedule._prefetches[0]
    peak = max(peak, prefetch.peak_nbytes) if prefetch else peak
    if count >= most:
        break
seconds = time.perf_counter() - began
rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps([count / seconds, first, peak, rss, cpu_seconds() - cpu_before]))
"""


def make_shards(folder: Path) -> list[Path]:
    """Write shards of noisy JPEG pictures of about 100 kB, with their sidecars."""
    source = np.random.default_rng(0)
    pictures = []
    for _ in range(16):
        noise = source.integers(0, 256, (48, 48, 3), np.uint8)
        image = Image.fromarray(noise).resize((640, 480), Image.Resampling.BICUBIC)
        stream = io.BytesIO()
        image.save(stream, "JPEG", quality=93)
        pictures.append(stream.getvalue().ljust(NBYTES, b"\0"))
    paths = []
    with wids.ShardWriter(f"{folder}/%03d.tar", maxcount=PER_SHARD) as writer:
        for number in range(SHARDS * PER_SHARD):
            writer.write({"__key__": f"{number:06d}", ".jpg": pictures[number % 16]})
    for path in sorted(folder.glob("*.tar")):
        TarIndex.from_tar(path).save(Path(f"{path}{SIDECAR_SUFFIX}"))
        paths.append(path)
    return paths


def one_pass(
    rows: list[Any],
    root: Path,
    remote: str,
    kind: str,
    *,
    most: int = SHARDS * PER_SHARD,
    processors: Iterable[int] = PROCESSORS,
) -> dict[str, float]:
    """Make one pass, or read `most` samples of it, in a fresh process on some processors."""
    folder = tempfile.mkdtemp(dir=root)
    given = json.dumps([rows, folder, remote, kind, MEMORY, most])
    pinned = f"import os; os.sched_setaffinity(0, {list(processors)})"
    run = subprocess.run(
        [sys.executable, "-c", pinned + WORKER, given], capture_output=True, text=True, check=True
    )
    shutil.rmtree(folder)
    rate, first, peak, rss, cpu = json.loads(run.stdout.splitlines()[-1])
    return {"rate": rate, "first": first, "peak": peak, "rss": rss, "cpu": cpu}


@contextmanager
def on_first_processor() -> Iterator[list[int]]:
    """Keep this thread, and what it starts, on the first processor; yield the others."""
    first, *others = PROCESSORS
    os.sched_setaffinity(0, [first])
    try:
        yield others or [first]
    finally:
        os.sched_setaffinity(0, PROCESSORS)


def first_batch(url: str, root: Path, paths: list[Path], rounds: int) -> float:
    """Return how many round trips the first batch takes."""
    with delayed(url, 2.0) as reached:
        rows = [(f"{reached}/{path.name}", PER_SHARD) for path in paths]
        runs = [one_pass(rows, root, "range", "bytes", most=BATCH) for _ in range(rounds)]
    return statistics.median(run["first"] for run in runs) / 2.0


def measure(
    url: str,
    root: Path,
    paths: list[Path],
    rounds: int,
    *,
    names: Iterable[str],
    processors: Iterable[int] = PROCESSORS,
) -> dict[str, Any]:
    """Return the medians of each way over each line, with the client on some processors."""
    tables: dict[str, Any] = {}
    for name in names:
        kind = "numpy" if name.startswith("decode") else "bytes"
        runs: dict[str, list[dict[str, float]]] = {"local": [], "whole": [], "range": []}
        with delayed(url, ROUND_TRIP_SECONDS, **LINES[name]) as reached:
            far = [(f"{reached}/{path.name}", PER_SHARD) for path in paths]
            near = [(str(path), PER_SHARD) for path in paths]
            for _ in range(rounds):
                for way, mine in runs.items():
                    rows, remote = (near, "whole") if way == "local" else (far, way)
                    log = root / "access.log"
                    log.write_text("")
                    proxy_cpu = time.process_time()  # the proxy is a thread of this process
                    found = one_pass(rows, root, remote, kind, processors=processors)
                    proxy_cpu = time.process_time() - proxy_cpu
                    lines = [line.split() for line in log.read_text().splitlines()]
                    found |= {
                        "requests": len(lines),
                        "connections": len({line[0] for line in lines}),
                        "sent": sum(int(line[2]) for line in lines),
                        "proxy_cpu": proxy_cpu,
                    }
                    mine.append(found)
        tables[name] = [row(way, mine, runs["local"]) for way, mine in runs.items()]
    return tables


def row(way: str, runs: list[dict[str, float]], local: list[dict[str, float]]) -> dict[str, Any]:
    """Sum up the passes of one way: medians, and the median of the ratios within a round."""
    found = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
    of_local = statistics.median(
        run["rate"] / other["rate"] for run, other in zip(runs, local, strict=True)
    )
    figure = f"{found['rate']:,.0f} samples/s ({of_local:.2f} of local)"
    if way != "local":
        figure += (
            f", {found['sent'] / 1e6:.0f} MB sent in {found['requests']:,.0f} requests, "
            f"{found['rate'] * NBYTES / 1e6:.0f} MB/s"
        )
    figure += f", first batch {found['first']:.2f} s, client CPU {found['cpu']:.1f} s"
    if way != "local":
        figure += f", proxy CPU {found['proxy_cpu']:.1f} s"
    return {"label": way, "figure": figure, "of_local": of_local, **found}


def main() -> None:
    """Make the shards, make the passes, and save the results."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    common.add_results_options(parser)
    arguments = parser.parse_args()
    common.data.BENCH.mkdir(exist_ok=True)
    root = Path(tempfile.mkdtemp(dir=common.data.BENCH))
    try:
        (root / "www").mkdir()
        paths = make_shards(root / "www")
        shared = [name for name in LINES if name != APART]
        with nginx(root) as url:
            trips = first_batch(url, root, paths, arguments.rounds)
            tables = measure(url, root, paths, arguments.rounds, names=shared)
        with on_first_processor() as others, nginx(root) as url:
            tables |= measure(url, root, paths, arguments.rounds, names=[APART], processors=others)
    finally:
        shutil.rmtree(root)
    tables["first batch by range"] = [{"label": "a new loop", "figure": f"{trips:.1f} round trips"}]
    for name, rows in tables.items():
        for each in rows:
            print(f"{name} | {each['label']} | {each['figure']}")
    settings = {"rounds": arguments.rounds, "memory": MEMORY, "round_trip": ROUND_TRIP_SECONDS}
    print(common.save(arguments.out, "range_training", settings, tables))


if __name__ == "__main__":
    main()
