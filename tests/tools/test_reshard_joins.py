"""`wids reshard` and `wids export` of joins: the fields of both sides become one dataset."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from helpers.shards import MakeShard

import wids
from wids.cli import main
from wids.views.viewable import View

COUNT = 9
KEYS = [f"k{number}" for number in range(COUNT)]


@pytest.fixture
def joined(make_shard: MakeShard, tmp_path: Path, monkeypatch: Any) -> View:
    """View nine samples with shards in another order, which lack one, and with a table."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WIDS_CACHE", str(tmp_path / "cache"))
    left = [{"__key__": key, ".cls": str(n), ".bin": f"p{n}" * 300} for n, key in enumerate(KEYS)]
    right = [{"__key__": key, ".txt": f"text of {key}"} for key in reversed(KEYS[:-1])]
    for start in (0, 4):
        make_shard(f"left-{start}.tar", left[start : start + 4 + start // 4])
        make_shard(f"right-{start}.tar", right[start : start + 4])
    spec = {"license": "MIT", "classes": list("abcdefghi")}
    for side, counts in (("left", (4, 5)), ("right", (4, 4))):
        rows = [{"url": f"{side}-{4 * n}.tar", "nsamples": count} for n, count in enumerate(counts)]
        head = {"wids_version": 1, "name": side, **(spec if side == "left" else {})}
        Path(f"{side}.json").write_text(json.dumps({**head, "shardlist": rows}))
    table = {
        "key": list(reversed(KEYS)),
        "width": pa.array([None if n == 3 else 100 * n for n in reversed(range(COUNT))]),
        "caption": [f"grün {key}" for key in reversed(KEYS)],
        "box": [[n, n + 1] for n in reversed(range(COUNT))],
        "hash": [b"\xff%d" % n for n in reversed(range(COUNT))],
    }
    pyarrow.parquet.write_table(pa.table(table), "t.parquet")
    return without_table().join("t.parquet")


def without_table() -> View:
    """Join the samples with the shards alone."""
    right = wids.ShardListDataset("right.json")
    return wids.ShardListDataset("left.json").join(right, missing="fill")


def stored(sample: Any) -> dict[str, bytes]:
    """Return the raw fields of a sample that it has."""
    return {
        name: bytes(data) for name, data in sample.items() if name[0] == "." and data is not None
    }


@pytest.mark.parametrize("order", [np.arange(COUNT), np.array([7, 0, -1, 3])])
def test_a_join_becomes_shards(joined: View, order: Any) -> None:
    """Each new sample has the raw fields of both sides and the columns, in the order asked for."""
    done = wids.reshard(joined, order, "out/n-%03d.tar", maxcount=4, workers=1)
    assert not done.failures
    new = wids.ShardListDataset("out/n.json", transformations="bytes")
    assert [stored(sample) for sample in new] == [
        stored(joined.read_raw(index)) for index in order.tolist()
    ]
    assert new.keys[0] == joined.keys[int(order[0])]
    assert new.header["license"] == "MIT"
    assert new.class_names[8] == "i"
    assert stored(new[3])[".caption"] == f"grün {KEYS[3]}".encode()
    assert ".width" not in new[3] if order[3] == 3 else True


def test_saved_joins_and_choices_of_them_are_resharded(joined: View) -> None:
    """The command copies a saved join, a filter of one, and all of it shuffled, by processes."""
    joined.save("join.json")
    joined.filter("width >= 500").save("wide.json")
    assert main(["reshard", "join.json", "-o", "all/n-%03d.tar", "--maxsize", "9k"]) == 0
    whole = wids.ShardListDataset("all/n.json", transformations="bytes")
    assert [stored(each) for each in whole] == [stored(joined.read_raw(n)) for n in range(COUNT)]
    assert len(whole.shards) > 2
    assert main(["reshard", "wide.json", "-o", "w/n-%03d.tar", "--where", "cls >= 6"]) == 0
    assert list(wids.ShardListDataset("w/n.json").keys) == KEYS[6:]
    assert main(["reshard", "join.json", "-o", "s/n-%03d.tar", "--shuffle", "3"]) == 0
    assert sorted(wids.ShardListDataset("s/n.json").keys) == KEYS


def test_columns_become_one_field(joined: View) -> None:
    """A column of structs is written as one JSON field."""
    table = pyarrow.parquet.read_table("t.parquet")
    rows = table.select(["width", "caption", "box"]).to_struct_array()
    whole = pyarrow.table({"key": table["key"], "meta.json": rows})
    left = joined.with_options(fields=[".cls", ".bin"])
    wids.reshard(left.join(whole), np.arange(COUNT), "out/n-%d.tar", workers=1)
    new = wids.ShardListDataset("out/n.json")
    assert sorted(name for name in new[2] if name[0] == ".") == [".bin", ".cls", ".meta.json"]
    assert new.column(".meta.json", "width", fill=-1).tolist()[:4] == [0, 100, 200, -1]
    assert new[3][".meta.json"] == {"width": None, "caption": "grün k3", "box": [3, 4]}


def test_an_interrupted_run_continues(joined: View) -> None:
    """With `resume`, shards that are complete are kept, and the rest is written."""
    Path("out/n-1.tar").mkdir(parents=True)  # cannot be written
    call = {"maxcount": 3, "workers": 1}
    done = wids.reshard(joined, np.arange(COUNT), "out/n-%d.tar", **call)
    assert list(done.failures) == ["out/n-1.tar"]
    first = Path("out/n-0.tar").stat().st_mtime_ns
    Path("out/n-1.tar").rmdir()
    again = wids.reshard(joined, np.arange(COUNT), "out/n-%d.tar", resume=True, **call)
    whole = wids.reshard(joined, np.arange(COUNT), "whole/n-%d.tar", **call)
    assert again.entries == whole.entries
    assert Path("out/n-0.tar").stat().st_mtime_ns == first


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda j: wids.reshard(j.map(len), np.arange(2), "o-%d.tar"), "map_samples"),
        (lambda j: wids.reshard(j, np.arange(2), "left-%d.tar"), "replace"),
        (lambda j: wids.reshard(j.join("t.parquet"), np.arange(2), "o-%d.tar"), "replace=True"),
        (lambda j: wids.reshard(j, np.array([COUNT]), "o-%d.tar"), "out of range"),
    ],
)
def test_what_cannot_be_copied_is_said_first(joined: View, spoil: Any, said: str) -> None:
    """A function, a wrong field, a replaced shard, a field of both sides: nothing is written."""
    with pytest.raises((ValueError, IndexError), match=said):
        spoil(joined)
    assert not list(Path().glob("o-*"))


def test_names_that_no_member_can_have_are_refused(joined: View) -> None:
    """A column whose name would change the key of a sample fails, and names the sample."""
    table = {"key": KEYS, "a/b": list(range(COUNT))}
    done = wids.reshard(without_table().join(table), np.arange(COUNT), "out/n-%d.tar", workers=1)
    assert "a/b" in str(next(iter(done.failures.values())))
    assert not Path("out/n.json").exists()


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_table_of_a_join(joined: View, suffix: str) -> None:
    """An exported table has the values of the joined table, and where each field of a shard is."""
    joined[1:].save("join.json")
    assert main(["export", "join.json", f"out{suffix}"]) == 0
    if suffix == ".csv":
        rows = list(csv.DictReader(io.StringIO(Path("out.csv").read_text())))
    else:
        rows = pyarrow.parquet.read_table("out.parquet").to_pylist()
    assert [row["key"] for row in rows] == KEYS[1:]
    assert [row[".width"] or None for row in rows[:4]] == (
        ["100", "200", None, "400"] if suffix == ".csv" else [100, 200, None, 400]
    )
    assert rows[0][".caption"] == "grün k1"
    box = rows[0][".box"]
    assert (json.loads(box) if suffix == ".csv" else box) == [1, 2]
    for row in rows[:-1]:
        raw = joined.read_raw(int(row["index"]) + 1)
        start = int(row[".bin offset"])
        part = Path(row["shard"]).read_bytes()[start : start + int(row[".bin size"])]
        assert part == raw[".bin"]
        assert int(row[".txt size"]) == len(raw[".txt"])


def test_what_a_table_cannot_hold_is_listed_and_strict_refuses_it(
    joined: View, capsys: pytest.CaptureFixture[str]
) -> None:
    """Columns of bytes are counted; a CSV tells nulls from empty texts."""
    notes = {"key": KEYS, "note": ["", None, *KEYS[2:]]}
    pyarrow.parquet.write_table(pa.table(notes), "notes.parquet")
    joined.join("notes.parquet").save("j.json")
    assert main(["export", "j.json", "out.csv"]) == 0
    assert f"bytes of column .hash: {COUNT}, such as k0" in capsys.readouterr().err
    options = pyarrow.csv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=False)
    read = pyarrow.csv.read_csv("out.csv", convert_options=options)
    assert read[".note"].to_pylist()[:2] == ["", None]
    header = json.loads(Path("left.json").read_text())
    Path("left.json").write_text(json.dumps({"shardlist": header["shardlist"]}))
    wids.ShardListDataset("left.json").join("t.parquet", fields=["hash"]).save("bytes.json")
    assert main(["export", "bytes.json", "strict.csv", "--strict"]) == 1
    said = capsys.readouterr().err
    assert "k0: would be left out (bytes of column .hash), which" in said
    assert not Path("strict.csv").exists()


@pytest.mark.parametrize("command", ["export", "map", "sql"])
def test_no_table_of_the_join_is_replaced(
    joined: View, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A new table may not take the place of one that is read, whatever its name."""
    joined[::2].save("j.json")
    Path("fn.py").write_text("def f(sample):\n    return 1\n")
    Path("link.parquet").symlink_to("t.parquet")
    before = Path("t.parquet").read_bytes()
    for name in ("t.parquet", "link.parquet"):
        given = ["export", "j.json", name]
        if command == "map":
            given = ["map", "j.json", "--function", "fn.py:f", "-o", name]
        elif command == "sql":
            given = ["sql", "j.json", "select key from samples", "-o", name]
        assert main(given) == 1
        said = capsys.readouterr().err
        assert f"{name}: is the table that is joined, and would be replaced; name another" in said
    assert Path("t.parquet").read_bytes() == before


def test_columns_of_joined_tables_are_decoded_by_check(
    joined: View, capsys: pytest.CaptureFixture[str]
) -> None:
    """A value that reading would refuse is a fault; rows of no sample are not looked at."""
    table = {"key": [*KEYS, "other"], "png": [None, b"\x89PNG", *[None] * 7, b"no picture"]}
    table["meta.json"] = ["{}"] * 8 + ["{", "{"]
    pyarrow.parquet.write_table(pa.table(table), "odd.parquet")
    joined.join("odd.parquet").save("odd.json")
    assert main(["check", "odd.json", "--no-digest"]) == 0
    capsys.readouterr()
    assert main(["check", "odd.json", "--no-digest", "--decode"]) == 1
    said = capsys.readouterr()
    assert "odd.parquet: row 1, column 'png' (field .png): " in said.out
    assert "odd.parquet: row 8, column 'meta.json' (field .meta.json): " in said.out
    assert "shards and 2 tables checked, 2 faults in 1 of them" in said.err
    joined.save("sound.json")
    assert main(["check", "sound.json", "--no-digest", "--decode"]) == 0
    assert "shards and 1 tables checked, no faults" in capsys.readouterr().err
