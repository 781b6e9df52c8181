"""One field of each sample of a shard, touching hardly anything else of it."""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING

import numpy as np

from wids.base.mapping import page_ranges

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from wids.tar.shard import ReadableShard

__all__ = ["read_field"]

BLOCK = 1024  # samples at once: enough for remote neighbours to share a request, few to hold
# Fields nearer to each other than this are read in one piece: a disk takes as long for the gap.
NEAR_NBYTES = 4 * mmap.PAGESIZE

Span = tuple[int, int]  # offset and size, in bytes


def read_field(shard: ReadableShard, extension: str) -> Iterator[memoryview | None]:
    """Yield one field of each sample, in order, without a copy; None for a sample without it.

    Args:
        shard: Open, and in no other use: it is told that it will be read here and there.
        extension: The field.

    Raises:
        FetchError: A server refuses, or all tries failed.
        ShardFormatError: The index is damaged, or not this shard's.
    """
    for start in range(0, len(shard), BLOCK):
        places = range(start, min(start + BLOCK, len(shard)))
        memory = shard.memory
        if memory is None:
            for sample in shard.read_many(places, (extension,)):
                yield sample.get(extension)
            continue
        found = shard.index.find_spans(np.arange(places.start, places.stop), (extension,))
        spans = [(offset, size) for offset, size in found[:, 0].tolist()]
        _announce(memory, [span for span in spans if span[0] >= 0])
        for offset, size in spans:
            yield memory[offset : offset + size] if offset >= 0 else None


def _announce(memory: memoryview, spans: Sequence[Span]) -> None:
    """Tell the kernel which bytes come next, so that it reads these, side by side, and no others.

    Measured cold, with fields of a few bytes every 20 KB: reading as it comes takes the whole
    shard from the disk, reading at random a seek for each; announced, it takes a page for each,
    in half the time.
    """
    mapped = memory.obj
    if not isinstance(mapped, mmap.mmap):  # an empty shard
        return
    mapped.madvise(mmap.MADV_RANDOM)
    for start, stop in page_ranges(spans, max_gap_nbytes=NEAR_NBYTES):
        mapped.madvise(mmap.MADV_WILLNEED, start, stop - start)
