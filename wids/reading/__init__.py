"""The dataset: random access to samples by global index."""
