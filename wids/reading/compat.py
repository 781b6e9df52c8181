"""Compatibility with wids 0.1.11: fields as binary streams."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, overload

if TYPE_CHECKING:
    from wids.tar.shard import ReadableShard

__all__ = ["StreamedShard", "note_decoded_field", "wrap_in_streams"]

Sample = dict[str, Any]


class StreamedShard(Sequence[Sample]):
    """Shard whose samples have binary streams as fields, as 0.1.11 gave them."""

    def __init__(self, shard: ReadableShard) -> None:
        self.shard = shard

    def __len__(self) -> int:
        return len(self.shard)

    @overload
    def __getitem__(self, local_index: int) -> Sample: ...
    @overload
    def __getitem__(self, local_index: slice) -> list[Sample]: ...
    def __getitem__(self, local_index: int | slice) -> Sample | list[Sample]:
        if isinstance(local_index, slice):
            return [self[each] for each in range(*local_index.indices(len(self)))]
        sample = self.shard.read(local_index)
        wrap_in_streams(sample)
        return sample


def wrap_in_streams(sample: Sample) -> None:
    """Replace each raw field of a sample by a binary stream.

    >>> sample = {"__key__": "a", ".txt": b"one"}
    >>> wrap_in_streams(sample)
    >>> sample[".txt"].read()
    b'one'
    """
    for extension, data in sample.items():
        if extension[0] == ".":
            # A copy of the bytes: old code seeks in it and keeps it, and need not know of maps.
            sample[extension] = io.BytesIO(data)


def note_decoded_field(error: Exception) -> None:
    """Add a hint to the error of code that reads a decoded field as a stream.

    Args:
        error: What a transformation raised; others than that are left alone.
    """
    # Not by a `read` of our own on pictures: libraries that look for one would take them for files.
    if isinstance(error, AttributeError) and error.name in {"read", "getvalue"}:
        error.add_note(
            f"a field that was decoded, here to {type(error.obj).__name__}, is no binary stream; "
            "decoders={'.ext': None} of the dataset leaves the fields of an extension streams"
        )
