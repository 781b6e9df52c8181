"""`__getitems__` reads a batch in the order of storage and returns the samples of its indexes."""

import itertools
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import wids

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
