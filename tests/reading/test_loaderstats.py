"""`Loader.stats()`: where the time of a loader goes."""

import threading
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.server import Request, ShardServer
from helpers.serving import serve_shard

import wids
from wids.reading.loaderstats import LoaderStats, Stage
from wids.reading.prefetch import Prefetch
from wids.tar.sidecar import SIDECAR_SUFFIX

IN_THREADS: tuple[Stage, ...] = ("storage", "decode", "read", "collate", "convert")
NUM_SAMPLES = 20
SLEEP_SECONDS = 0.004


def plain(batch: Any) -> list[Any]:
    return batch["x"].tolist()


class Numbers:
    """A dataset of numbers."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> dict[str, int]:
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


@pytest.fixture
def shard(tmp_path: Path) -> str:
    """Write a shard of texts, classes and arrays of a few pages; returns its path."""
    with wids.ShardWriter(f"{tmp_path}/s-%03d.tar") as writer:
        for number in range(NUM_SAMPLES):
            values = np.full((3, 2000), number)
            writer.write(
                {"__key__": str(number), ".cls": number, ".npy": values, ".txt": f"text {number}"}
            )
    return str(tmp_path / "s-000.tar")


def sleeping(view: Any) -> str:
    """Decode a text, slowly."""
    time.sleep(SLEEP_SECONDS)
    return bytes(view).decode()


def sleeping_transformation(sample: Any) -> str:
    """Take the text of a sample, slowly."""
    time.sleep(SLEEP_SECONDS)
    return f"{sample['__key__']} {sample['.txt']}"


def seconds_in_threads(stats: LoaderStats) -> float:
    return sum(stats.stage(stage).seconds for stage in IN_THREADS)


def same(one: Any, other: Any) -> bool:
    """Return whether two batches are equal."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, wids.Ragged):
        return np.array_equal(one.values, other.values) and same(one.offsets, other.offsets)
    return bool(np.array_equal(one, other))


WAYS: dict[str, Callable[[str], Any]] = {
    "columns": wids.ShardListDataset,
    "raw columns": lambda shard: wids.ShardListDataset(shard, transformations="bytes"),
    "views": lambda shard: wids.ShardListDataset(shard, transformations="memoryview"),
    "by position": lambda shard: wids.ShardListDataset(shard, access="pread"),
    "transformed": lambda shard: wids.ShardListDataset(shard).add_transform(dict.copy),
    "selected": lambda shard: wids.ShardListDataset(shard)[::-1],
    "mapped": lambda shard: wids.ShardListDataset(shard).map(dict.copy),
    "joined": lambda shard: wids.ShardListDataset(shard, fields=".cls").join(
        wids.ShardListDataset(shard, fields=".txt")
    ),
    "concatenated": lambda shard: wids.ShardListDataset(shard) + wids.ShardListDataset(shard),
}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("way", WAYS)
def test_storage_and_decoding_are_counted_for_each_batch(
    way: str, workers: int, shard: str
) -> None:
    """Each batch has its storage, decoding and collation, and is the same as without counting."""
    loader = wids.Loader(WAYS[way](shard), 5, num_workers=workers, tensors=False)
    expected = list(loader)
    stats = loader.stats()
    batches = list(loader)
    assert len(batches) == len(expected)
    assert all(map(same, batches, expected))
    counted = {stage: stats.stage(stage).times for stage in IN_THREADS}
    raw = loader.dataset.batch_kind == "raw"
    assert counted == {
        **dict.fromkeys(("storage", "read", "collate"), len(batches)),
        "decode": 0 if raw else len(batches),
        "convert": 0,
    }


@pytest.mark.parametrize(
    "slow",
    [
        lambda shard: wids.ShardListDataset(shard, decoders={".txt": sleeping}),
        lambda shard: wids.ShardListDataset(shard, decoders={".txt": sleeping}).add_transform(dict),
        lambda shard: wids.ShardListDataset(shard).add_transform(sleeping_transformation),
        lambda shard: wids.ShardListDataset(shard).map(sleeping_transformation),
    ],
    ids=["columns", "samples", "transformation", "map"],
)
def test_a_slow_decoder_counts_as_decoding(slow: Callable[[str], Any], shard: str) -> None:
    """The time of decoders and transformations is decoding, waited, and counted once."""
    loader = wids.Loader(slow(shard), 5, num_workers=1)
    stats = loader.stats()
    began = time.perf_counter()
    assert len(list(loader)) == NUM_SAMPLES // 5
    elapsed = time.perf_counter() - began
    slept = NUM_SAMPLES * SLEEP_SECONDS
    decode = stats.stage("decode")
    assert decode.seconds >= slept
    # All that one thread did, and what it did not: so no other stage has the sleep as well.
    assert seconds_in_threads(stats) <= elapsed
    assert stats.stage("wait").seconds + stats.stage("use").seconds <= elapsed


@pytest.fixture
def slow_server(shard: str, shard_server: ShardServer) -> tuple[list[dict[str, Any]], list[float]]:
    """Serve the shard, slowly, and its sidecar: the spec, and how long each answer was held."""
    url = serve_shard(shard_server, Path(shard))
    held: list[float] = []

    def hold(request: Request) -> None:
        if request.path.endswith(SIDECAR_SUFFIX):
            return
        began = time.perf_counter()
        time.sleep(50 * SLEEP_SECONDS)
        held.append(time.perf_counter() - began)

    shard_server.hold = hold
    row = {"url": url, "nsamples": NUM_SAMPLES, "filesize": Path(shard).stat().st_size}
    return [row], held


class OneByOne:
    """A dataset whose samples are read by index alone, so that no batch is requested ahead."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[index]


def test_fetching_a_shard_counts_as_storage(
    slow_server: tuple[list[dict[str, Any]], list[float]], tmp_path: Path
) -> None:
    """The time in which a reader waits for a server is storage, however samples are read."""
    spec, held = slow_server
    for number, wrap in enumerate((lambda dataset: dataset, OneByOne)):
        held.clear()
        dataset = wids.ShardListDataset(spec, cache_dir=tmp_path / str(number))
        loader = wids.Loader(wrap(dataset), 5, num_workers=1)
        stats = loader.stats()
        began = time.perf_counter()
        list(loader)
        elapsed = time.perf_counter() - began
        assert held
        # Answers that were held back together are waited for once.
        assert max(held) <= stats.stage("storage").seconds <= seconds_in_threads(stats) <= elapsed


def test_ranges_that_a_reader_waits_for_count_as_storage(
    slow_server: tuple[list[dict[str, Any]], list[float]],
    shard_server: ShardServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bytes that were requested ahead and are awaited are storage, in columns and in samples."""
    spec, held = slow_server
    answer_slowly, wait_for, reading = shard_server.hold, Prefetch.wait_for, threading.Event()

    def wait(*given: Any) -> None:
        reading.set()
        wait_for(*given)

    def hold(request: Request) -> None:  # until a reader waits for it
        assert request.path.endswith(SIDECAR_SUFFIX) or reading.wait(100)
        answer_slowly(request)

    monkeypatch.setattr(Prefetch, "wait_for", wait)
    shard_server.hold = hold
    for number, transform in enumerate(([], [dict])):
        held.clear()
        reading.clear()
        dataset = wids.ShardListDataset(spec, cache_dir=tmp_path / str(number), remote="range")
        for each in transform:
            dataset.add_transform(each)
        loader = wids.Loader(dataset, 5, num_workers=1)
        stats = loader.stats()
        assert len(list(loader)) == stats.stage("storage").times == NUM_SAMPLES // 5
        assert stats.stage("storage").seconds >= min(held)


def test_a_part_within_a_part_is_counted_once(shard: str) -> None:
    """A transformation that reads another dataset decodes there, and its storage is storage."""
    other = wids.ShardListDataset(shard, decoders={".txt": sleeping}).add_transform(dict)

    def nested(sample: Any) -> Any:
        return other.__getitems__([sample["__index__"]])[0]

    loader = wids.Loader(wids.ShardListDataset(shard).add_transform(nested), 5, num_workers=1)
    stats = loader.stats()
    began = time.perf_counter()
    list(loader)
    elapsed = time.perf_counter() - began
    assert stats.stage("decode").seconds >= NUM_SAMPLES * SLEEP_SECONDS
    assert stats.stage("decode").times == NUM_SAMPLES // 5
    assert seconds_in_threads(stats) <= elapsed


def test_time_until_an_error_is_counted(shard: str) -> None:
    """A batch that fails is counted up to its error, and the next ones are counted as ever."""

    def failing(view: Any) -> int:
        number = int(bytes(view))
        if number == 7:
            raise OSError("broken")
        return number

    dataset = wids.ShardListDataset(shard, decoders={".cls": failing}, fields=[".cls"])
    for each in (dataset, wids.ShardListDataset(shard, decoders={".cls": failing}).map(dict)):
        loader = wids.Loader(each, 5, num_workers=1)
        stats = loader.stats()
        iterator = iter(loader)
        next(iterator)
        with pytest.raises(wids.DecodeError):
            next(iterator)
        assert len(list(iterator)) == 2
        assert stats.stage("read").times == stats.stage("storage").times == 4


@pytest.mark.parametrize(
    ("seconds", "line"),
    [
        ({"wait": 0.1, "use": 9.9, "read": 6.0}, "waiting 1 %, threads busy 30 %"),
        ({"draw": 6, "wait": 1, "use": 3}, "waiting 70 %, threads busy 0 %"),
        (
            {"wait": 8, "use": 2, "storage": 12, "decode": 5, "read": 1},
            "waiting 80 %, threads busy 90 %, storage 60 %, decoding 25 %",
        ),
    ],
)
def test_the_line_says_who_waited(seconds: dict[Stage, float], line: str) -> None:
    """Shares are of the loop's time, and of the time of two threads."""
    stats = LoaderStats()
    stats.begin_pass(2)
    for stage, spent in seconds.items():
        stats.add_time(stage, spent)
    assert stats.line() == line
    assert str(stats).endswith(line)
