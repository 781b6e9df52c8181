"""What does a sample of a join cost, beside the reads that it is made of?

    python benchmarks/views_join_read.py

A dataset of small samples, as bytes and decoded, at random; the row of a Parquet table with a
caption and two numbers; and the join of both. Nanoseconds of processor time, medians over rounds in
which the three take turns.

RESULT

    bytes      sample 4,200   row 11,000   join 15,600   join / (sample + row) 1.00
    decoded    sample 8,200   row  4,800   join 12,400   join / (sample + row) 1.06

20,000 samples, on 2 cores of AMD EPYC with a load of 10 by other work, which makes all of them
slower alike, Python 3.11; two runs gave 1.00 and 1.09, 1.06 and 1.05. Wanted was at most 1.10.

REASON

The row is read straight into a copy of the sample, column by column, from arrays: nothing is
parsed. A row costs more where bytes are wanted, because its numbers are then written as text.
"""

import argparse
import random
import statistics
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import wids


def make(folder: Path, samples: int) -> wids.ShardListDataset:
    """Write samples of a text and a class, and a table in another order."""
    with wids.ShardWriter(f"{folder}/train-%03d.tar", maxcount=5000) as writer:
        for number in range(samples):
            key = f"{number:09d}"
            writer.write({"__key__": key, ".txt": f"text {number} " * 20, ".cls": number % 10})
    numbers = random.Random(0).sample(range(samples), samples)
    columns = {
        "key": [f"{number:09d}" for number in numbers],
        "caption": [f"a picture of the number {number}" for number in numbers],
        "width": numbers,
        "score": [number / 7 for number in numbers],
    }
    pq.write_table(pa.table(columns), folder / "table.parquet")
    return wids.ShardListDataset(f"{folder}/train-*.tar", transformations="bytes")


def row_reader(joined, keys: list[str]):
    """Return the function that reads a row of the table, and compares its key."""
    labels = [{"__key__": key} for key in keys]
    rows = joined.slots[1]

    def read(index: int) -> dict:
        return rows.table.extended(labels[index], rows.at(index), index)

    return read


def nanoseconds(read, indexes: list[int]) -> float:
    """Return the time that one call takes."""
    start = time.thread_time_ns()
    for index in indexes:
        read(index)
    return (time.thread_time_ns() - start) / len(indexes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--samples", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        dataset = make(Path(folder), args.samples)
        for name, left in (
            ("bytes", dataset),
            ("decoded", dataset.with_options(transformations="PIL")),
        ):
            joined = left.join(f"{folder}/table.parquet")
            reads = {
                "sample": left.__getitem__,
                "row": row_reader(joined, list(joined.keys)),
                "joined": joined.__getitem__,
            }
            indexes = random.Random(1).choices(range(args.samples), k=20_000)
            times = {kind: [] for kind in reads}
            for _ in range(args.rounds):
                for kind, read in reads.items():
                    times[kind].append(nanoseconds(read, indexes))
            ratios = [
                joined / (sample + row) for sample, row, joined in zip(*times.values(), strict=True)
            ]
            middle = {kind: round(statistics.median(each)) for kind, each in times.items()}
            print(name, middle, f"joined / (sample + row): {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main()
