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

from collections.abc import Iterator, Mapping, Sequence, Sized
from typing import Any, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from wids.base.arguments import check_flag, check_integer, check_sized
from wids.base.warn import warn
from wids.ordering.mixtureorder import MixtureChunks, MixtureOrder
from wids.ordering.order import Chunks, EpochOrder, Share
from wids.ordering.passes import OrderState, Pass, PassIterator
from wids.ordering.permute import Integers, facts_hash
from wids.ordering.randomseeds import check_same_number
from wids.ordering.replicas import Replica, count_streams
from wids.ordering.weighted import WeightedChunks, WeightedOrder

try:
    from torch.utils.data import BatchSampler as TorchBatchSampler
    from torch.utils.data import DistributedSampler, Sampler
except ImportError:

    class Sampler:  # type: ignore[no-redef]
        """Substitute for torch's classes where torch is not installed."""

        def __class_getitem__(cls, _item: object) -> type:
            return cls

    DistributedSampler = TorchBatchSampler = Sampler  # type: ignore[misc, assignment]


__all__ = [
    "ChunkedSampler",
    "DistributedChunkedSampler",
    "DistributedShardSampler",
    "ShardListSampler",
    "ShardedSampler",
    "TorchBatchSampler",
    "check_drawn_from",
    "check_own",
]

# The first blocks are small, so that the first batch does not wait for thousands of indexes.
# Later blocks are large, because the time of NumPy's calls is shared by all indexes of a block.
_FIRST_BLOCK, _LAST_BLOCK = 256, 32768
_NUM_PROBED = 16  # samples whose locations are compared
# What a state has besides what users set.
_OF_RUN = ("version", "layout", "samples", "plan", "pool", "segments")


class ChunkedSampler(Sampler[int]):
    """Shuffles chunks of adjacent indexes, and the indexes in each; for one process.

    For old code: `DistributedShardSampler` mixes more, and serves one process, too.

    The order of an epoch depends only on the arguments and the epoch. Each pass advances the epoch
    by one, even if the pass before it was left early; an iterator counts as a pass from its first
    index on. After a call of `set_epoch`, the epoch no longer advances by itself.

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
        partition: How chunks are put in a line: "contiguous" (permuted each epoch), "fixed" or
            "global" (much the same in one process), or "uniform" (no chunks at all: a full
            shuffle).
        interleave: Chunks drawn from at once, at least 1.
        lengths: Samples in each shard, a list or an array; if given, no chunk straddles two shards.

    Attributes:
        dataset, partition: As given.
        seed, shuffle, shufflefirst, interleave: As given; a change takes effect with the next pass.
        streams: Parts of the order that are read in parallel; `lanes` is its old name.
        rank: This rank.
        num_replicas: Number of ranks.

    Raises:
        ValueError: An argument is out of its range; the message names it.

    >>> sampler = ChunkedSampler(range(10), chunksize=5, seed=1)
    >>> first, second = list(sampler), list(sampler)
    >>> first == second, sorted(first) == sorted(second) == list(range(10))
    (False, True)
    """

    _replica = Replica(1, 0)
    _streams: int | str = 1
    # What is done where the ranks cannot share evenly: "pad", "drop" or "ragged" (`pad=False`).
    tail = "pad"

    def __init__(
        self,
        dataset: Sized,
        *,
        dslength_per_replica: int = -1,
        num_samples: int | tuple[int, int] | None = None,
        # The default of 0.1.11, so that old calls read as locally; so is the million below.
        chunksize: int | None = 2000,
        seed: int = 0,
        shuffle: bool | None = True,
        shufflefirst: bool | None = None,
        partition: str = "contiguous",
        interleave: int = 1,
        lengths: Sequence[int] | Integers | None = None,
    ) -> None:
        length = check_sized("dataset", dataset, "a dataset or a list")
        self.dataset: Any = dataset
        self.partition = partition
        # No attribute may be called `generator`: Accelerate seeds and synchronises one that it
        # finds.
        self.seed = seed
        # None is what frameworks pass on for "not given", which 0.1.11 took for False.
        self.shuffle = False if shuffle is None else shuffle
        self.shufflefirst = True if shufflefirst is None else shufflefirst
        self.interleave = interleave
        self._next = 0  # epoch of the next pass
        # Whether the user or a framework sets the epoch; otherwise each pass advances it.
        self._pinned = False
        self._resumed: OrderState | None = None
        self.last_pass: Pass | None = None
        # Numbers of shards and indexes in them, so that shards may be moved and renamed.
        found = [(each.shard_index, each.local_index) for each in probe(dataset, _NUM_PROBED)]
        self._samples = facts_hash(found) if found else ""
        self._source: Chunks | MixtureChunks | WeightedChunks
        if chunksize is not None:
            chunksize = check_integer("chunksize", chunksize, 1, unless="None")
            # A chunk longer than the data is all of it. A full shuffle has no chunks.
            chunksize = None if chunksize >= length or partition == "uniform" else chunksize
        if hasattr(dataset, "part_lengths"):
            if num_samples is not None or lengths is not None:
                raise ValueError(
                    "num_samples of a mixture is given to the Mixture, not to its sampler, and the "
                    "lengths are those of its parts: take DistributedShardSampler without both"
                )
            mixture: Any = dataset
            parts = mixture.part_lengths
            chunks = [Chunks.cut(0, int(np.sum(part)), chunksize, part) for part in parts]
            self._chunks = Chunks(np.concatenate([each.sizes for each in chunks]))
            self._source = MixtureChunks(chunks, mixture.weights, mixture.num_samples)
            unweighted = mixture.parts
        else:
            lo, hi = _bounds(num_samples, length)
            shards = None if lengths is None else shard_lengths(lengths, hi, length)
            self._source = self._chunks = Chunks.cut(lo, hi, chunksize, shards)
            unweighted = [dataset]
        self.start(0, streams=1)  # checks the arguments; the ranks may not be known yet
        if (draws := _draws_of(dataset)) is not None:
            draws.note_sampler()
        if any(_draws_of(each) is not None for each in unweighted):
            warn(
                "a view, a concatenation or a Mixture of a Mixture is drawn from like any samples, "
                "so its weights have no effect: make the views of the parts, and one Mixture of "
                "all of them"
            )
        # Two more than are drawn from: when a chunk ends, its successor is there beside it. A
        # dataset of few shards keeps all of them open.
        needed = min(interleave + 2, len(getattr(dataset, "lengths", ())))
        lru_size = getattr(dataset, "lru_size", None)
        if isinstance(lru_size, int) and interleave > 1 and lru_size < needed:
            warn(
                f"interleave={interleave} needs {needed} open shards, the dataset keeps "
                f"{lru_size}: shards are opened again and again; open the dataset with "
                f"lru_size={needed}"
            )
        if dslength_per_replica != -1 and dslength_per_replica != len(self):
            warn(
                f"dslength_per_replica={dslength_per_replica} has no effect: len() is the number "
                f"of indexes that come, {len(self)}; leave the argument out"
            )

    # For passes, batches, and code that looks ahead.

    def start(self, epoch: int, streams: int | None = None) -> OrderState:
        """Return the state before the first index of an epoch, in this sampler's own order.

        It is made anew, since users may assign attributes, and checks them.
        """
        return OrderState(
            seed=self.seed,
            epoch=epoch,
            partition=self.partition,
            streams=self.streams if streams is None else streams,
            interleave=self.interleave,
            shuffle=self.shuffle,
            shufflefirst=self.shufflefirst,
            num_samples=self._source.num_samples,
            layout=facts_hash(self._source.facts),
            samples=self._samples,
        )

    def upcoming(self) -> OrderState:
        """Return the state at which the next pass begins."""
        return self._resumed or self.start(self._next)

    def order(self, state: OrderState) -> EpochOrder | MixtureOrder | WeightedOrder:
        """Return the order of the epoch of a state."""
        return self._source.epoch(state)

    def share(self, state: OrderState) -> Share:
        """Return this rank's share of the positions from a state on."""
        streams = state.streams
        # A full shuffle has no shard to stay in, so what fills up may be of another stream.
        if state.partition == "uniform" and streams == self.num_replicas:
            streams = 1
        n = state.num_samples
        return Share(n, self.rank, self.num_replicas, streams, state.consumed, self.tail)

    def begin(self, begun: Pass) -> None:
        """Record that a pass is about to hand out its first index."""
        self.last_pass, self._resumed = begun, None
        if not self._pinned:
            self._next = max(self._next, begun.start.epoch + 1)

    @property
    def under_way(self) -> Pass | None:
        """The pass in progress; may be read from any thread."""
        begun = self.last_pass
        return None if begun is None or begun.done else begun

    def _blocks(self, begun: Pass) -> Iterator[list[int]]:
        """Begin a pass, and compute its indexes in blocks."""
        # The tables of an epoch are made with the first index, so an unused iterator costs nothing.
        order, share, stop = self.order(begun.start), self.share(begun.start), 0
        begun.share = share
        self.begin(begun)
        while stop < share.count:
            first, size = stop, min(max(_FIRST_BLOCK, 4 * stop), _LAST_BLOCK)
            stop = min(share.count, first + size)
            yield order.at(share.positions(first, stop)).tolist()

    # What users and loaders call.

    def __len__(self) -> int:
        """Number of indexes that a whole epoch yields on this rank."""
        return self.share(self.start(self._next)).count

    def __iter__(self) -> PassIterator[int]:
        """Return a pass from the restored position, else from the start of the epoch."""
        begun = Pass(self.upcoming())
        return PassIterator.over(begun, self._blocks(begun))

    def __facts__(self) -> dict[str, Any]:
        """What all ranks must have in common, by names that users know; as `Chunks.facts`."""
        state = self.state_dict()
        return {
            "class": type(self).__name__,
            "samples of the dataset": len(self.dataset),
            **{name: state[name] for name in state if name not in _OF_RUN},
            **self._source.facts,
            "num_replicas": self.num_replicas,
            "tail (of drop_last and pad)": self.tail,
            "set_epoch was called": self._pinned,
        }

    def __repr__(self) -> str:
        try:
            ranks = f"streams={self.streams}, rank {self.rank} of {self.num_replicas}"
        except ValueError:  # as long as only the number of ranks is known
            ranks = "rank unknown"
        return (
            f"{type(self).__name__}({self._source.num_samples:,} samples, shuffle={self.shuffle}, "
            f"partition={self.partition!r}, interleave={self.interleave}, {ranks}, "
            f"seed={self.seed}, epoch={self.epoch})"
        )

    @property
    def num_replicas(self) -> int:
        """Number of ranks."""
        return self._replica.find()[0]

    @property
    def rank(self) -> int:
        """This rank."""
        return self._replica.find()[1]

    @property
    def streams(self) -> int:
        """Number of streams: parts of the order that are read in parallel."""
        return count_streams(self._streams, self.num_replicas)

    @property
    def lanes(self) -> int:
        """The old name of `streams`."""
        return self.streams

    @property
    def epoch(self) -> int:
        """The epoch of the pass in progress, or of the next one if there is none."""
        return self._next if self.under_way is None else self.under_way.start.epoch

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
        # Frameworks call `set_epoch` again with the epoch that they restored.
        if self._resumed is not None and self._resumed.epoch != epoch:
            # A framework that counts only the epochs of this process begins at 0 again.
            warn(
                f"set_epoch({epoch}) leaves the state that load_state_dict restored, which goes on "
                f"in epoch {self._resumed.epoch}: samples are repeated or left out; set the epochs "
                "that follow it, or keep the loader from what counts them again (Lightning Fabric: "
                "do not pass it to setup_dataloaders)"
            )
            self._resumed = None
        self._next, self._pinned, self.last_pass = epoch, True, None

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """Return the chunks of this rank in storage order, each as `(start, stop)`."""
        bounds = self._chunks.bounds
        # Only with a contiguous partition does a rank have its own chunks; otherwise list all.
        if self.partition == "contiguous" and self._source is self._chunks:
            number = self.rank * self.streams // self.num_replicas
            bounds = self._chunks.of_stream(number, self.streams)
        return list(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True))

    def remaining(self) -> int:
        """Return the number of indexes left in the pass in progress, or else in the next one."""
        state = self.upcoming() if self.under_way is None else self.under_way.after()
        return self.share(state).count

    def state_dict(self, consumed: int | None = None) -> dict[str, Any]:
        """Return the state of the sampler: a small dict of plain values, the same on every rank.

        In the loop over the last batch of an epoch it is the end of that epoch, of which nothing is
        left; after the loop it is the start of the next epoch.

        Args:
            consumed: Indexes of the current pass that this rank has really used: steps times batch
                size, counted from where this process began the pass, which after
                `load_state_dict` is the restored position. By default, all indexes that were
                yielded count as used. A DataLoader with workers draws ahead, so give `consumed`,
                or save the state of a loader that counts (`wids.Loader`, torchdata's
                `StatefulDataLoader`). After a complete pass, 0 means the start of the next epoch.

        Raises:
            TypeError: `consumed` is no integer.
            ValueError: `consumed` is negative, or more than the pass in progress has handed out.
        """
        if consumed is not None:
            consumed = check_integer("consumed", consumed, 0)
        begun = self.last_pass
        if begun is None:
            state = self.upcoming()
            if consumed:  # by one who counts without this sampler, such as a loader with a copy
                state = state.moved(state.consumed + consumed * self.num_replicas)
        elif begun.done and not consumed:
            # Also if `set_epoch` was called: the epoch is over.
            state = self.start(max(self._next, begun.start.epoch + 1))
        else:
            state = begun.after(consumed)
        return state.to_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> None:
        """Continue from a state that `state_dict` returned, on any number of ranks.

        The current epoch is finished in the order in which it was begun: its seed, partition,
        streams and interleave come from the state. Later epochs use this sampler's own. If no index
        of the epoch is left, the next pass is empty, and the one after it is the next epoch.

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
        if state.plan:
            raise ValueError(
                "state_dict is the state of batches by cost or shape; load it into a BatchSampler "
                "with the same costs or shapes"
            )
        self.restore(state, strict)

    def restore(self, state: OrderState, strict: bool) -> None:
        """Continue from a state, after checking that it is of the same data."""
        # What counts is where samples lie; seed and mixing may differ, the state brings its own.
        own = self.start(state.epoch)
        changed = [
            f"{name} was {getattr(state, name)!r}, is {getattr(own, name)!r}"
            for name in ("num_samples", "layout", "samples")
            # Where samples lie is "" if that is not known.
            if len({getattr(state, name), getattr(own, name)} - {""}) == 2
        ]
        if changed and strict:
            raise ValueError(
                f"state_dict was taken over other data: {'; '.join(changed)}. (The layout is a "
                "hash of num_samples, the lengths of the shards, chunksize, weights and balance, "
                "and of the parts and weights of a Mixture; samples is one of where some of them "
                "lie, as in another view of as many.) Restore it with the same, or pass "
                "strict=False"
            )
        if changed:
            state = own.moved(state.consumed)
        # A StatefulDataLoader restores after `set_epoch` was called, whose epoch is then not ours.
        self._next, self._pinned, self.last_pass = state.epoch, False, None
        # At the start of an epoch there is nothing to finish, so its order is this sampler's own.
        self._resumed = state if state.consumed else None

    def __getstate__(self) -> dict[str, Any]:
        """Return the pickled attributes: the position of the sampler, without a pass."""
        self._replica.settle()  # a process that is spawned has no process group
        values = {**self.__dict__, "last_pass": None}
        if self.under_way is not None:
            state = self.under_way.after()
            values |= {"_next": state.epoch, "_resumed": state if state.consumed else None}
        return values


def probe(samples: Any, number: int) -> list[Any]:
    """Return the locations of some evenly spaced samples; none if they are not in shards."""
    last = len(samples) - 1
    try:
        found = [samples.locate(last * step // (number - 1)) for step in range(number)]
    except (AttributeError, IndexError, TypeError):  # as of a list, and where there are none
        return []
    return found if hasattr(found[0], "shard_index") else []


def _draws_of(samples: Any) -> Any:
    """Return what watches the draws from a mixture, or from what is made of one; else None."""
    return getattr(getattr(samples, "facts", None), "draws", None)


def _bounds(num_samples: Any, length: int) -> tuple[int, int]:
    """Return the argument `num_samples` as the half-open range `[lo, hi)` in `[0, length)`."""
    if num_samples is None:
        return 0, length
    given = num_samples if np.ndim(num_samples) else (0, num_samples)
    bounds = [check_integer("num_samples", bound, unless="(lo, hi), or None") for bound in given]
    if len(bounds) != 2 or not 0 <= bounds[0] <= bounds[1] <= length:
        raise ValueError(
            f"num_samples must be a count or (lo, hi) with 0 <= lo <= hi <= {length}, the length "
            f"of the dataset; got {num_samples!r}"
        )
    return bounds[0], bounds[1]


def shard_lengths(lengths: Any, least: int = 0, most: int | None = None) -> Integers:
    """Return the samples in each shard as an array.

    Args:
        lengths: The argument of a sampler.
        least: Fewest samples of all shards, where sampling ends.
        most: Most samples of all shards, the length of the dataset; None for any number.

    Raises:
        ValueError: `lengths` is no list of integers of at least 0, or their sum is out of range.

    >>> shard_lengths([3, 2])
    array([3, 2])
    """
    array = np.asarray(lengths)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu") or (array < 0).any():
        raise ValueError(
            "lengths must be integers of at least 0, the samples in each shard, in a list; got "
            f"{lengths!r:.80}"
        )
    total = int(array.sum())
    if total < least or (most is not None and total > most):
        raise ValueError(
            f"lengths must be those of the shards of this dataset, together {least} to {most} "
            f"samples; got {array.size} with the sum {total}. A view has `lengths` of its own; "
            "leave the argument out to use them"
        )
    return array.astype(np.int64, copy=False)


def check_own(name: str, sampler: object) -> None:
    """Check that a sampler is of this library, so that it says what it will draw.

    Args:
        name: The argument, for the message.
        sampler: A sampler.

    Raises:
        TypeError: It is something else.
    """
    if not isinstance(sampler, ChunkedSampler):
        raise TypeError(
            f"{name}: expected a sampler of wids, such as DistributedShardSampler, got "
            f"{sampler!r:.80}"
        )


def check_drawn_from(name: str, sampler: object, length: int) -> None:
    """Check that a sampler, if it is of this library, draws from as many samples as there are.

    Args:
        name: The argument, for the message.
        sampler: A sampler, or one that makes batches of another's indexes.
        length: Number of samples that there are.

    Raises:
        ValueError: It draws from another number.
    """
    sampler = getattr(sampler, "sampler", sampler)
    if isinstance(sampler, ChunkedSampler):
        check_same_number(name, len(sampler.dataset), length)


class _Options(TypedDict, total=False):
    """Arguments that samplers hand on to `ChunkedSampler`, for type checkers and editors."""

    num_samples: int | tuple[int, int] | None
    seed: int
    shuffle: bool | None
    shufflefirst: bool | None


class _RankOptions(_Options, total=False):
    """Arguments that `DistributedShardSampler` hands on to `DistributedChunkedSampler`."""

    drop_last: bool | None
    pad: bool
    chunksize: int | None
    lanes: int | str | None


class ShardListSampler(ChunkedSampler):
    """Shuffles the shards, and the samples in each; for one process.

    Args:
        dataset: A dataset with `lengths`, the number of samples in each shard.
        lengths: The same, where the dataset does not say.
        interleave: Shards drawn from at once, at least 1.
        options: `num_samples`, `seed`, `shuffle` and `shufflefirst`, as in `ChunkedSampler`; the
            chunks are the shards.

    >>> sorted(ShardListSampler(None, lengths=[3, 2]))
    [0, 1, 2, 3, 4]
    """

    def __init__(
        self,
        dataset: Any,
        *,
        lengths: Sequence[int] | Integers | None = None,
        interleave: int = 1,
        **options: Unpack[_Options],
    ) -> None:
        shards = shard_lengths(dataset.lengths if lengths is None else lengths)
        samples = range(int(shards.sum())) if dataset is None else dataset
        super().__init__(samples, chunksize=None, lengths=shards, interleave=interleave, **options)


ShardedSampler = ShardListSampler


# A real subclass of torch's class: Lightning and Ray Train replace any other sampler without a
# warning, so that 0.1.11 under Lightning trained on half of the data.
class DistributedChunkedSampler(  # type: ignore[override]  # numbers that are read only here
    ChunkedSampler, DistributedSampler[int]
):
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
        drop_last: True to leave out up to `num_replicas - 1` samples rather than repeat some.
        pad: False to repeat no sample, for evaluation: some ranks then yield one index less. With
            `drop_last`, none is repeated anyway.
        chunksize: Samples a chunk, at least 1; None for chunks as long as can be.
        partition: "contiguous" (a rank keeps its range), "fixed" (it keeps chunks drawn from the
            whole dataset), "global" (other chunks in each epoch) or "uniform" (a full shuffle).
        streams: Parts of the order that are read in parallel: "rank" for one per rank, "node" for
            one that the ranks of a node share, or a number, the same on all ranks. The number of
            nodes comes from torchrun (`GROUP_WORLD_SIZE`) or SLURM (`SLURM_NNODES`); without
            either it is 1.
        lanes: The old name of `streams`.
        interleave: Chunks that a stream draws from at once, at least 1.
        lengths: As in `ChunkedSampler`.
        options: `num_samples`, `seed`, `shuffle` and `shufflefirst`, as in `ChunkedSampler`; the
            same on all ranks.

    Raises:
        ValueError: An argument is out of its range; the message names it.

    >>> [list(DistributedChunkedSampler(range(10), 4, rank, shuffle=False)) for rank in range(4)]
    [[0, 1, 2], [3, 4, 5], [6, 7, 7], [8, 9, 9]]
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        *,
        drop_last: bool | None = False,
        pad: bool = True,
        chunksize: int | None = 1_000_000,
        partition: str = "contiguous",
        streams: int | str = "rank",
        lanes: int | str | None = None,
        interleave: int = 1,
        lengths: Sequence[int] | Integers | None = None,
        **options: Unpack[_Options],
    ) -> None:
        self._replica = Replica(num_replicas, rank)
        self.drop_last = drop_last is not None and check_flag("drop_last", drop_last)
        pad = check_flag("pad", pad)
        self.tail = "drop" if self.drop_last else "pad" if pad else "ragged"
        self._streams = streams if lanes is None else lanes
        count_streams(self._streams, 1)  # checks the argument before the ranks are known
        # Not torch's, which needs a process group.
        ChunkedSampler.__init__(
            self,
            dataset,
            chunksize=chunksize,
            partition=partition,
            interleave=interleave,
            lengths=lengths,
            **options,
        )

    @property
    def num_samples(self) -> int:  # type: ignore[override]  # computed here, stored there
        """Number of indexes per epoch on this rank; the name is that of torch's class."""
        return len(self)

    @property
    def total_size(self) -> int:  # type: ignore[override]  # computed here, stored there
        """Number of indexes per epoch on all ranks; the name is that of torch's class."""
        ragged = self.tail == "ragged"
        return self._source.num_samples if ragged else len(self) * self.num_replicas


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
        interleave: Shards that a stream draws from at once, at least 1.
        streams: As in `DistributedChunkedSampler`.
        weights: Weight of each sample, at least 0. Its number of draws in an epoch is its share of
            the weights, rounded down or up.
        balance: Class of each sample, such as a column. In each epoch the numbers of draws of any
            two classes differ by at most one. `weights` then apply within each class.
        options: `num_samples`, `seed`, `shuffle`, `shufflefirst`, `drop_last`, `pad`, `chunksize`
            (by default a whole shard) and `lanes`, as in `DistributedChunkedSampler`. With
            `weights` or `balance`, `num_samples` is the number of draws per epoch on all ranks
            together; the default is the number of samples.

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
        lengths: Sequence[int] | Integers | None = None,
        # "global" mixes more, but a node fetches other shards in each epoch.
        partition: str = "global",
        # If shards are sorted by class, a batch of 32 then has 13 classes of 100, and 1 without
        # mixing. A larger value needs more open shards and cache for little more mixing.
        interleave: int = 16,
        streams: int | str = "node",
        weights: Sequence[float] | NDArray[Any] | None = None,
        balance: Sequence[Any] | NDArray[Any] | None = None,
        **options: Unpack[_RankOptions],
    ) -> None:
        weighted = weights is not None or balance is not None
        mixed = hasattr(dataset, "part_lengths")
        if weighted and mixed:
            raise ValueError(
                "weights and balance are for the samples of one dataset; give the Mixture the "
                "weights of its parts"
            )
        draws = options.pop("num_samples", None) if weighted else None
        options.setdefault("chunksize", None)
        super().__init__(
            dataset,
            num_replicas,
            rank,
            # A Mixture has those of its parts.
            lengths=dataset.lengths if lengths is None and not mixed else lengths,
            partition=partition,
            interleave=interleave,
            streams=streams,
            **options,
        )
        if weighted:
            self._source = WeightedChunks(self._chunks, weights, balance, draws)
