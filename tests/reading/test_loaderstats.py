"""`Loader.stats()`: where the time of a loader goes."""

import itertools
import json
import threading
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import wids
from wids.reading.loaderstats import LoaderStats, Stage


def plain(batch: Any) -> list[Any]:
    return batch["x"].tolist()


class Numbers:
    """A dataset of numbers; one of them fails if asked to."""

    def __init__(self, damaged: int = -1) -> None:
        self.damaged = damaged

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> dict[str, int]:
        if index == self.damaged:
            raise ValueError("damaged")
        return {"x": index}


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_every_stage_is_counted_once_for_each_batch(workers: int) -> None:
    """Stages count their batches, over passes, and the batches are the same as without counting."""
    loader = wids.Loader(Numbers(), 8, num_workers=workers)
    expected = list(map(plain, loader))
    stats = loader.stats()
    assert [list(map(plain, loader)) for _ in range(2)] == [expected] * 2
    for stage in ("read", "collate", *(["convert"] if find_spec("torch") else []), "wait"):
        assert stats.stage(stage).times == 10, stage
    assert stats.stage("use").times == 10  # between a batch and the next request, or the end
    assert stats.stage("draw").times >= 10
    assert stats.num_batches == 10
    assert loader.stats() is stats


def test_a_pass_that_was_begun_before_is_not_counted() -> None:
    """Counting begins with the next pass."""
    loader = wids.Loader(Numbers(), 8, num_workers=2)
    iterator = iter(loader)
    stats = loader.stats()
    assert len(list(iterator)) == 5
    assert (stats.num_batches, str(stats)[:15]) == (0, "loop: 0 batches")


def test_errors_pass_through() -> None:
    """An error of a sample comes where it would without counting, and later batches come."""
    loader = wids.Loader(Numbers(damaged=9), 8, num_workers=2)
    stats = loader.stats()
    iterator = iter(loader)
    next(iterator)
    with pytest.raises(ValueError, match="damaged"):
        next(iterator)
    assert len(list(iterator)) == 3
    assert stats.num_batches == 4


def test_columns_of_a_dataset_are_read_in_one_stage(tmp_path: Path) -> None:
    """A dataset that makes batches field by field reads and collates at once."""
    with wids.ShardWriter(f"{tmp_path}/s-%03d.tar") as writer:
        for number in range(20):
            writer.write({"__key__": str(number), ".cls": number})
    loader = wids.Loader(wids.ShardListDataset(str(tmp_path)), 5, num_workers=1)
    stats = loader.stats()
    assert len(list(loader)) == 4
    assert (stats.stage("read").times, stats.stage("collate").times) == (4, 0)


def test_a_trace_has_all_spans_and_the_names_of_threads(tmp_path: Path) -> None:
    """The trace is JSON of complete events in microseconds, with a name for each thread."""
    loader = wids.Loader(Numbers(), 8, num_workers=2)
    stats = loader.stats()
    list(loader)
    stats.save_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    names = {each["tid"]: each["args"]["name"] for each in events if each["ph"] == "M"}
    spans = [each for each in events if each["ph"] == "X"]
    assert names[threading.get_native_id()] == threading.current_thread().name
    assert set(Counter(each["tid"] for each in spans)) == set(names)
    # Perfetto reads longer identities as none, and draws all those threads as one.
    assert len(names) >= 2
    assert all(0 < each["tid"] < 1 << 32 for each in events)
    assert all(each["cat"] and each["ts"] >= 0 for each in spans)
    assert all(each["dur"] >= 0 for each in spans)
    for thread in names:  # spans of one thread follow each other, or lie within each other
        mine = [(each["ts"], each["ts"] + each["dur"]) for each in spans if each["tid"] == thread]
        for (begin, end), (other, stop) in itertools.combinations(sorted(mine), 2):
            assert end <= other + 1 or stop <= end + 1, (begin, end, other, stop)


def stats_of(**seconds: Any) -> LoaderStats:
    """Statistics of one batch with two threads, by seconds or by (seconds, those of CPU)."""
    stats = LoaderStats()
    stats.begin_pass(2)
    stage: Stage
    for stage, spent in seconds.items():  # type: ignore[assignment]
        wall, cpu = spent if isinstance(spent, tuple) else (spent, spent)
        stats.note(stage, 0.0, wall, cpu)
    return stats


@pytest.mark.parametrize(
    ("seconds", "advice", "line"),
    [
        ({"wait": 0.1, "use": 9.9, "read": 6.0}, "keeps up", "waiting 1 %, threads busy 30 %"),
        ({"wait": 8, "use": 2, "read": (19, 18)}, "compute", "waiting 80 %, threads busy 95 %"),
        ({"wait": 8, "use": 2, "read": (18, 3)}, "storage", "waiting 80 %, threads busy 90 %"),
        ({"wait": 5, "use": 5, "read": 4}, "prefetch_factor", "waiting 50 %, threads busy 20 %"),
        ({"draw": 6, "wait": 1, "use": 3}, "sampler", "waiting 70 %, threads busy 0 %"),
    ],
)
def test_the_advice_names_what_bounds_the_loop(
    seconds: dict[str, Any], advice: str, line: str
) -> None:
    """The advice follows from who waited for whom."""
    stats = stats_of(**seconds)
    assert advice in stats.advice()
    assert stats.line() == line
    assert str(stats).endswith(f"{line}: {stats.advice()}")
