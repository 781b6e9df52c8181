"""Remote shards are counted by the indexes of DALI and Energon beside them, if these fit."""

import json
import re
import struct
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.server import Faults, ShardServer

import wids
from wids.errors import SampleCountError, WidsWarning

TOOLS: dict[str, Callable[[Path], Path]] = {
    "dali": wids.write_dali_index,
    "energon": wids.write_energon_index,
}
Serve = Callable[..., str]


@pytest.fixture(params=TOOLS)
def write_index(request: pytest.FixtureRequest) -> Callable[[Path], Path]:
    """Function that writes one tool's index beside a shard."""
    return TOOLS[request.param]


@pytest.fixture
def serve(make_shard: Callable[..., Path], shard_server: ShardServer) -> Serve:
    """Function that serves a shard, with an index of a tool; returns its URL."""

    def put(name: str, count: int, write: Callable[[Path], Path] | None = None) -> str:
        samples = [
            {"__key__": f"{name[0]}{i}", ".txt": f"{name} {i}", ".bin": bytes(3000)}
            for i in range(count)
        ]
        path = make_shard(name, samples)
        if write is not None:
            index = write(path)
            shard_server.put(index.name, index.read_bytes())
        return shard_server.put(name, path.read_bytes())

    return put


def opened(urls: list[str], tmp_path: Path, **options: Any) -> wids.ShardListDataset:
    """Open shards without a spec, with a cache of this test."""
    return wids.ShardListDataset(
        urls, transformations="bytes", cache_dir=tmp_path / "cache", **options
    )


@pytest.mark.parametrize("remote", ["whole", "range"])
def test_nothing_is_fetched_to_count(
    serve: Serve,
    shard_server: ShardServer,
    write_index: Callable[[Path], Path],
    remote: Any,
    tmp_path: Path,
) -> None:
    """A dataset opens without any shard, warns of nothing, and has the right samples."""
    urls = [serve("a.tar", 50, write_index), serve("b.00.tar", 70, write_index)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset = opened(urls, tmp_path, remote=remote)
    assert len(dataset) == 120
    tars = [each for each in shard_server.requests if each.path.endswith(".tar")]
    assert tars
    assert all("Range" in each.headers for each in tars)
    assert sum(each.nbytes for each in tars) < 100_000
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # by range, of shards without a sidecar
        assert dataset[70][".txt"] == b"b.00.tar 20"
    dataset.close()


def test_an_index_of_another_version_is_not_believed(
    serve: Serve, shard_server: ShardServer, write_index: Callable[[Path], Path], tmp_path: Path
) -> None:
    """An index of a longer, a shorter or a wholly other shard is warned of; shards are counted."""
    for count in (3, 300):
        serve("a.tar", 50, write_index)
        url = serve("a.tar", count)
        with pytest.warns(WidsWarning) as caught:
            dataset = opened([url], tmp_path / f"{count}")
        wrong, whole = (str(each.message) for each in caught)
        assert re.search(r"a(\.tar)?\.idx: .* does not fit its shard", wrong)
        assert "fetched whole" in whole
        assert len(dataset) == count
        assert dataset[-1][".txt"] == f"a.tar {count - 1}".encode()
        dataset.close()


def test_a_wrong_count_is_an_error_that_names_the_shard(
    serve: Serve, shard_server: ShardServer, tmp_path: Path
) -> None:
    """An index that leaves out a sample in the middle yields an error, and no sample."""
    url = serve("a.tar", 50, wids.write_energon_index)
    places = struct.unpack("<51Q", shard_server.files["/a.tar.idx"])
    shard_server.put("a.tar.idx", struct.pack("<50Q", *places[:9], *places[10:]))
    with opened([url], tmp_path) as dataset:
        assert len(dataset) == 49
        for index in (0, 48):
            with pytest.raises(SampleCountError, match=r"a\.tar: .*the spec says 49 samples"):
                dataset[index]


@pytest.mark.parametrize(
    "data",
    [b"", b"<!DOCTYPE html>", bytes(16), b"x" * 24, b"v1.2 2\nbin 512 1 a.bin\n", b"v1.2 0\n",
     b"v1.1 1\nbin 0 1\n", b"v1.1 1\nbin 513 1\n", struct.pack("<2Q", 1024, 512)],
    ids=str,
)  # fmt: skip
def test_files_of_another_purpose_are_passed_over(
    serve: Serve, shard_server: ShardServer, data: bytes, tmp_path: Path
) -> None:
    """What is no index of a shard with samples changes nothing."""
    url = serve("a.tar", 5)
    for name in ("a.idx", "a.tar.idx"):
        shard_server.put(name, data)
    with (
        pytest.warns(WidsWarning, match="fetched whole: .*no usable sidecar"),
        opened([url], tmp_path) as dataset,
    ):
        assert len(dataset) == 5


@pytest.mark.parametrize(
    "faults", [Faults(ignore_range=True), Faults(lie_range="total"), Faults(change_etag=True)]
)
def test_a_faulty_server_is_counted_by_whole_shards(
    serve: Serve, shard_server: ShardServer, faults: Faults, tmp_path: Path
) -> None:
    """Where the shard cannot be compared with its index, it is fetched, and is right."""
    urls = [serve(f"{name}.tar", 50, wids.write_dali_index) for name in "ab"]
    shard_server.faults = faults
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with opened(urls, tmp_path) as dataset:
            assert len(dataset) == 100
            assert dataset[60][".txt"] == b"b.tar 10"


def test_other_rules_and_specs_go_their_own_way(
    serve: Serve, shard_server: ShardServer, tmp_path: Path
) -> None:
    """With other rules those indexes mean nothing; a spec with counts asks for none of them."""
    url = serve("a.tar", 5, wids.write_energon_index)
    with (
        pytest.warns(WidsWarning, match="fetched whole"),
        opened([url], tmp_path, key_rule="last_dot") as dataset,
    ):
        assert len(dataset) == 5
    shard_server.requests.clear()
    (tmp_path / "a.json").write_text(json.dumps({"shardlist": [{"url": url, "nsamples": 5}]}))
    with wids.ShardListDataset(tmp_path / "a.json", cache_dir=tmp_path / "other") as dataset:
        assert len(dataset) == 5
    assert not shard_server.requests
