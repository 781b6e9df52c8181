"""Seed and epoch of the batch that a thread is reading."""

import random
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

__all__ = ["Draw", "current_draw", "drawing", "random_of"]

_ENDS = 4096  # bytes of both ends of a field, which tell it from others


class Draw(NamedTuple):
    """Seed and epoch of the samples that a thread is reading; unknown without a sampler of wids."""

    seed: int = 0
    epoch: int = 0
    known: bool = True


# Each thread has its own, since a `wids.Loader` reads batches of two epochs at the same time.
_reading = threading.local()


def current_draw() -> Draw | None:
    """Return what this thread is reading; None if it reads no batch."""
    draw: Draw | None = getattr(_reading, "draw", None)
    return draw


@contextmanager
def drawing(draw: Draw | None) -> Iterator[None]:
    """Context manager that sets what this thread is reading."""
    before = current_draw()
    _reading.draw = draw
    try:
        yield
    finally:
        _reading.draw = before


def random_of(data: bytes | memoryview) -> random.Random:
    """Return the random generator for a field of a sample, the same for each reading in an epoch.

    Args:
        data: The encoded field. Outside of batches of a sampler of wids, it has no influence.

    >>> with drawing(Draw(seed=1, epoch=2)):
    ...     random_of(b"one").random() == random_of(b"one").random() != random_of(b"two").random()
    True
    """
    draw = current_draw()
    if draw is None or not draw.known:
        return random.Random(random.getrandbits(64))  # noqa: S311 (no secrets here)
    digest = zlib.crc32(data[:_ENDS], zlib.crc32(data[-_ENDS:], len(data)))
    return random.Random(f"{draw.seed} {draw.epoch} {digest}")  # noqa: S311
