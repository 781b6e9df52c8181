"""A dataset keeps a bounded number of its shards open."""

import errno
import resource
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import wids
from wids.base.shardref import ShardRef
from wids.caching.cache import ShardCache
from wids.reading.datasetshards import DatasetShards, ShardVersions, WantedFields
from wids.reading.openshards import default_max_open_shards
from wids.reading.shardopener import ShardOpener
from wids.reading.tarindexes import TarIndexes
from wids.specs.indexrules import rules_of
from wids.specs.shardtable import ShardTable
from wids.tar.shard import ReadableShard

NUM_SHARDS = 21  # of one sample each, so that the number of a shard is the start of its samples


class FullOpener(ShardOpener):
    """An opener that finds no free descriptor for one shard, once."""

    full = ""

    def open(self, ref: ShardRef, *args: Any) -> ReadableShard:
        if ref.url == self.full:
            FullOpener.full = ""
            raise OSError(errno.EMFILE, "Too many open files")
        return super().open(ref, *args)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> ShardTable:
    """The entries of some shards."""
    folder = tmp_path_factory.mktemp("shards")
    urls = [str(folder / f"{number:02d}.tar") for number in range(NUM_SHARDS)]
    for url in urls:
        with wids.TarWriter(url) as writer:
            writer.write({"__key__": "a", ".cls": 1})
    return ShardTable.of([ShardRef(url, nsamples=1) for url in urls])


def opening(table: ShardTable, limit: int) -> DatasetShards:
    """Return the shards with a bound of how many are open."""
    return DatasetShards(
        table,
        np.arange(1, NUM_SHARDS + 1),
        FullOpener(TarIndexes(ShardCache(), rules_of({}))),
        dataset_name="numbered",
        wanted=WantedFields(),
        versions=ShardVersions(table.urls),
        limit=limit,
    )


@given(limit=st.integers(1, 5), asked=st.lists(st.integers(0, 9), max_size=60))
def test_any_access_returns_the_right_shard_within_the_bound(
    table: ShardTable, limit: int, asked: list[int]
) -> None:
    """Any sequence of accesses returns the right shards within the bound."""
    opened = opening(table, limit)
    for number in asked:
        assert opened.use(number).start == number
        assert len(opened.by_number) <= limit
    assert opened.accesses == len(asked)
    assert opened.misses >= len(set(asked))


def test_what_is_used_again_and_again_stays_open(table: ShardTable) -> None:
    """A shard in steady use stays open."""
    opened = opening(table, 3)
    for passing in range(1, 20):
        opened.use(0)
        opened.use(passing)
    opened.use(0)
    assert opened.misses == 20


def test_running_out_of_descriptors_closes_others_and_tries_again(
    table: ShardTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without free descriptors, half of the open shards are dropped."""
    monkeypatch.setattr(FullOpener, "full", table.urls[7])
    opened = opening(table, 8)
    for number in range(8):
        assert opened.use(number).start == number
    assert len(opened.by_number) == 4


def test_useless_shards_go_once_they_are_idle(table: ShardTable) -> None:
    """Useless shards are dropped, and recently used ones later."""
    opened = opening(table, 8)
    for number in (0, 1, 2, 1):
        opened.use(number)
    assert opened.drop(lambda shard: shard.start < 2, spare_used=True) == 1
    assert (sorted(opened.by_number), opened.misses) == ([1, 2], 3)
    assert opened.drop(lambda shard: shard.start < 2, spare_used=True) == 1
    assert (sorted(opened.by_number), opened.accesses) == ([2], 4)
    opened.use(2)
    assert (opened.drop(lambda shard: True), len(opened.by_number)) == (1, 0)


def test_a_limit_below_one_is_refused(table: ShardTable) -> None:
    """A limit below one is refused."""
    with pytest.raises(ValueError, match="limit of 0"):
        opening(table, 0)


@pytest.mark.parametrize(("descriptors", "expected"), [(256, 32), (3, 1), (10**6, 4096)])
def test_the_default_limit_leaves_descriptors_for_others(
    monkeypatch: pytest.MonkeyPatch, descriptors: int, expected: int
) -> None:
    """The default limit uses a quarter of the descriptors, two per shard."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (descriptors, 10**7))
    assert default_max_open_shards() == expected
