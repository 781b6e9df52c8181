"""The cache folder: shards fetched once, unpacked, checked, bounded, shared by all processes."""
