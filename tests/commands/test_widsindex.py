"""`widsindex` with its old subcommands and options, and without its old faults."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from wids.cli import main

MakeShard = Callable[..., Path]


@pytest.fixture
def folder(make_shard: MakeShard, tmp_path: Path, monkeypatch) -> Path:
    """Stand in a folder with two shards and their spec."""
    for shard in range(2):
        samples = [{"__key__": f"{shard}{n}", ".txt": f"text {n}", ".cls": "7"} for n in range(2)]
        make_shard(f"shards/train-{shard}.tar", samples)
    monkeypatch.chdir(tmp_path)
    assert main(["create", "shards/train-0.tar", "shards/train-1.tar", "-o", "x.json"]) == 0
    return tmp_path


def document() -> dict:
    """Read the spec."""
    return json.loads(Path("x.json").read_text())


def urls() -> list[str]:
    """List the URLs of the spec."""
    return [shard["url"] for shard in document()["shardlist"]]


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


def test_update_sets_name_info_and_base(folder: Path):
    """Each option sets its key; the old spec stays as a backup."""
    before = Path("x.json").read_text()
    assert main(["update", "x.json", "-n", "new", "-i", "about", "-b", "https://host/d"]) == 0
    changed = document()
    assert (changed["name"], changed["info"], changed["base"]) == ("new", "about", "https://host/d")
    assert Path("x.json.bak").read_text() == before


@pytest.mark.parametrize(("option", "keep"), [("-k", True), ("--nokeep", False), ("-K", False)])
def test_update_keep_flags_do_what_they_say(folder: Path, option: str, keep: bool):
    """`-k` sets the flag and `-K` clears it."""
    assert main(["update", "x.json", option]) == 0
    assert document()["keep"] is keep


def test_update_dir_and_nodir(folder: Path):
    """`-d` puts every shard into a folder, `-D` leaves file names."""
    main(["update", "x.json", "-d", "https://host/sets/"])
    assert urls() == ["https://host/sets/train-0.tar", "https://host/sets/train-1.tar"]
    main(["update", "x.json", "-D"])
    assert urls() == ["train-0.tar", "train-1.tar"]


def test_update_rebase_moves_the_common_folder_into_base(folder: Path):
    """After `-B` the shards are still found."""
    main(["update", "x.json", "-d", "https://host/sets"])
    assert main(["update", "x.json", "-B"]) == 0
    assert (document()["base"], urls()) == ("https://host/sets", ["train-0.tar", "train-1.tar"])
