"""`OpenShards` keeps a bounded number of shards open."""

import errno
import resource
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wids.reading.openshards import OpenShards, default_max_open_shards


@dataclass
class Opened:
    """A stand-in for an open shard."""

    number: int
    uses: int = 0
    spared: int = 1


def opening(limit: int, open_shard: Callable[[int], Opened] = Opened) -> OpenShards:
    """Return a set of shards that are opened by a function."""
    opened = OpenShards(limit)
    opened.open_shard = open_shard
    return opened


def use(opened: OpenShards, shard_index: int) -> int:
    """Use a shard as a reader does, and return its number."""
    shard = opened.open(shard_index)
    shard.uses += 1
    return shard.number


@given(st.integers(1, 5), st.lists(st.integers(0, 9), max_size=60))
def test_any_access_returns_the_right_shard_within_the_bound(limit: int, asked: list[int]) -> None:
    """Any sequence of accesses returns the right shards within the bound."""
    opened = opening(limit)
    for shard_index in asked:
        assert use(opened, shard_index) == shard_index
        assert len(opened.by_number) <= limit
    assert opened.accesses == len(asked)
    assert opened.misses >= len(set(asked))


def test_what_is_used_again_and_again_stays_open() -> None:
    """A shard in steady use stays open."""
    opened = opening(3)
    for passing in range(1, 20):
        use(opened, 0)
        use(opened, passing)
    use(opened, 0)
    assert opened.misses == 20


def test_running_out_of_descriptors_closes_others_and_tries_again() -> None:
    """Without free descriptors, half of the open shards are dropped."""
    full = {7}

    def open_shard(shard_index: int) -> Opened:
        if shard_index in full:
            full.clear()
            raise OSError(errno.EMFILE, "Too many open files")
        return Opened(shard_index)

    opened = opening(8, open_shard)
    for shard_index in range(8):
        assert use(opened, shard_index) == shard_index
    assert len(opened.by_number) == 4


def test_useless_shards_go_once_they_are_idle() -> None:
    """Useless shards are dropped, and recently used ones later."""
    opened = opening(8)
    for shard_index in (0, 1, 2, 1):
        use(opened, shard_index)
    assert opened.drop(lambda shard: shard.number < 2, spare_used=True) == 1
    assert (sorted(opened.by_number), opened.misses) == ([1, 2], 3)
    assert opened.drop(lambda shard: shard.number < 2, spare_used=True) == 1
    assert (sorted(opened.by_number), opened.accesses) == ([2], 4)
    use(opened, 2)
    assert (opened.drop(lambda shard: True), len(opened.by_number)) == (1, 0)


def test_a_limit_below_one_is_refused() -> None:
    """A limit below one is refused."""
    with pytest.raises(ValueError, match="limit of 0"):
        opening(0)


@pytest.mark.parametrize(("descriptors", "expected"), [(256, 32), (3, 1), (10**6, 4096)])
def test_the_default_limit_leaves_descriptors_for_others(
    monkeypatch: pytest.MonkeyPatch, descriptors: int, expected: int
) -> None:
    """The default limit uses a quarter of the descriptors, two per shard."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (descriptors, 10**7))
    assert default_max_open_shards() == expected
