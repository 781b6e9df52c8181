"""One rank of a distributed run: reads two epochs through a DataLoader, reports what it saw.

Run by torchrun: `ddp_epochs.py SPEC OUT_FOLDER`. Every step ends in a collective call, so ranks
with unequal counts would hang, as a training would.
"""

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

import wids

NUM_EPOCHS = 2


def index_of(sample: dict[str, object]) -> int:
    """Check that the sample is the one that its index promises, and return the index."""
    if int(sample[".cls"]) != sample["__index__"]:
        raise ValueError(f"sample {sample['__index__']} holds {sample['.cls']}")
    return sample["__index__"]


def main(spec: str, out: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    dataset = wids.ShardListDataset(spec).add_transform(index_of)
    report = {}
    for kind in (wids.DistributedChunkedSampler, wids.DistributedShardSampler):
        sampler = kind(dataset)
        loader = DataLoader(dataset, batch_size=16, sampler=sampler, num_workers=2)
        epochs = []
        for epoch in range(NUM_EPOCHS):
            sampler.set_epoch(epoch)
            seen: list[int] = []
            for batch in loader:
                seen += batch.tolist()
                dist.all_reduce(torch.ones(1))
            epochs.append(seen)
        report[kind.__name__] = {"len": len(sampler), "epochs": epochs}
    dist.barrier()
    Path(out, f"rank-{dist.get_rank()}.json").write_text(json.dumps(report))
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    main(*sys.argv[1:])
