"""`OrderedMap` returns results in order. That its threads end is tested with `Loader`."""

import gc
import itertools
import weakref
from collections.abc import Iterator

import pytest

from wids.reading.orderedmap import OrderedMap


def test_no_more_tasks_are_taken_than_are_wanted_ahead() -> None:
    """An endless stream is read only a little ahead."""
    taken: list[int] = []

    def stream() -> Iterator[int]:
        for number in itertools.count():
            taken.append(number)
            yield number

    results = OrderedMap(abs, stream(), num_threads=2, most_pending=3)
    assert taken == []
    assert [next(results) for _ in range(5)] == [0, 1, 2, 3, 4]
    assert len(taken) <= 5 + 3
    results.close()


class Batch:
    """A result that can be watched."""


def test_results_live_no_longer_than_the_caller_needs_them() -> None:
    """Neither the map nor its threads keep a result that was returned."""
    results = OrderedMap(lambda _: Batch(), iter(range(3)), num_threads=1, most_pending=1)
    batch = next(results)
    watched = weakref.ref(batch)
    second = next(results)  # the thread has let go of the first by now
    del batch
    gc.collect()
    assert watched() is None
    assert isinstance(second, Batch)
    results.close()


def test_an_error_keeps_no_frame_alive() -> None:
    """Objects of the failing function are freed with the error."""
    watched: list[weakref.ref[Batch]] = []

    def fails(_task: int) -> None:
        batch = Batch()
        watched.append(weakref.ref(batch))
        raise ValueError("bad")

    results = OrderedMap(fails, iter([1]), num_threads=1, most_pending=1)
    with pytest.raises(ValueError, match="bad") as raised:
        next(results)
    results.close()
    del raised
    gc.collect()
    assert watched[0]() is None
