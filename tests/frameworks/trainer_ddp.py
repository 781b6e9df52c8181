"""The Hugging Face Trainer, two gloo ranks: one override gives it our order."""

import os
import tempfile

import torch
from counted import BATCH, TOTAL, Echo, check_epoch, record
from transformers import Trainer, TrainingArguments

import wids

STEPS_AN_EPOCH = -(-TOTAL // (2 * BATCH))


class Model(torch.nn.Module):
    """A model of one weight that records what it is given."""

    def __init__(self, folder):
        super().__init__()
        self.folder = folder
        self.steps = 0
        self.layer = torch.nn.Linear(1, 1)

    def forward(self, index):
        record(self.folder, os.environ["RANK"], self.steps // STEPS_AN_EPOCH, index.tolist())
        self.steps += 1
        return {"loss": self.layer(index[:, None].float() / 1000).mean()}


class OrderedTrainer(Trainer):
    """A Trainer whose training order is ours; Accelerate deals it out to the ranks."""

    def _get_train_sampler(self, train_dataset=None):
        dataset = self.train_dataset if train_dataset is None else train_dataset
        return wids.DistributedShardSampler(dataset, num_replicas=1, rank=0, interleave=3)


def main():
    folder = os.environ["RECORDS"]
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(), use_cpu=True, per_device_train_batch_size=BATCH,
        num_train_epochs=2, save_strategy="no", report_to=[], disable_tqdm=True,
        remove_unused_columns=False, logging_strategy="no",
    )  # fmt: skip
    trainer = OrderedTrainer(
        model=Model(folder),
        args=arguments,
        train_dataset=Echo(),
        data_collator=lambda indexes: {"index": torch.tensor(indexes)},
    )
    trainer.train()
    trainer.accelerator.wait_for_everyone()
    if trainer.accelerator.is_main_process:
        for epoch in range(2):
            check_epoch(folder, epoch, 2, "transformers Trainer", repeats=2 * BATCH)
        print("transformers Trainer: passed")


if __name__ == "__main__":
    main()
