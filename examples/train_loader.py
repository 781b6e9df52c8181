"""Train a small network on the digits, from raw shards, through `wids.Loader`.

python examples/make_dataset.py digits
python examples/train_loader.py digits/train.json digits/test.json

The fields are decoded in threads: `.png` by pillow and `.cls` for the whole batch at once. No
worker process is started and nothing is pickled.
"""

import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

import wids

torch.set_num_threads(1)  # the threads of the loader want the other cores
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def open_digits(spec: str, **options: Any) -> wids.Loader:
    """Return the loader of a split: batches `{".png": (batch, 28, 28) uint8, ".cls": (batch,)}`."""
    digits = wids.open(spec, transformations="numpy", fields=(".png", ".cls"))
    return wids.Loader(digits, num_workers=2, pin_memory=True, **options)


def on_device(batch: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """Move bytes, which are a quarter of floats, and make floats of them there."""
    images = batch[".png"].to(DEVICE, non_blocking=True)
    return images[:, None].float() / 255, batch[".cls"].to(DEVICE, non_blocking=True)


def make_network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(64 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, 10)),
    ).to(DEVICE)


@torch.no_grad()
def accuracy(network: nn.Module, loader: wids.Loader) -> float:
    """Return the share of samples that the network names rightly, in `[0, 1]`."""
    hits = [network(images).argmax(1) == labels for images, labels in map(on_device, loader)]
    return torch.cat(hits).float().mean().item()


def train(train_spec: str, test_spec: str, epochs: int = 3) -> Iterator[tuple[int, float]]:
    """Yield the number of samples seen and the test accuracy: before training, then per epoch."""
    loader = open_digits(train_spec, batch_size=64, shuffle=True, seed=1)
    test_loader = open_digits(test_spec, batch_size=256)
    network = make_network()
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    yield 0, accuracy(network, test_loader)
    for _ in range(epochs):
        seen: set[int] = set()
        for batch in loader:
            images, labels = on_device(batch)
            loss = nn.functional.cross_entropy(network(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen.update(batch["__index__"].tolist())
        yield len(seen), accuracy(network, test_loader)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    train_spec, test_spec, *rest = sys.argv[1:]  # then, if given, the number of epochs
    for epoch, (samples, share) in enumerate(train(train_spec, test_spec, *map(int, rest))):
        print(f"epoch {epoch}: {samples:,} samples seen, accuracy {share:.1%}", flush=True)
