"""A dataset or view as a `ray.data.Dataset`.

from with_ray_data import as_ray_data
as_ray_data(samples, [".jpg", ".cls"]).map_batches(...)
"""

import ray


def as_ray_data(samples, fields, rows_at_once=256):
    """Return rows of `key` and the fields; each task reads some adjacent samples."""

    def read(batch):
        found = samples.__getitems__(batch["id"].tolist())
        columns = {"key": [sample["__key__"] for sample in found]}
        return columns | {field: [sample[field] for sample in found] for field in fields}

    return ray.data.range(len(samples)).map_batches(read, batch_size=rows_at_once)
