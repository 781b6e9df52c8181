"""Train a small network on the digits, through a DataLoader with two workers.

python examples/make_dataset.py digits
python examples/train.py digits/train.json digits/test.json
"""

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

import wids

torch.set_num_threads(1)  # the workers want the other cores


def to_tensors(sample: dict[str, Any]) -> tuple[torch.Tensor, int, int]:
    """Turn a decoded sample into what the network eats, and keep its index."""
    pixels = np.array(sample[".png"], dtype=np.float32) / 255
    return torch.from_numpy(pixels)[None], sample[".cls"], sample["__index__"]


def open_digits(spec: str) -> wids.ShardListDataset:
    return wids.open(spec).add_transform(to_tensors)


def make_network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(64 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, 10)),
    )


def train_epoch(
    network: nn.Module, loader: DataLoader, optimizer: torch.optim.Optimizer
) -> list[int]:
    """Train on every batch; return the indexes of the samples seen."""
    seen = []
    for images, labels, indexes in loader:
        loss = nn.functional.cross_entropy(network(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen += indexes.tolist()
    return seen


@torch.no_grad()
def accuracy(network: nn.Module, loader: DataLoader) -> float:
    """Return the share of samples that the network names rightly, in `[0, 1]`."""
    hits = [(network(images).argmax(1) == labels) for images, labels, _ in loader]
    return torch.cat(hits).float().mean().item()


def train(train_spec: str, test_spec: str, epochs: int = 3) -> Iterator[tuple[int, float]]:
    """Yield the number of samples seen and the test accuracy: before training, then per epoch."""
    digits = open_digits(train_spec)
    sampler = wids.DistributedShardSampler(digits, seed=1)  # reshuffles each epoch
    loader = DataLoader(digits, batch_size=64, sampler=sampler, num_workers=2)
    test_loader = DataLoader(open_digits(test_spec), batch_size=256)
    network = make_network()
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    yield 0, accuracy(network, test_loader)
    for _ in range(epochs):
        seen = train_epoch(network, loader, optimizer)
        yield len(set(seen)), accuracy(network, test_loader)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    train_spec, test_spec, *rest = sys.argv[1:]  # then, if given, the number of epochs
    for epoch, (samples, share) in enumerate(train(train_spec, test_spec, *map(int, rest))):
        print(f"epoch {epoch}: {samples:,} samples seen, accuracy {share:.1%}", flush=True)
