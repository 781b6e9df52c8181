"""What does a view cost when it is read: 5 % of the samples, one by one and 256 at a time?

The same samples are read raw, warm, in one random order: through the dataset, through a view, a
view of a view, a join with shards that were made of the same samples, through torch's Subset, and
as rows of LanceDB and Hugging Face datasets, whose own formats are made of the same samples first.
Rows run in turn, round by round; the ratios are medians of the ratios within a round. Times are
those of the processor, over all threads of a library, because other work slows the machine.

    python benchmarks/view_read.py [--samples 20000] [--nbytes 4000] [--rounds 15]

LanceDB runs in an interpreter of its own: `--lance PYTHON` names one that has `lancedb`. With
`--before FOLDER`, a checkout of another version reads the same views in a process of its own, in
turns with this one; all other rows are left out then.

Result, 10,000 samples of 2 to 6 kB, 9 rounds, 2 cores of AMD EPYC busy with other work (load 15),
so the microseconds are rough, and ratios below 0.9 or above 1.1 say more than those between:

    row                         us a sample    ratio
    dataset[i]                         5.58     1.00  of dataset[i]
    view[i]                            5.37     1.06  of dataset[i]
    view of a view                     4.24     0.98  of dataset[i]
    torch Subset[i]                    3.70     1.05  of dataset[i]
    datasets select[i]                83.35    17.90  of dataset[i]
    joined[i]                          8.24     1.16  of dataset[i] + other[i]
    dataset.gather_bytes               3.96     1.00  of dataset.gather_bytes
    view.gather_bytes                  3.55     0.89  of dataset.gather_bytes
    datasets select, batches          21.28     5.54  of dataset.gather_bytes
    LanceDB permutation[i]          1349.27   276.76  of dataset[i]
    LanceDB, batches                  31.30    10.19  of dataset.gather_bytes

Beside the version before views were one plan, 10,000 samples, 21 rounds, on the same machine with
a load of 15: microseconds a sample, and the ratio of the processor's times within a round.

    us a sample, ratio to before          one by one        __getitems__        gather_bytes
    mask of 50 %                        4.97    1.03        6.15    0.96        3.57    1.07
    mask of 5 %                         4.56    1.02        5.96    1.01        3.03    1.06
    mask of a mask                      5.02    1.02        5.79    0.98        3.43    1.13
    shuffled                            5.01    1.05        6.10    0.99        2.99    1.00
    4 parts                             5.42    1.08        6.15    0.85        3.53    0.19
    joined, aligned                     9.36    1.15       10.82    0.85        3.64    0.94
    joined by key                       9.30    1.13       11.05    0.87        3.33    1.18
    mask, joined by key                 9.23    1.04       10.89    0.84        3.62    1.11
    joined to a table                   9.18    1.10       16.88    1.08        3.48    1.05
    shuffled, 2 joins                  14.37    1.03       18.73    0.87        3.48    0.95
    mapped                              6.06    1.09        7.19    1.08        3.36    1.07

Reason: a view adds the look-up of an index to the read, and nearly nothing to a batch. Hugging Face
datasets and LanceDB make Python objects of Arrow columns; where LanceDB spends the rest of the time
of a single row was not looked into, and batches share it.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
if "--serve" not in sys.argv:  # which reads with the version that PYTHONPATH names
    sys.path.insert(0, str(HERE.parent))

READS, BATCH = 1024, 256
HOW = ("one by one", "__getitems__", "gather_bytes")
Read = Callable[[list[int]], int]  # from indexes to the number of bytes


def made(folder: Path, samples: int, nbytes: int, chosen: np.ndarray) -> None:
    """Write shards, their new fields as shards of their own, and a Parquet table of all."""
    import pyarrow as pa
    import pyarrow.parquet

    import wids

    chance = random.Random(3)
    wanted = set(chosen.tolist())
    rows = []
    with (
        wids.ShardWriter(f"{folder}/a-%03d.tar", maxcount=1000, spec=f"{folder}/a.json") as first,
        wids.ShardWriter(f"{folder}/b-%03d.tar", maxcount=1000, spec=f"{folder}/b.json") as second,
    ):
        for number in range(samples):
            size = chance.randrange(nbytes // 2, nbytes * 3 // 2)
            sample = {"__key__": f"{number:08d}", ".jpg": chance.randbytes(size), ".cls": b"7"}
            first.write(sample)
            second.write({"__key__": sample["__key__"], ".txt": b"a caption of some words"})
            row = {"key": sample["__key__"], "jpg": sample[".jpg"], "cls": 7}
            rows.append(row | {"chosen": number in wanted})
    pyarrow.parquet.write_table(pa.Table.from_pylist(rows), folder / "all.parquet")


def nbytes_of(sample: Any) -> int:
    return len(sample[".jpg"])


def readers(folder: Path, chosen: np.ndarray) -> dict[str, Read]:
    """Return the rows that run in this process."""
    import datasets
    import torch.utils.data

    import wids

    dataset = wids.ShardListDataset(f"{folder}/a.json", transformations="bytes")
    other = wids.ShardListDataset(f"{folder}/b.json", transformations="bytes")
    view = dataset.select(chosen)
    nested = dataset[np.arange(len(dataset))][chosen.tolist()]
    joined = dataset.join(other)
    subset = torch.utils.data.Subset(dataset, chosen.tolist())
    datasets.disable_progress_bars()
    table = datasets.Dataset.from_parquet(str(folder / "all.parquet"), cache_dir=str(folder / "hf"))
    rows = table.select(chosen)
    base = chosen.tolist()

    def batches(samples: Any, positions: list[int]) -> int:
        parts = range(0, len(positions), BATCH)
        return sum(
            samples.gather_bytes(positions[at : at + BATCH], ".jpg").values.nbytes for at in parts
        )

    return {
        "dataset[i]": lambda order: sum(nbytes_of(dataset[base[i]]) for i in order),
        "view[i]": lambda order: sum(nbytes_of(view[i]) for i in order),
        "view of a view": lambda order: sum(nbytes_of(nested[i]) for i in order),
        "torch Subset[i]": lambda order: sum(nbytes_of(subset[i]) for i in order),
        "datasets select[i]": lambda order: sum(len(rows[i]["jpg"]) for i in order),
        "other[i]": lambda order: sum(len(other[base[i]][".txt"]) for i in order),
        "joined[i]": lambda order: sum(nbytes_of(joined[base[i]]) for i in order),
        "dataset.gather_bytes": lambda order: batches(dataset, [base[i] for i in order]),
        "view.gather_bytes": lambda order: batches(view, order),
        "datasets select, batches": lambda order: sum(
            sum(map(len, rows[order[at : at + BATCH]]["jpg"])) for at in range(0, len(order), BATCH)
        ),
    }


def views_of(folder: Path) -> dict[str, Any]:
    """Return views of all kinds, for the comparison with another version."""
    import wids

    a, b = (wids.ShardListDataset(f"{folder}/{n}.json", transformations="bytes") for n in "ab")
    chance = np.random.default_rng(1)
    half, few = (chance.random(len(a)) < share for share in (0.5, 0.05))
    order = chance.permutation(len(a))
    table = str(folder / "all.parquet")
    return {
        "mask of 50 %": a[half],
        "mask of 5 %": a[few],
        "mask of a mask": a[half][chance.random(int(half.sum())) < 0.5],
        "shuffled": a[order],
        "4 parts": wids.concat([a[n::4] for n in range(4)]),
        "joined, aligned": a.join(b),
        "joined by key": a.join(b[order]),
        "mask, joined by key": a[half].join(b[order]),
        "joined to a table": a.join(table, fields=["chosen"]),
        "shuffled, 2 joins": a.join(b).join(b[order], rename={".txt": ".other.txt"})[order],
        "mapped": a.map(dict),
    }


def serve(folder: Path) -> None:
    """Read what standard input asks for, and print the time and the number of bytes."""
    views = views_of(folder)
    print(json.dumps({name: len(view) for name, view in views.items()}), flush=True)
    for line in sys.stdin:
        (name, how), order = json.loads(line)
        view = views[name]
        parts = [order[at : at + BATCH] for at in range(0, len(order), BATCH)]

        def read(_: list[int], view: Any = view, how: str = how, parts: Any = parts) -> int:
            if how == "one by one":
                return sum(nbytes_of(view[index]) for part in parts for index in part)
            if how == "gather_bytes":
                return sum(view.gather_bytes(part, ".jpg").values.nbytes for part in parts)
            return sum(sum(map(nbytes_of, view.__getitems__(part))) for part in parts)

        print(json.dumps(timed(read, order)), flush=True)


class Process:
    """An interpreter that reads what it is asked for, a line each."""

    def __init__(self, command: list[str], path: str | None = None) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=None if path is None else {**os.environ, "PYTHONPATH": path},
        )
        self.greeting = self._process.stdout.readline()

    def seconds(self, *asked: Any) -> tuple[float, int]:
        """Read samples; return the time and the number of bytes."""
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        seconds, nbytes = json.loads(self._process.stdout.readline())
        return seconds, nbytes

    def close(self) -> None:
        """End the process."""
        self._process.stdin.close()
        self._process.wait(60)


def timed(read: Read, order: list[int]) -> tuple[float, int]:
    start = time.process_time()
    nbytes = read(order)
    return time.process_time() - start, nbytes


def compared(folder: Path, before: str, rounds: int) -> None:
    """Print what views take here, and the ratio to another version."""
    command = [sys.executable, __file__, "--serve", str(folder)]
    ours, theirs = (Process(command, path) for path in (str(HERE.parent), before))
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for number in range(-2, rounds):  # the first rounds warm up
        for name, length in json.loads(ours.greeting).items():
            order = random.Random(number).choices(range(length), k=READS)
            for how in HOW:
                processes = (ours, theirs) if number % 2 else (theirs, ours)
                both = {each: each.seconds((name, how), order) for each in processes}
                if both[ours][1] != both[theirs][1]:
                    raise RuntimeError(f"{name}: the versions saw different bytes")
                if number >= 0:
                    times = both[ours][0], both[theirs][0]
                    found.setdefault((name, how), []).append(times)
    ours.close()
    theirs.close()
    print(f"{'us a sample, ratio to before':28}" + "".join(f"{how:>20}" for how in HOW))
    for name in dict.fromkeys(name for name, _ in found):
        cells = []
        for how in HOW:
            times = found[name, how]
            middle = statistics.median(now for now, _ in times) / READS * 1e6
            cells.append(f"{middle:12.2f} {statistics.median(a / b for a, b in times):7.2f}")
        print(f"{name:28}" + "".join(cells))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--samples", type=int, default=20_000)
    parser.add_argument("--nbytes", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--lance", help="interpreter with lancedb")
    parser.add_argument("--before", metavar="FOLDER", help="checkout of another version")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve is not None:
        serve(arguments.serve)
        return
    with tempfile.TemporaryDirectory(prefix="wids-views-") as name:
        folder = Path(name)
        every = np.arange(arguments.samples)
        chosen = np.random.default_rng(0).permutation(every)[: max(arguments.samples // 20, 100)]
        chosen.sort()
        made(folder, arguments.samples, arguments.nbytes, chosen)
        if arguments.before is not None:
            compared(folder, arguments.before, arguments.rounds)
            return
        rows = readers(folder, chosen)
        lance = None
        if arguments.lance:
            script = str(HERE / "peers" / "lancedb040.py")
            lance = Process([arguments.lance, script, str(folder)])
        found: dict[str, list[float]] = {}
        for number in range(-1, arguments.rounds):  # the first round warms up
            order = random.Random(number).choices(range(len(chosen)), k=READS)
            times = {row: timed(read, order) for row, read in rows.items()}
            if lance is not None:
                times["LanceDB permutation[i]"] = lance.seconds(order, 1)
                times["LanceDB, batches"] = lance.seconds(order, BATCH)
            sizes = {row: nbytes for row, (_, nbytes) in times.items() if row != "other[i]"}
            if len(set(sizes.values())) > 1:
                raise RuntimeError(f"the rows saw different bytes: {sizes}")
            if number >= 0:
                for row, (seconds, _) in times.items():
                    found.setdefault(row, []).append(seconds / READS * 1e6)
        if lance is not None:
            lance.close()
    report(found)


def report(found: dict[str, list[float]]) -> None:
    """Print the time of each row, and its ratio to that which it is compared with."""
    print(f"{'row':26} {'us a sample':>12} {'ratio':>8}")
    for row, times in found.items():
        bases = ["dataset.gather_bytes" if "batches" in row or "gather" in row else "dataset[i]"]
        bases += ["other[i]"] if row == "joined[i]" else []
        within = zip(times, *(found[base] for base in bases), strict=True)
        ratio = statistics.median(one / sum(others) for one, *others in within)
        print(f"{row:26} {statistics.median(times):12.2f} {ratio:8.2f}  of {' + '.join(bases)}")


if __name__ == "__main__":
    main()
