"""Rank, number of ranks and number of nodes, from torch and the environment of the launcher."""

import os
import sys

from wids.base.arguments import check_integer
from wids.base.warn import WarningsOnce, warn
from wids.ordering.passes import MOST_STREAMS

__all__ = [
    "Replica",
    "count_streams",
    "process_group",
    "ranks_here",
    "streams_here",
]


class Replica:
    """Rank of this process and number of ranks, determined at first use.

    They come from the arguments, else from the process group of torch, else from `RANK` and
    `WORLD_SIZE` of the environment (with a warning); else this is the only process. Without a
    process group they are determined at each use, since a group may be made later. If only the
    number of ranks is given and it is above 1, the first use raises an error, since each process
    would be rank 0.

    Args:
        num_replicas: Number of ranks, or None.
        rank: Rank of this process, or None.

    Raises:
        ValueError: `num_replicas` is below 1, or `rank` is not in its range or unknown.

    >>> Replica(4, 0).find()
    (4, 0)
    """

    def __init__(self, num_replicas: int | None, rank: int | None) -> None:
        self._given = num_replicas, rank
        self._settled: tuple[int, int] | None = None
        self._warnings = WarningsOnce()
        # Given values are checked now. The group is often made after this call.
        self.settle()

    def settle(self) -> None:
        """Determine both for good if they are given, or those of a process group."""
        if None not in self._given or process_group() is not None:
            self._settled = self.find()

    def find(self) -> tuple[int, int]:
        """Return the number of ranks and the rank of this process."""
        if self._settled is not None:
            return self._settled
        num_replicas, rank = self._given
        group = process_group()
        if num_replicas is None or rank is None:
            size, own = group or self._launched()
            num_replicas = size if num_replicas is None else num_replicas
            rank = own if rank is None else rank
        num_replicas = check_integer("num_replicas", num_replicas, 1)
        if not 0 <= check_integer("rank", rank) < num_replicas:
            raise ValueError(
                f"rank must lie in [0, num_replicas = {num_replicas}), got {rank}; pass both or "
                "neither, which takes them from the process group or the environment"
            )
        found = num_replicas, int(rank)
        if None in self._given and group is not None:
            self._settled = found
            if found != group:
                warn(
                    f"num_replicas={found[0]}, rank={found[1]} were partly given, the process "
                    f"group of torch has num_replicas={group[0]}, rank={group[1]}: samples come on "
                    "several ranks or on none; pass both or neither"
                )
        return found

    def _launched(self) -> tuple[int, int]:
        """Return number of ranks and rank without a group: those of torchrun, or of one process."""
        told, rank = os.environ.get("WORLD_SIZE", ""), os.environ.get("RANK", "")
        size = int(told) if told.isdecimal() else 1
        if (self._given[0] or size) > 1 and not (rank.isdecimal() and int(rank) < size):
            raise ValueError(
                f"rank is unknown: there is no process group, num_replicas={self._given[0]} was "
                f"given, and the environment has WORLD_SIZE={told!r} and RANK={rank!r}; pass "
                "num_replicas and rank, or make the group before the first use of the sampler"
            )
        if size > 1:
            self._warnings.warn(
                "launcher",
                f"there is no torch.distributed process group, so the sampler takes rank {rank} of "
                f"{size} from RANK and WORLD_SIZE of the environment; make the group before the "
                "first pass, or pass num_replicas and rank",
            )
            return size, int(rank)
        # Of SLURM's srun and of programs of MPI. Their ranks are not used: the processes need not
        # be the ranks of one training.
        for name in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"):
            if os.environ.get(name, "0").strip("0").isdecimal():
                self._warnings.warn(
                    "launcher",
                    f"{name}={os.environ[name]} of the environment tells of a job of several "
                    "processes, but there is no torch.distributed process group and no WORLD_SIZE, "
                    "so each of them reads all samples; make the group before the first pass, or "
                    "pass num_replicas and rank (1 and 0 if each shall read all)",
                )
        return 1, 0


def process_group() -> tuple[int, int] | None:
    """Return the size of torch's process group and the rank in it; None without a group."""
    # A program that has not imported torch has no group, and is spared the import.
    if sys.modules.get("torch") is None:
        return None
    # Looked up now, not at import: groups are made later, and tests replace these functions.
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        return dist.get_world_size(), dist.get_rank()
    return None


def count_streams(streams: int | str, num_replicas: int) -> int:
    """Return the number of streams.

    Args:
        streams: "rank" for the number of ranks, "node" for that of nodes, or a number.
        num_replicas: Number of ranks.

    Raises:
        TypeError: `streams` is something else.
        ValueError: It is below 1, or too large.

    >>> count_streams("rank", 4), count_streams(2, 4)
    (4, 2)
    """
    if streams == "rank":
        return num_replicas
    if streams != "node":
        return check_integer("streams", streams, 1, MOST_STREAMS, unless="'rank' or 'node'")
    # All ranks must agree on the number, or epochs would not be exact: torchrun and SLURM give
    # these variables to all of them. The number of ranks on a node is known only on that node.
    for name in ("GROUP_WORLD_SIZE", "SLURM_NNODES"):
        told = os.environ.get(name, "")
        if told.isdecimal():
            return max(1, min(int(told), num_replicas))
    return 1


def streams_here(streams: int, num_replicas: int) -> int:
    """Return the number of streams of this machine's ranks; each has shards of its own.

    Args:
        streams: Streams of the order.
        num_replicas: Number of ranks.

    >>> streams_here(streams=1, num_replicas=8), streams_here(streams=8, num_replicas=8)
    (1, 8)
    """
    return max(1, -(-ranks_here(num_replicas) * streams // num_replicas))


def ranks_here(num_replicas: int) -> int:
    """Return how many of the ranks run on this machine: all, if the launcher gives no number.

    Args:
        num_replicas: Number of ranks.
    """
    # SLURM writes "8(x4)" for eight on each of four nodes.
    for name in ("LOCAL_WORLD_SIZE", "SLURM_TASKS_PER_NODE"):
        told = os.environ.get(name, "").partition("(")[0]
        if told.isdecimal() and int(told) > 0:
            return min(int(told), num_replicas)
    return num_replicas
