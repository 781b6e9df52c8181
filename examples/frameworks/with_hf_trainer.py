"""Train with the Hugging Face Trainer, and go on in the middle of an epoch from a checkpoint.

from with_hf_trainer import OrderedTrainer
OrderedTrainer(model=network, args=arguments, train_dataset=dataset).train()
"""

from torch.utils.data import DataLoader
from transformers import Trainer, TrainerCallback

import wids


class EpochOfOrder(TrainerCallback):
    """Tells the sampler which epoch begins; a Trainer that resumes does not."""

    def __init__(self, sampler):
        self.sampler = sampler

    def on_epoch_begin(self, args, state, control, **kwargs):
        self.sampler.set_epoch(int(state.epoch))


class OrderedTrainer(Trainer):
    """A Trainer whose training samples come in the order of a sampler of wids."""

    def get_train_dataloader(self):
        sampler = wids.DistributedShardSampler(self.train_dataset)
        self.add_callback(EpochOfOrder(sampler))
        # Not prepared by Accelerate: the sampler deals to the ranks already. To resume, the Trainer
        # passes over the indexes of the batches that were used, and reads none of them.
        return DataLoader(
            self.train_dataset,
            batch_sampler=wids.BatchSampler(sampler, self.args.train_batch_size),
            collate_fn=self.data_collator,
            num_workers=self.args.dataloader_num_workers,
        )
