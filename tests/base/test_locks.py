"""File locks: one process works, the others wait, and no process waits forever."""

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from helpers.tarbytes import END, numbered
from helpers.waiting import eventually

from wids.base.files import file_lock

# Opens all shards of a folder as soon as standard input ends, and says how many it scanned.
COUNT_SCANS = """
import sys
from wids.reading.shardlist import ShardList
from wids.tar import tarindex
scan, scanned = tarindex.scan_bytes, []
def counted(path, **options):
    scanned.append(path)
    return scan(path, **options)
tarindex.scan_bytes = counted
print("ready", flush=True)
sys.stdin.read()
dataset = ShardList(f"{sys.argv[1]}/*.tar", cache_dir=sys.argv[2], transformations="bytes")
assert sum(1 for _ in dataset) == 600
print(len(scanned))
"""

HOLD = """
import pathlib, sys, time
from wids.base.files import file_lock
with file_lock(pathlib.Path(sys.argv[1]), "x", patience_seconds=60):
    print("held", flush=True)
    time.sleep(600)
"""


def start(program: str, *arguments: object) -> subprocess.Popen[str]:
    """Start a Python program and wait for its first line."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline()
    return process


def test_each_shard_is_scanned_once_by_all_processes_together(tmp_path: Path) -> None:
    """Of four processes that open new shards at once, only one scans each shard."""
    folder = tmp_path / "shards"
    folder.mkdir()
    for number in range(6):
        (folder / f"{number}.tar").write_bytes(numbered(200 * number, 200 * number + 200) + END)
    processes = [start(COUNT_SCANS, folder, tmp_path / "cache") for _ in range(4)]
    for process in processes:
        process.stdin.close()  # type: ignore[union-attr]
    scanned = [int(process.stdout.read()) for process in processes]  # type: ignore[union-attr]
    for process in processes:
        assert process.wait() == 0
        process.stdout.close()  # type: ignore[union-attr]
    assert sum(scanned) == 6
    assert sorted(path.name for path in folder.iterdir()) == [f"{i}.tar" for i in range(6)]


def locked(path: Path, patience_seconds: float = 60.0) -> AbstractContextManager[None]:
    return file_lock(path, "x.tar", patience_seconds=patience_seconds)


def try_lock(path: Path) -> None:
    """Lock a file for a moment; raise BlockingIOError if another holds the lock."""
    with path.open("rb") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_killed_process_keeps_nobody_waiting(tmp_path: Path) -> None:
    """The lock of a killed process is free."""
    process = start(HOLD, tmp_path / "lock")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert (tmp_path / "lock").exists()
    with locked(tmp_path / "lock", 0.0), pytest.raises(BlockingIOError):
        try_lock(tmp_path / "lock")
    try_lock(tmp_path / "lock")


def test_a_process_that_does_not_get_on_is_not_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """After the patience without a sign of life, others go on without the lock."""
    process = start(HOLD, tmp_path / "lock")
    with locked(tmp_path / "lock", 0.05):
        assert "x.tar: " in caplog.text
        assert "not waiting" in caplog.text
    assert (tmp_path / "lock").exists()
    process.kill()
    process.communicate()


def test_a_process_that_gets_on_is_waited_for(tmp_path: Path) -> None:
    """Signs of life of the holder prolong the wait."""
    entered, signs = threading.Event(), list[float]()

    def sign() -> float:
        signs.append(time.time() + 60)  # however long this thread waits for a processor
        return signs[-1]

    def wait() -> None:
        with file_lock(tmp_path / "lock", "x", patience_seconds=0.05, last_sign=sign):
            entered.set()

    with locked(tmp_path / "lock"):
        thread = threading.Thread(target=wait)
        thread.start()
        assert eventually(lambda: len(signs) > 5)
        assert not entered.is_set()
    thread.join()
    assert entered.is_set()


def test_threads_take_turns(tmp_path: Path) -> None:
    """Only one of many threads holds the lock at a time."""
    inside, most = [], []

    def enter() -> None:
        for _ in range(5):
            with locked(tmp_path / "lock"):
                inside.append(1)
                most.append(len(inside))
                time.sleep(0.001)
                inside.pop()

    threads = [threading.Thread(target=enter) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 20


def test_a_child_that_was_forked_meanwhile_holds_no_lock(tmp_path: Path) -> None:
    """A released lock is free although a forked child has its descriptor."""
    read_end, write_end = os.pipe()
    with locked(tmp_path / "lock"):
        child = os.fork()
        if child == 0:
            os.read(read_end, 1)  # waits for its parent to be done
            os._exit(0)
    try:
        try_lock(tmp_path / "lock")
    finally:
        os.write(write_end, b"x")
        os.waitpid(child, 0)
        os.close(read_end)
        os.close(write_end)


def test_without_locks_nobody_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a file system without locks, no process waits or uses another kind of lock."""

    def no_locks(*_: object) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with locked(tmp_path / "lock"), locked(tmp_path / "lock"):
        pass


def test_in_a_folder_that_cannot_be_written_nobody_waits(tmp_path: Path) -> None:
    """In a read-only folder, the work is done without a lock."""
    (tmp_path / "file").touch()
    with locked(tmp_path / "file" / "lock"), locked(Path("/proc/no-such-folder/lock")):
        pass


def test_a_planted_link_is_not_followed(tmp_path: Path) -> None:
    """A link or pipe in place of the lock file neither blocks nor creates a file elsewhere."""
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe"):
        with locked(tmp_path / name, 0.05):
            pass
    assert not (tmp_path / "elsewhere").exists()
