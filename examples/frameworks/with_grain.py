"""A dataset or view as the source of a Grain pipeline: it is one as it stands.

from with_grain import as_grain
for batch in as_grain(samples, batch_size=32, seed=1): ...
"""

import grain


def as_grain(samples, *, batch_size, seed):
    """Return shuffled batches; `iter(...)` has `get_state` and `set_state`."""
    dataset = grain.MapDataset.source(samples).shuffle(seed=seed)
    return dataset.to_iter_dataset().batch(batch_size, batch_fn=list)
