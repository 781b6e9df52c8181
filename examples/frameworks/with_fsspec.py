"""Read fields by pandas, DuckDB and pyarrow, through the file system `wids://` of fsspec.

from with_fsspec import count_with_duckdb, read_with_pandas, read_with_pyarrow
"""

import duckdb
import fsspec
import pandas as pd
import pyarrow.dataset


def read_with_pandas(spec):
    """Return one field, whose shard and key are known."""
    return pd.read_json(f"wids://train-000.tar/000003.json::{spec}", typ="series")


def count_with_duckdb(samples):
    """Return the number of samples and the sum of a number in their `.json`."""
    connection = duckdb.connect()
    connection.register_filesystem(fsspec.filesystem("wids", fo=samples))
    query = "SELECT count(*), sum(number) FROM read_json('wids://*/*.json')"
    return connection.sql(query).fetchall()[0]


def read_with_pyarrow(samples):
    """Return the `.csv` fields of all samples as one table."""
    files = fsspec.filesystem("wids", fo=samples)
    return pyarrow.dataset.dataset(files.glob("*/*.csv"), filesystem=files, format="csv")
