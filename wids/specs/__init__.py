"""The JSON shard-spec: read, resolved, held in columns, made from shards, changed, written back."""
