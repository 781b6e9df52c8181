"""Columns of a tar index over all samples of a shard, for copies, keys and batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from wids.tar.sidecar import Sidecar

__all__ = ["IndexColumns", "SpanTable"]


@dataclass(frozen=True, eq=False)
class IndexColumns:
    """Keys and fields of a shard's samples, in the order of the samples.

    Sample `i` has the key `key_bytes[key_starts[i] : key_starts[i + 1]]`, and its fields are rows
    `first_fields[i]` to `first_fields[i + 1]` of `sizes`, named by `extension_sets[set_ids[i]]`.

    Attributes:
        key_bytes: All keys end to end, UTF-8; undecodable bytes as they were in the tar.
        key_starts: Shape `(num_samples + 1,)`, int64.
        first_fields: Shape `(num_samples + 1,)`, int64.
        set_ids: Shape `(num_samples,)`, int64.
        extension_sets: The distinct sets of extensions.
        sizes: Bytes of each field, int64.
    """

    key_bytes: bytes
    key_starts: NDArray[np.int64]
    first_fields: NDArray[np.int64]
    set_ids: NDArray[np.int64]
    extension_sets: list[tuple[str, ...]]
    sizes: NDArray[np.int64]

    def sum_by_sample(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Sum a value of each field, in the order of `sizes`, over each sample's fields.

        Args:
            values: One value for each field, int64.

        Returns:
            The sums; shape `(num_samples,)`.
        """
        # `np.add.reduceat` would give a sample without fields the size of its neighbour.
        running = np.concatenate([np.zeros(1, np.int64), np.cumsum(values)])
        sums: NDArray[np.int64] = running[self.first_fields[1:]] - running[self.first_fields[:-1]]
        return sums

    def consistent(self) -> bool:
        """Return whether rows, keys and fields fit together, so that every read stays in bounds."""
        widths = np.array([len(names) for names in self.extension_sets], np.int64)
        return bool(
            # The last bounds suffice, since `check_rows` has verified that all bounds ascend.
            self.key_starts[-1] <= len(self.key_bytes)
            and self.first_fields[-1] <= self.sizes.size
            and (self.set_ids < widths.size).all()
            and (widths[self.set_ids] == np.diff(self.first_fields)).all()
            and all(len(set(names)) == len(names) for names in self.extension_sets)
        )


# Rows that are checked at a time: the numbers of one block fit into the CPU cache.
_BLOCK = 1 << 16


class SpanTable:
    """Table that finds fields of many samples at once.

    The arrays are views of the sidecar, so making the table costs the same for any shard.
    `find` verifies nothing: its caller must have checked those samples, or all of them.

    Args:
        sidecar: A sidecar that was read or laid out.

    Attributes:
        rows: First span, first key byte, extension set and check of each sample, then a row of
            ends; shape `(num_samples + 1, 4)`, uint32.
        spans: Offset and size of each field, in bytes; shape `(num_members, 2)`, int64.
    """

    def __init__(self, sidecar: Sidecar) -> None:
        self.rows: NDArray[np.uint32] = np.frombuffer(sidecar.rows, "<u4").reshape(-1, 4)
        self.spans: NDArray[np.int64] = np.frombuffer(sidecar.spans, "<i8").reshape(-1, 2)
        # Columns of `rows`: indexing one of them takes a tenth of the time of `rows[indexes, 0]`,
        # which counts for the few samples that a shuffled batch has in a shard.
        self._first_spans, self._key_starts, self._set_ids = self.rows.T[:3]
        self._keys_nbytes = len(sidecar.keys)
        self._shard_nbytes = sidecar.source.nbytes
        self._sets = [
            names.decode("utf-8", "surrogateescape").split("/") for names in sidecar.extension_sets
        ]
        # Maps the extensions of one request to their positions in each extension set, and to
        # whether these are the same for all samples.
        self._positions: dict[tuple[str, ...], tuple[NDArray[np.int64], bool]] = {}

    def find(
        self, local_indexes: NDArray[np.int64], extensions: tuple[str, ...]
    ) -> NDArray[np.int64]:
        """Return the spans of some fields of several samples.

        Args:
            local_indexes: Indexes of the samples in the shard, each in `[0, num_samples)`.
            extensions: The fields, such as `(".jpg",)`.

        Returns:
            Offset and size of each field in bytes, shape `(num_samples, num_fields, 2)`; both are
            -1 where a sample lacks a field.
        """
        positions, are_alike = self._positions.get(extensions) or self._positions_of(extensions)
        first = self._first_spans[local_indexes][:, None]
        # Fast path: in most shards all samples have the same fields.
        if are_alike:
            spans: NDArray[np.int64] = self.spans.take(first + positions, 0)
            return spans
        chosen = positions[self._set_ids[local_indexes]]
        spans = self.spans.take(first + np.maximum(chosen, 0), 0)
        spans[chosen < 0] = -1
        return spans

    def _positions_of(self, extensions: tuple[str, ...]) -> tuple[NDArray[np.int64], bool]:
        found = [
            [names.index(name) if name in names else -1 for name in extensions]
            for names in self._sets
        ]
        # positions: (num_sets, num_fields); position of each field in each set, or -1.
        positions = np.array(found, np.int64)
        are_alike = len(positions) == 1 and bool((positions >= 0).all())
        self._positions[extensions] = positions, are_alike
        return positions, are_alike

    def find_keys(self, local_indexes: NDArray[np.int64]) -> tuple[list[int], list[int]]:
        """Return the bounds of the keys of several samples among the key bytes."""
        starts = self._key_starts
        return starts[local_indexes].tolist(), starts[local_indexes + 1].tolist()

    def sets_at(self, local_indexes: NDArray[np.int64]) -> list[int]:
        """Return the distinct extension sets of several samples."""
        if len(self._sets) == 1:
            return [0]
        numbers: list[int] = np.unique(self._set_ids[local_indexes]).tolist()
        return numbers

    def holds(self) -> bool:
        """Return whether every sample has the fields of its set, all of them inside the shard."""
        widths = np.array([len(names) for names in self._sets], np.int64)
        last = self.rows[-1]
        return (
            not self.rows[0, :2].any()
            and int(last[0]) <= len(self.spans)
            and int(last[1]) == self._keys_nbytes
            and all(self._rows_hold(start, widths) for start in range(0, len(self.rows), _BLOCK))
            and all(self._spans_hold(start) for start in range(0, len(self.spans), _BLOCK))
        )

    def _rows_hold(self, start: int, widths: NDArray[np.int64]) -> bool:
        # Signed, because a negative difference of unsigned numbers would wrap to a huge one.
        rows = self.rows[start : start + _BLOCK + 1].astype(np.int64)
        fields, keys, set_ids = np.diff(rows[:, 0]), np.diff(rows[:, 1]), rows[:-1, 2]
        if (keys < 0).any() or (set_ids >= len(widths)).any():
            return False
        return bool((widths[set_ids] == fields).all())

    def _spans_hold(self, start: int) -> bool:
        offsets, sizes = self.spans[start : start + _BLOCK].T
        room = self._shard_nbytes - offsets
        return bool(((offsets >= 0) & (sizes >= 0) & (room >= 0) & (sizes <= room)).all())
