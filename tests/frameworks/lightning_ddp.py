"""Lightning's Trainer and Fabric, two gloo ranks: the sampler is kept and epochs are exact."""

import os
import sys
import tempfile
from pathlib import Path

import torch
from counted import BATCH, Echo, check_epoch, is_main, record, seen_by
from lightning.fabric import Fabric
from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader

import wids
from wids.lightning import OrderedDataModule


class Recorder(LightningModule):
    """A model of one weight that records what it is given."""

    def __init__(self, folder):
        super().__init__()
        self.folder = folder
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch, _):
        record(self.folder, self.global_rank, self.current_epoch, batch.tolist())
        return self.layer(batch[:, None].float() / 1000).mean()

    def validation_step(self, batch, _):
        record(f"{self.folder}/val", self.global_rank, self.current_epoch, batch.tolist())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def train(folder):
    trainer = Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_epochs=2, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    model = Recorder(folder)
    # Made before the process group is there to ask for the rank.
    sampler = wids.DistributedShardSampler(Echo(), interleave=3)
    trainer.fit(model, DataLoader(Echo(), BATCH, sampler=sampler, num_workers=2))
    kept = trainer.train_dataloader.sampler
    if not isinstance(kept, wids.DistributedShardSampler):
        raise SystemExit(f"Lightning replaced the sampler by {type(kept)}")
    trainer.strategy.barrier()
    if trainer.is_global_zero:
        for epoch in range(2):
            check_epoch(folder, epoch, 2, "lightning Trainer")


def module(folder):
    trainer = Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_epochs=2, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        use_distributed_sampler=False, num_sanity_val_steps=0,
    )  # fmt: skip
    Path(folder, "val").mkdir(exist_ok=True)
    data = OrderedDataModule(Echo(), BATCH, val=Echo(), num_workers=1)
    trainer.fit(Recorder(folder), datamodule=data)
    trainer.strategy.barrier()
    if trainer.is_global_zero:
        for epoch in range(2):
            check_epoch(folder, epoch, 2, "OrderedDataModule")
            check_epoch(f"{folder}/val", epoch, 2, "OrderedDataModule, validation")
        if sorted(seen_by(f"{folder}/val", 0)) != sorted(seen_by(f"{folder}/val", 1)):
            raise SystemExit("validation has another order in another epoch")
    wrong = {TypeError: [0, 1], ValueError: wids.ChunkedSampler(range(5), lengths=[5])}
    for error, sampler in wrong.items():
        try:
            OrderedDataModule(Echo(), BATCH, sampler=sampler)
        except error:
            continue
        raise SystemExit(f"{sampler} is no {error.__name__}")


def fabric(folder):
    fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp")
    fabric.launch()
    sampler = wids.DistributedChunkedSampler(Echo(), chunksize=20)
    loader = fabric.setup_dataloaders(DataLoader(Echo(), BATCH, sampler=sampler))
    for epoch in range(2):
        for batch in loader:
            record(folder, fabric.global_rank, epoch, batch.tolist())
    fabric.barrier()
    if fabric.is_global_zero:
        for epoch in range(2):
            check_epoch(folder, epoch, 2, "lightning Fabric")


if __name__ == "__main__":
    # Lightning starts the other rank by running this very command again.
    which = sys.argv[1]
    folder = os.environ.setdefault("RECORDS", tempfile.mkdtemp())
    {"trainer": train, "module": module, "fabric": fabric}[which](folder)
    if is_main():
        print(f"lightning {which}: passed")
