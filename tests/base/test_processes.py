"""Worker processes: every item gets a result or error, and no process outlives its parent."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import (
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)
from multiprocessing.context import ForkServerContext, SpawnContext
from pathlib import Path
from typing import Any

import pytest
from helpers.waiting import eventually

from wids.base.files import allow_pickling_views, is_running
from wids.base.processes import fresh_python, run_each


def my_process(_item: object) -> int:
    """Return the id of the process that runs this."""
    time.sleep(0.01)
    return os.getpid()


def interrupted(item: int) -> int:
    """Send SIGINT to this process."""
    if item == 1:
        # A shell that starts the tests in the background has them ignore the signal.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)
    return item


class OddError(Exception):
    """An error that cannot be rebuilt from its arguments."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(f"{one} and {two}")


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_work_is_done_by_so_many_processes(workers: int) -> None:
    """One worker is this process itself; more workers are that many other processes."""
    processes = set(run_each(my_process, range(30), workers=workers))
    assert len(processes) <= workers
    assert (os.getpid() in processes) is (workers == 1)
    assert workers == 1 or not any(is_running(each) for each in processes)
    assert not any(isinstance(each, Exception) for each in processes)


def test_results_larger_than_a_pipe_come_whole() -> None:
    """Megabytes are sent in both directions without a deadlock."""
    large = [bytes([count]) * (count << 20) for count in (3, 1, 2, 4)]
    assert run_each(bytes, large, workers=2) == large


def test_each_outcome_is_told_as_soon_as_it_is_known() -> None:
    """`done` is called once for each item, in this process, with its result or error."""
    told: list[tuple[str, Any, int]] = []
    run_each(
        int,
        ["1", "x", "3"],
        workers=2,
        done=lambda item, outcome: told.append((item, outcome, threading.get_ident())),
    )
    assert sorted(item for item, _, _ in told) == ["1", "3", "x"]
    assert {item: outcome for item, outcome, _ in told if item != "x"} == {"1": 1, "3": 3}
    assert {thread for _, _, thread in told} == {threading.get_ident()}


@pytest.mark.parametrize("workers", [1, 2])
def test_what_the_caller_raises_ends_the_workers(workers: int) -> None:
    """An error in `done` ends the run and its processes."""
    seen: list[int] = []

    def stop(_item: int, outcome: Any) -> None:
        seen.append(outcome)
        raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        run_each(my_process, range(100), workers=workers, done=stop)
    assert len(seen) == 1
    assert workers == 1 or not is_running(seen[0])


@pytest.mark.parametrize("make", [ThreadPoolExecutor, ProcessPoolExecutor])
def test_an_executor_of_the_caller_stays_open(make: Callable[[int], Any]) -> None:
    """The caller's executor can be used again, and the results are in order."""
    with make(2) as executor:
        for _ in range(2):
            outcomes = run_each(int, ["2", "x", "1"], executor=executor)
            assert [outcomes[0], outcomes[2]] == [2, 1]
            assert isinstance(outcomes[1], ValueError)


def test_workers_of_a_killed_parent_end() -> None:
    """The workers end when their parent is killed."""
    code = (
        "import os, time\n"
        "from wids.base.processes import run_each\n"
        "def work(item):\n"
        "    os.write(1, b'%d\\n' % os.getpid())  # in one piece: two workers share the pipe\n"
        "    time.sleep(600)\n"
        "run_each(work, range(2), workers=2)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    workers = [int(parent.stdout.readline()) for _ in range(2)]
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert eventually(lambda: not any(map(is_running, workers)))


def test_a_fresh_interpreter_runs_no_module_of_the_working_folder(tmp_path: Path) -> None:
    """The interpreter finds this package and no modules of the working folder."""
    (tmp_path / "json.py").write_text("raise SystemExit('a stranger ran')")
    (tmp_path / "wids.py").write_text("raise SystemExit('a stranger ran')")
    command, environment = fresh_python("-c", "import json, wids; print(wids.__file__)")
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    import wids

    assert Path(done.stdout.strip()).samefile(wids.__file__)


@pytest.mark.parametrize("context", [SpawnContext(), ForkServerContext()], ids=["spawn", "server"])
def test_views_are_sent_to_processes_as_copies(context: Any) -> None:
    """A memoryview is sent to a process as a copy; other views are refused."""
    allow_pickling_views()
    here, there = context.Pipe()
    here.send([memoryview(b"catalogue")[:3], memoryview(b"")])
    assert [bytes(each) for each in there.recv()] == [b"cat", b""]
    with pytest.raises(TypeError, match="cannot pickle memoryview objects of elements"):
        here.send(memoryview(b"12345678").cast("I"))


def test_more_items_than_the_window_are_all_done():
    """Thousands of items are submitted to an executor a window at a time."""
    with ThreadPoolExecutor(2) as executor:
        assert run_each(abs, range(-2500, 0), executor=executor) == list(range(2500, 0, -1))
    assert run_each(abs, [], workers=4) == []


def exits(number: int) -> int:
    """Call `sys.exit`."""
    if number == 1:
        sys.exit(3)
    return number


def dies(number: int) -> int:
    """End the process that runs this, as the kernel does when memory is short."""
    if number == 1:
        os._exit(9)
    return number


@pytest.mark.parametrize("work", [exits, dies, interrupted])
def test_a_worker_that_ends_takes_no_other_item_with_it(work: Callable[[int], int]) -> None:
    """All other items are done if one ends its worker, also more than a window of them."""
    known = []
    outcomes = run_each(
        work, [0, 1, *range(2, 2100)], workers=3, done=lambda *row: known.append(row)
    )
    assert outcomes[:1] + outcomes[2:] == [0, *range(2, 2100)]
    assert isinstance(outcomes[1], ChildProcessError)
    assert work is exits or "fewer workers" in str(outcomes[1])
    assert sorted(item for item, _ in known) == list(range(2100))


class BreakingExecutor(Executor):
    """An executor that takes two calls and then no more, as one does that lost its processes."""

    def __init__(self) -> None:
        self.left = 2

    def submit(self, function, /, *args, **kwargs):
        if not self.left:
            raise BrokenExecutor("a process is gone")
        self.left -= 1
        future = Future()
        future.set_result(function(*args, **kwargs))
        return future


def test_broken_executor_is_an_error_of_all_it_did_not_do():
    """If the caller's executor breaks, each undone item is reported."""
    outcomes = run_each(abs, range(1500), executor=BreakingExecutor())
    assert outcomes[:2] == [0, 1]
    assert len(outcomes) == 1500
    assert all(isinstance(outcome, ChildProcessError) for outcome in outcomes[2:])
    assert all(isinstance(outcome.__cause__, BrokenExecutor) for outcome in outcomes[2:])


class Unreadable:
    """An object that pickling takes apart and cannot put together again."""

    def __reduce__(self):
        return int, ("no number",)


def refuse(number: int) -> object:
    """Answer what cannot be sent, an error, what cannot be received, or such an error."""
    if number == 1:
        raise OverflowError("no such luck")
    if number == 3:
        raise OddError("this", "that")
    return Unreadable() if number == 2 else lambda: number


def test_an_outcome_that_cannot_be_sent_back_is_an_error() -> None:
    """A result or error that cannot be pickled or unpickled is an error of its item alone."""
    outcomes = run_each(refuse, [0, 1, 2, 1, 3, 1], workers=2)
    assert [type(outcome) for outcome in outcomes[:4]] == [
        RuntimeError,
        OverflowError,
        ValueError,
        OverflowError,
    ]
    assert isinstance(outcomes[4], Exception)
    assert type(outcomes[5]) is OverflowError
