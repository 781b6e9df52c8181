"""`EpochPass`: iterator of a sampler over one epoch on one rank, its progress and its state."""

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, asdict, dataclass, fields, replace
from functools import partial
from itertools import chain
from typing import Any, SupportsIndex, TypeAlias, cast

from wids.base.arguments import check_integer, check_mapping
from wids.ordering.mixtureorder import MixtureOrder
from wids.ordering.order import ORDER_VERSION, EpochOrder, RankShare, check_partition
from wids.ordering.weighted import WeightedOrder

__all__ = [
    "MAX_LANES",
    "AnyOrder",
    "EpochPass",
    "OrderState",
    "Planner",
    "Progress",
    "more_than_drawn",
]

AnyOrder: TypeAlias = EpochOrder | MixtureOrder | WeightedOrder

# A damaged state may hold any number, and each lane takes memory; no cluster has so many ranks.
MAX_LANES = 1 << 20

# The first blocks are small, so that the first batch does not wait for thousands of indexes.
# Later blocks are large, because the time of numpy's calls is shared by all indexes of a block.
_FIRST_BLOCK, _LAST_BLOCK = 256, 16384


@dataclass(frozen=True, kw_only=True)
class OrderState:
    """State of a run, the same on all ranks: its order, and its position in it.

    Attributes:
        order: Version of the order's algorithm.
        epoch: Epoch in progress.
        position: Samples of it that all ranks together have consumed.
        seed: As given to the sampler, like the next five.
        shuffle: False for storage order.
        shufflefirst: False if the chunks of epoch 0 keep storage order.
        partition: How chunks are assigned to lanes.
        lanes: Number of lanes.
        interleave: Number of chunks that a lane draws from at once.
        first: Index of the first sample that takes part.
        n: Number of samples that take part.
        layout: Hash of their division into chunks.
        samples: Hash of where some of them lie; "" if that is not known.
    """

    order: int = ORDER_VERSION
    epoch: int
    position: int
    seed: int
    shuffle: bool
    shufflefirst: bool
    partition: str
    lanes: int
    interleave: int
    first: int
    n: int
    layout: str
    samples: str = ""

    @classmethod
    def parse(cls, state_dict: Mapping[str, Any]) -> "OrderState":
        """Parse the dict that `to_dict` returned.

        Raises:
            TypeError: It is not a dict.
            ValueError: It is not a state, has another version, or its numbers contradict each
                other.
        """
        check_mapping("state_dict", state_dict, "what state_dict() of a sampler returned")
        if "sampler" in state_dict:
            raise ValueError(
                "state_dict is the state of a wids.Loader; load it into a Loader, or load its "
                "entry 'sampler' into a sampler"
            )
        if "batches" in state_dict:
            raise ValueError(
                "state_dict is the state of batches by cost; load it into a BatchSampler with the "
                "same cost and max_cost"
            )
        names = [field.name for field in fields(cls)]
        # Unknown keys are ignored: a later version may have added them.
        missing = [name for name in names if name not in state_dict and name != "samples"]
        if missing:
            raise ValueError(
                f"state_dict is not the state of a sampler: it lacks {', '.join(missing)}; it has "
                f"{', '.join(map(str, state_dict)) or 'nothing'}"
            )
        # Earlier states do not say where samples lie.
        known = {"samples": "", **state_dict}
        values = {field.name: _parsed(field, known[field.name]) for field in fields(cls)}
        state = cls(**values)
        if state.order != ORDER_VERSION:
            raise ValueError(
                f"the state has order version {state.order!r}, this library has version "
                f"{ORDER_VERSION}; finish the epoch with the version of wids that began it"
            )
        if not 0 <= state.position <= state.n:
            raise ValueError(f"position must lie in [0, n = {state.n}], got {state.position}")
        check_integer("epoch", state.epoch, 0)
        check_partition(state.partition)
        for name, most in (("lanes", MAX_LANES), ("interleave", None)):
            check_integer(name, getattr(state, name), 1, most)
        return state

    def to_dict(self) -> dict[str, Any]:
        """Return the state as a dict of plain values, which can be written as JSON."""
        return asdict(self)

    def moved(self, position: int) -> "OrderState":
        """Return the state at another position of the same epoch, at most its end."""
        return replace(self, position=min(position, self.n))


def _parsed(field: "Field[Any]", value: object) -> Any:
    """Convert a saved value to the type of its field; integers and flags of any library."""
    if field.type is str:
        if isinstance(value, str):
            return value
        raise ValueError(f"{field.name} of a sampler's state must be a string, got {value!r}")
    # NumPy's bool has no `__index__`, but its Python value has.
    plain = value.item() if type(value).__module__ == "numpy" and hasattr(value, "item") else value
    try:
        number = operator.index(cast("SupportsIndex", plain))
    except TypeError:
        message = f"{field.name} of a sampler's state must be an integer, got {value!r}"
        raise ValueError(message) from None
    if field.type is bool and number not in (0, 1):
        raise ValueError(f"{field.name} of a sampler's state must be True or False, got {value!r}")
    return bool(number) if field.type is bool else number


@dataclass(frozen=True)
class Planner:
    """Functions of a sampler for its passes and for code that looks ahead.

    Attributes:
        plan: Returns the order of a pass that begins at a state, and this rank's share of it.
        whole: The same, with the order of all ranks.
        share: Returns the share alone, without computing the tables of the order.
        course: Returns the state at which the current or next pass begins, and the number of
            indexes that the pass has handed out; may be called from any thread.
        following: Returns the state at which the next pass after one begins, unless another epoch
            is set.
        begun: Called before a pass hands out its first index.
        compare: Compares the next pass with those of other ranks, once, and warns if they differ;
            each pass does so, unless it begins in a process forked from that of the rank.
        ended: Called after a pass has handed out its last index.
        check_ranks: Checks, given a number of ranks and a rank, that these are still the sampler's.
        drawn_ahead: Warns if a loader has drawn indexes before they are used.
        each_once: Whether an epoch has each sample exactly once.
        drawn: The range `(first, stop)` of all indexes that epochs can draw.
        looping: Whether a loop over the batches of the pass is known to go on.
        state: Returns the state after a number of indexes; its second argument is `looping`.
        copied: Returns a copy of the sampler that stands at a state.
    """

    plan: Callable[[OrderState], tuple[AnyOrder, RankShare]]
    whole: Callable[[OrderState], tuple[AnyOrder, RankShare]]
    share: Callable[[OrderState], RankShare]
    course: Callable[[], tuple[OrderState, int]]
    following: Callable[[OrderState], OrderState]
    begun: "Callable[[Progress], None]"
    compare: Callable[[], None]
    ended: "Callable[[Progress], None]"
    check_ranks: Callable[[int, int], None]
    drawn_ahead: Callable[[], None]
    each_once: bool
    drawn: tuple[int, int]
    looping: Callable[[], bool]
    state: Callable[[int | None, bool], OrderState]
    copied: Callable[[OrderState], Any]


class Progress:
    """Progress of a pass: its start, and the number of indexes handed out.

    The sampler keeps it after the pass is deleted. It has no reference to the sampler, so that
    the sampler and its dataset are freed with their last reference, not by the garbage collector.

    Attributes:
        start: State at which the pass begins.
        exhausted: Whether another index was requested after the last one.
    """

    def __init__(self, start: OrderState) -> None:
        self.restart(start)

    def restart(self, start: OrderState) -> None:
        """Start the pass again at another state."""
        self.start = start
        self.exhausted = False
        self._plan: tuple[AnyOrder, RankShare] | None = None
        # The number of computed indexes and the last block, in one tuple: another thread must not
        # see the one without the other.
        self._computed: tuple[int, Iterator[int]] = (0, iter(()))

    def next_block(self, planner: Planner) -> Iterator[int] | None:
        """Compute the next block of indexes; return None at the end of the pass."""
        # The tables of an epoch are made with the first index, so an unused iterator costs nothing.
        if self._plan is None:
            self._plan = planner.plan(self.start)
            planner.begun(self)
        order, share = self._plan
        planner.check_ranks(share.num_replicas, share.rank)
        computed, _ = self._computed
        stop = min(share.count, computed + min(max(_FIRST_BLOCK, 4 * computed), _LAST_BLOCK))
        if stop == computed:
            self.exhausted = True
            planner.ended(self)
            return None
        block: Iterator[int] = iter(order.at(share.positions(computed, stop)).tolist())
        self._computed = (stop, block)
        return block

    def pass_over(self, count: int) -> None:
        """Count indexes that were drawn without `next_block` as handed out."""
        self._computed = (count, iter(()))

    @property
    def handed_out(self) -> int:
        """Number of indexes that the pass has yielded; may be read from any thread."""
        # A list iterator knows how much it has left, so counting costs nothing per index.
        computed, block = self._computed
        return computed - operator.length_hint(block)

    def _count(self) -> float:
        """Return the number of indexes of the pass, which is not known before it begins."""
        return math.inf if self._plan is None else self._plan[1].count

    def state(self, consumed: int | None = None, *, looping: bool = False) -> OrderState:
        """Return the state after some indexes.

        Args:
            consumed: Number of them; by default all that were handed out.
            looping: Whether a loop over them is known to go on.

        Raises:
            ValueError: More were consumed than were handed out, and the pass goes on.
        """
        start = self.start
        if consumed is None:
            consumed = self.handed_out
        # At the end of a pass, steps times batch size may be more than there were indexes.
        elif consumed > (drawn := self.handed_out) and drawn < self._count():
            raise more_than_drawn(consumed, "indexes", drawn)
        # At the end all ranks return the same state, even if some had one index fewer. But within
        # a loop, a rank that has used its last index is no further than the others.
        if self.exhausted and consumed >= self.handed_out and not looping:
            return start.moved(start.n)
        # A pass that has not begun has consumed nothing.
        if self._plan is None:
            return start
        _, share = self._plan
        position = start.position + consumed * share.num_replicas
        # What is dropped at the end belongs to the end.
        if share.tail == "drop" and consumed and start.n - position < share.num_replicas:
            position = start.n
        return start.moved(position)


def more_than_drawn(consumed: int, things: str, drawn: int) -> ValueError:
    """Return the error for a state after more indexes or batches than a pass has handed out."""
    return ValueError(
        f"consumed={consumed:,} {things} of this rank, but its pass has handed out {drawn:,}, so "
        f"the others would be lost: count the {things} of this rank alone, from where this process "
        "began the pass"
    )


class EpochPass(chain[int]):
    """Iterator over one epoch's indexes on one rank, as fast as the iterator of a list.

    It keeps the epoch and the position that the sampler had when the iterator was made. torchdata's
    `StatefulDataLoader` saves and restores it in addition to the sampler, because only the
    iterator knows that it is exhausted.

    Attributes:
        progress: Start of the pass, and number of indexes handed out.
    """

    progress: Progress

    @classmethod
    def begin(cls, planner: Planner, start: OrderState) -> "EpochPass":
        """Return a pass of a sampler that begins at a state."""
        progress = Progress(start)
        # In a chain no Python code runs between two indexes of a block; a generator takes twice
        # the time, a class with `__next__` five times.
        blocks = iter(partial(progress.next_block, planner), None)
        this = cast("EpochPass", cls.from_iterable(blocks))
        this.progress = progress
        return this

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the pass as a small dict of plain values."""
        return self.progress.state().to_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue where `state_dict` of a pass was called; only before the first index."""
        self.progress.restart(OrderState.parse(state_dict))
