"""`gather` and `gather_bytes` return the same fields as reading samples one by one."""

import numpy as np
import pytest
from helpers.specimens import npy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import wids
from wids.codecs.arrays import Windows, stack_classes
from wids.errors import DecodeError

RELAXED = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
LENGTHS = [5, 0, 90, 1, 12]
TOTAL = sum(LENGTHS)


def sample(number):
    return {
        "__key__": f"k{number:03d}",
        ".cls": str(7 * number),
        ".fixed.npy": npy(np.arange(6, dtype=np.int16).reshape(2, 3) + number),
        ".ragged.npy": npy(np.arange(number % 4, dtype=np.float32)),
        ".mixed.npy": npy(np.float32(number) if number % 3 else np.int64(number)),
        ".txt": "x" * (number % 7),
        ".json": f'{{"number": {number}}}',
    }


@pytest.fixture
def shards(make_shard):
    """Shards of uneven length, one of them empty; the fields lie at any distance."""
    numbers = iter(range(TOTAL))
    return [
        make_shard(f"s{shard}.tar", [sample(next(numbers)) for _ in range(length)])
        for shard, length in enumerate(LENGTHS)
    ]


EXTENSIONS = [".cls", ".fixed.npy", ".ragged.npy", ".mixed.npy", ".txt", ".json"]


def same(one, other):
    """Compare values of one type, dtype and content."""
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and (one == other).all()
    return one == other


@RELAXED
@given(
    indexes=st.lists(st.integers(-TOTAL, TOTAL - 1), min_size=1, max_size=40),
    extension=st.sampled_from(EXTENSIONS),
    lru_size=st.sampled_from([1, 100]),
)
def test_a_gathered_field_is_that_of_the_samples(shards, indexes, extension, lru_size):
    """Any indexes, in any order and repeated, give the fields of their samples."""
    dataset = wids.ShardListDataset(shards, transformations="numpy", lru_size=lru_size)
    gathered = dataset.gather(indexes, extension)
    expected = [dataset[index][extension] for index in indexes]
    assert len(gathered) == len(expected)
    for one, other in zip(gathered, expected, strict=True):
        assert same(np.asarray(one), np.asarray(other)), (one, other)


@RELAXED
@given(
    indexes=st.lists(st.integers(-TOTAL, TOTAL - 1), max_size=40),
    extension=st.sampled_from(EXTENSIONS),
    lru_size=st.sampled_from([1, 100]),
)
def test_gathered_bytes_are_those_of_the_samples(shards, indexes, extension, lru_size):
    """The buffer has all raw fields, and the offsets separate them."""
    dataset = wids.ShardListDataset(shards, transformations="bytes", lru_size=lru_size)
    gathered = dataset.gather_bytes(indexes, extension)
    expected = [dataset[index][extension] for index in indexes]
    assert [field.tobytes() for field in gathered] == expected
    assert gathered.values.tobytes() == b"".join(expected)
    assert gathered.offsets.tolist() == np.cumsum([0, *map(len, expected)]).tolist()


@pytest.mark.parametrize(
    ("classes", "expected"),
    [
        (["1", "-2", "3"], [1, -2, 3]),
        (["1", " 2\n", "3"], [1, 2, 3]),
        (["1", "999999999999999999", "1"], [1, 10**18 - 1, 1]),
        (["9" * 19, "1", "1"], [10**19 - 1, 1, 1]),
        (["9" * 30, "1", "1"], [10**30 - 1, 1, 1]),
        (["٣", "1", "1_0"], [3, 1, 10]),
    ],
)
def test_class_numbers_of_any_spelling(make_shard, classes, expected):
    """Class numbers are parsed as by Python's int."""
    samples = [{"__key__": str(i), ".cls": text} for i, text in enumerate(classes)]
    dataset = wids.ShardListDataset([make_shard("a.tar", samples)])
    assert list(dataset.gather([0, 1, 2], ".cls")) == expected


@pytest.mark.parametrize("text", ["", "1\0", "x", "1 2"])
def test_what_is_no_class_number_is_named(make_shard, text):
    """The error names index, key, field and shard."""
    path = make_shard("a.tar", [{"__key__": str(i), ".cls": "1"} for i in range(3)])
    path = make_shard("b.tar", [{"__key__": "good", ".cls": "1"}, {"__key__": "bad", ".cls": text}])
    dataset = wids.ShardListDataset([path])
    with pytest.raises(DecodeError, match=r"'.cls' of sample 1, key 'bad', shard '.*b.tar'"):
        dataset.gather([0, 1], ".cls")


def test_a_damaged_array_among_good_ones_is_named(make_shard):
    """A truncated array among good ones is an error that names it."""
    whole = npy(np.arange(40))
    samples = [{"__key__": str(i), ".npy": whole[: len(whole) - 8 * (i == 2)]} for i in range(4)]
    dataset = wids.ShardListDataset([make_shard("a.tar", samples)])
    assert dataset.gather([0, 3], ".npy").shape == (2, 40)
    with pytest.raises(DecodeError, match="sample 2, key '2'.* promises 320 bytes"):
        dataset.gather([0, 1, 2], ".npy")


def test_arrays_of_any_kind_are_what_numpy_loads(make_shard):
    """Arrays of any memory order, byte order, size and type are those that numpy loads."""
    kinds = [
        np.asfortranarray(np.arange(6).reshape(2, 3)), np.arange(3, dtype=">i4"), np.array(5),
        np.zeros((0, 3)), np.array([(1, 2.0)], "i4,f8"), np.array(["a", "bc"]), np.bool_([1, 0]),
        np.array([1 + 2j]),
    ]  # fmt: skip
    samples = [{"__key__": str(i), ".npy": npy(kind)} for i, kind in enumerate(kinds)]
    dataset = wids.ShardListDataset([make_shard("a.tar", samples)])
    for index, kind in enumerate(kinds):
        batch = dataset.gather([index, index], ".npy")
        for row in batch:
            assert np.array_equal(row, kind)
            assert row.dtype.newbyteorder("=") == kind.dtype.newbyteorder("=")


def test_a_missing_field_is_named(make_shard):
    """The error names the sample, the missing field and the existing ones."""
    path = make_shard("a.tar", [{"__key__": "0", ".cls": "1"}, {"__key__": "1", ".txt": "1"}])
    dataset = wids.ShardListDataset([path])
    for gather in (dataset.gather, dataset.gather_bytes):
        with pytest.raises(DecodeError, match=r"sample 1, key '1'.*field '.cls', found .txt"):
            gather([0, 1], ".cls")


def test_what_is_gathered_belongs_to_the_caller(shards):
    """A batch is writable and independent of later batches."""
    dataset = wids.ShardListDataset(shards)
    batch = dataset.gather([1, 2], ".fixed.npy")
    batch[:] = 0
    assert dataset.gather([1, 2], ".fixed.npy").all(axis=(1, 2)).all()


def test_a_field_at_the_very_end_of_its_shard(make_shard):
    """Short fields at the end of a shard are read one by one."""
    path = make_shard("a.tar", [{"__key__": "0", ".cls": "1" * 17}, {"__key__": "1", ".cls": "7"}])
    shard = wids.Shard(path)
    spans = shard.index.find_spans(np.arange(2), (".cls",))[:, 0]
    fields = Windows([shard.memory[: int(spans[-1].sum())]], [0, 2], spans)
    assert stack_classes(fields) is None
    assert [bytes(view) for view in fields.views()] == [b"1" * 17, b"7"]
