"""Joins of samples with different fields: each field is from the side that has it."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.interpreters import run_python
from helpers.shards import read_tar
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import wids
from wids.views.columnnames import sql_of

NAMES = (".txt", ".b.txt")
Stored = list[dict[str, bytes]]


def shard(path: Path, samples: Stored) -> wids.ShardListDataset:
    """Write samples, whose keys are their numbers, beside a field that all have."""
    with wids.ShardWriter(str(path)) as writer:
        for number, fields in enumerate(samples):
            writer.write({"__key__": f"k{number}", f".{path.stem[0]}.cls": 1, **fields})
    return wids.ShardListDataset(str(path).replace("%d", "0"), transformations="bytes")


def merged(left: Stored, right: list[dict[str, bytes | None]]) -> list[dict[str, bytes | None]]:
    """Return what a dict of Python makes of the fields of both sides."""
    return [{**mine, **theirs} for mine, theirs in zip(left, right, strict=True)]


def check(joined: Any, expected: list[dict[str, bytes | None]], name: str) -> None:
    """Compare all ways to read a field of a join with the expected values."""
    values = [fields.get(name, b"absent") for fields in expected]
    stored = [None if value in (None, b"absent") else value for value in values]
    every = range(len(expected))
    assert [sample.get(name, b"absent") for sample in joined] == values
    assert [joined.read_raw(index).get(name) for index in every] == stored
    assert [joined.read_raw(index, [name]).get(name) for index in every] == stored
    sizes = [joined.field_sizes(index).get(name) for index in every]
    assert sizes == [None if value is None else len(value) for value in stored]
    chosen = joined.with_options(fields=[name], missing_ok=[name])
    assert [sample.get(name, b"absent") for sample in chosen] == values
    texts = joined.with_options(transformations="PIL")
    given = ["-" if value is None else value.decode() for value in stored]
    known = {"fill": "-"} if any(value is not None for value in stored) else {}
    if known:
        assert list(texts.column(name, **known)) == given
        for side in ("L", "R"):
            found = list(texts.filter(f"contains({sql_of(name)}, '{side}')").keys)
            assert found == [f"k{index}" for index in every if side in given[index]]
    whole = [index for index in every if stored[index] is not None]
    assert [bytes(each) for each in joined.gather_bytes(whole, name)] == [stored[i] for i in whole]
    for index in whole:
        assert joined.open_field(index, name).read() == stored[index]


has = st.lists(st.sets(st.sampled_from(NAMES)), min_size=4, max_size=4)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sides=st.tuples(has, has),
    replace=st.booleans(),
    form=st.sampled_from(["whole", "parts", "absent"]),
    data=st.data(),
)
@pytest.mark.filterwarnings("ignore::wids.WidsWarning")
def test_each_field_is_from_the_side_that_has_it(
    tmp_path_factory: pytest.TempPathFactory,
    sides: tuple[list[set[str]], list[set[str]]],
    replace: bool,
    form: str,
    data: st.DataObject,
) -> None:
    """Whatever fields the samples of both sides have, as by index in each way to read."""
    folder = tmp_path_factory.mktemp("joins")
    left, right = sides
    if not replace:
        right = [theirs - mine for mine, theirs in zip(left, right, strict=True)]
    mine = [{name: f"L{n}".encode() for name in sorted(names)} for n, names in enumerate(left)]
    stored = [{name: f"R{n}".encode() for name in sorted(names)} for n, names in enumerate(right)]
    theirs: list[dict[str, bytes | None]] = [dict(fields) for fields in stored]
    first, other = shard(folder / "l%d.tar", mine), shard(folder / "r%d.tar", stored)
    side: Any = other
    if form == "parts":
        cut = data.draw(st.integers(1, 3))
        chosen = data.draw(st.sampled_from(NAMES))
        side = other[:cut].with_options(fields=[".r.cls", chosen], missing_ok=NAMES) + other[cut:]
        theirs = [
            {name: value for name, value in fields.items() if n >= cut or name == chosen}
            for n, fields in enumerate(theirs)
        ]
    options: dict[str, Any] = {"replace": replace}
    if form == "absent" and replace:
        side, options = other[1:], options | {"missing": "fill"}
        theirs[0] = dict.fromkeys(stored[1])
    joined = first.join(side, **options)
    for name in NAMES:
        check(joined, merged(mine, theirs), name)


def test_what_a_join_takes_away_is_not_written_again(tmp_path: Path) -> None:
    """A value that a join replaces by None is in no shard written from it."""
    texts: Stored = [{".txt": f"L{n}".encode()} for n in range(4)]
    left = shard(tmp_path / "l%d.tar", texts)
    right = shard(tmp_path / "r%d.tar", [{".txt": f"R{n}".encode()} for n in range(4)])
    for number, joined in enumerate(
        [
            left.join(right[2:], replace=True, missing="fill"),
            left.join(
                {"key": ["k1", "k3"], "txt": [None, "R3"]},
                replace=True,
                missing="fill",
                rename={"txt": ".txt"},
            ),
        ]
    ):
        wids.reshard(joined, range(4), tmp_path / f"out{number}-%06d.tar")
        members = read_tar(tmp_path / f"out{number}-000000.tar")
        assert {name: data for name, data in members.items() if name.endswith(".txt")} == {
            f"{sample['__key__']}.txt": bytes(sample[".txt"], "utf-8")
            if isinstance(sample[".txt"], str)
            else sample[".txt"]
            for sample in joined
            if sample[".txt"] is not None
        }


def test_a_join_in_a_join_may_begin_with_nothing(tmp_path: Path) -> None:
    """The first sample of the right side may have no counterpart in a join of its own."""
    left = shard(tmp_path / "l%d.tar", [{}] * 4)
    right = shard(tmp_path / "r%d.tar", [{}] * 4)
    table = {"key": ["k2", "k3"], "cap": ["x2", "x3"]}
    joined = left.join(right.join(table, missing="fill"))
    assert list(joined.filter("contains(cap, '2')").keys) == ["k2"]
    assert list(joined.column(".cap", fill="-")) == ["-", "-", "x2", "x3"]
    assert list(joined.order_by("cap").keys) == ["k2", "k3", "k0", "k1"]
    filled = left.join(right.join(table, missing="fill")[1:], missing="fill")
    assert [sample[".cap"] for sample in filled] == [None, None, b"x2", b"x3"]


@pytest.mark.parametrize("on", ["id", ("key", "id"), (".json:id", "id")])
def test_rows_are_found_by_position_or_by_value(tmp_path: Path, on: Any) -> None:
    """`aligned=True` and `on=` contradict each other."""
    left = shard(tmp_path / "l%d.tar", [{}] * 2)
    with pytest.raises(ValueError, match=r"on=.*aligned=True.*leave one of them out"):
        left.join({"id": ["k1", "k0"], "v": [1, 2]}, on=on, aligned=True)


def test_a_field_of_few_samples_is_found_past_a_join_that_fills(tmp_path: Path) -> None:
    """What a filled join lacks for a sample is no None of a field that it does not have."""
    left = shard(tmp_path / "a-%d.tar", [{}, {}, {}]).with_options(fields=[".a.cls"])
    filled = left.join(shard(tmp_path / "b-%d.tar", [{}])[:1], missing="fill")
    joined = filled.join(shard(tmp_path / "c-%d.tar", [{}, {".txt": b"few"}, {}]))
    joined = joined.with_options(transformations="PIL", fields=None)
    assert list(joined.gather([0], ".c.cls")) == [1]  # after which it is known what most have
    assert list(joined.gather([1], ".txt")) == ["few"]
    with pytest.raises(wids.DecodeError):
        joined.gather([2], ".txt")


@pytest.mark.parametrize("fill", [0, -1, math.nan])
@pytest.mark.parametrize("sizes", [(2, 2, 2), (1, 3, 2)])
def test_arrays_are_filled_where_neither_side_has_one(
    tmp_path: Path, fill: float, sizes: tuple[int, int, int]
) -> None:
    """A fill stands in all places of an array; the other side is asked there, too."""

    def written(name: str, arrays: list[np.ndarray | None]) -> wids.ShardListDataset:
        path = str(tmp_path / f"{name}.tar")
        with wids.ShardWriter(path.replace(".tar", "-%d.tar")) as writer:
            for number, array in enumerate(arrays):
                own: dict[str, Any] = {f".{name}.cls": 1} | (
                    {} if array is None else {".npy": array}
                )
                writer.write({"__key__": f"k{number}", **own})
        return wids.ShardListDataset(path.replace(".tar", "-0.tar"))

    first, second, third = (np.full(size, 7 + size, np.float32) for size in sizes)
    left = written("left", [first, None, second, None])
    right = written("right", [third, None, None, third])
    by_name = left.rename({".old.npy": ".npy"}).join(right)
    views = [
        (left.join(right, replace=True), [third, None, second, third]),
        (left.join(right[1:], missing="keep", replace=True), [first, None, second, third]),
        (by_name.rename({".new.npy": ".npy;.old.npy"}), [third, None, second, third]),
    ]
    for view, expected in views:
        name = ".npy" if ".npy" in view[0] else ".new.npy"
        found = view.column(name, fill=fill)
        assert isinstance(found, np.ndarray) == (len(set(sizes)) == 1)
        for value, array in zip(found, expected, strict=True):
            assert np.array_equal(
                value, np.full(np.shape(value), fill) if array is None else array, equal_nan=True
            )


@pytest.mark.slow
def test_the_command_line_shows_what_a_join_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`wids show` names a field that is None, and `wids cat` says why there are no bytes."""
    monkeypatch.chdir(tmp_path)
    left = shard(tmp_path / "l%d.tar", [{}] * 2)
    right = shard(tmp_path / "r%d.tar", [{".txt": b"R"}] * 2)
    left.join(right[1:], missing="fill").save("join.json")
    shown = run_python("-m", "wids", "show", "join.json", "0")
    assert (shown.returncode, ".txt" in shown.stdout, "None" in shown.stdout) == (0, True, True)
    cat = run_python("-m", "wids", "cat", "join.json", "0", ".txt")
    assert cat.returncode == 1
    assert "is None" in cat.stderr
