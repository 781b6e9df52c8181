"""Decoding of `.npy`, `.npz` and `.safetensors` fields, and their encoding; `.npy` in batches, too.

Arrays of `.npy` are views of the given bytes, and read-only if these are. Nothing is allocated for
a header before its size is checked against the bytes present. Object arrays, which are pickles, are
refused.

Source:
    NumPy Enhancement Proposal 1 and the docstring of `numpy.lib.format`.
"""

from __future__ import annotations

import ast
import io
import math
import zipfile
import zlib
from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy_format

from wids.base.optional import load
from wids.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "NpyLayout",
    "Windows",
    "decode_npy",
    "decode_npz",
    "decode_safetensors",
    "encode_npy",
    "encode_npz",
    "encode_safetensors",
    "npy_layout",
    "stack_classes",
    "stack_npy",
]

# Any decimal number of this many digits fits into int64.
_MOST_DIGITS = 18
NPY_MAGIC = b"\x93NUMPY"
_STEP_NBYTES = 1 << 20  # bytes of a zip member read at once
MAX_MEMBERS = 65_535  # of a .npz, each of which takes a kilobyte and tens of microseconds
_ENTRY_MAGIC = b"PK\1\2"  # of an entry of the table of a zip archive
# Real files have some thousand. A header of megabytes could name a million without data, each of
# which takes a kilobyte and 10 us.
MAX_TENSORS = 100_000
NPY_HEADER_LIMIT = 1 << 16  # bytes; structured types with hundreds of fields need far fewer


# --- .npy ---------------------------------------------------------------------------------------


def decode_npy(data: bytes | memoryview) -> np.ndarray:
    """Read a `.npy` file as a view of its bytes.

    Args:
        data: The whole file; the array keeps it alive.

    Returns:
        The array, with the shape, type and memory order of the header; read-only if `data` is.
        Bytes after the array are ignored, as by `numpy.load`.

    Raises:
        DecodeError: The data is no `.npy` file, or its header promises more bytes than follow.
        PermissionError: The array holds Python objects.

    >>> decode_npy(encode_npy(np.arange(6).reshape(2, 3)))[1]
    array([3, 4, 5])
    """
    start, dtype, shape, order, nbytes = npy_layout(data)
    # Checked first: the header is only a claim, which must fit the actual length of the field.
    if nbytes > len(data) - start:
        raise DecodeError(
            f"npy: the header promises {nbytes} bytes of data (shape {shape}, {dtype}), "
            f"{len(data) - start} follow"
        )
    try:
        return np.ndarray(shape, dtype, data, start, order=order)
    except ValueError as error:  # too many dimensions, or sizes beyond what numpy can address
        raise DecodeError(f"npy: impossible shape {shape} of {dtype}: {error}") from error


class NpyLayout(NamedTuple):
    """Contents of the header of a `.npy` file.

    Attributes:
        start: First byte of the data.
        dtype: Type of an element.
        shape: Sizes of the array.
        order: Memory order, "C" or "F".
        nbytes: Size of the data in bytes.
    """

    start: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    order: Any
    nbytes: int


def npy_layout(data: bytes | memoryview) -> NpyLayout:
    """Read the header of a `.npy` file.

    Args:
        data: The file, or at least its header.

    Raises:
        DecodeError: The header is malformed.
        PermissionError: The header is that of an array of Python objects.

    >>> npy_layout(encode_npy(np.zeros((2, 3), np.uint8))).shape
    (2, 3)
    """
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
    return NpyLayout(offset, *_parse_npy_header(bytes(data[:offset])))


@lru_cache(maxsize=256)  # most arrays of a dataset have the same header; parsing takes 20 us
def _parse_npy_header(
    header: bytes,
) -> tuple[np.dtype[Any], tuple[int, ...], Any, int]:
    """Return type, shape, memory order ("C" or "F") and the number of bytes of data."""
    version, size_end = header[6], (10 if header[6] == 1 else 12)
    if version not in (1, 2, 3):
        raise DecodeError(f"npy: expected version 1, 2 or 3, got {version}")
    text = header[size_end:].decode("utf-8" if version == 3 else "latin-1").strip()
    try:
        # Literals only: names, calls and operators raise an error.
        fields = ast.literal_eval(text)
        shape, dtype = fields["shape"], npy_format.descr_to_dtype(fields["descr"])
        order = "F" if fields["fortran_order"] else "C"
    except (ValueError, TypeError, SyntaxError, LookupError, RecursionError, MemoryError) as error:
        raise DecodeError(f"npy: malformed header {text[:200]!r}: {error}") from error
    # `type`, not `isinstance`, since True is an int, but no size.
    if not isinstance(shape, tuple) or any(type(n) is not int or n < 0 for n in shape):
        raise DecodeError(f"npy: expected a tuple of sizes as shape, got {shape!r}")
    if dtype.hasobject:
        raise PermissionError(
            f"npy: an array of Python objects ({dtype}) is a pickle, which can run code; "
            f"pass allow_pickle=True if you trust whoever made the shard"
        )
    # Such an array takes no bytes in the file, so the file's size does not bound its length.
    if dtype.itemsize == 0 and math.prod(shape) > 0:
        raise DecodeError(f"npy: {math.prod(shape)} elements of no size ({dtype})")
    return dtype, shape, order, math.prod(shape) * dtype.itemsize


def encode_npy(array: Any) -> bytes:
    """Return an array as `.npy`.

    Args:
        array: An array, or a value that `numpy.asarray` accepts.

    Raises:
        TypeError: The value is text or a mapping, which numpy would make an array of one object.
        ValueError: The array holds Python objects.

    >>> len(encode_npy([1, 2]))
    144
    """
    if isinstance(array, (str, Mapping)):
        raise TypeError("expected an array")
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asanyarray(array), allow_pickle=False)
    return stream.getvalue()


# --- .npz ---------------------------------------------------------------------------------------


def decode_npz(data: bytes | memoryview, *, max_nbytes: int) -> dict[str, np.ndarray]:
    """Read all arrays of a `.npz` file.

    Args:
        data: The whole file.
        max_nbytes: Maximum total size of the unpacked members, in bytes.

    Returns:
        Arrays by name, in the order of the file; each owns its memory.

    Raises:
        DecodeError: The data is no zip archive of `.npy` members, has too many of them, or unpacks
            to more than `max_nbytes`.

    >>> decode_npz(encode_npz({"a": [1.5]}), max_nbytes=1000)
    {'a': array([1.5])}
    """
    content = bytes(data)
    # Before zipfile makes an object of a kilobyte for each entry of 50 bytes.
    if content.count(_ENTRY_MAGIC) > MAX_MEMBERS:
        raise DecodeError(
            f"npz: expected {MAX_MEMBERS} members at most, found over {MAX_MEMBERS} entries"
        )
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
            nbytes = sum(member.file_size for member in members)
            if nbytes > max_nbytes:
                raise DecodeError(
                    f"npz: the members unpack to {nbytes} bytes, max_nbytes is {max_nbytes}"
                )
            unpacked = {
                member.filename.removesuffix(".npy"): _read_member(archive, member)
                for member in members
            }
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError, EOFError, zlib.error) as error:
        raise DecodeError(f"npz: {error}") from error
    return {name: decode_npy(memoryview(content)) for name, content in unpacked.items()}


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytearray:
    """Return a member of a zip archive, cut off at the size that it states.

    Returns:
        Its content; a bytearray, so that the array over it is writable.

    Raises:
        DecodeError: Its compression is not deflate, the only one that numpy writes.
    """
    # zipfile decompresses bzip2 and LZMA without a bound, and cuts to the stated size afterwards.
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise DecodeError(
            f"npz: member {member.filename!r}: expected it stored or deflated, found compression "
            f"method {member.compress_type}"
        )
    content = bytearray()
    with archive.open(member) as stream:
        # In steps: a single read would decompress everything before it cuts to the size.
        while block := stream.read(_STEP_NBYTES):
            content += block
    return content


def encode_npz(arrays: Mapping[str, Any]) -> bytes:
    """Return named arrays as an uncompressed `.npz`; the same arrays give the same bytes.

    Args:
        arrays: Arrays by name.

    Raises:
        TypeError: The value is no mapping.

    >>> encode_npz({"a": [1]}) == encode_npz({"a": [1]})
    True
    """
    if not isinstance(arrays, Mapping):
        raise TypeError("expected arrays by name")
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, array in arrays.items():
            # ZipInfo's default date is fixed (1980); numpy.savez would write the current time.
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), encode_npy(array))
    return stream.getvalue()


# --- batches ------------------------------------------------------------------------------------
#
# Each function decodes fields gathered from mapped shards, with the same result as decoding them
# one by one and stacking the values. It returns None if the caller must do that instead: the fields
# differ in form, or one is damaged and its own decoder raises the better error.


class Windows:
    """Batch of fields in a few mapped memories, from which equal ranges are copied at once.

    Args:
        memories: Mapped bytes.
        bounds: Fields `[bounds[i], bounds[i + 1])` lie in memory `i`.
        spans: Offset and size of each field, in bytes, within its memory; shape `(num_fields, 2)`.
    """

    def __init__(
        self, memories: list[memoryview], bounds: list[int], spans: npt.NDArray[np.int64]
    ) -> None:
        self._memories = memories
        self._bounds = list(pairwise(bounds))
        self._offsets = spans[:, 0]
        self.sizes = spans[:, 1]

    def views(self) -> Iterator[memoryview]:
        """Yield each field, without a copy."""
        offsets, sizes = self._offsets.tolist(), self.sizes.tolist()
        for memory, (start, stop) in zip(self._memories, self._bounds, strict=True):
            for offset, size in zip(offsets[start:stop], sizes[start:stop], strict=True):
                yield memory[offset : offset + size]

    def copy(self, start: int, nbytes: int) -> npt.NDArray[np.void] | None:
        """Copy bytes `[start, start + nbytes)` of every field.

        Returns:
            Void items of that size, shape `(num_fields,)`; None if a memory is too short.
        """
        if not nbytes:
            return None
        copied = np.empty(len(self.sizes), f"V{nbytes}")
        offsets = self._offsets + start
        for memory, (first, last) in zip(self._memories, self._bounds, strict=True):
            count = len(memory) - nbytes + 1
            if count < 1:
                return None
            # Overlapping windows of that size at every byte; indexing copies only the chosen ones.
            windows = np.ndarray((count,), copied.dtype, memory, strides=(1,))
            try:
                copied[first:last] = windows[offsets[first:last]]
            except IndexError:
                return None
        return copied


def stack_npy(fields: Windows) -> npt.NDArray[Any] | None:
    """Decode `.npy` files of one type and shape.

    Args:
        fields: At least one field.

    Returns:
        The stacked arrays, shape `(num_fields, ...)`. None unless all files have the same header
        and are long enough for the array that it promises.
    """
    try:
        first = next(fields.views())
        start, dtype, shape, order, nbytes = npy_layout(first)
    except (DecodeError, PermissionError):
        return None
    # Other types are rare, so they are decoded one by one.
    plain = order == "C" and dtype.isnative and dtype.kind in "biufc"
    if not plain or start + nbytes > int(fields.sizes.min()):
        return None
    headers, data = fields.copy(0, start), fields.copy(start, nbytes)
    if headers is None or data is None:
        return None
    if (headers.view(np.uint8).reshape(-1, start) != np.frombuffer(first[:start], np.uint8)).any():
        return None
    return data.view(np.uint8).view(dtype).reshape(-1, *shape)


def stack_classes(fields: Windows) -> npt.NDArray[np.int64] | None:
    """Decode class numbers that consist of decimal digits only.

    Args:
        fields: At least one field.

    Returns:
        The numbers, shape `(num_fields,)`. None if a field is empty, holds a sign or white space,
        or has more digits than are sure to fit.
    """
    sizes = fields.sizes
    most = int(sizes.max())
    copied = fields.copy(0, most) if most <= _MOST_DIGITS and int(sizes.min()) > 0 else None
    if copied is None:
        return None
    # digits: (num_fields, most); the columns after the end of a shorter field are not its own.
    digits = copied.view(np.uint8).reshape(-1, most) - np.uint8(ord("0"))
    inside = np.arange(most) < sizes[:, None]
    if (digits[inside] > 9).any():
        return None
    numbers = np.zeros(len(digits), np.int64)
    for column in range(most):
        numbers = np.where(inside[:, column], 10 * numbers + digits[:, column], numbers)
    return numbers


# --- .safetensors --------------------------------------------------------------------------------


def decode_safetensors(data: bytes | memoryview) -> dict[str, Any]:
    """Read all tensors of a `.safetensors` file.

    Args:
        data: The whole file.

    Returns:
        Tensor by name, sorted by name: writable numpy arrays. Types that numpy lacks (bfloat16,
        float8) come as torch tensors.

    Raises:
        DecodeError: The file is malformed, or has more than 100,000 tensors.
        ModuleNotFoundError: The library is not installed, or a type needs torch, which is not.

    >>> decode_safetensors(encode_safetensors({"weight": np.ones(2, "f4")}))
    {'weight': array([1., 1.], dtype=float32)}
    """
    library = load("safetensors.numpy", "safetensors")
    content = bytes(data)
    header = content[: 8 + int.from_bytes(content[:8], "little")]
    if (count := header.count(b'"data_offsets"')) > MAX_TENSORS:
        raise DecodeError(
            f"safetensors: expected at most {MAX_TENSORS} tensors, found {count}; decode such "
            "fields by a function of your own (decoders=)"
        )
    try:
        tensors = library.load(content)
    except load("safetensors", "safetensors").SafetensorError as error:
        raise DecodeError(f"safetensors: {error}") from error
    except KeyError:  # a type that numpy lacks
        tensors = load("safetensors.torch", "torch").load(content)
    # The library gives them in another order each time.
    return {name: _as_array(tensors[name]) for name in sorted(tensors)}


def _as_array(tensor: Any) -> Any:
    """Return a tensor as a numpy array, or unchanged if torch alone can read it."""
    try:
        return np.asarray(tensor)
    except (TypeError, RuntimeError):  # of a type that numpy lacks, on a GPU, or with a gradient
        return tensor


def encode_safetensors(tensors: Mapping[str, Any]) -> bytes:
    """Write named arrays as `.safetensors`.

    Args:
        tensors: Array or torch tensor by name.

    Raises:
        TypeError: `tensors` is not a mapping.
        ValueError: An array is of a type that the format does not have.
        ModuleNotFoundError: The library is not installed.

    >>> encode_safetensors({})[8:]
    b'{}      '
    """
    if not isinstance(tensors, Mapping):
        raise TypeError("expected arrays by name")
    arrays = {name: _as_array(tensor) for name, tensor in tensors.items()}
    kind = "numpy" if all(isinstance(each, np.ndarray) for each in arrays.values()) else "torch"
    if kind == "numpy":
        made = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    else:
        as_tensor = load("torch", "torch").as_tensor
        made = {name: as_tensor(each).cpu().contiguous() for name, each in arrays.items()}
    try:
        return bytes(load(f"safetensors.{kind}", "safetensors").save(made))
    except (load("safetensors", "safetensors").SafetensorError, RuntimeError) as error:
        types = {name: str(each.dtype) for name, each in made.items()}
        raise ValueError(f"safetensors: {error}; the arrays have the types {types}") from error
