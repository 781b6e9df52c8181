"""Write a Lance dataset as Parquet files, which `wids import` turns into shards.

from from_lance import export_lance
export_lance("x.lance", "tables")
"""

from pathlib import Path

import lance
import pyarrow.parquet


def export_lance(dataset, folder):
    """Write one Parquet file for each batch of rows."""
    Path(folder).mkdir(parents=True)
    source = lance.dataset(dataset)
    for number, batch in enumerate(source.to_batches(batch_size=1000)):
        table = pyarrow.Table.from_batches([batch])
        pyarrow.parquet.write_table(table, f"{folder}/part-{number:05d}.parquet")
