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


def document() -> dict:
    """Read the spec."""
    return json.loads(Path("x.json").read_text())


def urls() -> list[str]:
    """List the URLs of the spec."""
    return [shard["url"] for shard in document()["shardlist"]]


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


def test_update_sets_name_info_and_base(folder: Path):
    """Each option sets its key; the old spec stays as a backup."""
    before = Path("x.json").read_text()
    assert main(["update", "x.json", "-n", "new", "-i", "about", "-b", "https://host/d"]) == 0
    changed = document()
    assert (changed["name"], changed["info"], changed["base"]) == ("new", "about", "https://host/d")
    assert Path("x.json.bak").read_text() == before


@pytest.mark.parametrize("options", [[], ["-n", "shards-train"], ["-D"]])
def test_update_that_changes_nothing_writes_nothing(folder: Path, options: list[str], capsys):
    """If nothing changes, the file stays the same, no backup is made, and a line says so."""
    before, status = Path("x.json").read_bytes(), Path("x.json").stat()
    if options == ["-D"]:
        main(["update", "x.json", "-D"])
        before, status = Path("x.json").read_bytes(), Path("x.json").stat()
        Path("x.json.bak").unlink()
    assert main(["update", "x.json", *options]) == 0
    assert "left as it is" in capsys.readouterr().err
    assert (Path("x.json").read_bytes(), Path("x.json").stat().st_ino) == (before, status.st_ino)
    assert not Path("x.json.bak").exists()


def test_update_without_options_changes_nothing_but_a_missing_name(folder: Path):
    """Without options, only a missing name is set."""
    before = document()
    assert main(["update", "x.json"]) == 0
    assert document() == before
    Path("x.json").write_text(json.dumps({**before, "name": None} | {"name": "n"}))
    without = {key: value for key, value in before.items() if key != "name"}
    Path("x.json").write_text(json.dumps(without))
    main(["update", "x.json"])
    assert document() == {**without, "name": "x"}


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


def test_update_rebase_of_several_folders_is_refused(folder: Path, capsys):
    """The message says how many folders there are, and the spec stays as it was."""
    changed = document()
    changed["shardlist"][0]["url"] = "https://elsewhere/a.tar"
    Path("x.json").write_text(json.dumps(changed))
    assert main(["update", "x.json", "-B"]) == 1
    assert "found 2" in capsys.readouterr().err
    assert document() == changed


def test_sample_index_is_optional(folder: Path, capsys):
    """Without an index, the first sample is printed."""
    capsys.readouterr()
    assert main(["sample", "x.json"]) == 0
    captured = capsys.readouterr()
    assert captured.err == "dataset size: 4\n"
    fields = dict(line.split(maxsplit=1) for line in captured.out.splitlines())
    assert (fields["__key__"], fields[".txt"], fields[".cls"]) == ("'00'", "'text 0'", "7")


def test_sample_raw_and_width(folder: Path, capsys):
    """`--raw` shows bytes, `--width` cuts lines."""
    capsys.readouterr()
    main(["sample", "x.json", "1", "--raw", "--width", "20"])
    lines = capsys.readouterr().out.splitlines()
    assert ".txt           b'tex" in lines
    assert max(map(len, lines)) <= 20


def test_sample_cat_writes_bytes(folder: Path, capfdbinary):
    """`--cat` writes the bytes of one field."""
    capfdbinary.readouterr()
    for arguments in (["3", "--cat", ".txt"], ["-c", ".txt", "3"], ["-c", ".txt", "-1"]):
        assert main(["sample", "x.json", *arguments]) == 0
        assert capfdbinary.readouterr().out == b"text 1"
