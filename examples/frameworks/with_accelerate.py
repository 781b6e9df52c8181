"""Train with Accelerate, and go on in the middle of an epoch where there is a checkpoint.

from with_accelerate import train
train(dataset, network, folder, steps=1000)  # in a program that torchrun starts
"""

from pathlib import Path

import torch
from accelerate import Accelerator
from torchdata.stateful_dataloader import StatefulDataLoader

import wids


class Progress(dict):
    """Values that go into the checkpoint."""

    state_dict, load_state_dict = dict.copy, dict.update


def train(dataset, network, folder, steps, *, batch_size=8, workers=2, save_every=1000):
    """Train up to a number of steps, from the checkpoint in the folder, if there is one."""
    accelerator = Accelerator()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    batches = wids.BatchSampler(wids.DistributedShardSampler(dataset), batch_size)
    loader = StatefulDataLoader(dataset, batch_sampler=batches, num_workers=workers)
    # Not the loader: its sampler deals to the ranks already, and prepare() would do it once more.
    network, optimizer = accelerator.prepare(network, optimizer)
    progress = Progress(step=0)
    accelerator.register_for_checkpointing(loader, progress)
    if Path(folder).exists():
        accelerator.load_state(folder)
    while progress["step"] < steps:
        for batch in loader:
            loss = network(batch.to(accelerator.device))
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            progress["step"] += 1
            if progress["step"] % save_every == 0 or progress["step"] == steps:
                accelerator.save_state(folder)
            if progress["step"] == steps:
                break
    accelerator.wait_for_everyone()
