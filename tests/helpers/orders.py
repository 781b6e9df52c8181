"""What several tests of samplers share: a dataset of numbers, drawn orders, checks of resuming."""

import json

from hypothesis import strategies as st

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
