"""Opening of shards while other processes remove them."""

import gzip
import hashlib
import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.cacheprocesses import LONG, run_worker
from helpers.downloads import tar_of
from helpers.server import ShardServer
from helpers.waiting import write_later

from wids.base.shardref import ShardRef
from wids.caching.cache import ShardCache
from wids.errors import CacheError, FetchError, ShardFormatError, WidsWarning
from wids.reading.shardlist import ShardList
from wids.reading.shardopener import ShardOpener
from wids.reading.tarindexes import TarIndexes
from wids.tar.sidecar import SIDECAR_SUFFIX, IndexSource
from wids.tar.tarindex import TarIndex

RULES = IndexSource(nbytes=0, end=0).rules
NSAMPLES = 10


class RobbedCache(ShardCache):
    """A cache whose shards are removed a number of times right after `get`."""

    robberies = 0

    def get(self, shard: ShardRef | str) -> Path:
        path = super().get(shard)
        if self.robberies:
            self.robberies -= 1
            path.unlink()
        return path


def opener_of(cache: ShardCache) -> ShardOpener:
    """Return what opens shards of a cache."""
    return ShardOpener(TarIndexes(cache, RULES))


@pytest.fixture
def cache(tmp_path: Path) -> RobbedCache:
    """A cache in a folder of its own."""
    return RobbedCache(tmp_path / "cache")


@pytest.mark.parametrize("robberies", [1, 3])
def test_a_shard_removed_before_it_was_opened_is_fetched_again(
    cache: RobbedCache, shard_server: ShardServer, robberies: int
) -> None:
    """A shard that was removed before it was opened is fetched again."""
    url = shard_server.put("a.tar", tar_of(NSAMPLES))
    cache.robberies = robberies
    assert len(opener_of(cache).open(ShardRef(url))) == NSAMPLES
    assert len(shard_server.requests) == robberies + 1


def test_it_is_not_tried_for_ever(cache: RobbedCache, shard_server: ShardServer) -> None:
    """If the shard is removed each time, the error says that the file is missing."""
    url = shard_server.put("a.tar", tar_of(NSAMPLES))
    cache.robberies = 100
    with pytest.raises(FileNotFoundError):
        opener_of(cache).open(ShardRef(url))
    assert len(shard_server.requests) == 5


def damaged() -> bytes:
    """Return a shard with a bit of the second member's checksum flipped."""
    shard = bytearray(tar_of(NSAMPLES))
    shard[5 * 512 + 150] ^= 1
    return bytes(shard)


WHOLE = tar_of(NSAMPLES)
CUT = gzip.compress(WHOLE, mtime=0)[:-40]
# Each shard that came damaged, what it should have been, and the error where it comes so again.
DAMAGED = {
    "a.tar": (damaged(), WHOLE, "checksum"),
    "b.tar": (tar_of(NSAMPLES - 1), WHOLE, None),
    "a.tar.gz": (CUT, gzip.compress(WHOLE, mtime=0), "breaks off"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_shard_that_came_damaged_is_fetched_once_more(
    cache: RobbedCache, shard_server: ShardServer, name: str
) -> None:
    """A shard without a digest whose headers, count or compression are wrong is fetched again."""
    bad, whole, _ = DAMAGED[name]
    url = shard_server.put(name, bad)
    shard_server.before_answer = lambda: (
        len(shard_server.requests) > 1 and shard_server.put(name, whole)
    )
    assert len(opener_of(cache).open(ShardRef(url, nsamples=NSAMPLES))) == NSAMPLES
    assert len(shard_server.requests) == 2


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz"])
def test_a_shard_that_came_damaged_twice_is_an_error(
    cache: RobbedCache, shard_server: ShardServer, name: str
) -> None:
    """It says that the shard was fetched twice; with the promised digest, once is enough."""
    bad, _, said = DAMAGED[name]
    url = shard_server.put(name, bad)
    with pytest.raises(
        ShardFormatError, match=f"{url}: .*fetched twice, damaged each time.*{said}"
    ):
        opener_of(cache).open(ShardRef(url))
    assert len(shard_server.requests) == 2
    ref = ShardRef.of(url, sha256=hashlib.sha256(bad).hexdigest())
    with pytest.raises(ShardFormatError, match=said):
        opener_of(cache).open(ref)
    assert len(shard_server.requests) == 3


def test_a_shard_that_came_twice_with_another_count_is_not_fetched_again(
    cache: RobbedCache, shard_server: ShardServer
) -> None:
    """Zeros in a shard look like its end: the dataset says how many samples it holds."""
    shard = tar_of(NSAMPLES)
    url = shard_server.put("a.tar", shard[:1024].ljust(len(shard), b"\0"))
    opener = opener_of(cache)
    with pytest.warns(WidsWarning, match="zero bytes"):
        assert len(opener.open(ShardRef(url, nsamples=NSAMPLES))) == 1
    assert len(opener.open(ShardRef(url, nsamples=NSAMPLES))) == 1
    assert len(shard_server.requests) == 2


@pytest.mark.parametrize("name", ["pipe.tar", "pipe.tar.gz"])
def test_a_pipe_is_an_error_and_not_waited_for(tmp_path: Path, name: str) -> None:
    """A pipe in place of a shard is an error at once."""
    os.mkfifo(tmp_path / name)
    with pytest.raises(FetchError, match="expected a regular file"):
        ShardList(str(tmp_path))


def test_processes_read_right_while_shards_are_removed_under_them(
    tmp_path: Path, shard_server: ShardServer
) -> None:
    """Four readers read right while shards are removed."""
    digests = {}
    for number in range(6):
        shard = tar_of(NSAMPLES, seed=number)
        with tarfile.open(fileobj=io.BytesIO(shard)) as archive:
            datas = [archive.extractfile(member).read() for member in archive]
        url = shard_server.put(f"{number}.tar", shard)
        digests[url] = [hashlib.md5(data).hexdigest() for data in datas]
    found = run_worker(
        "robbed",
        folder=str(tmp_path / "cache"),
        digests=digests,
        nsamples=NSAMPLES,
        processes=4,
        removals=30 * LONG,
    )
    assert found["statuses"] == [0] * 4


@pytest.mark.parametrize("obstacle", ["a folder", "a pipe", "other rules", "garbage"])
def test_a_shard_is_indexed_once_whatever_lies_beside_it(
    make_shard: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, obstacle: str
) -> None:
    """A useless sidecar that cannot be replaced is not made again by each process."""
    path = make_shard("a.tar", [{"__key__": f"{i}.x", ".txt": str(i)} for i in range(3)])
    beside = path.with_name(path.name + SIDECAR_SUFFIX)
    if obstacle == "a folder":
        beside.mkdir()
    elif obstacle == "a pipe":
        os.mkfifo(beside)
    elif obstacle == "other rules":
        TarIndex.open(path, beside)
    else:
        write_later(beside, b"garbage", than=path)  # whose folder cannot be written to
    access = os.access
    monkeypatch.setattr(os, "access", lambda at, mode: at != path.parent and access(at, mode))
    expected = ["0", "1", "2"]
    for _ in range(2):  # in the second process there is nothing left to be read
        dataset = ShardList([str(path)], key_rule="last_dot", fields=[".txt"])
        assert [sample[".txt"] for sample in dataset] == expected
        assert [sample["__key__"] for sample in dataset] == ["0.x", "1.x", "2.x"]
        monkeypatch.setattr("wids.tar.tarindex.scan_bytes", None)
    if obstacle == "garbage":  # which nobody may write over
        assert beside.read_bytes() == b"garbage"


def test_evicted_shards_do_not_stay_mapped(
    shard_server: ShardServer, tmp_path: Path, make_shard: Callable[..., Path]
) -> None:
    """Evicted shards are unmapped and free their disk space."""
    rows = [(shard_server.put(f"{i}.tar", tar_of(NSAMPLES, seed=i)), NSAMPLES) for i in range(12)]
    bound = 3 * (len(tar_of(NSAMPLES)) + 3000) + 20_000
    with ShardList(rows, cache_dir=tmp_path / "cache", cache_size=bound) as dataset:
        for index in range(len(dataset)):
            dataset[index]
            maps = Path("/proc/self/maps").read_text().splitlines()
            mine = [line for line in maps if str(tmp_path) in line]  # not those of other tests
            removed = {line.split()[-2] for line in mine if ".tar (deleted)" in line}
            assert len(removed) <= 2


def test_a_bound_holds_on_a_disk_that_has_no_more(
    shard_server: ShardServer, small_disk: Path
) -> None:
    """On a disk little larger than the bound, evicted shards are unmapped in time."""
    rows = [(shard_server.put(f"{i}.tar", tar_of(400, seed=i)), 400) for i in range(6)]
    with ShardList(
        rows, cache_dir=small_disk, cache_size=2_300_000, transformations="bytes"
    ) as dataset:
        for index in range(0, 2400, 100):
            sample = dataset[index]
            assert sample["__index__"] == index


def test_a_folder_that_a_team_shares(shard_server: ShardServer, tmp_path: Path) -> None:
    """A folder open to others is refused, and used with `shared=True`."""
    folder = tmp_path / "team"
    folder.mkdir()
    folder.chmod(0o777)
    rows = [(shard_server.put("a.tar", tar_of(NSAMPLES)), NSAMPLES)]
    with pytest.raises(CacheError, match="trust everyone with shared=True"):
        ShardList(rows, cache_dir=folder)[0]
    assert ShardList(rows, cache_dir=folder, shared=True, transformations="bytes")[3]
