"""The catalogue: a table with a row for each sample, as Parquet files, asked in SQL by DuckDB."""
