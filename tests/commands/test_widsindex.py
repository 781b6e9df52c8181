"""`widsindex` with its old subcommands and options, and without its old faults."""

import json
import tomllib
from pathlib import Path

import pytest
from helpers.shards import REPOSITORY, MakeShard

from wids.cli import main


@pytest.fixture
def folder(make_shard: MakeShard, tmp_path: Path, monkeypatch) -> Path:
    """Stand in a folder with two shards and their spec."""
    for shard in range(2):
        samples = [{"__key__": f"{shard}{n}", ".txt": f"text {n}", ".cls": "7"} for n in range(2)]
        make_shard(f"shards/train-{shard}.tar", samples)
    monkeypatch.chdir(tmp_path)
    assert main(["create", "shards/train-0.tar", "shards/train-1.tar", "-o", "x.json"]) == 0
    return tmp_path


def test_script_is_installed():
    """`widsindex` and `wids` are one program."""
    scripts = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts["widsindex"] == scripts["wids"] == "wids.__main__:main"


def test_create_writes_shardindex_json_by_default(folder: Path):
    """Without `-o`, the spec gets its old name, and the old keys."""
    assert main(["create", "shards/train-{0..1}.tar"]) == 0
    created = json.loads(Path("shardindex.json").read_text())
    assert created["__kind__"] == "wids-shard-index-v1"
    assert created["wids_version"] == 1
    assert created["name"] == "shards-train"
    assert set(created["shardlist"][0]) == {"url", "md5sum", "nsamples", "filesize"}


def test_info_table(folder: Path, capsys):
    """`-t` prints the old header and one row per spec, separated by tabs."""
    capsys.readouterr()
    assert main(["info", "-t", "x.json", "x.json"]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header == "file\tname\tnbytes\tnsamples\tbase\tlast\tdatasets"
    nbytes = sum(path.stat().st_size for path in Path("shards").iterdir())
    assert rows[0].split("\t")[:4] == ["x.json", "shards-train", str(nbytes), "4"]
    assert len(rows) == 2


def test_info_labels(folder: Path, capsys):
    """The long form has the labels of the old program."""
    capsys.readouterr()
    main(["info", "x.json"])
    out = capsys.readouterr().out
    labels = ["filename:", "name:", "info:", "base:", "total size:", "total samples:"]
    labels += ["avg sample size:", "avg shard size:", "first shard:", "last shard:"]
    assert [label for label in labels if label not in out] == []
