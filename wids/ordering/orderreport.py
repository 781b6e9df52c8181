"""Cost and mixing of an order, computed before a run: numbers and a plot for `wids order`.

The order is simulated, not estimated: the shards that one node and one of its workers read in an
epoch are counted (in a large dataset, only in the beginning of the epoch).
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
from wids.base.text import format_nbytes
from wids.ordering.order import Chunks, EpochOrder, OrderSpec, Share, check_partition
from wids.ordering.permute import Integers
from wids.ordering.samplers import shard_lengths

__all__ = ["Cluster", "OrderReport", "compare_interleaves", "order_report", "plot_order"]

# Steps that count as simultaneous: enough to read from all shards that are in use at one time.
_WINDOW_STEPS = 8
# The part of an epoch that counts as its beginning, or as its end.
_END_FRACTION = 0.02


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Machines, processes and batches of a run.

    Attributes:
        nodes: Number of machines, at least 1.
        ranks_per_node: Training processes per machine, at least 1.
        workers: DataLoader workers per rank; 0 reads in the rank itself.
        batch_size: Samples per rank and step, at least 1.
        cache_shards: Number of shards that a node's cache holds; None for all.
        open_shards: Number of shards that a worker keeps open (`lru_size`), at least 1.

    >>> Cluster(nodes=4, ranks_per_node=8).num_replicas
    32
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
        """Number of ranks of all nodes."""
        return self.nodes * self.ranks_per_node


@dataclass(frozen=True, kw_only=True)
class OrderReport:
    """Shards that one node and one worker read in an order, and how well the order mixes them.

    Attributes:
        partition: How chunks are put in a line.
        interleave: Number of chunks that a stream draws from at once, at most those that it has.
        streams: Number of streams.
        steps: Number of simulated steps of an epoch.
        epoch_steps: Number of steps of a whole epoch.
        node_shards_mean: Mean number of shards that a node reads within 8 steps.
        node_shards_max: Largest number of shards that a node reads within 8 steps.
        new_shards_max: Largest number of shards within 4 steps that the node had not read before:
            the largest burst of downloads.
        worker_shards: Mean number of shards that one worker reads within 8 of its own batches.
        worker_opens: How often that worker opens a shard, scaled to a whole epoch.
        downloads: Number of shards that a node downloads per epoch, with the given cache.
        downloads_least: Number of downloads if each shard is downloaded once.
        shards_per_batch: Mean number of different shards in a batch of one rank.
        shards_per_batch_least: Smallest number of different shards in a batch.
        shards_per_batch_first: The mean over the first 2 % of the epoch.
        shards_per_batch_last: The mean over the last 2 % of the epoch.
        shards_per_batch_uniform: The mean under a full shuffle, which is the best possible.
        whole_nbytes: Bytes that a node downloads per epoch if it fetches whole shards; None if the
            size of the dataset is not known.
        range_nbytes: Bytes of the samples that a node reads per epoch, which it downloads if it
            reads all their fields by range; None if the size is not known.
    """

    partition: str
    interleave: int
    streams: int
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
    whole_nbytes: int | None = None
    range_nbytes: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers by name, as JSON can hold them."""
        return asdict(self)

    def lines(self) -> list[str]:
        """Return the report as lines of text."""
        followed = "" if self.steps == self.epoch_steps else f" (followed {self.steps:,} steps)"
        node = f"{self.node_shards_mean:.1f}, at most {self.node_shards_max}"
        worker = f"{self.worker_shards:.1f} ({self.worker_opens:,} opens per epoch)"
        downloads = f"{self.downloads:,} (at least {self.downloads_least:,})"
        mixing = self.shards_per_batch / self.shards_per_batch_uniform
        batch = f"{self.shards_per_batch:.1f} ({mixing:.0%} of a full shuffle's)"
        ends = f"{self.shards_per_batch_first:.1f}, {self.shards_per_batch_last:.1f}, "
        ends += f"{self.shards_per_batch_least}"
        # A full shuffle has neither streams nor chunks to mix.
        head, order = "streams, interleave", f"{self.streams}, {self.interleave}"
        if self.partition == "uniform":
            head, order = "order", "uniform"
        lines = [
            f"steps per epoch              {self.epoch_steps:,}{followed}",
            f"{head:<29}{order}",
            f"shards a node needs at once  {node}",
            f"new shards in 4 steps        at most {self.new_shards_max}",
            f"shards a worker needs        {worker}",
            f"downloads per node and epoch {downloads}",
            f"shards in a batch of a rank  {batch}",
            f"first 2 %, last 2 %, least   {ends}",
        ]
        if self.whole_nbytes is not None and self.range_nbytes is not None:
            whole, ranges = format_nbytes(self.whole_nbytes), format_nbytes(self.range_nbytes)
            lines.append(f"bytes per node and epoch     {whole} as whole shards, {ranges} by range")
        return lines


def order_report(
    lengths: Sequence[int],
    cluster: Cluster,
    *,
    partition: str = "global",
    interleave: int = 16,
    streams: int | None = None,
    chunksize: int | None = None,
    seed: int = 0,
    nbytes: int | None = None,
    lanes: int | None = None,
    # Some seconds of work at most.
    max_samples: int = 4_000_000,
) -> OrderReport:
    """Simulate an order through an epoch, and count the shards that are read.

    Args:
        lengths: Number of samples in each shard.
        cluster: Machines, processes and batches of the run.
        partition: As for the samplers.
        interleave: As for the samplers.
        streams: Number of streams; by default one per node.
        chunksize: Samples per chunk, at least 1; None makes each shard one chunk.
        seed: As for the samplers.
        nbytes: Size of all shards, from which the bytes that a node downloads are computed.
        lanes: The old name of `streams`.
        max_samples: Number of samples of the node to simulate; for more, counts are scaled up.

    Returns:
        The counts of the first node, its first rank and that rank's first worker.

    Raises:
        ValueError: There are no samples, or an argument is out of range.

    >>> report = order_report([100] * 50, Cluster(ranks_per_node=2), interleave=4)
    >>> report.downloads, report.node_shards_max < 12
    (50, True)
    """
    shards = shard_lengths(lengths)
    num_samples = int(shards.sum())
    if num_samples < 1:
        raise ValueError(
            "lengths: expected shards with at least one sample, got "
            f"{shards.size} shards without samples"
        )
    if not isinstance(cluster, Cluster):
        raise TypeError(f"cluster must be a wids.Cluster, got {cluster!r:.80}")
    streams = streams if lanes is None else lanes
    # One stream per node is the default of `DistributedShardSampler`.
    streams = cluster.nodes if streams is None else streams
    for name, value in (("interleave", interleave), ("streams", streams), ("chunksize", chunksize)):
        if value is not None:
            check_integer(name, value, 1)
    check_partition(partition)
    spec = OrderSpec(
        seed=check_integer("seed", seed),
        # Epoch 0 may be in storage order; any later epoch has similar counts.
        epoch=1,
        partition=partition,
        streams=streams,
        interleave=interleave,
    )
    chunks = Chunks.cut(0, num_samples, chunksize, shards)
    most = check_integer("max_samples", max_samples, 1)
    report = _Replay(chunks, spec, cluster, np.cumsum(shards), most).report()
    if nbytes is None:
        return report
    share = Share(num_samples, 0, cluster.num_replicas, streams).count * cluster.ranks_per_node
    return replace(
        report,
        whole_nbytes=nbytes * report.downloads // shards.size,
        range_nbytes=check_integer("nbytes", nbytes, 0) * share // num_samples,
    )


def compare_interleaves(
    lengths: Sequence[int],
    cluster: Cluster,
    interleaves: Iterable[int] = (1, 2, 4, 8, 16, 32, 64),
    **options: Any,
) -> list[OrderReport]:
    """Return a report for each of several values of `interleave`, to choose one.

    Args:
        lengths: Number of samples in each shard.
        cluster: Machines, processes and batches of the run.
        interleaves: The values.
        options: Further arguments of `order_report`.

    >>> [r.interleave for r in compare_interleaves([10] * 20, Cluster(), (1, 4))]
    [1, 4]
    """
    return [order_report(lengths, cluster, interleave=k, **options) for k in interleaves]


class _Replay:
    """Simulation of the first node: the shard of each sample that it reads."""

    def __init__(
        self, chunks: Chunks, spec: OrderSpec, cluster: Cluster, ends: Integers, limit: int
    ) -> None:
        shares = [
            Share(chunks.num_samples, rank, cluster.num_replicas, spec.streams)
            for rank in range(cluster.ranks_per_node)
        ]
        self._chunks, self._spec = chunks, spec
        self._cluster = cluster
        self._ends = ends
        self._count = shares[0].count
        length = min(self._count, max(1, limit // cluster.ranks_per_node))
        order = chunks.epoch(spec)
        # shards: (num_ranks_of_the_node, length), the shard of each sample in the order it is read
        self._shards = np.stack([self._shards_of(order, share, 0, length) for share in shares])
        self._scale = self._count / length
        # The first rank's last batches, even if only the beginning of the epoch is simulated; as
        # many as the report averages at the beginning.
        num_batches, num_followed = self._count // cluster.batch_size, length // cluster.batch_size
        self._num_end_batches = min(math.ceil(_END_FRACTION * num_batches), num_followed)
        start = (num_batches - self._num_end_batches) * cluster.batch_size
        self._last_shards = self._shards_of(order, shares[0], start, self._count)

    def _shards_of(self, order: EpochOrder, share: Share, first: int, last: int) -> Integers:
        indexes = order.at(share.positions(first, last))
        return np.searchsorted(self._ends, indexes, side="right").astype(np.int64)

    def report(self) -> OrderReport:
        """Return the counts."""
        cluster, batch = self._cluster, self._cluster.batch_size
        window = _WINDOW_STEPS * batch
        node = [self._shards[:, i : i + window] for i in range(0, self._shards.shape[1], window)]
        touched = [np.unique(shards).size for shards in node]
        worker = self._worker_stream()
        followed, last = (_distinct(s, batch) for s in (self._shards[0], self._last_shards))
        return OrderReport(
            partition=self._spec.partition,
            interleave=min(
                self._spec.interleave, -(-self._chunks.sizes.size // self._spec.streams)
            ),
            streams=self._spec.streams,
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
        """Return the shards that the first worker of the first rank reads, sample by sample."""
        shards, batch = self._shards[0], self._cluster.batch_size
        # A DataLoader assigns whole batches to its workers in turn.
        numbers = np.arange(shards.size) // batch
        mine: Integers = shards[numbers % max(1, self._cluster.workers) == 0]
        return mine

    def _uniform_stream(self) -> Integers:
        order = self._chunks.epoch(replace(self._spec, partition="uniform"))
        share = Share(order.num_samples, 0, self._cluster.num_replicas)
        # Only its mean is used, for which thousands of batches are enough.
        return self._shards_of(order, share, 0, min(self._shards.shape[1], 100_000))

    def _most_new_shards(self) -> int:
        """Return the largest number of first reads in 4 steps, apart from the first 4 steps."""
        # Transposed, the samples of all ranks of the node are in the order of time.
        width = 4 * self._cluster.batch_size
        _, firsts = np.unique(self._shards.T.ravel(), return_index=True)
        bursts = np.bincount(firsts // (width * self._shards.shape[0]))
        return int(bursts[1:].max(initial=0))

    def _downloads(self, cache_shards: int | None) -> int:
        stream = self._shards.T.ravel()
        if cache_shards is None:
            seen = int(np.unique(stream).size)
            # Scaled, because the simulated part of the epoch may not read all shards.
            return min(round(seen * self._scale), self._ends.size)
        return round(_misses(stream, cache_shards) * self._scale)


def _distinct(stream: Integers, width: int) -> list[int]:
    """Count the different values in each window of a stream.

    An incomplete last window is left out, unless it is the only one.
    """
    starts = range(0, max(1, stream.size - width + 1), width)
    return [np.unique(stream[start : start + width]).size for start in starts]


def _misses(stream: Integers, capacity: int) -> int:
    """Return the number of misses of a cache that evicts the least recently used entry."""
    cache: OrderedDict[int, None] = OrderedDict()
    misses = 0
    # A run of one shard is one access, since the cache cannot change within it.
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
        path: Image to write, in the format of its suffix.

    Raises:
        ModuleNotFoundError: matplotlib is not installed; the message names the extra to install.
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
    downloads.set(ylabel="downloads per node and epoch", title="cost", ylim=(0, None))
    downloads.legend()
    for axes in (mixing, downloads):
        axes.set(xlabel="shards that a node needs at once")
        for report, x, line in zip(reports, at_once, axes.lines[0].get_ydata(), strict=False):
            axes.annotate(f"k={report.interleave}", (x, line), (4, 4), textcoords="offset points")
    save_plot(figure, Path(path))
