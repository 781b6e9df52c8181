"""Train on several processes at once, and check that every epoch is exact.

    python examples/make_dataset.py digits
    torchrun --nproc-per-node 2 examples/train_ddp.py digits/train.json digits/test.json

Every rank must get the same number of samples, or the ranks that have more wait for ever; and
together the ranks must see the whole dataset. Where the number of ranks does not divide it, some
samples come twice to even the ranks out.
"""

import sys
from collections import Counter

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from train import accuracy, make_network, open_digits, train_epoch

import wids

EPOCHS = 2


def report(epoch: int, seen_by_rank: list[list[int]], num_samples: int) -> bool:
    """Print what each rank saw in an epoch; return whether the epoch was exact."""
    counts = [len(seen) for seen in seen_by_rank]
    for rank, count in enumerate(counts):
        print(f"  epoch {epoch}, rank {rank}: {count:,} samples")
    times = Counter(index for seen in seen_by_rank for index in seen)
    whole = set(times) == set(range(num_samples))
    repeats = sum(counts) - len(times)
    verdict = "exactly the dataset" if whole else "NOT the dataset"
    print(
        f"  epoch {epoch}, union: {len(times):,} of {num_samples:,} samples, {verdict}; "
        f"{repeats} seen twice to even the ranks out",
        flush=True,
    )
    return whole and len(set(counts)) == 1 and repeats < len(counts)


def main(train_spec: str, test_spec: str) -> bool:
    """Train; return whether all epochs were exact."""
    dist.init_process_group("gloo")
    digits = open_digits(train_spec)
    sampler = wids.DistributedShardSampler(digits)
    wids.check_ranks(sampler)  # that all ranks draw from the same samples, in the same order
    loader = DataLoader(digits, batch_size=64, sampler=sampler, num_workers=1)
    network = DistributedDataParallel(make_network())
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    exact = True
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        seen_by_rank: list[list[int]] = [[] for _ in range(dist.get_world_size())]
        dist.all_gather_object(seen_by_rank, train_epoch(network, loader, optimizer))
        if dist.get_rank() == 0:
            exact &= report(epoch, seen_by_rank, len(digits))
    if dist.get_rank() == 0:
        share = accuracy(network.module, DataLoader(open_digits(test_spec), batch_size=256))
        print(f"  accuracy {share:.1%}", flush=True)
    dist.barrier()  # no rank leaves while another works
    dist.destroy_process_group()
    return exact


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(0 if main(*sys.argv[1:3]) else "an epoch was not exact")
