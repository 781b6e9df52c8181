"""Importer of MosaicML MDS: shards of samples, described by an `index.json`.

A shard begins with the number of its samples and their offsets, as 32-bit numbers, followed by a
description that the index repeats. A sample begins with the lengths of its columns without a fixed
length, as 32-bit numbers, followed by the values, column by column. All numbers are little-endian.
This was derived from files that `mosaicml-streaming` 0.13 writes.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import struct
from dataclasses import dataclass
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

INDEX_NAME = "index.json"
# Beyond it an index cannot be right, whatever it says.
# Names of compressions: in MDS to here.
_COMPRESSIONS = {"gz": "gzip", "bz2": "bzip2", "zstd": "zstd", "br": "brotli", "snappy": "snappy"}
_MOST_NBYTES = 2**32  # offsets inside a shard are 32-bit numbers
_DIGESTS = {"md5", "sha1", "sha224", "sha256", "sha384", "sha512", "blake2b", "blake2s"}

_SCALARS = {
    **{f"int{bits}": f"<i{bits // 8}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"<u{bits // 8}" for bits in (8, 16, 32, 64)},
    **{f"float{bits}": f"<f{bits // 8}" for bits in (16, 32, 64)},
    "int": "<i8",
}
# Codes of element types and of shape integers in the header of an array of variable type.
_ARRAY_TYPES = {
    8: "uint8", 9: "int8", 16: "uint16", 17: "int16", 18: "float16", 32: "uint32",
    33: "int32", 34: "float32", 64: "uint64", 65: "int64", 66: "float64",
}  # fmt: skip
_TIFF_MODES = {"CMYK", "F", "I", "LAB", "PA", "YCbCr"}
_ARRAY_MODES = {"HSV", "La", "RGBX", "RGBa"}  # which TIFF lacks, too
_SHAPE_TYPES = ("<u1", "<u2", "<u4", "<u8")


@dataclass(frozen=True)
class _Shard:
    """Description of a shard in the index."""

    path: Path
    nbytes: int
    nsamples: int
    packed: str | None
    packed_path: Path | None
    hashes: dict[str, str]
    columns: tuple[tuple[str, str, int | None], ...]


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
    shards = _read_index(folder)
    columns = shards[0].columns
    if any(shard.columns != columns for shard in shards):
        raise ValueError(f"{folder}: its shards have different columns; import them one by one")
    kinds = {name: _kind_of(name, encoding, str(folder)) for name, encoding, _ in columns}
    omissions = Omissions(strict=options.strict)
    numbered = options.rekeyed
    layout = ColumnMapping(
        kinds, options.fields, options.key, str(folder), omissions, numbered=numbered
    )
    total = sum(shard.nsamples for shard in shards)
    return Imported(_samples(shards, layout), total=total, omissions=omissions)


def _samples(shards: Sequence[_Shard], layout: ColumnMapping) -> Iterator[dict[str, Any]]:
    number = 0
    for shard in shards:
        for row in _rows(shard):
            yield layout.sample(number, row)
            number += 1


def _read_index(folder: Path) -> list[_Shard]:
    path = folder / INDEX_NAME
    try:
        listed = json.loads(path.read_bytes())["shards"]
        shards = [_shard_of(folder, shard) for shard in listed]
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{path}: is not an index of MDS shards ({error!r:.200})") from None
    if not shards:
        raise ValueError(f"{path}: lists no shards")
    return shards


def _shard_of(folder: Path, shard: Mapping[str, Any]) -> _Shard:
    """Return the checked description of a shard."""
    if shard["format"] != "mds" or shard["version"] != 2:
        found = f"{shard['format']!r} {shard['version']!r}"
        raise ValueError(f"format {found}, expected 'mds' 2; write it again with MDSWriter")
    raw, packed = shard["raw_data"], shard["zip_data"]
    names, encodings = shard["column_names"], shard["column_encodings"]
    columns = tuple(zip(names, encodings, shard["column_sizes"], strict=True))
    for name, encoding, size in columns:
        if not isinstance(name, str) or not isinstance(encoding, str) or not _is_size(size):
            raise TypeError(f"column {name!r} of {encoding!r} with size {size!r}")
    if not (0 <= int(raw["bytes"]) < _MOST_NBYTES and int(shard["samples"]) >= 0):
        raise ValueError(f"{raw['bytes']} bytes, {shard['samples']} samples")
    return _Shard(
        path=_inside(folder, raw["basename"]),
        nbytes=int(raw["bytes"]),
        nsamples=int(shard["samples"]),
        packed=shard["compression"],
        packed_path=None if packed is None else _inside(folder, packed["basename"]),
        hashes=dict(raw.get("hashes") or {}),
        columns=columns,
    )


def _is_size(size: Any) -> bool:
    return size is None or (type(size) is int and 0 <= size < _MOST_NBYTES)


def _inside(folder: Path, name: str) -> Path:
    """Return the path of a file in the folder; raise ValueError if it is outside."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name:
        raise ValueError(f"{name!r} lies outside the folder")
    return folder / path


def _rows(shard: _Shard) -> Iterator[dict[str, Any]]:
    """Yield the rows of a shard."""
    data = memoryview(_whole(shard))
    found = struct.unpack_from("<I", data)[0] if len(data) >= 4 else None
    if found != shard.nsamples:
        raise ValueError(
            f"{shard.path}: the index says {shard.nsamples} samples, the shard {found}; fetch both "
            "again"
        )
    head = 4 * (shard.nsamples + 2)
    ends = np.frombuffer(data[4:head], "<u4") if head <= len(data) else np.array([], "<u4")
    if len(ends) != shard.nsamples + 1 or ends[0] < head or ends[-1] > len(data):
        raise ValueError(f"{shard.path}: its samples lie outside its {len(data)} bytes")
    columns = [(name, size, _reader(encoding)) for name, encoding, size in shard.columns]
    bounds = ends.tolist()
    for number, (start, end) in enumerate(itertools.pairwise(bounds)):
        try:
            yield _row(data[start:end], columns)
        except (ValueError, KeyError, IndexError, TypeError, struct.error, OverflowError) as error:
            raise ValueError(
                f"{shard.path}: sample {number}, at byte {start}, cannot be read ({error})"
            ) from error


def _row(
    data: memoryview, columns: Sequence[tuple[str, int | None, Callable[[memoryview], Any]]]
) -> dict[str, Any]:
    num_told = sum(not size for _, size, _ in columns)  # a size of 0 is no fixed size either
    told = iter(struct.unpack_from(f"<{num_told}I", data))
    offset = 4 * num_told
    row = {}
    for name, fixed, read in columns:
        size = fixed or next(told)
        if offset + size > len(data):
            raise ValueError(f"column {name!r} of {size} bytes ends behind the sample")
        row[name] = read(data[offset : offset + size])
        offset += size
    if offset != len(data):
        raise ValueError(f"{len(data) - offset} bytes follow the last column")
    return row


def _whole(shard: _Shard) -> bytes:
    """Return the decompressed bytes of a shard, checked against the index."""
    # streaming may leave the unpacked file beside the packed one; reading it is faster.
    if shard.path.exists() or shard.packed_path is None:
        data = shard.path.read_bytes()
    else:
        packed = shard.packed_path.read_bytes()
        data = _unpacked(packed, (shard.packed or "").partition(":")[0], shard)
    # The size is compared before the digest: it is known at once, and its error is clearer.
    if len(data) != shard.nbytes:
        raise ValueError(
            f"{shard.path}: the index says {shard.nbytes} bytes, found {len(data)}; fetch it again"
        )
    for algorithm, expected in shard.hashes.items():
        if algorithm in _DIGESTS:
            found = hashlib.new(algorithm, data, usedforsecurity=False).hexdigest()
            if found != expected:
                raise ValueError(
                    f"{shard.path}: {algorithm} {found}, the index says {expected}; fetch it again"
                )
    return data


def _unpacked(packed: bytes, kind: str, shard: _Shard) -> bytes:
    """Decompress a shard, up to the size in the index."""
    compression = _COMPRESSIONS.get(kind)
    if compression is None:
        raise ValueError(
            f"{shard.packed_path}: the compression {kind!r} is not supported; unpack it to "
            f"{shard.path} first"
        )
    try:
        # An untrusted index may state any size.
        return decompress(packed, compression, min(shard.nbytes, allowed_nbytes(len(packed))))
    except DecompressionError as error:
        raise ValueError(
            f"{shard.packed_path}: cannot be unpacked ({error}); the index says {shard.nbytes} "
            f"bytes; fetch it again"
        ) from error


def _kind_of(name: str, encoding: str, where: str) -> str:
    """Return the kind of a column, as `ColumnMapping` names it."""
    base = encoding.partition(":")[0]
    if base in _SCALARS or base == "str_int":
        return "label" if is_label(name) and "float" not in base else "plain"
    if base in {"str", "json", "str_float", "str_decimal"}:
        return "plain"
    if base not in _READERS:
        raise ValueError(f"{where}: column {name!r}: the encoding {encoding!r} is not known")
    return {"bytes": "bytes", "ndarray": "array", "pkl": "pickle"}.get(base, "image")


def _reader(encoding: str) -> Callable[[memoryview], Any]:
    """Return the function that decodes a column."""
    base, _, rest = encoding.partition(":")
    if base in _SCALARS:
        return lambda data: _one(np.frombuffer(data, _SCALARS[base]))
    if base == "ndarray":
        kind, _, shape = rest.partition(":")
        fixed = tuple(map(int, shape.split(","))) if shape else None
        return lambda data: _array(data, kind, fixed)
    return _READERS[base]


def _one(numbers: Any) -> Any:
    if len(numbers) != 1:
        raise ValueError(f"expected one number, found {len(numbers)}")
    return numbers[0].item()


def _array(data: memoryview, kind: str, shape: tuple[int, ...] | None) -> Blob:
    offset = 0
    if not kind:
        kind, offset = _ARRAY_TYPES[data[0]], 1
    if shape is None:
        # Six bits are the number of dimensions, two the width of their integers.
        ndim, width = data[offset] >> 2, _SHAPE_TYPES[data[offset] & 3]
        end = offset + 1 + ndim * np.dtype(width).itemsize
        shape, offset = tuple(np.frombuffer(data[offset + 1 : end], width).tolist()), end
    values = np.frombuffer(data[offset:], np.dtype(kind).newbyteorder("<")).reshape(shape)
    # The array is encoded as `.npy`, since no other reader knows the array header of MDS.
    return Blob(".npy", encode_field(".npy", values))


def _raw_image(data: memoryview) -> Blob:
    """Encode raw pixels as PNG, as TIFF if PNG lacks the mode, or else as an array."""
    width, height, num_mode = struct.unpack_from("<3I", data)
    mode = bytes(data[12 : 12 + num_mode]).decode("ascii")
    pixels = data[12 + num_mode :]
    # Pillow would allocate an image of any size before it checks the number of bytes.
    if width * height > 8 * max(len(pixels), 1):
        raise ValueError(f"{len(pixels)} bytes of pixels for {width} x {height}")
    image = Image.frombytes(mode, (width, height), bytes(pixels))
    if mode in _TIFF_MODES:
        stream = io.BytesIO()
        image.save(stream, "TIFF")
        return Blob(".tif", stream.getvalue())
    if mode in _ARRAY_MODES:
        return Blob(".npy", encode_field(".npy", np.asarray(image)))
    return Blob(".png", encode_field(".png", image))


def _listed(read: Callable[[memoryview], Blob], start: int) -> Callable[[memoryview], list[Blob]]:
    """Return a function that decodes a list: its count, then all lengths, then all values."""

    def read_list(data: memoryview) -> list[Blob]:
        (count,) = struct.unpack_from("<I", data, start)
        ends = start + 4 + 4 * count
        if ends > len(data):
            raise ValueError(f"{count} values in {len(data)} bytes")
        offset, values = ends, []
        for size in struct.unpack_from(f"<{count}I", data, start + 4):
            values.append(read(data[offset : offset + size]))
            offset += size
        if offset != len(data):
            raise ValueError(f"{count} values end at byte {offset} of {len(data)}")
        return values

    return read_list


def _jpeg(data: memoryview) -> Blob:
    return Blob(".jpg", data)


def _png(data: memoryview) -> Blob:
    return Blob(".png", data)


_READERS: dict[str, Callable[[memoryview], Any]] = {
    "bytes": sniffed,
    "str": lambda data: str(data, "utf-8"),
    "json": lambda data: json.loads(bytes(data)),
    "str_int": lambda data: int(str(data, "utf-8")),
    "str_float": lambda data: float(str(data, "utf-8")),
    "str_decimal": lambda data: str(data, "utf-8"),
    "jpeg": _jpeg,
    "png": _png,
    "pil": _raw_image,
    "pkl": lambda data: Blob(".pkl", data),
    "ndarray": lambda data: _array(data, "", None),
    "list[jpeg]": _listed(_jpeg, 4),  # four reserved bytes precede the count
    "list[png]": _listed(_png, 4),
    "list[pil]": _listed(_raw_image, 4),
    "jpeg_array": _listed(_jpeg, 0),
    "jpegarray": _listed(_jpeg, 0),
}
