"""Lance, the format of LanceDB: a table in a bucket, whose rows threads take in a given order."""

import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import lance
import pyarrow as pa


def make(folder: str, uri: str, rows: int) -> None:
    """Write each file of a folder as a row; the files are named by numbers."""
    schema = pa.schema([("jpg", pa.large_binary())])
    paths = sorted(Path(folder).iterdir(), key=lambda path: int(path.name))

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, len(paths), rows):
            fields = [path.read_bytes() for path in paths[start : start + rows]]
            yield pa.record_batch([pa.array(fields, pa.large_binary())], schema)

    reader = pa.RecordBatchReader.from_batches(schema, batches())
    lance.write_dataset(reader, uri, max_rows_per_file=rows)


def read(uri: str, storage: dict[str, str], order: list[int], batch: int, threads: int) -> None:
    """Make one pass by batches; print samples a second, the first batch, CPU and bytes."""
    dataset = lance.dataset(uri, storage_options=storage)
    batches = [order[at : at + batch] for at in range(0, len(order), batch)]
    wall, cpu = time.perf_counter(), time.process_time()
    first, count, nbytes = 0.0, 0, 0

    def take(indexes: list[int]) -> list[memoryview]:
        column = dataset.take(indexes, columns=["jpg"])["jpg"]
        return [memoryview(each.as_buffer()) for each in column]

    with ThreadPoolExecutor(threads) as pool:
        for rows in pool.map(take, batches):
            first = first or time.perf_counter() - wall
            count += len(rows)
            nbytes += sum(map(len, rows))
    seconds = time.perf_counter() - wall
    print(json.dumps([count / seconds, first, time.process_time() - cpu, nbytes]))


settings = json.loads(sys.argv[2])
if sys.argv[1] == "make":
    make(**settings)
else:
    read(**settings)
