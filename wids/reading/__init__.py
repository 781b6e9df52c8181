"""The dataset: a global index to a sample, through the shards that are open."""
