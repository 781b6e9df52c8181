"""What a thread is reading: seed and epoch of the batch, and the sample that is being decoded."""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

__all__ = ["READING", "Draw", "drawing", "random_of_sample", "within_sample"]


class Draw(NamedTuple):
    """Seed and epoch of the samples that a thread is reading; unknown without a sampler of wids."""

    seed: int = 0
    epoch: int = 0
    known: bool = True


class _Reading(threading.local):
    """What one thread reads, since a `wids.Loader` reads batches of two epochs at the same time.

    Attributes:
        draw: Seed and epoch of the batch; None outside of a batch.
        index: Index of the sample that is being decoded; None if there is none.
    """

    draw: Draw | None = None
    index: int | None = None


READING = _Reading()


@contextmanager
def drawing(draw: Draw | None) -> Iterator[None]:
    """Context manager that sets the batch which this thread is reading."""
    before, READING.draw = READING.draw, draw
    try:
        yield
    finally:
        READING.draw = before


def within_sample(index: int | None, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function that decodes a sample, whose random numbers are those of the sample.

    >>> with drawing(Draw(seed=1, epoch=2)):
    ...     one, same, two = (within_sample(n, random_of_sample).random() for n in (7, 7, 8))
    >>> one == same != two
    True
    """
    before, READING.index = READING.index, index
    try:
        return function(*arguments)
    finally:
        READING.index = before


def random_of_sample() -> random.Random:
    """Return a random generator, the same for each reading of the sample in an epoch.

    Without a sampler of wids, and outside of a sample, it is seeded by Python's `random`.
    """
    draw, index = READING.draw, READING.index
    if draw is None or not draw.known or index is None:
        return random.Random(random.getrandbits(64))  # noqa: S311 (no secrets here)
    # Text, because other generators of the sample are seeded by the number of `wids.random_seed`.
    return random.Random(f"{draw.seed} {draw.epoch} {index}")  # noqa: S311
