"""`Rows`: any list of row numbers, also with gaps, in the smallest form, saved and shared."""

import copy
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from helpers.interpreters import run_python
from hypothesis import given
from hypothesis import strategies as st

from wids.base.arrayfile import read_arrays, write_arrays
from wids.errors import WidsError
from wids.views.rows import Rows

# Lists that each form is the smallest for; what decides is how dense and how broken they are.
SHAPES = {
    "range": np.arange(1000, 70_000, 7),
    "runs": np.concatenate([np.arange(k * 100_000, k * 100_000 + 900) for k in range(300)]),
    "low": np.flatnonzero(np.random.default_rng(1).random(400_000) < 0.03),
    "bits": np.flatnonzero(np.random.default_rng(2).random(300_000) < 0.6),
    "listed": np.random.default_rng(3).permutation(5000),
    "gaps": np.where(np.arange(9000) % 70 == 3, np.arange(9000)[::-1], -1),
}


@st.composite
def index_arrays(draw: st.DrawFn) -> np.ndarray:
    """Draw numbers in any order, with -1 among them, or ascending ones with runs and far ends."""
    numbers = draw(st.lists(st.integers(0, 1 << draw(st.integers(1, 20))), max_size=60))
    kind = draw(st.sampled_from(["any", "runs", "gaps"]))
    if kind == "gaps":
        numbers = [each if draw(st.integers(0, 9)) > 5 else -1 for each in numbers]
    if kind == "runs":
        lengths = draw(st.lists(st.integers(1, 200), min_size=len(numbers), max_size=len(numbers)))
        pairs = zip(numbers, lengths, strict=True)
        numbers = sorted({each for first, count in pairs for each in range(first, first + count)})
    return np.array(numbers, np.int64)


@given(index_arrays())
def test_it_holds_what_it_was_made_of(indexes: np.ndarray) -> None:
    """One by one, in batches, and as a whole the indexes are those that were given."""
    held = Rows.of(indexes)
    assert len(held) == len(indexes)
    assert [held.at(position) for position in range(len(held))] == indexes.tolist()
    assert held.array().tolist() == indexes.tolist()
    if held.ascending:
        assert (np.diff(indexes) > 0).all()
    twice = np.repeat(np.arange(len(indexes))[::-1], 2)
    assert held.take(twice).tolist() == indexes[twice].tolist()


@given(index_arrays(), st.data())
def test_what_is_chosen_of_it_is_what_numpy_chooses(
    indexes: np.ndarray, data: st.DataObject
) -> None:
    """A list of positions, or a slice, of the list gives the same as of the array."""
    held = Rows.of(indexes)
    start, stop, step = data.draw(
        st.tuples(st.integers(-70, 70), st.integers(-70, 70), st.sampled_from([-3, -1, 1, 2]))
    )
    part = range(len(indexes))[start:stop:step]
    assert held.chosen(Rows.over(part)).array().tolist() == indexes[start:stop:step].tolist()
    if len(indexes):
        places = np.array(data.draw(st.lists(st.integers(-1, len(indexes) - 1), max_size=40)), int)
        chosen = held.chosen(Rows.of(places))
        assert chosen.array().tolist() == np.where(places < 0, -1, indexes[places]).tolist()
        flags = data.draw(st.lists(st.booleans(), min_size=len(indexes), max_size=len(indexes)))
        assert held.chosen(Rows.mask(np.array(flags))).array().tolist() == indexes[flags].tolist()


@given(index_arrays(), index_arrays(), st.integers(0, 1 << 33))
def test_lists_are_moved_and_placed_one_after_the_other(
    first: np.ndarray, second: np.ndarray, delta: int
) -> None:
    """What is added to all numbers is not added to -1; parts of a concatenation keep theirs."""
    moved = Rows.of(second).shifted(delta)
    expected = [*first.tolist(), *np.where(second < 0, -1, second + delta).tolist()]
    both = Rows.concat([Rows.of(first), moved])
    assert both.array().tolist() == expected
    assert [both.at(place) for place in range(len(both))] == expected
    assert pickle.loads(pickle.dumps(both)).array().tolist() == expected


@given(index_arrays(), st.lists(st.integers(0, 1 << 20), max_size=20))
def test_numbers_below_a_bound_are_counted(indexes: np.ndarray, wanted: list[int]) -> None:
    """How many numbers of an ascending list lie below each bound."""
    held = Rows.of(indexes)
    if held.ascending:
        below = held.count_below(np.array(wanted, np.int64))
        assert below.tolist() == np.searchsorted(indexes, wanted).tolist()


def write(held: Rows, path: Path) -> None:
    """Write a list to a file of its own."""
    arrays: dict[str, np.ndarray] = {}
    about = held.add_to(arrays)
    write_arrays(path, about, arrays)


def read(path: Path) -> Rows:
    about, arrays = read_arrays(path)
    return Rows.found_in(arrays, about, str(path))


@pytest.mark.parametrize("kind", SHAPES)
def test_the_smallest_form_is_taken(kind: str, tmp_path: Path) -> None:
    """Each form is taken where it is small, and read back from a file it is the same."""
    indexes = SHAPES[kind]
    held = Rows.of(indexes)
    assert held.kind == {"gaps": "runs"}.get(kind, kind)
    assert held.nbytes <= 8 * len(indexes)
    if kind == "low":
        assert held.nbytes < 2.1 * len(indexes)
    if kind == "bits":
        assert held.nbytes < indexes[-1] / 5
    write(held, tmp_path / "saved")
    loaded = read(tmp_path / "saved")
    loaded.check(int(indexes.max()) + 1, gaps=kind == "gaps")
    assert np.array_equal(loaded.array(), indexes)
    assert (loaded.kind, loaded.ascending) == (held.kind, held.ascending)
    some = np.random.default_rng(4).integers(0, len(indexes), 200)
    assert [loaded.at(place) for place in some.tolist()] == indexes[some].tolist()
    with pytest.raises(ValueError, match="found others"):
        loaded.check(int(indexes.max()), gaps=True)


def test_indexes_beyond_32_bits_are_held() -> None:
    """Datasets may have more samples than a 32-bit number can count."""
    indexes = np.array([1 << 40, 3, 1 << 33, 3])
    assert Rows.of(indexes).array().tolist() == indexes.tolist()
    assert Rows.of(np.sort(indexes)[1:]).array().tolist() == [3, 1 << 33, 1 << 40]


@pytest.mark.parametrize("kind", SHAPES)
def test_a_damaged_file_is_refused(kind: str, tmp_path: Path) -> None:
    """A file of other arrays, a wrong count or indexes out of order never reach a sample."""
    held = Rows.of(SHAPES[kind])
    path = tmp_path / "saved"
    write(held, path)
    about, arrays = read_arrays(path)
    total = int(SHAPES[kind].max()) + 1
    for changes in ({"kind": "none"}, {"kind": None}):
        write_arrays(path, about | changes, arrays)
        with pytest.raises(ValueError, match="expected"):
            read(path)
    for changes in ({"count": about["count"] + 1}, {"ascending": kind == "listed"}):
        write_arrays(path, about | changes, arrays)
        if kind != "gaps" and changes != {"ascending": False}:
            with pytest.raises((ValueError, IndexError)):
                read(path).check(total)
    if kind == "bits":  # by which a place is found, and its numbers are not
        write_arrays(
            path, about, {n: a * 0 if n.endswith("ranks") else a for n, a in arrays.items()}
        )
        with pytest.raises(ValueError, match="found others"):
            read(path).check(total)
    first = min(arrays)
    write_arrays(path, about, {"other": arrays[first]})
    with pytest.raises(ValueError, match="expected"):
        read(path)
    write_arrays(path, about, {**arrays, first: arrays[first].astype(np.float32)})
    with pytest.raises(ValueError, match="expected"):
        read(path)


def test_runs_without_a_row_are_of_any_length() -> None:
    """Few samples may have a counterpart; but lengths whose sum has 64 bits are none."""
    few = Rows.of(np.array([-1] * 50 + [3, 4] + [-1] * 50))
    few.check(5, gaps=True)
    with pytest.raises(ValueError, match="found others"):
        few.check(5)
    quarter = 1 << 62
    ends = np.array([quarter, 2 * quarter - 1, -2 * quarter, -quarter, -1, 3], np.int64)
    arrays = {"starts": np.full(6, -1), "ends": ends}
    with pytest.raises(ValueError, match="found others"):
        Rows("runs", arrays, 3, ascending=False).check(5, gaps=True)


@pytest.mark.parametrize("numbers", [range(5, 4, -1), range(4, 4, -1), range(9, 0, -4), range(0)])
def test_ranges_are_checked_by_their_ends(numbers: range) -> None:
    """Those of one number or none ascend, whatever their step; they have as many as they say."""
    held = Rows.over(numbers)
    held.check(10)
    with pytest.raises(ValueError, match="found others"):
        Rows("range", held.arrays, len(held) + 1, held.ascending).check(10)
    if numbers:
        with pytest.raises(ValueError, match="found others"):
            Rows.over(numbers).check(max(numbers))


def test_masks_that_begin_with_none_are_checked() -> None:
    """A list of bits is looked at in parts, in which there may be no number."""
    flags = np.zeros(5 << 20, np.bool_)
    flags[2 << 20 : 3 << 20 : 2] = flags[(4 << 20) + 1 :: 3] = True
    held = Rows.mask(flags)
    assert held.kind == "bits"
    held.check(len(flags))
    with pytest.raises(ValueError, match="found others"):
        held.check(len(flags) - 3)
    arrays = {"starts": np.zeros(0, np.int64), "ends": np.zeros(0, np.int64)}
    with pytest.raises(ValueError, match="found others"):
        Rows("runs", arrays, 3, ascending=True).check(5)


def test_a_small_list_travels_in_the_pickle() -> None:
    """It needs no file, and copies share it."""
    held = Rows.of(np.array([5, 2, 9]))
    assert pickle.loads(pickle.dumps(held)).array().tolist() == [5, 2, 9]
    assert copy.copy(held) is held
    assert copy.deepcopy(held) is held


READ_A_PICKLE = """
import pickle, sys
held = pickle.load(open(sys.argv[1], "rb"))
print(len(held), int(held.array().sum()), held.nbytes)
again = pickle.loads(pickle.dumps(held))
print(again.at(7))
"""


def test_a_large_list_is_shared_by_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its pickle names a file, which other processes map, and which goes with the list."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    indexes = SHAPES["listed"]
    large = np.concatenate([indexes, indexes, indexes])
    held = Rows.of(large)
    image = pickle.dumps(held)
    assert len(image) < 1000
    assert pickle.dumps(held) == image
    (file,) = tmp_path.iterdir()
    saved = tmp_path / "held.pickle"
    saved.write_bytes(image)
    printed = run_python("-c", READ_A_PICKLE, saved).stdout.split()
    assert printed == [str(len(large)), str(large.sum()), str(held.nbytes), str(large[7])]
    assert file.exists()
    if (child := os.fork()) == 0:
        del held
        os._exit(0)
    os.waitpid(child, 0)
    assert file.exists()
    assert np.array_equal(held.array(), large)
    del held
    assert not file.exists()
    with pytest.raises(WidsError, match=r"save\(\)"):
        pickle.loads(image)
