"""JSON specs of datasets: parsing, storage in columns, building from shards, editing."""
