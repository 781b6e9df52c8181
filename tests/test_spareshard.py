"""Shards that the cache cannot keep while they are drawn from: whole once, then by range."""

import gzip
import hashlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from server import ShardServer
from spawned import read_all
from test_http_faults import tar_of

import wids
from wids.base.shardref import ShardRef
from wids.caching.cache import ShardCache
from wids.caching.eviction import evict
from wids.reading.shardlist import ShardList
from wids.reading.spareshard import KnownShard
from wids.tar.shard import Shard

COUNT = 20
SHARDS = [tar_of(COUNT, seed=number) for number in range(6)]
NBYTES = len(SHARDS[0])

OpenCrowded = Callable[..., ShardList]


@pytest.fixture
def crowded(shard_server: ShardServer, tmp_path: Path) -> Iterator[OpenCrowded]:
    """Returns what opens six shards of a server in a cache that has room for three."""
    opened: list[ShardList] = []

    def open_crowded(*, digests: bool = False, suffix: str = "", **options: Any) -> ShardList:
        rows = []
        for number, shard in enumerate(SHARDS):
            data = gzip.compress(shard, mtime=0) if suffix == ".gz" else shard
            row = {"url": shard_server.put(f"{number}.tar{suffix}", data), "nsamples": COUNT}
            row |= {"filesize": len(data)}
            if digests:
                row |= {"md5sum": hashlib.md5(data).hexdigest()}
            rows.append(row)
        options = {"cache_size": 3 * NBYTES + 40_000, "transformations": "bytes", **options}
        opened.append(ShardList(rows, cache_dir=tmp_path / "cache", **options))
        return opened[-1]

    yield open_crowded
    for dataset in opened:
        dataset.close()


def follow(dataset: ShardList) -> None:
    """Let a dataset know that it draws from all shards at once, then leave it to itself."""
    ahead = dataset.fetch_ahead(wids.ShardListSampler(dataset, interleave=6))
    assert ahead.crowded
    ahead.close()


def evict_shards(dataset: ShardList) -> None:
    """Evict all shards, as another process may at any time; what is known of them stays."""
    dataset.cache.close()  # what was last given out is not held any more
    for shard in dataset.cache.shards():
        if shard.path.suffix == ".tar":
            assert evict(shard)


def kinds(server: ShardServer) -> tuple[int, int]:
    """Count the requests for whole shards, and those for ranges."""
    ranged = sum("Range" in request.headers for request in server.requests)
    return len(server.requests) - ranged, ranged


@pytest.fixture
def known(crowded: OpenCrowded, shard_server: ShardServer) -> ShardList:
    """A dataset whose shards were all here once, and are not any more."""
    dataset = crowded()
    follow(dataset)
    for number in range(len(SHARDS)):
        dataset[number * COUNT]
    evict_shards(dataset)
    shard_server.requests.clear()
    return dataset


def expected(index: int) -> bytes:
    """Return the bytes of a sample, cut out of the tar by hand: a header and four blocks each."""
    shard, place = divmod(index, COUNT)
    start = place * 5 * 512 + 512
    return SHARDS[shard][start : start + 2000]


def test_what_was_here_is_read_by_range(known: ShardList, shard_server: ShardServer) -> None:
    """Each sample comes right, alone or in a batch, and no shard comes whole again."""
    assert known[47][".bin"] == expected(47)
    drawn = [3, 118, 60, 4, 99, 61]
    batch = known.__getitems__(drawn)
    assert [sample[".bin"] for sample in batch] == [expected(index) for index in drawn]
    assert [sample["__index__"] for sample in batch] == drawn
    whole, ranged = kinds(shard_server)
    assert whole == 0
    assert 5 <= ranged <= 7


def test_what_is_here_is_read_from_its_file(known: ShardList, shard_server: ShardServer) -> None:
    """Once a shard is back in the cache, reading it takes no request; evicted, ranges again."""
    known[0]
    row = known.shards[0]
    known.cache.prepare(ShardRef.of(row))
    shard_server.requests.clear()
    assert [known[index][".bin"] for index in range(COUNT)] == [expected(i) for i in range(COUNT)]
    assert shard_server.requests == []
    evict_shards(known)
    assert known[1][".bin"] == expected(1)
    assert kinds(shard_server) == (0, 1)


def test_other_processes_know_it_too(
    known: ShardList, crowded: OpenCrowded, shard_server: ShardServer
) -> None:
    """What is known of a shard lies in the cache folder, for workers of the next epoch."""
    other = crowded()
    follow(other)
    evict_shards(other)
    shard_server.requests.clear()
    assert other[25][".bin"] == expected(25)
    assert kinds(shard_server)[0] == 0


def exchange_byte(server: ShardServer, place: int) -> bytes:
    """Change a byte of the first shard on the server; returns the shard."""
    data = bytearray(SHARDS[0])
    data[place] ^= 1
    server.put("0.tar", bytes(data))
    return bytes(data)


def test_other_bytes_than_were_here_are_never_served(
    crowded: OpenCrowded, shard_server: ShardServer
) -> None:
    """A field that changed on the server leads to the whole shard, whose digest says no."""
    dataset = crowded(digests=True)
    follow(dataset)
    dataset[0]
    evict_shards(dataset)
    exchange_byte(shard_server, 512 + 700)
    with pytest.raises(wids.IntegrityError, match="md5"):
        dataset[0]
    assert dataset[1][".bin"] == expected(1)  # this one is as it was


def test_without_a_digest_the_new_shard_is_read(
    known: ShardList, shard_server: ShardServer
) -> None:
    """Where nothing was promised but a size, an exchanged shard is read as it is now, whole."""
    data = exchange_byte(shard_server, 512 + 700)
    assert known[0][".bin"] == data[512:2512] != expected(0)
    assert kinds(shard_server)[0] == 1


DAMAGE: dict[str, Callable[[Path], object]] = {
    "sums cut": lambda path: path.write_bytes(path.read_bytes()[:-5]),
    "sums changed": lambda path: path.write_bytes(b"x" + path.read_bytes()[1:]),
    "sums gone": lambda path: path.unlink(),
    "sums empty": lambda path: path.write_bytes(b""),
    "index gone": lambda path: path.with_suffix("").unlink(),
    "index changed": lambda path: path.with_suffix("").write_bytes(b"x" * 500),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_knowledge_is_made_anew(
    known: ShardList, crowded: OpenCrowded, shard_server: ShardServer, damage: str
) -> None:
    """What is kept of a shard is believed only as a whole; else the shard comes once more."""
    place = KnownShard.place(known.cache.cache_dir, known.shards[0])
    DAMAGE[damage](place.with_name(f"{place.name}.crc32"))
    other = crowded()
    other._spares = True
    assert other[5][".bin"] == expected(5)
    assert kinds(shard_server) == (1, 0)
    assert KnownShard.load(place) is not None


def test_a_server_without_ranges_gives_whole_shards(
    known: ShardList, shard_server: ShardServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Where ranges are not served, the shard is fetched and kept open: it cannot be done better."""
    shard_server.faults.ignore_range = True
    with caplog.at_level(logging.WARNING, "wids"):
        assert [known[index][".bin"] for index in (3, 4)] == [expected(3), expected(4)]
        evict_shards(known)
        assert known[5][".bin"] == expected(5)
    assert caplog.text.count("the shard is fetched whole") == 1
    assert len(shard_server.requests) == 2


def test_compressed_shards_are_fetched_whole(
    crowded: OpenCrowded, shard_server: ShardServer
) -> None:
    """Their bytes are not those that come over the wire."""
    dataset = crowded(suffix=".gz", cache_size=1000)
    dataset._spares = True
    for index in (0, 21, 1):
        assert dataset[index][".bin"] == expected(index)
    assert kinds(shard_server)[1] == 0


def test_an_evicted_file_is_not_kept_mapped(crowded: OpenCrowded) -> None:
    """Its space is given back when the next shard is opened, though it was used again and again."""
    dataset = crowded(lru_size=6)
    follow(dataset)
    for index in (0, 1, 2, 3):
        dataset[index]
    name = next(shard.path.name for shard in dataset.cache.shards() if shard.path.suffix == ".tar")
    assert f"{name}\n" in Path("/proc/self/maps").read_text()
    evict_shards(dataset)
    dataset[COUNT]
    assert f"{name} (deleted)" not in Path("/proc/self/maps").read_text()


def test_parts_and_places_outside_are_told_apart(known: ShardList) -> None:
    """A part of a field is what it is of a mapped shard; beyond the field there is nothing."""
    shard, place, _ = known.locate_sample(23)
    assert shard.read_part(place, ".bin", 10, 20) == expected(23)[10:20]
    with pytest.raises(IndexError, match="of the 2000 bytes"):
        shard.read_part(place, ".bin", 10, 2001)
    with pytest.raises(IndexError):
        shard.read(COUNT)


@pytest.mark.parametrize("interleave", [4, 6])
def test_epochs_in_a_crowded_cache_are_exact(
    crowded: OpenCrowded, shard_server: ShardServer, interleave: int
) -> None:
    """While one thread fetches and another reads: every sample once, right, within the bound."""
    dataset = crowded(digests=True)
    sampler = wids.ShardListSampler(dataset, seed=3, interleave=interleave)
    ahead = dataset.fetch_ahead(sampler)
    assert ahead.crowded
    for _ in range(3):
        assert sorted(read_all(dataset, sampler)) == list(range(6 * COUNT))
    assert [dataset[index][".bin"] for index in range(6 * COUNT)] == [
        expected(index) for index in range(6 * COUNT)
    ]
    assert ahead.waited_seconds >= 0


def test_workers_of_a_loader_read_a_crowded_cache(crowded: OpenCrowded) -> None:
    """With the workers of three epochs, each forked anew: every sample once."""
    data = pytest.importorskip("torch.utils.data")
    dataset = crowded()
    sampler = wids.ShardListSampler(dataset, seed=3, interleave=6)
    dataset.fetch_ahead(sampler)
    loader = data.DataLoader(
        dataset, batch_size=8, sampler=sampler, num_workers=2, collate_fn=checked_indexes
    )
    for _ in range(3):
        assert sorted(index for batch in loader for index in batch) == list(range(6 * COUNT))


def checked_indexes(samples: list[dict[str, Any]]) -> list[int]:
    """Collate a batch into its indexes, once the bytes are known to be right."""
    for sample in samples:
        assert sample[".bin"] == expected(sample["__index__"])
    return [sample["__index__"] for sample in samples]


def test_a_roomy_cache_is_not_crowded(crowded: OpenCrowded) -> None:
    """Nothing is read by range where all shards that are drawn from have room, or none is asked."""
    for options in ({"cache_size": 8 * NBYTES}, {"cache_size": None}, {"keep": True}):
        dataset = crowded(**options)
        ahead = dataset.fetch_ahead(wids.ShardListSampler(dataset, interleave=6))
        assert not ahead.crowded
        ahead.close()


def test_knowledge_is_what_the_shard_says(tmp_path: Path) -> None:
    """Every field is vouched for at its place, and nothing else is."""
    path = tmp_path / "a.tar"
    path.write_bytes(SHARDS[2])
    with Shard(path) as shard:
        known = KnownShard.of(shard, tmp_path / "a.known")
    kept = KnownShard.load(tmp_path / "a.known")
    assert kept is not None
    for place in range(COUNT):
        start = place * 5 * 512
        block = SHARDS[2][start : start + 2512]
        for each in (known, kept):
            assert each.vouches_for(start + 512, block)
            assert not each.vouches_for(start + 512, block[:-1] + b"?")
            assert not each.vouches_for(start + 513, block)
    assert not kept.vouches_for(10**9, b"")


def test_what_is_spared_goes_first_and_the_tiny_last(
    tmp_path: Path, shard_server: ShardServer
) -> None:
    """An evictor takes what will not be used, and of the rest what brings room."""
    cache = ShardCache(tmp_path / "cache")
    paths = [cache.get(shard_server.put(f"{n}.tar", shard)) for n, shard in enumerate(SHARDS[:3])]
    cache.close()
    tiny = cache.cache_dir / f"{'0' * 32}-a.tar.widx"
    tiny.write_bytes(b"x")
    cache.spare(paths[2])
    for path in paths[:2]:
        cache.touch(path)
    cache.trim(2 * NBYTES + 40_000)
    assert [path.exists() for path in [*paths, tiny]] == [True, True, False, True]
    cache.trim(NBYTES + 40_000)
    assert [path.exists() for path in [*paths, tiny]] == [False, True, False, True]
    cache.trim(0)
    assert list(cache.shards()) == []
