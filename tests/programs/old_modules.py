"""Programs in the manner of those that import modules of wids 0.1.11, one function each.

    python old_modules.py FOLDER        # prints what each of them found, as JSON

FOLDER holds `plain.tar`, `packed.tar` and `plain.json`; the test that runs this makes them. With
wids 0.1.11 in place of ours the same is printed.
"""

import json
import random
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
from torch.utils.data import DataLoader, Dataset, Sampler

from wids.wids import (
    ChunkedSampler,
    IndexedTarSamples,
    ShardListDataset,
    compute_num_samples,
    group_by_key,
    iterate_ranges,
    splitname,
)
from wids.wids_decode import (
    decode_all_gz,
    decode_basic,
    decode_images_to_numpy,
    decode_images_to_pil,
    default_decoder,
)
from wids.wids_mmtar import MMIndexedTar


def shown(value: Any) -> Any:
    """Return what JSON can say of a decoded field."""
    if isinstance(value, PIL.Image.Image):
        return ["PIL", value.size, list(value.getpixel((0, 0)))]
    if isinstance(value, np.ndarray):
        return ["numpy", str(value.dtype), value.tolist()]
    if hasattr(value, "read"):
        return ["stream", value.read().hex()]
    return value


def shown_sample(sample: dict[str, Any]) -> dict[str, Any]:
    """Return what JSON can say of a sample, apart from where it lies."""
    # 0.1.11 gave no name to a dataset whose spec has none.
    lies_where = {"__shard__", "__dataset__"}
    return {key: shown(value) for key, value in sample.items() if key not in lies_where}


def write_metadata(folder: Path) -> Any:
    """Count the samples of each shard, as makers of a JSON do."""
    shards = [
        {"url": path.name, "nsamples": compute_num_samples(str(path))}
        for path in sorted(folder.glob("*.tar"))
    ]
    return {"wids_version": 1, "shardlist": shards}


def look_up_by_key(folder: Path) -> Any:
    """Make a table from key to members, and read one sample through it."""
    with (folder / "plain.tar").open("rb") as stream:
        reader = MMIndexedTar(stream)
        names = list(reader.names())
        table = {splitname(names[group[0]])[0]: group for group in group_by_key(names)}
        members = [reader.get_file(index) for index in table["dir/b"]]
        found = {name: stream.read().decode() for name, stream in members if "png" not in name}
        return [len(reader), table, found]


class Annotated(Dataset):
    """One shard joined with a table of captions by key."""

    def __init__(self, path: str, captions: dict[str, str]) -> None:
        self.samples = IndexedTarSamples(path=path, use_mmap=True)
        self.captions = captions

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> dict[str, Any]:
        sample = default_decoder(self.samples[index], format="numpy")
        sample["caption"] = self.captions[sample["__key__"]]
        return sample


def join_captions(folder: Path) -> Any:
    """Load decoded samples of a single tar through a DataLoader."""
    dataset = Annotated(str(folder / "plain.tar"), {"a": "one", "dir/b": "two", "c": "three"})
    loader = DataLoader(dataset, batch_size=2, collate_fn=list)
    return [[shown_sample(sample) for sample in batch] for batch in loader]


def list_members(folder: Path) -> Any:
    """Walk over the reader of a tar: its table, and names with data."""
    samples = IndexedTarSamples(path=str(folder / "plain.tar"))
    table = [list(row) for row in samples.reader.by_index]
    nbytes = {name: len(data) for name, data in samples.reader}
    first = samples.reader.get_at_index(0)
    samples.close()
    return [table, nbytes, [first[0], first[1].hex()]]


class RangeSampler(Sampler):
    """Visits ranges of indexes in random order, the indexes within each in order."""

    def __init__(self, ranges: list[tuple[int, int]]) -> None:
        self.ranges = ranges

    def __iter__(self) -> Iterator[int]:
        return iterate_ranges(self.ranges, random.Random(3), indexshuffle=False, shardshuffle=True)


def sample_ranges(folder: Path) -> Any:
    """Draw a dataset in ranges of its own making."""
    dataset = ShardListDataset(str(folder / "plain.json"), transformations=[])
    sampler = RangeSampler([(0, 2), (2, 3), (0, 1)])
    chunked = ChunkedSampler(dataset, chunksize=2, shuffle=False)
    return [[dataset[index]["__key__"] for index in sampler], list(chunked)]


def decode_step_by_step(folder: Path) -> Any:
    """Decode by a list of the old transformations."""
    steps = [decode_all_gz, decode_basic, decode_images_to_pil]
    dataset = ShardListDataset(str(folder / "packed.json"), transformations=steps)
    return [shown_sample(sample) for sample in (dataset[0], dataset[1])]


def decode_to_arrays(folder: Path) -> Any:
    """Decode single samples to arrays."""
    samples = IndexedTarSamples(path=str(folder / "packed.tar"))
    found = []
    for index in range(len(samples)):
        sample = decode_images_to_numpy(decode_basic(decode_all_gz(samples[index])))
        found.append(shown_sample(sample))
    return found


def decode_as_ever(folder: Path) -> Any:
    """Decode by the default: gzipped fields keep their names, unknown ones stay streams."""
    samples = IndexedTarSamples(path=str(folder / "packed.tar"))
    return [shown_sample(default_decoder(samples[index], format="PIL")) for index in (0, 1)]


PROGRAMS = (
    write_metadata,
    look_up_by_key,
    join_captions,
    list_members,
    sample_ranges,
    decode_step_by_step,
    decode_to_arrays,
    decode_as_ever,
)

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    results = {program.__name__: program(Path(sys.argv[1])) for program in PROGRAMS}
    print(json.dumps(results))
