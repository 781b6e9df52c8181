"""Packs that lie: damaged, cut, of other shards, with false places, counts, names and keys."""

import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from helpers.packbytes import NAMES, columns_of, digest, resealed
from helpers.server import Faults, ShardServer, serve, stop

from attacks.runner import BOUNDED, RIGHT, Attack, Family, Scene, Wrong
from attacks.servers import PATIENT
from attacks.sidecars import check_samples, lie_of, shard_of
from wids.fetching.fetch import Fetcher
from wids.specs.sources import load_spec
from wids.tools.packing import write_pack
from wids.views.viewable import ShardListDataset

NUMBERS = (0, 1, 127, 128, 512, 1 << 31, 1 << 32, 1 << 40, (1 << 63) - 1, (1 << 64) - 1)
NUM_SHARDS = 3


class World:
    """Three shards of the same keys with other bytes, their pack, and the pack of three others."""

    def __init__(self, scene: Scene) -> None:
        chance = scene.chance
        self.shards: list[bytes] = []
        self.members: list[dict[str, bytes]] = []
        self.paths: list[Path] = []
        self.other = self._packed(scene)
        self.image = self._packed(scene)
        self.chance = chance

    def _packed(self, scene: Scene) -> bytes:
        made = [shard_of(scene.chance.randrange(1000)) for _ in range(NUM_SHARDS)]
        self.shards = [content for content, _ in made]
        self.members = [members for _, members in made]
        self.paths = [scene.write(f"{row}.tar", each) for row, each in enumerate(self.shards)]
        path = scene.folder / "all.wpack"
        write_pack(load_spec(list(map(str, self.paths))), path)
        image = path.read_bytes()
        path.unlink()
        return image

    def lie(self) -> tuple[bytes, bool]:
        """Return a pack that is not the right one, and whether its author made the digests fit."""
        ways: list[tuple[Callable[[], bytes], bool]] = [
            (lambda: self.other, False),
            (self._cut, False),
            (self._no_pack, False),
            (self._damaged, False),
            (self._damaged, False),
            (self._with_false_header, True),
            (self._with_false_columns, True),
            (self._with_false_indexes, True),
        ]
        make, forged = self.chance.choice(ways)
        return make(), forged

    def _cut(self) -> bytes:
        cut = self.image[: self.chance.randrange(len(self.image))]
        return cut + bytes(self.chance.choice([0, 0, 4096, len(self.image) - len(cut)]))

    def _no_pack(self) -> bytes:
        return self.chance.choice([b"", b"{}", b"<html>" * 99, bytes(5000), self.other[:128]])

    def _damaged(self) -> bytes:
        image = bytearray(self.image)
        for _ in range(self.chance.choice([1, 1, 3, 20])):
            place = self.chance.randrange(len(image))
            if self.chance.random() < 0.6:
                image[place] ^= 1 << self.chance.randrange(8)
            else:
                start = place // 8 * 8
                image[start : start + 8] = struct.pack("<Q", self.chance.choice(NUMBERS))
        return bytes(image[: len(self.image)])

    def _with_false_header(self) -> bytes:
        name, number = self.chance.choice(NAMES), self.chance.choice(NUMBERS)
        return resealed(self.image, {}, **{name: number % 2 ** (32 if name == "rules" else 64)})

    def _with_false_columns(self) -> bytes:
        """Return a pack whose table has other numbers, with digests that fit."""
        columns = {name: column.copy() for name, column in columns_of(self.image).items()}
        for name in self.chance.choices(list(columns), k=self.chance.choice([1, 1, 2])):
            values = columns[name]
            for _ in range(self.chance.choice([1, 2]) if len(values) else 0):
                number = self.chance.choice([*NUMBERS, *range(0, len(self.image), 64)])
                row = self.chance.randrange(len(values))
                made = np.frombuffer(number.to_bytes(16, "little"), values.dtype)
                values[row] = made[0]
        if self.chance.random() < 0.5:  # indexes in another order, overlapping, or of one shard
            rows = [self.chance.randrange(NUM_SHARDS) for _ in range(NUM_SHARDS)]
            for name in ("start", "nbytes"):
                columns[name] = columns[name][rows] + self.chance.choice([0, 0, 8, 64])
        return resealed(self.image, columns)

    def _with_false_indexes(self) -> bytes:
        """Return a pack with a sidecar that lies, in place of that of one shard."""
        row = self.chance.randrange(NUM_SHARDS)
        columns = columns_of(self.image)
        start, nbytes = int(columns["start"][row]), int(columns["nbytes"][row])
        own = self.image[start : start + nbytes]
        lie = lie_of(self.chance, own, self.shards[row], own)[: len(own)].ljust(len(own), b"\0")
        digests = columns["digest"].copy()
        digests[row] = np.void(digest(lie))
        table = resealed(self.image, {"digest": digests})
        return table[:start] + lie + table[start + nbytes :]


def _read(dataset: ShardListDataset, world: World, chance: random.Random, *, forged: bool) -> None:
    """Read samples and look up keys; raise Wrong for other bytes or other keys."""
    indexes = range(min(len(dataset), 50))
    samples = [dataset[index] for index in indexes][:3] if chance.random() < 0.5 else []
    samples += dataset.__getitems__(list(indexes))
    for sample in samples:
        row = int(Path(sample["__shard__"]).name.partition(".")[0])
        check_samples([sample], world.members[row])
    for sample in samples[-4:]:
        try:
            found = dataset.index_of(sample["__key__"])
        except KeyError:
            if not forged:  # a table may be forged so that it lacks a key
                raise Wrong(f"the key {sample['__key__']!r} was not found") from None
            continue
        if dataset[found]["__key__"] != sample["__key__"]:
            raise Wrong(f"the key {sample['__key__']!r} led to sample {found}")


def _local(scene: Scene) -> Callable[[], str]:
    """Put a lie where the pack of local shards belongs, and open a spec that names it."""
    chance = scene.chance
    world = World(scene)
    lie, forged = world.lie()
    path = scene.write("all.wpack", lie)
    rows = [{"url": str(each), "nsamples": 6} for each in world.paths]
    source = {"shardlist": rows, "pack": str(path)}
    options: dict[str, Any] = {"transformations": "bytes", "cache_dir": scene.cache}

    def attempt() -> str:
        try:
            with ShardListDataset(source, **options) as dataset:
                _read(dataset, world, chance, forged=forged)
        except Wrong:
            if forged:  # its author could have written other shards as well
                return BOUNDED
            raise
        return RIGHT

    return attempt


def _served(scene: Scene) -> Callable[[], str]:
    """Serve a lie, with its shards, and read by range."""
    chance = scene.chance
    world = World(scene)
    lie, forged = world.lie()
    faults = chance.choice([{}, {}, {}, {"no_etag": True}, {"hide_total": True}])
    state = ShardServer(faults=Faults(**faults))
    server = serve(state)
    scene.cleanup.callback(stop, server)
    for row, content in enumerate(world.shards):
        state.put(f"{row}.tar", content)
    url = state.put("all.wpack", lie)
    spec = {"shardlist": [{"url": f"{state.url}/{row}.tar"} for row in range(NUM_SHARDS)]}
    for entry in spec["shardlist"]:
        entry["nsamples"] = 6
    source = {**spec, "pack": url}
    options = {"transformations": "bytes", "cache_dir": scene.cache, "cache_size": 100_000}

    def attempt() -> str:
        with ShardListDataset(source, remote="range", **options) as dataset:
            dataset.cache.fetcher = Fetcher(PATIENT)
            _read(dataset, world, chance, forged=forged)
        return RIGHT

    return attempt


KINDS: dict[str, Attack] = {"local": _local, "served": _served}
PACKS = Family(KINDS, usual=12)
