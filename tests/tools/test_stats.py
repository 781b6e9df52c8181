"""`wids info --stats`: the figures are those that counting members of a tar gives."""

import json
import tarfile
from collections import Counter, defaultdict
from pathlib import Path
from statistics import median

import pytest
from helpers.shards import MakeShard

from wids.cli import main


def test_figures_are_those_of_the_members(
    make_shard: MakeShard, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Sizes are of the fields that samples have."""
    rows = [
        {"__key__": f"{n}", ".txt": "x" * n, ".a b.JSON": json.dumps({"n": n})} for n in range(40)
    ]
    for n in range(0, 40, 3):
        rows[n][".cls"] = str(n % 4)
    shards = [make_shard("a.tar", rows[:15]), make_shard("b.tar", rows[15:])]
    by_field, by_key = defaultdict(list), Counter()
    for shard in shards:
        with tarfile.open(shard) as archive:
            for member in archive:
                key, _, field = member.name.partition(".")
                by_field[f".{field.lower()}"].append(member.size)
                by_key[key] += member.size
    by_field["sample"] = list(by_key.values())
    assert main(["info", str(tmp_path), "--stats", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {name.lower(): each for name, each in found["sizes"].items()} == {
        name: {
            "count": len(sizes),
            "nbytes": sum(sizes),
            "smallest": min(sizes),
            "median": median(sizes),
            "largest": max(sizes),
        }
        for name, sizes in by_field.items()
    }
    assert main(["info", str(tmp_path), "--stats"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert ["sample", "40"] in [line.split()[:2] for line in lines]


def test_nothing_and_faults(
    make_shard: MakeShard, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An empty shard has zeros; a shard that cannot be read is an error."""
    empty = make_shard("empty.tar", [])
    assert main(["info", str(empty), "--stats"]) == 0
    assert "sample      0" in capsys.readouterr().out
    good = str(make_shard("good.tar", [{"__key__": "a", ".cls": "3"}]))
    assert main(["info", good, "-t", "--stats"]) == 1
    (tmp_path / "bad.tar").write_bytes(b"no tar" * 1000)
    assert main(["info", str(tmp_path), "--stats"]) == 1
    said = capsys.readouterr()
    assert "bad.tar" in said.err
    assert said.out == ""
