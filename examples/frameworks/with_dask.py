"""A dataset or view as a Dask bag.

from with_dask import as_bag
as_bag(samples, npartitions=100).map(...)
"""

import dask.bag


def as_bag(samples, npartitions):
    """Return a bag of the samples; each partition reads some adjacent ones."""

    def read(indexes):
        return samples.__getitems__(list(indexes))

    return dask.bag.range(len(samples), npartitions=npartitions).map_partitions(read)
