"""Telling the kernel what will be read next, while reads have to wait for a disk."""

import resource
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager

from wids.reading.openshards import Places

__all__ = ["ReadAhead"]

# This thread's own figures where the system counts them apart, as Linux does.
_WHO = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)

# Batches that are announced after the last that had to be read from a disk.
_COLD_BATCHES = 4

# Of smaller samples several share a page, or what the kernel reads around one: mostly the next
# batches want that too, and announcing page by page was measured to take twice as long.
_SMALL_NBYTES = 16384


class ReadAhead:
    """Announces the bytes of a batch to the kernel, as long as batches come from a disk.

    A page that is not in memory stops the thread that touches it, and the kernel then reads far
    more around it than a random read wants: megabytes a page, on some machines. Announced together,
    the pages of a batch are fetched side by side and nothing else is. Pages in memory need no
    announcement, and it would cost as much as reading a small sample; so the blocks that this
    thread made the kernel read are counted, and tell when it pays. The first batches are announced.

    Instances may be shared by threads and pickled.

    >>> ahead = ReadAhead()
    >>> with ahead.batch([]):
    ...     pass
    """

    def __init__(self) -> None:
        self._cold_batches = _COLD_BATCHES

    @contextmanager
    def batch(
        self, wanted: Iterable[Places], fields: Collection[str] | None = None
    ) -> Iterator[None]:
        """Announce a batch where that helps, and watch how reading it goes.

        Args:
            wanted: What is about to be read.
            fields: The extensions that will be read; None: all.
        """
        before = _blocks_read()
        if self._cold_batches > 0:
            self._cold_batches -= 1
            for opened, places in wanted:
                shard = opened.shard
                if shard.nbytes >= _SMALL_NBYTES * len(shard):
                    shard.announce(places, fields)
        yield
        if _blocks_read() > before:
            self._cold_batches = _COLD_BATCHES


def _blocks_read() -> int:
    """Count what this thread had read from disks; a number that only its growth says something."""
    usage = resource.getrusage(_WHO)
    # File systems that do not count blocks still count the faults that waited.
    return usage.ru_inblock + usage.ru_majflt
