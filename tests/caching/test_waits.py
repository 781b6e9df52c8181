"""How long readers wait: noted by many processes, counted once."""

import multiprocessing
import random
from pathlib import Path

import pytest
from helpers.spawned import note_many
from hypothesis import given
from hypothesis import strategies as st

from wids.caching.waits import WaitLog, covered_seconds

SPANS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=12)


@given(SPANS, st.integers(0, 60))
def test_time_covered_is_counted_once(spans: list[tuple[int, int]], since: int) -> None:
    """As many seconds as there are with some span over them, from the given time on."""
    pairs = [(began, began + length) for began, length in spans]
    seconds = {second for began, ended in pairs for second in range(began, ended)}
    expected = sum(second >= since for second in seconds)
    assert covered_seconds(pairs, since) == expected


def test_notes_of_many_processes_are_all_there(tmp_path: Path) -> None:
    """Four processes write at once and no note is lost or torn."""
    waits = WaitLog.begin(tmp_path / "waits")
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=note_many, args=(tmp_path / "waits", i)) for i in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
        process.close()
    assert waits.seconds(since=0.0) == 800


def test_what_takes_no_time_is_no_wait(tmp_path: Path) -> None:
    """Opening a shard that is there is not noted."""
    waits = WaitLog.begin(tmp_path / "waits")
    waits.note(5.0, 5.0005)
    assert ((tmp_path / "waits").stat().st_size, waits.seconds(0.0)) == (0, 0.0)


def test_after_the_end_nothing_is_noted(tmp_path: Path) -> None:
    """A worker that outlives the log neither fails nor makes the file again."""
    waits = WaitLog.begin(tmp_path / "waits")
    waits.close()
    waits.note(1.0, 2.0)
    waits.close()
    assert (waits.seconds(0.0), list(tmp_path.iterdir())) == (0.0, [])


def test_half_a_note_is_passed_over(tmp_path: Path) -> None:
    """A note that a full disk cut is left out."""
    waits = WaitLog.begin(tmp_path / "waits")
    waits.note(1.0, 2.0)
    with (tmp_path / "waits").open("ab") as stream:
        stream.write(random.Random(1).randbytes(7))
    assert waits.seconds(0.0) == 1.0


def test_no_log_takes_the_place_of_another(tmp_path: Path) -> None:
    """A file that is there is not overwritten."""
    (tmp_path / "waits").write_bytes(b"mine")
    with pytest.raises(FileExistsError):
        WaitLog.begin(tmp_path / "waits")
