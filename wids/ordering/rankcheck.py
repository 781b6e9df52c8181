"""`check_ranks`: whether all ranks draw from the same samples, in the same order."""

from typing import Any

from wids.ordering.batchsampler import BatchSampler
from wids.ordering.replicas import process_group
from wids.ordering.samplers import ChunkedSampler, check_own, probe

__all__ = ["check_ranks"]

_NUM_PROBED = 1000


def check_ranks(sampler: ChunkedSampler | BatchSampler) -> None:
    """Check that the samplers of all ranks agree; call it on all ranks, after the process group.

    Epochs are exact only if all ranks have the same samples and give their samplers the same
    arguments. They have not if each rank lists a folder for itself while a shard is added, or has
    another seed. This is one collective operation, in which each rank waits for all others: it
    compares the arguments, the epoch and position, whether `set_epoch` was called, and where some
    of the samples lie.

    Args:
        sampler: A sampler, or the batches of one.

    Raises:
        TypeError: It is something else.
        RuntimeError: A rank differs from rank 0, on this rank or another one; the message names
            what differs. Or there is no process group, and the sampler is for several ranks.

    >>> check_ranks(ChunkedSampler(range(10)))  # of a single process
    """
    alone = sampler.sampler if isinstance(sampler, BatchSampler) else sampler
    check_own("sampler", alone)
    group = process_group()
    if group is None:
        if alone.num_replicas == 1:
            return
        raise RuntimeError(
            f"the sampler is for {alone.num_replicas} ranks, and there is no process group to ask "
            "them: call check_ranks after torch.distributed.init_process_group"
        )
    import torch.distributed as dist

    facts = sampler.__facts__()
    for at in probe(alone.dataset, _NUM_PROBED):
        facts[f"sample {at.index}"] = f"{at.shard.url.rpartition('/')[2]}, number {at.local_index}"
    told: list[tuple[int, dict[str, Any]]] = [(0, {})] * group[0]
    dist.all_gather_object(told, (alone.rank, facts))
    expected = told[0][1]
    for number, (_, found) in enumerate(told):
        names = dict.fromkeys([*expected, *found])
        others = [name for name in names if found.get(name) != expected.get(name)]
        if others:
            raise RuntimeError(
                f"the sampler of rank {number} differs from that of rank 0, so some samples would "
                f"come twice and some never, in these: {'; '.join(others[:9])}. Open the same "
                "spec, or the same commit of a hub, on all ranks, and give all samplers the same "
                "arguments"
            )
    ranks = [rank for rank, _ in told]
    if alone.num_replicas > 1 and sorted(ranks) != list(range(alone.num_replicas)):
        raise RuntimeError(
            f"the samplers of {len(ranks)} processes are for {alone.num_replicas} ranks, and have "
            f"the ranks {ranks}: pass neither num_replicas nor rank, so that they are those of the "
            "process group"
        )
