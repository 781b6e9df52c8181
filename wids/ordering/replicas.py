"""Which rank this is, of how many, and on how many nodes: what torch and the launcher say."""

import logging
import operator
import os
import sys
from typing import SupportsIndex

__all__ = ["lanes_here", "number_of_lanes", "replica"]

logger = logging.getLogger(__name__)


def replica(num_replicas: int | None, rank: int | None) -> tuple[int, int]:
    """Complete what was not given from the process group; without one, one process.

    Args:
        num_replicas: Number of ranks, or None.
        rank: The own rank, or None.

    Returns:
        Both, as ints.

    Raises:
        ValueError: There are no ranks, or the own is not among them.

    >>> replica(4, 0)
    (4, 0)
    """
    if num_replicas is None or rank is None:
        group_size, group_rank = _process_group()
        num_replicas = group_size if num_replicas is None else num_replicas
        rank = group_rank if rank is None else rank
    if operator.index(num_replicas) < 1:
        raise ValueError(f"num_replicas must be at least 1, got {num_replicas}")
    if not 0 <= operator.index(rank) < num_replicas:
        raise ValueError(f"rank must lie in [0, num_replicas = {num_replicas}), got {rank}")
    return operator.index(num_replicas), operator.index(rank)


def _process_group() -> tuple[int, int]:
    """Size of torch's process group and the rank in it; one process where there is none."""
    try:
        # Looked up now, not at import: groups are made later, and tests replace these functions.
        import torch.distributed as dist

        if dist.is_available() and dist.is_initialized():
            return dist.get_world_size(), dist.get_rank()
    except ImportError:
        pass
    logger.warning(
        "there is no torch.distributed process group, so this is taken for the only process; make "
        "the group first, or pass num_replicas and rank"
    )
    return 1, 0


def number_of_lanes(lanes: int | str, num_replicas: int) -> int:
    """Read `lanes`; nodes are counted by what the launcher told all of them alike.

    Args:
        lanes: "rank", "node" or a number.
        num_replicas: Number of ranks.

    Raises:
        ValueError: `lanes` is none of these.

    >>> number_of_lanes("rank", 4), number_of_lanes(2, 4)
    (4, 2)
    """
    if isinstance(lanes, SupportsIndex):
        return operator.index(lanes)
    # A set would ask for a hash, which a list given by mistake has not.
    if lanes not in ("rank", "node"):
        raise ValueError(f"lanes must be 'rank', 'node' or a number, got {lanes!r}")
    if lanes == "rank":
        return num_replicas
    # All ranks must agree on the number, or epochs were not exact: the launcher tells these to all
    # of them alike, but the ranks on a node only to that node's.
    for name in ("GROUP_WORLD_SIZE", "SLURM_JOB_NUM_NODES"):
        nodes = os.environ.get(name, "")
        if nodes.isdecimal() and 1 <= int(nodes) <= num_replicas:
            return int(nodes)
    ranks_a_node = _agreed_ranks_a_node(num_replicas)
    if ranks_a_node:
        return num_replicas // ranks_a_node
    if num_replicas > 1:
        logger.warning(
            "the number of nodes is unknown, so the ranks are taken for those of one node; on "
            "several nodes pass lanes=<number of nodes>, or start with torchrun or SLURM"
        )
    return 1


def _agreed_ranks_a_node(num_replicas: int) -> int:
    """Ranks on each node where every rank was told the same number, which divides all; else 0."""
    told = os.environ.get("LOCAL_WORLD_SIZE", "")
    if not told or sys.modules.get("torch") is None:
        return 0
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()):
        return 0
    # Of a group of another size it is unknown whether all its ranks make a sampler now.
    if dist.get_world_size() != num_replicas:
        return 0
    told_to: list[str] = [""] * num_replicas
    dist.all_gather_object(told_to, told)
    agreed = told.isdecimal() and set(told_to) == {told} and int(told) > 0
    return int(told) if agreed and num_replicas % int(told) == 0 else 0


def lanes_here(lanes: int, num_replicas: int) -> int:
    """Return how many lanes the ranks of this machine follow: each draws from shards of its own.

    Where the launcher does not say how many ranks are on this machine, all of them are.

    Args:
        lanes: Lanes of the order.
        num_replicas: Number of ranks.

    >>> lanes_here(lanes=1, num_replicas=8), lanes_here(lanes=8, num_replicas=8)
    (1, 8)
    """
    ranks = num_replicas
    # SLURM writes "8(x4)" for eight on each of four nodes.
    for name in ("LOCAL_WORLD_SIZE", "SLURM_TASKS_PER_NODE"):
        told = os.environ.get(name, "").partition("(")[0]
        if told.isdecimal() and int(told) > 0:
            ranks = min(int(told), num_replicas)
            break
    return max(1, -(-ranks * lanes // num_replicas))
