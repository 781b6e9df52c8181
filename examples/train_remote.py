"""Train on digits that lie on a server, through a cache with room for half of them.

python examples/make_dataset.py digits
python examples/train_remote.py digits          # serves the folder to itself, on this machine
python examples/train_remote.py https://...     # or a URL of a folder with train.json, test.json

The coming shards are fetched while the present ones are read, so that the network learns instead
of waiting; `waited` says for how long it waited all the same.
"""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
from serve import CountingServer
from torch.utils.data import DataLoader
from train import accuracy, make_network, to_tensors, train_epoch

import wids


def train(folder_url: str, cache_dir: str, epochs: int = 2) -> Iterator[tuple[float, float]]:
    """Yield after each epoch for how long readers waited for shards, and the test accuracy."""
    room = {"cache_dir": cache_dir, "cache_size": 5_000_000}
    digits = wids.open(f"{folder_url}/train.json", **room).add_transform(to_tensors)
    test_digits = wids.open(f"{folder_url}/test.json", **room).add_transform(to_tensors)
    sampler = wids.DistributedShardSampler(digits, interleave=2, seed=1)
    network = make_network()
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    with digits, test_digits:
        ahead = digits.fetch_ahead(sampler)
        loader = wids.Loader(digits, batch_size=64, sampler=sampler)
        test_loader = DataLoader(test_digits, batch_size=256)
        for _ in range(epochs):
            before = ahead.waited_seconds
            train_epoch(network, loader, optimizer)
            yield ahead.waited_seconds - before, accuracy(network, test_loader)


if __name__ == "__main__":
    source = sys.argv[1] if len(sys.argv) > 1 else "digits"
    url = source if "://" in source else CountingServer(Path(source)).url("").rstrip("/")
    with tempfile.TemporaryDirectory() as cache_dir:
        for epoch, (waited, share) in enumerate(train(url, cache_dir)):
            print(f"epoch {epoch}: accuracy {share:.1%}, waited {waited:.1f} s for shards")
        nbytes = sum(path.stat().st_size for path in Path(cache_dir).iterdir() if path.is_file())
        print(f"{nbytes:,} bytes in the cache")
