"""One column of one shard, kept in a file of the cache folder.

The name of the file is a digest of what the column was made from, and the file itself says so in
full. A file that does not fit is made anew.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from wids.base.arrayfile import read_arrays, write_arrays
from wids.errors import ShardFormatError
from wids.reading.ragged import Ragged, RaggedText

if TYPE_CHECKING:
    from pathlib import Path

    from wids.reading.ragged import Values
    from wids.tar.sidecar import IndexRules

__all__ = ["ColumnPart", "ColumnSource", "load_column", "save_column"]

# A column of a shard that is larger is no label but the data again: pictures decoded, say. It is
# not worth the disk, nor the shards that would be evicted for it.
MAX_NBYTES = 64 << 20
KINDS: dict[str, type[Ragged] | None] = {"array": None, "ragged": Ragged, "text": RaggedText}


@dataclass(frozen=True)
class ColumnSource:
    """The inputs that a kept column depends on; other inputs mean another file.

    Attributes:
        extension: The field.
        path: Which value in the field: keys and indexes, from the outermost one on.
        decoder: Name of what decoded it, with its settings.
        rules: How members were gathered into samples.
        num_samples: Samples of the shard.
        version: Version of a shard that was read by range, as its server names it; "" for one
            whose file was read.
    """

    extension: str
    path: tuple[str | int, ...]
    decoder: str
    rules: IndexRules
    num_samples: int
    version: str = ""

    def as_json(self) -> str:
        """Return the source as JSON text; equal sources give equal text."""
        return json.dumps(asdict(self), sort_keys=True)

    def suffix(self) -> str:
        """Return the suffix of the file's name behind the shard's name.

        >>> from wids.tar.sidecar import Source
        >>> ColumnSource(".cls", (), "", Source(0, 0).rules, 3).suffix()
        '.b3699a13de497e2f.column'
        """
        # Of versions on a server the last one is kept.
        named = replace(self, version="by range") if self.version else self
        digest = hashlib.sha256(named.as_json().encode("utf-8", "surrogatepass")).hexdigest()
        # 64 bits name a file; that it is the right one is told by what stands in it.
        return f".{digest[:16]}.column"


@dataclass(frozen=True)
class ColumnPart:
    """The column of one shard.

    Attributes:
        values: Those of the samples that have one, in order.
        missing: Local indexes of the samples that have none; int64, ascending.
    """

    values: Values
    missing: npt.NDArray[np.int64]


def save_column(path: Path, source: ColumnSource, part: ColumnPart) -> bool:
    """Write a column to a file, atomically.

    Args:
        path: Where.
        source: What it was made from.
        part: The column.

    Returns:
        Whether it was written: lists, arrays of anything but numbers, and what is larger than
        `MAX_NBYTES` are not.

    Raises:
        OSError: It cannot be written there.
    """
    values = part.values
    if isinstance(values, list):
        return False
    arrays = {"missing": part.missing}
    if isinstance(values, np.ndarray):
        kind, arrays["values"] = "array", values
    else:
        kind = "text" if isinstance(values, RaggedText) else "ragged"
        arrays |= {"values": values.values, "offsets": values.offsets}
    if sum(array.nbytes for array in arrays.values()) > MAX_NBYTES:
        return False
    try:
        write_arrays(path, {"kind": kind, "source": source.as_json()}, arrays)
    except ValueError:
        return False
    return True


def load_column(path: Path, source: ColumnSource) -> ColumnPart:
    """Map a column that was kept, and verify all of it.

    Args:
        path: Where.
        source: What it must have been made from.

    Returns:
        The column, over read-only memory.

    Raises:
        OSError: It is not there.
        ShardFormatError: It is damaged, or was made from something else.
    """
    try:
        part = _verified(path, source)
    except (ValueError, KeyError, TypeError) as error:
        raise ShardFormatError(f"{path}: a stale or damaged column: {error}") from error
    # Eviction goes by these dates; a map does not change them.
    with suppress(OSError):  # a folder that may only be read
        os.utime(path)  # what is in use is evicted last
    return part


def _verified(path: Path, source: ColumnSource) -> ColumnPart:
    made_ns = path.stat().st_mtime_ns  # asked first: a newer file may follow before it is opened
    # A remote shard without a digest in the spec may have been fetched anew, and be another.
    shard = path.with_name(path.name.removesuffix(source.suffix()))
    if shard.exists() and shard.stat().st_mtime_ns > made_ns:
        raise ValueError(f"{shard} is newer")
    about, arrays = read_arrays(path)
    if about["source"] != source.as_json():
        raise ValueError(f"made from {about['source']}, expected {source.as_json()}")
    return _checked_part(about["kind"], arrays, source.num_samples)


def _checked_part(kind: str, arrays: dict[str, npt.NDArray[Any]], num_samples: int) -> ColumnPart:
    """Return the column, after checking that its arrays fit each other and the shard."""
    values, missing = arrays["values"], arrays["missing"]
    wrapper = KINDS[kind]
    column = values if wrapper is None else wrapper(values, arrays["offsets"])
    if missing.dtype != np.int64 or missing.ndim != 1 or len(column) + len(missing) != num_samples:
        raise ValueError(f"{len(column)} values and {len(missing)} gaps in {num_samples} samples")
    inside = not len(missing) or (missing[0] >= 0 and missing[-1] < num_samples)
    if not inside or (missing[1:] <= missing[:-1]).any():
        raise ValueError("the gaps do not ascend within the shard")
    return ColumnPart(column, missing)
