"""The samplers: rank and number of ranks, epochs, states, errors."""

import json
import pickle
import warnings
from collections import Counter
from itertools import islice
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from helpers.interpreters import run_ranks
from helpers.orders import Numbers

import wids
from wids import (
    BatchSampler,
    ChunkedSampler,
    DistributedChunkedSampler,
    DistributedShardSampler,
    ShardListSampler,
)
from wids.errors import WidsWarning

LENGTHS = [30, 11, 0, 60]
SHARDS = Numbers(LENGTHS)


class process_group:  # noqa: N801 (used like a function)
    """Pretend that torch's process group is there, by replacing the functions that tell of it."""

    def __init__(self, rank, size):
        self.patches = [
            mock.patch("torch.distributed.is_initialized", return_value=True),
            mock.patch("torch.distributed.get_rank", return_value=rank),
            mock.patch("torch.distributed.get_world_size", return_value=size),
        ]

    def __enter__(self):
        for patch in self.patches:
            patch.start()

    def __exit__(self, *_):
        for patch in self.patches:
            patch.stop()


# Rank and number of ranks. What code written for 0.1.11 relies on is in test_drop_in.py.


def test_arguments_win_over_the_process_group():
    """An explicit rank or number of ranks is preferred to the process group."""
    with process_group(3, 4):
        with pytest.warns(
            WidsWarning, match="the process group of torch has num_replicas=4, rank=3"
        ):
            sampler = DistributedChunkedSampler(range(10), rank=0)
        assert (sampler.rank, sampler.num_replicas) == (0, 4)
        with pytest.warns(WidsWarning, match="num_replicas=5, .* partly given"):
            sampler = DistributedChunkedSampler(range(10), num_replicas=5)
        assert (sampler.rank, sampler.num_replicas) == (3, 5)
    sampler = DistributedChunkedSampler(range(10), num_replicas=4, rank=2)
    assert (sampler.rank, sampler.num_replicas) == (2, 4)


@pytest.fixture
def no_launcher(monkeypatch):
    """Take away what a launcher would have told this process."""
    for name in ("RANK", "WORLD_SIZE", "GROUP_WORLD_SIZE", "SLURM_JOB_NUM_NODES", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("no_launcher")
@pytest.mark.parametrize("name", ["RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"])
def test_a_rank_of_a_launcher_without_a_group_is_said(name, monkeypatch):
    """Where only a rank above 0 tells of other processes, all samples come, with a warning."""
    monkeypatch.setenv(name, "3")
    with pytest.warns(WidsWarning, match=f"{name}=3 .* each of them reads all samples"):
        assert len(DistributedShardSampler(SHARDS)) == 101
    assert len(DistributedShardSampler(SHARDS, 1, 0)) == 101
    monkeypatch.setenv(name, "0")
    assert len(DistributedShardSampler(SHARDS)) == 101


@pytest.mark.usefixtures("no_launcher")
@pytest.mark.parametrize("looked_at", [False, True])
@pytest.mark.parametrize("kind", [DistributedChunkedSampler, DistributedShardSampler])
def test_a_sampler_may_be_made_before_the_process_group(kind, looked_at, monkeypatch):
    """Rank and number of ranks are read when a pass begins."""
    samplers = [kind(SHARDS, interleave=2) for _ in range(4)]
    if looked_at:
        assert {len(sampler) for sampler in samplers} == {101}
        assert {sampler.streams for sampler in samplers} == {1}
    monkeypatch.setenv("GROUP_WORLD_SIZE", "2")
    seen = []
    for rank, sampler in enumerate(samplers):
        with process_group(rank, 4):
            assert len(sampler) == 26
            seen.append(list(sampler))
            state = sampler.state_dict()
        # What the group said stays.
        assert (sampler.rank, sampler.num_replicas) == (rank, 4)
    lanes = 2 if kind is DistributedShardSampler else 4
    assert state["streams"] == lanes
    assert sorted(set().union(*seen)) == list(range(101))
    again = [list(kind(SHARDS, 4, rank, interleave=2, streams=lanes)) for rank in range(4)]
    assert seen == again


@pytest.mark.usefixtures("no_launcher")
def test_a_launcher_without_a_group_counts_and_is_warned_of(monkeypatch):
    """Under torchrun without a process group, ranks share the data, with a warning."""
    monkeypatch.setenv("WORLD_SIZE", "3")
    seen = []
    for rank in range(3):
        monkeypatch.setenv("RANK", str(rank))
        sampler = DistributedChunkedSampler(range(10))
        with pytest.warns(UserWarning, match=f"takes rank {rank} of 3 from RANK and WORLD_SIZE"):
            seen += list(sampler)
        assert len(sampler) == 4  # said once
    assert len(seen) == 12
    assert set(seen) == set(range(10))


@pytest.mark.usefixtures("no_launcher")
@pytest.mark.parametrize("rank", ["", "4", " 1"])
def test_a_launcher_of_several_without_a_rank_is_refused(rank, monkeypatch):
    """Where only the number of processes is known, each would read all samples."""
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("RANK", rank)
    with pytest.raises(ValueError, match="WORLD_SIZE='4' and RANK=.*pass num_replicas and rank"):
        list(DistributedChunkedSampler(range(10)))
    assert len(list(DistributedChunkedSampler(range(10), 1, 0))) == 10


@pytest.mark.usefixtures("no_launcher")
def test_arguments_and_the_group_win_over_the_launcher(monkeypatch):
    """Arguments and process group are preferred to the environment."""
    monkeypatch.setenv("WORLD_SIZE", "8")
    monkeypatch.setenv("RANK", "7")
    assert DistributedChunkedSampler(range(10), 2, 1).rank == 1
    with process_group(3, 4):
        sampler = DistributedChunkedSampler(range(10))
        assert (sampler.rank, sampler.num_replicas) == (3, 4)


@pytest.mark.usefixtures("no_launcher")
def test_half_of_rank_and_number_of_ranks_is_no_answer():
    """A number of ranks alone waits for the process group, and is no rank 0 without one."""
    sampler = DistributedShardSampler(SHARDS, num_replicas=3)
    assert "rank unknown" in repr(sampler)
    for use in (list, len, lambda sampler: sampler.state_dict()):
        with pytest.raises(
            ValueError, match="rank is unknown: .*num_replicas=3 .*pass num_replicas"
        ):
            use(sampler)
    with pytest.raises(ValueError, match="got 1; pass both"):
        list(DistributedShardSampler(SHARDS, rank=1))
    with process_group(2, 3):
        assert list(sampler) == list(DistributedShardSampler(SHARDS, 3, 2))


@pytest.mark.usefixtures("no_launcher")
@pytest.mark.parametrize("plan", [{"cost": [2] * 101, "max_cost": 9}, {"shape": [1, 2] * 50 + [1]}])
def test_planned_batches_find_the_rank_at_first_use(plan, monkeypatch):
    """Batches by cost or shape, made before the process group, warn of nothing."""
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("RANK", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        size = 4 if "shape" in plan else None
        batches = BatchSampler(DistributedShardSampler(SHARDS), size, **plan)
        with process_group(1, 4):
            late = list(batches)
            assert late == list(BatchSampler(DistributedShardSampler(SHARDS, 4, 1), size, **plan))


@pytest.mark.usefixtures("no_launcher")
def test_a_sampler_travels_before_its_rank_is_known():
    """A copy made before the process group gets the rank of its process."""
    copied = pickle.loads(pickle.dumps(DistributedShardSampler(SHARDS)))
    with process_group(1, 2):
        assert (copied.rank, copied.num_replicas, len(copied)) == (1, 2, 51)


# Exactness; test_random_configurations.py has the epochs, states and chains of all samplers.


def test_a_full_shuffle_repeats_no_sample_on_a_rank():
    """Under "uniform" a rank is padded by samples of other ranks."""
    for rank in range(4):
        assert len(set(DistributedChunkedSampler(range(9), 4, rank, partition="uniform"))) == 3


def test_shards_without_samples_have_no_ranges():
    """Empty shards have no chunk."""
    lengths = [0, 0, 3, 0, 2, 0]
    assert ShardListSampler(None, lengths=lengths).ranges == [(0, 3), (3, 5)]
    assert ShardListSampler(None, lengths=[0]).ranges == []


def test_torch_names_of_the_numbers():
    """`num_samples` and `total_size` mean the same as in torch's class."""
    ours = DistributedChunkedSampler(range(10), 4, 1)
    theirs = torch.utils.data.DistributedSampler(range(10), 4, 1)
    for name in ("num_samples", "total_size", "rank", "num_replicas", "drop_last", "epoch"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert isinstance(ours, torch.utils.data.DistributedSampler)
    assert isinstance(ours, ChunkedSampler)


@pytest.mark.parametrize("kind", [DistributedChunkedSampler, DistributedShardSampler])
def test_a_tail_is_dropped_or_dealt_out(kind):
    """`drop_last` leaves out what does not divide, also with `pad=False`, which deals it out."""
    assert len(kind(range(10), 4, 0, lengths=[10], drop_last=True)) == 2
    assert len(kind(range(10), 4, 0, lengths=[10], drop_last=True, pad=False)) == 2
    assert len(kind(range(10), 4, 0, lengths=[10], pad=False)) == 3


# Epochs.


def test_the_first_epoch_alone_may_keep_the_order_of_chunks():
    """With `shufflefirst=False`, chunks are in storage order in epoch 0, and in no later one."""
    sampler = ChunkedSampler(range(100), chunksize=10, shufflefirst=False)
    first, second = list(sampler), list(sampler)
    assert [i // 10 for i in first] == sorted(i // 10 for i in first)
    assert first != list(range(100))
    assert [i // 10 for i in second] != sorted(i // 10 for i in second)


def test_iterators_side_by_side_are_equal():
    """Two iterators made before a pass begins have one epoch and count as one pass."""
    sampler = ChunkedSampler(range(1000))
    pairs = list(zip(sampler, sampler, strict=True))
    assert all(one == other for one, other in pairs)
    assert sampler.epoch == 1


def test_an_unused_iterator_is_no_pass():
    """An iterator dropped before its first index changes nothing."""
    sampler = ChunkedSampler(range(100))
    iter(sampler)
    assert sampler.epoch == 0
    assert list(sampler) == list(ChunkedSampler(range(100)))


def test_an_abandoned_pass_is_a_pass():
    """After an abandoned pass the next pass is the next epoch."""
    sampler, whole = ChunkedSampler(range(100)), ChunkedSampler(range(100))
    first = list(islice(sampler, 10))
    second = list(sampler)
    assert first == list(whole)[:10]
    assert second == list(whole)
    assert sampler.epoch == 2


def test_an_abandoned_pass_of_an_explicit_epoch_is_repeated():
    """A pass abandoned under `set_epoch` begins again."""
    sampler = ChunkedSampler(range(100))
    sampler.set_epoch(1)
    first = list(islice(sampler, 10))
    assert list(sampler)[:10] == first


def test_a_pass_keeps_its_epoch():
    """`set_epoch` does not change a pass in progress."""
    sampler, undisturbed = ChunkedSampler(range(1000)), ChunkedSampler(range(1000))
    one = iter(sampler)
    start = [next(one) for _ in range(3)]
    sampler.set_epoch(7)
    assert start + list(one) == list(undisturbed)
    assert sampler.epoch == 7


# States.


def test_state_is_small_and_plain():
    """The state is a few hundred bytes of JSON, whatever the dataset."""
    sampler = DistributedShardSampler(range(10**7), 4, 0, lengths=[9999, 10001] * 500)
    iterator = iter(sampler)
    next(iterator)
    assert len(json.dumps(sampler.state_dict())) < 400
    assert json.loads(json.dumps(sampler.state_dict())) == sampler.state_dict()


def test_consumed_counts_in_a_pass_that_was_handed_out_whole():
    """`consumed` applies also after the last index was handed out."""
    sampler, resumed = ChunkedSampler(range(100)), ChunkedSampler(range(100))
    whole = list(sampler)
    resumed.load_state_dict(sampler.state_dict(consumed=90))
    assert list(resumed) == whole[90:]
    assert resumed.epoch == 1


def test_consumed_counts_from_the_resumed_position():
    """`consumed` counts from the start of this pass, also of a resumed one."""
    whole = list(ChunkedSampler(range(100)))
    sampler = ChunkedSampler(range(100))
    for steps in (10, 20, 30):
        state = sampler.state_dict(consumed=steps)
        sampler = ChunkedSampler(range(100))
        sampler.load_state_dict(state)
    assert list(sampler) == whole[60:]


def test_setting_the_restored_epoch_keeps_the_position():
    """`set_epoch` with the restored epoch keeps the position."""
    sampler, resumed = ChunkedSampler(range(100)), ChunkedSampler(range(100))
    sampler.set_epoch(2)
    iterator = iter(sampler)
    head = list(islice(iterator, 30))
    resumed.load_state_dict(sampler.state_dict())
    resumed.set_epoch(2)
    rest = list(resumed)
    whole = ChunkedSampler(range(100))
    whole.set_epoch(2)
    assert head + rest == list(whole)
    assert list(resumed) == list(whole)


def test_setting_another_epoch_drops_the_position():
    """`set_epoch` with another epoch drops the restored position."""
    sampler = ChunkedSampler(range(100))
    sampler.load_state_dict({**sampler.state_dict(), "epoch": 2, "consumed": 50})
    with pytest.warns(WidsWarning, match=r"set_epoch\(3\) leaves the state"):
        sampler.set_epoch(3)
    assert len(list(sampler)) == 100


def test_iterators_do_not_consume_the_resume_point():
    """Unused iterators leave the restored position unchanged."""
    sampler = ChunkedSampler(range(100))
    whole = list(ChunkedSampler(range(100)))
    sampler.load_state_dict({**sampler.state_dict(), "consumed": 50})
    iter(sampler)
    assert list(sampler) == whole[50:]


def test_the_epoch_begun_keeps_its_order():
    """A restored epoch keeps its order, and later epochs follow the new arguments."""
    old = ChunkedSampler(range(100), chunksize=10, seed=1, interleave=4)
    whole = list(ChunkedSampler(range(100), chunksize=10, seed=1, interleave=4))
    list(islice(iter(old), 0))
    state = {**old.state_dict(), "consumed": 40}
    new = ChunkedSampler(range(100), chunksize=10, seed=2, interleave=2)
    reference = ChunkedSampler(range(100), chunksize=10, seed=2, interleave=2)
    reference.set_epoch(1)
    new.load_state_dict(state)
    assert list(new) == whole[40:]
    assert list(new) == list(reference)


@pytest.mark.parametrize("taken", [10, 100])
def test_an_abandoned_pass_leaves_no_position(taken):
    """After the epoch is set again, the position is its start."""
    sampler = ChunkedSampler(range(100))
    sampler.set_epoch(0)
    list(islice(sampler, taken))
    sampler.set_epoch(0)
    state = sampler.state_dict()
    assert (state["epoch"], state["consumed"], sampler.remaining()) == (0, 0, 100)


def test_an_abandoned_resumed_pass_is_followed_by_a_whole_one():
    """After the rest of a set epoch, the next pass is complete."""
    sampler = ChunkedSampler(range(20))
    whole = list(ChunkedSampler(range(20)))
    sampler.load_state_dict({**sampler.state_dict(), "consumed": 5})
    sampler.set_epoch(0)
    assert list(islice(sampler, 2)) == whole[5:7]
    assert list(sampler) == whole


def test_a_state_of_other_data_is_refused():
    """A state of another length or other shards is refused by name."""
    state = ChunkedSampler(range(100)).state_dict()
    with pytest.raises(ValueError, match="num_samples was 100, is 90"):
        ChunkedSampler(range(90)).load_state_dict(state)
    with pytest.raises(ValueError, match="layout was .*, is .*pass strict=False"):
        ChunkedSampler(range(100), chunksize=10).load_state_dict(state)
    with pytest.raises(ValueError, match="layout was"):
        ChunkedSampler(range(105), num_samples=(5, 105)).load_state_dict(state)
    weighted = DistributedShardSampler(range(100), 1, 0, lengths=[100], weights=range(100))
    with pytest.raises(ValueError, match="layout was .*hash of .*weights and balance.* a Mixture"):
        weighted.load_state_dict(state)


def test_a_state_of_other_data_may_be_forced():
    """With `strict=False`, epoch and position of other data are used."""
    state = {**ChunkedSampler(range(100)).state_dict(), "epoch": 3, "consumed": 95}
    grown, shrunk = ChunkedSampler(range(120)), ChunkedSampler(range(90))
    grown.load_state_dict(state, strict=False)
    shrunk.load_state_dict(state, strict=False)
    assert grown.epoch == 3
    assert len(list(grown)) == 25
    assert [len(list(shrunk)), shrunk.epoch] == [0, 4]  # of epoch 3 nothing is left


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 9}, "version 9 of the order"),
        ({"consumed": 101}, "consumed must be at most 100, got 101"),
        ({"consumed": -1}, "got -1"),
        ({"consumed": 2.5}, "consumed .*must be an integer, got 2.5"),
        ({"consumed": None}, "consumed .*must be an integer, got None"),
        ({"epoch": -1}, "epoch .*must be at least 0, got -1"),
        ({"epoch": "1"}, "epoch must be an integer .*got '1'"),
        ({"streams": 0}, "streams .*must be at least 1, got 0"),
        ({"streams": 10**9}, "streams .*must be at most 1048576, got 1000000000"),
        ({"interleave": -4}, "interleave .*must be at least 1, got -4"),
        ({"partition": "zzz"}, "partition: expected .* got 'zzz'"),
        ({"layout": None}, "layout was None, is '"),
        ({"segments": [(2, -1)]}, "steps of segments must be at least 0, got -1"),
        ({"shuffle": "yes"}, "shuffle .*must be True or False, got 'yes'"),
        ({"shuffle": 7}, "shuffle .*must be True or False, got 7"),
    ],
)
def test_a_wrong_state_is_refused(change, message):
    """Another version and impossible positions are refused."""
    sampler = ChunkedSampler(range(100))
    with pytest.raises((TypeError, ValueError), match=message):
        sampler.load_state_dict({**sampler.state_dict(), **change})


def test_a_state_of_other_libraries_numbers_is_welcome():
    """Integers and flags of NumPy and torch in a state are accepted."""
    sampler, whole = ChunkedSampler(range(100)), list(ChunkedSampler(range(100)))
    numbers = {"consumed": np.int64(40), "epoch": torch.tensor(0), "shuffle": np.bool_(True)}
    sampler.load_state_dict({**sampler.state_dict(), **numbers})
    json.dumps(sampler.state_dict())
    assert list(sampler) == whole[40:]


# Arguments.


def test_too_few_open_shards_are_warned_of():
    """A dataset that keeps fewer shards open than are mixed is warned of."""
    shards = Numbers([5] * 20 + [1])
    shards.lru_size = 10
    with pytest.warns(WidsWarning, match="lru_size=18"):
        DistributedShardSampler(shards, 2, 0)
    shards.lengths = [30, 11, 60]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DistributedShardSampler(shards, 2, 0)


def test_no_attribute_called_generator():
    """Samplers have no attribute `generator`, which Accelerate would seed."""
    assert not hasattr(DistributedShardSampler(SHARDS, 2, 0), "generator")


@pytest.mark.parametrize("kind", ["plain", "batches", "by cost", "by shape"])
def test_more_used_than_handed_out_is_refused(kind):
    """A state after more indexes than were drawn would lose the others; at the end it may round."""
    sampler = DistributedShardSampler(range(100), 1, 0, lengths=[10] * 10)
    of_rank = {
        "plain": sampler,
        "batches": BatchSampler(sampler, 7),
        "by cost": BatchSampler(sampler, cost=[1] * 100, max_cost=7),
        "by shape": BatchSampler(sampler, 7, shape=[0] * 100),
    }[kind]
    one_pass = iter(of_rank)
    next(one_pass)
    drawn = of_rank.state_dict()
    assert of_rank.state_dict(consumed=1) == drawn
    with pytest.raises(ValueError, match=r"but its pass has handed out [17], .* of this rank"):
        of_rank.state_dict(consumed=2)
    for _ in one_pass:
        pass
    assert of_rank.state_dict(consumed=105)["consumed"] == 100


def test_a_state_of_another_view_of_as_many_samples_is_refused(tmp_path: Path) -> None:
    """Where samples lie is compared; moved shards and states that do not say it are accepted."""
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        with wids.ShardWriter(f"{tmp_path}/{folder}/{folder}-%d.tar", maxcount=25) as writer:
            for number in range(100):
                writer.write({"__key__": f"{number:03d}", ".cls": number})
    dataset = wids.ShardListDataset(str(tmp_path / "one"))
    moved = wids.ShardListDataset(str(tmp_path / "two"))
    for make in (wids.ShardListSampler, wids.DistributedShardSampler, wids.ChunkedSampler):
        options = {"num_replicas": 1, "rank": 0} if make is wids.DistributedShardSampler else {}
        sampler = make(dataset, **options)
        drawn = iter(sampler)
        begun = [next(drawn) for _ in range(10)]
        state = sampler.state_dict(consumed=10)
        other = make(dataset[::-1], **options)
        with pytest.raises(ValueError, match="samples was .* as in another view"):
            other.load_state_dict(state)
        other.load_state_dict(state, strict=False)
        old = {**state, "samples": ""}
        for samples, told in ((moved, state), (dataset[:], state), (dataset[::-1], old)):
            again = make(samples, **options)
            again.load_state_dict(told)
            assert sorted([*begun, *again]) == list(range(100))


TAILS = [{}, {"pad": False}, {"drop_last": True}]


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("pinned", [False, True])
@pytest.mark.parametrize("size", [None, 2])
def test_the_end_of_an_epoch_is_in_the_loop_or_after_it(tail, pinned, size):
    """In the loop over the last index the rest is empty; after the loop the next epoch begins."""

    def make(rank):
        sampler = DistributedChunkedSampler(range(10), 4, rank, **tail)
        return sampler if size is None else wids.BatchSampler(sampler, size)

    for rank in range(4):
        sampler, resumed, following = make(rank), make(rank), make(rank)
        following.set_epoch(1)
        second = list(following)
        if pinned:
            sampler.set_epoch(0)
        one_pass = iter(sampler)
        for _ in range(len(sampler)):
            next(one_pass)
        inside = sampler.state_dict()
        assert inside["epoch"] == 0
        # Of ten samples, two ranks have one less; the others go on from the same state.
        at_end = 8 if tail == {"pad": False} and rank > 1 else 10
        assert inside["consumed"] == at_end
        assert list(one_pass) == []
        after = sampler.state_dict()
        assert (after["epoch"], after["consumed"]) == (1, 0)
        resumed.load_state_dict(inside)
        assert [list(resumed), list(resumed)] == [[], second]
        resumed.load_state_dict(after)
        assert list(resumed) == second
        if not tail and size is None:
            assert sampler.state_dict(consumed=2)["consumed"] == 8


def test_lengths_may_be_an_array_and_lanes_is_the_old_word():
    """Lengths of any kind give one order; `lanes` is accepted for `streams`."""
    for lengths in ([50, 50], np.array([50, 50]), np.array([50, 50], np.uint8)):
        sampler = DistributedShardSampler(range(100), 4, 1, lengths=lengths, lanes=2)
        assert (sampler.streams, sampler.lanes) == (2, 2)
        assert list(sampler) == list(
            DistributedShardSampler(range(100), 4, 1, lengths=[50, 50], streams=2)
        )
    with pytest.raises(ValueError, match="partition='uniform'"):
        ChunkedSampler(range(1 << 30), chunksize=1)
    assert len(ChunkedSampler(range(1 << 30), chunksize=1, partition="uniform")) == 1 << 30


RANKS_COMPARED = """
import torch.distributed as dist
import wids

dist.init_process_group("gloo")
rank = dist.get_rank()

class Shards(list):
    lengths = [60, 40]

class Other(list):
    lengths = [50, 50]

def sampler(data=Shards, **options):
    return wids.DistributedShardSampler(data(range(100)), **options)

def batches(**options):
    return wids.BatchSampler(sampler(), **options)

def begun(epoch):
    made = sampler()
    if epoch is not None:
        made.set_epoch(epoch)
    return made

cases = {
    "same": sampler(),
    "same batches": batches(cost=[[1, 2], [1.0, 2.0]][rank] * 50, max_cost=[10, 10.0][rank]),
    "same shares": sampler(weights=[[1, 2], [2, 4]][rank] * 50),
    "seed": sampler(seed=rank),
    "lengths": sampler([Shards, Other][rank]),
    "ranks": sampler(num_replicas=2, rank=0),
    "weights": sampler(weights=[[1, 2], [1, 3]][rank] * 50),
    "costs": batches(cost=[1 + rank] * 100, max_cost=10),
    "bound": batches(cost=[1] * 100, max_cost=10 + rank),
    "set_epoch": begun([0, None][rank]),
}
for name, made in cases.items():
    try:
        wids.check_ranks(made)
        print(name, "SAID nothing")
    except RuntimeError as error:
        print(name, "SAID", error)
dist.destroy_process_group()
"""


def test_ranks_are_compared():
    """`check_ranks` names what differs, on all ranks of a real process group."""
    expected = {
        "same": "nothing",
        "same batches": "nothing",
        "same shares": "nothing",
        "seed": ": seed. ",
        "lengths": "chunks (lengths, chunksize, num_samples). ",
        "ranks": "have the ranks [0, 0]",
        "weights": ": weights. ",
        "costs": ": cost of the BatchSampler. ",
        "bound": ": max_cost of the BatchSampler. ",
        "set_epoch": ": set_epoch was called. ",
    }
    told = [line.split(" SAID ") for line in run_ranks(2, "-c", RANKS_COMPARED).splitlines()]
    assert Counter(name for name, _ in told) == Counter(2 * list(expected))
    for name, words in told:
        assert expected[name] in words, name


def test_numbers_of_all_types_give_one_state():
    """Costs and weights count by their values and ratios, whatever their types."""
    by_cost = [
        BatchSampler(ChunkedSampler(range(100)), cost=cost, max_cost=bound)
        for cost, bound in (([1, 2] * 50, 10), (np.float32([1, 2] * 50), 10.0))
    ]
    drawn = iter(by_cost[0])
    head = [next(drawn) for _ in range(3)]
    by_cost[1].load_state_dict(json.loads(json.dumps(by_cost[0].state_dict())))
    assert sorted(index for batch in [*head, *by_cost[1]] for index in batch) == list(range(100))
    one, twice = (
        DistributedShardSampler(range(4), 1, 0, lengths=[4], weights=weights)
        for weights in ([1, 2, 1, 0], np.float64([2, 4, 2, 0]))
    )
    twice.load_state_dict(one.state_dict())
    assert list(one) == list(twice)


def test_the_last_batch_leaves_one_state_on_all_ranks():
    """Without padding, ranks whose last batches differ by an index have the same state."""
    states, iterators = [], []
    for rank in range(4):
        batches = BatchSampler(DistributedChunkedSampler(range(14), 4, rank, pad=False), 2)
        one_pass = iter(batches)
        for _ in range(2):
            next(one_pass)
        states.append(batches.state_dict())
        iterators.append(one_pass.state_dict())
    assert states == iterators == [states[0]] * 4
    assert states[0]["consumed"] == 14


@pytest.mark.parametrize("streams", [2, 3, 5])
def test_no_rank_repeats_a_sample_of_its_own(streams: int) -> None:
    """Repeats are of other ranks also where the streams do not divide the ranks."""
    for count, ranks in [(n, r) for n in range(20, 50) for r in range(2 * streams, 10)]:
        for rank in range(ranks):
            sampler = DistributedShardSampler(
                range(count), ranks, rank, lengths=[count // 2, count - count // 2], streams=streams
            )
            drawn = list(sampler)
            assert len(set(drawn)) == len(drawn), (count, ranks, rank)
