"""State of a run, and the pass of a sampler over one epoch.

    OrderState     order of a run and position in it: what is saved
    PoolPoint      position in the planned batches of a pool, as part of a state
    Pass           the pass of a rank: its start, and what it has handed out
    IndexPass      iterator over the indexes of a pass

At the end of an epoch `e` of `n` samples, the state is `(e, n)` as long as the loop over the epoch
goes on, and the rest that is restored from it is empty; after the loop it is `(e + 1, 0)`.
"""

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol, cast

from wids.base.arguments import check_choice, check_flag, check_integer, check_mapping, check_text
from wids.ordering.order import PARTITIONS, OrderSpec, Share
from wids.ordering.permute import Integers

if TYPE_CHECKING:
    from typing import Self

__all__ = [
    "MOST_STREAMS",
    "AnyOrder",
    "IndexPass",
    "OrderState",
    "Pass",
    "Planner",
    "PoolPoint",
    "more_than_drawn",
]

ORDER_VERSION = 2
# A damaged state may hold any number, and each stream takes memory.
MOST_STREAMS = 1 << 20
# The first blocks are small, so that the first batch does not wait for thousands of indexes.
# Later blocks are large, because the time of NumPy's calls is shared by all indexes of a block.
_FIRST_BLOCK, _LAST_BLOCK = 256, 16384


class AnyOrder(Protocol):
    """Protocol of the order of an epoch.

    Attributes:
        num_samples: Number of positions.
    """

    num_samples: int

    def at(self, positions: Integers) -> Integers:
        """Return the indexes at some positions; as `EpochOrder.at`."""


@dataclass(frozen=True)
class PoolPoint:
    """Position in the planned batches of a pool.

    Attributes:
        pool: Number of the pool in the epoch.
        segments: Number of ranks and number of steps, for each number of ranks that the pool was
            read by.
        plan: Hash of the costs or shapes by which batches are planned.
    """

    pool: int
    segments: tuple[tuple[int, int], ...]
    plan: str

    @classmethod
    def parse(cls, saved: Any) -> "PoolPoint":
        """Parse what `asdict` returned, also after JSON; ValueError if it is something else."""
        try:
            pool, plan = check_integer("pool", saved["pool"], 0), str(saved["plan"])
            segments = tuple(
                (check_integer("ranks", ranks, 1), check_integer("steps", steps, 0))
                for ranks, steps in saved["segments"]
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"batches of a state must be what state_dict() of a BatchSampler returned, got "
                f"{saved!r:.200}"
            ) from error
        return cls(pool, segments, plan)


@dataclass(frozen=True, kw_only=True)
class OrderState(OrderSpec):
    """State of a run, the same on all ranks: its order, and its position in it.

    Attributes:
        consumed: Samples of the epoch that all ranks together have used.
        num_samples: Samples of an epoch.
        layout: Hash of the samples that take part and of their chunks.
        samples: Hash of where some of them lie; "" if that is not known.
        batches: Position in a pool, if batches are planned and the epoch has begun.
    """

    consumed: int = 0
    num_samples: int
    layout: str
    samples: str = ""
    batches: PoolPoint | None = None

    @classmethod
    def parse(cls, state_dict: Mapping[str, Any]) -> "OrderState":
        """Parse the dict that `to_dict` returned.

        Raises:
            TypeError: It is not a dict, or a value has another type.
            ValueError: It is not a state, has another version, or its numbers are out of range.
        """
        check_mapping("state_dict", state_dict, "what state_dict() of a sampler returned")
        version = state_dict.get("version", 1 if "order" in state_dict else None)
        if version not in (None, ORDER_VERSION):
            raise ValueError(
                f"the state has version {version!r} of the order, this release has version "
                f"{ORDER_VERSION}, whose positions hold other samples: finish the epoch with the "
                "release of wids that began it, or begin an epoch with set_epoch"
            )
        known = {field.name: field.type for field in fields(cls) if field.name != "batches"}
        # Unknown keys are ignored: a later release may have added them.
        missing = [name for name in ("version", *known) if name not in state_dict]
        if missing:
            raise ValueError(
                f"state_dict is not the state of a sampler: it lacks {', '.join(missing)}; it has "
                f"{', '.join(map(str, state_dict)) or 'nothing'} (the state of a wids.Loader has "
                "that of its sampler as 'sampler')"
            )
        checks: dict[Any, Callable[[str, Any], Any]]
        checks = {int: check_integer, bool: check_flag, str: check_text}
        values = {
            name: checks[kind](f"{name} of a state", state_dict[name])
            for name, kind in known.items()
        }
        batches = state_dict.get("batches")
        state = cls(**values, batches=None if batches is None else PoolPoint.parse(batches))
        check_choice("partition of a state", state.partition, PARTITIONS)
        check_integer("epoch of a state", state.epoch, 0)
        check_integer("streams of a state", state.streams, 1, MOST_STREAMS)
        check_integer("interleave of a state", state.interleave, 1)
        check_integer("consumed of a state", state.consumed, 0, state.num_samples)
        return state

    def to_dict(self) -> dict[str, Any]:
        """Return the state as a dict of plain values, which can be written as JSON."""
        values = {"version": ORDER_VERSION, **asdict(self)}
        if self.batches is None:
            values.pop("batches")
        else:
            values["batches"]["segments"] = [list(each) for each in self.batches.segments]
        return values

    def moved(self, consumed: int, batches: PoolPoint | None = None) -> "OrderState":
        """Return the state at another position of the same epoch, at most its end."""
        return replace(self, consumed=min(consumed, self.num_samples), batches=batches)


@dataclass(frozen=True)
class Planner:
    """Functions of a sampler for its passes, for batches, and for code that looks ahead.

    Attributes:
        upcoming: Returns the state at which the next pass begins.
        order: Returns the order of the epoch of a state.
        share: Returns this rank's share of the positions from a state on.
        begin: Called before a pass hands out its first index.
        begun: Returns the pass that began last; None if there is none.
        following: Returns the start of the pass after one from a state, unless another epoch is
            set.
        restore: Continues from a state, after checking it unless its second argument is False.
    """

    upcoming: Callable[[], OrderState]
    order: Callable[[OrderState], AnyOrder]
    share: Callable[[OrderState], Share]
    begin: "Callable[[Pass], None]"
    begun: "Callable[[], Pass | None]"
    following: Callable[[OrderState], OrderState]
    restore: Callable[[OrderState, bool], None]

    def course(self) -> tuple[OrderState, int]:
        """Return the start of the pass in progress, or of the next, and its number of indexes used.

        May be called from another thread than the one that draws indexes.
        """
        begun = self.begun()
        if begun is None or begun.done:
            return self.upcoming(), 0
        return begun.start, begun.handed_out


class Pass:
    """Pass of a sampler over an epoch on one rank.

    The sampler keeps it after its iterator is deleted. It has no reference to the sampler, so that
    the sampler and its dataset are freed with their last reference, not by the garbage collector.

    Attributes:
        start: State at which the pass begins.
        done: Whether another index was requested after the last one.
        batch_size: Indexes are used by so many.
    """

    def __init__(self, start: OrderState) -> None:
        self.start = start
        self.done = False
        self.batch_size = 1
        self._plan: tuple[AnyOrder, Share] | None = None
        # The number of computed indexes and the last block, in one tuple: another thread must not
        # see the one without the other.
        self._computed: tuple[int, Iterator[int]] = (0, iter(()))

    def next_block(self, planner: Planner) -> Iterator[int] | None:
        """Compute the next block of indexes; return None at the end of the pass."""
        # The tables of an epoch are made with the first index, so an unused iterator costs nothing.
        if self._plan is None:
            self._plan = planner.order(self.start), planner.share(self.start)
            planner.begin(self)
        order, share = self._plan
        computed, _ = self._computed
        stop = min(share.count, computed + min(max(_FIRST_BLOCK, 4 * computed), _LAST_BLOCK))
        if stop == computed:
            self.done = True
            return None
        block: Iterator[int] = iter(order.at(share.positions(computed, stop)).tolist())
        self._computed = (stop, block)
        return block

    @property
    def handed_out(self) -> int:
        """Number of indexes that the pass has yielded; may be read from any thread."""
        # A list iterator knows how much it has left, so counting costs nothing per index.
        computed, block = self._computed
        return computed - operator.length_hint(block)

    @property
    def left(self) -> int:
        """Number of indexes that a pass that has begun has still to yield."""
        return 0 if self._plan is None else self._plan[1].count - self.handed_out

    def after(self, consumed: int | None = None) -> OrderState:
        """Return the state after some indexes; by default all that were handed out.

        Raises:
            ValueError: More were consumed than were handed out, and the pass goes on.
        """
        if self._plan is None:
            return self.start
        if consumed is None:
            # By steps, not by indexes: the last batch of some ranks may have an index less.
            consumed = -(-self.handed_out // self.batch_size) * self.batch_size
        # At the end of a pass, steps times batch size may be more than there were indexes.
        elif consumed > self.handed_out and self.left:
            raise more_than_drawn(consumed, "indexes", self.handed_out)
        _, share = self._plan
        position = self.start.consumed + consumed * share.num_replicas
        # What is dropped at the end belongs to the end.
        if share.tail == "drop" and consumed and share.num_samples - position < share.num_replicas:
            position = share.num_samples
        return self.start.moved(position)


def more_than_drawn(consumed: int, things: str, drawn: int) -> ValueError:
    """Return the error for a state after more indexes or batches than a pass has handed out."""
    return ValueError(
        f"consumed={consumed:,} {things} of this rank, but its pass has handed out {drawn:,}, so "
        f"the others would be lost: count the {things} of this rank alone, from where this process "
        "began the pass"
    )


class IndexPass(chain[int]):
    """Iterator over the indexes of a pass, as fast as the iterator of a list.

    It keeps the epoch and the position that the sampler had when the iterator was made. torchdata's
    `StatefulDataLoader` saves and restores it in addition to the sampler: when it saves the state
    after the last batch, it has already asked the sampler for the next one.

    Attributes:
        run: The pass.
    """

    run: Pass

    @classmethod
    def begin(cls, planner: Planner, start: OrderState) -> "Self":
        """Return the iterator of a pass that begins at a state."""
        run = Pass(start)
        # In a chain no Python code runs between two indexes of a block; a generator takes twice
        # the time, a class with `__next__` five times.
        this = cast("Self", cls.from_iterable(iter(partial(run.next_block, planner), None)))
        this.run = run
        return this

    def state_dict(self, consumed: int | None = None) -> dict[str, Any]:
        """Return the state after some indexes of this pass; by default all that were yielded."""
        return self.run.after(consumed).to_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue where `state_dict` of a pass was called; only before the first index."""
        self.run.start = OrderState.parse(state_dict)
