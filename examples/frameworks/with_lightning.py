"""Train with Lightning's Trainer, and go on in the middle of an epoch where there is a checkpoint.

from with_lightning import train
train(dataset, network, folder, steps=1000)
"""

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint

from wids.lightning import OrderedDataModule


class Module(LightningModule):
    """Makes the network known to Lightning."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def training_step(self, batch, _):
        return self.network(batch)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


def train(dataset, network, folder, steps, *, batch_size=8, workers=2, save_every=1000, **options):
    """Train up to a number of steps, from the checkpoint in the folder, if there is one."""
    trainer = Trainer(
        max_steps=steps,
        use_distributed_sampler=False,  # the sampler deals to the ranks already
        callbacks=[ModelCheckpoint(folder, every_n_train_steps=save_every, save_last=True)],
        **options,
    )
    # The state of its loader is part of the checkpoint.
    data = OrderedDataModule(dataset, batch_size, num_workers=workers)
    trainer.fit(Module(network), datamodule=data, ckpt_path="last")
