"""Compressed shards: unpacked once, whole, and never beyond all measure."""

import bz2
import gzip
import hashlib
import logging
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from helpers.downloads import SHARD, leftovers, tar_of
from helpers.server import ShardServer

from wids.base.shardref import ShardRef
from wids.caching.cache import ShardCache
from wids.errors import FetchError, IntegrityError, ShardFormatError


def zst(data: bytes) -> bytes:
    """Compress as `zstd` does: with the size in the header and a checksum."""
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


def unsized_zst(data: bytes) -> bytes:
    """Compress as a pipe through `zstd` does: without the size."""
    compressor = zstandard.ZstdCompressor(write_checksum=True).compressobj()
    return compressor.compress(data) + compressor.flush()


WHOLE: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("a.tar.gz", gzip.compress),
    "tgz": ("a.tgz", gzip.compress),
    "gzip in two members": (
        "a.tar.gz",
        lambda data: gzip.compress(data[:9]) + gzip.compress(data[9:]),
    ),
    "zstd": ("a.tar.zst", zst),
    "zstd without size": ("a.tar.zst", unsized_zst),
    "zstd in two frames": ("a.tar.zst", lambda data: zst(data[:999]) + unsized_zst(data[999:])),
    "gzip under a plain name": ("a.tar", gzip.compress),
}


@pytest.mark.parametrize("case", WHOLE)
def test_a_fetched_shard_is_unpacked_once(
    cache: ShardCache, shard_server: ShardServer, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The plain shard is cached; size and digest are checked on the fetched file."""
    caplog.set_level(logging.INFO, "wids")
    name, compress = WHOLE[case]
    packed = compress(SHARD)
    promised = {"filesize": len(packed), "md5sum": hashlib.md5(packed).hexdigest()}
    url = shard_server.put(name, packed)
    for _ in range(2):
        path = cache.get(ShardRef.of(url, **promised))
        assert path.read_bytes() == SHARD
    assert len(shard_server.requests) == 1
    assert path.name.endswith("-a.tar")
    assert leftovers(cache) == [path.name, f"{path.name}.ok"]
    assert caplog.text.count("unpacking") == 1
    cache.close()
    assert cache.verify() == []


@pytest.mark.parametrize("case", [case for case in WHOLE if case != "gzip under a plain name"])
def test_a_local_shard_is_unpacked_once(cache: ShardCache, tmp_path: Path, case: str) -> None:
    """A compressed local shard is decompressed to the cache once, and again when it changes."""
    name, compress = WHOLE[case]
    packed = tmp_path / name
    packed.write_bytes(compress(SHARD))
    path = cache.get(ShardRef.of(str(packed), filesize=packed.stat().st_size))
    assert path.read_bytes() == SHARD
    assert path.parent == cache.cache_dir
    before = path.stat()
    assert cache.get(f"file://{packed}").stat().st_ino == before.st_ino
    packed.write_bytes(compress(tar_of(3)))
    assert cache.get(str(packed)).read_bytes() == tar_of(3)


DAMAGED = {
    "gzip cut": ("a.tar.gz", gzip.compress(SHARD)[:-40]),
    "gzip cut in the trailer": ("a.tar.gz", gzip.compress(SHARD)[:-4]),
    "gzip with a bit flipped": ("a.tar.gz", gzip.compress(SHARD)[:-6] + b"xxxxxx"),
    "gzip with rubbish after": ("a.tar.gz", gzip.compress(SHARD) + b"rubbish"),
    "zstd cut": ("a.tar.zst", zst(SHARD)[:-40]),
    "zstd cut in the checksum": ("a.tar.zst", zst(SHARD)[:-2]),
    "zstd with a bit flipped": ("a.tar.zst", zst(SHARD)[:-4] + b"xxxx"),
    "zstd with rubbish after": ("a.tar.zst", zst(SHARD) + b"rubbish"),
    "bzip2": ("a.tar.gz", bz2.compress(SHARD)),
    "xz": ("a.tar.gz", lzma.compress(SHARD)),
    "plain": ("a.tar.gz", SHARD),
    "empty": ("a.tar.gz", b""),
}


@pytest.mark.parametrize(
    ("case", "fetched"),
    [
        *((case, False) for case in DAMAGED),
        *((case, True) for case in DAMAGED if case not in ("plain", "empty")),
    ],
)
def test_a_damaged_shard_is_a_clear_error(
    cache: ShardCache, shard_server: ShardServer, tmp_path: Path, case: str, fetched: bool
) -> None:
    """The error names the file or the URL, and nothing is left in the cache."""
    name, data = DAMAGED[case]
    (tmp_path / name).write_bytes(data)
    place = shard_server.put(name, data) if fetched else str(tmp_path / name)
    with pytest.raises(ShardFormatError, match=place):
        cache.get(place)
    assert leftovers(cache) == []


def test_a_plain_tar_under_a_compressed_name_is_called_so(
    cache: ShardCache, tmp_path: Path
) -> None:
    """The error says that the file is not compressed, and gives the right name."""
    (tmp_path / "a.tgz").write_bytes(SHARD)
    with pytest.raises(ShardFormatError, match=r"a\.tgz: is a plain tar.*rename it to 'a\.tar'"):
        cache.get(str(tmp_path / "a.tgz"))


def test_a_compressed_page_is_no_shard(cache: ShardCache, shard_server: ShardServer) -> None:
    """Compressed data other than a tar are refused."""
    url = shard_server.put("a.tar.gz", gzip.compress(b"<html>" * 1000))
    with pytest.raises(FetchError, match="expected a tar archive"):
        cache.get(url)
    assert leftovers(cache) == []


def test_the_digest_is_checked_before_anything_is_unpacked(
    cache: ShardCache, shard_server: ShardServer
) -> None:
    """A file with a wrong digest is not decompressed."""
    url = shard_server.put("a.tar.gz", gzip.compress(SHARD)[:-40])
    with pytest.raises(IntegrityError, match="sha256"):
        cache.get(ShardRef.of(url, sha256="0" * 64))


@pytest.mark.parametrize("compress", [gzip.compress, zst], ids=["gzip", "zstd"])
def test_bombs_are_refused(
    cache: ShardCache, tmp_path: Path, compress: Callable[[bytes], bytes]
) -> None:
    """A file that decompresses to hundreds of times its size is refused, and leaves nothing."""
    (tmp_path / "bomb.tar.gz").write_bytes(compress(bytes(100 << 20)))
    with pytest.raises(ShardFormatError, match=r"decompresses to more than \d+ bytes"):
        cache.get(str(tmp_path / "bomb.tar.gz"))
    assert leftovers(cache) == []


def test_a_small_shard_of_zeros_is_no_bomb(cache: ShardCache, tmp_path: Path) -> None:
    """A small shard that compresses well is read."""
    shard = tar_of(3)[: -1024 * 5] + bytes(20 << 20)
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(shard))
    assert cache.get(str(tmp_path / "a.tar.gz")).read_bytes() == shard
