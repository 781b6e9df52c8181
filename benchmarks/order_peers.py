"""The peers' own shuffles, as the order benchmarks call them.

MosaicML's are taken from its wheel without importing its package, whose import alone needs two
dozen libraries; the functions are pure NumPy.
"""

import importlib
import importlib.util
import sys
import types
from pathlib import Path

import numpy as np


def mosaic_shuffle(name):
    """Return MosaicML's `get_shuffle_<name>` from the installed wheel."""
    root = importlib.util.find_spec("streaming").submodule_search_locations[0]
    for package in ("streaming", "streaming.base", "streaming.base.shuffle"):
        stub = types.ModuleType(package)
        stub.__path__ = [str(Path(root, *package.split(".")[1:]))]
        sys.modules[package] = stub
    module = importlib.import_module(f"streaming.base.shuffle.{name}")
    return getattr(module, f"get_shuffle_{name}")


if __name__ == "__main__":
    # python order_peers.py SHUFFLE NUM_SHARDS SHARD_SIZE NODES BLOCK EPOCH OUT.npy
    shuffle, *numbers, path = sys.argv[1:]
    shards, size, nodes, block, epoch = map(int, numbers)
    sizes = np.full(shards, size, np.int64)
    np.save(path, mosaic_shuffle(shuffle)(sizes, nodes, 9176, epoch, block))
