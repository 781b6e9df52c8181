"""SPDL 0.8: its pipeline of threads over tars.

It has no dataset of its own: shards are read in shuffled order by its tar parser, and samples pass
through a buffer of 2,000. Pillow decodes, in its threads, since its own decoder needs libraries of
FFmpeg that not every machine has.
"""

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import spdl.io
from spdl.pipeline import PipelineBuilder

from peers import shared
from peers.conversion import decoded_batch

BUFFER = 2000


def versions() -> dict[str, str]:
    return shared.versions("spdl")


def samples_in(shards: list[str]) -> Iterator[tuple[bytes, ...]]:
    for shard in shards:
        key, fields = "", []
        for name, data in spdl.io.iter_tarfile(Path(shard).read_bytes()):
            stem = name.split(".", maxsplit=1)[0]
            if stem != key and fields:
                yield tuple(fields)
                fields = []
            key = stem
            fields.append(bytes(data))
        yield tuple(fields)


def shuffled(samples: Iterator[tuple[bytes, ...]], rng: random.Random) -> Iterator[Any]:
    buffer: list[tuple[bytes, ...]] = []
    for sample in samples:
        if len(buffer) < BUFFER:
            buffer.append(sample)
            continue
        place = rng.randrange(BUFFER)
        yield buffer[place]
        buffer[place] = sample
    rng.shuffle(buffer)
    yield from buffer


def epoch_loader(folder: Path, options: dict[str, Any]) -> Callable[[int], Iterator[Any]]:
    shards = [each["url"] for each in json.loads((folder / "spec.json").read_text())["shardlist"]]

    def epoch(number: int) -> Iterator[Any]:
        rng = random.Random(number)
        order = rng.sample(shards, len(shards))
        builder = PipelineBuilder().add_source(shuffled(samples_in(order), rng))
        builder = builder.aggregate(options["batch_size"])
        if options["decode"]:
            builder = builder.pipe(decoded_batch, concurrency=options["workers"])
        pipeline = builder.add_sink(4).build(num_threads=options["workers"])
        with pipeline.auto_stop():
            yield from pipeline

    return epoch
