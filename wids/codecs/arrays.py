"""Arrays in members: `.npy`, `.npz` and `.safetensors`, parsed here so that nothing is copied.

The arrays of `.npy` and `.safetensors` are views of the given bytes, read-only where those are.
Nothing is allocated from a header before it is known to fit the bytes that are there, and object
arrays (pickles in disguise) are refused.

Source:
    NumPy Enhancement Proposal 1 and the docstring of `numpy.lib.format` for `.npy`; the README of
    huggingface/safetensors, section "Format", for `.safetensors`.
"""

import ast
import io
import json
import math
import zipfile
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.lib import format as npy_format

from wids.errors import DecodeError
from wids.extras import load

__all__ = [
    "decode_npy",
    "decode_npz",
    "decode_safetensors",
    "encode_npy",
    "encode_npz",
    "encode_safetensors",
]

NPY_MAGIC = b"\x93NUMPY"
NPY_HEADER_LIMIT = 1 << 16  # bytes; structured types with hundreds of fields stay far below

SAFETENSORS_HEADER_LIMIT = 100_000_000  # bytes; the limit of the reference implementation
NUMPY_DTYPES = {
    "BOOL": "?",
    "U8": "u1",
    "I8": "i1",
    "U16": "<u2",
    "I16": "<i2",
    "F16": "<f2",
    "U32": "<u4",
    "I32": "<i4",
    "F32": "<f4",
    "U64": "<u8",
    "I64": "<i8",
    "F64": "<f8",
    "C64": "<c8",
}
# What numpy has no type for: the bytes of an element, and torch's name of the type.
TORCH_DTYPES = {
    "BF16": (2, "bfloat16"),
    "F8_E4M3": (1, "float8_e4m3fn"),
    "F8_E5M2": (1, "float8_e5m2"),
    "F8_E8M0": (1, "float8_e8m0fnu"),
}

# The types from last to first as the reference implementation lays tensors out: wide ones come
# first in a file, so that each tensor is aligned to its elements.
TYPE_ORDER = (
    *("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "I16", "U16", "F16", "BF16"),
    *("I32", "U32", "F32", "C64", "F64", "I64", "U64"),
)


# --- .npy ---------------------------------------------------------------------------------------


def decode_npy(data: bytes | memoryview) -> np.ndarray:
    """Read a `.npy` file as a view of its bytes.

    Args:
        data: The whole file; the array keeps it alive.

    Returns:
        The array, of the shape, type and memory order that the header names; read-only where
        `data` is. Bytes after the array are ignored, as `numpy.load` ignores them.

    Raises:
        DecodeError: It is no `.npy` file, or its header promises more bytes than there are.
        PermissionError: It holds Python objects.

    >>> decode_npy(encode_npy(np.arange(6).reshape(2, 3)))[1]
    array([3, 4, 5])
    """
    start = _npy_data_offset(data)
    dtype, shape, order, nbytes = _parse_npy_header(bytes(data[:start]))
    if nbytes > len(data) - start:
        raise DecodeError(
            f"npy: the header promises {nbytes} bytes of data (shape {shape}, {dtype}), "
            f"{len(data) - start} follow"
        )
    try:
        return np.ndarray(shape, dtype, data, start, order=order)
    except ValueError as error:  # too many dimensions, or sizes beyond what numpy can address
        raise DecodeError(f"npy: impossible shape {shape} of {dtype}: {error}") from error


def _npy_data_offset(data: bytes | memoryview) -> int:
    """Find where the header ends, without reading it."""
    if data[:6] != NPY_MAGIC:
        raise DecodeError(f"npy: expected to begin with {NPY_MAGIC!r}, got {bytes(data[:6])!r}")
    # Version 1 counts the header in two bytes, versions 2 and 3 in four.
    size_end = 10 if data[6:7] == b"\1" else 12
    offset = size_end + int.from_bytes(data[8:size_end], "little")
    if offset > min(len(data), NPY_HEADER_LIMIT):
        raise DecodeError(
            f"npy: the header should end at byte {offset}; the file has {len(data)} bytes, and "
            f"{NPY_HEADER_LIMIT} are allowed for a header"
        )
    return offset


@lru_cache(maxsize=256)  # members of one data set mostly share one header; parsing costs 20 us
def _parse_npy_header(
    header: bytes,
) -> tuple[np.dtype[Any], tuple[int, ...], Any, int]:
    """Return type, shape, memory order ("C" or "F") and the bytes of data that they make."""
    version, size_end = header[6], (10 if header[6] == 1 else 12)
    if version not in (1, 2, 3):
        raise DecodeError(f"npy: expected version 1, 2 or 3, got {version}")
    text = header[size_end:].decode("utf-8" if version == 3 else "latin-1").strip()
    try:
        # A literal at most: names, calls and operators do not pass.
        fields = ast.literal_eval(text)
        shape, dtype = fields["shape"], npy_format.descr_to_dtype(fields["descr"])
        order = "F" if fields["fortran_order"] else "C"
    except (ValueError, TypeError, SyntaxError, LookupError, RecursionError, MemoryError) as error:
        raise DecodeError(f"npy: malformed header {text[:200]!r}: {error}") from error
    _check_array(dtype, shape)
    return dtype, shape, order, math.prod(shape) * dtype.itemsize


def _check_array(dtype: np.dtype[Any], shape: Any) -> None:
    """Refuse what a header may say but no honest file needs."""
    # `type`, not `isinstance`: True is an int, and no size.
    if not isinstance(shape, tuple) or any(type(n) is not int or n < 0 for n in shape):
        raise DecodeError(f"npy: expected a tuple of sizes as shape, got {shape!r}")
    if dtype.hasobject:
        raise PermissionError(
            f"npy: an array of Python objects ({dtype}) is a pickle, which can run code; "
            f"pass allow_pickle=True if you trust whoever made the shard"
        )
    # Such an array takes no bytes in the file, so their number bounds nothing.
    if dtype.itemsize == 0 and math.prod(shape) > 0:
        raise DecodeError(f"npy: {math.prod(shape)} elements of no size ({dtype})")


def encode_npy(array: Any) -> bytes:
    """Write an array as `.npy`, object arrays refused.

    Args:
        array: An array, or what `numpy.asarray` turns into one.

    Raises:
        ValueError: The array holds Python objects.

    >>> len(encode_npy([1, 2]))
    144
    """
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asanyarray(array), allow_pickle=False)
    return stream.getvalue()


# --- .npz ---------------------------------------------------------------------------------------


def decode_npz(data: bytes | memoryview, *, max_nbytes: int) -> dict[str, np.ndarray]:
    """Read all arrays of a `.npz` file.

    Args:
        data: The whole file.
        max_nbytes: Most bytes that its members may unpack to, together.

    Returns:
        Array by name, in the order of the file, each with memory of its own.

    Raises:
        DecodeError: It is no zip archive of `.npy` members, or unpacks to more than `max_nbytes`.

    >>> decode_npz(encode_npz({"a": [1.5]}), max_nbytes=1000)
    {'a': array([1.5])}
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            nbytes = sum(member.file_size for member in members)
            if nbytes > max_nbytes:
                raise DecodeError(
                    f"npz: the members unpack to {nbytes} bytes, max_nbytes is {max_nbytes}"
                )
            # zipfile reads no more than file_size of a member, so the sum above is a bound.
            unpacked = {
                member.filename.removesuffix(".npy"): bytearray(archive.read(member))
                for member in members
            }
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError, EOFError) as error:
        raise DecodeError(f"npz: {error}") from error
    return {name: decode_npy(memoryview(content)) for name, content in unpacked.items()}


def encode_npz(arrays: Mapping[str, Any]) -> bytes:
    """Write named arrays as an uncompressed `.npz`; the same arrays give the same bytes.

    Args:
        arrays: Array by name.

    >>> encode_npz({"a": [1]}) == encode_npz({"a": [1]})
    True
    """
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, array in arrays.items():
            # ZipInfo's own date is 1980; numpy.savez would write the time of day.
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), encode_npy(array))
    return stream.getvalue()


# --- .safetensors -------------------------------------------------------------------------------


def decode_safetensors(data: bytes | memoryview) -> dict[str, Any]:
    """Read all tensors of a `.safetensors` file as views of its bytes.

    Args:
        data: The whole file; the tensors keep it alive.

    Returns:
        Tensor by name, in the order of the header: numpy arrays, read-only where `data` is. Types
        that numpy lacks (bfloat16, float8) come as torch tensors, which own their memory.

    Raises:
        DecodeError: The header is malformed, or does not account for each byte exactly once.
        ModuleNotFoundError: A type needs torch, which is not installed.

    >>> decode_safetensors(encode_safetensors({"weight": np.ones(2, "f4")}))
    {'weight': array([1., 1.], dtype=float32)}
    """
    header, start = _safetensors_header(data)
    header.pop("__metadata__", None)
    try:
        # Sorted by where they begin, each range must begin where the one before it ended.
        spans = sorted(entry["data_offsets"] for entry in header.values())
        ends = [0, *(end for _, end in spans)]
        if ends[:-1] != [begin for begin, _ in spans] or ends[-1] != len(data) - start:
            raise DecodeError(
                f"safetensors: the tensors must cover the {len(data) - start} bytes of data "
                f"without hole or overlap, got the ranges {spans[:20]}"
            )
        return {name: _tensor(name, entry, data, start) for name, entry in header.items()}
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        if isinstance(error, DecodeError):
            raise
        raise DecodeError(f"safetensors: malformed header: {error!r}") from error


def _safetensors_header(data: bytes | memoryview) -> tuple[dict[str, Any], int]:
    """Return the parsed header and the offset of the first data byte."""
    start = 8 + int.from_bytes(data[:8], "little")
    if len(data) < 8 or start > min(len(data), SAFETENSORS_HEADER_LIMIT):
        raise DecodeError(
            f"safetensors: the header should end at byte {start}; the file has {len(data)} bytes, "
            f"and {SAFETENSORS_HEADER_LIMIT} are allowed for a header"
        )
    try:
        header = json.loads(bytes(data[8:start]))
    except (ValueError, RecursionError) as error:
        raise DecodeError(f"safetensors: the header is no JSON: {error}") from error
    if not isinstance(header, dict):
        raise DecodeError(f"safetensors: expected a JSON object as header, got {type(header)}")
    return header, start


def _tensor(name: str, entry: dict[str, Any], data: bytes | memoryview, start: int) -> Any:
    """Build one tensor over its range, which lies inside `data`."""
    begin, end = entry["data_offsets"]
    kind, shape = entry["dtype"], entry["shape"]
    if any(type(n) is not int or n < 0 for n in shape):
        raise DecodeError(f"safetensors: tensor {name!r}: impossible shape {shape}")
    if math.prod(shape) * _itemsize(kind) != end - begin:
        raise DecodeError(
            f"safetensors: tensor {name!r}: shape {shape} of {kind} does not fill the range "
            f"[{begin}, {end})"
        )
    if kind in TORCH_DTYPES:
        torch = load("torch", "torch")
        owned = bytearray(data[start + begin : start + end])  # torch warns of read-only memory
        torch_dtype = getattr(torch, TORCH_DTYPES[kind][1])
        if not owned:
            return torch.empty(shape, dtype=torch_dtype)
        return torch.frombuffer(owned, dtype=torch_dtype).reshape(shape)
    return np.ndarray(shape, NUMPY_DTYPES[kind], data, start + begin)


def encode_safetensors(tensors: Mapping[str, Any]) -> bytes:
    """Write named arrays as `.safetensors`, byte for byte as the reference library does.

    Args:
        tensors: Array or torch tensor by name.

    Raises:
        ValueError: An array is of a type that the format cannot name.

    >>> encode_safetensors({})[8:]
    b'{}      '
    """
    parts = [(name, *_tensor_parts(name, tensor)) for name, tensor in tensors.items()]
    parts.sort(key=lambda part: (-TYPE_ORDER.index(part[1]), part[0]))
    header, offset = {}, 0
    for name, kind, shape, content in parts:
        span = [offset, offset + len(content)]
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": span}
        offset += len(content)
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, *(part[3] for part in parts)])


def _itemsize(kind: str) -> int:
    """Return the bytes of an element of a type that the format names."""
    return TORCH_DTYPES[kind][0] if kind in TORCH_DTYPES else np.dtype(NUMPY_DTYPES[kind]).itemsize


def _tensor_parts(name: str, tensor: Any) -> tuple[str, list[int], bytes]:
    """Return the type's name, the shape, and the bytes in C order, little-endian."""
    torch_name = str(getattr(tensor, "dtype", "")).removeprefix("torch.")
    for kind, (_, known) in TORCH_DTYPES.items():
        if torch_name == known:
            raw = tensor.detach().cpu().reshape(-1).view(load("torch", "torch").uint8)
            return kind, list(tensor.shape), raw.numpy().tobytes()
    array = np.asarray(tensor)
    little = array.dtype.newbyteorder("<")
    for kind, code in NUMPY_DTYPES.items():
        if little == np.dtype(code):
            return kind, list(array.shape), array.astype(little, copy=False).tobytes()
    raise ValueError(
        f"safetensors: tensor {name!r} is of type {array.dtype}; the format holds "
        f"{', '.join([*NUMPY_DTYPES, *TORCH_DTYPES])}"
    )
