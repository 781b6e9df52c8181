"""Rows and spans of a sidecar as numpy arrays, for finding many samples at once."""

import numpy as np
from numpy.typing import NDArray

from wids.tar.sidecar import Sidecar

__all__ = ["SpanTable"]

# Rows that are checked at a time: the numbers of one block stay within the processor's cache.
_BLOCK = 1 << 16


class SpanTable:
    """Table that finds fields of many samples at once.

    The arrays are views of the sidecar, so a table of any number of samples costs nothing to make.
    Nothing is verified in `find`: whoever calls it has checked those samples, or all of them.

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
        self._keys_nbytes = len(sidecar.keys)
        self._shard_nbytes = sidecar.source.nbytes
        self._sets = [
            names.decode("utf-8", "surrogateescape").split("/") for names in sidecar.extension_sets
        ]
        # Where each set has the extensions that were asked for together.
        self._places: dict[tuple[str, ...], NDArray[np.int64]] = {}

    def find(
        self, local_indexes: NDArray[np.int64], extensions: tuple[str, ...]
    ) -> NDArray[np.int64]:
        """Return the spans of some fields of several samples.

        Args:
            local_indexes: Places of the samples in the shard, each in `[0, num_samples)`.
            extensions: The fields, such as `(".jpg",)`.

        Returns:
            Offset and size of each field in bytes, shape `(num_samples, num_fields, 2)`; both are
            -1 where a sample lacks a field.
        """
        places = self._places.get(extensions)
        if places is None:
            found = [
                [names.index(name) if name in names else -1 for name in extensions]
                for names in self._sets
            ]
            # places: (num_sets, num_fields); where each set has each field.
            places = self._places[extensions] = np.array(found, np.int64)
        first = self.rows[local_indexes, 0, None]
        # Mostly all samples of a shard have the same fields, and their sets need not be looked at.
        if len(places) == 1 and (places >= 0).all():
            spans: NDArray[np.int64] = self.spans[first + places]
            return spans
        place = places[self.rows[local_indexes, 2]]
        spans = self.spans[first + np.maximum(place, 0)]
        spans[place < 0] = -1
        return spans

    def find_keys(self, local_indexes: NDArray[np.int64]) -> tuple[list[int], list[int]]:
        """Return the bounds of the keys of several samples among the key bytes."""
        starts = self.rows[local_indexes, 1]
        return starts.tolist(), self.rows[local_indexes + 1, 1].tolist()

    def sets_at(self, local_indexes: NDArray[np.int64]) -> list[int]:
        """Return the distinct extension sets of several samples."""
        if len(self._sets) == 1:
            return [0]
        numbers: list[int] = np.unique(self.rows[local_indexes, 2]).tolist()
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
        # Unsigned numbers would turn a descent into a huge ascent.
        rows = self.rows[start : start + _BLOCK + 1].astype(np.int64)
        fields, keys, set_ids = np.diff(rows[:, 0]), np.diff(rows[:, 1]), rows[:-1, 2]
        if (keys < 0).any() or (set_ids >= len(widths)).any():
            return False
        return bool((widths[set_ids] == fields).all())

    def _spans_hold(self, start: int) -> bool:
        offsets, sizes = self.spans[start : start + _BLOCK].T
        room = self._shard_nbytes - offsets
        return bool(((offsets >= 0) & (sizes >= 0) & (room >= 0) & (sizes <= room)).all())
