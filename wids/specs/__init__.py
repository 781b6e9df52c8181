"""JSON specs of datasets: parsed, held in columns, built from shards, edited."""
