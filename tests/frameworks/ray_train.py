"""Ray Train, two gloo workers: `prepare_data_loader` keeps the sampler, epochs are exact."""

import os
import sys

import ray
from counted import BATCH, Echo, check_epoch, record
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer

import wids


def train_on_one_worker(config):
    import torch.distributed as dist
    from ray.train.torch import prepare_data_loader
    from torch.utils.data import DataLoader

    sampler = wids.DistributedShardSampler(Echo(), interleave=3)
    loader = prepare_data_loader(DataLoader(Echo(), BATCH, sampler=sampler))
    if not isinstance(loader.sampler, wids.DistributedShardSampler):
        raise TypeError(f"Ray Train replaced the sampler by {type(loader.sampler)}")
    for epoch in range(2):
        for batch in loader:
            record(config["folder"], dist.get_rank(), epoch, batch.tolist())


def main():
    folder = os.environ["RECORDS"]
    paths = os.pathsep.join(sys.path)
    ray.init(num_cpus=2, include_dashboard=False, runtime_env={"env_vars": {"PYTHONPATH": paths}})
    trainer = TorchTrainer(
        train_on_one_worker,
        train_loop_config={"folder": folder},
        scaling_config=ScalingConfig(num_workers=2, use_gpu=False),
    )
    trainer.fit()
    for epoch in range(2):
        check_epoch(folder, epoch, 2, "Ray Train")
    print("Ray Train: passed")


if __name__ == "__main__":
    main()
