"""`__getitems__` reads a batch in the order of storage and returns the samples of its indexes."""

import itertools
from pathlib import Path

import pytest
from helpers.interpreters import run_python
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import wids
from wids.reading.gather import PageAnnouncer

LENGTHS = [5, 0, 1, 12, 7]
TOTAL = sum(LENGTHS)
KINDS = ["bytes", "memoryview", "numpy", [], [lambda sample: sample[".txt"].read()]]


@pytest.fixture
def shards(make_shard) -> list[Path]:
    """Shards of uneven length, one of them empty."""
    numbers = itertools.count()
    return [
        make_shard(
            f"s{shard}.tar",
            [{"__key__": f"{i:02d}", ".txt": "x" * i, ".cls": str(i)}
             for i in itertools.islice(numbers, length)],
        )
        for shard, length in enumerate(LENGTHS)
    ]  # fmt: skip


def plain(value):
    """Turn streams and views into bytes, so that samples can be compared."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if hasattr(value, "getvalue"):
        return value.getvalue()
    return bytes(value) if isinstance(value, memoryview) else value


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    indexes=st.lists(st.integers(-TOTAL, TOTAL - 1), max_size=60),
    kind=st.sampled_from(KINDS),
    lru_size=st.sampled_from([1, 2, 100]),
)
def test_a_batch_is_its_samples(shards, indexes, kind, lru_size):
    """Any indexes, also repeated and negative ones, give the samples that each gives alone."""
    dataset = wids.ShardListDataset(shards, transformations=kind, lru_size=lru_size)
    batch = dataset.__getitems__(indexes)
    assert [plain(sample) for sample in batch] == [plain(dataset[index]) for index in indexes]
    assert len(dataset._opened.by_number) <= lru_size


def test_doubled_indexes_give_samples_of_their_own(shards):
    """Repeated indexes give independent samples."""
    dataset = wids.ShardListDataset(shards, transformations="bytes")
    first, second = dataset.__getitems__([3, 3])
    first[".txt"] = None
    assert second == dataset[3]


# A fresh process has mapped none of the shard, so that its pages can leave the memory.
COLD = """
import os, sys, wids
path = sys.argv[1]
with open(path, "rb") as stream:
    os.fsync(stream.fileno())
    os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
dataset = wids.ShardListDataset([path], transformations="bytes")
for start in range(0, 60, 10):
    batch = dataset.__getitems__(list(range(start, start + 10))[::-1])
    expected = [b"%02d" % (start + i) for i in range(10)][::-1]
    assert [sample[".bin"][:2] for sample in batch] == expected
"""


def test_reading_from_disk_gives_the_same(make_shard):
    """Batches from a cold disk are right, with and without announcement to the kernel."""
    path = make_shard(
        "a.tar", [{"__key__": f"{i:02d}", ".bin": b"%02d" % i * 50_000} for i in range(60)]
    )
    done = run_python("-c", COLD, path)
    assert done.returncode == 0, done.stderr


def test_announcing_reads_nothing_and_breaks_nothing(make_shard, shards):
    """Any samples can be announced; closed and empty shards ignore it."""
    shard = wids.Shard(
        make_shard("b.tar", [{"__key__": str(i), ".bin": b"x" * 9000 * i} for i in range(9)])
    )
    shard.announce([8, 0, 3, 3])
    shard.announce([2], fields=(".png",))
    shard.announce([])
    with pytest.raises(IndexError):
        shard.announce([9])
    shard.close()
    shard.announce([1])
    wids.Shard(shards[1]).announce([])


def test_batches_that_wait_for_nothing_are_soon_not_announced(shards):
    """Batches in memory are soon not announced any more."""
    dataset = wids.ShardListDataset(shards, transformations="bytes")
    list(dataset)
    asked = []

    class Watched(list):
        def __iter__(self):
            asked.append(self)
            return super().__iter__()

    ahead = PageAnnouncer()
    for _ in range(50):
        with ahead.batch(Watched()):
            dataset[0]
    assert 0 < len(asked) < 25
