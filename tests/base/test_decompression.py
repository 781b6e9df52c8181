"""Bounded decompression of streams, against the libraries that compressed them."""

import bz2
import gzip
import subprocess
import sys
import zlib
from collections.abc import Callable

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from wids.base.decompression import (
    DecompressionError,
    TooLargeError,
    allowed_nbytes,
    decompress,
    decompressed,
)

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zlib": zlib.compress,
    "zstd": zstandard.compress,
    "bzip2": bz2.compress,
}
# Decompresses standard input piece by piece under a bound of 2 GiB; prints the kilobytes it took.
COUNT = """
import resource, sys
from wids.base.decompression import TooLargeError, decompressed
import zstandard
data = sys.stdin.buffer.read()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    for _ in decompressed([data], sys.argv[1], 2 << 30):
        pass
except TooLargeError:
    pass
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@given(
    st.sampled_from(sorted(COMPRESS)),
    st.lists(st.binary(max_size=300), min_size=1, max_size=4),
    st.integers(1, 50),
)
def test_a_stream_comes_back_however_it_is_cut(kind: str, texts: list[bytes], size: int) -> None:
    """Several members in blocks of any size give the bytes that were compressed."""
    data = b"".join(map(COMPRESS[kind], texts))
    blocks = [data[start : start + size] for start in range(0, len(data), size)]
    assert b"".join(decompressed(blocks, kind, 2000)) == b"".join(texts)
    assert decompress(data, kind, 2000) == b"".join(texts)


@pytest.mark.parametrize("kind", ["gzip", "zstd", "bzip2"])
def test_without_a_bound_the_ratio_to_the_input_counts(kind: str) -> None:
    """What grows 200 times and more beyond 64 MiB is a bomb; the same in honest size is none."""
    bomb = COMPRESS[kind](bytes(80 << 20))
    assert allowed_nbytes(len(bomb)) < 80 << 20
    with pytest.raises(TooLargeError, match=f"{kind}: decompresses to more than"):
        decompress(bomb, kind)
    assert len(decompress(COMPRESS[kind](bytes(1 << 20)), kind)) == 1 << 20


@pytest.mark.parametrize("kind", COMPRESS)
def test_thousands_of_tiny_members_come_back(kind: str) -> None:
    """Members and frames are decompressed one after another, whatever came before them."""
    members = [COMPRESS[kind](b"%d" % number * (number % 3)) for number in range(3000)]
    expected = b"".join(b"%d" % number * (number % 3) for number in range(3000))
    assert decompress(b"".join(members), kind) == expected


@pytest.mark.parametrize("kind", COMPRESS)
def test_the_bound_holds_to_the_byte(kind: str) -> None:
    """Exactly as much as allowed passes, one byte more is too large."""
    data = COMPRESS[kind](bytes(5000))
    assert decompress(data, kind, 5000) == bytes(5000)
    with pytest.raises(TooLargeError, match=f"{kind}: decompresses to more than 4999 bytes"):
        decompress(data, kind, 4999)


@pytest.mark.parametrize("kind", COMPRESS)
def test_damage_is_an_error(kind: str) -> None:
    """Nothing at all, a cut, a flipped bit and other data are errors that name the compression."""
    whole = COMPRESS[kind](b"some text" * 99)
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 0x10
    for data in (b"", whole[:-1], whole[: len(whole) // 2], b"plain text", whole + b"rubbish"):
        with pytest.raises(DecompressionError, match=kind):
            decompress(data, kind, 1 << 20)
    if kind in {"gzip", "zlib", "bzip2"}:  # the others have no checksum unless asked for one
        with pytest.raises(DecompressionError, match=kind):
            decompress(bytes(flipped), kind, 1 << 20)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=() if kind in {"gzip", "zstd"} else pytest.mark.slow)
        for kind in COMPRESS
    ],
)
def test_a_bomb_takes_little_memory_on_its_way(kind: str) -> None:
    """A quarter of a gibibyte of zeros passes in pieces, though it comes in one block."""
    bomb = COMPRESS[kind](bytes(256 << 20))
    run = subprocess.run(
        [sys.executable, "-c", COUNT, kind],
        input=bomb,
        capture_output=True,
        check=True,
        timeout=300,
    )
    assert int(run.stdout) < 200 << 10
