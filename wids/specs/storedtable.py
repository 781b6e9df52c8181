"""Tables of shards as arrays of numbers, for files that are mapped, not parsed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from wids.base.hashing import DIGESTS
from wids.specs.shardtable import MOST_SAMPLES, UNKNOWN, ShardTable
from wids.specs.textcolumns import BytesColumn, CheckedTexts, Parts, TextColumn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

__all__ = ["as_arrays", "of_arrays", "text_parts"]


def as_arrays(table: ShardTable) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the metadata of a table as a JSON-compatible dict, and its columns as arrays."""
    about: dict[str, Any] = {"num_rows": len(table), "parts": {}, "pack": table.pack}
    columns: dict[str, NDArray[Any]] = {
        "nsamples": table.nsamples,
        "filesize": table.filesize,
    }
    named: dict[str, Any] = {"url": table.urls, "extras": table.extras}
    for name, column in (named | dict(table.digests)).items():
        parts = (TextColumn(column) if isinstance(column, CheckedTexts) else column).parts
        about["parts"][name] = [parts.prefix.hex(), parts.suffix.hex()]
        columns[f"{name} blob"] = np.frombuffer(parts.blob, np.uint8)
        if parts.ends is not None:
            columns[f"{name} ends"] = parts.ends
    return about, columns


def of_arrays(about: Mapping[str, Any], columns: Mapping[str, NDArray[Any]]) -> ShardTable:
    """Return the table that `as_arrays` turned into metadata and columns.

    Raises:
        ValueError: The columns do not fit together, or hold values that no spec may have.
        KeyError: A column or a key is missing.
    """
    num_rows = about["num_rows"]
    counts = [columns[name] for name in ("nsamples", "filesize")]
    for column in counts:
        if column.dtype != np.int64 or column.shape != (num_rows,):
            raise ValueError("expected an int64 count for each row")
        if column.min(initial=0) < UNKNOWN:
            raise ValueError("expected counts from 0 on")
    # Summed as floats, since a sum of int64 could overflow.
    if counts[0].sum(dtype=np.float64) >= MOST_SAMPLES or counts[0].max(initial=0) >= MOST_SAMPLES:
        raise ValueError("the counts are too large")
    parts = {}
    for name, (prefix, suffix) in about["parts"].items():
        ends, blob = columns.get(f"{name} ends"), columns[f"{name} blob"]
        parts[name] = text_parts(
            num_rows, (bytes.fromhex(prefix), bytes.fromhex(suffix)), blob, ends
        )
    digests = {field: BytesColumn(parts[field]) for field in DIGESTS if field in parts}
    extras = TextColumn(parts["extras"])
    return ShardTable.of_columns(
        TextColumn(parts["url"]), counts[0], counts[1], digests, extras, pack=about.get("pack")
    )


def text_parts(
    num_rows: int,
    ends_of_rows: tuple[bytes, bytes],
    blob: NDArray[Any],
    ends: NDArray[Any] | None,
) -> Parts:
    """Return a column of text or bytes as its parts.

    Args:
        num_rows: Number of rows.
        ends_of_rows: Common prefix and suffix of the rows.
        blob: The rest of all rows.
        ends: End of the rest of each row; None if all have one length.

    Raises:
        ValueError: They are of other types.
    """
    if ends is not None and (ends.ndim != 1 or ends.dtype not in (np.uint32, np.int64)):
        raise ValueError("expected integers as ends of rows")
    if blob.ndim != 1 or blob.dtype != np.uint8:
        raise ValueError("expected bytes as text of rows")
    return Parts(num_rows, *ends_of_rows, blob.data, ends)
