"""The samplers in torch's DataLoader and torchdata's StatefulDataLoader, with workers."""

import json
from collections import Counter
from itertools import islice

import pytest
import torchdata.nodes
from helpers.interpreters import run_python
from helpers.workers import Echo
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from wids import BatchSampler, DistributedShardSampler

BATCH = 5


def make_sampler(rank=0, replicas=2):
    return DistributedShardSampler(Echo(), replicas, rank, streams=1, interleave=3)


def batches_of(loader):
    return [batch.tolist() for batch in loader]


@pytest.mark.parametrize(
    ("context", "persistent"),
    [
        ("fork", False),
        ("fork", True),
        pytest.param("spawn", True, marks=pytest.mark.slow),
        pytest.param("forkserver", False, marks=pytest.mark.slow),
    ],
)
def test_workers_do_not_change_the_order(context, persistent):
    """Batches of two epochs are the same with and without workers."""
    expected = DataLoader(Echo(), BATCH, sampler=make_sampler())
    loader = DataLoader(
        Echo(),
        BATCH,
        sampler=make_sampler(),
        num_workers=2,
        multiprocessing_context=context,
        persistent_workers=persistent,
    )
    for _ in range(2):
        assert batches_of(loader) == batches_of(expected)


def stateful_loader(workers=0, every=1, persistent=False, set_epoch=None):
    sampler = make_sampler()
    if set_epoch is not None:
        sampler.set_epoch(set_epoch)
    return StatefulDataLoader(
        Echo(),
        batch_size=BATCH,
        sampler=sampler,
        num_workers=workers,
        snapshot_every_n_steps=every,
        persistent_workers=persistent,
    )


LOADERS = [(0, 3, False), (2, 3, True)]


@pytest.mark.parametrize(("workers", "every", "persistent"), LOADERS)
def test_stateful_loader_resumes_a_set_epoch(workers, every, persistent):
    """With `set_epoch` before each epoch, a resumed run equals an uninterrupted one."""
    reference = stateful_loader()
    reference.sampler.set_epoch(5)
    fifth = batches_of(reference)
    reference.sampler.set_epoch(6)
    sixth = batches_of(reference)
    stopped = stateful_loader(workers, every, persistent, set_epoch=5)
    iterator = iter(stopped)
    head = [next(iterator).tolist() for _ in range(4)]
    resumed = stateful_loader(workers, every, persistent)
    resumed.load_state_dict(stopped.state_dict())
    resumed.sampler.set_epoch(5)
    assert head + batches_of(resumed) == fifth
    resumed.sampler.set_epoch(6)
    assert batches_of(resumed) == sixth


RESUME_ELSEWHERE = """
import json, sys
import test_sampler_frameworks as t
if __name__ == "__main__":
    loader = t.stateful_loader(int(sys.argv[1]))
    loader.load_state_dict(json.load(sys.stdin))
    print(json.dumps(t.batches_of(loader)))
"""


def test_stateful_loader_resumes_in_a_new_process():
    """A state, as JSON, resumes in another process in the middle of an epoch."""
    whole = batches_of(stateful_loader())
    loader = stateful_loader(2)
    iterator = iter(loader)
    head = [next(iterator).tolist() for _ in range(4)]
    state = json.dumps(loader.state_dict())
    run = run_python("-c", RESUME_ELSEWHERE, 2, input=state)
    assert head + json.loads(run.stdout) == whole


@pytest.mark.parametrize("replicas", [1, 3])
def test_stateful_loader_resumes_on_other_ranks(replicas):
    """After two ranks stop, any number of ranks reads each remaining sample once."""
    seen = []
    for rank in range(2):
        loader = StatefulDataLoader(Echo(), batch_size=BATCH, sampler=make_sampler(rank))
        iterator = iter(loader)
        seen += [index for _ in range(4) for index in next(iterator).tolist()]
        state = loader.state_dict()
    for rank in range(replicas):
        sampler = DistributedShardSampler(
            Echo(), replicas, rank, streams=1, interleave=3, pad=False
        )
        loader = StatefulDataLoader(Echo(), batch_size=BATCH, sampler=sampler)
        loader.load_state_dict(state)
        seen += [index for batch in batches_of(loader) for index in batch]
    assert sorted(seen) == list(range(103))


def as_nodes(rank=0, replicas=2, method="thread"):
    """Give torchdata's nodes the batches of a rank."""
    drawn = torchdata.nodes.SamplerWrapper(BatchSampler(make_sampler(rank, replicas), BATCH))
    read = torchdata.nodes.ParallelMapper(drawn, list, num_workers=2, method=method)
    return torchdata.nodes.Loader(torchdata.nodes.Prefetcher(read, prefetch_factor=2))


@pytest.mark.parametrize("method", ["thread", pytest.param("process", marks=pytest.mark.slow)])
def test_nodes_of_torchdata_resume(method):
    """A resumed run has the batches and the states of one that was not stopped, epoch by epoch."""
    whole, saved, loader = [], [], as_nodes(method=method)
    for _ in range(3):
        for batch in loader:
            whole.append(batch)
            saved.append(loader.state_dict())
    indexes = BatchSampler(make_sampler(), BATCH)
    assert whole == [list(batch) for _ in range(3) for batch in indexes]
    num_batches = len(whole) // 3
    for used in (1, 4, num_batches + 1, num_batches + 5):
        resumed = as_nodes(method=method)
        resumed.load_state_dict(json.loads(json.dumps(saved[used - 1])))
        rest = []
        while len(rest) < len(whole) - used:
            for batch in resumed:
                rest.append(batch)
                # The loader's own count beside the state of its nodes is one more after loading.
                assert resumed.state_dict()["root"] == saved[used + len(rest) - 1]["root"]
        assert rest == whole[used:]


def test_nodes_of_torchdata_go_on_with_other_ranks():
    """The samples of an epoch that two ranks began and three end come once, but for the padding."""
    seen = []
    for rank in range(2):
        loader = as_nodes(rank)
        seen += [index for batch in islice(loader, 3) for index in batch]
    state = json.dumps(loader.state_dict())
    for rank in range(3):
        loader = as_nodes(rank, 3)
        loader.load_state_dict(json.loads(state))
        seen += [index for batch in loader for index in batch]
    counts = Counter(seen)
    assert set(counts) == set(range(len(Echo())))
    assert counts.total() - len(counts) < 3
