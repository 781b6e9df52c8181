"""Summary statistics of arrays: type, shape, distribution of the values."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from wids.codecs.formats import DecoderSettings, builtin_decoders
from wids.codecs.tenbin import decode_tenbin_named
from wids.display.pixels import is_picture
from wids.display.safejson import safe_number, safe_text
from wids.errors import DecodeError

__all__ = [
    "describe_array",
    "named_arrays",
    "picture_in",
    "summarise_arrays",
]

MAX_ARRAYS = 50  # number of arrays that are described; further ones are only counted
MAX_ELEMENTS = 1 << 20  # number of elements of one array from which its statistics are computed
MAX_BLOCKS = 64  # number of runs from which the elements of a larger array are taken
MAX_NBYTES = 128 << 20  # largest unpacked size of a `.npz`
NUM_BINS = 32
NUM_STEPS = 160  # most points of the curve of an array with one axis
MIN_CURVE = 16  # least number of values shown as a curve; fewer are shown as numbers
FIRST_VALUES = 8

# Made once, as a map reads tens of thousands of small arrays.
_DECODERS = builtin_decoders(
    DecoderSettings("raw", allow_pickle=False, media=False, copy=False, max_nbytes=MAX_NBYTES)
)
NamedArray = tuple[str, np.ndarray]


def named_arrays(suffix: str, data: bytes | memoryview) -> list[NamedArray]:
    """Read the arrays of a field, without a copy where the format allows it.

    Args:
        suffix: That of a format of the kind "array", such as ".npy".
        data: The whole field.

    Returns:
        `(name, array)` in the order of the file; the name is empty where the format has none.

    Raises:
        DecodeError: The bytes are not what the suffix promises.
        PermissionError: It holds Python objects.
    """
    if suffix in {".ten", ".tb"}:  # the decoder drops the names in the file
        return decode_tenbin_named(data)
    found = _DECODERS[suffix](data)
    named = found if isinstance(found, Mapping) else {"": found}
    return [(name, _as_numpy(array)) for name, array in named.items()]


def _as_numpy(array: Any) -> np.ndarray:
    """Convert torch tensors of types that numpy lacks to float32 arrays."""
    if isinstance(array, np.ndarray):
        return array
    floats: np.ndarray = array.float().numpy()
    return floats


def picture_in(arrays: Iterable[NamedArray]) -> np.ndarray:
    """Return the first array that can be shown as a picture.

    Raises:
        DecodeError: There is no such array.
    """
    for _, array in arrays:
        if is_picture(array.shape, array.dtype):
            return array
    raise DecodeError("none of the arrays makes a picture")


def summarise_arrays(suffix: str, data: bytes | memoryview) -> dict[str, Any]:
    """Describe the arrays of a field.

    Args:
        suffix: That of a format of the kind "array", such as ".npy".
        data: The whole field.

    Returns:
        `arrays`, the results of `describe_array` for the first 50 of them; `num_arrays`, their
        number; `picture`, whether one of them can be shown as a picture.

    Raises:
        DecodeError: The bytes are not what the suffix promises.
        PermissionError: It holds Python objects.
    """
    found = named_arrays(suffix, data)
    return {
        "arrays": [describe_array(name, array) for name, array in found[:MAX_ARRAYS]],
        "num_arrays": len(found),
        "picture": any(is_picture(array.shape, array.dtype) for _, array in found),
    }


def describe_array(name: str, array: np.ndarray) -> dict[str, Any]:
    """Describe one array by statistics that JSON can represent.

    Args:
        name: Name of the array; may be empty.
        array: Of any shape and type, objects excepted.

    Returns:
        `name`, `dtype`, `shape`, `nbytes`, `values` (the first eight), `picture`; for numbers also
        `min`, `max`, `mean` and `std` of the finite ones (None where there are none), `nan` and
        `inf` (their numbers), `histogram` (`low`, `high` and the `counts` of 32 equal bins, or
        None), and `sampled`: whether these figures come from a million elements spread over the
        array instead of all. Arrays of numbers with one axis also have `curve`: the least and the
        greatest finite value (`low`, `high`; None if there is none) in each of at most 160 equal
        parts.

    >>> describe_array("", np.float32([0, 1, np.nan]))["mean"]
    0.5
    """
    described = {
        "name": safe_text(name, 200),
        "dtype": safe_text(str(array.dtype), 200),
        "shape": list(array.shape),
        "nbytes": array.nbytes,
        "values": [_element(value) for value in array.flat[:FIRST_VALUES]],
        "picture": is_picture(array.shape, array.dtype),
    }
    if array.dtype.kind in "biufc" and array.size:
        sample = _sample(array)
        # Such values are counted below: signalling NaNs, complex numbers with an infinite modulus.
        with np.errstate(all="ignore"):
            values = np.abs(sample) if sample.dtype.kind == "c" else sample
            values = values.astype(np.float64)
        finite = values[np.isfinite(values)]
        figures: dict[str, Any] = dict.fromkeys(("min", "max", "mean", "std", "histogram"))
        if len(finite):
            with np.errstate(all="ignore"):  # squares of huge floats are infinite, and become None
                mean, std = finite.mean(), finite.std()
            low, high = finite.min(), finite.max()
            if sample.dtype.kind in "biu":  # exact; float64 would round large integers
                low, high = int(sample.min()), int(sample.max())
            figures = {"min": _element(low), "max": _element(high)}
            figures |= {"mean": _finite(mean), "std": _finite(std), "histogram": _histogram(finite)}
        if max(array.shape, default=0) == array.size >= MIN_CURVE:
            starts = np.linspace(
                0, len(values), min(NUM_STEPS, len(values)), endpoint=False
            ).astype(int)
            finite = np.isfinite(values)
            low = np.minimum.reduceat(np.where(finite, values, np.inf), starts)
            high = np.maximum.reduceat(np.where(finite, values, -np.inf), starts)
            figures["curve"] = {
                "low": [*map(_finite, low.tolist())],
                "high": [*map(_finite, high.tolist())],
            }
        described |= {
            **figures,
            "nan": int(np.isnan(values).sum()),
            "inf": int(np.isinf(values).sum()),
            "sampled": sample.size < array.size,
        }
    return described


def _element(value: Any) -> Any:
    """Return one element for JSON: a number, a boolean or short text."""
    if isinstance(value, np.floating):
        return safe_number(float(str(value)))  # 0.1; item() of a float32 gives 0.10000000149
    if isinstance(value, np.datetime64 | np.timedelta64) and np.isnat(value):
        return "NaT"
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, bool | np.bool_):
        return bool(plain)
    if isinstance(plain, int | float):
        return safe_number(plain)
    return safe_text(str(plain), 100)


def _sample(array: np.ndarray) -> np.ndarray:
    """Return all elements as one axis; for a large array, a million in runs spread over it."""
    # Order "A" keeps arrays in Fortran order as they are, so that a mapped array is not copied.
    flat = array.reshape(-1, order="A")
    if flat.size <= MAX_ELEMENTS:
        return flat
    length = MAX_ELEMENTS // MAX_BLOCKS
    starts = np.linspace(0, flat.size - length, MAX_BLOCKS).astype(np.int64)
    return np.concatenate([flat[start : start + length] for start in starts.tolist()])


def _finite(number: float) -> float | None:
    return float(number) if math.isfinite(number) else None


def _histogram(finite: np.ndarray) -> dict[str, Any] | None:
    """Count finite values in equal bins; None if float64 cannot represent the edges."""
    low, high = float(finite.min()), float(finite.max())
    if low == high:
        return {"low": low, "high": high, "counts": [len(finite)]}
    try:
        with np.errstate(all="ignore"):
            counts, _ = np.histogram(finite, NUM_BINS, (low, high))
    except ValueError:  # the range is too wide for float64, or too narrow to be divided
        return None
    return {"low": low, "high": high, "counts": counts.tolist()}
