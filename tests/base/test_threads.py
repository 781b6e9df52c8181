"""`DaemonThreadPool`: calls in threads that do not keep the process alive."""

import gc
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from wids.base.threads import DaemonThreadPool


def named(name: str) -> list[threading.Thread]:
    """Return the threads with a name."""
    return [thread for thread in threading.enumerate() if thread.name == name]


def test_there_are_no_more_threads_than_asked_for() -> None:
    """The number of threads is bounded, and they end with the pool."""
    crew = DaemonThreadPool(4, "test-size")
    entered = threading.Semaphore(0)
    leave = threading.Event()

    def stay() -> None:
        entered.release()
        leave.wait()

    with ThreadPoolExecutor(8) as pool:
        futures = [each.result() for each in [pool.submit(crew.submit, stay) for _ in range(30)]]
        for _ in range(4):
            entered.acquire()
        assert len(named("test-size")) == 4
        assert not entered.acquire(blocking=False)
        leave.set()
        for future in futures:
            future.result()
    crew.close()
    assert crew.submit(int, "3").result() == 3  # it can be used again
    crew.close()


@pytest.mark.slow
def test_tasks_of_a_new_pool_run_at_once() -> None:
    """As many tasks run at once as may, whatever the first thread does when they are submitted."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # so that threads take turns at any step
    try:
        for _ in range(5000):
            with DaemonThreadPool(3, "test-at-once") as crew:
                crew.submit(int).result()
                # As above, any task that is left to a busy thread breaks the barrier.
                meeting = threading.Barrier(3, timeout=200)
                for future in [crew.submit(meeting.wait) for _ in range(3)]:
                    future.result()
    finally:
        sys.setswitchinterval(interval)


def test_one_of_its_own_threads_may_close_a_crew() -> None:
    """As the garbage collector does there; the other threads end, and so does this one."""
    crew = DaemonThreadPool(2, "test-own")
    crew.submit(crew.close).result()
    for thread in named("test-own"):
        thread.join(60)
    assert not named("test-own")


def test_a_forgotten_crew_ends_its_threads() -> None:
    """The threads of a pool that was not closed end with the pool."""
    crew = DaemonThreadPool(2, "test-forgotten")
    crew.submit(int, "1").result()
    threads = named("test-forgotten")
    assert threads
    del crew
    gc.collect()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def test_a_process_ends_though_a_call_does_not() -> None:
    """Neither the `with` block nor the interpreter waits for a running call."""
    code = (
        "import threading\n"
        "from wids.base.threads import DaemonThreadPool\n"
        "try:\n"
        "    with DaemonThreadPool(1, 'test') as crew:\n"
        "        crew.submit(threading.Event().wait)\n"
        "        raise KeyboardInterrupt\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    assert (done.stdout, done.stderr) == ("interrupted\n", "")
