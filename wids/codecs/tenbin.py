"""Decoding of tenbin (`.ten`, `.tb`) without copies, and encoding.

A file is a sequence of chunks; each array has two of them, a header and its data. All numbers are
little-endian int64:

    chunk    b"~TenBin~"  nbytes  payload  zeros up to a multiple of 64 (counted from the payload)
    header   type (8 bytes, such as b"f8")  name (8 bytes)  ndim  dim[0] ... dim[ndim - 1]

Source:
    The format is defined by webdataset's `tenbin.py` and tensorcom's. Files are exchanged with both
    in both directions, except for uint32, whose name is misspelt there.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from wids.errors import DecodeError

__all__ = ["decode_tenbin", "decode_tenbin_named", "encode_tenbin"]

MAGIC = b"~TenBin~"
ALIGNMENT = 64
MAX_NDIM = 9  # the limit of webdataset's writer
DTYPES = {
    code: np.dtype(f"<{code}")
    for code in ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")
}


def decode_tenbin(data: bytes | memoryview) -> list[np.ndarray]:
    """Read the arrays of a tenbin file as views of its bytes.

    Args:
        data: The whole file; the arrays keep it alive.

    Returns:
        The arrays in file order, read-only where `data` is.

    Raises:
        DecodeError: The data are not a tenbin file, are truncated, or a header contradicts its
            data.

    >>> decode_tenbin(encode_tenbin([np.arange(3)]))
    [array([0, 1, 2])]
    """
    return [array for _, array in decode_tenbin_named(data)]


def decode_tenbin_named(data: bytes | memoryview) -> list[tuple[str, np.ndarray]]:
    """Read the arrays of a tenbin file with their names.

    Args:
        data: The whole file; the arrays keep it alive.

    Returns:
        `(name, array)` in file order; a name has up to 8 characters, and most are empty.

    Raises:
        DecodeError: As `decode_tenbin`.

    >>> decode_tenbin_named(encode_tenbin([np.float32([1])], names=["xs"]))
    [('xs', array([1.], dtype=float32))]
    """
    chunks = list(_chunk_ranges(data))
    if len(chunks) % 2:
        raise DecodeError(
            f"tenbin: expected a data chunk after the header at byte {chunks[-1][0]}, found the "
            "end of the file"
        )
    named = []
    # Headers and data alternate.
    for header, (start, stop) in zip(chunks[::2], chunks[1::2], strict=True):
        name, dtype, shape = _parse_header(data, *header)
        if math.prod(shape) * dtype.itemsize != stop - start:
            raise DecodeError(
                f"tenbin: the header at byte {header[0]} has shape {shape} of {dtype}, but the "
                f"data chunk has {stop - start} bytes"
            )
        try:
            named.append((name, np.ndarray(shape, dtype, data, start)))
        except ValueError as error:  # one size is 0, and others are too large for numpy
            raise DecodeError(f"tenbin: impossible shape {shape} of {dtype}: {error}") from error
    return named


def _chunk_ranges(data: bytes | memoryview) -> Iterator[tuple[int, int]]:
    """Yield the byte range `[start, stop)` of each chunk's payload."""
    start, total = 0, len(data)
    # Each iteration advances by at least 16 bytes, so the loop ends whatever the lengths are.
    while start < total:
        if data[start : start + 8] != MAGIC:
            raise DecodeError(
                f"tenbin: expected {MAGIC!r} at byte {start}, got "
                f"{bytes(data[start : start + 8])!r}"
            )
        nbytes = int.from_bytes(data[start + 8 : start + 16], "little", signed=True)
        start += 16
        if not 0 <= nbytes <= total - start:
            raise DecodeError(
                f"tenbin: the chunk at byte {start} has a length of {nbytes} bytes, but "
                f"{total - start} bytes are left"
            )
        yield start, start + nbytes
        start += nbytes + -nbytes % ALIGNMENT


def _parse_header(
    data: bytes | memoryview, start: int, stop: int
) -> tuple[str, np.dtype[np.generic], tuple[int, ...]]:
    """Return name, type and shape from the header chunk at `[start, stop)`."""
    code = bytes(data[start : start + 8]).rstrip(b"\0").decode("latin-1")
    name = bytes(data[start + 8 : start + 16]).rstrip(b"\0").decode("latin-1")
    numbers = np.frombuffer(data[start + 16 : stop - (stop - start) % 8], "<i8").tolist()
    ndim, *shape = numbers or [-1]  # -1 for a header without a number of dimensions
    if code not in DTYPES or not 0 <= ndim <= MAX_NDIM or len(shape) < ndim:
        raise DecodeError(
            f"tenbin: malformed array header at byte {start}: type {code!r}, {ndim} dimensions, "
            f"sizes {shape[:MAX_NDIM]}"
        )
    shape = shape[:ndim]
    if any(size < 0 for size in shape):
        raise DecodeError(f"tenbin: negative size at byte {start}: shape {shape}")
    return name, DTYPES[code], tuple(shape)


def encode_tenbin(
    arrays: Sequence[np.ndarray] | np.ndarray, names: Sequence[str] | None = None
) -> bytes:
    """Write arrays as tenbin.

    Args:
        arrays: List of arrays of ints or floats of 1 to 8 bytes (no bool, complex or text), of up
            to 9 dimensions; or one array.
        names: A name for each array, of up to 8 ASCII characters; None for empty names.

    Raises:
        TypeError: `arrays` is neither a list nor an array.
        ValueError: An array or a name does not fit the format.

    >>> len(encode_tenbin([np.zeros((28, 28))]))
    6368
    """
    if isinstance(arrays, np.ndarray):
        arrays = [arrays]
    if not isinstance(arrays, (list, tuple)):
        raise TypeError("expected a list of arrays")
    arrays = [np.asarray(array) for array in arrays]
    names = [""] * len(arrays) if names is None else names
    if len(names) != len(arrays):
        raise ValueError(f"tenbin: expected a name for each of {len(arrays)} arrays, got {names}")
    return b"".join(
        part
        for array, name in zip(arrays, names, strict=True)
        for payload in _array_payloads(array, name)
        for part in _chunk_parts(payload)
    )


def _array_payloads(array: np.ndarray, name: str) -> tuple[bytes, bytes]:
    """Return the payloads of the header and the data chunk of one array."""
    code = array.dtype.str[1:]
    if code not in DTYPES or array.ndim > MAX_NDIM:
        raise ValueError(
            f"tenbin: expected one of the types {', '.join(DTYPES)} in up to {MAX_NDIM} "
            f"dimensions, got {array.dtype} of shape {array.shape}"
        )
    encoded_name = name.encode("ascii", "replace")
    if len(encoded_name) > 8 or not name.isascii():
        raise ValueError(f"tenbin: expected a name of up to 8 ASCII characters, got {name!r}")
    sizes = np.array([array.ndim, *array.shape], "<i8").tobytes()
    header = code.encode().ljust(8, b"\0") + encoded_name.ljust(8, b"\0") + sizes
    return header, array.astype(DTYPES[code], copy=False).tobytes()


def _chunk_parts(payload: bytes) -> tuple[bytes, bytes, bytes, bytes]:
    """Return the chunk of one payload: magic, length, payload, padding."""
    size = len(payload)
    return MAGIC, size.to_bytes(8, "little"), payload, bytes(-size % ALIGNMENT)
