"""Batches that are planned for a whole epoch and can be saved and restored at any batch.

    BatchPlan        protocol of a plan: by cost (`costbatches`) or by shape (`shapebatches`)
    BatchRun         protocol of the batches of one rank, from a position in an epoch on
    PlannedBatches   the part of a `BatchSampler` that follows a plan
    PlannedPass      iterator over the batches of one epoch

A state is the state of the sampler, the same on all ranks. In the middle of an epoch it also holds
what the plan needs to continue; at the start and the end of an epoch it is the sampler's own.
"""

from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

from wids.base.arguments import check_integer, check_mapping
from wids.ordering.passes import OrderState, Progress, more_than_drawn
from wids.ordering.randomseeds import IndexBatch
from wids.ordering.samplers import ChunkedSampler, num_drawn_from

__all__ = ["BatchPlan", "BatchRun", "PlannedBatches", "PlannedPass"]


class Detail(Protocol):
    """Position in an epoch that a plan adds to the sampler's state; the same on all ranks."""

    def to_dict(self) -> dict[str, Any]:
        """Return the position as a dict of plain values."""


Within = TypeVar("Within", bound=Detail)
Within_co = TypeVar("Within_co", bound=Detail, covariant=True)


class BatchRun(Protocol[Within_co]):
    """Protocol of the batches of one rank, from a position in an epoch on."""

    @property
    def count(self) -> int:
        """Number of batches."""

    @property
    def reached(self) -> int:
        """Position in the order of the sampler that the batches drawn so far have reached."""

    def batch(self) -> list[int]:
        """Draw the next batch."""

    def point_after(self, batches: int) -> tuple[int, Within_co] | None:
        """Return position and resume point after at least 1 batch; None at the epoch's end.

        If another rank has one batch more, the end of this rank's batches is not that of the epoch.
        """


class BatchPlan(Protocol[Within]):
    """Protocol of a plan that divides epochs into batches."""

    sampler: ChunkedSampler

    def parse(self, saved: Mapping[str, Any]) -> Within:
        """Parse what `to_dict` of a point returned; ValueError if it belongs to other data."""

    def count(self, state: OrderState, within: Within | None) -> int:
        """Return the number of batches of this rank from a point on; None is the epoch's start."""

    def begin(self, state: OrderState, within: Within | None) -> BatchRun[Within]:
        """Compute the tables of an epoch, and return its batches from a point on."""


@dataclass(frozen=True)
class _ResumePoint(Generic[Within]):
    """Position in a run; `within` is None at the start and the end of an epoch."""

    order: OrderState
    within: Within | None

    @property
    def at_end(self) -> bool:
        return 0 < self.order.n == self.order.position

    def to_dict(self) -> dict[str, Any]:
        state = self.order.to_dict()
        return state if self.within is None else {**state, "batches": self.within.to_dict()}


class _PlannedProgress(Generic[Within]):
    """Progress of a pass; it is kept after the pass is deleted."""

    def __init__(self, start: _ResumePoint[Within], of_sampler: Progress) -> None:
        self.start = start
        self.of_sampler = of_sampler
        self.run: BatchRun[Within] | None = None
        self.count = 0
        self.exhausted = False
        self.handed_out = 0

    def resume_point(
        self, consumed: int | None = None, *, looping: bool = False
    ) -> _ResumePoint[Within]:
        """Return the resume point after some batches; arguments as those of `Progress.state`."""
        start = self.start
        if consumed is None:
            consumed = self.handed_out
        if self.exhausted and consumed >= self.handed_out and not looping:
            return _ResumePoint(start.order.moved(start.order.n), None)
        if consumed > self.handed_out and (self.run is None or self.handed_out < self.count):
            raise more_than_drawn(consumed, "batches", self.handed_out)
        if self.run is None or not consumed:
            return start
        reached = self.run.point_after(consumed)
        if reached is None:
            return _ResumePoint(start.order.moved(start.order.n), None)
        position, within = reached
        return _ResumePoint(start.order.moved(position), within)


class PlannedBatches(Generic[Within]):
    """The part of a `BatchSampler` that follows a plan.

    Args:
        sampler: Draws the samples.
        plan: Divides its epochs into batches.
        resumed: Where the next pass begins, if within an epoch.
    """

    def __init__(
        self,
        sampler: ChunkedSampler,
        plan: BatchPlan[Within],
        resumed: _ResumePoint[Within] | None = None,
    ) -> None:
        self._sampler = sampler
        self._plan = plan
        self._resumed = resumed
        self._pass: _PlannedProgress[Within] | None = None

    def count(self, *, remaining: bool) -> int:
        """Return the number of batches on this rank, of a whole epoch or of its remainder."""
        state, _ = self._sampler.__planner__().course()
        progress = self._pass
        # An epoch that was set comes again after a complete pass.
        if progress is not None and progress.exhausted:
            state = replace(state, epoch=self._sampler.epoch)
        if not remaining:
            return self._plan.count(state.moved(0), None)
        if progress is not None and not progress.exhausted and progress.start.order == state:
            return progress.count - progress.handed_out
        point = self._at(state)
        return 0 if point.at_end else self._plan.count(point.order, point.within)

    def begin(self) -> "PlannedPass[Within]":
        """Return a pass that begins at the sampler's position."""
        indexes = iter(self._sampler)
        point = self._at(indexes.progress.start)
        progress = _PlannedProgress(point, indexes.progress)
        return PlannedPass(self, progress, num_drawn_from(self._sampler))

    def state_dict(self, consumed: int | None, *, looping: bool = False) -> dict[str, Any]:
        """Return the state; arguments as those of `Progress.state`."""
        planner = self._sampler.__planner__()
        if consumed is not None:
            consumed = check_integer("consumed", consumed, 0)
        else:
            planner.drawn_ahead()
        looping = consumed is not None and (looping or planner.looping())
        return self._resume_point(consumed, looping=looping).to_dict()

    def copied(self) -> tuple[ChunkedSampler, "PlannedBatches[Within]"]:
        """Return a copy of the sampler and of these batches, at the same position."""
        progress = self._pass
        if progress is None or progress.exhausted:
            sampler, point = copy(self._sampler), self._resumed
        else:
            point = progress.resume_point()
            sampler = self._sampler.__planner__().copied(point.order)
        plan = copy(self._plan)
        plan.sampler = sampler
        return sampler, PlannedBatches(sampler, plan, point)

    def load_state_dict(self, state_dict: Mapping[str, Any], *, strict: bool) -> None:
        """Continue where `state_dict` was called."""
        point = self.parse(state_dict)
        self._sampler.load_state_dict(point.order.to_dict(), strict)
        self._resumed, self._pass = point, None

    def parse(self, state_dict: Mapping[str, Any]) -> _ResumePoint[Within]:
        """Parse the state of a `BatchSampler`, or that of a sampler between two epochs.

        Raises:
            TypeError: It is not a dict.
            ValueError: It is not a state, or belongs to other batches.
        """
        check_mapping("state_dict", state_dict, "what state_dict() of a BatchSampler returned")
        order = OrderState.parse({k: v for k, v in state_dict.items() if k != "batches"})
        if order.position in (0, order.n):
            return _ResumePoint(order, None)
        if "batches" not in state_dict:
            raise ValueError(
                "expected the state of a BatchSampler by cost or shape, got that of a sampler in "
                "the middle of an epoch; finish the epoch with the batches that began it"
            )
        return _ResumePoint(order, self._plan.parse(state_dict["batches"]))

    def start(self, progress: _PlannedProgress[Within]) -> tuple[int, int]:
        """Compute the tables of a pass before its first batch; return number of ranks and rank."""
        point = progress.start
        if not point.at_end:
            progress.run = self._plan.begin(point.order, point.within)
            progress.count = progress.run.count
        self._pass = progress
        self._sampler.__planner__().begun(progress.of_sampler)
        return self._sampler.num_replicas, self._sampler.rank

    def check_ranks(self, num_replicas: int, rank: int) -> None:
        """Raise RuntimeError if a pass begun for these ranks is not this process's any more."""
        self._sampler.__planner__().check_ranks(num_replicas, rank)

    def end(self, progress: _PlannedProgress[Within]) -> None:
        """Record that a pass has handed out its last batch."""
        progress.exhausted = progress.of_sampler.exhausted = True
        self._sampler.__planner__().ended(progress.of_sampler)

    def forget(self) -> None:
        """Forget the pass in progress, because another epoch was set."""
        self._pass = None

    def _resume_point(self, consumed: int | None, *, looping: bool) -> _ResumePoint[Within]:
        """Return the current resume point: that of the pass in progress, or between two passes."""
        # The start of the pass in progress, or the end of a finished one. It also shows whether
        # the user changed the sampler itself.
        state = OrderState.parse(self._sampler.state_dict(consumed=0))
        progress = self._pass
        if progress is not None:
            # A loader may draw the last batch long before it is used, so `consumed` decides. But a
            # loop that saves between two passes reports 0, and then all batches were used.
            if progress.exhausted and state.position == state.n:
                return progress.resume_point(consumed or None, looping=looping)
            if progress.start.order == state:
                return progress.resume_point(consumed, looping=looping)
        elif consumed:
            raise ValueError(
                f"consumed must be 0 or None before the first pass begins, got {consumed}"
            )
        return self._at(state)

    def _at(self, state: OrderState) -> _ResumePoint[Within]:
        if self._resumed is not None and self._resumed.order == state:
            return self._resumed
        if state.position not in (0, state.n):
            raise ValueError(
                "the sampler is in the middle of an epoch; to resume batches by cost or shape, "
                "load the state of the BatchSampler into the BatchSampler"
            )
        return _ResumePoint(state, None)


class PlannedPass(Iterator[IndexBatch], Generic[Within]):
    """Iterator over one epoch of a `BatchSampler` whose batches are planned."""

    def __init__(
        self,
        batches: PlannedBatches[Within],
        progress: _PlannedProgress[Within],
        drawn_from: int | None,
    ) -> None:
        self._batches = batches
        self._progress = progress
        self._drawn_from = drawn_from
        self._begun = False
        self._ranks = 1, 0

    def __next__(self) -> IndexBatch:
        progress = self._progress
        # The tables of an epoch are made with the first batch, so an unused pass costs nothing.
        if not self._begun:
            self._ranks = self._batches.start(progress)
            self._begun = True
        self._batches.check_ranks(*self._ranks)
        run = progress.run
        if run is None or progress.handed_out == progress.count:
            if not progress.exhausted:
                self._batches.end(progress)
            raise StopIteration
        batch = IndexBatch(run.batch())
        order = progress.start.order
        batch.seed, batch.epoch = order.seed, order.epoch
        batch.drawn_from = self._drawn_from
        progress.handed_out += 1
        # `fetch_ahead` reads this progress of the sampler to know which shards come next.
        progress.of_sampler.pass_over(max(0, run.reached - order.position) // self._ranks[0])
        return batch

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the pass as a small dict of plain values."""
        return self._progress.resume_point().to_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue where `state_dict` of a pass was called; only before the first batch."""
        point = self._batches.parse(state_dict)
        self._progress.of_sampler.restart(point.order)
        self._progress = _PlannedProgress(point, self._progress.of_sampler)
