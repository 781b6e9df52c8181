"""Accelerate, two gloo ranks: the global sampler is dealt out once, not twice.

Accelerate shards whatever batch sampler it is given, so it gets the order of all ranks.
"""

import os

from accelerate import Accelerator
from counted import BATCH, Echo, check_epoch, record
from torch.utils.data import DataLoader

import wids


def main():
    folder = os.environ["RECORDS"]
    accelerator = Accelerator(cpu=True)
    # The order of all ranks together, which Accelerate deals out.
    sampler = wids.DistributedShardSampler(Echo(), num_replicas=1, rank=0, interleave=3)
    loader = accelerator.prepare(DataLoader(Echo(), BATCH, sampler=sampler, num_workers=2))
    for epoch in range(2):
        loader.set_epoch(epoch)
        for batch in loader:
            record(folder, accelerator.process_index, epoch, batch.tolist())
    # Unprepared, a distributed sampler does all the sharding itself.
    own = wids.DistributedShardSampler(Echo(), interleave=3)
    for batch in DataLoader(Echo(), BATCH, sampler=own):
        record(folder, accelerator.process_index, "own", batch.tolist())
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        for epoch in range(2):
            # Accelerate fills the last round of batches up itself, to whole batches.
            check_epoch(folder, epoch, 2, "accelerate", repeats=2 * BATCH)
        check_epoch(folder, "own", 2, "accelerate, own sharding")
        print("accelerate: passed")


if __name__ == "__main__":
    main()
