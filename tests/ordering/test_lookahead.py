"""Looking ahead of a sampler: what is foreseen is what comes, and looking changes nothing."""

import copy
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wids import ChunkedSampler, DistributedShardSampler, ShardListSampler
from wids.ordering.lookahead import Lookahead
from wids.ordering.replicas import streams_here

LENGTHS = [30, 11, 0, 62, 5]


def shards_of(indexes: list[int], lengths: list[int]) -> list[int]:
    """Name the shard of each index, by counting them off."""
    homes = [shard for shard, length in enumerate(lengths) for _ in range(length)]
    return [homes[index] for index in indexes]


def expected_visits(shards: list[int], first_step: int) -> list[tuple[int, int, int]]:
    """Say of each shard when it comes first and last, in the order of first need."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for step, shard in enumerate(shards, first_step):
        first.setdefault(shard, step)
        last[shard] = step
    return [(shard, first[shard], last[shard]) for shard in first]


@settings(deadline=None)
@given(
    lengths=st.lists(st.integers(0, 40), min_size=1, max_size=8).filter(any),
    ranks=st.integers(1, 3),
    partition=st.sampled_from(["contiguous", "fixed", "global", "uniform"]),
    interleave=st.integers(1, 4),
    seed=st.integers(0, 5),
)
def test_what_is_foreseen_is_what_comes(
    lengths: list[int], ranks: int, partition: str, interleave: int, seed: int
) -> None:
    """The computed shards of this and the next epoch are those drawn, on every rank."""
    ends = np.cumsum(lengths)
    for rank in range(ranks):
        sampler = DistributedShardSampler(
            range(sum(lengths)),
            ranks,
            rank,
            lengths=lengths,
            partition=partition,
            interleave=interleave,
            streams="rank",
            seed=seed,
        )
        foreseen = list(Lookahead(sampler, ends))
        drawn = list(sampler)
        following = list(sampler)
        assert foreseen == [
            expected_visits(shards_of(drawn, lengths), 0),
            expected_visits(shards_of(following, lengths), len(drawn)),
        ]


def test_a_long_epoch_comes_in_blocks() -> None:
    """A long epoch is computed in blocks that fit together."""
    sampler = ShardListSampler(None, lengths=[10_000] * 5, interleave=2)
    ends = np.cumsum([10_000] * 5)
    shards = shards_of(list(copy.copy(sampler)), [10_000] * 5)
    blocks = list(itertools.islice(Lookahead(sampler, ends), 7))
    assert [visit.first for visits in blocks for visit in visits[:1]] == [
        8192 * block for block in range(7)
    ]
    for block, visits in enumerate(blocks):
        first = 8192 * block
        assert visits == expected_visits(shards[first : min(first + 8192, 50_000)], first)


def test_the_step_follows_the_sampler_into_the_next_epoch() -> None:
    """Steps count handed out indexes beyond the end of an epoch."""
    sampler = ShardListSampler(None, lengths=LENGTHS)
    lookahead = Lookahead(sampler, np.cumsum(LENGTHS))
    list(lookahead)
    assert lookahead.step() == 0
    drawing = iter(sampler)
    for count in range(1, 20):
        next(drawing)
        assert lookahead.step() == count
    list(drawing)
    assert lookahead.step() == sum(LENGTHS)
    next(iter(sampler))
    assert lookahead.step() == sum(LENGTHS) + 1


def test_an_epoch_after_the_next_is_foreseen_in_its_time() -> None:
    """The epoch after the next is computed when the next has begun."""
    sampler = ChunkedSampler(range(4), shuffle=False)
    lookahead = Lookahead(sampler, np.array([4]))
    assert [visits[0].first for visits in lookahead] == [0, 4]
    list(sampler)
    assert [visits[0].first for visits in lookahead] == [8]


@pytest.mark.parametrize(
    "change",
    [
        lambda sampler: sampler.set_epoch(7),
        lambda sampler: setattr(sampler, "seed", 99),
        lambda sampler: sampler.load_state_dict({**sampler.state_dict(), "consumed": 50}),
    ],
)
def test_what_was_not_foreseen_is_said(change) -> None:
    """After a jump the step is None, and a new Lookahead is correct."""
    sampler = ShardListSampler(None, lengths=LENGTHS)
    lookahead = Lookahead(sampler, np.cumsum(LENGTHS))
    next(lookahead)
    change(sampler)
    assert lookahead.step() is None
    foreseen = next(Lookahead(sampler, np.cumsum(LENGTHS)))
    assert foreseen == expected_visits(shards_of(list(sampler), LENGTHS), 0)


def test_an_empty_share_ends() -> None:
    """A sampler without samples has no coming shards."""
    assert list(Lookahead(ChunkedSampler([]), np.array([0]))) == []


def test_looking_ahead_changes_nothing() -> None:
    """Looking ahead does not change the order."""
    sampler, watched = (ShardListSampler(None, lengths=LENGTHS, seed=3) for _ in range(2))
    lookahead = Lookahead(watched, np.cumsum(LENGTHS))
    for expected, drawn in zip(sampler, watched, strict=True):
        next(lookahead, None)
        assert (expected, lookahead.step() is None) == (drawn, False)


@pytest.mark.parametrize(
    ("told", "streams", "expected"),
    [
        ({"LOCAL_WORLD_SIZE": "4"}, 8, 4),
        ({"LOCAL_WORLD_SIZE": "4"}, 2, 1),
        ({"SLURM_TASKS_PER_NODE": "2(x4)"}, 8, 2),
        ({"LOCAL_WORLD_SIZE": "64"}, 8, 8),
        ({"LOCAL_WORLD_SIZE": "none"}, 8, 8),
        ({}, 1, 1),
    ],
)
def test_streams_of_this_machine_are_counted(
    told: dict[str, str], streams: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The launcher's number of ranks on this machine is used, else all eight ranks."""
    for name in ("LOCAL_WORLD_SIZE", "SLURM_TASKS_PER_NODE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    assert streams_here(streams, 8) == expected
