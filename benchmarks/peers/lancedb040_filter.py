"""LanceDB: its own table of numbers, whose rows with a value are counted for `view_filter.py`."""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import lancedb
import numpy as np
import pyarrow as pa

BLOCK = 1_000_000


def batches(total: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, total, BLOCK):
        numbers = np.arange(start, min(start + BLOCK, total)) % 1000
        yield pa.record_batch({"cls": numbers.astype(np.int32)})


def main() -> None:
    folder, total = Path(sys.argv[1]), int(sys.argv[2])
    schema = pa.schema([("cls", pa.int32())])
    reader = pa.RecordBatchReader.from_batches(schema, batches(total))
    table = lancedb.connect(folder / "lance").create_table("numbers", reader)
    print("ready", flush=True)
    for _ in sys.stdin:
        wall, cpu = time.perf_counter(), time.process_time()
        count = table.count_rows("cls = 3")
        took = [time.perf_counter() - wall, time.process_time() - cpu, count]
        print(json.dumps(took), flush=True)


main()
