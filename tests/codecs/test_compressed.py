"""`.gz` and `.zst` wrappers against gzip and zstandard, damaged ones, and bombs."""

import gzip
import zlib
from functools import partial

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from wids.codecs.formats import pack_field, unpack_field
from wids.errors import DecodeError

BOUND = 1 << 20

gunzip, gzip_bytes = partial(unpack_field, ".gz"), partial(pack_field, ".gz")
unzstd, zstd_bytes = partial(unpack_field, ".zst"), partial(pack_field, ".zst")


@given(st.binary(max_size=2000), st.integers(1, 9))
def test_gzip_data_unpacks_as_gzip_does(content, level):
    """Data compressed by Python's gzip are decompressed completely."""
    assert gunzip(gzip.compress(content, level, mtime=0), BOUND) == content
    assert gzip.decompress(gzip_bytes(content)) == content


@given(st.binary(max_size=2000), st.integers(1, 19))
def test_zstd_data_unpacks_as_zstandard_does(content, level):
    """Data of the zstandard library are decompressed, also from a frame without its size."""
    packer = zstandard.ZstdCompressor(level=level, write_content_size=False)
    assert unzstd(packer.compress(content), BOUND) == content
    assert zstandard.ZstdDecompressor().decompress(zstd_bytes(content)) == content


def test_packing_leaves_no_trace_of_time():
    """Equal bytes are compressed to equal bytes at any time."""
    assert gzip_bytes(b"text")[4:8] == bytes(4)
    assert gzip_bytes(b"text") == gzip_bytes(b"text")
    assert zstd_bytes(b"text") == zstd_bytes(b"text")


@pytest.mark.parametrize("unpack", [gunzip, unzstd])
def test_the_bound_holds_to_the_byte(unpack):
    """`max_nbytes` bytes are accepted, and one more raises an error that names the setting."""
    packed = (gzip_bytes if unpack is gunzip else zstd_bytes)(bytes(1000))
    assert unpack(packed, 1000) == bytes(1000)
    with pytest.raises(DecodeError, match="max_nbytes=999"):
        unpack(packed, 999)


def test_the_bound_holds_for_data_that_lies_about_its_size():
    """The bound holds for a false size in the trailer, many members, and a frame without a size."""
    lying = gzip.compress(bytes(100_000))[:-4] + bytes(4)
    with pytest.raises(DecodeError, match=r"max_nbytes=5000|length check"):
        gunzip(lying, 5000)
    with pytest.raises(DecodeError, match="max_nbytes=5000"):
        gunzip(gzip.compress(bytes(3000)) * 2, 5000)
    silent = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(100_000))
    with pytest.raises(DecodeError, match="max_nbytes=5000"):
        unzstd(silent, 5000)
    with pytest.raises(DecodeError, match="max_nbytes=5000"):
        unzstd(zstandard.compress(bytes(3000)) * 2, 5000)


@pytest.mark.parametrize(("unpack", "named"), [(gunzip, "gzip"), (unzstd, "zstd")])
@pytest.mark.parametrize("data", [b"", b"plain text", zlib.compress(b"some text")])
def test_what_is_not_packed_is_refused(unpack, named, data):
    """Data of another kind, and none at all, are DecodeErrors that name the compression."""
    with pytest.raises(DecodeError, match=named):
        unpack(data, BOUND)


@pytest.mark.parametrize("damage", [lambda data: data[:-4], lambda data: data + b"junk"])
def test_the_end_of_damaged_gzip_data_is_not_taken_for_a_size(damage):
    """The error for truncated or trailing data names these and not a wrong size."""
    data = damage(gzip.compress(bytes(range(256)) * 4))
    assert int.from_bytes(data[-4:], "little") > 1 << 20
    with pytest.raises(DecodeError, match=r"breaks off|header"):
        gunzip(data, 1 << 20)


def test_very_many_empty_members_are_read():
    """100,000 empty members, or as much padding, are read, which quadratic time would not allow."""
    assert gunzip(gzip.compress(b"") * 100_000, BOUND) == b""
    assert gunzip(gzip.compress(b"text") + bytes(20_000_000), BOUND) == b"text"
    assert unzstd(zstandard.compress(b"") * 100_000, BOUND) == b""
