"""How long does it take to join a table of shuffled keys, and how much memory?

    python benchmarks/views_join_keys.py --samples 10000000 --folder DIRECTORY

The shards are tars of empty members; the table is a Parquet file with the keys in random order and
a number for each. A process of its own joins them: first with nothing kept, so that keys are read
from the tar indexes; then again, with the rows that the first run kept.

RESULT

1e7 samples in 100 shards, on 2 cores of AMD EPYC with a load of 10 by other work, Python 3.11,
numpy 2.4, pyarrow 26; the hashes of the keys were kept (0.2 s to 1.9 s to read):

    first    26 s    971 MiB at most, of which 330 MiB are Python, numpy, torch and pyarrow
    again     4 s    572 MiB
    again     2 s    572 MiB

Wanted were 60 s and 1 GiB. The first run took 9 s of processor time. To read the keys of tars that
were never indexed took 142 s under the same load, once.

REASON

Keys are compared by hashes of 64 bits. Those of the table are sorted once, those of the samples
looked up a million at a time, sorted, so that neighbours are found in the same pages. The columns
are copied batch by batch into a file that is mapped, so that only hashes, 8 bytes a key on each
side, and one sort are in memory. The key of a row is compared with that of the sample when both
are read.
"""

import argparse
import json
import multiprocessing
import resource
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from index_tar import header

import wids

PER_SHARD = 100_000


def make_shards(folder: Path, samples: int) -> Path:
    """Write tars of empty members with their sidecars, and a spec of them."""
    spec = folder / f"keys-{samples}.json"
    if spec.exists():
        return spec
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for start in range(0, samples, PER_SHARD):
        stop = min(start + PER_SHARD, samples)
        path = folder / f"keys-{start}.tar"
        with path.open("wb") as stream:
            stream.writelines(header(b"%09d.cls" % i, 0) for i in range(start, stop))
            stream.write(bytes(1024))
        rows.append({"url": path.name, "nsamples": stop - start})
    spec.write_text(json.dumps({"wids_version": 1, "shardlist": rows}))
    return spec


def make_table(folder: Path, samples: int) -> Path:
    """Write a Parquet file of all keys in random order."""
    path = folder / f"keys-{samples}.parquet"
    if not path.exists():
        numbers = np.random.default_rng(0).permutation(samples)
        schema = pa.schema({"key": pa.string(), "number": pa.int64()})
        with pq.ParquetWriter(path, schema) as writer:
            for start in range(0, samples, 1 << 20):
                block = numbers[start : start + (1 << 20)]
                keys = [f"{number:09d}" for number in block.tolist()]
                writer.write_table(pa.table({"key": keys, "number": block}, schema))
    return path


def measure(spec: Path, table: Path, cache: Path, found: multiprocessing.Queue) -> None:
    """Join in this process, and report seconds and the largest memory."""
    dataset = wids.ShardListDataset(spec, cache_dir=cache)
    times = [time.perf_counter()]
    dataset.key_hashes()
    times.append(time.perf_counter())
    joined = dataset.join(table)
    times.append(time.perf_counter())
    places = np.random.default_rng(1).integers(0, len(joined), 1000)
    assert (joined[places].column(".number") == places).all()
    keys, join = np.diff(times).tolist()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    found.put({"keys s": round(keys, 1), "join s": round(join, 1), "peak MiB": peak})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--samples", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, default=Path(".bench"))
    args = parser.parse_args()
    spec, table = make_shards(args.folder, args.samples), make_table(args.folder, args.samples)
    spawned = multiprocessing.get_context("spawn")
    for run in ("first", "again", "kept"):
        found = spawned.Queue()
        process = spawned.Process(target=measure, args=(spec, table, args.folder / "cache", found))
        process.start()
        print(run, found.get())
        process.join()


if __name__ == "__main__":
    main()
