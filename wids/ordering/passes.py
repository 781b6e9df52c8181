"""One pass over an epoch on one rank: the iterator of a sampler, and its progress."""

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
]

AnyOrder: TypeAlias = EpochOrder | MixtureOrder | WeightedOrder

# Each lane takes some bytes; no cluster has so many ranks, and a damaged state may say anything.
MAX_LANES = 1 << 20

# The first blocks are small, so that the first batch does not wait for thousands of indexes.
# A block of thousands is what makes an index cheap: numpy's calls are shared by all of them.
_FIRST_BLOCK, _LAST_BLOCK = 256, 16384


@dataclass(frozen=True, kw_only=True)
class OrderState:
    """State of a run, the same on all ranks: its order, and its position in it.

    Attributes:
        order: Version of the order's algorithm.
        epoch: Epoch under way.
        position: Samples of it that all ranks together have consumed.
        seed: As given to the sampler, like the next five.
        shuffle: False for storage order.
        shufflefirst: False if the chunks of epoch 0 keep storage order.
        partition: How chunks come to lanes.
        lanes: Number of lanes.
        interleave: Chunks that a lane draws from at once.
        first: Index of the first sample that takes part.
        n: Number of samples that take part.
        layout: Hash of how they are cut into chunks.
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

    @classmethod
    def parse(cls, state_dict: Mapping[str, Any]) -> "OrderState":
        """Read a state back from the plain dict that `to_dict` gave.

        Raises:
            TypeError: It is no dict.
            ValueError: It is none, it is of another version, or its numbers contradict each other.
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
        missing = [name for name in names if name not in state_dict]
        if missing:
            raise ValueError(
                f"state_dict is no state of a sampler: it lacks {', '.join(missing)}; it has "
                f"{', '.join(map(str, state_dict)) or 'nothing'}"
            )
        values = {field.name: _parsed(field, state_dict[field.name]) for field in fields(cls)}
        state = cls(**values)
        if state.order != ORDER_VERSION:
            raise ValueError(
                f"the state is of order version {state.order!r}, this library knows version "
                f"{ORDER_VERSION}; finish the epoch with the version of wids that began it"
            )
        if not 0 <= state.position <= state.n:
            raise ValueError(f"position must lie in [0, n = {state.n}], got {state.position}")
        check_partition(state.partition)
        for name, most in (("lanes", MAX_LANES), ("interleave", None)):
            check_integer(name, getattr(state, name), 1, most)
        return state

    def to_dict(self) -> dict[str, Any]:
        """The state as a dict of plain values, fit for JSON."""
        return asdict(self)

    def moved(self, position: int) -> "OrderState":
        """The same epoch at another position; past the end is at the end."""
        return replace(self, position=min(position, self.n))


def _parsed(field: "Field[Any]", value: object) -> Any:
    """Turn a value that was saved into what its field takes; integers and flags of any library."""
    if field.type is str:
        if isinstance(value, str):
            return value
        raise ValueError(f"{field.name} of a sampler's state must be a string, got {value!r}")
    # NumPy's bool is no integer by itself, but what it holds is.
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
    """What a sampler tells its passes, and those who look ahead of it.

    Attributes:
        plan: The order that a pass from a state follows, and the part of it that is this rank's.
        whole: The same, with the order of all ranks.
        share: The part alone, without the tables of the order.
        course: Where the pass under way began, or the next one will, and how many indexes it has
            handed out; from any thread.
        following: Where the pass after one from a state begins, if nobody sets another epoch.
        begun: To be called when a pass is about to hand out its first index.
        ended: To be called when a pass has handed out its last index.
        drawn_ahead: Warns if a loader has drawn indexes ahead of their use.
        each_once: Whether an epoch has each of its samples once.
    """

    plan: Callable[[OrderState], tuple[AnyOrder, RankShare]]
    whole: Callable[[OrderState], tuple[AnyOrder, RankShare]]
    share: Callable[[OrderState], RankShare]
    course: Callable[[], tuple[OrderState, int]]
    following: Callable[[OrderState], OrderState]
    begun: "Callable[[Progress], None]"
    ended: "Callable[[Progress], None]"
    drawn_ahead: Callable[[], None]
    each_once: bool

    def drawn_range(self, dataset: Any) -> tuple[int, int]:
        """Return the range `[first, stop)` that has all indexes that epochs can draw.

        Args:
            dataset: The dataset of the sampler.
        """
        # If samples are drawn by weight, an epoch repeats some and leaves out others, so its number
        # of samples says nothing about their indexes.
        if not self.each_once:
            return 0, len(dataset)
        start, _ = self.course()
        return start.first, start.first + start.n


class Progress:
    """Progress of a pass: where it began, and how many of its indexes were handed out.

    The sampler keeps it after the pass is deleted. It has no reference to the sampler, so that
    the sampler and its dataset are freed with their last reference, not by the garbage collector.

    Attributes:
        start: Where the pass begins.
        exhausted: True once the last index was handed out and the next one was asked for.
    """

    def __init__(self, start: OrderState) -> None:
        self.restart(start)

    def restart(self, start: OrderState) -> None:
        """Make this the progress of a pass from another state."""
        self.start = start
        self.exhausted = False
        self._plan: tuple[AnyOrder, RankShare] | None = None
        # Indexes computed, and the block that the last of them are in; in one piece, for threads.
        self._computed: tuple[int, Iterator[int]] = (0, iter(()))

    def next_block(self, planner: Planner) -> Iterator[int] | None:
        """Compute the next block of indexes; None at the end of the pass."""
        # The tables of an epoch are made with the first index, so an unused iterator costs nothing.
        if self._plan is None:
            self._plan = planner.plan(self.start)
            planner.begun(self)
        order, share = self._plan
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
        """Count indexes as handed out that were drawn by other means than `next_block`."""
        self._computed = (count, iter(()))

    @property
    def handed_out(self) -> int:
        """Number of indexes that the pass has yielded; may be asked from any thread."""
        # A list iterator knows how much it has left, so counting costs nothing per index.
        computed, block = self._computed
        return computed - operator.length_hint(block)

    def state(self, consumed: int | None = None) -> OrderState:
        """The state after `consumed` indexes; after those handed out, if that is not given."""
        if consumed is None:
            consumed = self.handed_out
        # All ranks then say the same, also where some have had one index less than others.
        if self.exhausted and consumed >= self.handed_out:
            return self.start.moved(self.start.n)
        # Of a pass that has not begun nothing was consumed.
        ranks = 0 if self._plan is None else self._plan[1].num_replicas
        return self.start.moved(self.start.position + consumed * ranks)


class EpochPass(chain[int]):
    """An iterator over one epoch's indexes on one rank, as fast as that of a list.

    It keeps the epoch and the position that the sampler had when it was made. torchdata's
    `StatefulDataLoader` saves and restores it by the two methods, beside the sampler itself: only
    the pass knows that it has come to its end and nothing is to follow.

    Attributes:
        progress: Where the pass began, and how many indexes were handed out.
    """

    progress: Progress

    @classmethod
    def begin(cls, planner: Planner, start: OrderState) -> "EpochPass":
        """Make a pass of a sampler from a state on."""
        progress = Progress(start)
        # In a chain no Python code runs between two indexes of a block; a generator takes twice
        # the time, a class with `__next__` five times.
        blocks = iter(partial(progress.next_block, planner), None)
        this = cast("EpochPass", cls.from_iterable(blocks))
        this.progress = progress
        return this

    def state_dict(self) -> dict[str, Any]:
        """Where the pass stands, as a small dict of plain values."""
        return self.progress.state().to_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on where the pass stood whose `state_dict` this is; before the first index only."""
        self.progress.restart(OrderState.parse(state_dict))
