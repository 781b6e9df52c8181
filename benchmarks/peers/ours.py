"""This library: raw fields as `bytes`, views or streams, one sample a call or many."""

from collections.abc import Callable
from operator import itemgetter
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader

import wids
from peers import shared
from peers.conversion import converted


def versions() -> dict[str, str]:
    return shared.versions() | {"wids": wids.__version__}


def convert(folder: Path) -> Path:
    """Write the tar indexes, as the first opening of a shard does."""

    def index(part: Path) -> None:
        part.mkdir()
        for shard in folder.glob("*.tar"):
            wids.TarIndex.from_tar(shard).save(part / f"{shard.name}.widx")

    return converted(folder, "wids", index)


def random_reader(
    folder: Path, *, kind: str = "bytes", batch: int | None = None
) -> Callable[[Any], int]:
    transformations: Any = [] if kind == "streams" else kind
    samples = wids.ShardListDataset(folder / "spec.json", transformations=transformations)

    names = [name for name in samples[0] if name[0] == "."]  # a user knows them
    pick = itemgetter(*names)

    # A tuple of fields is weighed as the floor's is, so that weighing costs alike.
    def read(index: int) -> int:
        return sum(map(len, pick(samples[index])))

    def read_one_field(index: int) -> int:
        return sum(map(len, (pick(samples[index]),)))

    def read_streams(index: int) -> int:
        sample = samples[index]
        return sum([len(sample[name].getvalue()) for name in names])

    def gather(indexes: list[int]) -> int:
        return sum(len(samples.gather_bytes(indexes, name).values) for name in names)

    if batch:
        return gather
    if kind == "streams":
        return read_streams
    return read if len(names) > 1 else read_one_field


def raw_fields(sample: dict[str, Any]) -> tuple[bytes, ...]:
    return tuple([sample[name] for name in sample if name[0] == "."])


def decoded_pair(sample: dict[str, Any]) -> tuple[Any, int]:
    return shared.to_array(sample[".jpg"]), sample[".cls"]


def epoch_loader(
    folder: Path, options: dict[str, Any], *, kept: bool = False
) -> Callable[[int], DataLoader]:
    kind = "PIL" if options["decode"] else "bytes"
    samples = wids.ShardListDataset(folder / "spec.json", transformations=kind)
    samples.add_transform(decoded_pair if options["decode"] else raw_fields)
    sampler = wids.ChunkedSampler(samples, chunksize=2000, shuffle=True)

    def loader() -> DataLoader:
        return DataLoader(
            samples,
            batch_size=options["batch_size"],
            sampler=sampler,
            num_workers=options["workers"],
            collate_fn=shared.stack if options["decode"] else shared.identity,
            persistent_workers=kept,
        )

    lasting = loader() if kept else None

    def epoch(number: int) -> DataLoader:
        sampler.set_epoch(number)
        return lasting or loader()

    return epoch
