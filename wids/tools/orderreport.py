"""Cost and mixing of an order, computed before a run: for `wids order`.

The order is simulated, not estimated: the shards that one node and one of its workers read in an
epoch are counted (in a large dataset, only in the beginning of the epoch).
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from wids.base.arguments import check_integer
from wids.base.text import format_nbytes
from wids.ordering.permute import Integers
from wids.ordering.samplers import DistributedShardSampler, shard_lengths

__all__ = ["Cluster", "OrderReport", "order_report"]

# Steps that count as simultaneous: enough to read from all shards that are in use at one time.
_WINDOW_STEPS = 8
# The part of an epoch that counts as its beginning, or as its end.
_END_FRACTION = 0.02
_PIECE_NBYTES = 4 << 20  # of a shard that is fetched whole, by one request


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
        whole_requests: Least number of requests for that by whole shards, in pieces of 4 MiB; None
            if the size is not known.
        range_requests: Largest number of requests for that by range, one for each sample (samples
            that lie close together share requests); None if the size is not known.
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
    whole_requests: int | None = None
    range_requests: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers by name, as JSON can hold them."""
        return asdict(self)

    def lines(self) -> list[str]:
        """Return the report as lines of text."""
        followed = "" if self.steps == self.epoch_steps else f" (followed {self.steps:,} steps)"
        streams = f"{self.streams}, {self.interleave}"
        if self.partition == "uniform":  # which has neither streams nor chunks to mix
            streams = "none (uniform: a full shuffle)"
        at_once = f"{self.node_shards_mean:.1f}, at most {self.node_shards_max}"
        opens = f"({self.worker_opens:,} opens per epoch)"
        mixing = (
            f"({self.shards_per_batch / self.shards_per_batch_uniform:.0%} of a full shuffle's)"
        )
        ends = f"{self.shards_per_batch_first:.1f}, {self.shards_per_batch_last:.1f}"
        lines = [
            f"steps per epoch              {self.epoch_steps:,}{followed}",
            f"streams, interleave          {streams}",
            f"shards a node needs at once  {at_once}",
            f"new shards in 4 steps        at most {self.new_shards_max}",
            f"shards a worker needs        {self.worker_shards:.1f} {opens}",
            f"downloads per node and epoch {self.downloads:,} (at least {self.downloads_least:,})",
            f"shards in a batch of a rank  {self.shards_per_batch:.1f} {mixing}",
            f"first 2 %, last 2 %, least   {ends}, {self.shards_per_batch_least}",
        ]
        if self.whole_nbytes is not None and self.range_nbytes is not None:
            whole, ranges = format_nbytes(self.whole_nbytes), format_nbytes(self.range_nbytes)
            requests = f"at least {self.whole_requests:,}, at most {self.range_requests:,}"
            lines.append(f"bytes per node and epoch     {whole} as whole shards, {ranges} by range")
            lines.append(f"requests for them            {requests}")
        return lines


def order_report(
    lengths: Sequence[int],
    cluster: Cluster,
    *,
    interleave: int = 16,
    streams: int | None = None,
    nbytes: int | None = None,
    # Some seconds of work at most.
    max_samples: int = 4_000_000,
    **options: Any,
) -> OrderReport:
    """Simulate an order through an epoch, and count the shards that are read.

    Args:
        lengths: Number of samples in each shard.
        cluster: Machines, processes and batches of the run.
        interleave: As for the samplers.
        streams: Number of streams; by default one per node.
        nbytes: Size of all shards, from which the bytes that a node downloads, and its requests,
            are computed.
        max_samples: Number of samples of the node to simulate; for more, counts are scaled up.
        options: Other arguments of `DistributedShardSampler`: `partition`, `chunksize`, `seed`.

    Returns:
        The counts of the first node, its first rank and that rank's first worker.

    Raises:
        ValueError: There are no samples, or an argument is out of range.

    >>> report = order_report([100] * 50, Cluster(ranks_per_node=2), interleave=4)
    >>> report.downloads, report.node_shards_max < 12
    (50, True)
    """
    shards = shard_lengths(lengths, least=1)
    num_samples, ends = int(shards.sum()), np.cumsum(shards)
    if streams is None:
        streams = options.pop("lanes", cluster.nodes)  # the old name
    sampler = DistributedShardSampler(
        range(num_samples),
        cluster.num_replicas,
        0,
        lengths=shards,
        interleave=interleave,
        streams=streams,
        **options,
    )
    # Epoch 0 may be in storage order; any later epoch has similar counts.
    state, ranks, batch = sampler.start(1), cluster.ranks_per_node, cluster.batch_size
    order, share = sampler.order(state), sampler.share(state)

    def read(rank: int, first: int, last: int) -> Integers:
        """Return the shard of each sample that a rank reads in its steps `[first, last)`."""
        indexes = order.at(replace(share, rank=rank).positions(first, last))
        return np.searchsorted(ends, indexes, side="right").astype(np.int64)

    count = share.count
    length = min(count, max(1, check_integer("max_samples", max_samples, 1) // ranks))
    scale = count / length
    node = np.stack([read(rank, 0, length) for rank in range(ranks)])  # (ranks, length)
    in_time = node.T.ravel()  # the samples of all ranks, step by step
    # Whole batches go to the workers of a DataLoader in turn.
    worker = node[0][np.arange(length) // batch % max(1, cluster.workers) == 0]
    # The first rank's last batches, even if only the beginning of the epoch is simulated; as many
    # as are averaged at the beginning.
    num_ends = min(math.ceil(_END_FRACTION * (count // batch)), length // batch)
    followed = _distinct(node[0], batch)
    last = _distinct(read(0, (count // batch - num_ends) * batch, count), batch)
    window = _WINDOW_STEPS * batch
    at_once = [np.unique(node[:, i : i + window]).size for i in range(0, length, window)]
    _, first_reads = np.unique(in_time, return_index=True)
    # Scaled, because the simulated part of the epoch may not read all shards.
    least = downloads = min(round(first_reads.size * scale), shards.size)
    if cluster.cache_shards is not None:
        downloads = round(_misses(in_time, cluster.cache_shards) * scale)
    nbytes = None if nbytes is None else check_integer("nbytes", nbytes, 0)
    return OrderReport(
        partition=state.partition,
        interleave=min(interleave, -(-len(sampler.ranges) // state.streams)),
        streams=state.streams,
        steps=-(-length // batch),
        epoch_steps=-(-count // batch),
        node_shards_mean=float(np.mean(at_once)),
        node_shards_max=max(at_once),
        # In each four steps, apart from the first four.
        new_shards_max=int(np.bincount(first_reads // (4 * batch * ranks))[1:].max(initial=0)),
        worker_shards=float(np.mean(_distinct(worker, window))),
        worker_opens=round(_misses(worker, cluster.open_shards) * scale),
        downloads=downloads,
        downloads_least=least,
        shards_per_batch=float(np.mean(followed)),
        shards_per_batch_least=min(followed + last),
        shards_per_batch_first=float(np.mean(followed[: max(1, num_ends)])),
        shards_per_batch_last=float(np.mean(last)),
        # The mean of independent draws: of each shard, the chance to be in a batch.
        shards_per_batch_uniform=float((1 - (1 - shards / num_samples) ** batch).sum()),
        whole_nbytes=None if nbytes is None else nbytes * downloads // shards.size,
        range_nbytes=None if nbytes is None else nbytes * count * ranks // num_samples,
        whole_requests=None
        if nbytes is None
        else downloads * max(1, -(-nbytes // (shards.size * _PIECE_NBYTES))),
        range_requests=None if nbytes is None else count * ranks,
    )


def _distinct(stream: Integers, width: int) -> list[int]:
    """Count the different values in each window of a stream.

    An incomplete last window is left out, unless it is the only one.
    """
    starts = range(0, max(1, stream.size - width + 1), width)
    return [np.unique(stream[start : start + width]).size for start in starts]


def _misses(stream: Integers, capacity: int) -> int:
    """Return the number of misses of a cache that evicts the least recently used entry."""
    read = lru_cache(capacity)(int)  # the function does not matter, only its cache
    # A run of one shard is one access, since the cache cannot change within it.
    for shard in stream[np.flatnonzero(np.diff(stream, prepend=-1))].tolist():
        read(shard)
    return read.cache_info().misses
