"""What several tests of samplers share: a dataset of numbers, and drawn orders."""

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
