"""Sidecars that lie: beside a shard of this machine, in the cache, and on a server."""

import os
import random
import struct
from collections.abc import Callable

from helpers.server import Faults, ShardServer, serve, stop
from helpers.sidecarbytes import HEADER_NBYTES, fingerprinted, sealed, sidecar_of
from helpers.tarbytes import END, member
from helpers.tarfuzz import damage

from attacks.runner import BOUNDED, RIGHT, Attack, Family, Scene, Wrong
from attacks.servers import PATIENT
from wids.fetching.fetch import Fetcher
from wids.reading.shardlist import ShardList

NUMBERS = (0, 1, 511, 512, 1 << 31, 3 << 30, (1 << 32) - 1, 1 << 40, (1 << 63) - 1, 1 << 63)


def shard_of(seed: int, count: int = 6) -> tuple[bytes, dict[str, bytes]]:
    """Return a shard and its members by name."""
    chance = random.Random(seed)
    members = {
        f"{seed % 2 * number + number:03d}.{extension}": chance.randbytes(
            chance.choice([0, 9, 700, 2000])
        )
        for number in range(count)
        for extension in ("bin", "cls")
    }
    content = b"".join(member(name.encode(), data) for name, data in members.items())
    return content + END, members


def lie_of(chance: random.Random, image: bytes, shard: bytes, other: bytes) -> bytes:
    """Return a sidecar of another shard, cut, damaged, or with false places, sizes and names."""
    way = chance.randrange(7)
    if way == 0:
        return other
    if way == 1:
        return image[: chance.randrange(len(image))] + bytes(chance.choice([0, 0, 4096]))
    if way == 2:
        return chance.choice([b"", b"{}", b"<html>" * 99, bytes(5000), b"\x1f\x8b" + image, shard])
    if way <= 4:
        changed, _ = damage(chance, image, shard)
        return changed
    lied = bytearray(image)
    (count,) = struct.unpack_from("<Q", image, 40)
    for _ in range(chance.choice([1, 1, 3])):
        row = HEADER_NBYTES + 16 * chance.randrange(count) + chance.choice([0, 8])
        lied[row : row + 8] = struct.pack(
            "<Q", chance.choice([*NUMBERS, chance.randrange(0, 20_000, 512)])
        )
    if chance.random() < 0.5:  # names
        place = len(lied) - chance.randrange(1, min(200, len(lied) - HEADER_NBYTES))
        lied[place] ^= 1 << chance.randrange(8)
    if chance.random() < 0.5:  # the sizes of shard and archive
        place = chance.choice([16, 24, 32])
        lied[place : place + 8] = struct.pack("<Q", chance.choice(NUMBERS))
    return sealed(fingerprinted(bytes(lied), shard)) if chance.random() < 0.8 else bytes(lied)


def check_samples(samples: list[dict[str, bytes]], members: dict[str, bytes]) -> None:
    """Raise Wrong unless each field has the bytes of the member of its name."""
    for sample in samples:
        for extension, data in sample.items():
            if extension[0] == "." and members.get(sample["__key__"] + extension) != data:
                raise Wrong(f"{sample['__key__']}{extension} has other bytes: {data[:40]!r}")


def _local(scene: Scene) -> Callable[[], str]:
    """Put a lie where the sidecar of a local shard belongs."""
    chance = scene.chance
    content, members = shard_of(chance.randrange(1000))
    other = sidecar_of(scene.write("a.tar", shard_of(chance.randrange(1000))[0]))
    path = scene.write("a.tar", content)
    image = sidecar_of(path)
    lie = lie_of(chance, image, content, other)
    beside = path.with_name("a.tar.widx")
    beside.write_bytes(lie)
    stat = path.stat()
    os.utime(beside, ns=(stat.st_mtime_ns, stat.st_mtime_ns + 10**9))
    resealed = len(lie) > HEADER_NBYTES and lie != image and lie == sealed(lie)

    def attempt() -> str:
        with ShardList([str(path)], transformations="bytes", cache_dir=scene.cache) as dataset:
            samples = [dataset[index] for index in range(min(len(dataset), 50))]
        if resealed:  # its author could have written another shard as well
            return BOUNDED
        check_samples(samples, members)
        return RIGHT

    return attempt


def _served(scene: Scene) -> Callable[[], str]:
    """Serve a lie beside a shard, and read by range."""
    chance = scene.chance
    content, members = shard_of(chance.randrange(1000))
    other = sidecar_of(scene.write("a.tar", shard_of(chance.randrange(1000))[0]))
    lie = lie_of(chance, sidecar_of(scene.write("a.tar", content)), content, other)
    state = ShardServer(
        faults=Faults(**chance.choice([{}, {}, {"no_etag": True}, {"hide_total": True}]))
    )
    server = serve(state)
    scene.cleanup.callback(stop, server)
    url = state.put("a.tar", content)
    state.put("a.tar.widx", lie)
    promised = chance.choice([{}, {}, {"filesize": len(content)}, {"filesize": 3 << 30}])
    row = {"url": url, **promised}
    if chance.random() < 0.7:
        row["nsamples"] = 6

    def attempt() -> str:
        options = {"transformations": "bytes", "cache_dir": scene.cache, "cache_size": 1000}
        with ShardList([row], remote="range", **options) as dataset:
            dataset.cache.fetcher = Fetcher(PATIENT)
            indexes = range(min(len(dataset), 50))
            samples = [dataset[index] for index in indexes][:3] if chance.random() < 0.5 else []
            samples += dataset.__getitems__(list(indexes))
        check_samples(samples, members)
        return RIGHT

    return attempt


KINDS: dict[str, Attack] = {"local": _local, "served": _served}
SIDECARS = Family(KINDS, usual=12)
