"""`.gz` and `.zst` wrappers against gzip and zstandard, damaged ones, and bombs."""

import gzip
import zlib
from collections.abc import Callable

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from wids.codecs.formats import pack_field, unpack_field
from wids.errors import DecodeError

BOUND = 1 << 20
# What the libraries write and read; zstandard leaves out the size, as other programs do.
LIBRARIES: dict[str, tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]] = {
    ".gz": (gzip.compress, gzip.decompress),
    ".zst": (
        zstandard.ZstdCompressor(write_content_size=False).compress,
        zstandard.ZstdDecompressor().decompress,
    ),
}


@pytest.mark.parametrize("wrapper", LIBRARIES)
@given(content=st.binary(max_size=2000))
def test_libraries_and_fields_read_each_other(wrapper: str, content: bytes) -> None:
    """Each decompresses what the other compressed; equal bytes are compressed to equal bytes."""
    compress, decompress = LIBRARIES[wrapper]
    assert unpack_field(wrapper, compress(content), BOUND) == content
    assert decompress(pack_field(wrapper, content)) == content
    assert pack_field(wrapper, content) == pack_field(wrapper, content)
    assert pack_field(".gz", content)[4:8] == bytes(4)  # where gzip has the time


@pytest.mark.parametrize(("wrapper", "named"), [(".gz", "gzip"), (".zst", "zstd")])
def test_what_cannot_be_unpacked_is_refused(wrapper: str, named: str) -> None:
    """A byte more than `max_nbytes`, data of another kind and none at all are DecodeErrors."""
    packed = pack_field(wrapper, bytes(1000))
    assert unpack_field(wrapper, packed, 1000) == bytes(1000)
    with pytest.raises(DecodeError, match="max_nbytes=999"):
        unpack_field(wrapper, packed, 999)
    for data in (b"", b"plain text", zlib.compress(b"some text")):
        with pytest.raises(DecodeError, match=named):
            unpack_field(wrapper, data, BOUND)


def test_the_bound_holds_for_data_that_lies_about_its_size() -> None:
    """The bound holds for a false size in the trailer, many members, and a frame without a size."""
    lying = gzip.compress(bytes(100_000))[:-4] + bytes(4)
    with pytest.raises(DecodeError, match=r"max_nbytes=5000|length check"):
        unpack_field(".gz", lying, 5000)
    for wrapper, (compress, _) in LIBRARIES.items():
        for data in (compress(bytes(100_000)), compress(bytes(3000)) * 2):
            with pytest.raises(DecodeError, match="max_nbytes=5000"):
                unpack_field(wrapper, data, 5000)


def test_very_many_empty_members_are_read() -> None:
    """100,000 empty members, or as much padding, are read, which quadratic time would not allow."""
    assert unpack_field(".gz", gzip.compress(b"") * 100_000, BOUND) == b""
    assert unpack_field(".gz", gzip.compress(b"text") + bytes(20_000_000), BOUND) == b"text"
    assert unpack_field(".zst", zstandard.compress(b"") * 100_000, BOUND) == b""
