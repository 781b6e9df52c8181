"""MosaicML Streaming 0.13: MDS shards on the local disk, shuffled by its own order (py1e)."""

import sys
import types
from collections.abc import Callable
from functools import partial
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

# It imports torchvision for datasets that are not used here; PyPI has none for torch on the CPU.
for name in ("", ".datasets", ".transforms", ".transforms.functional"):
    stub: Any = types.ModuleType(f"torchvision{name}")
    sys.modules[stub.__name__] = stub
    stub.__spec__ = ModuleSpec(stub.__name__, None)
    stub.VisionDataset = stub.CIFAR10 = stub.to_tensor = object

from streaming import LocalDataset, MDSWriter, StreamingDataset  # noqa: E402
from streaming.base.util import clean_stale_shared_memory  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

from peers import shared  # noqa: E402
from peers.conversion import collate_for, converted, weigh_each  # noqa: E402
from peers.tarfiles import samples_of  # noqa: E402


def versions() -> dict[str, str]:
    return shared.versions("mosaicml-streaming")


def write(folder: Path, part: Path) -> None:
    width = len(next(samples_of(folder)))
    with MDSWriter(out=str(part), columns={f"f{i}": "bytes" for i in range(width)}) as writer:
        for sample in samples_of(folder):
            writer.write({f"f{i}": field for i, field in enumerate(sample)})


def convert(folder: Path) -> Path:
    return converted(folder, "mds", partial(write, folder))


def fields_of(row: dict[str, bytes]) -> tuple[bytes, ...]:
    return tuple([row[name] for name in sorted(row)])


class Collate:
    """Makes a batch of rows."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.make = collate_for(options)

    def __call__(self, rows: list[dict[str, bytes]]) -> Any:
        """Return the batch."""
        return self.make(list(map(fields_of, rows)))


def random_reader(folder: Path) -> Callable[[int], int]:
    rows = LocalDataset(str(convert(folder)))
    return weigh_each(lambda index: fields_of(rows[index]))


def epoch_loader(folder: Path, options: dict[str, Any]) -> Callable[[int], DataLoader]:
    clean_stale_shared_memory()  # that of a process that was killed stops every later one
    rows = StreamingDataset(
        local=str(convert(folder)), shuffle=True, batch_size=options["batch_size"]
    )
    loader = DataLoader(
        rows,
        batch_size=options["batch_size"],
        num_workers=options["workers"],
        collate_fn=Collate(options),
    )
    return lambda _epoch: loader
