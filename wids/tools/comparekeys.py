"""Which keys two datasets or views do not share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["KeyDifference", "compare_keys"]


class KeyDifference(NamedTuple):
    """What two sequences of samples have in common.

    Attributes:
        common: Number of samples whose key both have; a key counts as often as both have it.
        first: Keys that only the first has, in its order.
        second: Keys that only the second has, in its order.
        same_order: Whether the common samples come in one order.
    """

    common: int
    first: list[str]
    second: list[str]
    same_order: bool


def compare_keys(first: Any, second: Any) -> KeyDifference:
    """Compare the keys of two datasets or views; fields are not read.

    Raises:
        WidsError: Keys cannot be read.
    """
    alone = [_alone(first, second), _alone(second, first)]
    only_first, only_second = first.keys_at(alone[0]), second.keys_at(alone[1])
    shared = [
        sequence.keys_at(np.delete(np.arange(len(sequence)), rows))
        for sequence, rows in zip((first, second), alone, strict=True)
    ]
    return KeyDifference(len(shared[0]), only_first, only_second, shared[0] == shared[1])


def _alone(samples: Any, other: Any) -> npt.NDArray[np.int64]:
    """Return the indexes of samples whose key another sequence lacks, or has less often."""
    hashes, others = samples.key_hashes(), np.sort(other.key_hashes())
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    # The number of a sample among those of its key, from 0 on.
    numbers = np.arange(len(ordered)) - np.searchsorted(ordered, ordered)
    counts = np.searchsorted(others, ordered, "right") - np.searchsorted(others, ordered)
    alone: npt.NDArray[np.int64] = np.sort(order[numbers >= counts])
    return alone
