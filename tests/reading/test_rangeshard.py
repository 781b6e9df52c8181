"""Samples of remote shards by byte range."""

import errno
import json
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.server import ShardServer
from helpers.serving import serve_shard
from helpers.shards import tar_bytes
from helpers.sidecarbytes import sidecar_of

import wids
from wids import ShardCache, ShardFormatError, ShardListDataset, TarIndex
from wids.cli import main
from wids.errors import WidsWarning
from wids.tar.sidecar import SIDECAR_SUFFIX

Open = Callable[..., ShardListDataset]


@pytest.fixture
def shards(make_shard: Callable[..., Path]) -> list[Path]:
    """Make three shards of 20 samples with a large and a small field each."""
    paths = []
    for shard in range(3):
        rng = random.Random(shard)
        samples = [
            {"__key__": f"{shard}/{i:03d}", ".bin": rng.randbytes(20_000), ".cls": str(i)}
            for i in range(20)
        ]
        paths.append(make_shard(f"{shard}.tar", samples))
    return paths


@pytest.fixture
def remote(shards: list[Path], shard_server: Any) -> Open:
    """Serve the shards with their sidecars; returns what opens them by range."""

    def open_remote(*, sidecars: bool = True, **options: Any) -> ShardListDataset:
        rows = [(serve_shard(shard_server, path, sidecar=sidecars), 20) for path in shards]
        return ShardListDataset(rows, **{"remote": "range", "transformations": "bytes"} | options)

    return open_remote


def opened_again(dataset: ShardListDataset) -> ShardListDataset:
    """Open the same shards anew."""
    rows = [(url, 20) for url in dataset.shards.urls]
    return ShardListDataset(rows, remote="range", transformations="bytes")


def test_one_sample_costs_one_request_and_its_own_bytes(remote: Open, shard_server: Any) -> None:
    """Once the sidecar is there, a sample takes one request and little more than its fields."""
    dataset = remote()
    dataset[5]
    shard_server.requests.clear()
    sample = dataset[12]
    assert len(shard_server.requests) == 1
    assert shard_server.nbytes <= len(sample[".bin"]) + len(sample[".cls"]) + 3072
    assert not list(Path(dataset.cache_dir).glob("*.tar"))


def test_neighbours_in_a_batch_share_requests(remote: Open, shard_server: Any) -> None:
    """A run of samples comes in one request a shard; only needed fields are fetched."""
    dataset = remote(fields=[".cls"])
    dataset[0], dataset[20]
    shard_server.requests.clear()
    dataset.__getitems__([3, 4, 23, 24])
    assert shard_server.nbytes < 20_000
    dataset = remote()
    dataset[0], dataset[20]
    shard_server.requests.clear()
    dataset.__getitems__([3, 4, 5, 23, 24])
    assert len(shard_server.requests) == 2


def test_the_spec_may_say_where_the_sidecar_lies(
    shards: list[Path], shard_server: Any, tmp_path: Path
) -> None:
    """`index` is used where it is given."""
    url = shard_server.put("a.tar", shards[0].read_bytes())
    shard_server.put("elsewhere/x.widx", sidecar_of(shards[0]))
    row = {"url": url, "nsamples": 20, "index": f"{shard_server.url}/elsewhere/x.widx"}
    spec = tmp_path / "set.json"
    spec.write_text(json.dumps([row]))
    dataset = ShardListDataset(spec, remote="range")
    assert dataset[7][".cls"] == 7
    assert not list(Path(dataset.cache_dir).glob("*.tar"))


def test_a_sidecar_that_cannot_be_kept_serves_all_the_same(
    remote: Open, shards: list[Path], shard_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk, or beside a cache that may only be read, samples come by range."""

    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("wids.reading.tarindexes.write_atomically", fail)
    local = ShardListDataset(shards, transformations="bytes")
    dataset = remote()
    drawn = [3, 59, 21]
    for each in (dataset, pickle.loads(pickle.dumps(dataset))):
        assert [each[index][".bin"] for index in drawn] == [local[index][".bin"] for index in drawn]
    asked = [request.path for request in shard_server.requests if "Range" not in request.headers]
    assert all(path.endswith(SIDECAR_SUFFIX) for path in asked)


def test_a_server_without_ranges_is_named_where_sidecars_lack_too(
    remote: Open, shard_server: Any
) -> None:
    """Who is told to write sidecars would write them in vain for such a server."""
    shard_server.faults.ignore_range = True
    dataset = remote(sidecars=False)
    with pytest.warns(WidsWarning, match="sent the whole file, as `python -m http") as caught:
        assert [dataset[index][".cls"] for index in (7, 8, 27)] == [b"7", b"8", b"7"]
    assert len(caught) == 1


def test_a_server_that_compresses_its_ranges_gives_the_whole_shard(
    remote: Open, shard_server: Any
) -> None:
    """Where pieces of a compressed form come, the shard is fetched once and used."""
    shard_server.faults.gzip = True
    dataset = remote()
    with pytest.warns(WidsWarning, match="others like it, are fetched whole: .*of its gzip form"):
        assert [dataset[index][".cls"] for index in (7, 8, 27)] == [b"7", b"8", b"7"]


def test_a_shard_in_steady_use_is_fetched_whole(remote: Open, shard_server: Any) -> None:
    """After half of a shard came piecemeal all of it comes, if the cache has room for it."""
    dataset = remote()
    for index in range(20):
        dataset[index]
    assert len(list(Path(dataset.cache_dir).glob("*.tar"))) == 1
    bounded = remote(cache_size=1000, cache_dir=Path(dataset.cache_dir) / "small")
    for index in range(20):
        bounded[index]
    assert not list(Path(bounded.cache_dir).glob("*.tar"))


def test_concatenated_archives_are_served_by_range(
    make_shard: Callable[..., Path], shard_server: ShardServer, tmp_path: Path
) -> None:
    """A sidecar of all archives in a shard serves who asks for all, and nobody else."""
    archives = [make_shard(f"{key}.tar", [{"__key__": key, ".txt": key}]) for key in "ab"]
    shard = tmp_path / "ab.tar"
    shard.write_bytes(b"".join(path.read_bytes() for path in archives))
    url = shard_server.put("ab.tar", shard.read_bytes())
    TarIndex.from_tar(shard, concatenated=True).save(tmp_path / "ab.widx")
    shard_server.put(f"ab.tar{SIDECAR_SUFFIX}", (tmp_path / "ab.widx").read_bytes())
    options = {"remote": "range", "cache_dir": tmp_path / "cache"}
    dataset = ShardListDataset([(url, 2)], concatenated=True, **options)
    assert dataset[-1][".txt"] == "b"
    assert not list((tmp_path / "cache").glob("*.tar"))
    with (
        pytest.warns(WidsWarning, match="sidecar was made with"),
        pytest.raises(ShardFormatError, match="another archive"),
    ):
        ShardListDataset([(url, 1)], **options)[-1]


def test_commands_that_look_fetch_what_they_show(
    shards: list[Path], shard_server: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """`wids show`, `cat` and `ls` of a remote shard with a sidecar leave the shard where it is."""
    url = serve_shard(shard_server, shards[0])
    spec = shards[0].with_name("remote.json")
    spec.write_text(json.dumps({"shardlist": [{"url": url, "nsamples": 20}]}))
    for command, shown in (
        (["ls", "3:5"], "0/004"),
        (["show", "3"], "0/003"),
        (["cat", "3", "cls"], "3"),
    ):
        assert main([command[0], str(spec), *command[1:]]) == 0
        assert shown in capsys.readouterr().out
    assert not ShardCache().holds(url)
    assert ShardListDataset(spec)[3]["__key__"] == "0/003"  # now it is fetched
    served = len(shard_server.requests)
    assert main(["show", str(spec), "4"]) == 0
    later = [request.path for request in shard_server.requests[served:]]
    assert [path for path in later if "0.tar" in path] == []  # and read from the cache


def test_a_dataset_made_anew_brings_its_new_sidecars(
    shards: list[Path], shard_server: Any, make_shard: Callable[..., Path], tmp_path: Path
) -> None:
    """A new digest in the spec means a new sidecar, though its URL and the folder are the old."""

    def first_key(path: Path, md5sum: str) -> str:
        url = serve_shard(shard_server, path.rename(path.with_name("a.tar")))
        spec = [{"url": url, "nsamples": 20, "md5sum": md5sum}]
        with ShardListDataset(
            spec, remote="range", transformations="bytes", cache_dir=tmp_path / "cache"
        ) as dataset:
            return str(dataset[0]["__key__"])

    assert first_key(shards[0], "0" * 32) == "0/000"
    # Of the same sizes at the same places: only the names tell the two apart.
    assert first_key(shards[1], "1" * 32) == "1/000"


def test_a_kept_sidecar_that_no_longer_fits_is_fetched_anew(
    remote: Open, shard_server: Any, make_shard: Callable[..., Path]
) -> None:
    """Both were exchanged under an unchanged spec: after one error, the new ones hold."""
    dataset = remote()
    assert dataset[7]["__key__"] == "0/007"
    samples = [{"__key__": f"n{i}", ".bin": bytes([i]) * 900, ".cls": "n"} for i in range(20)]
    serve_shard(shard_server, make_shard("new/0.tar", samples))
    dataset = opened_again(dataset)  # by the sidecar in the cache
    with pytest.raises(wids.ShardChangedError, match="since it was indexed|a file of"):
        dataset[8]
    dataset = opened_again(dataset)
    sample = dataset[8]
    assert (sample["__key__"], sample[".bin"]) == ("n8", bytes([8]) * 900)
    assert dataset[9]["__key__"] == "n9"
    asked = [request.path for request in shard_server.requests]
    assert asked.count(f"/0.tar{SIDECAR_SUFFIX}") == 2
    shard, _, _ = dataset.locate_sample(3)
    assert shard.read_part(3, ".bin", 5, 7) == bytes([3, 3])


@pytest.mark.parametrize("place", [2, 5], ids=["in place of another file", "at the end"])
@pytest.mark.filterwarnings("default::wids.WidsWarning")
def test_a_field_that_lies_apart_and_that_the_sidecar_lacks_is_noticed(
    tmp_path: Path, shard_server: Any, place: int
) -> None:
    """With `grouping="shard"`, an outdated sidecar of a shard of the same size hides no field."""
    names = ["0.jpg", "1.jpg", "README", "0.cls", "1.cls"]
    old, new = (
        tar_bytes((name, b"abc") for name in each)
        for each in (names, [*names[:place], "0.seg", *names[place + 1 :]])
    )
    assert len(old) == len(new)
    (tmp_path / "a.tar").write_bytes(old)
    sidecar = tmp_path / f"a.tar{SIDECAR_SUFFIX}"
    TarIndex.from_tar(tmp_path / "a.tar", grouping="shard").save(sidecar)
    url = shard_server.put("a.tar", new)
    shard_server.put(f"a.tar{SIDECAR_SUFFIX}", sidecar.read_bytes())
    with (
        ShardListDataset(
            [{"url": url, "nsamples": 2}],
            remote="range",
            grouping="shard",
            transformations="bytes",
            cache_dir=tmp_path / "cache",
        ) as dataset,
        pytest.raises(wids.ShardChangedError, match="replaced"),
    ):
        dataset[0]
