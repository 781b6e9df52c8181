"""`ColumnBounds`: the least and largest number of a column in each shard.

A filter such as `.json:width > 512` reads no shard whose largest width is 512. Bounds are floats,
so those of large integers are rounded away from the values. A shard has bounds only if each of its
values is a number, or missing; those of any other shard rule nothing out.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["NO_BOUNDS", "NO_NUMBERS", "ColumnBounds", "bounds_of", "name_of_bounds"]

NO_NUMBERS = (math.inf, -math.inf)  # all values are missing
NO_BOUNDS = (-math.inf, math.inf)
_EXACT = 2.0**53  # up to which floats hold all integers


class ColumnBounds(NamedTuple):
    """Bounds of a column; a row for each shard.

    Attributes:
        least: No number is less.
        largest: No number is greater.
    """

    least: NDArray[np.float64]
    largest: NDArray[np.float64]

    def without(self, shards: NDArray[np.bool_]) -> ColumnBounds:
        """Return these bounds, with those of some shards replaced by bounds that rule nothing out.

        Args:
            shards: A mask of these shards.
        """
        return ColumnBounds(
            np.where(shards, NO_BOUNDS[0], self.least), np.where(shards, NO_BOUNDS[1], self.largest)
        )


def bounds_of(values: Any) -> tuple[float, float]:
    """Return the bounds of the values of a shard, without those that are missing.

    Args:
        values: As `wids.reading.ragged.pack` returns them.

    >>> bounds_of(np.array([3, 1])), bounds_of(np.array([2**53 + 1])), bounds_of(["7", 7])
    ((1.0, 3.0), (9007199254740991.0, 9007199254740994.0), (-inf, inf))
    """
    if not len(values):
        return NO_NUMBERS
    if not isinstance(values, np.ndarray) or values.ndim != 1:
        return NO_BOUNDS
    # Comparing float32 with a number rounds the number, so such columns have other bounds.
    if values.dtype.kind not in "iu" and values.dtype != np.float64:
        return NO_BOUNDS
    numbers = values[~np.isnan(values)]  # which fulfil no comparison but `!=`
    if not len(numbers):
        return NO_NUMBERS
    return _outward(numbers.min(), -math.inf), _outward(numbers.max(), math.inf)


def _outward(number: Any, towards: float) -> float:
    """Return a number as a float; a large one is rounded towards `towards`, an infinity."""
    found = float(number)
    return math.nextafter(found, towards) if abs(found) >= _EXACT else found


def name_of_bounds(field: str, path: Sequence[str | int]) -> str:
    """Return the name of the array of the bounds of a column in a pack.

    >>> name_of_bounds(".json", ["size", "width"]), name_of_bounds(".cls", [])
    ('bounds .json["size","width"]', 'bounds .cls')
    """
    steps = json.dumps(list(path), separators=(",", ":")) if path else ""
    return f"bounds {field}{steps}"
