"""`.npy`, `.npz` and `.safetensors` against numpy and the safetensors library, and hostile ones."""

import io
import json
import struct
import zipfile

import numpy as np
import pytest
from helpers.specimens import npy
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from wids.codecs.arrays import (
    decode_npy,
    decode_npz,
    decode_safetensors,
    encode_npz,
    encode_safetensors,
)
from wids.errors import DecodeError

SAFETENSORS_TYPES = ["?", "u1", "i1", "<u2", "<i2", "<f2", "<u4", "<i4", "<f4", "<u8", "<f8"]
STRUCTURED = np.dtype([("x", "<f4"), ("name", "S5"), ("pair", "<i2", (2,))])


def npy_with_header(text, data=b"", version=1):
    """Build a `.npy` file around a header of one's own."""
    size = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + size + text + data


def safetensors_with(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


@given(
    hnp.arrays(
        hnp.scalar_dtypes() | hnp.unicode_string_dtypes() | hnp.byte_string_dtypes(min_len=1),
        hnp.array_shapes(min_dims=0, min_side=0, max_side=4),
    )
)
def test_npy_of_any_type_and_shape_reads_as_numpy_reads_it(array):
    """Values, type and shape equal those of numpy.load."""
    data = npy(array)
    expected = np.load(io.BytesIO(data))
    got = decode_npy(data)
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    "array",
    [
        np.asfortranarray(np.arange(12).reshape(3, 4)),
        np.zeros(3, STRUCTURED),
        np.arange(3, dtype=">i4"),
        np.array("2026-11-21", "M8[s]"),
        np.zeros((0, 5)),
        np.array(7.5),
        np.zeros(2, [("ü", "<f8")]),  # needs version 3, the header in UTF-8
        np.zeros(1, [(f"field{number}", "<f8") for number in range(3000)]),  # and version 2
    ],
)
@pytest.mark.filterwarnings("ignore:Stored array in format")
def test_unusual_npy_files_read_as_numpy_reads_them(array):
    """Memory order, structured types, byte order, dates, empty arrays and all header versions."""
    data = npy(array)
    got = decode_npy(data)
    assert got.dtype == array.dtype
    assert got.flags.f_contiguous == array.flags.f_contiguous
    assert got.tobytes() == array.tobytes()


def test_object_arrays_are_refused_with_the_name_of_the_opt_in():
    """An array of Python objects, which is a pickle, is refused; the error names `allow_pickle`."""
    data = npy(np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(PermissionError, match="allow_pickle=True"):
        decode_npy(data)
    nested = npy_with_header(b"{'descr': [('a', '|O')], 'fortran_order': False, 'shape': (1,)}")
    with pytest.raises(PermissionError, match="Python objects"):
        decode_npy(nested)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "expected to begin with"),
        (b"PK\3\4 and so on", "expected to begin with"),
        (b"\x93NUMPY", "header should end"),
        (b"\x93NUMPY\1\0\xff\xff{}", "header should end"),
        (b"\x93NUMPY\2\0\xff\xff\xff\xff{}", "header should end"),
        (npy_with_header(b"{}", version=9), "expected version 1, 2 or 3, got 9"),
        (npy_with_header(b"__import__('os').getpid()"), "malformed header"),
        (npy_with_header(b"["), "malformed header"),
        (npy_with_header(b"(" * 5000), "malformed header"),
        (npy_with_header(b"-" * 60000 + b"1"), "malformed header"),
        (npy_with_header(b"3"), "malformed header"),
        (npy_with_header(b"{'descr': '<f4', 'shape': (1,)}"), "malformed header"),
        (npy_with_header(b"{'descr': 'zz', 'fortran_order': 0, 'shape': ()}"), "malformed header"),
        (npy_with_header(b"{'descr': '<f4', 'fortran_order': 0, 'shape': 3}"), "tuple of sizes"),
        (npy_with_header(b"{'descr': 'u1', 'fortran_order': 0, 'shape': (-1,)}"), "tuple of sizes"),
        (npy_with_header(b"{'descr': 'u1', 'fortran_order': 0, 'shape': (True,)}", b"1"), "tuple"),
        (
            npy_with_header(b"{'descr': 'u1', 'fortran_order': 0, 'shape': (4,)}", b"123"),
            "3 follow",
        ),
        (
            npy_with_header(b"{'descr': '<f8', 'fortran_order': 0, 'shape': (%d,)}" % 10**18),
            "promises 8000000000000000000 bytes",
        ),
        (
            npy_with_header(b"{'descr': '|S0', 'fortran_order': 0, 'shape': (%d,)}" % 10**18),
            "elements of no size",
        ),
        (
            npy_with_header(b"{'descr': '<f8', 'fortran_order': 0, 'shape': (0, %d)}" % 2**62),
            "impossible shape",
        ),
        (
            npy_with_header(
                b"{'descr': 'u1', 'fortran_order': 0, 'shape': (%s)}" % (b"1," * 70), b"1"
            ),
            "impossible shape",
        ),
    ],
    ids=str,
)
def test_malformed_npy_files_are_refused(data, message):
    """A header that is wrong or unreadable raises DecodeError before memory is allocated."""
    with pytest.raises(DecodeError, match=message):
        decode_npy(data)


@given(st.integers(0, 199), st.integers(0, 255))
def test_a_damaged_npy_file_is_an_error_or_an_array_inside_the_file(position, byte):
    """One changed byte gives an error or an array within the file, never a crash."""
    data = bytearray(npy(np.arange(9.0).reshape(3, 3)))
    data[position] = byte
    try:
        array = decode_npy(bytes(data))
    except (DecodeError, PermissionError):
        return
    assert array.nbytes <= len(data)


def test_npz_reads_as_numpy_reads_it():
    """Packed and stored members come back by name, in the order of the file."""
    arrays = {"b": np.arange(5), "a": np.float32([[1, 2]]), "scalar": np.array(3)}
    for save in (np.savez, np.savez_compressed):
        stream = io.BytesIO()
        save(stream, **arrays)
        got = decode_npz(stream.getvalue(), max_nbytes=10_000)
        assert list(got) == ["b", "a", "scalar"]
        for name, array in arrays.items():
            np.testing.assert_array_equal(got[name], array)


def test_npz_that_we_write_is_read_by_numpy_and_always_the_same():
    """Numpy reads our archives, and equal arrays give equal bytes at any time."""
    arrays = {"x": np.arange(3), "y": [1.5, 2.5]}
    data = encode_npz(arrays)
    with np.load(io.BytesIO(data)) as loaded:
        assert {name: loaded[name].tolist() for name in loaded} == {"x": [0, 1, 2], "y": [1.5, 2.5]}
    assert data == encode_npz(arrays)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert {member.date_time[0] for member in archive.infolist()} == {1980}


@pytest.mark.parametrize("data", [b"", b"no zip at all", encode_npz({"a": [1]})[:-10]])
def test_what_is_no_npz_is_refused(data):
    """Data that are not an archive raise a DecodeError that names the format."""
    with pytest.raises(DecodeError, match="npz"):
        decode_npz(data, max_nbytes=1000)


@given(
    st.dictionaries(
        st.text(max_size=5).filter(lambda name: name != "__metadata__"),
        st.sampled_from(SAFETENSORS_TYPES).flatmap(
            lambda code: hnp.arrays(code, hnp.array_shapes(min_dims=0, min_side=0, max_side=3))
        ),
        max_size=4,
    )
)
def test_safetensors_reads_and_writes_as_the_library_does(tensors):
    """Arrays come back with type and shape, in the order of names; the bytes are the library's."""
    library = pytest.importorskip("safetensors.numpy")
    data = library.save(tensors)
    assert encode_safetensors(tensors) == data
    got = decode_safetensors(data)
    assert list(got) == sorted(tensors)
    for name, array in tensors.items():
        assert got[name].dtype == array.dtype
        np.testing.assert_array_equal(got[name], array)


def test_types_without_a_numpy_name_come_as_torch_tensors():
    """bfloat16 and float8 are torch tensors, equal to those of the library, in both directions."""
    torch = pytest.importorskip("torch")
    library = pytest.importorskip("safetensors.torch")
    tensors = {
        "half": torch.arange(6, dtype=torch.bfloat16).reshape(2, 3),
        "eighth": torch.ones(3).to(torch.float8_e4m3fn),
        "none": torch.zeros(0, dtype=torch.bfloat16),
        "plain": torch.arange(4),
    }
    data = library.save(tensors)
    assert encode_safetensors(tensors) == data
    got = decode_safetensors(data)
    for name in ("half", "eighth", "none"):
        assert got[name].dtype == tensors[name].dtype
        assert torch.equal(got[name].float(), tensors[name].float())
    assert got["plain"].tolist() == [0, 1, 2, 3]


def test_too_many_empty_tensors_are_refused():
    """They would take seconds for nothing."""
    entry = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    with pytest.raises(DecodeError, match="at most 100000 tensors, found 100001"):
        decode_safetensors(safetensors_with(dict.fromkeys(map(str, range(100_001)), entry)))


def test_the_metadata_of_safetensors_is_no_tensor():
    """The metadata of a file are not among its tensors."""
    library = pytest.importorskip("safetensors.numpy")
    data = library.save({"a": np.zeros(1)}, metadata={"format": "np"})
    assert list(decode_safetensors(data)) == ["a"]


def entry(begin, end, shape=(1,), kind="U8"):
    return {"dtype": kind, "shape": list(shape), "data_offsets": [begin, end]}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "header too small"),
        (struct.pack("<Q", 1 << 60), "header too large"),
        (safetensors_with(b"{"), "invalid JSON"),
        (safetensors_with({"a": {"dtype": "U8"}}), "invalid JSON"),
        (safetensors_with({"a": entry(0, 1, kind="XX")}, b"1"), "invalid JSON"),
        (safetensors_with({"a": entry(0, 1)}, b"12"), "not fully covered"),
        (safetensors_with({"a": entry(0, 1), "b": entry(0, 1)}, b"1"), "invalid offset"),
    ],
    ids=str,
)
def test_malformed_safetensors_files_are_refused(data, message):
    """Headers that overlap, leave holes or cannot be parsed raise DecodeError."""
    with pytest.raises(DecodeError, match=message):
        decode_safetensors(data)


def test_a_file_that_is_cut_at_any_byte_is_refused():
    """No tensor is made of a part of a file."""
    data = encode_safetensors({"w": np.arange(5)})
    for cut in range(len(data)):
        with pytest.raises(DecodeError, match="safetensors"):
            decode_safetensors(data[:cut])
