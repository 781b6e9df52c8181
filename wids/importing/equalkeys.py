"""Search for keys that several imported samples have, such as keys whose dots became `_`."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from wids.base.omissions import Omissions

__all__ = ["EqualKeys"]

_MASK = (1 << 64) - 1


class EqualKeys:
    """Finds the samples of an import whose key an earlier one has, in any shard.

    It takes 8 bytes a sample.

    >>> from wids.base.omissions import Omissions
    >>> equal, omissions = EqualKeys(), Omissions()
    >>> for key in ("a_b", "c", "a_b"):
    ...     equal.note(key)
    >>> equal.count(omissions)
    >>> omissions.remarks()
    ['samples with the key of an earlier one (--rekey numbers them): 1, such as samples 0 and 2']
    """

    def __init__(self) -> None:
        self._hashes = array("Q")

    def note(self, key: str) -> None:
        """Note the key of the next sample."""
        self._hashes.append(hash(key) & _MASK)

    def count(self, omissions: Omissions) -> None:
        """Count the samples with the key of an earlier one.

        Raises:
            ValueError: There is one, and the omissions are strict.
        """
        hashes = np.frombuffer(self._hashes, np.uint64)
        order = np.argsort(hashes, kind="stable")
        again = np.flatnonzero(hashes[order][1:] == hashes[order][:-1])
        if len(again):
            first, second = order[again[0]], order[again[0] + 1]
            what = "samples with the key of an earlier one (--rekey numbers them)"
            omissions.add_doubtful(what, f"samples {first} and {second}", len(again))
