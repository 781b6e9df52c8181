"""The Hugging Face Trainer, two gloo ranks: one override gives it our order, a callback the epoch.

Epochs are exact, also where a run is resumed in the middle of the first one or of a later one.
"""

import os
import tempfile
from pathlib import Path

import torch
from counted import BATCH, TOTAL, Echo, check_epoch, record
from transformers import Trainer, TrainerCallback, TrainingArguments

import wids

STEPS_AN_EPOCH = -(-TOTAL // (2 * BATCH))


class Model(torch.nn.Module):
    """A model of one weight that records what it is given."""

    def __init__(self, folder, steps=0):
        super().__init__()
        self.folder = folder
        self.steps = steps
        self.layer = torch.nn.Linear(1, 1)

    def forward(self, index):
        record(self.folder, os.environ["RANK"], self.steps // STEPS_AN_EPOCH, index.tolist())
        self.steps += 1
        return {"loss": self.layer(index[:, None].float() / 1000).mean()}


class EpochOfOrder(TrainerCallback):
    """Tells the sampler which epoch begins; a Trainer that resumes does not."""

    def __init__(self, sampler):
        self.sampler = sampler

    def on_epoch_begin(self, args, state, control, **kwargs):
        self.sampler.set_epoch(int(state.epoch))


class OrderedTrainer(Trainer):
    """A Trainer whose training order is ours; Accelerate deals it out to the ranks."""

    def __init__(self, **options):
        super().__init__(**options)
        # The order of all ranks together.
        self.order = wids.DistributedShardSampler(
            self.train_dataset, num_replicas=1, rank=0, interleave=3
        )
        self.add_callback(EpochOfOrder(self.order))

    def _get_train_sampler(self, train_dataset=None):
        return self.order


def train(folder, output, *, stop=-1, resume=None):
    """Train two epochs, or up to a step; go on from a checkpoint if there is one."""
    arguments = TrainingArguments(
        output_dir=output, use_cpu=True, per_device_train_batch_size=BATCH,
        num_train_epochs=2, max_steps=stop, report_to=[], disable_tqdm=True,
        save_strategy="no" if stop < 0 else "steps", save_steps=max(1, stop),
        remove_unused_columns=False, logging_strategy="no",
    )  # fmt: skip
    trainer = OrderedTrainer(
        model=Model(folder, steps=0 if resume is None else int(resume.rsplit("-", 1)[1])),
        args=arguments,
        train_dataset=Echo(),
        data_collator=lambda indexes: {"index": torch.tensor(indexes)},
    )
    trainer.train(resume_from_checkpoint=resume)
    trainer.accelerator.wait_for_everyone()
    return trainer.accelerator.is_main_process


def check(folder, name):
    for epoch in range(2):
        check_epoch(folder, epoch, 2, name, repeats=2 * BATCH)


def main():
    records = Path(os.environ["RECORDS"])
    for stop in (None, 5, STEPS_AN_EPOCH + 4):
        folder = records / str(stop)
        folder.mkdir(exist_ok=True)
        name = f"transformers Trainer, resumed at step {stop}"
        if stop is None:
            is_main = train(folder, tempfile.mkdtemp())
        else:
            output = str(records / f"checkpoints-{stop}")
            train(folder, output, stop=stop)
            is_main = train(folder, output, resume=f"{output}/checkpoint-{stop}")
        if is_main:
            check(folder, name if stop else "transformers Trainer")
    if is_main:
        print("transformers Trainer: passed")


if __name__ == "__main__":
    main()
