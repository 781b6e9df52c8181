"""Vectors of samples: arrays such as `.npy`, and lists of numbers in JSON and joined tables."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.codecs.formats import field_kind, format_suffix, wrapper_of
from wids.display.arrayview import named_arrays
from wids.display.fieldview import is_packed
from wids.errors import WidsError
from wids.views.tables import TableRows

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from wids.browse.fieldreader import FieldReader, LocatedSample
    from wids.ordering.permute import Integers
    from wids.tar.shard import Data
    from wids.views.plan import StoredField

__all__ = [
    "MOST_VECTOR_NBYTES",
    "VectorReader",
    "as_vector",
    "document_in",
    "is_array",
    "is_document",
    "vector_in",
]

MOST_VECTOR_NBYTES = 64 << 10
_VECTOR_FORMATS = (".npy", ".ten", ".tb")
_MOST_DOCUMENT_NBYTES = 256 << 10
_MOST_POINTS = 50_000
_MOST_NUMBERS = 16_000_000  # of all vectors together, 4 bytes each
_LOOK_SAMPLES = 6
_ROWS_A_REQUEST = 256


def is_document(field: StoredField) -> bool:
    """Return whether a field is JSON, as values of joined tables but arrays are read, too."""
    of_table = isinstance(field.home, TableRows) and not is_array(field.extension)
    return of_table or (field_kind(field.extension) == "json" and not wrapper_of(field.extension))


def document_in(reader: FieldReader, located: LocatedSample, number: int) -> Any:
    """Return the JSON of a field; None if it is too large, or none.

    Raises:
        WidsError: It cannot be read.
    """
    if located.fields[number].nbytes > _MOST_DOCUMENT_NBYTES:
        return None
    try:
        return json.loads(bytes(reader.read(located, number)))
    except (ValueError, RecursionError):
        return None


def as_vector(value: Any) -> np.ndarray | None:
    """Return a list of numbers as floats; None for anything else."""
    if not isinstance(value, list) or len(value) < 2:
        return None
    if not all(type(each) in (int, float) for each in value):
        return None
    try:
        with np.errstate(over="ignore"):
            return np.array(value, "f8").astype("f4")
    except OverflowError:
        return None


def is_array(extension: str) -> bool:
    """Return whether a field may be an array that is read here.

    Others are packed or pickled, which takes a process of its own.
    """
    return format_suffix(extension) in _VECTOR_FORMATS and not is_packed(extension)


def vector_in(extension: str, data: Data, path: Sequence[str] = ()) -> np.ndarray | None:
    """Return a field, or a list at a path in its JSON, as a vector of floats; None if it is none.

    Args:
        extension: The field, which is JSON if it is no array, as values of joined tables are.
        data: Its bytes.
        path: Keys that lead to the list.

    >>> vector_in(".json", b'{"emb": [1, 2.5]}', ["emb"])
    array([1. , 2.5], dtype=float32)
    """
    try:
        if not is_array(extension):
            value = json.loads(bytes(data))
            for step in path:
                value = value.get(step) if isinstance(value, dict) else None
            return as_vector(value)
        arrays = named_arrays(format_suffix(extension), bytes(data))
    except Exception:  # noqa: BLE001 (whatever a decoder raises belongs to the field)
        return None
    if len(arrays) != 1:
        return None
    array = arrays[0][1]
    # One vector, even if it has more axes of length 1.
    is_vector = array.dtype.kind in "fiu" and max(array.shape, default=0) == array.size > 1
    return array.reshape(-1).astype("f4") if is_vector else None


class VectorReader:
    """Reads the vectors of one field, shard by shard.

    Args:
        reader: The dataset.
        field: Extension of the field, or name of a column of lists in JSON. Of a large dataset,
            samples at even distances are read, as many as fit a bounded memory.
    """

    def __init__(self, reader: FieldReader, field: str) -> None:
        self._reader = reader
        self._field, _, path = field.partition(":")
        self._path = tuple(path.split(".")) if path else ()
        self._by_width: dict[int, list[tuple[int, np.ndarray]]] = {}
        self._room = _MOST_NUMBERS
        self._wanted: Integers | None = None
        self._counts = dict.fromkeys(("skipped", "without_sidecar", "num_wanted"), 0)
        self._left_out = dict.fromkeys(("no vector", "NaN or infinite", "of another width"), 0)

    def told(self) -> dict[str, Any]:
        """Return as JSON what was read until now, and what was left out.

        These are `skipped` shards, of these the ones `without_sidecar`, that would have to be
        downloaded; and `num_wanted` samples, of which `left_out` have no point, by the reason.
        """
        left_out = {why: count for why, count in self._left_out.items() if count}
        return {**self._counts, "left_out": left_out}

    def read(self) -> Generator[None, None, tuple[Integers, np.ndarray]]:
        """Read all shards, and yield after each.

        Returns:
            The indexes and vectors of the commonest width.
        """
        for shard_index in range(self._reader.num_shards):
            try:
                if not self.read_shard(shard_index):
                    self._counts["without_sidecar"] += 1
                    self._counts["skipped"] += 1
            except (WidsError, OSError, ValueError):  # which the table of shards shows
                self._counts["skipped"] += 1
            yield
        if not self._by_width:
            return np.empty(0, np.int64), np.empty((0, 0), np.float32)
        width = max(self._by_width, key=lambda each: len(self._by_width[each]))
        rows = sorted(self._by_width.pop(width), key=lambda row: row[0])
        self._left_out["of another width"] = sum(map(len, self._by_width.values()))
        self._by_width.clear()
        return np.array([index for index, _ in rows]), np.stack([vector for _, vector in rows])

    def read_shard(self, shard_index: int) -> bool:
        """Read the vectors of one shard; return False if it was skipped to avoid a download."""
        reader, total = self._reader, len(self._reader)
        if reader.tar_index(shard_index) is None:
            return reader.num_samples(shard_index) == 0
        first = reader.first_index(shard_index)
        ends = [first, first + reader.num_samples(shard_index)]
        if self._wanted is None:
            look = np.arange(first, min(first + _LOOK_SAMPLES, ends[1]))
            sizes = [0 if each is None else each.size for each in self._vectors(shard_index, look)]
            count = max(1, min(total, _MOST_POINTS, _MOST_NUMBERS // max(1, *sizes)))
            self._wanted = np.arange(count, dtype=np.int64) * total // count
        low, high = np.searchsorted(self._wanted, ends)
        for start in range(low, high, _ROWS_A_REQUEST):
            indexes = self._wanted[start : min(start + _ROWS_A_REQUEST, high)]
            self._counts["num_wanted"] += len(indexes)
            for index, vector in zip(
                indexes.tolist(), self._vectors(shard_index, indexes), strict=True
            ):
                self._add(index, vector)
        return True

    def _vectors(self, shard_index: int, indexes: Integers) -> list[np.ndarray | None]:
        most = MOST_VECTOR_NBYTES if is_array(self._field) else _MOST_DOCUMENT_NBYTES
        found = self._reader.column(shard_index, indexes, self._field, most)
        return [
            None if each is None else vector_in(self._field, each, self._path) for each in found
        ]

    def _add(self, index: int, vector: np.ndarray | None) -> None:
        if vector is None or vector.size > self._room:
            self._left_out["no vector"] += 1
        elif not np.isfinite(vector).all():
            self._left_out["NaN or infinite"] += 1
        else:
            self._room -= vector.size
            self._by_width.setdefault(vector.size, []).append((index, vector))
