"""Train with Lightning Fabric, and go on in the middle of an epoch where there is a checkpoint.

from with_fabric import train
train(dataset, network, folder, steps=1000)
"""

from pathlib import Path

import torch
from lightning.fabric import Fabric
from torchdata.stateful_dataloader import StatefulDataLoader

import wids


def train(dataset, network, folder, steps, *, batch_size=8, workers=2, save_every=1000, **options):
    """Train up to a number of steps, from the checkpoint in the folder, if there is one."""
    fabric = Fabric(**options)
    fabric.launch()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    network, optimizer = fabric.setup(network, optimizer)
    batches = wids.BatchSampler(wids.DistributedShardSampler(dataset), batch_size)
    # Not for setup_dataloaders(): it would count the epochs from 0 again after a restart.
    loader = StatefulDataLoader(dataset, batch_sampler=batches, num_workers=workers)
    state = {"network": network, "optimizer": optimizer, "loader": loader, "step": 0}
    checkpoint = Path(folder) / "last.ckpt"
    if checkpoint.exists():
        fabric.load(checkpoint, state)
    while state["step"] < steps:
        for batch in loader:
            loss = network(fabric.to_device(batch))
            fabric.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            state["step"] += 1
            if state["step"] % save_every == 0 or state["step"] == steps:
                fabric.save(checkpoint, state)
            if state["step"] == steps:
                break
    fabric.barrier()
