"""Wrong arguments of writers are refused where they are given, by their name."""

import io
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from helpers.refusals import Wrong, refuses, refuses_each

import wids

WRITER: Wrong = {
    "pattern": (
        [5, None],
        [
            "x.tar",
            "x-%d-%d.tar",
            "x-%d.zip",
            "x-%d.tar.gz",
            "s3://b/x-%d.tar",
            "pipe:cat > x-%d.tar",
        ],
    ),
    "maxcount": (["x", None, True], [0]),
    "maxsize": (["x", None], [0, float("nan")]),
    "post": ([5, "x"], []),
    "start_shard": (["x", 1.5], [-1]),
    "encoders": ([5, "x", {".x": 5}, {5: str}], []),
    "spec": ([5], []),
    "resume": ([2, "no"], []),
    "rank": (["x", 1.5], [1, -1]),
    "num_replicas": (["x", 1.5], [0]),
    "mtime": (["x", 1.5], [-1]),
    "sidecars": ([2, "no"], []),
    "digests": ([5], ["x", [5]]),
    "fsync": ([2, "no"], []),
    "nope": ([1], []),
}


def test_wrong_arguments_of_writers_are_named(tmp_path: Path) -> None:
    """Each argument of a writer with a wrong value is refused by its name, and nothing is made."""
    pattern = {"pattern": tmp_path / "w-%03d.tar"}
    refuses_each(partial(wids.ShardWriter, **pattern), WRITER)
    for name in ("mtime", "encoders", "fsync"):
        for value in ("x", 1.5):
            given: Any = {name: value}
            refuses(partial(wids.TarWriter, io.BytesIO(), **given), TypeError, name)
    assert list(tmp_path.iterdir()) == []


def test_values_of_numpy_and_floats_as_bounds_are_accepted(tmp_path: Path) -> None:
    """Bounds may be floats such as 3e9, as webdataset's writer has them, and values of numpy."""
    given: Any = {
        "maxcount": 1e5,
        "maxsize": 3e9,
        "start_shard": np.int64(2),
        "mtime": np.int32(5),
        "fsync": np.False_,
        "sidecars": 0,
    }
    with wids.ShardWriter(tmp_path / "w-%03d.tar", **given) as writer:
        writer.write({"__key__": "a", ".cls": np.int64(3)})
    assert [path.name for path in tmp_path.iterdir()] == ["w-002.tar"]
    assert wids.ShardListDataset(tmp_path)[0][".cls"] == 3
