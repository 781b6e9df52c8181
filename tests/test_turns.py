"""Making a sidecar in turns: one process works, the others wait, and nobody waits for ever."""

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tarbytes import END, numbered

from wids.tar.tarindex import TarIndex
from wids.tar.turns import turn_to_index

# Opens all shards of a folder as soon as standard input ends, and says how many it scanned.
COUNT_SCANS = """
import sys
from wids.reading.shardlist import ShardList
from wids.tar import tarindex
scan, scanned = tarindex.scan_tar, []
def counted(path, **options):
    scanned.append(path)
    return scan(path, **options)
tarindex.scan_tar = counted
print("ready", flush=True)
sys.stdin.read()
dataset = ShardList(f"{sys.argv[1]}/*.tar", cache_dir=sys.argv[2], transformations="bytes")
assert sum(1 for _ in dataset) == 600
print(len(scanned))
"""

HOLD = """
import pathlib, sys, time
from wids.tar.turns import turn_to_index
with turn_to_index(pathlib.Path(sys.argv[1])):
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
    """Four processes that open the same new shards at once scan each of them once in all."""
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


def test_a_killed_process_keeps_nobody_waiting(tmp_path: Path) -> None:
    """The lock of a process that was killed is gone with it; its file is taken over and removed."""
    process = start(HOLD, tmp_path / "x.widx")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert (tmp_path / ".x.widx.lock").exists()
    with turn_to_index(tmp_path / "x.widx"):
        pass
    assert not list(tmp_path.iterdir())


def test_a_process_that_does_not_get_on_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """After some patience the others work without the lock, and say so."""
    monkeypatch.setattr("wids.tar.turns._PATIENCE_SECONDS", 0.05)
    shard = tmp_path / "x.tar"
    shard.write_bytes(numbered(0, 2) + END)
    process = start(HOLD, tmp_path / "x.widx")
    assert TarIndex.open(shard, tmp_path / "x.widx").num_samples == 1
    assert "not waiting" in caplog.text
    process.kill()
    process.communicate()


def test_threads_take_turns(tmp_path: Path) -> None:
    """Of many threads one at a time is inside, also when each removes the lock's file."""
    inside, most = [], []

    def enter() -> None:
        for _ in range(5):
            with turn_to_index(tmp_path / "x.widx"):
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


def test_a_child_that_was_forked_meanwhile_holds_no_turn(tmp_path: Path) -> None:
    """A turn ends for all when its owner leaves it, though a forked child has its descriptor."""
    with turn_to_index(tmp_path / "x.widx"):
        (held,) = [
            int(link.name)
            for link in Path("/proc/self/fd").iterdir()
            if os.path.realpath(link).endswith(".x.widx.lock")
        ]
        inherited = os.dup(held)  # what a fork does to a descriptor: the lock is shared
    fcntl.flock(inherited, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(inherited)
    with turn_to_index(tmp_path / "x.widx"):
        assert [path.name for path in tmp_path.iterdir()] == [".x.widx.lock"]


def test_without_locks_nobody_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a file system without locks, and in a folder that is not there, the turn is free."""

    def no_locks(*_: object) -> None:
        raise OSError(38, "Function not implemented")

    with turn_to_index(tmp_path / "missing" / "x.widx"):
        pass
    monkeypatch.setattr(fcntl, "flock", no_locks)
    with turn_to_index(tmp_path / "x.widx"), turn_to_index(tmp_path / "x.widx"):
        pass
