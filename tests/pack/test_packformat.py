"""Packs: the documented bytes, and refused files."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from helpers.packbytes import BLOCK_NBYTES, columns_of, digest, header_of, resealed

from wids.base.keyhash import hash_key, hash_keys
from wids.errors import ShardFormatError
from wids.pack.packfile import open_pack
from wids.pack.packwriter import PackWriter
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
    """Header, table, indexes, names and keys lie where the documentation says."""
    image = pack.read_bytes()
    header, columns = header_of(image), columns_of(image)
    assert (header["rules"], header["num_shards"], header["num_samples"]) == (0, 3, 7)
    assert header["keys_start"] % 64 == 0
    places = zip(columns["start"].tolist(), columns["nbytes"].tolist(), shards, strict=True)
    for row, (start, nbytes, path) in enumerate(places):
        assert start % 64 == 0
        assert start + nbytes <= header["keys_start"]
        index = image[start : start + nbytes]
        assert index == TarIndex.from_tar(path).image()
        assert columns["digest"][row].tobytes() == digest(index)
    assert columns["name"].tolist() == [hash_key(f"{number}.tar") for number in range(3)]
    assert columns["nsamples"].tolist() == LENGTHS
    assert columns["filesize"].tolist() == [path.stat().st_size for path in shards]
    expected = sorted((hash_key(f"k{number}"), number) for number in range(7))
    block = image[header["keys_start"] : header["table_start"]]
    numbers = np.frombuffer(block, "<u8").reshape(2, 512)
    assert list(zip(*numbers[:, :7].tolist(), strict=True)) == expected
    assert (numbers[:, 7:] == 2**64 - 1).all()
    assert columns["fence"].tolist() == [expected[0][0]]
    assert columns["check"].tolist() == [crc32(block)]


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
    return [indexes, pack.key_hashes().tolist(), pack.columns["nsamples"].tolist()]


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


LIES: dict[str, tuple[dict[str, Any], dict[str, int]]] = {
    "more shards": ({}, {"num_shards": 4}),
    "too many shards": ({}, {"num_shards": 2**40}),
    "more samples": ({}, {"num_samples": 8}),
    "too many samples": ({}, {"num_samples": 2**63}),
    "a table in the header": ({}, {"table_start": 64}),
    "a table behind the end": ({}, {"table_start": 2**50}),
    "other counts": ({"nsamples": np.array([3, 1, 4])}, {}),
    "a negative count": ({"nsamples": np.array([4, -1, 4])}, {}),
    "counts that overflow": ({"nsamples": np.array([2**62, 2**62, 2**62])}, {}),
    "an index behind the end": ({"start": np.full(3, 2**40)}, {}),
    "an index in the header": ({"start": np.full(3, 64)}, {}),
    "an index at an odd byte": ({"start": np.full(3, 201)}, {}),
    "an index before the file": ({"start": np.full(3, -64)}, {}),
    "a huge index": ({"nbytes": np.full(3, 2**62)}, {}),
    "another check": ({"check": np.zeros(1, "<u4")}, {}),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_forged_pack_is_refused(pack: Path, lie: str) -> None:
    """Numbers that do not fit are refused even where the digests fit."""
    columns, header = LIES[lie]
    pack.write_bytes(resealed(pack.read_bytes(), columns, **header))
    with pytest.raises(ShardFormatError, match="no usable pack"):
        read_all(pack)


def test_places_of_keys_lie_in_the_dataset(pack: Path) -> None:
    """A block of keys whose check fits is refused if it names samples that are not there."""
    image = bytearray(pack.read_bytes())
    start = header_of(image)["keys_start"]
    image[start + 4096 : start + 4104] = (7).to_bytes(8, "little")
    check = np.array([crc32(image[start : start + BLOCK_NBYTES])], "<u4")
    pack.write_bytes(resealed(bytes(image), {"check": check}))
    with pytest.raises(ShardFormatError, match="of samples that exist"):
        open_pack(pack).key_hashes()


def test_keys_are_found_over_blocks(tmp_path: Path) -> None:
    """Each sample is found by its hash, also where equal hashes fill more than a block."""
    chance = np.random.default_rng(0)
    hashes = chance.integers(0, 2**64, 3000, dtype=np.uint64)
    hashes[chance.integers(0, 3000, 900)] = hashes[:900]  # equal ones, over blocks and shards
    hashes[1000:1700] = hashes[0]
    with (tmp_path / "a.wpack").open("wb") as stream:
        writer = PackWriter(stream, 0)
        for start in range(0, 3000, 70):
            writer.add(b"", hashes[start : start + 70], name=start, filesize=-1)
        writer.finish()
    pack = open_pack(tmp_path / "a.wpack")
    assert np.array_equal(pack.key_hashes(), hashes)
    for wanted in {int(hashes[0]), int(hashes[-1]), *hashes[::50].tolist()}:
        assert pack.indexes_of(wanted) == np.flatnonzero(hashes == wanted).tolist()
    absent = int(hash_keys(["nobody"])[0])
    assert pack.indexes_of(absent) == []
    assert pack.read_index(0) is None
