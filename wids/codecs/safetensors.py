"""Decoding of `.safetensors` as views of the bytes, and encoding.

Source:
    The README of huggingface/safetensors, section "Format".
"""

import json
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from wids.base.optional import load
from wids.base.valuesizes import json_nbytes
from wids.errors import DecodeError

__all__ = ["decode_safetensors", "encode_safetensors"]

MAX_TENSORS = 100_000  # real files have some thousand; each takes 10 us, however small it is
MAX_NDIM = 64  # numpy's limit
HEADER_LIMIT = 100_000_000  # bytes; the limit of the reference implementation
MAX_VALUES_NBYTES = 1 << 30  # of the header as Python objects, bounded before it is parsed
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
# Types that numpy lacks: bytes of an element, and torch's name of the type.
TORCH_DTYPES = {
    "BF16": (2, "bfloat16"),
    "F8_E4M3": (1, "float8_e4m3fn"),
    "F8_E5M2": (1, "float8_e5m2"),
    "F8_E8M0": (1, "float8_e8m0fnu"),
}

# Types in reverse order of the reference implementation's layout: wide types come first in a file,
# so that each tensor is aligned to its elements.
TYPE_ORDER = (
    *("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "I16", "U16", "F16", "BF16"),
    *("I32", "U32", "F32", "C64", "F64", "I64", "U64"),
)


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
    header, start = _parse_header(data)
    header.pop("__metadata__", None)
    _check_count(len(header))
    try:
        # In the order of their starts, each range must begin where the previous range ended.
        spans = sorted(entry["data_offsets"] for entry in header.values())
        ends = [0, *(end for _, end in spans)]
        if ends[:-1] != [begin for begin, _ in spans] or ends[-1] != len(data) - start:
            raise DecodeError(
                f"safetensors: expected tensors that cover the {len(data) - start} bytes of data "
                f"without holes and overlaps, found the ranges {spans[:20]}"
            )
        return {name: _tensor(name, entry, data, start) for name, entry in header.items()}
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        if isinstance(error, DecodeError):
            raise
        raise DecodeError(f"safetensors: malformed header: {error!r}") from error


def _parse_header(data: bytes | memoryview) -> tuple[dict[str, Any], int]:
    """Return the parsed header and the offset of the first data byte."""
    start = 8 + int.from_bytes(data[:8], "little")
    if len(data) < 8 or start > min(len(data), HEADER_LIMIT):
        raise DecodeError(
            f"safetensors: the header ends at byte {start}, but the file has {len(data)} bytes, "
            f"and a header at most {HEADER_LIMIT}"
        )
    text = bytes(data[8:start])
    _check_count(text.count(b'"data_offsets"'))  # before seconds are spent on the parsing of it
    if json_nbytes(text, MAX_VALUES_NBYTES) > MAX_VALUES_NBYTES:
        raise DecodeError(
            f"safetensors: the values of the header could take more than {MAX_VALUES_NBYTES} bytes "
            "of memory"
        )
    try:
        header = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise DecodeError(f"safetensors: the header is not valid JSON: {error}") from error
    if not isinstance(header, dict):
        raise DecodeError(f"safetensors: expected a JSON object as header, got {type(header)}")
    return header, start


def _check_count(num_tensors: int) -> None:
    if num_tensors > MAX_TENSORS:
        raise DecodeError(
            f"safetensors: expected at most {MAX_TENSORS} tensors, found {num_tensors}; decode "
            "such fields by a function of your own (decoders=)"
        )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object as a dict; raise ValueError for a repeated name."""
    # `json` keeps the last value of a repeated name, so a tensor would be lost without an error.
    made = dict(pairs)
    if len(made) != len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the name {twice!r:.80} occurs twice")
    return made


def _tensor(name: str, entry: dict[str, Any], data: bytes | memoryview, start: int) -> Any:
    """Build one tensor over its range, which lies inside `data`."""
    begin, end = entry["data_offsets"]
    kind, shape = entry["dtype"], entry["shape"]
    # The number of dimensions is checked first: the product of a million sizes takes minutes.
    if len(shape) > MAX_NDIM or any(type(n) is not int or n < 0 for n in shape):
        raise DecodeError(f"safetensors: tensor {name!r}: impossible shape {shape[:MAX_NDIM]}")
    if math.prod(shape) * _itemsize(kind) != end - begin:
        raise DecodeError(
            f"safetensors: tensor {name!r}: shape {shape} of {kind} does not fill the range "
            f"[{begin}, {end})"
        )
    if kind in TORCH_DTYPES:
        torch = load("torch", "torch")
        owned = bytearray(data[start + begin : start + end])  # torch warns for read-only memory
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
        TypeError: `tensors` is not a mapping.
        ValueError: An array is of a type that the format does not have.

    >>> encode_safetensors({})[8:]
    b'{}      '
    """
    if not isinstance(tensors, Mapping):
        raise TypeError("expected arrays by name")
    parts = [(name, *_tensor_parts(name, tensor)) for name, tensor in tensors.items()]
    # The reference library's order, so that a file written by either has the same digest.
    parts.sort(key=lambda part: (-TYPE_ORDER.index(part[1]), part[0]))
    header: dict[str, Any] = {}
    offset = 0
    for name, kind, shape, content in parts:
        span = [offset, offset + len(content)]
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": span}
        offset += len(content)
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    # Padded with spaces, which JSON ignores, so that the data begin at a multiple of eight.
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, *(part[3] for part in parts)])


def _itemsize(kind: str) -> int:
    """Return the size of an element of a type, in bytes."""
    return TORCH_DTYPES[kind][0] if kind in TORCH_DTYPES else np.dtype(NUMPY_DTYPES[kind]).itemsize


def _tensor_parts(name: str, tensor: Any) -> tuple[str, list[int], bytes]:
    """Return name of the type, shape, and bytes in C order, little-endian."""
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
        f"safetensors: tensor {name!r}: expected one of the types "
        f"{', '.join([*NUMPY_DTYPES, *TORCH_DTYPES])}, got {array.dtype}"
    )
