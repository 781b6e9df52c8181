"""Files of the values of JSON columns of a shard, beside the columns that the cache folder keeps.

Parsing all documents of a dataset takes most of the time of counting or filtering by their values,
so what was found in them is kept for the next start of the server.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.base.arrayfile import write_arrays
from wids.errors import ShardFormatError
from wids.log import logger
from wids.reading.keptcolumns import MAX_NBYTES, load_made_from

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from wids.reading.keptcolumns import ColumnSource

__all__ = ["Values", "floats_of", "is_rounded", "load_values", "nbytes_of", "save_values"]

# Numbers with NaN; or codes with -1 and words, among which are integers that a float would round.
Values = np.ndarray | tuple[np.ndarray, list[Any]]


def is_rounded(number: float) -> bool:
    """Return whether a number is an integer that no float equals.

    >>> is_rounded(2**53), is_rounded(2**53 + 1), is_rounded(1e300), is_rounded(10**400)
    (False, True, False, True)
    """
    try:
        return type(number) is int and float(number) != number
    except OverflowError:
        return True


def floats_of(values: Values, chosen: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """Return those of some numbers that floats equal, with NaN, and the others.

    Args:
        values: The values of a column of numbers.
        chosen: A mask of the samples.

    >>> numbers = (np.array([0, 1, -1, 0]), [0.5, 2**53 + 1])
    >>> floats_of(numbers, np.array([True, True, True, False]))
    (array([0.5, nan]), [9007199254740993])
    """
    if isinstance(values, np.ndarray):
        return values[chosen], []
    codes, words = values
    found = [*words, math.nan]  # -1 is the last
    numbers = [found[code] for code in codes[chosen].tolist()]
    rounded = [each for each in numbers if is_rounded(each)]
    return np.array([each for each in numbers if not is_rounded(each)], np.float64), rounded


def nbytes_of(values: Values) -> int:
    """Return about how many bytes of memory values take."""
    if isinstance(values, np.ndarray):
        return values.nbytes
    words = sum(len(word) if isinstance(word, str) else 0 for word in values[1])
    return values[0].nbytes + 100 * len(values[1]) + words


def save_values(path: Path, source: ColumnSource, columns: Sequence[Values]) -> bool:
    """Write the values of columns to a file, atomically.

    Returns:
        Whether they were written. Values that are larger than columns may be, and those in a folder
        that may only be read, are not.
    """
    if sum(map(nbytes_of, columns)) > MAX_NBYTES:
        return False
    arrays = {
        str(number): values if isinstance(values, np.ndarray) else values[0].astype(np.int32)
        for number, values in enumerate(columns)
    }
    words = [None if isinstance(values, np.ndarray) else values[1] for values in columns]
    try:
        write_arrays(path, {"kind": "values", "source": source.as_json, "words": words}, arrays)
    except OSError as error:
        logger.info("%s: the values are not kept: %s", path, error)
        return False
    return True


def load_values(path: Path, source: ColumnSource) -> list[Values] | None:
    """Read the values of columns from a file; None if it is missing, stale or damaged."""
    try:
        about, arrays = load_made_from(path, source)
        words = about["words"]
        return [_checked(arrays[str(n)], words[n], source.num_samples) for n in range(len(words))]
    except FileNotFoundError:
        return None
    except (OSError, ShardFormatError, LookupError, TypeError, ValueError) as error:
        logger.warning("%s: %s; the documents are read again", path, error)
        return None


def _checked(array: np.ndarray, words: list[Any] | None, num_samples: int) -> Values:
    """Return the values of a column, after checking that they fit each other and the shard."""
    if array.shape != (num_samples,):
        raise ValueError(f"values of shape {array.shape} for {num_samples} samples")
    if words is None:
        return array.astype(np.float64)
    if array.size and not -1 <= array.min() <= array.max() < len(words):
        raise ValueError(f"codes beyond the {len(words)} words")
    return array.astype(np.int64), words
