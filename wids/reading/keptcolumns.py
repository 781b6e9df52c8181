"""Files of columns: one field of all samples of one shard, in the cache folder.

The file is in the folder of the shard's sidecar. Its name has a digest of the inputs on which the
column depends. It states these inputs in full, and the version of the shard that it was made of.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from wids.base.arrayfile import read_arrays, write_arrays
from wids.base.shardref import Version
from wids.errors import ShardFormatError
from wids.reading.ragged import Ragged, RaggedText, Values

if TYPE_CHECKING:
    from pathlib import Path

    from wids.tar.sidecar import IndexRules

__all__ = [
    "MAX_NBYTES",
    "ColumnPart",
    "ColumnSource",
    "load_column",
    "save_column",
]

# A larger column of a shard, such as decoded images, is not worth its disk space and the shards
# that would be evicted for it.
MAX_NBYTES = 64 << 20
# Names in files of the classes that hold packed values.
KINDS: dict[str, type[Ragged | RaggedText] | None] = {
    "array": None,
    "ragged": Ragged,
    "text": RaggedText,
}


@dataclass(frozen=True)
class ColumnSource:
    """Inputs on which a stored column depends; different inputs have different files.

    Attributes:
        extension: The field.
        path: Keys and indexes that lead to the value in the field, the outermost first.
        decoder: Name of the decoder, with its settings.
        rules: Rules by which members were grouped into samples.
        num_samples: Number of samples of the shard.
        by_range: Whether the shard was read by range.
    """

    extension: str
    path: tuple[str | int, ...]
    decoder: str
    rules: IndexRules
    num_samples: int
    by_range: bool = False

    @cached_property
    def as_json(self) -> str:
        """The source as JSON text; equal sources give equal text."""
        return json.dumps(asdict(self), sort_keys=True)

    @cached_property
    def suffix(self) -> str:
        """The part of the file's name after the shard's name.

        >>> from wids.tar.sidecar import IndexSource
        >>> suffix = ColumnSource(".cls", (), "", IndexSource(0, 0).rules, 3).suffix
        >>> len(suffix), suffix.endswith(".column")  # the inputs, hashed to 16 digits
        (24, True)
        """
        digest = hashlib.sha256(self.as_json.encode("utf-8", "surrogatepass")).hexdigest()
        # 64 bits are enough for a name, because the file itself states its inputs.
        return f".{digest[:16]}.column"


@dataclass(frozen=True)
class ColumnPart:
    """The column of one shard.

    Attributes:
        values: Values of the samples that have one, in order.
        missing: Local indexes of the other samples; int64, ascending.
    """

    values: Values
    missing: npt.NDArray[np.int64]


def save_column(path: Path, source: ColumnSource, part: ColumnPart, made_of: Version) -> bool:
    """Write a column to a file, atomically.

    Args:
        path: Where.
        source: The inputs that the column was made from.
        part: The column.
        made_of: The version of the shard.

    Returns:
        Whether it was written. Lists, arrays of other types than numbers, and columns larger than
        `MAX_NBYTES` are not written.

    Raises:
        OSError: It cannot be written there.
    """
    values = part.values
    if isinstance(values, list):
        return False
    arrays: dict[str, npt.NDArray[Any]] = {"missing": part.missing}
    if isinstance(values, np.ndarray):
        kind, arrays["values"] = "array", values
    else:
        kind = next(name for name, wrapper in KINDS.items() if wrapper is type(values))
        arrays |= {"values": values.values, "offsets": values.offsets}
    if sum(array.nbytes for array in arrays.values()) > MAX_NBYTES:
        return False
    try:
        about = {"kind": kind, "source": source.as_json, "made of": asdict(made_of)}
        write_arrays(path, about, arrays)
    except ValueError:
        return False
    return True


def load_column(path: Path, source: ColumnSource) -> tuple[ColumnPart, Version]:
    """Map the file of a stored column, and verify all of it.

    Args:
        path: Where.
        source: The inputs that the column must have been made from.

    Returns:
        The column, over read-only memory, and the version of the shard that it was made of.

    Raises:
        OSError: It is not there.
        ShardFormatError: It is damaged, or was made from other inputs.
    """
    try:
        about, arrays = read_arrays(path)
        if about["source"] != source.as_json:
            raise ValueError(f"made from {about['source']}, expected {source.as_json}")
        made_of = Version(**about["made of"])
        values, missing, num_samples = arrays["values"], arrays["missing"], source.num_samples
        wrapper = KINDS[about["kind"]]
        column = values if wrapper is None else wrapper(values, arrays["offsets"])
        # The arrays must fit each other and the shard.
        if missing.dtype != np.int64 or missing.ndim != 1:
            raise ValueError(f"gaps of type {missing.dtype} and shape {missing.shape}")
        if len(column) + len(missing) != num_samples:
            raise ValueError(
                f"{len(column)} values and {len(missing)} gaps in {num_samples} samples"
            )
        inside = not len(missing) or (missing[0] >= 0 and missing[-1] < num_samples)
        if not inside or (missing[1:] <= missing[:-1]).any():
            raise ValueError("the gaps do not ascend within the shard")
    except (ValueError, KeyError, TypeError) as error:
        raise ShardFormatError(f"{path}: a stale or damaged column: {error}") from error
    # Eviction uses the dates of files, and mapping a file does not change them.
    with suppress(OSError):  # the folder may be read-only
        os.utime(path)
    return ColumnPart(column, missing), made_of
