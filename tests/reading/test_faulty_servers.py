"""Every way to read a remote dataset, from servers that lie, break off and change files.

Faults are drawn at random, and so is the request at which a shard is replaced. What is read is then
what one version of the file has, or an error.
"""

import json
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from importlib.util import find_spec
from typing import Any

import pytest
from helpers.downloads import IMPATIENT
from helpers.server import Faults, ShardServer, serve, stop
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import wids
from wids.errors import WidsError
from wids.fetching.fetch import Fetcher
from wids.fetching.transport import FetchPolicy
from wids.specs.build import build_spec
from wids.specs.sources import load_spec
from wids.tools.packing import write_pack

SHARDS, PER_SHARD, NBYTES = 3, 6, 6000
OLD, NEW = 0, 1

Samples = Iterator[tuple[int, str, bytes]]


def field_of(number: int, version: int) -> bytes:
    """Return the field of a sample in a version of its shard."""
    return random.Random(f"{number} {version}").randbytes(NBYTES)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], list[dict[str, bytes]]]:
    """Make two versions of the shards, of equal sizes, each with indexes, a spec and a pack."""
    versions = []
    for version in (OLD, NEW):
        folder = tmp_path_factory.mktemp("version")
        rows = []
        for number in range(SHARDS):
            path = folder / f"{number}.tar"
            with wids.TarWriter(path) as writer:
                for sample in range(number * PER_SHARD, (number + 1) * PER_SHARD):
                    data = field_of(sample, version)
                    writer.write({"__key__": f"k{sample}", ".bin": data, ".cls": sample})
            wids.TarIndex.open(path).save(f"{path}.widx")
            (wids.write_dali_index if number else wids.write_energon_index)(path)
            rows.append({"url": path.name, "nsamples": PER_SHARD, "filesize": path.stat().st_size})
        (folder / "train.json").write_text(json.dumps({"shardlist": rows, "pack": "train.wpack"}))
        write_pack(load_spec(str(folder / "train.json")), folder / "train.wpack")
        versions.append({path.name: path.read_bytes() for path in folder.iterdir()})
    return lambda: versions  # a function, so that a failure does not print all bytes


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FetchPolicy, "wait_seconds", lambda *_: 0.0)


def opened(spec: Any, folder: str) -> wids.ShardListDataset:
    """Open a dataset that reads by range, and does not wait long."""
    options: dict[str, Any] = {"transformations": "bytes", "memory": 60_000}
    dataset = wids.ShardListDataset(spec, cache_dir=folder, remote="range", **options)
    dataset.cache.fetcher = Fetcher(IMPATIENT)
    return dataset


def by_loader(url: str, folder: str) -> Samples:
    with closing(opened(f"{url}/train.json", folder)) as dataset:
        sampler = wids.DistributedShardSampler(dataset, 1, 0, interleave=2)
        for batch in wids.Loader(dataset, 4, sampler=sampler, tensors=False, num_workers=1):
            yield from zip(
                batch["__index__"].tolist(),
                batch["__key__"],
                [bytes(each) for each in batch[".bin"]],
                strict=True,
            )


def by_turns(url: str, folder: str) -> Samples:
    with closing(opened(f"{url}/train.json", folder)) as dataset:
        sampler = wids.DistributedShardSampler(dataset, 1, 0, interleave=2)
        for sample in dataset.as_iterable(sampler, batch_size=4):
            yield sample["__index__"], sample["__key__"], sample[".bin"]


def by_pack(url: str, folder: str) -> Samples:
    with closing(opened(f"{url}/train.json", folder)) as dataset:
        for number in random.Random(0).sample(range(len(dataset)), 8):
            assert dataset.index_of(f"k{number}") == number
            sample = dataset[number]
            yield number, sample["__key__"], sample[".bin"]


def by_file(url: str, folder: str) -> Samples:
    with closing(opened(f"{url}/train.json", folder)) as dataset:
        for number in range(0, len(dataset), 4):
            with dataset.open_field(number, ".bin") as file:
                file.seek(NBYTES // 2)
                tail = file.read()
                file.seek(0)
                yield number, f"k{number}", file.read(NBYTES // 2) + tail


def by_index(url: str, folder: str) -> Samples:
    """Index the shards where they are, and read through what was made."""
    urls = [f"{url}/{number}.tar" for number in range(SHARDS)]
    built = build_spec(urls, index_dir=folder, digests=(), workers=1)
    if built.failures:
        raise next(iter(built.failures.values()))
    rows = sorted((record.entry for record in built.records), key=lambda row: row["url"])
    with closing(opened(rows, f"{folder}/cache")) as dataset:
        for number in range(len(dataset)):
            sample = dataset[number]
            yield number, sample["__key__"], sample[".bin"]


def by_count(url: str, folder: str) -> Samples:
    """Count the samples by the indexes of other tools, and read whole shards."""
    with closing(opened([f"{url}/{number}.tar" for number in range(SHARDS)], folder)) as dataset:
        for number in range(len(dataset)):
            sample = dataset[number]
            yield number, sample["__key__"], sample[".bin"]


WAYS: dict[str, Callable[[str, str], Samples]] = {
    "loader": by_loader,
    "turns": by_turns,
    "pack": by_pack,
    "file": by_file,
    "index": by_index,
    "count": by_count,
}
KINDS: list[dict[str, Any]] = [
    {"cut_at": 300}, {"cut_at": 5000}, {"status": 503, "retry_after": "0"}, {"status": 404},
    {"no_length": True}, {"chunked": True}, {"length": 100}, {"length": 1 << 40}, {"html": True},
    {"ignore_range": True}, {"lie_range": "start"}, {"lie_range": "total"}, {"change_etag": True},
    {"no_etag": True}, {"dated": True}, {"weak": "alone"}, {"terse": True}, {"hide_total": True},
    {"ignore_if_range": True}, {"gzip": True}, {"refuse": True}, {"lie_range": "bytes"},
]  # fmt: skip


@settings(
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    way=st.sampled_from(list(WAYS)),
    faults=st.lists(
        st.tuples(st.integers(0, 25), st.sampled_from(KINDS), st.integers(1, 6)), max_size=3
    ),
    replaced=st.none() | st.tuples(st.integers(0, 25), st.integers(0, SHARDS - 1), st.booleans()),
)
@example("loader", [], (9, 1, True))
@example("loader", [(7, {"lie_range": "bytes"}, 6)], None)
@example("turns", [(7, {"lie_range": "bytes"}, 6)], (9, 2, False))
@example("turns", [(5, {"ignore_if_range": True}, 20)], (7, 1, False))
@example("count", [], (4, 0, False))
@example("count", [(3, {"lie_range": "bytes"}, 6)], (7, 1, False))
@example("pack", [(2, {"cut_at": 300}, 3)], None)
@example("file", [(5, {"ignore_if_range": True}, 20)], (7, 0, False))
@pytest.mark.skipif(find_spec("torch") is None, reason="one of the ways is a dataset of torch")
@pytest.mark.filterwarnings("ignore")
def test_what_is_read_is_of_one_version_or_an_error(
    files: Callable[[], list[dict[str, bytes]]],
    way: str,
    faults: list[tuple[int, dict[str, Any], int]],
    replaced: tuple[int, int, bool] | None,
) -> None:
    """Each sample has the key and the whole field of one version of its shard, or is an error."""
    # A server that sends other bytes than it says cannot be found out within a field.
    faults = [each for each in faults if way != "file" or each[1] != {"lie_range": "bytes"}]
    state = ShardServer()
    for name, data in files()[OLD].items():
        if way != "count" or not name.endswith(".widx"):
            state.put(name, data)

    def change() -> None:
        number = len(state.requests)
        for at, kind, times in faults:
            if at == number:
                state.faults = Faults(times=times, **kind)
        if replaced is not None and replaced[0] == number:
            for name in (f"{replaced[1]}.tar", f"{replaced[1]}.tar.widx")[: 1 + replaced[2]]:
                state.put(name, files()[NEW][name])

    state.before_answer = change
    server, folder = serve(state), tempfile.mkdtemp()
    seen: dict[int, set[int]] = {}
    failure = state.url
    try:
        for index, key, data in WAYS[way](state.url, folder):
            assert key == f"k{index}"
            (version,) = [each for each in (OLD, NEW) if data == field_of(index, each)]
            seen.setdefault(index // PER_SHARD, set()).add(version)
    except WidsError as error:
        failure = str(error)
    finally:
        stop(server)
        shutil.rmtree(folder, ignore_errors=True)  # after an error, a thread may still write there
    assert state.url in failure
    assert all(len(versions) == 1 for versions in seen.values())
