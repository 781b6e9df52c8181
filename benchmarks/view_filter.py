"""How long does a filter take on a numeric column that is kept, up to 1e8 samples?

A dataset of small samples is written, and its column of classes kept; the larger sequence is that
dataset many times, one after the other, and each round reads the kept column as often. Hugging Face
datasets filter a table of as many numbers by batches of numpy arrays, pyarrow computes a mask of
the table in memory, and LanceDB (`--lance PYTHON`) counts the rows of its own table.

    python benchmarks/view_filter.py [--samples 1000000] [--times 100] [--rounds 3]

Result, 2 cores of AMD EPYC, busy with other work (load 10), so that the seconds of the processor
say more. 10,000,000 samples (100,000 in 10 shards, 100 times), medians of 3 rounds, and 100,000,000
(500,000 in 50 shards, 200 times), one round:

    row                   seconds  of processors    seconds  of processors
    wids filter              0.86           0.57       6.91           4.29
    datasets filter          7.01           4.68     171.47          37.82
    pyarrow, in memory       0.29           0.19       2.83           2.44
    LanceDB count_rows       0.05           0.04       0.35           0.25

One dataset of 100,000,000 samples in 10,000 shards takes 1.9 to 2.1 s of the processor (load 13),
1.3 s of them to find, verify and read the 10,000 files of the column.

Reason: each shard has a file for the column, which is found, verified and read. Values that rule
out a whole shard are not kept.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))


def wids_row(folder: Path, samples: int, times: int) -> Callable[[], int]:
    import wids

    with wids.ShardWriter(f"{folder}/x-%03d.tar", maxcount=10_000, spec=f"{folder}/x.json") as out:
        for number in range(samples):
            out.write({"__key__": f"{number:08d}", ".cls": b"%d" % (number % 1000)})
    dataset = wids.ShardListDataset(f"{folder}/x.json", cache_dir=folder / "cache")
    dataset.column(".cls")  # is kept from here on
    large = wids.concat([dataset] * times)
    return lambda: len(large.filter("cls = 3"))


def arrow_rows(total: int) -> dict[str, Callable[[], int]]:
    import datasets
    import pyarrow as pa
    import pyarrow.compute

    datasets.disable_progress_bars()
    datasets.disable_caching()
    numbers = np.resize((np.arange(1_000_000) % 1000).astype(np.int32), total)
    table = pa.table({"cls": numbers})
    held = datasets.Dataset(table).with_format("numpy")

    def with_datasets() -> int:
        chosen = held.filter(lambda rows: rows["cls"] == 3, batched=True, batch_size=1 << 20)
        return len(chosen)

    def with_pyarrow() -> int:
        mask = pyarrow.compute.equal(table["cls"], 3)
        return len(np.flatnonzero(mask.to_numpy()))

    return {"datasets filter": with_datasets, "pyarrow, in memory": with_pyarrow}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--samples", type=int, default=1_000_000)
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--lance", help="interpreter with lancedb")
    arguments = parser.parse_args()
    total = arguments.samples * arguments.times
    found: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory(prefix="wids-filter-") as name:
        folder = Path(name)
        rows = {"wids filter": wids_row(folder, arguments.samples, arguments.times)}
        rows |= arrow_rows(total)
        lance = None
        if arguments.lance:
            command = [
                arguments.lance,
                str(HERE / "peers/lancedb040_filter.py"),
                str(folder),
                str(total),
            ]
            lance = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            lance.stdout.readline()
        for number in range(arguments.rounds):
            for row, count in random.Random(number).sample(list(rows.items()), len(rows)):
                start = time.perf_counter(), time.process_time()
                if count() != total // 1000:
                    raise RuntimeError(f"{row}: found another number of samples")
                took = time.perf_counter() - start[0], time.process_time() - start[1]
                found.setdefault(row, []).append(took)
            if lance is not None:
                print("go", file=lance.stdin, flush=True)
                wall, cpu, count_of_rows = json.loads(lance.stdout.readline())
                if count_of_rows != total // 1000:
                    raise RuntimeError("LanceDB found another number of samples")
                found.setdefault("LanceDB count_rows", []).append((wall, cpu))
        if lance is not None:
            lance.stdin.close()
            lance.wait(60)
    print(f"{total} samples\n{'row':20} {'seconds':>8} {'of processors':>14}")
    for row, times in found.items():
        wall, cpu = (statistics.median(each[kind] for each in times) for kind in (0, 1))
        print(f"{row:20} {wall:8.2f} {cpu:14.2f}")


if __name__ == "__main__":
    main()
