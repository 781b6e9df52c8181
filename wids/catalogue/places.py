"""Where the samples of a sequence lie: in which datasets, and at which indexes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from wids.reading.samplesequence import is_sharded

if TYPE_CHECKING:
    import numpy.typing as npt

    from wids.reading.samplesequence import ShardedSequence

__all__ = ["datasets_of", "places"]


def datasets_of(samples: Any) -> list[ShardedSequence]:
    """Return the distinct datasets of which a sequence has samples, in order.

    Args:
        samples: A dataset, or a selection or concatenation of datasets.

    Raises:
        TypeError: There are samples of something else, such as a list, or of a join.
    """
    if is_sharded(samples):
        return [samples]
    # The plan of a view: its first slot has the samples, each further one what a join adds.
    slots: Any = getattr(samples, "slots", ())
    leaves = [source.leaf for source in slots[0].sources] if len(slots) == 1 else [samples]
    if not all(map(is_sharded, leaves)):
        raise TypeError(
            f"SQL asks datasets, selections and concatenations of them, got {samples!r:.120}; of a "
            "join, ask the dataset that was joined"
        )
    return list({id(leaf): leaf for leaf in leaves}.values())


def places(samples: Any) -> npt.NDArray[np.int64] | None:
    """Return the address of each sample in its datasets, one after the other.

    Args:
        samples: As for `datasets_of`, in whose order the datasets are.

    Returns:
        The addresses, int64; None for a dataset, whose samples are all, in their order.
    """
    if is_sharded(samples):
        return None
    starts, start = {}, 0
    for dataset in datasets_of(samples):
        starts[id(dataset)] = start
        start += len(dataset)
    addresses = np.empty(len(samples), np.int64)
    everything = np.arange(len(samples), dtype=np.int64)
    for leaf, slots, rows, _ in samples.slots[0].by_leaf(everything):
        addresses[slots] = rows + starts[id(leaf)]
    return addresses
