"""State of a run, and the pass of a sampler over one epoch.

    OrderState      order of a run and position in it: what is saved
    Pass            the pass of a rank: its start, and what it has handed out
    PassIterator    iterator over the indexes of a pass, or over its batches

A pass computes its items, indexes or batches, in lists of up to some thousand: the blocks of a
pass, which have nothing to do with those of the order.

At the end of an epoch `e` of `n` samples, the state is `(e, n)` as long as the loop over the epoch
goes on, and the rest that is restored from it is empty; after the loop it is `(e + 1, 0)`.
"""

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from itertools import chain
from typing import Any, Self, TypeAlias, TypeVar, cast

from wids.base.arguments import check_choice, check_flag, check_integer, check_mapping
from wids.ordering.order import PARTITIONS, OrderSpec, Share

__all__ = [
    "MOST_STREAMS",
    "OrderState",
    "Pass",
    "PassIterator",
    "more_than_drawn",
]

Item = TypeVar("Item")
# How many ranks took how many steps, for each change of the number of ranks.
Segments: TypeAlias = tuple[tuple[int, int], ...]

ORDER_VERSION = 2
MOST_STREAMS = 1 << 20


def _check_segments(name: str, value: Any) -> Segments:
    return tuple(
        (check_integer(f"ranks of {name}", ranks, 1), check_integer(f"steps of {name}", steps, 0))
        for ranks, steps in value
    )


# Each check returns a plain value.
_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "seed": check_integer,
    "epoch": partial(check_integer, least=0),
    "partition": partial(check_choice, known=PARTITIONS),
    # A damaged state may hold any number, and each stream takes memory.
    "streams": partial(check_integer, least=1, most=MOST_STREAMS),
    "interleave": partial(check_integer, least=1),
    "shuffle": check_flag,
    "shufflefirst": check_flag,
    "consumed": check_integer,
    "num_samples": check_integer,
    "pool": partial(check_integer, least=0),
    "segments": _check_segments,
}


@dataclass(frozen=True, kw_only=True)
class OrderState(OrderSpec):
    """State of a run, the same on all ranks: its order, and its position in it.

    Attributes:
        consumed: Samples of the epoch that all ranks together have used.
        num_samples: Samples of an epoch.
        layout: Hash of the samples that take part and of their chunks.
        samples: Hash of where some of them lie; "" if that is not known.
        plan: Hash of the costs or shapes by which batches are planned; "" without a plan, and at
            the start and the end of an epoch.
        pool: Number of the pool in the epoch, if batches are planned.
        segments: How many ranks took how many steps of that pool, for each change of their number.
    """

    consumed: int = 0
    num_samples: int
    layout: str
    samples: str = ""
    plan: str = ""
    pool: int = 0
    segments: Segments = ()

    def __post_init__(self) -> None:
        for name, check in _CHECKS.items():
            object.__setattr__(self, name, check(name, getattr(self, name)))
        check_integer("consumed", self.consumed, 0, self.num_samples)

    @classmethod
    def parse(cls, state_dict: Mapping[str, Any]) -> Self:
        """Parse the dict that `to_dict` returned.

        Raises:
            TypeError: It is not a dict, or a value has another type.
            ValueError: It is not a state, has another version, or its numbers are out of range.
        """
        check_mapping("state_dict", state_dict, "what state_dict() of a sampler returned")
        version = state_dict.get("version", state_dict.get("order"))  # its name in version 1
        # Unknown keys are ignored: a later release may have added them.
        names = [field.name for field in fields(cls)]
        missing = [name for name in names if name not in state_dict]
        if missing or version != ORDER_VERSION:
            raise ValueError(
                f"state_dict has version {version!r} of the order, this release has version "
                f"{ORDER_VERSION}, and it lacks {', '.join(missing) or 'nothing'}: finish an epoch "
                "with the release of wids that began it, or begin one with set_epoch; of the state "
                "of a wids.Loader, pass the item 'sampler'"
            )
        return cls(**{name: state_dict[name] for name in names})

    def to_dict(self) -> dict[str, Any]:
        """Return the state as a dict of plain values, which can be written as JSON."""
        segments = [list(segment) for segment in self.segments]
        return {"version": ORDER_VERSION, **asdict(self), "segments": segments}

    def moved(self, consumed: int, plan: str = "", pool: int = 0, segments: Segments = ()) -> Self:
        """Return the state at another position of the same epoch, at most its end."""
        consumed = min(consumed, self.num_samples)
        return replace(self, consumed=consumed, plan=plan, pool=pool, segments=segments)


class Pass:
    """Pass of a sampler over an epoch on one rank.

    The sampler keeps it after its iterator is deleted. It has no reference to the sampler, so that
    the sampler and its dataset are freed with their last reference, not by the garbage collector.

    Attributes:
        start: State at which the pass begins.
        share: The positions of this rank, as soon as the pass has begun.
        done: Whether another index was requested after the last one.
        batch_size: Indexes are used by so many.
    """

    def __init__(self, start: OrderState) -> None:
        self.start = start
        self.share: Share | None = None
        self.done = False
        self.batch_size = 1
        # The number of computed items, and an iterator over the last block of them, in one tuple:
        # another thread must not see the one without the other.
        self._computed: tuple[int, Iterator[Any]] = (0, iter(()))

    def next_block(self, blocks: Iterator[list[Any]]) -> Iterator[Any] | None:
        """Return an iterator over the next block; None at the end of the pass."""
        block = next(blocks, None)
        if block is None:
            self.done = True
            return None
        items = iter(block)
        self._computed = (self._computed[0] + len(block), items)
        return items

    @property
    def handed_out(self) -> int:
        """Number of indexes that the pass has yielded; may be read from any thread."""
        # A list iterator knows how much it has left, so counting costs nothing per index.
        computed, block = self._computed
        return computed - operator.length_hint(block)

    @property
    def num_indexes(self) -> int:
        """Number of indexes that the pass has used, if it yields batches."""
        return self.handed_out

    def after(self, consumed: int | None = None) -> OrderState:
        """Return the state after some indexes; by default all that were handed out.

        Raises:
            ValueError: More were consumed than were handed out, and the pass goes on.
        """
        if self.share is None:
            return self.start
        handed_out = self.handed_out
        if consumed is None:
            # By steps, not by indexes: the last batch of some ranks may have an index less.
            consumed = -(-handed_out // self.batch_size) * self.batch_size
        # At the end of a pass, steps times batch size may be more than there were indexes.
        elif consumed > handed_out and handed_out < self.share.count:
            raise more_than_drawn(consumed, "indexes", handed_out)
        ranks, n = self.share.num_replicas, self.start.num_samples
        position = self.start.consumed + consumed * ranks
        # What is dropped at the end belongs to the end.
        if self.share.tail == "drop" and consumed and n - position < ranks:
            position = n
        return self.start.moved(position)


def more_than_drawn(consumed: int, things: str, drawn: int) -> ValueError:
    """Return the error for a state after more indexes or batches than a pass has handed out."""
    return ValueError(
        f"consumed={consumed:,} {things} of this rank, but its pass has handed out {drawn:,}, so "
        f"the others would be lost: count the {things} of this rank alone, from where this process "
        "began the pass"
    )


class PassIterator(chain[Item]):
    """Iterator over the indexes of a pass, or over its batches, as fast as that of a list.

    It keeps the epoch and the position that the sampler had when the iterator was made. torchdata's
    `StatefulDataLoader` saves and restores it in addition to the sampler: when it saves the state
    after the last batch, it has already asked the sampler for the next one.

    Attributes:
        run: The pass.
    """

    run: Pass

    @classmethod
    def over(cls, run: Pass, blocks: Iterator[list[Item]]) -> Self:
        """Return the iterator over the blocks of a pass that has not begun."""
        # In a chain no Python code runs between two indexes of a block; a generator takes twice
        # the time, a class with `__next__` five times.
        this = cast("Self", cls.from_iterable(iter(partial(run.next_block, blocks), None)))
        this.run = run
        return this

    def state_dict(self, consumed: int | None = None) -> dict[str, Any]:
        """Return the state after some items of this pass; by default all that were yielded."""
        return self.run.after(consumed).to_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue where `state_dict` of a pass was called; only before the first item."""
        self.run.start = OrderState.parse(state_dict)
