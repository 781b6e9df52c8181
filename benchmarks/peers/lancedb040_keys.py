"""LanceDB: its own table of keys with a scalar index, whose rows are found for `key_lookup.py`.

The keys are made as that script makes them. A line of the input names the rows whose keys are
looked for, one query each.
"""

import json
import resource
import sys
from pathlib import Path

import lancedb
import numpy as np
import pyarrow as pa
from lancedb.index import BTree


def spent() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)  # with all threads of the library
    return used.ru_utime + used.ru_stime


def main() -> None:
    folder, total = Path(sys.argv[1]), int(sys.argv[2])
    digits = np.random.default_rng(0).integers(0, 1 << 63, total, dtype=np.uint64)
    keys = [f"{number:016x}" for number in digits.tolist()]
    columns = {"key": keys, "row": np.arange(total)}
    table = lancedb.connect(folder / "lance").create_table("keys", pa.table(columns))
    start = spent()
    table.create_index("key", config=BTree())
    print(json.dumps([total / (spent() - start) / 1e6]), flush=True)
    for line in sys.stdin:
        start, rows = spent(), json.loads(line)
        found = [
            table.search()
            .where(f"key = '{keys[row]}'")
            .select(["row"])
            .limit(1)
            .to_list()[0]["row"]
            for row in rows
        ]
        if found != rows:
            raise RuntimeError("a key was not found")
        print(json.dumps([(spent() - start) / len(rows) * 1e6]), flush=True)


main()
