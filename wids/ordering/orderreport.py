"""Cost and mixing of an order, computed before a run: numbers and a plot for `wids order`.

The order is simulated, not estimated: the shards that the ranks of one node and one worker read in
an epoch are counted (for a large dataset, only in the beginning of the epoch).
"""

import math
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from wids.base.arguments import check_integer
from wids.base.plots import save_plot
from wids.ordering.chunks import chunk_layout, shard_lengths
from wids.ordering.order import EpochOrder, OrderSpec, RankShare, check_partition
from wids.ordering.permute import Integers

__all__ = ["Cluster", "OrderReport", "compare_interleaves", "order_report", "plot_order"]

# Steps that count as "at once": enough to read from all shards that are in use at one time.
_WINDOW_STEPS = 8
# The part of an epoch that counts as its beginning, or as its end.
_END_FRACTION = 0.02


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Who reads: the machines, processes and batches of a run.

    Attributes:
        nodes: Number of machines, at least 1.
        ranks_per_node: Training processes on each, at least 1.
        workers: DataLoader workers of each rank; 0 reads in the rank itself.
        batch_size: Samples a rank takes a step, at least 1.
        cache_shards: Shards that a node's cache holds; None if it holds all.
        open_shards: Shards that a worker keeps open (`lru_size`), at least 1.
    """

    nodes: int = 1
    ranks_per_node: int = 1
    workers: int = 0
    batch_size: int = 32
    cache_shards: int | None = None
    open_shards: int = 64

    def __post_init__(self) -> None:
        for name in ("nodes", "ranks_per_node", "batch_size", "open_shards"):
            check_integer(name, getattr(self, name), 1)
        if self.cache_shards is not None:
            check_integer("cache_shards", self.cache_shards, 1)
        check_integer("workers", self.workers, 0)

    @property
    def num_replicas(self) -> int:
        """Number of ranks in all."""
        return self.nodes * self.ranks_per_node


@dataclass(frozen=True, kw_only=True)
class OrderReport:
    """What an order costs one node and one worker, and how well it mixes.

    Attributes:
        partition: How chunks come to lanes.
        interleave: Chunks that a lane draws from at once, after reduction to those it has.
        lanes: Number of lanes.
        steps: Steps of an epoch that were followed.
        epoch_steps: Steps of a whole epoch.
        node_shards_mean: Shards that a node touches within 8 steps, on average.
        node_shards_max: The same, at most.
        new_shards_max: Shards new to the node within 4 steps, at most: the bursts of downloads.
        worker_shards: Shards that one worker touches within 8 of its own batches, on average.
        worker_opens: Times that worker has to open a shard, scaled to a whole epoch.
        downloads: Shards that a node downloads an epoch, with the cache given.
        downloads_least: Shards that it must download at the least, each one once.
        shards_per_batch: Different shards in a batch of one rank, on average.
        shards_per_batch_least: The same, at the least.
        shards_per_batch_first: The mean over the first 2 % of the epoch.
        shards_per_batch_last: The mean over the last 2 % of the epoch.
        shards_per_batch_uniform: The same under a full shuffle: the most one can expect.
    """

    partition: str
    interleave: int
    lanes: int
    steps: int
    epoch_steps: int
    node_shards_mean: float
    node_shards_max: int
    new_shards_max: int
    worker_shards: float
    worker_opens: int
    downloads: int
    downloads_least: int
    shards_per_batch: float
    shards_per_batch_least: int
    shards_per_batch_first: float
    shards_per_batch_last: float
    shards_per_batch_uniform: float

    def to_dict(self) -> dict[str, Any]:
        """The numbers by name, fit for JSON."""
        return asdict(self)

    def lines(self) -> list[str]:
        """The report as a reader wants it, a line each."""
        followed = "" if self.steps == self.epoch_steps else f" (followed {self.steps:,} steps)"
        node = f"{self.node_shards_mean:.1f}, at most {self.node_shards_max}"
        worker = f"{self.worker_shards:.1f} (opens {self.worker_opens:,} times an epoch)"
        downloads = f"{self.downloads:,} (at the least {self.downloads_least:,})"
        mixing = self.shards_per_batch / self.shards_per_batch_uniform
        batch = f"{self.shards_per_batch:.1f} ({mixing:.0%} of a full shuffle's)"
        ends = f"{self.shards_per_batch_first:.1f}, {self.shards_per_batch_last:.1f}, "
        ends += f"{self.shards_per_batch_least}"
        # A full shuffle has neither lanes nor chunks to mix.
        head, order = "lanes, interleave", f"{self.lanes}, {self.interleave}"
        if self.partition == "uniform":
            head, order = "order", "uniform"
        return [
            f"steps an epoch               {self.epoch_steps:,}{followed}",
            f"{head:<29}{order}",
            f"shards a node needs at once  {node}",
            f"new shards in 4 steps        at most {self.new_shards_max}",
            f"shards a worker needs        {worker}",
            f"downloads a node and epoch   {downloads}",
            f"shards in a batch of a rank  {batch}",
            f"first 2 %, last 2 %, least   {ends}",
        ]


def order_report(
    lengths: Sequence[int],
    cluster: Cluster,
    *,
    partition: str = "global",
    interleave: int = 16,
    lanes: int | None = None,
    chunksize: int | None = None,
    seed: int = 0,
    # Some seconds of work at most.
    max_samples: int = 4_000_000,
) -> OrderReport:
    """Follow an order through an epoch and count what it touches.

    Args:
        lengths: Samples in each shard.
        cluster: Who reads.
        partition: As for the samplers.
        interleave: As for the samplers.
        lanes: Number of lanes; by default one a node.
        chunksize: Samples a chunk, at least 1; None makes each shard one chunk.
        seed: As for the samplers.
        max_samples: Samples of the node to follow; beyond it counts are scaled up.

    Returns:
        The counts, of the first node, its first rank and that rank's first worker.

    Raises:
        ValueError: There is no sample, or an argument is out of its range.

    >>> report = order_report([100] * 50, Cluster(ranks_per_node=2), interleave=4)
    >>> report.downloads, report.node_shards_max < 12
    (50, True)
    """
    shards = shard_lengths(lengths)
    num_samples = int(shards.sum())
    if num_samples < 1:
        raise ValueError(f"lengths: there is nothing to order: {shards.size} shards hold no sample")
    if not isinstance(cluster, Cluster):
        raise TypeError(f"cluster must be a wids.Cluster, got {cluster!r:.80}")
    # One a node, as `DistributedShardSampler` has it by default.
    lanes = cluster.nodes if lanes is None else lanes
    for name, value in (("interleave", interleave), ("lanes", lanes), ("chunksize", chunksize)):
        if value is not None:
            check_integer(name, value, 1)
    check_partition(partition)
    layout = chunk_layout(0, num_samples, chunksize, shards)
    spec = OrderSpec(layout, check_integer("seed", seed), partition, lanes, interleave)
    most = check_integer("max_samples", max_samples, 1)
    replay = _Replay(spec, cluster, np.cumsum(shards), most)
    return replay.report()


def compare_interleaves(
    lengths: Sequence[int],
    cluster: Cluster,
    interleaves: Iterable[int] = (1, 2, 4, 8, 16, 32, 64),
    **options: Any,
) -> list[OrderReport]:
    """Report one order for several values of `interleave`, to choose one.

    Args:
        lengths: Samples in each shard.
        cluster: Who reads.
        interleaves: The values to try.
        options: Further arguments of `order_report`.

    >>> [r.interleave for r in compare_interleaves([10] * 20, Cluster(), (1, 4))]
    [1, 4]
    """
    return [order_report(lengths, cluster, interleave=k, **options) for k in interleaves]


class _Replay:
    """The shards that the first node reads, step by step."""

    def __init__(self, spec: OrderSpec, cluster: Cluster, ends: Integers, limit: int) -> None:
        shares = [
            RankShare(spec.num_samples, rank, cluster.num_replicas, spec.lanes)
            for rank in range(cluster.ranks_per_node)
        ]
        self._spec = spec
        self._cluster = cluster
        self._ends = ends
        self._count = shares[0].count
        length = min(self._count, max(1, limit // cluster.ranks_per_node))
        # Epoch 1, as epoch 0 may be in storage order; any other would give the same picture.
        order = spec.epoch(1)
        # shards: (num_ranks_of_the_node, length), the shard of each sample in the order it is read
        self._shards = np.stack([self._shards_of(order, share, 0, length) for share in shares])
        self._scale = self._count / length
        # The first rank's last batches, also where only the beginning is followed; as many as are
        # shown of the beginning.
        num_batches, num_followed = self._count // cluster.batch_size, length // cluster.batch_size
        self._num_end_batches = min(math.ceil(_END_FRACTION * num_batches), num_followed)
        start = (num_batches - self._num_end_batches) * cluster.batch_size
        self._last_shards = self._shards_of(order, shares[0], start, self._count)

    def _shards_of(self, order: EpochOrder, share: RankShare, first: int, last: int) -> Integers:
        indexes = order.at(share.positions(first, last))
        return np.searchsorted(self._ends, indexes, side="right").astype(np.int64)

    def report(self) -> OrderReport:
        """Count everything."""
        cluster, batch = self._cluster, self._cluster.batch_size
        window = _WINDOW_STEPS * batch
        node = [self._shards[:, i : i + window] for i in range(0, self._shards.shape[1], window)]
        touched = [np.unique(shards).size for shards in node]
        worker = self._worker_stream()
        followed, last = (_distinct(s, batch) for s in (self._shards[0], self._last_shards))
        return OrderReport(
            partition=self._spec.partition,
            interleave=self._spec.effective_interleave,
            lanes=self._spec.lanes,
            steps=-(-self._shards.shape[1] // batch),
            epoch_steps=-(-self._count // batch),
            node_shards_mean=float(np.mean(touched)),
            node_shards_max=max(touched),
            new_shards_max=self._most_new_shards(),
            worker_shards=float(np.mean(_distinct(worker, window))),
            worker_opens=round(_misses(worker, cluster.open_shards) * self._scale),
            downloads=self._downloads(cluster.cache_shards),
            downloads_least=self._downloads(None),
            shards_per_batch=float(np.mean(followed)),
            shards_per_batch_least=min(followed + last),
            shards_per_batch_first=float(np.mean(followed[: max(1, self._num_end_batches)])),
            shards_per_batch_last=float(np.mean(last)),
            shards_per_batch_uniform=float(np.mean(_distinct(self._uniform_stream(), batch))),
        )

    def _worker_stream(self) -> Integers:
        """What the first worker of the first rank reads: every so manieth batch."""
        shards, batch = self._shards[0], self._cluster.batch_size
        # A DataLoader deals out batches in turn, and batches only: a worker never shares one.
        numbers = np.arange(shards.size) // batch
        mine: Integers = shards[numbers % max(1, self._cluster.workers) == 0]
        return mine

    def _uniform_stream(self) -> Integers:
        spec = replace(self._spec, partition="uniform")
        share = RankShare(spec.num_samples, 0, self._cluster.num_replicas)
        # Only a mean is wanted of it, which thousands of batches settle.
        return self._shards_of(spec.epoch(1), share, 0, min(self._shards.shape[1], 100_000))

    def _most_new_shards(self) -> int:
        """Most shards seen for the first time in 4 steps; the first 4 fill an empty node."""
        # Transposed, the stream is in the order of time: all ranks of the node side by side.
        width = 4 * self._cluster.batch_size
        _, firsts = np.unique(self._shards.T.ravel(), return_index=True)
        bursts = np.bincount(firsts // (width * self._shards.shape[0]))
        return int(bursts[1:].max(initial=0))

    def _downloads(self, cache_shards: int | None) -> int:
        stream = self._shards.T.ravel()
        if cache_shards is None:
            seen = int(np.unique(stream).size)
            # A part of an epoch does not show how many shards the whole of it touches.
            return min(round(seen * self._scale), self._ends.size)
        return round(_misses(stream, cache_shards) * self._scale)


def _distinct(stream: Integers, width: int) -> list[int]:
    """Count the different values in each window of a stream; the incomplete last one is left out.

    If there is no other, it counts.
    """
    starts = range(0, max(1, stream.size - width + 1), width)
    return [np.unique(stream[start : start + width]).size for start in starts]


def _misses(stream: Integers, capacity: int) -> int:
    """Misses of a cache that forgets what was used the longest time ago."""
    cache: OrderedDict[int, None] = OrderedDict()
    misses = 0
    # Runs of one shard are one access.
    for shard in stream[np.flatnonzero(np.diff(stream, prepend=-1))].tolist():
        if shard in cache:
            cache.move_to_end(shard)
            continue
        misses += 1
        cache[shard] = None
        if len(cache) > capacity:
            cache.popitem(last=False)
    return misses


def plot_order(reports: Sequence[OrderReport], path: str | Path) -> None:
    """Draw mixing against locality, one point for each report.

    Args:
        reports: As from `compare_interleaves`.
        path: Image to write; its suffix says in which format.

    Raises:
        ModuleNotFoundError: matplotlib is not installed; the message says how to get it.
    """
    try:
        figure = import_module("matplotlib.figure").Figure(figsize=(10, 4), layout="constrained")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            'a plot needs matplotlib, which is not installed; pip install "wids[plot]"'
        ) from error
    mixing, downloads = figure.subplots(1, 2)
    at_once = [report.node_shards_mean for report in reports]
    mixing.plot(at_once, [report.shards_per_batch for report in reports], "o-")
    mixing.axhline(reports[0].shards_per_batch_uniform, ls="--", color="gray", label="full shuffle")
    mixing.set(ylabel="different shards in a batch of a rank", title="mixing")
    mixing.legend()
    downloads.plot(at_once, [report.downloads for report in reports], "o-", label="this order")
    downloads.axhline(reports[0].downloads_least, ls="--", color="gray", label="each shard once")
    downloads.set(ylabel="downloads of a node and epoch", title="cost", ylim=(0, None))
    downloads.legend()
    for axes in (mixing, downloads):
        axes.set(xlabel="shards that a node needs at once")
        for report, x, line in zip(reports, at_once, axes.lines[0].get_ydata(), strict=False):
            axes.annotate(f"k={report.interleave}", (x, line), (4, 4), textcoords="offset points")
    save_plot(figure, Path(path))
