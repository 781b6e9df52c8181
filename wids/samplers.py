"""Samplers: which index comes next, on this rank, in this epoch, from this position on.

    ChunkedSampler              one process, or the global order that a framework deals out itself
    ShardListSampler            one process, chunk = shard
    DistributedChunkedSampler   one rank's share; a rank keeps its own range of the data
    DistributedShardSampler     the one to recommend: chunk = shard, dealt anew each epoch, mixed

All are faces of one core, `wids.order`. With torch installed they are `torch.utils.data.Sampler`s
and the distributed ones are `torch.utils.data.DistributedSampler`s, which frameworks look for;
without torch they are plain classes that do the same.
"""

import logging
import operator
import os
from collections.abc import Iterator, Mapping, Sequence, Sized
from itertools import chain
from typing import Any, Literal

from wids.order import (
    ORDER_VERSION,
    PARTITIONS,
    EpochOrder,
    Layout,
    OrderSpec,
    RankShare,
    chunk_layout,
)

try:
    import torch.distributed as dist
    from torch.utils.data import DistributedSampler, Sampler
except ImportError:
    dist = None  # type: ignore[assignment]

    class Sampler:  # type: ignore[no-redef]
        """Stands in for torch's class of that name."""

        def __class_getitem__(cls, _item: object) -> type:
            return cls

    class DistributedSampler(Sampler):  # type: ignore[no-redef, type-arg]
        """Stands in for torch's class of that name."""


__all__ = [
    "ChunkedSampler",
    "DistributedChunkedSampler",
    "DistributedShardSampler",
    "EpochPass",
    "ShardListSampler",
    "ShardedSampler",
]

logger = logging.getLogger(__name__)

# The first blocks are small, so that the first batch does not wait for thousands of indexes.
_FIRST_BLOCK, _LAST_BLOCK = 256, 16384


class EpochPass(chain[int]):
    """One pass over an epoch: an iterator of indexes at the speed of a list, with a position.

    What `iter(sampler)` returns. It keeps the epoch and position that the sampler had then. A
    `torchdata.stateful_dataloader.StatefulDataLoader` saves and restores it by the two methods.
    """

    blocks: "_Blocks"

    @classmethod
    def begin(cls, sampler: "ChunkedSampler", start: Mapping[str, Any]) -> "EpochPass":
        """Start a pass of `sampler` at a state."""
        blocks = _Blocks(sampler, start)
        # The chain takes index after index from the blocks in C; a generator is half as fast.
        this = cls.from_iterable(blocks)
        this.blocks = blocks
        return this

    def state_dict(self) -> dict[str, Any]:
        """The state in which a pass would yield what this one has still to yield."""
        return self.blocks.state()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on where the pass stood whose `state_dict` this is; before the first index only."""
        self.blocks.restart(state_dict)


class _Blocks(Iterator[Iterator[int]]):
    """Blocks of indexes of one pass, computed when they are asked for."""

    def __init__(self, sampler: "ChunkedSampler", start: Mapping[str, Any]) -> None:
        self._sampler = sampler
        self.restart(start)

    def restart(self, start: Mapping[str, Any]) -> None:
        """Make this a pass from another state."""
        self._start = start
        self._order: EpochOrder | None = None
        self._share: RankShare | None = None
        self._block: Iterator[int] = iter(())
        self._computed = 0
        self.exhausted = False

    @property
    def epoch(self) -> int:
        """The epoch that is passed over."""
        return int(self._start["epoch"])

    def __next__(self) -> Iterator[int]:
        if self._share is None or self._order is None:
            self._order, self._share = self._sampler.plan(self._start)
            self._sampler.begun(self)
        stop = min(self._share.count, max(_FIRST_BLOCK, 4 * self._computed))
        stop = min(stop, self._computed + _LAST_BLOCK)
        if stop == self._computed:
            self.exhausted = True
            self._sampler.ended(self)
            raise StopIteration
        indexes = self._order.at(self._share.positions(self._computed, stop))
        self._computed = stop
        self._block = iter(indexes.tolist())
        return self._block

    def state(self, consumed: int | None = None) -> dict[str, Any]:
        """The state after `consumed` indexes; after those handed out, if that is not given."""
        if consumed is None:
            consumed = self._computed - operator.length_hint(self._block)
        replicas = self._sampler.num_replicas
        position = int(self._start["position"]) + consumed * replicas
        return {**self._start, "position": min(position, int(self._start["n"]))}


class ChunkedSampler(Sampler[int]):
    """Shuffles chunks of adjacent indexes, and the indexes in each; for one process.

    Also the sampler to give to a framework that deals batches out to ranks by itself (Accelerate,
    the Hugging Face Trainer): its order is the global one.

    The order of an epoch depends on the arguments and the epoch alone. Passes advance the epoch one
    by one, an abandoned pass included, until `set_epoch` is called: from then on the epoch stays.

    Args:
        dataset: Anything with a length.
        dslength_per_replica: Accepted for old calls; `len()` is always what comes.
        num_samples: How many samples take part, or `(lo, hi)` for the indexes `[lo, hi)`; None for
            all.
        chunksize: Samples a chunk, at least 1; None for chunks as long as can be.
        seed: Any integer.
        shuffle: False for storage order.
        shufflefirst: False to keep the chunks in storage order in epoch 0 (the samples in them are
            shuffled); by default the first epoch is shuffled like any other.
        partition: How chunks are lined up: "contiguous" (permuted each epoch), "fixed", "global"
            (both the same for one process) or "uniform" (no chunks at all: a full shuffle).
        interleave: Chunks drawn from at once, at least 1.
        lengths: Samples in each shard; if given, no chunk straddles two shards.

    Raises:
        ValueError: An argument is out of its range; the message names it.

    >>> sampler = ChunkedSampler(range(10), chunksize=5, seed=1)
    >>> first, second = list(sampler), list(sampler)
    >>> first == second, sorted(first) == sorted(second) == list(range(10))
    (False, True)
    """

    rank = 0
    num_replicas = 1

    def __init__(  # the signature of old, widened
        self,
        dataset: Sized,
        *,
        dslength_per_replica: int = -1,
        num_samples: int | tuple[int, int] | None = None,
        chunksize: int | None = 2000,
        seed: int = 0,
        shuffle: bool = True,
        shufflefirst: bool | None = None,
        partition: str = "contiguous",
        interleave: int = 1,
        lengths: Sequence[int] | None = None,
    ) -> None:
        self._take(dataset, num_samples, chunksize, lengths)
        self._order_by(seed, partition, interleave, shuffle=shuffle, shufflefirst=shufflefirst)
        if dslength_per_replica not in (-1, len(self)):
            logger.warning(
                "dslength_per_replica=%d is ignored: len() is what comes, %d",
                dslength_per_replica,
                len(self),
            )

    def _take(
        self,
        dataset: Sized,
        num_samples: int | tuple[int, int] | None,
        chunksize: int | None,
        lengths: Sequence[int] | None,
    ) -> None:
        """Decide which samples take part, and cut them into chunks."""
        self.dataset = dataset
        lo, hi = _bounds(num_samples, len(dataset))
        if chunksize is not None and operator.index(chunksize) < 1:
            raise ValueError(f"chunksize must be at least 1 (or None), got {chunksize}")
        if lengths is not None and (min(lengths, default=0) < 0 or sum(lengths) < hi):
            raise ValueError(
                f"lengths must be at least 0 and sum up to {hi}, the end of what is sampled; "
                f"got a sum of {sum(lengths)} over {len(lengths)} shards"
            )
        self._first = lo
        self._layout: Layout = chunk_layout(lo, hi, chunksize, lengths)

    def _order_by(
        self,
        seed: int,
        partition: str,
        interleave: int,
        *,
        shuffle: bool,
        shufflefirst: bool | None,
        lanes: int = 1,
        tail: Literal["pad", "drop", "ragged"] = "pad",
    ) -> None:
        """Decide in which order they come, and begin before epoch 0."""
        if partition not in PARTITIONS:
            raise ValueError(f"partition must be one of {', '.join(PARTITIONS)}; got {partition!r}")
        for name, value in (("interleave", interleave), ("lanes", lanes)):
            if operator.index(value) < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        self.seed = operator.index(seed)
        self.partition = partition
        self.interleave = interleave
        self.lanes = lanes
        self.shuffle = shuffle
        self.shufflefirst = shufflefirst is None or shufflefirst
        self._tail: Literal["pad", "drop", "ragged"] = tail
        self._epoch = 0
        self._pinned = False
        self._resumed: Mapping[str, Any] | None = None
        self._pass: _Blocks | None = None
        _check_open_shards(self.dataset, interleave)

    def __len__(self) -> int:
        """Number of indexes that a whole epoch yields on this rank."""
        return self._share(self._epoch_start(0)).count

    def __iter__(self) -> EpochPass:
        """Begin a pass over the epoch, from where the sampler was restored, else from its start."""
        under_way = self._pass
        if under_way is not None and not under_way.exhausted and not self._pinned:
            self._begin_epoch(max(self._epoch, under_way.epoch + 1))
        return EpochPass.begin(self, self._resumed or self._epoch_start(self._epoch))

    @property
    def epoch(self) -> int:
        """The epoch that the next pass takes, or the one under way."""
        return self._epoch

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self.set_epoch(epoch)

    def set_epoch(self, epoch: int) -> None:
        """Make `epoch` the epoch of all coming passes, until this is called again.

        A position restored by `load_state_dict` is kept if it is of the same epoch.
        """
        epoch = operator.index(epoch)
        if epoch != self._epoch or (self._pass is not None and self._pass.exhausted):
            self._begin_epoch(epoch)
        self._pinned = True

    def _begin_epoch(self, epoch: int) -> None:
        self._epoch = epoch
        self._resumed = None
        self._pass = None

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """The chunks of this rank in storage order, each `(start, stop)`."""
        start = self._epoch_start(0)
        return self._spec(start).ranges(self._share(start).lane)

    def remaining(self) -> int:
        """Number of indexes still to come: of the pass under way, else of the next one."""
        return self._share(self.state_dict()).count

    def state_dict(self, consumed: int | None = None) -> dict[str, Any]:
        """Where the sampler stands: a small dict of plain values, the same on every rank.

        Args:
            consumed: Indexes of the pass under way that this rank has really consumed: steps times
                batch size. Needed where a loader asks for indexes ahead of their use, as a plain
                DataLoader with workers does; else those handed out count as consumed.
        """
        under_way = self._pass
        if consumed is not None and consumed < 0:
            raise ValueError(f"consumed must be at least 0, got {consumed}")
        if under_way is None and consumed is None:
            return dict(self._resumed or self._epoch_start(self._epoch))
        if under_way is None:
            start = self._resumed or self._epoch_start(self._epoch)
            return _Blocks(self, start).state(consumed)
        if under_way.exhausted and consumed is None:
            return self._epoch_start(max(self._epoch, under_way.epoch + 1))
        return under_way.state(consumed)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> None:
        """Go on where `state_dict` was taken, on any number of ranks.

        The epoch begun is finished in the order it was begun in: its seed, partition, lanes and
        interleave come from the state. The epochs after it follow this sampler's own arguments.

        Args:
            state_dict: From `state_dict`, of this or another rank.
            strict: False to accept a state of other data (another length, other shards): epoch and
                position are taken over, what was seen before the change may come again.

        Raises:
            ValueError: The state is none, is of another version of the order, or of other data.
        """
        start = self._epoch_start(0)
        missing = [name for name in start if name not in state_dict]
        if missing or state_dict["order"] != ORDER_VERSION:
            raise ValueError(
                f"this is no state of a sampler with order version {ORDER_VERSION}: "
                f"got order {state_dict.get('order')!r}, missing {missing or 'nothing'}"
            )
        epoch, position = int(state_dict["epoch"]), int(state_dict["position"])
        changed = [name for name in _DATA_NAMES if state_dict[name] != start[name]]
        if changed and strict:
            raise ValueError(
                "the state was taken over other data: "
                + ", ".join(f"{name} was {state_dict[name]}, is {start[name]}" for name in changed)
                + "; restore with the same dataset and chunks, or pass strict=False"
            )
        if not 0 <= position <= max(int(state_dict["n"]), 0):
            raise ValueError(f"position must lie in [0, {state_dict['n']}], got {position}")
        self._begin_epoch(epoch)
        self._pinned = False
        if position:
            own = {name: start[name] for name in _DATA_NAMES}
            position = min(position, self._layout.num_samples)
            self._resumed = {**state_dict, **own, "position": position}

    def __getstate__(self) -> dict[str, Any]:
        """What travels to another process: the position, not the pass."""
        state = self.state_dict()
        place = {"_epoch": state["epoch"], "_resumed": state if state["position"] else None}
        return {**self.__dict__, **place, "_pass": None}

    def _epoch_start(self, epoch: int) -> dict[str, Any]:
        """The state before the first index of an epoch."""
        return {
            "order": ORDER_VERSION,
            "epoch": epoch,
            "position": 0,
            "seed": self.seed,
            "shuffle": self.shuffle,
            "shufflefirst": self.shufflefirst,
            "partition": self.partition,
            "lanes": self.lanes,
            "interleave": self.interleave,
            "first": self._first,
            "n": self._layout.num_samples,
            "layout": self._layout.digest,
        }

    def _spec(self, state: Mapping[str, Any]) -> OrderSpec:
        return OrderSpec(
            self._layout,
            state["seed"],
            state["partition"],
            state["lanes"],
            state["interleave"],
            state["shuffle"],
            self._first,
        )

    def _share(self, state: Mapping[str, Any]) -> RankShare:
        return RankShare(
            self._layout.num_samples,
            self.rank,
            self.num_replicas,
            state["lanes"],
            state["position"],
            self._tail,
        )

    def plan(self, state: Mapping[str, Any]) -> tuple[EpochOrder, RankShare]:
        """The order that a pass from `state` follows, and the part of it that is this rank's."""
        share = self._share(state)
        shuffle_chunks = state["shufflefirst"] or state["epoch"] > 0
        order = self._spec(state).epoch(
            state["epoch"], shuffle_chunks=shuffle_chunks, lane=share.lane
        )
        return order, share

    def begun(self, blocks: "_Blocks") -> None:
        """Take note that a pass has handed out its first index."""
        self._pass = blocks

    def ended(self, blocks: "_Blocks") -> None:
        """Take note that a pass has handed out its last index."""
        if blocks.epoch == self._epoch:
            self._resumed = None
            self._epoch += not self._pinned


_DATA_NAMES = ("n", "first", "layout")


def _bounds(num_samples: int | tuple[int, int] | None, length: int) -> tuple[int, int]:
    """Read `num_samples` as the half-open range `[lo, hi)` within `[0, length)`."""
    if num_samples is None:
        lo, hi = 0, length
    elif isinstance(num_samples, (tuple, list)):
        lo, hi = map(operator.index, num_samples)
    else:
        lo, hi = 0, operator.index(num_samples)
    if not 0 <= lo <= hi <= length:
        raise ValueError(
            f"num_samples must be a count or (lo, hi) with 0 <= lo <= hi <= {length}, the length "
            f"of the dataset; got {num_samples!r}"
        )
    return lo, hi


def _check_open_shards(dataset: object, interleave: int) -> None:
    """Say so when a worker would close and reopen shards all the time."""
    lru_size = getattr(dataset, "lru_size", None)
    if isinstance(lru_size, int) and interleave > 1 and lru_size < interleave + 2:
        logger.warning(
            "interleave=%d draws from %d shards at once, but lru_size=%d; open the dataset with "
            "lru_size=%d or more",
            interleave,
            interleave,
            lru_size,
            interleave + 2,
        )


class ShardListSampler(ChunkedSampler):
    """Shuffles the shards, then the samples in each; for one process.

    Args:
        dataset: A dataset with `lengths`, the number of samples in each shard.
        lengths: The same, if the dataset does not say, or for another division.
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
        lengths = list(dataset.lengths if lengths is None else lengths)
        self._take(range(sum(lengths)), None, None, lengths)
        self.dataset = dataset
        self._order_by(seed, "contiguous", interleave, shuffle=shuffle, shufflefirst=shufflefirst)


ShardedSampler = ShardListSampler


class DistributedChunkedSampler(ChunkedSampler, DistributedSampler[int]):
    """One rank's share of the chunks; every rank yields the same number of indexes.

    By default each rank keeps a contiguous range of the dataset, hence its shards, and shuffles it
    by chunks. Drawn for 10 samples over 4 ranks, unshuffled, padded in brackets:

        rank 0   0 1 2        rank 2   6 7 [7]
        rank 1   3 4 5        rank 3   8 9 [9]

    Args:
        dataset: Anything with a length.
        num_replicas: Number of ranks; by default the process group's, 1 without one.
        rank: This rank, in `[0, num_replicas)`; by default the process group's, 0 without one.
        num_samples: How many samples take part, or `(lo, hi)`; None for all.
        shuffle: False for storage order.
        shufflefirst: False to keep the chunks in storage order in epoch 0.
        seed: Any integer, the same on all ranks.
        drop_last: True to leave out up to `num_replicas - 1` samples rather than repeat some.
        chunksize: Samples a chunk, at least 1; None for chunks as long as can be.
        partition: "contiguous" (a rank keeps its range), "fixed" (it keeps chunks from all over),
            "global" (chunks are dealt anew each epoch) or "uniform" (a full shuffle).
        interleave: Chunks that a lane draws from at once, at least 1.
        lanes: Parts of the order that advance side by side: "rank" for one each, "node" for one
            that the ranks of a node share, or a number.
        lengths: Samples in each shard; if given, no chunk straddles two shards.
        pad: False to repeat nothing: some ranks yield one index less (for evaluation).

    Raises:
        ValueError: An argument is out of its range; the message names it.

    >>> [list(DistributedChunkedSampler(range(10), 4, rank, shuffle=False)) for rank in range(4)]
    [[0, 1, 2], [3, 4, 5], [6, 7, 7], [8, 9, 9]]
    """

    def __init__(  # the signature of old, widened
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
        self.num_replicas, self.rank = _replica(num_replicas, rank)
        self.drop_last = bool(drop_last)
        self._take(dataset, num_samples, chunksize, lengths)
        self._order_by(
            seed,
            partition,
            interleave,
            shuffle=shuffle,
            shufflefirst=shufflefirst,
            lanes=_number_of_lanes(lanes, self.num_replicas),
            tail="drop" if drop_last else "pad" if pad else "ragged",
        )

    @property
    def num_samples(self) -> int:
        """Number of indexes an epoch on this rank, as torch's class calls it."""
        return len(self)

    @property
    def total_size(self) -> int:
        """Number of indexes an epoch on all ranks together, as torch's class calls it."""
        n, replicas = self._layout.num_samples, self.num_replicas
        return n if self._tail == "ragged" else len(self) * replicas


class DistributedShardSampler(DistributedChunkedSampler):
    """The one to recommend: whole shards, dealt anew each epoch, `interleave` of them mixed.

    The ranks of a node draw from the same `interleave` shards, so a node needs no more of them open
    or in its cache at once, however many ranks and workers it runs.

    Args:
        dataset: A dataset with `lengths`, the number of samples in each shard.
        num_replicas: Number of ranks; by default the process group's, 1 without one.
        rank: This rank, in `[0, num_replicas)`; by default the process group's, 0 without one.
        lengths: Samples in each shard, if the dataset does not say.
        partition: As for `DistributedChunkedSampler`.
        interleave: Shards that a lane draws from at once, at least 1.
        lanes: As for `DistributedChunkedSampler`.
        options: Its other arguments.

    >>> from types import SimpleNamespace
    >>> class Shards(list):
    ...     lengths = [4, 3, 5]
    >>> shares = [list(DistributedShardSampler(Shards(range(12)), 2, rank)) for rank in range(2)]
    >>> sorted(shares[0] + shares[1])
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]
    """

    def __init__(
        self,
        dataset: Any,
        num_replicas: int | None = None,
        rank: int | None = None,
        *,
        lengths: Sequence[int] | None = None,
        partition: str = "global",
        interleave: int = 16,
        lanes: int | Literal["rank", "node"] = "node",
        **options: Any,
    ) -> None:
        super().__init__(
            dataset,
            num_replicas,
            rank,
            lengths=dataset.lengths if lengths is None else lengths,
            partition=partition,
            interleave=interleave,
            lanes=lanes,
            **{"chunksize": None, **options},
        )


def _replica(num_replicas: int | None, rank: int | None) -> tuple[int, int]:
    """Complete what was not given from the process group; without one, one process."""
    if num_replicas is None or rank is None:
        # Looked up on torch's module now: a group is made after import, and tests replace these.
        if dist is not None and dist.is_available() and dist.is_initialized():
            num_replicas = dist.get_world_size() if num_replicas is None else num_replicas
            rank = dist.get_rank() if rank is None else rank
        else:
            num_replicas = 1 if num_replicas is None else num_replicas
            rank = 0 if rank is None else rank
            logger.warning(
                "no torch.distributed process group: sampling as rank %d of %d. Initialise it "
                "first, or pass num_replicas and rank",
                rank,
                num_replicas,
            )
    if operator.index(num_replicas) < 1:
        raise ValueError(f"num_replicas must be at least 1, got {num_replicas}")
    if not 0 <= operator.index(rank) < num_replicas:
        raise ValueError(f"rank must lie in [0, {num_replicas}), got {rank}")
    return num_replicas, rank


def _number_of_lanes(lanes: int | str, num_replicas: int) -> int:
    """Read `lanes`; the number of nodes is what torchrun or SLURM says, the same on all of them."""
    if lanes == "rank":
        return num_replicas
    if lanes != "node":
        return operator.index(lanes)  # type: ignore[arg-type]
    for name in ("GROUP_WORLD_SIZE", "SLURM_JOB_NUM_NODES"):
        text = os.environ.get(name, "")
        if text.isdecimal() and 1 <= int(text) <= num_replicas:
            return int(text)
    text = os.environ.get("LOCAL_WORLD_SIZE", "")
    return max(1, num_replicas // int(text)) if text.isdecimal() and int(text) else 1
