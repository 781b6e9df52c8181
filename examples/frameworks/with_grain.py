"""A dataset or view in the order of a sampler, as the source of a Grain pipeline.

from with_grain import as_grain
for batch in as_grain(samples, batch_size=32, seed=1): ...
"""

import grain

import wids
from wids.grain import OrderedSource


def as_grain(samples, *, batch_size, seed, num_epochs=1, num_replicas=1, rank=0):
    """Return the batches of a rank; `iter(...)` has `get_state` and `set_state`."""
    sampler = wids.DistributedShardSampler(samples, num_replicas, rank, seed=seed)
    dataset = grain.MapDataset.source(OrderedSource(samples, sampler, num_epochs))
    return dataset.to_iter_dataset().batch(batch_size, batch_fn=list)
