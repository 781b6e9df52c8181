"""The order of an epoch: permutations, chunks, samplers, resumption; arithmetic on indexes."""
