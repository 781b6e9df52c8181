"""Tenbin: by hand, against real files of webdataset's, and against everything malformed."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from wids.codecs.tenbin import decode_tenbin, decode_tenbin_named, encode_tenbin
from wids.errors import DecodeError

TYPES = ["<f2", "<f4", "<f8", "i1", "<i2", "<i4", "<i8", "u1", "<u2", "<u4", "<u8"]


def chunk(payload, nbytes=None, magic=b"~TenBin~"):
    """Build a chunk by hand, as the format's description says."""
    size = len(payload) if nbytes is None else nbytes
    return magic + struct.pack("<q", size) + payload + bytes(-len(payload) % 64)


def header(code, name, ndim, *dims):
    return chunk(struct.pack(f"<8s8sq{len(dims)}q", code, name, ndim, *dims))


def test_a_file_built_by_hand_reads_as_its_numbers():
    """Type, name, shape and values of a file made by struct are read."""
    data = header(b"i4", b"xs", 2, 2, 3) + chunk(struct.pack("<6i", 1, 2, 3, 4, 5, 6))
    [(name, array)] = decode_tenbin_named(data)
    assert name == "xs"
    assert array.dtype == np.int32
    assert array.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_writing_gives_the_bytes_built_by_hand():
    """The written bytes are those of the documented layout."""
    expected = header(b"u1", b"", 1, 3) + chunk(b"abc")
    assert encode_tenbin([np.frombuffer(b"abc", np.uint8)]) == expected


def test_webdataset_itself_agrees():
    """webdataset, if installed, and we read each other's files."""
    theirs = pytest.importorskip("webdataset.tenbin")
    arrays = [np.arange(6, dtype="f4").reshape(2, 3), np.arange(5, dtype="u1")]
    for ours, other in zip(decode_tenbin(theirs.encode_buffer(arrays)), arrays, strict=True):
        np.testing.assert_array_equal(ours, other)
    for back, other in zip(theirs.decode_buffer(encode_tenbin(arrays)), arrays, strict=True):
        np.testing.assert_array_equal(back, other)


@given(
    st.lists(
        st.sampled_from(TYPES).flatmap(
            lambda code: hnp.arrays(code, hnp.array_shapes(min_dims=0, max_dims=5, max_side=4))
        ),
        max_size=4,
    )
)
def test_any_arrays_survive(arrays):
    """Arrays of every type and shape are written and read unchanged."""
    back = decode_tenbin(encode_tenbin(arrays))
    assert len(back) == len(arrays)
    for got, expected in zip(back, arrays, strict=True):
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"~TenBin", "expected b'~TenBin~' at byte 0"),
        (b"something else", "expected b'~TenBin~'"),
        (header(b"f4", b"", 1, 2), "expected a data chunk after the header"),
        (header(b"f4", b"", 1, 2) + chunk(b"1234"), r"has shape \(2,\) of float32"),
        (header(b"f4", b"", 1, -1) + chunk(b""), "negative size"),
        (header(b"O8", b"", 1, 1) + chunk(bytes(8)), "malformed array header"),
        (header(b"f4", b"", 10, *[1] * 10) + chunk(bytes(4)), "malformed array header"),
        (header(b"f4", b"", 3, 1) + chunk(bytes(4)), "malformed array header"),
        (header(b"f4", b"", -1) + chunk(bytes(4)), "malformed array header"),
        (chunk(b"f4") + chunk(bytes(4)), "malformed array header"),
        (chunk(b"x" * 8, nbytes=-1), "a length of -1 bytes"),
        (chunk(b"x" * 8, nbytes=1 << 60), "are left"),
        (header(b"f8", b"", 2, 1 << 40, 1 << 40) + chunk(b""), "has shape"),
        (header(b"f8", b"", 2, 0, 1 << 62) + chunk(b""), "impossible shape"),
    ],
)
def test_malformed_files_are_refused_with_the_place(data, message):
    """A malformed file raises a DecodeError with expectation and finding."""
    with pytest.raises(DecodeError, match=message):
        decode_tenbin(data)


@given(st.binary(max_size=60), st.integers(0, 300), st.integers(0, 255))
def test_damage_is_an_error_or_other_numbers_but_nothing_else(tail, position, byte):
    """A changed or cut file gives an error or other values, never a read outside the file."""
    data = bytearray(encode_tenbin([np.arange(4), np.float32([1, 2])], ["a", "b"]) + tail)
    data[position % len(data)] = byte
    try:
        arrays = decode_tenbin(bytes(data))
    except DecodeError:
        return
    assert sum(array.nbytes for array in arrays) <= len(data)


@pytest.mark.parametrize(
    ("arrays", "names", "message"),
    [
        ([np.array([True])], None, "got bool"),
        ([np.array(["text"])], None, "got <U4"),
        ([np.zeros([1] * 10)], None, "9 dimensions"),
        ([np.zeros(1)], ["nine long"], "up to 8 ASCII"),
        ([np.zeros(1)], ["ü"], "up to 8 ASCII"),
        ([np.zeros(1)], [], "a name for each of 1"),
    ],
)
def test_what_the_format_cannot_hold_is_refused(arrays, names, message):
    """Arrays and names that the format cannot hold are refused, with the reason."""
    with pytest.raises(ValueError, match=message):
        encode_tenbin(arrays, names)
