"""Tar index as columns over all samples of a shard, for searches and statistics."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["IndexColumns"]


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

    def places_with_key(self, text: str, *, whole: bool = False) -> NDArray[np.int64]:
        """Return the samples whose key equals a text or begins with it.

        Args:
            text: The beginning; "" begins every key.
            whole: Find only the key that is the text.

        Returns:
            Their places in the shard, ascending.

        >>> columns = IndexColumns(b"ababbb", np.array([0, 1, 3, 6]), *[np.arange(0)] * 2, [],
        ...     np.arange(0))
        >>> columns.places_with_key("a").tolist(), columns.places_with_key("bbb").tolist()
        ([0], [2])
        """
        wanted = text.encode("utf-8", "surrogateescape")
        starts, lengths = self.key_starts[:-1], np.diff(self.key_starts)
        # Most shards hold no such key, and this says so at the speed of memchr.
        if wanted not in self.key_bytes:
            return np.empty(0, np.int64)
        fits = lengths == len(wanted) if whole else lengths >= len(wanted)
        # One letter of all keys at a time: each step leaves fewer of them, and no string is made of
        # any.
        places = np.flatnonzero(fits)
        letters = np.frombuffer(self.key_bytes, np.uint8)
        for place, byte in enumerate(wanted):
            places = places[letters[starts[places] + place] == byte]
        return places

    def sizes_by_extension(self) -> dict[str, NDArray[np.int64]]:
        """Return the sizes of the fields by extension.

        Returns:
            By extension, the bytes of each of its fields, in no promised order.
        """
        found: dict[str, list[NDArray[np.int64]]] = {}
        for set_id, extensions in enumerate(self.extension_sets):
            firsts = self.first_fields[:-1][self.set_ids == set_id]
            for place, extension in enumerate(extensions if firsts.size else ()):
                found.setdefault(extension, []).append(self.sizes[firsts + place])
        return {extension: np.concatenate(parts) for extension, parts in found.items()}

    def sample_sizes(self) -> NDArray[np.int64]:
        """Return the total size of each sample's fields; shape `(num_samples,)`."""
        return self.sum_by_sample(self.sizes)

    def sum_by_sample(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Sum a value of each field, in the order of `sizes`, over each sample's fields.

        Args:
            values: One for each field, int64.

        Returns:
            The sums; shape `(num_samples,)`.
        """
        # Not `np.add.reduceat`, which gives a sample without fields the size of its neighbour.
        running = np.concatenate([np.zeros(1, np.int64), np.cumsum(values)])
        sums: NDArray[np.int64] = running[self.first_fields[1:]] - running[self.first_fields[:-1]]
        return sums

    def consistent(self) -> bool:
        """Return whether rows, keys and fields fit together, so that no read leaves them."""
        widths = np.array([len(names) for names in self.extension_sets], np.int64)
        return bool(
            # The last bounds stand for all: that they ascend was checked before columns are made.
            self.key_starts[-1] <= len(self.key_bytes)
            and self.first_fields[-1] <= self.sizes.size
            and (self.set_ids < widths.size).all()
            and (widths[self.set_ids] == np.diff(self.first_fields)).all()
            and all(len(set(names)) == len(names) for names in self.extension_sets)
        )
