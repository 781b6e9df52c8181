"""`OrderedMap` returns results in order, and its threads always end."""

import gc
import itertools
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wids.reading.orderedmap import OrderedMap


def loader_threads() -> set[threading.Thread]:
    """Return the threads of all maps in this process."""
    return {each for each in threading.enumerate() if each.name.startswith("wids-loader-")}


@given(st.lists(st.integers()), st.integers(1, 4), st.integers(1, 8))
def test_results_are_those_of_map(tasks: list[int], num_threads: int, ahead: int) -> None:
    """Results are in the order of the tasks for any number of threads."""
    results = OrderedMap(str, iter(tasks), num_threads=num_threads, ahead=ahead)
    assert list(results) == list(map(str, tasks))


@given(st.lists(st.integers(-3, 3)), st.integers(1, 3))
def test_an_error_stands_in_the_place_of_its_result(tasks: list[int], num_threads: int) -> None:
    """An error replaces its result, and the other results can be read."""
    found: list[int | str] = []
    results = OrderedMap(lambda task: 12 // task, iter(tasks), num_threads=num_threads, ahead=3)
    for _ in tasks:
        try:
            found.append(next(results))
        except ZeroDivisionError:
            found.append("error")
    assert found == ["error" if task == 0 else 12 // task for task in tasks]
    with pytest.raises(StopIteration):
        next(results)


def test_no_more_tasks_are_taken_than_are_wanted_ahead() -> None:
    """An endless stream is read only a little ahead."""
    taken: list[int] = []

    def stream() -> Iterator[int]:
        for number in itertools.count():
            taken.append(number)
            yield number

    results = OrderedMap(abs, stream(), num_threads=2, ahead=3)
    assert taken == []
    assert [next(results) for _ in range(5)] == [0, 1, 2, 3, 4]
    assert len(taken) <= 5 + 3
    results.close()


def test_tasks_are_taken_in_the_thread_that_asks() -> None:
    """Tasks are taken in the reading thread, and the function runs in others."""
    takers: set[int] = set()

    def stream() -> Iterator[int]:
        for number in range(20):
            takers.add(threading.get_ident())
            yield number

    workers = set(OrderedMap(lambda _: threading.get_ident(), stream(), num_threads=2, ahead=4))
    assert takers == {threading.get_ident()}
    assert threading.get_ident() not in workers
    assert 1 <= len(workers) <= 2


def test_an_error_of_the_stream_comes_when_it_is_its_turn() -> None:
    """An error of the stream is raised after all earlier results."""

    def stream() -> Iterator[int]:
        yield from (1, 2)
        raise KeyError("no more")

    results = OrderedMap(abs, stream(), num_threads=2, ahead=4)
    assert [next(results), next(results)] == [1, 2]
    with pytest.raises(KeyError, match="no more"):
        next(results)
    with pytest.raises(StopIteration):
        next(results)


def test_a_result_that_is_late_can_be_waited_for_again() -> None:
    """After a timeout, the result can be read later."""
    gate = threading.Event()

    def late(task: int) -> int:
        gate.wait()
        return task

    results = OrderedMap(late, iter([7, 8]), num_threads=1, ahead=2, timeout_seconds=0.01)
    for _ in range(2):
        with pytest.raises(TimeoutError, match="can be waited for again"):
            next(results)
    gate.set()
    found = []
    while len(found) < 2:
        try:
            found.append(next(results))
        except TimeoutError:
            continue
    assert found == [7, 8]
    results.close()


@pytest.mark.parametrize("end", ["exhausted", "closed", "forgotten"])
def test_threads_end_with_the_map(end: str) -> None:
    """The threads end after the last result, on `close`, and when the map is freed."""
    before = loader_threads()
    results = OrderedMap(abs, iter(range(10)), num_threads=3, ahead=4)
    threads = loader_threads() - before
    assert len(threads) == 3
    next(results)
    if end == "exhausted":
        assert len(list(results)) == 9
    elif end == "closed":
        results.close()
        results.close()
        with pytest.raises(StopIteration):
            next(results)
    else:
        del results
        gc.collect()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


class Batch:
    """A result that can be watched."""


def test_results_live_no_longer_than_the_caller_needs_them() -> None:
    """Neither the map nor its threads keep a result that was returned."""
    results = OrderedMap(lambda _: Batch(), iter(range(3)), num_threads=1, ahead=1)
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

    results = OrderedMap(fails, iter([1]), num_threads=1, ahead=1)
    with pytest.raises(ValueError, match="bad") as raised:
        next(results)
    results.close()
    del raised
    gc.collect()
    assert watched[0]() is None


def test_a_map_from_before_a_fork_says_so() -> None:
    """After a fork, the child gets an error."""
    results = OrderedMap(abs, iter(range(100)), num_threads=2, ahead=4)
    next(results)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:  # nothing of pytest may run here
        try:
            next(results)
        except RuntimeError as error:
            os.write(writer, str(error).encode())
        finally:
            results.close()
            os._exit(0)
    os.close(writer)
    os.waitpid(pid, 0)
    with os.fdopen(reader, "rb") as stream:
        assert b"begin a new one here" in stream.read()
    assert next(results) == 1  # nor is the parent disturbed
    results.close()


def test_a_process_ends_while_a_task_hangs() -> None:
    """A process ends although a task hangs."""
    code = (
        "import threading\n"
        "from wids.reading.orderedmap import OrderedMap\n"
        "hang = lambda task: threading.Event().wait() if task else 'first'\n"
        "results = OrderedMap(hang, iter(range(4)), num_threads=2, ahead=4)\n"
        "print(next(results))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    assert (done.stdout, done.stderr) == ("first\n", "")
