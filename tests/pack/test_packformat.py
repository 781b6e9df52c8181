"""Packs: the documented bytes, refused files, and the sorting of keys."""

import json
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from helpers.packbytes import digest, resealed

from wids.base.keyhash import hash_key
from wids.errors import ShardFormatError
from wids.pack.packfile import Pack, open_pack
from wids.pack.packkeys import BLOCK_LENGTH, KeySorter
from wids.specs.sources import load_spec
from wids.tar.tarindex import TarIndex
from wids.tools.packing import write_pack

LENGTHS = [3, 0, 4]


@pytest.fixture
def shards(make_shard: Callable[..., Path]) -> list[Path]:
    """Write three shards, one of them without samples."""
    start, paths = 0, []
    for number, length in enumerate(LENGTHS):
        samples = [{"__key__": f"k{start + i}", ".txt": f"text {start + i}"} for i in range(length)]
        paths.append(make_shard(f"data/{number}.tar", samples))
        start += length
    return paths


@pytest.fixture
def pack(shards: list[Path]) -> Path:
    """Write their pack."""
    path = shards[0].with_name("train.wpack")
    write_pack(load_spec(str(shards[0].parent)), path)
    return path


def test_the_documented_parts_read_by_hand(pack: Path, shards: list[Path]) -> None:
    """Header, directory, indexes, names and keys lie where the documentation says."""
    image = pack.read_bytes()
    fields = struct.unpack_from("<8sII5Q16s", image)
    assert fields[:3] == (b"widspck\0", 1, 0)
    nbytes, num_shards, num_samples, table_start, directory_start = fields[3:8]
    assert (nbytes, num_shards, num_samples) == (len(image), 3, 7)
    assert fields[8] == digest(image[directory_start:])
    assert image[112:128] == digest(image[:112])
    directory = json.loads(image[directory_start:])

    def array(name: str) -> Any:
        place = directory["arrays"][name]
        assert place["start"] % 64 == 0
        data = image[place["start"] :]
        count = int(np.prod(place["shape"]))
        found = np.frombuffer(data, place["type"], count).reshape(place["shape"])
        if name != "key blocks":
            assert place["digest"] == digest(found.tobytes()).hex()
        return found

    starts, sizes = array("index start").tolist(), array("index nbytes").tolist()
    assert max(start + size for start, size in zip(starts, sizes, strict=True)) <= table_start
    for row, path in enumerate(shards):
        index = image[starts[row] : starts[row] + sizes[row]]
        assert index == TarIndex.from_tar(path).image()
        assert array("index digest")[row].tobytes() == digest(index)
    prefix, suffix = map(bytes.fromhex, directory["texts"]["url"])
    assert (prefix, array("url blob").tobytes(), suffix) == (b"", b"012", b".tar")
    assert array("nsamples").tolist() == LENGTHS
    assert array("filesize").tolist() == [path.stat().st_size for path in shards]
    expected = sorted((hash_key(f"k{number}"), number) for number in range(7))
    (block,) = array("key blocks")
    assert list(zip(*block[:, :7].tolist(), strict=True)) == expected
    assert (block[:, 7:] == 2**64 - 1).all()
    assert array("key fences").tolist() == [expected[0][0]]
    assert array("key checks").tolist() == [crc32(block.tobytes())]


def test_the_same_shards_give_the_same_bytes(pack: Path, shards: list[Path]) -> None:
    """A second pack, made from sidecars in another number of threads, has the same bytes."""
    for path in shards:
        TarIndex.from_tar(path).save(f"{path}.widx")
    again = pack.with_name("again.wpack")
    write_pack(load_spec(str(pack.parent)), again, workers=1)
    assert again.read_bytes() == pack.read_bytes()


def read_all(path: Path) -> list[Any]:
    """Read all that a pack holds."""
    pack = open_pack(path)
    indexes = []
    for row in range(pack.header.num_shards):
        index = TarIndex.from_pack(pack.read_index(row) or memoryview(b""), str(path))
        index.check()
        indexes.append((index.names, index.offsets.tolist(), index.source))
    assert pack.keys is not None
    return [indexes, pack.keys.hashes().tolist(), pack.column("nsamples").tolist()]


def test_a_changed_bit_is_found(pack: Path) -> None:
    """Whatever bit changes, what is read is refused or right; only fillings do not matter."""
    image, expected = pack.read_bytes(), read_all(pack)
    chance, num_refused = random.Random(0), 0
    for _ in range(300):
        changed = bytearray(image)
        changed[chance.randrange(len(image))] ^= 1 << chance.randrange(8)
        pack.write_bytes(changed)
        try:
            assert read_all(pack) == expected
        except ShardFormatError:
            num_refused += 1
    assert num_refused > 250


@pytest.mark.parametrize("nbytes", [0, 1, 127, 128, 500, 4000, -1])
def test_a_cut_pack_is_refused(pack: Path, nbytes: int) -> None:
    """A pack that breaks off is refused, with its name and the remedy."""
    pack.write_bytes(pack.read_bytes()[:nbytes])
    with pytest.raises(ShardFormatError, match=r"train\.wpack: no usable pack: .*wids export"):
        open_pack(pack)


LIES: dict[str, tuple[Callable[[dict[str, Any]], None], dict[str, int]]] = {
    "more shards": (lambda _: None, {"num_shards": 4}),
    "too many shards": (lambda _: None, {"num_shards": 2**40}),
    "more samples": (lambda _: None, {"num_samples": 8}),
    "a table in the header": (lambda _: None, {"table_start": 64}),
    "a table behind the directory": (lambda _: None, {"table_start": 2**50}),
    "no arrays": (lambda d: d.update(arrays={}), {}),
    "a list": (lambda d: d.update(arrays=[]), {}),
    "an array beyond the end": (lambda d: d["arrays"]["nsamples"].update(start=2**40), {}),
    "an array at an odd byte": (lambda d: d["arrays"]["nsamples"].update(start=1001), {}),
    "a negative length": (lambda d: d["arrays"]["nsamples"].update(shape=[-3]), {}),
    "a huge length": (lambda d: d["arrays"]["nsamples"].update(shape=[2**60, 2**60]), {}),
    "true for a length": (lambda d: d["arrays"]["nsamples"].update(shape=[True]), {}),
    "another type": (lambda d: d["arrays"]["nsamples"].update(type="|O8"), {}),
    "floats": (lambda d: d["arrays"]["nsamples"].update(type="<f8"), {}),
    "overlapping arrays": (lambda d: d["arrays"].update(nsamples=d["arrays"]["filesize"]), {}),
    "another digest": (lambda d: d["arrays"]["nsamples"].update(digest="00" * 16), {}),
    "no digest": (lambda d: d["arrays"]["nsamples"].pop("digest"), {}),
    "no names": (lambda d: d["texts"].pop("url"), {}),
    "no object": (lambda d: d.update(spec=7), {}),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_forged_pack_is_refused(pack: Path, lie: str) -> None:
    """Numbers that do not fit are refused even where the digests fit."""
    change, header = LIES[lie]
    pack.write_bytes(resealed(pack.read_bytes(), change, **header))
    with pytest.raises(ShardFormatError, match="no usable pack"):
        load_spec(str(pack))


def test_places_of_keys_lie_in_the_dataset(pack: Path) -> None:
    """A block of keys whose check fits is refused if it names samples that are not there."""
    image = bytearray(pack.read_bytes())
    directory = json.loads(image[struct.unpack_from("<Q", image, 48)[0] :])
    start = directory["arrays"]["key blocks"]["start"]
    image[start + 4096 : start + 4104] = struct.pack("<Q", 7)
    checks = struct.pack("<I", crc32(image[start : start + 8192]))
    place = directory["arrays"]["key checks"]
    image[place["start"] : place["start"] + 4] = checks
    pack.write_bytes(
        resealed(
            bytes(image), lambda d: d["arrays"]["key checks"].update(digest=digest(checks).hex())
        )
    )
    opened: Pack = open_pack(pack)
    assert opened.keys is not None
    with pytest.raises(ShardFormatError, match="of samples that exist"):
        opened.keys.hashes()


@pytest.mark.parametrize("most_waiting", [100, 1 << 20])
def test_keys_are_sorted_within_bounded_memory(tmp_path: Path, most_waiting: int) -> None:
    """Blocks are in order of hash and sample, whether the hashes fit into memory or not."""
    chance = np.random.default_rng(0)
    hashes = chance.integers(0, 2**64, 3000, dtype=np.uint64)
    hashes[chance.integers(0, 3000, 900)] = hashes[:900]  # equal ones, over blocks and parts
    hashes[1000:1700] = hashes[0]
    sorter = KeySorter(tmp_path, most_waiting)
    for start in range(0, 3000, 70):
        sorter.add(hashes[start : start + 70])
    blocks = np.frombuffer(b"".join(sorter.blocks()), "<u8").reshape(-1, 2, BLOCK_LENGTH)
    sorter.close()
    order = np.lexsort((np.arange(3000), hashes))
    assert (blocks[:, 0].reshape(-1)[:3000] == hashes[order]).all()
    assert (blocks[:, 1].reshape(-1)[:3000] == order.astype(np.uint64)).all()
    assert not list(tmp_path.glob("*.part"))
