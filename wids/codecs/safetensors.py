"""Decoding and encoding of `.safetensors` by the library of that name."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from wids.base.optional import load
from wids.errors import DecodeError

__all__ = ["decode_safetensors", "encode_safetensors"]

# Real files have some thousand. A header of megabytes could name a million without data, each of
# which takes a kilobyte and 10 us.
MAX_TENSORS = 100_000


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
