"""Samplers: the indexes of one rank in one epoch, from any position on.

    DistributedShardSampler     recommended, for one process or many: whole shards, shuffled in
                                each epoch, several of them mixed at a time
    DistributedChunkedSampler   one rank's share; each rank keeps its own range of the dataset
    ChunkedSampler              chunks of adjacent indexes, for one process
    ShardListSampler            shards, for one process

All take their order from `wids.ordering.order`. With torch installed they are subclasses of
`torch.utils.data.Sampler`, and the distributed ones of `torch.utils.data.DistributedSampler`, which
frameworks check for. Without torch they are plain classes that behave in the same way.
"""

import hashlib
import sys
from collections.abc import Mapping, Sequence, Sized
from copy import copy
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from wids.base.arguments import check_flag, check_integer, check_sized, refuse_unknown
from wids.base.warn import warn
from wids.ordering.chunks import Layout, chunk_layout, shard_lengths
from wids.ordering.drawing import Drawing, drawing_now
from wids.ordering.mixtureorder import MixtureLayout, MixtureSpec
from wids.ordering.order import OrderSpec, RankShare, check_partition
from wids.ordering.passes import (
    MAX_LANES,
    AnyOrder,
    EpochPass,
    OrderState,
    Planner,
    Progress,
)
from wids.ordering.permute import Integers
from wids.ordering.replicas import Replica, check_dealing, check_lanes, number_of_lanes
from wids.ordering.weighted import WeightedLayout, WeightedSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch.utils.data import DistributedSampler, Sampler
else:
    try:
        from torch.utils.data import DistributedSampler, Sampler
    except ImportError:

        class Sampler:
            """Substitute for torch's class where torch is not installed."""

            def __class_getitem__(cls, _item: object) -> type:
                return cls

        class DistributedSampler(Sampler):
            """Substitute for torch's class where torch is not installed."""


__all__ = [
    "ChunkedSampler",
    "DistributedChunkedSampler",
    "DistributedShardSampler",
    "ShardListSampler",
    "ShardedSampler",
    "check_drawn_from",
    "num_drawn_from",
]


Tail = Literal["pad", "drop", "ragged"]


class ChunkedSampler(Sampler[int]):
    """Shuffles chunks of adjacent indexes, and the indexes in each; for one process.

    For old code: `DistributedShardSampler` mixes more, and serves one process, too.

    The order of an epoch depends only on the arguments and the epoch. Each pass advances the epoch
    by one, even if the previous pass was left early. After a call of `set_epoch`, the epoch no
    longer advances by itself.

    Args:
        dataset: Anything with a length.
        dslength_per_replica: Accepted for old calls; `len()` is always what comes.
        num_samples: How many samples take part, or `(lo, hi)` for the indexes `[lo, hi)`; None for
            all.
        chunksize: Samples a chunk, at least 1; None for chunks as long as can be.
        seed: Any integer.
        shuffle: False for storage order.
        shufflefirst: False to keep the chunks in storage order in epoch 0, and those of each part
            of a mixture in its own epoch 0 (the samples in them are shuffled, and chunks are not
            mixed by `interleave`); by default the first epoch is shuffled like any other.
        partition: How chunks are lined up: "contiguous" (permuted each epoch), "fixed" or "global"
            (much the same in one process), or "uniform" (no chunks at all: a full shuffle).
        interleave: Chunks drawn from at once, at least 1.
        lengths: Samples in each shard; if given, no chunk straddles two shards.

    Attributes:
        dataset, seed, shuffle, shufflefirst, partition, interleave: As given; a change takes effect
            with the next pass.
        lanes: Parts of the order that are read in parallel.
        rank: This rank.
        num_replicas: Number of ranks.

    Raises:
        ValueError: An argument is out of its range; the message names it.

    >>> sampler = ChunkedSampler(range(10), chunksize=5, seed=1)
    >>> first, second = list(sampler), list(sampler)
    >>> first == second, sorted(first) == sorted(second) == list(range(10))
    (False, True)
    """

    rank = 0
    num_replicas = 1
    _lanes_by: str | None = None  # "rank" or "node", until their number is known for good

    def __init__(
        self,
        dataset: Sized,
        *,
        dslength_per_replica: int = -1,
        num_samples: int | tuple[int, int] | None = None,
        # The default of 0.1.11, so that old calls read as locally; so is the million below.
        chunksize: int | None = 2000,
        seed: int = 0,
        shuffle: bool = True,
        shufflefirst: bool | None = None,
        partition: str = "contiguous",
        interleave: int = 1,
        lengths: Sequence[int] | None = None,
    ) -> None:
        self._take(dataset, num_samples, chunksize, lengths)
        self._order_by(seed, partition, interleave)
        self._begin(shuffle=shuffle, shufflefirst=shufflefirst)
        if check_integer("dslength_per_replica", dslength_per_replica) not in (-1, len(self)):
            warn(
                f"dslength_per_replica={dslength_per_replica} has no effect: len() is the number "
                f"of indexes that come, {len(self)}; leave the argument out"
            )

    def _take(
        self,
        dataset: Sized,
        num_samples: int | tuple[int, int] | None,
        chunksize: int | None,
        lengths: Sequence[int] | Integers | None,
    ) -> None:
        """Set the samples that are drawn, and cut them into chunks."""
        self.dataset: Any = dataset
        mixed = getattr(dataset, "part_lengths", None)
        if mixed is not None and num_samples is not None:
            raise ValueError("num_samples of a mixture is given to the Mixture, not to its sampler")
        if mixed is not None and lengths is not None:
            warn(
                "lengths has no effect over a Mixture, whose parts have their own: leave it out, "
                "or give the lengths to a sampler over one dataset"
            )
        if _holds_mixture(dataset):
            warn(
                "a view, a concatenation or a Mixture of a Mixture is drawn from like any samples, "
                "so its weights have no effect: make the views of the parts, and one Mixture of "
                "all of them"
            )
        length = check_sized("dataset", dataset, "a dataset or a list")
        lo, hi = _bounds(num_samples, length)
        if chunksize is not None:
            chunksize = check_integer("chunksize", chunksize, 1, unless="None")
            # A chunk longer than the data is all of it; and it must fit into 64 bits.
            chunksize = chunksize if chunksize <= np.iinfo(np.int64).max else None
        shards = None if lengths is None else _checked_lengths(lengths, hi, length)
        self._first = lo
        self._samples = _hash_of_locations(dataset)
        self._layout: Layout | MixtureLayout | WeightedLayout
        if mixed is None:
            self._layout = chunk_layout(lo, hi, chunksize, shards)
            return
        parts = [chunk_layout(0, sum(part), chunksize, part) for part in mixed]
        mixture: Any = dataset
        self._layout = MixtureLayout(parts, mixture.weights, mixture.num_samples)

    def _order_by(
        self, seed: int, partition: str, interleave: int, lanes: int = 1, tail: Tail = "pad"
    ) -> None:
        """Set what determines the order of the samples."""
        # No attribute may be called `generator`: Accelerate seeds and synchronises one that it
        # finds.
        self.seed = check_integer("seed", seed)
        self.partition = partition
        self.interleave = interleave
        self.lanes = lanes
        self._tail: Tail = tail
        _check_open_shards(self.dataset, interleave)

    def _begin(self, *, shuffle: bool, shufflefirst: bool | None) -> None:
        """Set the position to the start of epoch 0."""
        # Old code assigns `sampler.shuffle` after construction, so it is read at each pass.
        self.shuffle = shuffle
        self.shufflefirst = shufflefirst is None or check_flag("shufflefirst", shufflefirst)
        # Whether the user or a framework sets the epoch; otherwise each pass advances it.
        self._pinned = False
        self._drawing = Drawing()
        self._restored = False
        self._set_start(0)

    def _set_start(self, epoch: int, resumed: OrderState | None = None) -> None:
        """Make the next pass begin at the start of an epoch, or at a state within it."""
        self._epoch = epoch
        self._resumed = resumed
        self._progress: Progress | None = None

    def __len__(self) -> int:
        """Number of indexes that a whole epoch yields on this rank."""
        # The lanes matter only if the ranks may differ in length. Counting them may communicate
        # with all ranks, while perhaps only one rank calls `len`.
        if self._tail == "ragged":
            return self._share(self._epoch_start(0)).count
        n = self._layout.num_samples
        return RankShare(n, self.rank, self.num_replicas, tail=self._tail).count

    def __iter__(self) -> EpochPass:
        """Return a pass from the restored position, else from the start of the epoch."""
        progress = self._progress
        # A pass that was left early is over. If it began again, the same samples would come in
        # every pass, and after a restore those before the restored position would never come.
        if progress is not None:
            left = not progress.exhausted and not self._pinned
            self._set_start(max(self._epoch, progress.start.epoch + left))
        return EpochPass.begin(self.__planner__(), self._order_state())

    def __planner__(self) -> Planner:
        """Functions of this sampler for its passes and for code that looks ahead."""
        each_once = not isinstance(self._layout, MixtureLayout | WeightedLayout)
        return Planner(
            self._plan,
            self._whole,
            self._share,
            self._course,
            self._following,
            self._begun,
            self._compare_next,
            self._ended,
            self._check_ranks,
            self._warn_of_drawn_ahead,
            each_once,
            # If samples are drawn by weight, an epoch repeats some and leaves out others, so its
            # number of samples says nothing about their indexes. The rank is not looked for here:
            # batches are planned before there is a process group.
            (self._first, self._first + self._layout.num_samples)
            if each_once
            else (0, len(self.dataset)),
            self._drawing.looping,
            self._state,
            self._copied,
        )

    def __repr__(self) -> str:
        parts = [self._words_of_the_samples(), *self._words_of_the_order(), *self._words_of_rank()]
        return f"{type(self).__name__}({', '.join(parts)}, seed {self.seed}, epoch {self.epoch})"

    def _words_of_the_samples(self) -> str:
        layout = self._layout
        drawn = f"{layout.num_samples:,} samples"
        if isinstance(layout, MixtureLayout):
            return f"{drawn} of a mixture of {len(layout.parts)} parts"
        if isinstance(layout, WeightedLayout):
            return f"{drawn} drawn {'by class' if layout.classes is not None else 'by weight'}"
        return drawn

    def _words_of_rank(self) -> list[str]:
        tail = {"drop": ["drop_last=True"], "ragged": ["pad=False"]}.get(self._tail, [])
        try:
            rank = [f"rank {self.rank} of {self.num_replicas}"] if self.num_replicas > 1 else []
        except ValueError:  # as long as only the number of ranks is known
            rank = ["rank unknown"]
        return rank + tail

    def _words_of_the_order(self) -> list[str]:
        if not self.shuffle:
            return ["in storage order"]
        if self.partition == "uniform":
            return ["fully shuffled"]
        layout, mixed = self._layout, min(self.interleave, self._layout.num_chunks)
        # The lanes are not counted here, since that may communicate with all ranks.
        lanes = f"a lane a {self._lanes_by}" if self._lanes_by else f"{self._lanes} lanes"
        return [
            f"chunks of about {min(layout.typical_size, layout.num_samples):,}",
            f"{mixed} mixed at a time" if mixed > 1 else "one after the other",
            f"partition {self.partition!r}",
            *([lanes] if self._lanes_by or self._lanes > 1 else []),
        ]

    @property
    def partition(self) -> str:
        """The rule that assigns chunks to lanes: "contiguous", "fixed", "global" or "uniform"."""
        return self._partition

    @partition.setter
    def partition(self, partition: str) -> None:
        self._partition = check_partition(partition)

    @property
    def shuffle(self) -> bool:
        """Whether the order is shuffled; False for storage order."""
        return self._shuffle

    @shuffle.setter
    def shuffle(self, shuffle: bool | None) -> None:
        # None is what frameworks pass on for "not given", which 0.1.11 took for False.
        self._shuffle = shuffle is not None and check_flag("shuffle", shuffle)

    @property
    def interleave(self) -> int:
        """Number of chunks that are mixed at a time."""
        return self._interleave

    @interleave.setter
    def interleave(self, interleave: int) -> None:
        self._interleave = check_integer("interleave", interleave, 1)

    @property
    def lanes(self) -> int:
        """Number of lanes: parts of the order that are read in parallel."""
        return self._lanes

    @lanes.setter
    def lanes(self, lanes: int) -> None:
        self._lanes = check_integer("lanes", lanes, 1, MAX_LANES)

    @property
    def epoch(self) -> int:
        """The epoch of the pass in progress, or of the next one if there is none."""
        # The lanes are not counted here, since that may communicate with all ranks.
        if self._progress is not None or self._resumed is None:
            return self._epoch
        return self._epoch + self._goes_over(self._resumed)

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self.set_epoch(epoch)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of all following passes, until this is called again.

        A position restored by `load_state_dict` is kept if it belongs to this epoch and no pass has
        begun from it yet. A pass in progress continues, but `state_dict` no longer describes it.

        Args:
            epoch: Number of the epoch, at least 0.

        Raises:
            TypeError: `epoch` is no integer.
            ValueError: `epoch` is negative.
        """
        epoch = check_integer("epoch", epoch, 0)
        # A framework that counts only the epochs of this process begins at 0 again.
        lost = epoch < self._epoch or (epoch > self._epoch and self._progress is None)
        if self._restored and lost:
            warn(
                f"set_epoch({epoch}) leaves the state that load_state_dict restored, which goes on "
                f"in epoch {self._epoch}: samples are repeated or left out; set the epochs that "
                "follow it, or keep the loader from what counts them again (Lightning Fabric: do "
                "not pass it to setup_dataloaders)"
            )
        self._restored = self._restored and epoch == self._epoch and self._progress is None
        # Frameworks call `set_epoch` again with the epoch that they restored, and that must not
        # lose the position. Once a pass has begun from the position, it no longer applies.
        if epoch != self._epoch or self._progress is not None:
            self._set_start(epoch)
        self._pinned = True

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """Return the chunks of this rank in storage order, each as `(start, stop)`."""
        # Only with a contiguous partition does a rank have its own chunks; otherwise list all.
        lane = self._share(self._epoch_start(0)).lane
        return self._spec(self._epoch_start(0)).ranges(lane)

    def remaining(self) -> int:
        """Return the number of indexes left in the pass in progress, or else in the next one."""
        progress = self._progress
        under_way = progress is not None and not progress.exhausted
        return self._share(self._state() if under_way else self._course()[0]).count

    def state_dict(self, consumed: int | None = None) -> dict[str, Any]:
        """Return the state of the sampler: a small dict of plain values, the same on every rank.

        Args:
            consumed: Indexes of the current pass that this rank has really used: steps times batch
                size, counted from where this process began the pass, which after
                `load_state_dict` is the restored position. It is needed if a loader draws indexes
                ahead of their use, as a plain DataLoader with workers does. Without it, all indexes
                that were yielded count as used, with a warning if such a DataLoader drew them.
                After a complete pass, 0 means the whole pass.

        Raises:
            TypeError: `consumed` is no integer.
            ValueError: `consumed` is negative, or more than the pass in progress has handed out.
        """
        if consumed is not None:
            consumed = check_integer("consumed", consumed, 0)
        else:
            self._warn_of_drawn_ahead()
        return self._state(consumed, self._drawing.looping()).to_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> None:
        """Continue from a state that `state_dict` returned, on any number of ranks.

        The current epoch is finished in the order in which it was begun: its seed, partition, lanes
        and interleave come from the state. Later epochs use this sampler's own. If no index of the
        epoch is left, the next pass is the next epoch. But after `set_epoch` with the epoch of the
        state, the next pass is empty.

        Args:
            state_dict: From `state_dict`, of this or of another rank.
            strict: False to accept the state of other data (more samples, other shards): epoch and
                position are kept, but samples of this epoch may be missed or come twice.

        Raises:
            TypeError: It is no dict.
            ValueError: It is not a state, or it belongs to another version of the order or to
                other data.
        """
        state = OrderState.parse(state_dict)
        # What counts is where samples lie; seed and mixing may differ, the state brings its own.
        own = self._epoch_start(state.epoch)
        pairs = {name: (getattr(state, name), getattr(own, name)) for name in _DATA_NAMES}
        changed = [f"{name} was {a!r}, is {b!r}" for name, (a, b) in pairs.items() if a != b]
        if state.samples and own.samples and state.samples != own.samples:
            changed.append(
                "the samples are others, as in another view with the same number of samples"
            )
        if changed and strict:
            raise ValueError(
                f"state_dict was taken over other data: {'; '.join(changed)}. (The layout is a "
                "hash of the lengths of the shards, chunksize, weights and balance, and of the "
                "parts and weights of a Mixture.) Restore it with the same, or pass strict=False"
            )
        if changed:
            state = own.moved(state.position)
        # A StatefulDataLoader restores after `set_epoch` was called, whose epoch is then not ours.
        self._pinned = False
        # At the start of an epoch there is nothing to finish, so its order is this sampler's own.
        self._set_start(state.epoch, state if state.position else None)
        self._restored = True

    def __getstate__(self) -> dict[str, Any]:
        """Return the pickled attributes: the position of the sampler, without a pass."""
        progress = self._progress
        start: dict[str, Any] = {}
        # Between two passes the epoch is right as it is; one that was set stays.
        if progress is not None and not progress.exhausted:
            state = progress.state()
            start = {"_epoch": state.epoch, "_resumed": state if state.position else None}
        return {**self.__dict__, **start, "_progress": None, "_drawing": Drawing()}

    def _epoch_start(self, epoch: int) -> OrderState:
        """Return the state before the first index of an epoch."""
        return OrderState(
            epoch=epoch,
            position=0,
            seed=check_integer("seed", self.seed),
            shuffle=self.shuffle,
            shufflefirst=check_flag("shufflefirst", self.shufflefirst),
            partition=self.partition,
            lanes=self.lanes,
            interleave=self.interleave,
            first=self._first,
            n=self._layout.num_samples,
            layout=self._layout.digest,
            samples=self._samples,
        )

    def _order_state(self) -> OrderState:
        """Return the state at which the next pass begins."""
        resumed = self._resumed
        if resumed is None:
            return self._epoch_start(self._epoch)
        return self._following(resumed) if self._goes_over(resumed) else resumed

    def _goes_over(self, resumed: OrderState) -> bool:
        """Return whether all indexes of the epoch are used, so that the next epoch begins."""
        # No pass is empty only because a state was taken at the end of an epoch. Whoever counts the
        # epochs and asks for this one gets what is left of it, and does not see it twice.
        left = resumed.n - resumed.position
        return not self._pinned and left < (self.num_replicas if self._tail == "drop" else 1)

    def _copied(self, state: OrderState) -> "ChunkedSampler":
        """Return a copy of this sampler whose next pass begins at a state."""
        other = copy(self)
        start = {"_epoch": state.epoch, "_resumed": state if state.position else None}
        other.__dict__.update(start)
        return other

    def _state(self, consumed: int | None = None, looping: bool = False) -> OrderState:
        """Return the current state: that of the pass in progress, or between two passes.

        Args:
            consumed: As in `state_dict`.
            looping: Whether a loop over the indexes is known to go on.
        """
        progress = self._progress
        if progress is None:
            # As it was restored, also if the next pass is of the next epoch.
            if not consumed:
                return self._resumed or self._epoch_start(self._epoch)
            state = self._order_state()
            return state.moved(state.position + consumed * self.num_replicas)
        # A loader may have asked for the last index long before the last batch is used; but none
        # used at all is what a loop says between two passes, unless batches still wait for it.
        waiting = consumed == 0 and self._drawing.batches_ahead()
        if progress.exhausted and not consumed and not waiting:
            return progress.start.moved(progress.start.n)
        return progress.state(consumed, looping=looping and consumed is not None)

    def _spec(self, state: OrderState) -> OrderSpec | MixtureSpec | WeightedSpec:
        options: dict[str, Any] = {
            "seed": state.seed,
            "partition": state.partition,
            "lanes": state.lanes,
            "interleave": state.interleave,
            "shuffle": state.shuffle,
        }
        if isinstance(self._layout, MixtureLayout):
            return MixtureSpec(self._layout, **options, shufflefirst=state.shufflefirst)
        if isinstance(self._layout, WeightedLayout):
            return WeightedSpec(self._layout, OrderSpec(self._layout.chunks, **options))
        return OrderSpec(self._layout, first=self._first, **options)

    def _share(self, state: OrderState) -> RankShare:
        n, lanes = self._layout.num_samples, state.lanes
        # A full shuffle has no shard to stay in, so what fills up may be a neighbour's: one lane
        # deals the same positions as a lane each.
        if state.partition == "uniform" and lanes == self.num_replicas:
            lanes = 1
        return RankShare(n, self.rank, self.num_replicas, lanes, state.position, self._tail)

    def _plan(self, state: OrderState) -> tuple[AnyOrder, RankShare]:
        """Return the order of a pass that begins at `state`, and this rank's share of it."""
        share = self._share(state)
        return self._order(state, share.only_lane), share

    def _whole(self, state: OrderState) -> tuple[AnyOrder, RankShare]:
        """Return the order of all ranks from `state` on, and this rank's share of it."""
        return self._order(state, None), self._share(state)

    def _order(self, state: OrderState, lane: int | None) -> AnyOrder:
        shuffle_chunks = state.shufflefirst or state.epoch > 0
        return self._spec(state).epoch(state.epoch, shuffle_chunks=shuffle_chunks, lane=lane)

    def _course(self) -> tuple[OrderState, int]:
        """Return the start of the pass in progress, or of the next, and its number of indexes used.

        May be asked from another thread than the one that draws indexes.
        """
        progress = self._progress
        if progress is None:
            return self._order_state(), 0
        if progress.exhausted:
            return self._epoch_start(max(self._epoch, progress.start.epoch + 1)), 0
        return progress.start, progress.handed_out

    def _following(self, state: OrderState) -> OrderState:
        """Return the start of the pass after one from `state`, unless another epoch is set."""
        return self._epoch_start(state.epoch + 1)

    def _warn_of_drawn_ahead(self) -> None:
        """Warn if the state counts indexes that a loader has drawn but not used yet."""
        # Of no pass nothing is told.
        ahead = 0 if self._progress is None else self._drawing.batches_ahead()
        if ahead == 0:
            return
        warn(
            f"state_dict() counts {'' if ahead is None else f'{ahead} '}batches as used that a "
            "loader has drawn ahead of their use; a run that goes on from it misses their samples: "
            "pass consumed=steps * batch_size (a BatchSampler: consumed=steps), or save "
            "state_dict() of the loader itself (wids.Loader, torchdata's StatefulDataLoader)"
        )

    def _begun(self, progress: Progress) -> None:
        """Record that a pass is about to hand out its first index."""
        self._drawing = drawing_now()
        # In evaluation it is usual that each process reads everything, and num_replicas=1 says so;
        # but to Accelerate that is how a sampler is given whose loader is to be prepared.
        said = isinstance(self, DistributedSampler) and "accelerate" not in sys.modules
        check_dealing(self._drawing.dealer, self.num_replicas, meant=said or not self.shuffle)
        if progress.start == self._order_state():
            self._epoch = progress.start.epoch
        self._progress = progress

    def _compare_next(self) -> None:
        """Compare the state at which the next pass begins with that of other ranks, if any."""

    def _check_ranks(self, num_replicas: int, rank: int) -> None:
        """Check that a pass begun for these ranks may go on; here there is one process."""

    def _ended(self, progress: Progress) -> None:
        """Record that a pass has handed out its last index."""
        # Two passes side by side count as one; one that `set_epoch` overtook does not count.
        if progress.start.epoch == self._epoch:
            self._resumed = None
            self._epoch += not self._pinned


_DATA_NAMES = ("n", "first", "layout")
_NUM_PROBED = 16  # samples whose locations are compared


def _hash_of_locations(samples: Any) -> str:
    """Return a hash of the locations of some samples, which differs between views; "" without any.

    A location is a number of a shard and an index in it, so that shards may be moved and renamed.
    """
    locate = getattr(samples, "locate", None)
    if locate is None or not len(samples):
        return ""
    last = len(samples) - 1
    try:
        found = [locate(last * step // (_NUM_PROBED - 1)) for step in range(_NUM_PROBED)]
        locations = [(each.shard_index, each.local_index) for each in found]
    except (AttributeError, TypeError):  # a sequence that is no dataset has samples of no shard
        return ""
    return hashlib.blake2b(repr(locations).encode(), digest_size=8).hexdigest()


def _bounds(num_samples: int | tuple[int, int] | None, length: int) -> tuple[int, int]:
    """Return the argument `num_samples` as the half-open range `[lo, hi)` in `[0, length)`."""
    if num_samples is None:
        bounds = [0, length]
    elif isinstance(num_samples, list | tuple | range | np.ndarray) and np.ndim(num_samples):
        bounds = [check_integer("each bound of num_samples", bound) for bound in num_samples]
    else:
        bounds = [0, check_integer("num_samples", num_samples, unless="(lo, hi), or None")]
    lo, hi = bounds if len(bounds) == 2 else (-1, -1)
    if not 0 <= lo <= hi <= length:
        raise ValueError(
            f"num_samples must be a count or (lo, hi) with 0 <= lo <= hi <= {length}, the length "
            f"of the dataset; got {num_samples!r}"
        )
    return lo, hi


def _checked_lengths(lengths: Sequence[int] | Integers, stop: int, length: int) -> Integers:
    """Return shard lengths as an array, after checking their sum.

    Args:
        lengths: Samples in each shard.
        stop: Where sampling ends; the shards reach up to there.
        length: Samples of the dataset; the shards have no more.
    """
    array = shard_lengths(lengths)
    total = int(array.sum())
    if total < stop:
        raise ValueError(
            f"lengths must be integers of at least 0, together {stop}, which is where sampling "
            f"ends; got {array.size} with the sum {total}"
        )
    if total > length:
        raise ValueError(
            f"lengths must be the samples in each shard of this dataset, together at most its "
            f"length, {length}; got {array.size} with the sum {total}. A view has `lengths` of its "
            "own; leave the argument out to use them"
        )
    return array


def _lengths_of(dataset: Any) -> Any:
    """Return the number of samples in each shard of a dataset; raise if it has no `lengths`."""
    lengths = getattr(dataset, "lengths", None)
    if lengths is None:
        raise TypeError(
            f"dataset must have `lengths`, the samples in each shard, got {dataset!r:.80}; give a "
            "dataset of wids, or the argument lengths"
        )
    return lengths


def _holds_mixture(dataset: object) -> bool:
    """Return whether a sequence is a view or combination of a `Mixture`."""
    if not hasattr(dataset, "read_as"):
        return False
    under = [getattr(dataset, name, None) for name in ("base", "left", "right")]
    parts = getattr(dataset, "parts", None)
    under += parts if isinstance(parts, list) else []
    return any(hasattr(each, "part_lengths") or _holds_mixture(each) for each in under)


def _check_open_shards(dataset: object, interleave: int) -> None:
    """Warn if a worker would close shards that it needs again at once."""
    lru_size = getattr(dataset, "lru_size", None)
    # Two more than are drawn from: when a chunk ends, its successor is there beside it.
    needed = interleave + 2
    if not isinstance(lru_size, int) or interleave == 1 or lru_size >= needed:
        return
    # A dataset of few shards keeps all of them open.
    lengths = getattr(dataset, "lengths", None)
    if isinstance(lengths, Sized):
        needed = min(needed, len(lengths))
    if lru_size < needed:
        warn(
            f"interleave={interleave} needs {needed} open shards, the dataset keeps {lru_size}: "
            f"shards are opened again and again; open the dataset with lru_size={needed}"
        )


def check_drawn_from(name: str, sampler: object, length: int) -> None:
    """Check that a sampler of this library draws from as many samples as there are.

    After `view = dataset.filter(...)` it is easily left over from the dataset, and would leave out
    samples of a longer sequence without a word.

    Args:
        name: The argument, for the message.
        sampler: A sampler, or one that makes batches of another's indexes.
        length: Number of samples that there are.

    Raises:
        ValueError: It draws from another number.
    """
    drawn_from = num_drawn_from(getattr(sampler, "sampler", sampler))
    if drawn_from not in (None, length):
        raise ValueError(
            f"{name}: the sampler draws from {drawn_from} samples, and there are {length}; make it "
            "over this very dataset or view"
        )


def num_drawn_from(sampler: object) -> int | None:
    """Return the number of samples that a sampler of this library draws from; None if unknown."""
    dataset = sampler.dataset if isinstance(sampler, ChunkedSampler) else None
    return None if dataset is None else len(dataset)


class ShardListSampler(ChunkedSampler):
    """Shuffles the shards, and the samples in each; for one process.

    Args:
        dataset: A dataset with `lengths`, the number of samples in each shard.
        lengths: The same, where the dataset does not say.
        seed: Any integer.
        shufflefirst: False to visit the shards in storage order in epoch 0.
        shuffle: False for storage order.
        interleave: Shards drawn from at once, at least 1.

    >>> sorted(ShardListSampler(None, lengths=[3, 2]))
    [0, 1, 2, 3, 4]
    """

    def __init__(
        self,
        dataset: Any,
        *,
        lengths: Sequence[int] | None = None,
        seed: int = 0,
        shufflefirst: bool | None = None,
        shuffle: bool = True,
        interleave: int = 1,
    ) -> None:
        if hasattr(dataset, "part_lengths"):
            raise ValueError("a Mixture is drawn from by its weights: take DistributedShardSampler")
        shards = shard_lengths(_lengths_of(dataset) if lengths is None else lengths)
        self._take(range(int(shards.sum())), None, None, shards)
        self.dataset = dataset
        self._samples = _hash_of_locations(dataset)
        self._order_by(seed, "contiguous", interleave)
        self._begin(shuffle=shuffle, shufflefirst=shufflefirst)
        # Empty chunks are not kept, but old code counts the shards by `ranges`.
        self._empty_shards = np.flatnonzero(shards == 0)

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """Return the shards in storage order, each as `(start, stop)`, with the empty ones."""
        before = self._empty_shards - np.arange(self._empty_shards.size)
        sizes = np.insert(np.diff([0, *(stop for _, stop in super().ranges)]), before, 0)
        return list(pairwise([0, *np.cumsum(sizes).tolist()]))


ShardedSampler = ShardListSampler


# A real subclass of torch's class: Lightning and Ray Train replace any other sampler without a
# warning, so that 0.1.11 under Lightning trained on half of the data.
class DistributedChunkedSampler(ChunkedSampler, DistributedSampler[int]):
    """Sampler of one rank's share of the chunks; every rank yields equally many indexes.

    By default each rank keeps a contiguous range of the dataset, hence its shards, and shuffles it
    by chunks. Ten samples over four ranks without shuffling, with repeated samples in brackets:

        rank 0   0 1 2        rank 2   6 7 [7]
        rank 1   3 4 5        rank 3   8 9 [9]

    Args:
        dataset: Anything with a length.
        num_replicas: Number of ranks. By default it is found at the first use: the process group's,
            else `WORLD_SIZE` of the environment, with a warning, else 1.
        rank: This rank, in `[0, num_replicas)`; found likewise, from `RANK`.
        num_samples: How many samples take part, or `(lo, hi)`; None for all.
        shuffle: False for storage order.
        shufflefirst: False to keep the chunks in storage order in epoch 0.
        seed: Any integer, the same on all ranks.
        drop_last: True to leave out up to `num_replicas - 1` samples rather than repeat some.
        chunksize: Samples a chunk, at least 1; None for chunks as long as can be.
        partition: "contiguous" (a rank keeps its range), "fixed" (it keeps chunks drawn from the
            whole dataset), "global" (other chunks in each epoch) or "uniform" (a full shuffle).
        interleave: Chunks that a lane draws from at once, at least 1.
        lanes: Parts of the order that are read in parallel: "rank" for one per rank, "node" for one
            that the ranks of a node share, or a number, the same on all ranks. The number of nodes
            comes from torchrun or SLURM. Without them it is computed from `LOCAL_WORLD_SIZE` if all
            ranks of the process group have the same. On several nodes they communicate to find
            out, so make the sampler on all ranks, and after the process group. Otherwise there is
            one lane.
        lengths: Samples in each shard; if given, no chunk straddles two shards.
        pad: False to repeat no sample, for evaluation: some ranks then yield one index less. Not
            allowed with `drop_last`.

    Raises:
        ValueError: An argument is out of its range; the message names it.

    >>> [list(DistributedChunkedSampler(range(10), 4, rank, shuffle=False)) for rank in range(4)]
    [[0, 1, 2], [3, 4, 5], [6, 7, 7], [8, 9, 9]]
    """

    def __init__(  # not called: torch's class needs a process group, and has nothing to initialise
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        *,
        num_samples: int | tuple[int, int] | None = None,
        shuffle: bool = True,
        shufflefirst: bool | None = None,
        seed: int = 0,
        drop_last: bool | None = False,
        chunksize: int | None = 1_000_000,
        partition: str = "contiguous",
        interleave: int = 1,
        lanes: int | Literal["rank", "node"] = "rank",
        lengths: Sequence[int] | None = None,
        pad: bool = True,
    ) -> None:
        self._replica = Replica(num_replicas, rank)
        self.drop_last = drop_last is not None and check_flag("drop_last", drop_last)
        pad = check_flag("pad", pad)
        if self.drop_last and not pad:
            raise ValueError(
                "drop_last=True and pad=False exclude each other: drop_last leaves out what the "
                "ranks cannot share evenly, pad=False deals it to some of them; pass one of the two"
            )
        self._take(dataset, num_samples, chunksize, lengths)
        tail: Tail = "drop" if self.drop_last else "pad" if pad else "ragged"
        check_lanes(lanes)
        lanes_by = lanes if isinstance(lanes, str) else None
        self._order_by(seed, partition, interleave, 1 if isinstance(lanes, str) else lanes, tail)
        self._lanes_by = lanes_by
        # All ranks construct their samplers, so they can communicate here; later perhaps only one
        # rank asks for the number.
        if lanes_by is not None and self._replica.settled:
            self.lanes = number_of_lanes(lanes_by, self.num_replicas)
        self._lanes_counted = False
        self._begin(shuffle=shuffle, shufflefirst=shufflefirst)

    @property
    def num_replicas(self) -> int:
        """Number of ranks."""
        return self._replica.find()[0]

    @num_replicas.setter
    def num_replicas(self, num_replicas: int) -> None:
        self._replica = Replica(num_replicas, self._replica.find()[1])

    @property
    def rank(self) -> int:
        """This rank."""
        return self._replica.find()[1]

    @rank.setter
    def rank(self, rank: int) -> None:
        self._replica = Replica(self._replica.find()[0], rank)

    @property
    def lanes(self) -> int:
        """Number of lanes: parts of the order that are read in parallel."""
        if self._lanes_by is None:
            return self._lanes
        lanes = number_of_lanes(self._lanes_by, self.num_replicas, silent=self._lanes_counted)
        self._lanes_counted = True
        # Counted again at each use as long as a process group may still be initialised.
        if self._replica.settled:
            self.lanes = lanes
        return lanes

    @lanes.setter
    def lanes(self, lanes: int) -> None:
        self._lanes = check_integer("lanes", lanes, 1, MAX_LANES)
        self._lanes_by = None

    def _begun(self, progress: Progress) -> None:
        """Record that a pass is about to hand out its first index, and compare it with others."""
        super()._begun(progress)
        self._replica.compare(progress.start.to_dict(), self.dataset)

    def _compare_next(self) -> None:
        """Compare the state at which the next pass begins with that of other ranks, if any."""
        if self._replica.comparable:  # without other ranks, the state may not be known yet
            self._replica.compare(self._order_state().to_dict(), self.dataset)

    def _check_ranks(self, num_replicas: int, rank: int) -> None:
        """Raise RuntimeError if a process group has come that gives this process another rank."""
        self._replica.check_pass(num_replicas, rank)

    @property
    def num_samples(self) -> int:  # type: ignore[override]  # computed here, stored there
        """Number of indexes per epoch on this rank; the name is that of torch's class."""
        return len(self)

    @property
    def total_size(self) -> int:  # type: ignore[override]  # computed here, stored there
        """Number of indexes per epoch on all ranks; the name is that of torch's class."""
        return self._layout.num_samples if self._tail == "ragged" else len(self) * self.num_replicas


class DistributedShardSampler(DistributedChunkedSampler):
    """The recommended sampler: whole shards, shuffled each epoch, `interleave` mixed at a time.

    The ranks of a node draw from the same shards, so a node needs `interleave` shards at a time,
    not that many for each rank and worker.

    Args:
        dataset: A dataset with `lengths`, the number of samples in each shard.
        num_replicas: Number of ranks. By default it is found at the first use: the process group's,
            else `WORLD_SIZE` of the environment, with a warning, else 1.
        rank: This rank, in `[0, num_replicas)`; found likewise, from `RANK`.
        lengths: Samples in each shard, where the dataset does not say.
        partition: As in `DistributedChunkedSampler`.
        interleave: Shards that a lane draws from at once, at least 1.
        lanes: As in `DistributedChunkedSampler`.
        weights: Weight of each sample, at least 0. Its number of draws in an epoch is its share of
            the weights, rounded down or up.
        balance: Class of each sample, such as a column. In each epoch the numbers of draws of any
            two classes differ by at most one. `weights` then apply within each class.
        options: Other arguments of `DistributedChunkedSampler`. With `weights` or `balance`,
            `num_samples` is the number of draws per epoch on all ranks together; the default is
            the number of samples.

    Raises:
        ValueError: An argument is out of its range; the message names it.

    >>> shards = [4, 3, 5]
    >>> shares = [
    ...     list(DistributedShardSampler(range(12), 2, rank, lengths=shards)) for rank in range(2)
    ... ]
    >>> [len(share) for share in shares], sorted(shares[0] + shares[1]) == list(range(12))
    ([6, 6], True)
    >>> classes = ["cat"] * 9 + ["dog"] * 3
    >>> drawn = list(DistributedShardSampler(range(12), 1, 0, lengths=shards, balance=classes))
    >>> len(drawn), sum(classes[index] == "dog" for index in drawn)
    (12, 6)
    """

    def __init__(
        self,
        dataset: Any,
        num_replicas: int | None = None,
        rank: int | None = None,
        *,
        lengths: Sequence[int] | None = None,
        # "global" mixes more, but a node fetches other shards in each epoch.
        partition: str = "global",
        # If shards are sorted by class, a batch of 32 then has 13 classes of 100, and 1 without
        # mixing. A larger value needs more open shards and cache for little more mixing.
        interleave: int = 16,
        lanes: int | Literal["rank", "node"] = "node",
        weights: "Sequence[float] | NDArray[Any] | None" = None,
        balance: "Sequence[Any] | NDArray[Any] | None" = None,
        **options: Any,
    ) -> None:
        known = DistributedChunkedSampler.__init__.__kwdefaults__ or {}
        names = sorted({"lengths", "weights", "balance", *known})
        refuse_unknown("DistributedShardSampler", options.keys() - known.keys(), names)
        weighted = weights is not None or balance is not None
        mixed = hasattr(dataset, "part_lengths")
        draws = options.pop("num_samples", None) if weighted else None
        options = {
            "chunksize": None,
            # A Mixture has those of its parts.
            "lengths": _lengths_of(dataset) if lengths is None and not mixed else lengths,
            "partition": partition,
            "interleave": interleave,
            "lanes": lanes,
            **options,
        }
        if weighted and mixed:
            raise ValueError(
                "weights and balance are for the samples of one dataset; give the Mixture the "
                "weights of its parts"
            )
        super().__init__(dataset, num_replicas, rank, **options)
        if weighted:
            shards = _checked_lengths(options["lengths"], len(dataset), len(dataset))
            ends = np.cumsum(shards)
            chunksize = options["chunksize"]
            self._layout = WeightedLayout.read(weights, balance, ends, chunksize, draws)
