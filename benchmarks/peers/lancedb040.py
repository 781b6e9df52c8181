"""LanceDB: its own table made of the Parquet file of `view_read.py`, read through a permutation."""

import json
import sys
import time
from pathlib import Path

import lancedb
import pyarrow.parquet
from lancedb.permutation import Permutation, permutation_builder


def main() -> None:
    folder = Path(sys.argv[1])
    table = lancedb.connect(folder / "lance").create_table(
        "samples", pyarrow.parquet.read_table(folder / "all.parquet")
    )
    chosen = permutation_builder(table).filter("chosen = true").execute()
    rows = Permutation.from_tables(table, chosen).select_columns(["key", "jpg", "cls"])
    print("ready", flush=True)
    for line in sys.stdin:
        order, batch = json.loads(line)
        start = time.process_time()
        nbytes = 0
        for at in range(0, len(order), batch):
            taken = rows.__getitems__(order[at : at + batch])
            nbytes += sum(len(row["jpg"]) for row in taken)
        print(json.dumps([time.process_time() - start, nbytes]), flush=True)


main()
