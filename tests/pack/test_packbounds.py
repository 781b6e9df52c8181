"""Bounds of columns in packs: filters read fewer shards, and lose no sample."""

import json
import math
import os
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.packbytes import with_arrays
from helpers.server import ShardServer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import wids
from wids.pack.packbounds import bounds_of
from wids.reading.ragged import pack
from wids.specs.sources import load_spec
from wids.tools.packing import write_pack
from wids.views.filterlanguage import OPERATORS, Comparison

NUMBERS = (
    st.integers(-3, 3)
    | st.integers(-(2**53) - 3, -(2**53) + 3)
    | st.integers(2**53 - 3, 2**53 + 3)
    | st.integers(2**63 - 2, 2**63 + 2)
    | st.sampled_from([2**64, 10**400, 0.1, -0.0, 1e308, math.inf, -math.inf, math.nan])
    | st.floats(-3, 3)
)
VALUES = NUMBERS | st.sampled_from([None, True, False, "1", "2.0", "text", "", [1], {"x": 2}])
FOLDERS = count()  # a new one for each example
ORDERINGS = ["==", "<", "<=", ">", ">=", "!="]


@given(st.lists(NUMBERS, max_size=6), st.sampled_from(ORDERINGS), NUMBERS)
def test_no_number_is_ruled_out(numbers: list[Any], operator: str, value: Any) -> None:
    """Whatever number fulfils a comparison lies within bounds that may hold it."""
    least, largest = bounds_of(pack(numbers))
    comparison = Comparison(".json", ("x",), operator, value)
    if any(OPERATORS[operator].of_value(number, value) for number in numbers):
        assert comparison.may_hold(np.array([least]), np.array([largest])).all()
    else:
        several = Comparison(".json", ("x",), "in", (value, value))
        held = any(OPERATORS["in"].of_value(number, several.value) for number in numbers)
        assert several.may_hold(np.array([least]), np.array([largest])).all() or not held


def keys_of(samples: Any) -> list[str]:
    return [sample["__key__"] for sample in samples]


def packed(
    make_shard: Callable[..., Path], shards: list[list[Any]], *bounds: str, name: str = "data"
) -> Path:
    """Write shards whose samples have these values at `x`, and their pack; return the pack.

    A sample of `...` has no field, one of `None` has null.
    """
    number, rows = 0, []
    for shard, values in enumerate(shards):
        samples = []
        for value in values:
            document = {} if value is ... else {".json": json.dumps({"x": value})}
            samples.append({"__key__": f"k{number}", ".txt": "t", **document})
            number += 1
        path = make_shard(f"{name}/{shard}.tar", samples)
        rows.append({"url": path.name, "nsamples": len(values), "filesize": path.stat().st_size})
    spec = path.parent / "all.json"
    spec.write_text(json.dumps({"shardlist": rows}))
    write_pack(load_spec(str(spec)), path.parent / "all.wpack", bounds=bounds)
    return path.parent / "all.wpack"


@pytest.mark.filterwarnings("ignore:filter:wids.WidsWarning")  # values are of other kinds
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.lists(VALUES | st.just(...), max_size=3), min_size=1, max_size=4),
    st.lists(
        st.tuples(st.sampled_from(ORDERINGS), st.sampled_from([0, 2, 2.5, 2**53, 1e300])),
        min_size=1,
        max_size=3,
    ),
)
def test_a_filter_finds_what_it_finds_without_bounds(
    make_shard: Callable[..., Path],
    shards: list[list[Any]],
    comparisons: list[tuple[str, Any]],
) -> None:
    """Missing, null, mixed and large values: the samples are those that reading all gives."""
    with_bounds = packed(make_shard, shards, ".json:x", name=f"data{next(FOLDERS)}")
    plain = with_bounds.with_suffix(".json")
    for operator, value in comparisons:
        text = f".json:x {operator} {value} or not (.json:x {operator} {value}) and .json:x <= 1"
        found: list[Any] = []
        for location in (plain, with_bounds):
            with wids.ShardListDataset(str(location), on_error="collect") as dataset:
                try:
                    found.append(keys_of(dataset.filter(text)))
                except ValueError as error:  # no sample has a value
                    found.append(str(error))
        assert found[0] == found[1]


def test_a_shard_that_is_ruled_out_is_not_read(
    make_shard: Callable[..., Path], tmp_path: Path
) -> None:
    """Of shards whose bounds exclude a filter, no column is made or looked for."""
    path = packed(make_shard, [[1, 2], [7, None], [3, 4]], ".json:x")
    columns = set(tmp_path.rglob("*.column"))
    for column in columns:
        column.unlink()
    with wids.ShardListDataset(str(path)) as dataset:
        assert keys_of(dataset.filter(".json:x > 5")) == ["k2"]
        assert not len(dataset.filter(".json:x > 7"))
        assert not len(dataset.filter(".json:x in (0, 5, 8)"))
        assert len(set(tmp_path.rglob("*.column")) & columns) == 1
        assert len(dataset.filter(".json:x >= 2")) == 4
        assert set(tmp_path.rglob("*.column")) == columns


def test_a_column_without_numbers_rules_nothing_out(make_shard: Callable[..., Path]) -> None:
    """A text that is a number fulfils a comparison with a number, though bounds have none of it."""
    path = packed(make_shard, [["7", 1], [2, 3]], ".json:x")
    with wids.ShardListDataset(str(path)) as dataset:
        assert keys_of(dataset.filter(".json:x > 5")) == ["k0"]


def test_a_name_that_no_sample_has_is_an_error(make_shard: Callable[..., Path]) -> None:
    """A column of which no shard has a value is refused as without bounds."""
    path = packed(make_shard, [[1], [2]], ".json:y")
    with (
        wids.ShardListDataset(str(path)) as dataset,
        pytest.raises(ValueError, match="no sample has a value 'y'"),
    ):
        dataset.filter(".json:y > 5")


def test_a_shard_that_was_replaced_is_refused(make_shard: Callable[..., Path]) -> None:
    """The bounds of a pack rule out no shard of this machine that was written since."""
    path = packed(make_shard, [[1], [2]], ".json:x")
    make_shard("data/0.tar", [{"__key__": "k0", ".json": '{"x": 9, "longer": 1}', ".txt": "t"}])
    with (
        wids.ShardListDataset(str(path)) as dataset,
        pytest.raises(wids.ShardChangedError, match=r"0\.tar"),
    ):
        dataset.filter(".json:x > 5")


def test_a_shard_of_the_same_headers_has_its_own_values(make_shard: Callable[..., Path]) -> None:
    """A shard of other values, newer than the pack, is read by a filter."""
    path = packed(make_shard, [[1], [2]], ".json:x")
    shard = path.with_name("0.tar")
    shard.write_bytes(shard.read_bytes().replace(b'"x": 1', b'"x": 9'))
    later = path.stat().st_mtime_ns + 10**9
    os.utime(shard, ns=(later, later))
    with (
        wids.ShardListDataset(str(path)) as dataset,
        pytest.warns(wids.WidsWarning, match="newer than its pack"),
    ):
        assert keys_of(dataset.filter(".json:x > 5")) == ["k0"]


def test_other_decoders_use_no_bounds(make_shard: Callable[..., Path]) -> None:
    """Where the user decodes the field, its values are not those of the pack."""
    path = packed(make_shard, [[1], [2]], ".json:x")
    decoders = {".json": lambda data: {"x": 10 * json.loads(bytes(data))["x"]}}
    with wids.ShardListDataset(str(path), decoders=decoders) as dataset:
        assert dataset.column_bounds(".json", "x") is None


def test_a_remote_shard_that_is_ruled_out_is_not_requested(
    make_shard: Callable[..., Path], shard_server: ShardServer, tmp_path: Path
) -> None:
    """A filter over a remote pack asks for the shards that may hold what it looks for."""
    path = packed(make_shard, [[1, 2], [7, 8], [3, 4]], ".json:x")
    for file in path.parent.iterdir():
        shard_server.put(f"set/{file.name}", file.read_bytes())
    options: Any = {"remote": "range", "cache_dir": tmp_path / "cache"}
    with wids.ShardListDataset(f"{shard_server.url}/set/all.wpack", **options) as dataset:
        assert keys_of(dataset.filter(".json:x == 8")) == ["k3"]
    assert {each.path for each in shard_server.requests} == {"/set/all.wpack", "/set/1.tar"}


@pytest.mark.parametrize("remote", ["range", "whole"])
@pytest.mark.parametrize("met", ["read", "cached"])
def test_a_remote_shard_that_is_here_is_not_ruled_out(
    make_shard: Callable[..., Path],
    shard_server: ShardServer,
    tmp_path: Path,
    remote: Any,
    met: str,
) -> None:
    """A shard that was replaced with equal headers is found by what was read of it."""
    path = packed(make_shard, [[1, 2], [3, 4], [1, 1]], ".json:x")
    for file in path.parent.iterdir():
        shard_server.put(f"set/{file.name}", file.read_bytes())
    new = packed(make_shard, [[1, 2], [9, 4], [1, 1]], name="new").with_name("1.tar")
    shard_server.put("set/1.tar", new.read_bytes())
    url = f"{shard_server.url}/set/all.wpack"
    cache = tmp_path / "cache"
    if met == "cached":
        with wids.ShardListDataset(url, remote="whole", cache_dir=cache) as before:
            assert before[2][".json"] == {"x": 9}
    with wids.ShardListDataset(url, remote=remote, cache_dir=cache) as dataset:
        if met == "read":
            assert dataset[2][".json"] == {"x": 9}
        assert keys_of(dataset.filter(".json:x > 5")) == ["k2"]
        assert not len(dataset.filter(".json:x > 9"))
    asked = {each.path for each in shard_server.requests}
    assert asked == {"/set/all.wpack", "/set/1.tar"}


@pytest.mark.parametrize(
    "bounds",
    [np.zeros((2, 3)), np.full((2, 2), math.nan), np.zeros((2, 2), "<i8"), np.zeros(4)],
    ids=["length", "nan", "type", "shape"],
)
def test_malformed_bounds_are_not_used(make_shard: Callable[..., Path], bounds: Any) -> None:
    """Bounds that do not fit the shards are left out, with a warning that names the pack."""
    path = packed(make_shard, [[1], [7]], ".json:x")
    path.write_bytes(with_arrays(path.read_bytes(), {'bounds .json["x"]': bounds}))
    with wids.ShardListDataset(str(path)) as dataset:
        with pytest.warns(wids.WidsWarning, match=r"all\.wpack: the bounds of columns"):
            found = dataset.filter(".json:x > 5")
        assert keys_of(found) == ["k1"]


@pytest.mark.parametrize("name", [".txt", "cls", ".json", ".json:x.0"])
def test_columns_without_bounds_are_refused(make_shard: Callable[..., Path], name: str) -> None:
    """Only a column of numbers can have bounds; others are named before any shard is read."""
    with pytest.raises(ValueError, match="bounds: .*column such as|bounds: expected a column of"):
        packed(make_shard, [[1]], name)
