"""Each recipe of docs/frameworks.md on two processes, stopped and resumed: every sample is counted.

    recipes.py NAME   (started by torchrun, but for ray)

A run of three epochs is stopped in the middle of epoch 0, at the first step of epoch 1 and in its
middle, and is then resumed with new objects. Both ranks must see the batches of the order of each
epoch, no other, none twice and none left out.
"""

import importlib
import json
import os
import sys
import warnings
from collections import Counter
from pathlib import Path

import torch
import torch.distributed as dist
from counted import BATCH, TOTAL, Echo
from torch.utils.data import DataLoader

import wids

EPOCHS = 3
STEPS = -(-TOTAL // (2 * BATCH))  # an epoch
STOPS = (5, STEPS + 1, STEPS + 5)


class Recorder(torch.nn.Module):
    """A network of one weight that writes down what it is given."""

    def __init__(self, folder):
        super().__init__()
        self.folder = Path(folder)
        self.layer = torch.nn.Linear(1, 1)

    def forward(self, batch):
        with (self.folder / f"{dist.get_rank()}.jsonl").open("a") as stream:
            stream.write(json.dumps(batch.tolist()) + "\n")
        return self.layer(batch[:, None].float() / 1000).mean()


def due(rank, epoch):
    """The batches of a rank in an epoch, by the sampler alone."""
    sampler = wids.DistributedShardSampler(Echo(), 2, rank, streams=1)
    sampler.set_epoch(epoch)
    indexes = list(sampler)
    return [indexes[start : start + BATCH] for start in range(0, len(indexes), BATCH)]


def check(folder, name):
    """Fail unless both ranks saw, over both runs, the batches that were due."""
    seen = []
    for rank in range(2):
        lines = (folder / f"{rank}.jsonl").read_text().splitlines()
        seen.append([json.loads(line) for line in lines])
    for epoch in range(EPOCHS):
        steps = slice(epoch * STEPS, (epoch + 1) * STEPS)
        counts = Counter(index for rank in seen for batch in rank[steps] for index in batch)
        print(f"{name}: epoch {epoch}: {len(counts)} of {TOTAL} samples, {counts.total()} in all")
        if [rank[steps] for rank in seen] != [due(rank, epoch) for rank in range(2)]:
            raise SystemExit(f"{name}: epoch {epoch} is not what its order says")
    if [len(rank) for rank in seen] != [EPOCHS * STEPS] * 2:
        raise SystemExit(f"{name}: {[len(rank) for rank in seen]} steps, not {EPOCHS * STEPS}")


def run_accelerate(folder, steps):
    train = importlib.import_module("with_accelerate").train
    train(Echo(), Recorder(folder), str(folder / "checkpoint"), steps)


def run_fabric(folder, steps):
    train = importlib.import_module("with_fabric").train
    options = {"accelerator": "cpu", "devices": 2, "strategy": "ddp"}
    train(Echo(), Recorder(folder), str(folder / "checkpoint"), steps, **options)


def run_lightning(folder, steps):
    train = importlib.import_module("with_lightning").train
    options = {
        "accelerator": "cpu", "devices": 2, "strategy": "ddp", "logger": False,
        "enable_progress_bar": False, "enable_model_summary": False, "save_every": 1,
    }  # fmt: skip
    train(Echo(), Recorder(folder), str(folder / "checkpoint"), steps, **options)


def run_trainer(folder, steps):
    from transformers import TrainingArguments

    class Model(Recorder):
        def forward(self, batch):
            return {"loss": super().forward(batch)}

    arguments = TrainingArguments(
        output_dir=str(folder / "checkpoint"), use_cpu=True, per_device_train_batch_size=BATCH,
        max_steps=steps, save_strategy="steps", save_steps=steps, report_to=[], disable_tqdm=True,
        logging_strategy="no", remove_unused_columns=False, dataloader_num_workers=2,
    )  # fmt: skip
    trainer = importlib.import_module("with_hf_trainer").OrderedTrainer(
        model=Model(folder),
        args=arguments,
        train_dataset=Echo(),
        data_collator=lambda indexes: {"batch": torch.tensor(indexes)},
    )
    resume = any((folder / "checkpoint").glob("checkpoint-*"))
    dist.barrier()
    trainer.train(resume_from_checkpoint=resume)


def run_ray(folder, steps):
    import ray

    if not ray.is_initialized():
        ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR")
    train = importlib.import_module("with_ray_train").train
    train(Echo, lambda: Recorder(folder), str(folder / "checkpoint"), steps)


def refuse(error, words, function):
    """Fail unless a function raises an error with these words in its message."""
    try:
        function()
    except error as raised:
        if words in str(raised):
            return
        raise
    raise SystemExit(f"expected {error.__name__} with {words!r}, and there was none")


def forget_fabric():
    """Loaders of Fabric, which count epochs from 0, leave a restored place with a warning."""
    from lightning.fabric import Fabric

    sampler = wids.DistributedShardSampler(Echo(), 2, dist.get_rank())
    sampler.load_state_dict({**sampler.state_dict(), "epoch": 1, "consumed": 64})
    fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp")
    fabric.launch()
    loader = fabric.setup_dataloaders(DataLoader(Echo(), BATCH, sampler=sampler))
    with warnings.catch_warnings():
        warnings.simplefilter("error", wids.WidsWarning)
        refuse(wids.WidsWarning, "setup_dataloaders", lambda: list(loader))


def forget_lightning():
    """A batch sampler whose sampler Lightning would replace is refused."""
    from lightning.pytorch import Trainer
    from with_lightning import Module

    from wids.lightning import OrderedDataModule

    trainer = Trainer(
        accelerator="cpu", devices=2, strategy="ddp", logger=False, max_steps=1,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    module, data = Module(torch.nn.Linear(1, 1)), OrderedDataModule(Echo(), BATCH)
    refuse(TypeError, "use_distributed_sampler=False", lambda: trainer.fit(module, datamodule=data))


def main():
    name = sys.argv[1]
    run = globals()[f"run_{name}"]
    records = Path(os.environ["RECORDS"])
    for stop in STOPS:
        folder = records / str(stop)
        folder.mkdir(exist_ok=True)
        run(folder, stop)
        run(folder, EPOCHS * STEPS)
        if dist.is_initialized():
            dist.barrier()
        if os.environ.get("RANK", "0") == "0":
            check(folder, f"{name}, resumed at step {stop}")
    globals().get(f"forget_{name}", lambda: None)()
    if os.environ.get("RANK", "0") == "0":
        print(f"{name}: passed")


if __name__ == "__main__":
    main()
