"""`check_ranks`: whether all ranks draw from the same samples, in the same order."""

from typing import Any

from wids.ordering.batchsampler import BatchSampler
from wids.ordering.replicas import process_group
from wids.ordering.samplers import ChunkedSampler, probe

__all__ = ["check_ranks"]

_NUM_PROBED = 1000
# What the names of the state stand for, where that is not their meaning as arguments.
_MEANT = {
    "layout": " (a hash of the lengths of shards, chunksize, weights, balance and parts)",
    "tail": " (of drop_last and pad)",
}


def check_ranks(sampler: ChunkedSampler | BatchSampler) -> None:
    """Check that the samplers of all ranks agree; call it on all ranks, after the process group.

    Epochs are exact only if all ranks have the same samples and give their samplers the same
    arguments. They have not if each rank lists a folder for itself while a shard is added, or has
    another seed. This is one collective operation, in which each rank waits for all others: it
    compares the arguments, the epoch and position, the lengths of shards, and where some of the
    samples lie.

    Args:
        sampler: A sampler, or the batches of one.

    Raises:
        RuntimeError: A rank differs from rank 0, on this rank or another one; the message names
            what differs. Or there is no process group, and the sampler is for several ranks.

    >>> check_ranks(ChunkedSampler(range(10)))  # of a single process
    """
    alone = sampler.sampler if isinstance(sampler, BatchSampler) else sampler
    group = process_group()
    if group is None:
        if alone.num_replicas == 1:
            return
        raise RuntimeError(
            f"the sampler is for {alone.num_replicas} ranks, and there is no process group to ask "
            "them: call check_ranks after torch.distributed.init_process_group"
        )
    import torch.distributed as dist

    told: list[tuple[int, dict[str, Any]]] = [(0, {})] * group[0]
    dist.all_gather_object(told, (alone.rank, _facts(sampler, alone)))
    expected = told[0][1]
    for number, (_, facts) in enumerate(told):
        words = [
            f"{name}{_MEANT.get(name, '')} is {facts.get(name)!r}, on rank 0 {expected.get(name)!r}"
            for name in dict.fromkeys([*expected, *facts])
            if name != "locations" and facts.get(name) != expected.get(name)
        ]
        pairs = zip(facts["locations"], expected["locations"], strict=False)
        for here, there in (pair for pair in pairs if pair[0] != pair[1]):
            words.append("sample {} is number {} of {!r}".format(*here))
            words[-1] += ", on rank 0 sample {} is number {} of {!r}".format(*there)
            break
        if words:
            raise RuntimeError(
                f"the sampler of rank {number} differs from that of rank 0, so some samples would "
                f"come twice and some never: {'; '.join(words)}. Open the same spec, or the same "
                "commit of a hub, on all ranks, and give all samplers the same arguments"
            )
    ranks = [rank for rank, _ in told]
    if alone.num_replicas > 1 and sorted(ranks) != list(range(alone.num_replicas)):
        raise RuntimeError(
            f"the samplers of {len(ranks)} processes are for {alone.num_replicas} ranks, and have "
            f"the ranks {ranks}: pass neither num_replicas nor rank, so that they are those of the "
            "process group"
        )


def _facts(sampler: ChunkedSampler | BatchSampler, alone: ChunkedSampler) -> dict[str, Any]:
    """Return what the samplers of all ranks must have in common."""
    locations = [
        (each.index, each.local_index, each.shard.url.rpartition("/")[2])
        for each in probe(alone.dataset, _NUM_PROBED)
    ]
    return {
        "class": type(alone).__name__,
        **alone.state_dict(),
        "num_replicas": alone.num_replicas,
        "tail": alone.tail,
        "length": len(alone.dataset) if hasattr(alone.dataset, "__len__") else None,
        "batches": sampler.fingerprint if isinstance(sampler, BatchSampler) else None,
        "locations": locations,
    }
