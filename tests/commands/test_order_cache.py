"""`wids order` and `wids cache` as a user types them."""

import json
from pathlib import Path

import pytest
from helpers.shards import MakeShard

from wids.caching.cache import ShardCache
from wids.cli import main


@pytest.fixture
def folder(make_shard: MakeShard) -> Path:
    """Make four shards of twenty samples each, without a spec."""
    for shard in range(4):
        samples = [{"__key__": f"{shard}-{i:02d}", ".txt": "x"} for i in range(20)]
        path = make_shard(f"set/{shard}.tar", samples)
    return path.parent


def test_order_compares_interleaves(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each value gives a report, and more shards at once mix better."""
    assert (
        main(["order", str(folder), "--interleave", "1", "4", "--batch-size", "8", "--json"]) == 0
    )
    one, four = json.loads(capsys.readouterr().out)
    assert (one["interleave"], four["interleave"]) == (1, 4)
    assert one["shards_per_batch"] < four["shards_per_batch"]
    assert one["downloads_least"] == four["downloads_least"] == 4


def test_order_prints_for_people(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without --json, numbers are printed with words."""
    assert main(["order", str(folder), "--nodes", "2"]) == 0
    told = capsys.readouterr().out
    assert "downloads per node and epoch" in told
    assert "61.4 kB as whole shards, 61.4 kB by range" in told  # half of the four shards


def test_order_takes_lanes_and_chunks(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """More lanes and shorter chunks change the report as they change the order."""
    options = ["--lanes", "2", "--chunksize", "5", "--interleave", "8", "--json"]
    assert main(["order", str(folder), *options]) == 0
    (report,) = json.loads(capsys.readouterr().out)
    assert (report["streams"], report["interleave"]) == (2, 8)


def test_order_of_a_full_shuffle_has_no_lanes(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The report of a "uniform" order has no lanes and no interleave."""
    assert main(["order", str(folder), "--partition", "uniform"]) == 0
    printed = capsys.readouterr().out
    assert "uniform" in printed
    assert "lanes" not in printed


@pytest.fixture
def cache_dir(folder: Path, tmp_path: Path, shard_server) -> Path:
    """Fetch two shards into a cache folder."""
    cache = ShardCache(tmp_path / "cache")
    for shard in range(2):
        cache.get(shard_server.put(f"{shard}.tar", (folder / f"{shard}.tar").read_bytes()))
    cache.close()
    return tmp_path / "cache"


def listed(cache_dir: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    capsys.readouterr()
    assert main(["cache", "list", "--cache-dir", str(cache_dir), "--json"]) == 0
    return [row["path"] for row in json.loads(capsys.readouterr().out)["shards"]]


def test_cache_lists_and_clears(cache_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Fetched shards are listed, and removed by `clear`."""
    assert len(listed(cache_dir, capsys)) == 2
    assert main(["cache", "clear", "--cache-dir", str(cache_dir)]) == 0
    assert listed(cache_dir, capsys) == []


def test_cache_verify_removes_what_is_damaged(
    cache_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A shard with a flipped byte is removed, and the exit code is 1."""
    assert main(["cache", "verify", "--cache-dir", str(cache_dir)]) == 0
    path = Path(listed(cache_dir, capsys)[0])
    data = bytearray(path.read_bytes())
    data[700] ^= 1
    path.chmod(0o600)
    path.write_bytes(data)
    assert main(["cache", "verify", "--cache-dir", str(cache_dir)]) == 1
    assert path.name in capsys.readouterr().out
    assert len(listed(cache_dir, capsys)) == 1


def test_cache_trim_takes_a_bound(cache_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`trim` takes a number of bytes, with or without a unit, and `trim 0` evicts everything."""
    assert main(["cache", "trim", "1.5M", "--cache-dir", str(cache_dir)]) == 0
    assert len(listed(cache_dir, capsys)) == 2
    assert main(["cache", "trim", "0", "--cache-dir", str(cache_dir)]) == 0
    assert listed(cache_dir, capsys) == []


def test_cache_path_is_fit_for_scripts(cache_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`path` prints the folder and nothing else."""
    assert main(["cache", "path", "--cache-dir", str(cache_dir)]) == 0
    assert capsys.readouterr().out == f"{cache_dir}\n"
