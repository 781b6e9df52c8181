"""Cache folder for fetched shards, shared by all processes of a machine."""
