"""New shards of samples that lie in others: taken whole where nothing of them changes."""

from __future__ import annotations

import time
from copy import copy
from typing import TYPE_CHECKING, Any, Self

from wids.base.files import named_write_errors
from wids.writing.headers import BLOCK, member_header, padded
from wids.writing.shardfile import NewShard

if TYPE_CHECKING:
    from collections.abc import Collection

    import numpy as np
    from numpy.typing import NDArray

    from wids.reading.shardlist import ShardList
    from wids.tar.shard import Shard
    from wids.tools.reshardplan import Part, Target
    from wids.writing.memberwriter import SampleArchive

__all__ = ["PartWriter"]

_PATIENCE_SECONDS = 5
# Samples read at a time: in the order of the disk, which takes a shuffle its sting on cold files.
_WINDOW = 1024
_ZEROS = bytes(BLOCK)

_Members = list[tuple[str, Any]]


class PartWriter:
    """Writes the new shards of a plan, each from its part alone; safe in threads, picklable.

    It keeps the old shards open from one new shard to the next: a shuffle needs all of them each
    time, and to map and verify them anew would cost as much as the copying.
    """

    def __init__(self, dataset: ShardList, target: Target) -> None:
        """Get ready; nothing is opened yet.

        Args:
            dataset: Where the samples come from.
            target: Where they go.
        """
        # A reader of our own: how the caller's decodes does not matter, and stays as it is.
        self._reader = copy(dataset)
        self._reader.transformations = "memoryview"
        self._target = target

    def __call__(self, part: Part) -> dict[str, Any]:
        """Write one new shard.

        Args:
            part: Which samples go there.

        Returns:
            Its spec entry.

        Raises:
            BlockingIOError: Another process is writing this very shard.
            WidsError: A shard of the dataset cannot be read.
            ValueError: Two samples of one key meet, and they keep them.
        """
        patience = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                return self._write(part)
            except BlockingIOError:
                # Workers of a run that was killed notice it within a second, and let go of it.
                if time.monotonic() > patience:
                    raise
                time.sleep(0.1)

    def _write(self, part: Part) -> dict[str, Any]:
        path = self._target.path(part)
        shard = NewShard(path, self._target.options)
        # Subclasses may make samples of their own, and remote ones have no memory to take from.
        copying = self._copy if self._reader.batch_kind != "samples" else self._read
        try:
            with named_write_errors(path):
                for start in range(0, len(part.indexes), _WINDOW):
                    window = part.indexes[start : start + _WINDOW]
                    copying(window, part.first_place + start, shard.archive)
                return shard.publish(path.parent)
        finally:
            shard.discard()

    def _copy(self, indexes: NDArray[np.int64], first_place: int, archive: SampleArchive) -> None:
        """Copy a window of samples that lie in memory, in the order given."""
        batch = self._reader.locate_batch(indexes)
        wanted = self._reader.wanted_fields
        taken: dict[int, tuple[str, memoryview | None, _Members]] = {}
        with batch.announced(wanted):
            # Found in the order of the disk, so that each shard is opened once for the window.
            for row, opened, place in batch.samples():
                shard: Any = opened.shard  # mapped, else the dataset would not serve fields
                new_key = self._target.key(first_place + row, "")
                taken[row] = _take(shard, place, new_key, wanted)
            for row in range(len(indexes)):
                key, whole, members = taken.pop(row)
                if whole is None:
                    archive.write(key, members, stable=True)
                else:
                    archive.write_raw(key, whole)

    def _read(self, indexes: NDArray[np.int64], first_place: int, archive: SampleArchive) -> None:
        """Read a window of samples by the dataset's own way, and write them."""
        samples = self._reader.__getitems__(indexes.tolist())
        for place, sample in enumerate(samples, first_place):
            key = self._target.key(place, sample["__key__"])
            fields = [(key + name, data) for name, data in sample.items() if name[0] == "."]
            archive.write(key, fields, stable=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()


def _take(
    shard: Shard, place: int, new_key: str, wanted: Collection[str] | None
) -> tuple[str, memoryview | None, _Members]:
    """Take a sample out of its shard.

    Args:
        shard: Where it lies.
        place: And its place there.
        new_key: How it is called from now on; "" as before.
        wanted: Extensions of the fields to take; None: all.

    Returns:
        Its key; its members in one piece, headers and all, where they would be written just so;
        else None, and each by name and data.
    """
    old_key, extensions, spans = shard.index.locate(place)
    key = new_key or old_key
    members = [
        (key + extension, offset, size)
        for extension, offset, size in zip(extensions, spans[::2], spans[1::2], strict=True)
        if wanted is None or extension in wanted
    ]
    memory = shard.memory
    whole = _find_whole(memory, members) if key == old_key else None
    if whole is not None:
        return key, whole, []
    return key, None, [(name, memory[start : start + size]) for name, start, size in members]


def _find_whole(memory: memoryview, members: list[tuple[str, int, int]]) -> memoryview | None:
    """Find the one piece of a shard that is just what its members would be written as.

    There is none where a tar of another make has dates or owners in its headers, or where
    something lies between the members. To look costs less than to copy piece by piece.
    """
    start = end = -1
    for name, offset, size in members:
        header = member_header(name, size)
        begin, stop, after = offset - len(header), offset + size, offset + padded(size)
        if end < 0:
            start = end = begin
        # As bytes: views are compared letter by letter.
        if (
            begin != end
            or begin < 0
            or bytes(memory[begin:offset]) != header
            or bytes(memory[stop:after]) != _ZEROS[: after - stop]
        ):
            return None
        end = after
    return memory[start:end] if members else None
