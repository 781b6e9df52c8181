"""Statistics of arrays equal those of numpy for all types, shapes and values."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from wids.display.arrayview import MAX_ELEMENTS, describe_array

numbers = arrays.arrays(
    st.one_of(arrays.boolean_dtypes(), arrays.integer_dtypes(), arrays.floating_dtypes()),
    arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5),
)


@given(numbers)
def test_figures_are_those_of_numpy(array: np.ndarray) -> None:
    """Extremes, mean and deviation are those of the finite values; the others are counted."""
    figures = describe_array("", array)
    json.dumps(figures, allow_nan=False)
    assert figures["shape"] == list(array.shape)
    assert len(figures["values"]) == min(array.size, 8)
    if not array.size:
        return
    wide = array.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    assert figures["nan"] == np.isnan(wide).sum()
    assert figures["inf"] == np.isinf(wide).sum()
    assert not figures["sampled"]
    if not len(finite):
        assert figures["min"] is figures["mean"] is figures["histogram"] is None
        return
    assert float(figures["min"]) == finite.min()
    assert float(figures["max"]) == finite.max()
    if figures["mean"] is not None and np.abs(finite).max() < 1e300:
        assert figures["mean"] == pytest.approx(finite.mean())
    if figures["histogram"] is not None:
        assert sum(figures["histogram"]["counts"]) == len(finite)


@given(st.integers(-(2**63), 2**64 - 1))
def test_integers_are_exact(number: int) -> None:
    """Extremes of 64-bit integers are exact."""
    figures = describe_array("", np.array([number], np.uint64 if number >= 2**63 else np.int64))
    assert figures["min"] == figures["max"] == figures["values"][0] == number


@pytest.mark.parametrize(
    ("array", "values"),
    [
        (np.float32([0.1]), [0.1]),
        (np.array([1 + 2j]), ["(1+2j)"]),
        (np.array(["text", "x" * 500]), ["text", "x" * 99 + "…"]),
        (np.array(["2020-01-02", "NaT"], "M8[D]"), ["2020-01-02", "NaT"]),
        (np.array([(1, 2.5)], "i4,f4"), ["(1, 2.5)"]),
        (np.array(b"ab"), ["b'ab'"]),
    ],
)
def test_first_values_of_all_types_are_shown(array: np.ndarray, values: list) -> None:
    """Numbers are shown with all their digits, other values as short text."""
    assert describe_array("", array)["values"] == values


def test_values_along_one_axis_make_a_curve() -> None:
    """The curve has the least and greatest value of each part; a part without numbers is a gap."""
    values = np.sin(np.arange(1600) / 100).reshape(1, -1)
    values[0, 20:30] = np.nan
    curve = describe_array("", values)["curve"]
    assert len(curve["low"]) == len(curve["high"]) == 160
    assert (curve["low"][2], curve["high"][2]) == (None, None)
    assert curve["low"][5] == values[0, 50:60].min()
    assert curve["high"][5] == values[0, 50:60].max()
    assert "curve" not in describe_array("", np.arange(9.0))
    assert "curve" not in describe_array("", np.ones((20, 20)))
    assert "curve" not in describe_array("", np.array(["x"] * 20))


@pytest.mark.parametrize("dtype", ["u2", "u4", "u8"])
def test_any_bits_are_figures_without_a_warning(dtype: str) -> None:
    """Any bits, signalling NaNs included, give statistics without a warning."""
    nbytes = np.dtype(dtype).itemsize
    signalling = {2: 0x7C01, 4: 0x7F800001, 8: 0x7FF0000000000001}[nbytes]
    array = np.array([signalling, 0], dtype).view(f"f{nbytes}")
    assert describe_array("", array)["nan"] == 1


def test_large_arrays_are_sampled_over_their_length() -> None:
    """Statistics of a large array use a million elements spread over it, and state that."""
    array = np.arange(5 * MAX_ELEMENTS, dtype=np.int32)
    figures = describe_array("", array)
    assert figures["sampled"]
    assert (figures["min"], figures["max"]) == (0, 5 * MAX_ELEMENTS - 1)
    assert figures["mean"] == pytest.approx(array.mean(), rel=0.01)
    assert sum(figures["histogram"]["counts"]) == MAX_ELEMENTS
    whole = array[:MAX_ELEMENTS].reshape(1024, -1)
    assert not describe_array("", np.asfortranarray(whole))["sampled"]
