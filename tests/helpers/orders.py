"""What several tests of samplers share: a dataset of numbers, drawn orders, checks of resuming."""

import json

from hypothesis import strategies as st
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import wids
from wids.ordering.order import PARTITIONS


class Numbers(list):
    """A dataset of its own indexes, in shards of the given lengths."""

    def __init__(self, lengths):
        super().__init__(range(sum(lengths)))
        self.lengths = lengths


@st.composite
def order_options(draw):
    """Draw the arguments of an `OrderSpec`, apart from its layout."""
    return {
        "seed": draw(st.integers(-(2**70), 2**70)),
        "partition": draw(st.sampled_from(PARTITIONS)),
        "streams": draw(st.integers(1, 5)),
        "interleave": draw(st.sampled_from([1, 3, 16])),
        "shuffle": draw(st.sampled_from([True, True, False])),
    }


def make_loader(kind, dataset, batches):
    """Return a loader of one of three kinds over a batch sampler.

    Args:
        kind: "wids", "stateful", or "stateful with workers".
        dataset: The dataset.
        batches: The batch sampler.
    """
    if kind == "wids":
        return wids.Loader(dataset, batch_sampler=batches, num_workers=2)
    workers = 2 if "workers" in kind else 0
    return StatefulDataLoader(dataset, batch_sampler=batches, num_workers=workers)


def check_resuming(make, steps=None):
    """Check that a loader resumes after some batches, and continues with the next epoch.

    Args:
        make: Returns a new loader, always the same one.
        steps: Number of batches before it is saved; None for a whole epoch.
    """
    whole = make()
    epochs = [[list(map(int, batch)) for batch in whole] for _ in range(2)]
    steps = len(epochs[0]) if steps is None else min(steps, len(epochs[0]))
    stopped = make()
    iterator = iter(stopped)
    head = [list(map(int, next(iterator))) for _ in range(steps)]
    resumed = make()
    resumed.load_state_dict(json.loads(json.dumps(stopped.state_dict())))
    assert head + [list(map(int, batch)) for batch in resumed] == epochs[0]
    assert [list(map(int, batch)) for batch in resumed] == epochs[1]


def check_consumed_batches(make_batches, dataset):
    """Check that batches can be resumed after `consumed` of them, which a DataLoader prefetches.

    Args:
        make_batches: Returns a new batch sampler, always the same one.
        dataset: Its dataset.
    """
    whole = list(make_batches())
    batches = make_batches()
    iterator = iter(DataLoader(dataset, batch_sampler=batches, num_workers=2))
    for _ in range(3):
        next(iterator)
    resumed = make_batches()
    resumed.load_state_dict(batches.state_dict(consumed=3))
    assert resumed.remaining() == len(whole) - 3
    assert list(resumed) == whole[3:]
    return batches
