"""Train with Ray Train, and go on in the middle of an epoch where there is a checkpoint.

from with_ray_train import train
train(make_dataset, make_network, folder, steps=1000)
"""

import tempfile
from pathlib import Path

import ray.train
import torch
from ray.train import Checkpoint, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, get_device, prepare_model
from torchdata.stateful_dataloader import StatefulDataLoader

import wids


def train_on_one_worker(config):
    """Train up to a number of steps, from the last checkpoint of the run, if there is one."""
    dataset, steps = config["make_dataset"](), config["steps"]
    network = prepare_model(config["make_network"]())
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    batches = wids.BatchSampler(wids.DistributedShardSampler(dataset), config["batch_size"])
    # Not for prepare_data_loader(): it would draw a batch ahead, which the state then counts.
    loader = StatefulDataLoader(dataset, batch_sampler=batches, num_workers=config["workers"])
    step = 0
    if checkpoint := ray.train.get_checkpoint():
        with checkpoint.as_directory() as folder:
            saved = torch.load(Path(folder) / "last.pt", weights_only=False)
        step = saved["step"]
        loader.load_state_dict(saved["loader"])
        network.load_state_dict(saved["network"])
        optimizer.load_state_dict(saved["optimizer"])
    while step < steps:
        for batch in loader:
            loss = network(batch.to(get_device()))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            if step % config["save_every"] == 0 or step == steps:
                parts = {"network": network, "optimizer": optimizer, "loader": loader}
                saved = {name: part.state_dict() for name, part in parts.items()}
                save({**saved, "step": step})
            if step == steps:
                break


def save(state):
    """Report a checkpoint of the first worker; the state of the loader is the same on all."""
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = None
        if ray.train.get_context().get_world_rank() == 0:
            torch.save(state, Path(folder) / "last.pt")
            checkpoint = Checkpoint.from_directory(folder)
        ray.train.report({"step": state["step"]}, checkpoint=checkpoint)


def train(make_dataset, make_network, folder, steps, *, num_workers=2, **options):
    """Train on some workers; a run of the same folder goes on where the last one stopped."""
    config = {
        "make_dataset": make_dataset, "make_network": make_network, "steps": steps,
        "batch_size": 8, "workers": 2, "save_every": 1000, **options,
    }  # fmt: skip
    TorchTrainer(
        train_on_one_worker,
        train_loop_config=config,
        scaling_config=ScalingConfig(num_workers=num_workers),
        run_config=RunConfig(name="train", storage_path=folder),
    ).fit()
