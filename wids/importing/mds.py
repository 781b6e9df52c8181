"""Importer of MosaicML MDS: shards of samples, described by an `index.json`.

A shard begins with the number of its samples and their offsets, as 32-bit numbers, followed by a
description that the index repeats. A sample begins with the lengths of its columns without a fixed
length, as 32-bit numbers, followed by the values, column by column. All numbers are little-endian.
This was derived from files that `mosaicml-streaming` 0.13 writes.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import struct
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from wids.base.decompression import DecompressionError, allowed_nbytes, decompress
from wids.base.omissions import Omissions
from wids.codecs.formats import encode_field
from wids.importing.layout import Blob, ColumnMapping, is_label, sniffed
from wids.importing.options import Imported, ImportOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

__all__ = ["open_mds"]

_COMPRESSIONS = {"gz": "gzip", "bz2": "bzip2", "zstd": "zstd"}
_DIGESTS = {"md5", "sha1", "sha224", "sha256", "sha384", "sha512", "blake2b", "blake2s"}
# Codes of element types and of shape integers in the header of an array of variable type.
_ARRAY_TYPES = {
    8: "uint8", 9: "int8", 16: "uint16", 17: "int16", 18: "float16", 32: "uint32",
    33: "int32", 34: "float32", 64: "uint64", 65: "int64", 66: "float64",
}  # fmt: skip
_SHAPE_TYPES = ("<u1", "<u2", "<u4", "<u8")
_FAULTS = (ValueError, KeyError, IndexError, TypeError, struct.error, OverflowError, RecursionError)


def open_mds(sources: Sequence[str | Path], options: ImportOptions | None = None) -> Imported:
    """Open a folder of MDS shards.

    Args:
        sources: The folder with its `index.json`.
        options: `fields` maps a column to an extension in place of the default. `key` names the
            column with the keys; by default samples are numbered.

    Returns:
        Samples. Images, arrays and bytes become fields with unchanged bytes (raw PIL images become
        PNG). Texts, numbers and JSON go into one `.json`. Pickles become `.pkl` with unchanged
        bytes; they are never loaded.

    Raises:
        ValueError: The index is malformed; or, while the samples are read, a shard is damaged.
    """
    folder, options = Path(sources[0]).expanduser(), options or ImportOptions()
    path = folder / "index.json"
    try:
        shards = json.loads(path.read_bytes())["shards"]
        columns = [_columns_of(shard) for shard in shards]
        total = sum(int(shard["samples"]) for shard in shards)
    except _FAULTS as error:
        raise ValueError(f"{path}: is not an index of MDS shards ({error!r:.200})") from None
    if not shards or any(each != columns[0] for each in columns):
        raise ValueError(f"{path}: expected shards that all have the same columns")
    kinds = {}
    for name, encoding, _ in columns[0]:
        base = encoding.partition(":")[0]
        if base not in _ENCODINGS:
            raise ValueError(f"{path}: column {name!r}: the encoding {encoding!r} is not known")
        kind, _ = _ENCODINGS[base]
        if kind == "integer":
            kind = "label" if is_label(name) else "plain"
        kinds[name] = kind
    omissions = Omissions(strict=options.strict)
    layout = ColumnMapping(kinds, options, str(folder), omissions)
    rows = itertools.chain.from_iterable(_rows(folder, shard, columns[0]) for shard in shards)
    samples = (layout.sample(number, row) for number, row in enumerate(rows))
    return Imported(samples, total=total, omissions=omissions)


def _columns_of(shard: Mapping[str, Any]) -> list[tuple[str, str, int | None]]:
    """Return name, encoding and fixed size of the columns of a shard."""
    if (shard["format"], shard["version"]) != ("mds", 2):
        raise ValueError(f"format {shard['format']!r} {shard['version']!r}, expected 'mds' 2")
    names, encodings = shard["column_names"], shard["column_encodings"]
    columns = list(zip(names, encodings, shard["column_sizes"], strict=True))
    for name, encoding, size in columns:
        texts = isinstance(name, str) and isinstance(encoding, str)
        if not texts or not (size is None or (type(size) is int and size >= 0)):
            raise TypeError(f"column {name!r} of {encoding!r} with size {size!r}")
    return columns


def _rows(
    folder: Path, shard: Mapping[str, Any], columns: Sequence[tuple[str, str, int | None]]
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a shard."""
    path, start, number = folder / "index.json", 0, -1
    readers = [
        partial(_array, told) if base == "ndarray" else _ENCODINGS[base][1]
        for base, _, told in (encoding.partition(":") for _, encoding, _ in columns)
    ]
    num_told = sum(not size for _, _, size in columns)  # a size of 0 is no fixed size either
    try:
        path = _inside(folder, shard["raw_data"]["basename"])
        data = memoryview(_whole(folder, path, shard))
        count = int(shard["samples"])
        found, *bounds = struct.unpack_from(f"<{count + 2}I", data)
        if found != count:
            raise ValueError(f"the index says {count} samples, the shard {found}")
        for start, end in itertools.pairwise(bounds):
            number += 1
            told = iter(struct.unpack_from(f"<{num_told}I", data, start))
            offset, row = start + 4 * num_told, {}
            for (name, _, fixed), read in zip(columns, readers, strict=True):
                after = offset + (fixed or next(told))
                if after > min(end, len(data)):
                    raise ValueError(f"column {name!r} ends behind the sample")
                row[name], offset = read(data[offset:after]), after
            if offset != end:
                raise ValueError(f"{end - offset} bytes follow the last column")
            yield row
    except _FAULTS as error:
        where = f"sample {number}, at byte {start}: " if number >= 0 else ""
        raise ValueError(f"{path}: {where}{error}; fetch shard and index again") from error


def _inside(folder: Path, name: str) -> Path:
    """Return the path of a file in the folder; raise ValueError if it is outside."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name:
        raise ValueError(f"{name!r} lies outside the folder")
    return folder / path


def _whole(folder: Path, path: Path, shard: Mapping[str, Any]) -> bytes:
    """Return the decompressed bytes of a shard, checked against the index."""
    nbytes, packed = int(shard["raw_data"]["bytes"]), shard["zip_data"]
    # streaming may leave the unpacked file beside the packed one; reading it is faster.
    if packed is None or path.exists():
        data = path.read_bytes()
    else:
        raw = _inside(folder, packed["basename"]).read_bytes()
        kind = str(shard["compression"]).partition(":")[0]
        most = min(nbytes, allowed_nbytes(len(raw)))  # an untrusted index may state any size
        try:
            if kind in _COMPRESSIONS:
                data = decompress(raw, _COMPRESSIONS[kind], most)
            else:
                raise ValueError(f"the compression {kind!r} is not supported; unpack it first")
        except (DecompressionError, OSError) as error:
            raise ValueError(f"cannot be unpacked: {error}") from error
    if len(data) != nbytes:
        raise ValueError(f"the index says {nbytes} bytes, found {len(data)}")
    for algorithm, expected in (shard["raw_data"].get("hashes") or {}).items():
        if algorithm in _DIGESTS:
            found = hashlib.new(algorithm, data, usedforsecurity=False).hexdigest()
            if found != expected:
                raise ValueError(f"{algorithm} {found}, the index says {expected}")
    return data


def _array(told: str, data: memoryview) -> Blob:
    """Encode an array as `.npy`, since no other reader knows the header that MDS gives it.

    Args:
        told: Type and shape, such as `int16:2,3`; what is left out stands before the values.
        data: The array.
    """
    kind, _, sizes = told.partition(":")
    offset = 0
    if not kind:
        kind, offset = _ARRAY_TYPES[data[0]], 1
    if sizes:
        shape = tuple(map(int, sizes.split(",")))
    else:
        # Six bits are the number of dimensions, two the width of their integers.
        ndim, width = data[offset] >> 2, _SHAPE_TYPES[data[offset] & 3]
        end = offset + 1 + ndim * np.dtype(width).itemsize
        shape, offset = tuple(np.frombuffer(data[offset + 1 : end], width).tolist()), end
    values = np.frombuffer(data[offset:], np.dtype(kind).newbyteorder("<")).reshape(shape)
    return Blob(".npy", encode_field(".npy", values))


def _raw_image(data: memoryview) -> Blob:
    """Encode raw pixels as PNG, or as an array if PNG lacks the mode."""
    width, height, num_mode = struct.unpack_from("<3I", data)
    mode = bytes(data[12 : 12 + num_mode]).decode("ascii")
    pixels = data[12 + num_mode :]
    # Pillow would allocate an image of any size before it checks the number of bytes.
    if width * height > 8 * max(len(pixels), 1):
        raise ValueError(f"{len(pixels)} bytes of pixels for {width} x {height}")
    image = Image.frombytes(mode, (width, height), bytes(pixels))
    if mode in {"1", "L", "LA", "I;16", "P", "RGB", "RGBA"}:
        return Blob(".png", encode_field(".png", image))
    return Blob(".npy", encode_field(".npy", np.asarray(image)))


def _listed(suffix: str, start: int) -> Callable[[memoryview], list[Blob]]:
    """Return a function that decodes a list: its count, then all lengths, then all values."""

    def read_list(data: memoryview) -> list[Blob]:
        (count,) = struct.unpack_from("<I", data, start)
        sizes = struct.unpack_from(f"<{min(count, len(data))}I", data, start + 4)
        ends = list(itertools.accumulate(sizes, initial=start + 4 + 4 * count))
        if ends[-1] != len(data):
            raise ValueError(f"{count} values end at byte {ends[-1]} of {len(data)}")
        return [Blob(suffix, data[first:last]) for first, last in itertools.pairwise(ends)]

    return read_list


def _number(code: str) -> Callable[[memoryview], Any]:
    return lambda data: np.frombuffer(data, code).reshape(()).item()


# Kind of the columns of an encoding, as `ColumnMapping` names it ("integer": of a class, if it is
# called so), and the function that decodes a value.
_ENCODINGS: dict[str, tuple[str, Callable[..., Any]]] = {
    "bytes": ("bytes", sniffed),
    "str": ("plain", lambda data: str(data, "utf-8")),
    "json": ("plain", lambda data: json.loads(bytes(data))),
    "str_int": ("integer", lambda data: int(str(data, "utf-8"))),
    "str_float": ("plain", lambda data: float(str(data, "utf-8"))),
    "str_decimal": ("plain", lambda data: str(data, "utf-8")),
    "int": ("integer", _number("<i8")),
    **{f"int{size}": ("integer", _number(f"<i{size // 8}")) for size in (8, 16, 32, 64)},
    **{f"uint{size}": ("integer", _number(f"<u{size // 8}")) for size in (8, 16, 32, 64)},
    **{f"float{size}": ("plain", _number(f"<f{size // 8}")) for size in (16, 32, 64)},
    "jpeg": ("image", lambda data: Blob(".jpg", data)),
    "png": ("image", lambda data: Blob(".png", data)),
    "pil": ("image", _raw_image),
    "pkl": ("pickle", lambda data: Blob(".pkl", data)),
    "ndarray": ("array", _array),
    "list[jpeg]": ("image", _listed(".jpg", 4)),  # four reserved bytes precede the count
    "list[png]": ("image", _listed(".png", 4)),
    "jpeg_array": ("image", _listed(".jpg", 0)),
    "jpegarray": ("image", _listed(".jpg", 0)),
}
