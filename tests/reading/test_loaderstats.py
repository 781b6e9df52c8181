"""`Loader.stats()`: where the time of a loader goes."""

import itertools
import json
import math
import threading
import time
from collections import Counter
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from helpers.server import Request, ShardServer

import wids
from wids.base.system import num_cores
from wids.reading.loaderstats import LoaderStats, Stage
from wids.tar.sidecar import SIDECAR_SUFFIX

resource = pytest.importorskip("resource")

IN_THREADS: tuple[Stage, ...] = ("storage", "decode", "read", "collate", "convert")
NUM_SAMPLES = 20
SLEEP_SECONDS = 0.004


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
    assert decode.idle_seconds >= slept / 2
    assert stats.stage("wait").seconds + stats.stage("use").seconds <= elapsed


@pytest.fixture
def slow_server(shard: str, shard_server: ShardServer) -> tuple[list[dict[str, Any]], list[float]]:
    """Serve the shard, slowly, and its sidecar: the spec, and how long each answer was held."""
    wids.TarIndex.from_tar(shard).save(Path(f"{shard}{SIDECAR_SUFFIX}"))
    url = shard_server.put("s.tar", Path(shard).read_bytes())
    shard_server.put(f"s.tar{SIDECAR_SUFFIX}", Path(f"{shard}{SIDECAR_SUFFIX}").read_bytes())
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


class Slow:
    """A dataset of 16 samples that waits before it returns one."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> dict[str, int]:
        time.sleep(self.seconds)
        return {"x": index}


class SlowStart:
    """A dataset of 16 samples that waits before it returns the first one."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.all_read = threading.Event()

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> dict[str, int]:
        if index == 0:
            time.sleep(self.seconds)
        if index == 15:
            self.all_read.set()
        return {"x": index}


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
    slow_server: tuple[list[dict[str, Any]], list[float]], tmp_path: Path
) -> None:
    """Bytes that were requested ahead and are awaited are storage, in columns and in samples."""
    spec, held = slow_server
    for number, transform in enumerate(([], [dict])):
        held.clear()
        dataset = wids.ShardListDataset(spec, cache_dir=tmp_path / str(number), remote="range")
        for each in transform:
            dataset.add_transform(each)
        loader = wids.Loader(dataset, 5, num_workers=1)
        stats = loader.stats()
        assert len(list(loader)) == stats.stage("storage").times == NUM_SAMPLES // 5
        assert held
        assert stats.stage("storage").seconds > stats.stage("decode").seconds
        assert stats.stage("storage").seconds > stats.stage("read").seconds


class FaultsOf:
    """Decoder that counts the page faults while it reads a field."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, view: Any) -> int:
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
        found = int(np.frombuffer(view, np.uint8).max())
        self.count += resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before
        return found


@pytest.mark.skipif(not hasattr(resource, "RUSAGE_THREAD"), reason="faults are not counted apart")
@pytest.mark.parametrize("transformed", [False, True])
def test_pages_of_mapped_fields_are_touched_before_they_are_decoded(
    transformed: bool, tmp_path: Path
) -> None:
    """Decoders of a counted pass find the pages of their fields there; without, they fault."""
    with wids.ShardWriter(f"{tmp_path}/s-%03d.tar") as writer:
        for number in range(4):
            writer.write({"__key__": str(number), ".bin": bytes([number]) * (1 << 20)})
    faults = []
    for counted in (False, True):
        decode = FaultsOf()
        dataset = wids.ShardListDataset(str(tmp_path), decoders={".bin": decode})
        if transformed:
            dataset.add_transform(dict)
        loader = wids.Loader(dataset, 2, num_workers=0)
        if counted:
            loader.stats()
        assert [batch[".bin"].tolist() for batch in loader] == [[0, 1], [2, 3]]
        faults.append(decode.count)
        dataset.close()
    assert faults[1] * 4 < faults[0]


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


# The rules of the Trace Event Format that a trace of complete events has to keep.
KINDS_OF_METADATA = {"process_name": str, "thread_name": str, "thread_sort_index": int}


def check_trace(text: str) -> list[dict[str, Any]]:
    """Check a trace against the Trace Event Format, and return its events.

    Raises:
        ValueError: It breaks a rule: `ts` and `dur` in microseconds, threads by integers of 32
            bits, and events of one thread that lie within each other or follow each other.
    """

    def demand(kept: bool, rule: str, event: object) -> None:
        if not kept:
            raise ValueError(f"{rule}: {event}")

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON")

    trace = json.loads(text, parse_constant=refuse)
    demand(isinstance(trace, dict) and isinstance(trace.get("traceEvents"), list), "list", text[:9])
    demand(trace.get("displayTimeUnit", "ms") in ("ms", "ns"), "displayTimeUnit", trace.keys())
    open_until: dict[tuple[int, int], list[int]] = {}
    last: dict[tuple[int, int], int] = {}
    for event in trace["traceEvents"]:
        demand(event.get("ph") in ("X", "M"), "phase", event)
        demand(isinstance(event.get("name"), str) and event["name"] != "", "name", event)
        for name in ("pid", "tid"):
            demand(type(event.get(name)) is int and 0 < event[name] < 1 << 32, name, event)
        demand(isinstance(event.get("args", {}), dict), "args", event)
        if event["ph"] == "M":
            kind = KINDS_OF_METADATA.get(event["name"])
            demand(kind is not None, "metadata", event)
            value = next(iter(event.get("args", {}).values()), None)
            demand(isinstance(value, kind or str), "args of metadata", event)
            continue
        for name in ("ts", "dur"):
            number = event.get(name)
            demand(type(number) in (int, float) and math.isfinite(number), name, event)
            demand(number >= 0 and abs(number * 1000 - round(number * 1000)) < 0.01, name, event)
        demand(isinstance(event.get("cat", ""), str), "categories", event)
        thread = event["pid"], event["tid"]
        began = round(event["ts"] * 1000)
        ended = began + round(event["dur"] * 1000)
        demand(began >= last.get(thread, 0), "order", event)
        last[thread] = began
        enclosing = open_until.setdefault(thread, [])
        while enclosing and enclosing[-1] <= began:
            enclosing.pop()
        demand(not enclosing or ended <= enclosing[-1], "nesting", event)
        enclosing.append(ended)
    events: list[dict[str, Any]] = trace["traceEvents"]
    return events


def trace_of(stats: LoaderStats, path: Path) -> str:
    stats.save_trace(path)
    return path.read_text()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_trace_keeps_the_rules_of_its_format(workers: int, shard: str, tmp_path: Path) -> None:
    """The trace of a loader is valid: units, identities, and parts that lie within their batch."""
    dataset = wids.ShardListDataset(shard, decoders={".txt": sleeping})
    loader = wids.Loader(dataset.map(dict), 5, num_workers=workers)
    stats = loader.stats()
    began = time.perf_counter()
    for _ in loader:
        time.sleep(SLEEP_SECONDS)
    elapsed = time.perf_counter() - began
    events = check_trace(trace_of(stats, tmp_path / "trace.json"))
    spans = [event for event in events if event["ph"] == "X"]
    named = {event["tid"] for event in events if event["ph"] == "M"}
    assert {event["tid"] for event in spans} == named
    assert {event["name"] for event in spans} <= set(get_args(Stage))
    # In microseconds: each sleep is as long as it was, and all of it fits into the test's clock.
    used = [event["dur"] for event in spans if event["name"] == "use"]
    decoded = [event["dur"] for event in spans if event["name"] == "decode"]
    assert all(each >= SLEEP_SECONDS * 1e6 for each in used)
    assert len([each for each in decoded if each >= SLEEP_SECONDS * 1e6]) == NUM_SAMPLES
    assert max(event["ts"] + event["dur"] for event in spans) <= elapsed * 1e6
    # The parts of a batch stand in its arguments, the short ones too.
    parts = [event["args"] for event in spans if event["name"] == "read"]
    assert len(parts) == NUM_SAMPLES // 5
    assert all(each["decode_ms"] >= 5 * SLEEP_SECONDS * 1e3 for each in parts)
    total = sum(each["storage_ms"] for each in parts)
    assert total == pytest.approx(1000 * stats.stage("storage").seconds)


EVENT = {"ph": "X", "name": "read", "pid": 1, "tid": 2, "ts": 10.0, "dur": 5.0}


@pytest.mark.parametrize(
    ("events", "rule"),
    [
        ([{**EVENT, "ts": 10.0}, {**EVENT, "ts": 12.0}], "nesting"),
        ([{**EVENT, "ts": 10.0, "dur": 2.0}, {**EVENT, "dur": 3.0}], "nesting"),
        ([{**EVENT, "ts": 10.0}, {**EVENT, "ts": 9.0, "dur": 0.5}], "order"),
        ([{**EVENT, "tid": 1 << 40}], "tid"),
        ([{**EVENT, "pid": "1"}], "pid"),
        ([{**EVENT, "dur": -1.0}], "dur"),
        ([{**EVENT, "ts": float("nan")}], "JSON"),
        ([{**EVENT, "ts": 1.00004}], "ts"),
        ([{**EVENT, "name": ""}], "name"),
        ([{**EVENT, "ph": "B"}], "phase"),
        ([{"ph": "M", "name": "thread_name", "pid": 1, "tid": 2}], "args of metadata"),
        ([{"ph": "M", "name": "thread", "pid": 1, "tid": 2, "args": {"name": "a"}}], "metadata"),
    ],
)
def test_malformed_traces_are_noticed(events: list[dict[str, Any]], rule: str) -> None:
    """The check of traces refuses a trace that breaks a rule, and accepts one that keeps it."""
    assert check_trace(json.dumps({"traceEvents": [EVENT, {**EVENT, "tid": 3}]}))
    with pytest.raises(ValueError, match=rule):
        check_trace(json.dumps({"traceEvents": events}))


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
        (
            {"wait": 8, "use": 2, "read": (18, 3)},
            "in the dataset",
            "waiting 80 %, threads busy 90 %",
        ),
        ({"wait": 5, "use": 5, "read": 4}, "prefetch_factor", "waiting 50 %, threads busy 20 %"),
        ({"draw": 6, "wait": 1, "use": 3}, "sampler", "waiting 70 %, threads busy 0 %"),
        (
            {"wait": 8, "use": 2, "storage": (12, 1), "decode": (5, 4), "read": 1},
            "wait for storage",
            "waiting 80 %, threads busy 90 %, storage 60 %, decoding 25 %",
        ),
        (
            {"wait": 8, "use": 2, "storage": (3, 1), "decode": (14, 4), "read": 1},
            "while they decode",
            "waiting 80 %, threads busy 90 %, storage 15 %, decoding 70 %",
        ),
        (
            {"wait": 8, "use": 2, "storage": (4, 1), "decode": (4, 1), "read": (10, 5)},
            "for storage or for Python's lock",
            "waiting 80 %, threads busy 90 %, storage 20 %, decoding 20 %",
        ),
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


def test_the_advice_leaves_out_the_first_batch_of_a_pass() -> None:
    """A slow loop that waits for nothing but its first batch needs no faster loader."""
    dataset = SlowStart(1.0)
    loader = wids.Loader(dataset, 4, num_workers=1, prefetch_factor=4)
    stats = loader.stats()
    for _ in loader:
        assert dataset.all_read.wait(60)  # so that no later batch is waited for
        time.sleep(0.3)
    assert stats.waiting > 0.05
    assert "the loader keeps up" in stats.advice()


def test_the_advice_of_a_loader_without_threads_is_threads() -> None:
    """A loop that reads its batches itself is told to let threads do it."""
    loader = wids.Loader(Slow(0.01), 8, num_workers=0)
    stats = loader.stats()
    list(loader)
    assert "num_workers" in stats.advice()


def test_the_advice_names_a_slow_collate_fn() -> None:
    """Threads that wait in collate_fn are told so."""

    def collate(samples: list[Any]) -> list[Any]:
        time.sleep(0.05)
        return samples

    loader = wids.Loader(Numbers(), 8, num_workers=1, collate_fn=collate)
    stats = loader.stats()
    list(loader)
    assert "in collate_fn" in stats.advice()


def test_the_advice_for_shards_read_by_range_is_about_requests() -> None:
    """Threads that wait for a server are not told to fetch whole shards ahead."""
    stats = stats_of(wait=8, use=2, storage=(18, 1))
    assert "fetch_ahead" in stats.advice()
    stats.begin_pass(2, by_range=True)
    assert "memory=" in stats.advice()
    assert "fetch_ahead" not in stats.advice()


def test_the_advice_by_range_is_the_server_though_some_threads_are_idle() -> None:
    """A larger prefetch_factor, or a thread where there is none, does not make a server faster."""
    stats = stats_of(wait=8, use=2, storage=(9, 1), read=1)  # two threads, half of their time
    assert "prefetch_factor" in stats.advice()
    stats.begin_pass(4, by_range=True)
    assert "memory=" in stats.advice()
    stats.begin_pass(0, by_range=True)  # a thread would read while the loop uses a batch
    assert "num_workers" in stats.advice()
    stats = stats_of(wait=9.5, use=0.5, storage=(9, 1), read=0.5)
    stats.begin_pass(0, by_range=True)
    assert "memory=" in stats.advice()


def test_more_threads_are_not_advised_where_all_processors_compute() -> None:
    """Four threads for each core take turns: it is the processors that they wait for."""
    seconds = num_cores() * 9.5
    stats = stats_of(wait=8, use=(2, 0.1), decode=(4 * seconds, seconds))
    stats.begin_pass(4 * num_cores())
    assert "all processors" in stats.advice()
    assert "more threads cannot help" in stats.advice()
    stats = stats_of(wait=8, use=(2, 0.1), decode=(4 * seconds, seconds / 2))
    stats.begin_pass(4 * num_cores())
    assert "while they decode" in stats.advice()
    assert "other programs" in stats.advice()
