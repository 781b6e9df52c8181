"""Batches that are planned for a whole epoch: drawn in a pass, saved and restored at any of them.

    BatchPlan        how epochs are cut into batches: by cost (`costbatches`), by shape
                     (`shapebatches`)
    BatchRun         the batches of one rank, from some place in an epoch on
    PlannedBatches   what a `BatchSampler` with such a plan does
    PlannedPass      one pass of it

A state is that of the sampler, the same on all ranks. Within an epoch it also has what the plan
needs to go on; at the start and at the end of an epoch it is the sampler's own.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from wids.base.arguments import check_integer, check_mapping
from wids.ordering.passes import OrderState, Progress
from wids.ordering.randomseeds import IndexBatch
from wids.ordering.samplers import ChunkedSampler

__all__ = ["BatchPlan", "BatchRun", "PlannedBatches", "PlannedPass"]


class Detail(Protocol):
    """Where batches stand within an epoch, beside what the sampler says; the same on all ranks."""

    def to_dict(self) -> dict[str, Any]:
        """The same as a dict of plain values."""


Within = TypeVar("Within", bound=Detail)
Within_co = TypeVar("Within_co", bound=Detail, covariant=True)


class BatchRun(Protocol[Within_co]):
    """The batches of one rank, from some place in an epoch on."""

    @property
    def count(self) -> int:
        """Number of them."""

    @property
    def reached(self) -> int:
        """Position in the order of the sampler that the batches drawn so far have reached."""

    def batch(self) -> list[int]:
        """Draw the next one."""

    def place_after(self, batches: int) -> tuple[int, Within_co] | None:
        """The position and the place after some batches, at least 1; None at the epoch's end.

        If another rank has one batch more, the end of this rank's batches is not that of the epoch.
        """


class BatchPlan(Protocol[Within]):
    """How epochs are cut into batches."""

    def parse(self, saved: Mapping[str, Any]) -> Within:
        """Read back what `to_dict` of a place gave; ValueError if it is of other data."""

    def count(self, state: OrderState, within: Within | None) -> int:
        """Number of batches of this rank from a place on; None is the start of the epoch."""

    def begin(self, state: OrderState, within: Within | None) -> BatchRun[Within]:
        """Make the tables of an epoch."""


@dataclass(frozen=True)
class _Place(Generic[Within]):
    """Where batches stand; at the start and the end of an epoch the sampler's state says all."""

    order: OrderState
    within: Within | None

    @property
    def at_end(self) -> bool:
        return 0 < self.order.n == self.order.position

    def to_dict(self) -> dict[str, Any]:
        state = self.order.to_dict()
        return state if self.within is None else {**state, "batches": self.within.to_dict()}


class _PlannedProgress(Generic[Within]):
    """Progress of a pass, which is kept when the pass is gone."""

    def __init__(self, start: _Place[Within], of_sampler: Progress) -> None:
        self.start = start
        self.of_sampler = of_sampler
        self.run: BatchRun[Within] | None = None
        self.count = 0
        self.exhausted = False
        self.handed_out = 0

    def place(self, consumed: int | None = None) -> _Place[Within]:
        """The place after `consumed` batches; after those handed out, if that is not given."""
        start = self.start
        if consumed is None:
            consumed = self.handed_out
        if self.exhausted and consumed >= self.handed_out:
            return _Place(start.order.moved(start.order.n), None)
        if self.run is None or not consumed:
            return start
        reached = self.run.place_after(consumed)
        if reached is None:
            return _Place(start.order.moved(start.order.n), None)
        position, within = reached
        return _Place(start.order.moved(position), within)


class PlannedBatches(Generic[Within]):
    """What a `BatchSampler` does whose batches are planned.

    Args:
        sampler: Whose samples are drawn.
        plan: How its epochs are cut into batches.
    """

    def __init__(self, sampler: ChunkedSampler, plan: BatchPlan[Within]) -> None:
        self._sampler = sampler
        self._plan = plan
        self._resumed: _Place[Within] | None = None
        self._pass: _PlannedProgress[Within] | None = None

    def count(self, *, remaining: bool) -> int:
        """Number of batches on this rank: of a whole epoch, or of what is left of it."""
        state, _ = self._sampler.__planner__().course()
        if not remaining:
            return self._plan.count(state.moved(0), None)
        progress = self._pass
        if progress is not None and not progress.exhausted and progress.start.order == state:
            return progress.count - progress.handed_out
        place = self._at(state)
        return 0 if place.at_end else self._plan.count(place.order, place.within)

    def begin(self) -> "PlannedPass[Within]":
        """Begin a pass, as the sampler does."""
        indexes = iter(self._sampler)
        place = self._at(indexes.progress.start)
        return PlannedPass(self, _PlannedProgress(place, indexes.progress))

    def state_dict(self, consumed: int | None) -> dict[str, Any]:
        """Where the batches stand; arguments as those of `BatchSampler.state_dict`."""
        if consumed is not None:
            consumed = check_integer("consumed", consumed, 0)
        else:
            self._sampler.__planner__().drawn_ahead()
        return self._place(consumed).to_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any], *, strict: bool) -> None:
        """Go on where `state_dict` was taken."""
        place = self.parse(state_dict)
        self._sampler.load_state_dict(place.order.to_dict(), strict)
        self._resumed, self._pass = place, None

    def parse(self, state_dict: Mapping[str, Any]) -> _Place[Within]:
        """Read a place back from the dict that it gave, or from a sampler between epochs.

        Raises:
            TypeError: It is no dict.
            ValueError: It is none, or was taken with other batches.
        """
        check_mapping("state_dict", state_dict, "what state_dict() of a BatchSampler returned")
        order = OrderState.parse({k: v for k, v in state_dict.items() if k != "batches"})
        if order.position in (0, order.n):
            return _Place(order, None)
        if "batches" not in state_dict:
            raise ValueError(
                "the state is of a sampler in the middle of an epoch, whose remaining samples "
                "cannot be put into batches of one cost or shape; finish the epoch as it was begun"
            )
        return _Place(order, self._plan.parse(state_dict["batches"]))

    def start(self, progress: _PlannedProgress[Within]) -> int:
        """Make the tables of a pass that is about to hand out its first batch; return the ranks."""
        place = progress.start
        if not place.at_end:
            progress.run = self._plan.begin(place.order, place.within)
            progress.count = progress.run.count
        self._pass = progress
        self._sampler.__planner__().begun(progress.of_sampler)
        return self._sampler.num_replicas

    def end(self, progress: _PlannedProgress[Within]) -> None:
        """Take note that a pass has handed out its last batch."""
        progress.exhausted = progress.of_sampler.exhausted = True
        self._sampler.__planner__().ended(progress.of_sampler)

    def forget(self) -> None:
        """Take note that an epoch was set: the pass under way, if any, is told of no longer."""
        self._pass = None

    def _place(self, consumed: int | None) -> _Place[Within]:
        """The place now: of the pass under way, or between two passes."""
        # The start of the pass under way, or the end of one that is over; whatever was done to the
        # sampler itself shows in it.
        state = OrderState.parse(self._sampler.state_dict(consumed=0))
        progress = self._pass
        if progress is not None:
            # A loader may have asked for the last batch long before it is used; but none used at
            # all is what a loop says between two passes.
            if progress.exhausted and state.position == state.n:
                return progress.place(consumed or None)
            if progress.start.order == state:
                return progress.place(consumed)
        elif consumed:
            raise ValueError(f"consumed is {consumed}, but no pass has begun: nothing is used")
        return self._at(state)

    def _at(self, state: OrderState) -> _Place[Within]:
        if self._resumed is not None and self._resumed.order == state:
            return self._resumed
        if state.position not in (0, state.n):
            raise ValueError(
                "the sampler stands in the middle of an epoch; to resume batches by cost or shape, "
                "load the state of the BatchSampler, into it"
            )
        return _Place(state, None)


class PlannedPass(Iterator[IndexBatch], Generic[Within]):
    """One pass of a `BatchSampler` whose batches are planned."""

    def __init__(self, batches: PlannedBatches[Within], progress: _PlannedProgress[Within]) -> None:
        self._batches = batches
        self._progress = progress
        self._begun = False
        self._ranks = 1

    def __next__(self) -> IndexBatch:
        progress = self._progress
        # The tables of an epoch are made with the first batch, so an unused pass costs nothing.
        if not self._begun:
            self._ranks = self._batches.start(progress)
            self._begun = True
        run = progress.run
        if run is None or progress.handed_out == progress.count:
            if not progress.exhausted:
                self._batches.end(progress)
            raise StopIteration
        batch = IndexBatch(run.batch())
        order = progress.start.order
        batch.seed, batch.epoch = order.seed, order.epoch
        progress.handed_out += 1
        # For those who look ahead of the sampler, to fetch what comes.
        progress.of_sampler.pass_over(max(0, run.reached - order.position) // self._ranks)
        return batch

    def state_dict(self) -> dict[str, Any]:
        """Where the pass stands, as a small dict of plain values."""
        return self._progress.place().to_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on where the pass stood whose `state_dict` this is; before the first batch only."""
        place = self._batches.parse(state_dict)
        self._progress.of_sampler.restart(place.order)
        self._progress = _PlannedProgress(place, self._progress.of_sampler)
