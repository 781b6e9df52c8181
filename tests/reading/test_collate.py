"""Batches of samples: stacked values are exact, and other values are unchanged."""

import math
from collections import UserDict
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch.utils.data import default_collate

import wids
from wids.reading.collate import as_tensors, collate, column_of
from wids.reading.ragged import Ragged

DTYPES = ["u1", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "?"]
NUMBERS = st.one_of(
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1),
    st.lists(st.floats(), min_size=1),
    st.lists(st.booleans(), min_size=1),
)


class Pair(NamedTuple):
    """A sample with two named fields."""

    image: Any
    label: Any


def equal(one: Any, other: Any) -> bool:
    """Compare tensors bit for bit, and other values by type and value."""
    if isinstance(other, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(
            torch.nan_to_num(one, nan=7.0), torch.nan_to_num(other, nan=7.0)
        )
    return type(one) is type(other) and bool(one == other)


@given(st.lists(hnp.arrays(st.sampled_from(DTYPES), (2, 3)), min_size=1, max_size=4))
def test_arrays_are_stacked_as_torch_stacks_them(arrays: list[np.ndarray]) -> None:
    """Arrays of one type and shape are stacked as by torch's collation."""
    assume(len({each.dtype for each in arrays}) == 1)
    assert equal(as_tensors(column_of(arrays)), default_collate(arrays))


@given(NUMBERS)
def test_numbers_are_stacked_as_torch_stacks_them(numbers: list[Any]) -> None:
    """Integers, floats and booleans keep their type, and floats their 64 bits."""
    found = as_tensors(column_of(numbers))
    assert found.tolist() == pytest.approx(numbers, abs=0, rel=0, nan_ok=True)
    assert equal(found, default_collate(numbers))


@given(st.lists(st.integers(-(2**70), 2**70), min_size=1))
def test_no_integer_is_changed(numbers: list[int]) -> None:
    """Integers beyond 64 bits stay Python integers."""
    found = column_of(numbers)
    assert list(map(int, found)) == numbers
    assert isinstance(found, list) or found.dtype.kind in "iu"


@given(st.lists(st.integers() | st.floats(allow_nan=False) | st.booleans(), min_size=1))
def test_numbers_of_several_kinds_stay_a_list(numbers: list[Any]) -> None:
    """Booleans among integers, or integers among floats, stay a list."""
    assume(len(set(map(type, numbers))) > 1)
    found = column_of(numbers)
    assert found == numbers
    assert list(map(type, found)) == list(map(type, numbers))


@pytest.mark.parametrize(
    "values",
    [
        [np.zeros(2), np.zeros(3)],
        [np.zeros(2), np.zeros(2, "f4")],
        [np.zeros(2), None],
        [np.array(["a"], object), np.array(["b"], object)],
        ["a", "b"],
        [b"a", b"b"],
        [None, None],
        [{"a": 1}, {"a": 2}],
        [torch.zeros(2), torch.zeros(3)],
        [torch.zeros(2), torch.zeros(2, dtype=torch.int32)],
    ],
    ids=lambda values: "-".join(type(each).__name__ for each in values),
)
def test_what_does_not_stack_stays_a_list(values: list[Any]) -> None:
    """Other objects stay in a list, in order."""
    found = column_of(values)
    assert isinstance(found, list)
    assert all(one is other for one, other in zip(found, values, strict=True))


def test_samples_of_every_form_are_collated() -> None:
    """Dicts give a dict, tuples a list, named tuples a named tuple, others one column."""
    rows = [(np.full(2, n), n, f"t{n}") for n in range(3)]
    dicts = [{"image": image, "label": label, "text": text} for image, label, text in rows]
    batch = collate(dicts)
    assert list(batch) == ["image", "label", "text"]
    assert (batch["image"].tolist(), batch["label"].tolist()) == (
        [[0, 0], [1, 1], [2, 2]],
        [0, 1, 2],
    )
    assert batch["text"] == ["t0", "t1", "t2"]
    columns = collate(rows)
    assert isinstance(columns, list)
    assert columns[1].tolist() == [0, 1, 2]
    named = collate([Pair(image, label) for image, label, _ in rows])
    assert type(named) is Pair
    assert (named.image.shape, named.label.tolist()) == ((3, 2), [0, 1, 2])
    assert collate([4, 5]).tolist() == [4, 5]
    assert collate([UserDict(each) for each in dicts])["label"].tolist() == [0, 1, 2]


def test_tuples_of_different_lengths_are_refused() -> None:
    """The error names the lengths and a remedy."""
    with pytest.raises(ValueError, match=r"got lengths \[1, 2\]; pass a collate_fn"):
        collate([(1, 2), (3,)])


def test_samples_with_different_fields_are_refused() -> None:
    """The error names two samples, their fields and a remedy."""
    samples = [
        {"__key__": "a", "__index__": 7, ".jpg": 1, ".txt": 2},
        {"__key__": "b", "__index__": 8, ".jpg": 1, ".cls": 2},
    ]
    with pytest.raises(ValueError, match="sample 8, key 'b'") as raised:
        collate(samples)
    message = str(raised.value)
    assert "first sample of its batch (7)" in message
    assert ".cls, .txt" in message
    assert "fields=" in message
    assert "missing={'.cls': ...}" in message


def test_missing_fields_get_a_value() -> None:
    """That of the field, None, or an error for a field without a value."""
    samples = [{"__key__": "a", ".cls": 1}, {"__key__": "b", ".txt": "b"}, {"__key__": "c"}]
    batch = collate(samples, missing={".txt": "", ".cls": -1, ".x.cls": 0})
    assert batch[".cls"].tolist() == [1, -1, -1]
    assert batch[".x.cls"].tolist() == [0, 0, 0]
    assert (batch["__key__"], batch[".txt"]) == (["a", "b", "c"], ["", "b", ""])
    batch = collate(samples, missing="none")
    assert (batch[".cls"], batch[".txt"]) == ([1, None, None], [None, "b", None])
    with pytest.raises(ValueError, match=r"sample 1 of a batch.*has \.txt; .*missing="):
        collate(samples, missing={".cls": -1})
    for wrong in ("drop", None, 3):
        with pytest.raises(ValueError, match="missing: expected 'error', 'none'"):
            collate(samples, missing=wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="starts with a dot"):
        collate(samples, missing={"txt": ""})


def test_collected_errors_have_a_place_in_each_sample() -> None:
    """If one sample has errors, the others get an empty entry for theirs."""
    batch = collate([{"a": 1}, {"a": 2, "__errors__": {".jpg": "torn"}}])
    assert batch["a"].tolist() == [1, 2]
    assert batch["__errors__"] == [{}, {".jpg": "torn"}]


@given(
    st.lists(hnp.arrays(st.sampled_from(DTYPES), st.just((3, 2))), min_size=1, max_size=4),
)
def test_batches_in_memory_of_the_caller_hold_the_same(arrays: list[np.ndarray]) -> None:
    """Arrays stacked into given memory have the same values."""
    assume(len({each.dtype for each in arrays}) == 1)
    given_out: list[np.ndarray] = []

    def allocate(nbytes: int) -> np.ndarray:
        given_out.append(np.full(nbytes, 0xAB, np.uint8))
        return given_out[-1]

    batch = collate([{"x": each} for each in arrays], tensors=False, allocate=allocate)["x"]
    assert [memory.nbytes for memory in given_out] == [batch.nbytes]
    assert np.shares_memory(batch, given_out[0])
    np.testing.assert_array_equal(batch, np.stack(arrays))


def test_tensors_share_the_memory_of_arrays_that_can_be_written() -> None:
    """Tensors share the memory of writable arrays and copy read-only ones."""
    array = np.arange(4)
    tensor = as_tensors(array)
    tensor[0] = 9
    assert array[0] == 9
    frozen = np.arange(4)
    frozen.flags.writeable = False
    copied = as_tensors({"x": frozen})["x"]
    copied[0] = 9
    assert frozen.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "array",
    [
        np.array(["a", "b"]),
        np.array([1, 2], ">i4"),
        np.array(["2026-01-01"], "M8[D]"),
        np.array([(1, 2.0)], "i4,f4"),
    ],
    ids=["text", "big endian", "dates", "records"],
)
def test_arrays_without_a_tensor_stay_arrays(array: np.ndarray) -> None:
    """Arrays of types that torch lacks stay arrays."""
    batch = as_tensors({"odd": array, "even": np.zeros(2)})
    assert batch["odd"] is array
    assert torch.is_tensor(batch["even"])


def test_every_form_of_batch_gets_tensors() -> None:
    """Arrays in dicts, lists, named tuples and ragged columns become tensors."""
    ragged = Ragged(np.arange(5), np.array([0, 2, 5]))
    batch = as_tensors(
        {
            "pair": Pair(np.zeros(2), ["a"]),
            "list": [np.zeros(2), np.ones(3)],
            "text": ["a", "b"],
            "ragged": ragged,
            "number": 3,
        }
    )
    assert type(batch["pair"]) is Pair
    assert torch.is_tensor(batch["pair"].image)
    assert [each.tolist() for each in batch["list"]] == [[0, 0], [1, 1, 1]]
    assert (batch["text"], batch["number"]) == (["a", "b"], 3)
    assert [each.tolist() for each in batch["ragged"]] == [[0, 1], [2, 3, 4]]
    assert torch.is_tensor(batch["ragged"].values)


def test_sequences_are_packed_side_by_side() -> None:
    """The parts of a packed row are the sequences, in arrays, lists, and tensors of any shape."""
    parts = [np.arange(6.0).reshape(3, 2), np.ones((0, 2)), np.full((2, 2), 7.0)]
    for make in (np.asarray, torch.from_numpy):
        row = wids.pack_sequences([make(part) for part in parts])
        assert type(row.values) is type(row.cu_seqlens) is type(make(parts[0]))
        assert (str(row.cu_seqlens.dtype).split(".")[-1], row.max_seqlen) == ("int32", 3)
        bounds = row.cu_seqlens.tolist()
        assert bounds == [0, 3, 3, 5]
        for part, start, stop in zip(parts, bounds, bounds[1:], strict=False):
            assert row.values[start:stop].tolist() == part.tolist()
        assert row.positions.tolist() == [0, 1, 2, 0, 1]
    row = wids.pack_sequences([[], [1, 2], [3]])
    assert (row.values.tolist(), row.values.dtype.kind) == ([1, 2, 3], "i")
    assert row.cu_seqlens.tolist() == [0, 0, 2, 3]


@pytest.mark.parametrize(
    ("sequences", "message"),
    [
        ([], "at least one sequence.* got none"),
        ([np.zeros(2), np.zeros(2, int)], "all of one type.*float64.*int64"),
        ([np.zeros((2, 3)), np.zeros((2, 4))], r"but for their first axis.*\(2, 3\)"),
        ([torch.zeros(2), torch.zeros(2, 1)], "all of one type"),
        ([1, 2], "single numbers"),
    ],
)
def test_sequences_that_cannot_be_packed_are_refused(sequences: list[object], message: str) -> None:
    """What is no row says what was expected and what came."""
    with pytest.raises(ValueError, match=message):
        wids.pack_sequences(sequences)


def test_packed_batches_come_from_a_loader() -> None:
    """A `wids.Loader` with packed batches and `pack_sequences` hands out full rows as tensors."""
    lengths = np.tile([3, 5, 2], 30)
    data = [np.full(length, at) for at, length in enumerate(lengths)]
    batches = wids.BatchSampler(
        wids.ChunkedSampler(data, shuffle=False), cost=lengths, max_cost=20, pack=True
    )
    loader = wids.Loader(data, batch_sampler=batches, collate_fn=wids.pack_sequences, num_workers=2)
    rows = list(loader)
    assert max(len(row.values) for row in rows) <= 20
    read = sorted(row.values[at] for row in rows for at in row.cu_seqlens[:-1])
    assert read == list(range(90))


@given(st.lists(st.floats(width=32), min_size=1))
def test_scalars_of_numpy_become_an_array_of_their_type(numbers: list[float]) -> None:
    """Scalars of numpy become an array of their type."""
    found = column_of([np.float32(each) for each in numbers])
    assert found.dtype == np.float32
    assert all(one == other or math.isnan(other) for one, other in zip(found, numbers, strict=True))


def test_tuples_inside_of_samples_are_collated_too() -> None:
    """A field that is a tuple becomes a list of columns, at any depth."""
    batch = collate([{"pair": (n, (n + 0.5, "x"))} for n in range(2)])
    assert batch["pair"][0].tolist() == [0, 1]
    assert batch["pair"][1][0].tolist() == [0.5, 1.5]
    assert batch["pair"][1][1] == ["x", "x"]
