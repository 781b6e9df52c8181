"""Tars as others wrote them: from files, servers and pipes, their members in any order."""

import gzip
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from helpers.importing import refused
from helpers.shards import tar_bytes

import wids
from wids.cli import main
from wids.tar.tarindex import TarIndex
from wids.wids_mmtar import MMIndexedTar


def tar_of(names: list[str]) -> bytes:
    return tar_bytes([(name, os.fsencode(name)) for name in names], tarfile.PAX_FORMAT, 1.5)


PLAIN = [f"{i:02}.{ext}" for i in range(4) for ext in ("cls", "jpg")]
APART = [f"{i:02}.{ext}" for ext in ("jpg", "cls") for i in range(4)]


def keys_of(spec: str) -> list[str]:
    with wids.ShardListDataset(spec, transformations="bytes") as dataset:
        for sample in dataset:
            for extension in (".cls", ".jpg"):
                assert sample[extension].decode() == sample["__key__"] + extension
        return [sample["__key__"] for sample in dataset]


@pytest.mark.parametrize(
    "data", [tar_of(APART), gzip.compress(tar_of(PLAIN)), tar_of(PLAIN[:4]) + tar_of(PLAIN[4:])]
)
def test_a_pipe_becomes_shards(data: bytes) -> None:
    """A tar from standard input is imported: its members in any order, packed, joined by `cat`."""
    command = [sys.executable, "-m", "wids", "import", "-", "-o", "x-%d.tar"]
    run = subprocess.run(
        [*command, "--maxcount", "3", "--grouping", "shard"],
        input=data,
        capture_output=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert keys_of("x.json") == ["00", "01", "02", "03"]
    assert len(list(Path().glob("x-*.tar"))) == 2


def test_shards_of_a_server_become_others(shard_server) -> None:
    """A brace pattern of URLs is imported; equal keys become numbers on request."""
    for number in range(2):
        url = shard_server.put(f"x-{number}.tar", tar_of(["a.cls", "a.jpg"]))
    source = url.replace("x-1", "x-{0..1}")
    output = ["-o", "y-%d.tar"]
    assert main(["import", source, *output]) == 1
    assert main(["import", source, *output, "--rekey"]) == 0
    with wids.ShardListDataset("y.json", transformations="bytes") as dataset:
        assert [sample["__key__"] for sample in dataset] == ["000000000", "000000001"]


def test_keys_with_dots_are_numbered_on_request(capsys) -> None:
    """Keys that shards cannot have are refused by a message with the option that numbers them."""
    Path("dots.tar").write_bytes(tar_of(["v1.0001.txt", "v1.0002.txt"]))
    command = ["import", "dots.tar", "-o", "x-%d.tar"]
    command += ["--key-rule", "last_dot"]
    assert main(command) == 1
    assert "the key has a dot in its last part" in (said := capsys.readouterr().err)
    assert "--rekey" in said
    assert main([*command, "--rekey"]) == 0
    with wids.ShardListDataset("x.json") as dataset:
        assert list(dataset.keys) == ["000000000", "000000001"]


def test_members_that_lie_apart_are_named(capsys) -> None:
    """Without --grouping shard, members that are not adjacent are an error."""
    Path("old.tar").write_bytes(tar_of(APART))
    assert "old.tar" in refused(capsys, "old.tar")


@pytest.mark.parametrize("data", [b"", b"<html>Not found</html>", tar_of(PLAIN)[:3000]])
def test_what_is_no_whole_tar_is_refused(data: bytes) -> None:
    """An empty pipe, a page and a truncated tar are refused, and no shard is written."""
    command = [sys.executable, "-m", "wids", "import", "-", "-o", "x-%d.tar"]
    run = subprocess.run(command, input=data, capture_output=True, text=False, check=False)
    assert run.returncode == 1
    assert run.stderr.startswith(b"wids: ")
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("command", ["import", "reshard"])
def test_a_concatenated_file_is_read_whole_or_refused(command: str, capsys) -> None:
    """A file of two archives is refused by a message with the option that reads both."""
    Path("ab.tar").write_bytes(tar_of(["a.cls", "a.jpg"]) + tar_of(["b.cls", "b.jpg"]))
    run = [command, "ab.tar", "-o", "out/x-%d.tar"]
    assert main(run) == 1
    assert f"wids {command} --concatenated" in capsys.readouterr().err
    assert main([*run, "--concatenated"]) == 0
    assert keys_of("out/x.json") == ["a", "b"]


def test_what_a_folder_of_shards_holds_besides_is_listed(capsys) -> None:
    """Subfolders with shards and other files are listed; indexes and specs are ignored."""
    Path("in/more").mkdir(parents=True)
    Path("in/a.tar").write_bytes(tar_of(["a.cls", "a.jpg"]))
    Path("in/labels.csv").write_text("a\n")
    Path("in/a.json").write_text("{}")
    command = ["import", "--from", "webdataset", "in", "-o", "x-%d.tar"]
    assert main(command) == 0
    said = capsys.readouterr().err
    assert "folders that are not searched: 1, such as in/more" in said
    assert "files of another kind: 1, such as" in said
    assert main([*command, "--strict"]) == 1


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (["a", "d/b", "größe", "x" * 200], []),
        (["a", ".b", "d/.c"], ["members of tars that are in no sample (hidden): 4"]),
        (["a", "__info__/b"], ["members of tars that are in no sample (meta): 2"]),
    ],
)
def test_members_that_webdataset_wrote_are_kept_or_counted(
    keys: list[str], expected: list[str], capsys
) -> None:
    """What `webdataset.TarWriter` wrote becomes samples, or is counted and refused by --strict."""
    webdataset = pytest.importorskip("webdataset")
    with webdataset.TarWriter("old.tar") as writer:
        for number, key in enumerate(keys):
            writer.write({"__key__": key, "cls": number, "seg.txt": key})
    command = ["import", "old.tar", "-o", "new/x-%d.tar"]
    assert main([*command, "--strict"]) == (1 if expected else 0)
    assert Path("new").exists() is not bool(expected)
    capsys.readouterr()
    assert main(command) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if "left out: " in line]
    found = [line.partition(", such as ")[0].removeprefix("wids: left out: ") for line in lines]
    assert found == expected
    with wids.ShardListDataset("new/x.json", transformations="bytes") as dataset:
        assert len(dataset) == len(keys) - len(expected and keys[1:])
        for sample in dataset:
            assert sample[".seg.txt"].decode() == sample["__key__"]
            assert keys[int(sample[".cls"])] == sample["__key__"]


@pytest.mark.filterwarnings("always::wids.WidsWarning")
def test_an_end_that_became_zeros_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Opening with and without a sidecar, indexing and importing name the shard."""
    data = tar_of([f"{i:04}.{ext}" for i in range(100) for ext in ("cls", "jpg")])
    Path("cut.tar").write_bytes(data[:102_400] + bytes(len(data) - 102_400))
    for _ in range(2):  # the second one finds the sidecar in the cache
        with pytest.warns(wids.WidsWarning, match=r"cut\.tar: \d+ zero bytes follow .* been"):
            assert len(wids.ShardListDataset("cut.tar", cache_dir="cache")) == 25
    for opened in (wids.Shard, TarIndex.from_tar, MMIndexedTar):
        with pytest.warns(wids.WidsWarning, match=r"cut\.tar: \d+ zero bytes .* been") as caught:
            found = opened("cut.tar")
        number = found.num_members if isinstance(found, TarIndex) else len(found)
        assert number == (25 if opened is wids.Shard else 50)
        assert len(caught) == 1
    assert main(["create", "cut.tar", "-o", "cut.json"]) == 0
    assert "1 of the shards have such an end" in capsys.readouterr()[1]
    assert main(["import", "cut.tar", "-o", "x-%d.tar"]) == 0
    assert "ends of tars, where samples may have been: 1, such as cut.tar" in capsys.readouterr()[1]
    assert main(["import", "cut.tar", "-o", "y-%d.tar", "--strict"]) == 1


def test_strict_names_the_shards_that_stay(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """No spec is written; with `--resume` the import goes on, and a map writes none."""
    Path("a.tar").write_bytes(tar_of(PLAIN))
    Path("b.tar").write_bytes(tar_of(["04.cls", "04.jpg", "README"]))
    command = ["import", "a.tar", "b.tar", "-o", "out/x-%d.tar", "--maxcount", "1"]
    assert main([*command, "--strict"]) == 1
    said = capsys.readouterr().err
    assert "out/x.json: not written; 3 complete shards stay, x-0.tar to x-2.tar" in said
    assert not Path("out/x.json").exists()
    assert main([*command, "--resume"]) == 0
    assert keys_of("out/x.json") == ["00", "01", "02", "03", "04"]
    assert main(["create", "a.tar", "b.tar", "-o", "all.json"]) == 0
    assert "members of tars that are in no sample (no extension): 1" in capsys.readouterr().err
    assert main(["map", "all.json", "-o", "new/x-%d.tar", "--strict"]) == 1
    assert "b.tar: would be left out" in capsys.readouterr().err
    assert not Path("new").exists()


def test_keys_of_tars_of_a_folder_are_kept(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`tar -C folder .` begins each name with "./", which import keeps; a table needs UTF-8."""
    Path("a.tar").write_bytes(tar_of(["./0.cls", "./0.jpg", "./b/1.cls", "./b/1.jpg"]))
    assert main(["import", "a.tar", "-o", "out/x-%d.tar"]) == 0
    assert list(wids.ShardListDataset("out/x.json").keys) == ["./0", "./b/1"]
    Path("b.tar").write_bytes(tar_of(["\udcff.bin"]))
    assert main(["export", "a.tar", "-"]) == 1
    assert not Path("-").exists()
    assert main(["export", "b.tar", "b.csv"]) == 0
    assert "keys whose bytes that are not UTF-8 are lost: 1" in capsys.readouterr().err


def test_a_link_that_leads_to_nothing_is_said_once() -> None:
    """A dataset warns of a hard link whose file is not in the tar, once."""
    names = ["a.tar", "b.tar"]
    for name in names:
        with tarfile.open(name, "w") as archive:
            archive.addfile(tarfile.TarInfo(f"{name[0]}.cls"))
            link = tarfile.TarInfo("lost.cls")
            link.type, link.linkname = tarfile.LNKTYPE, "gone.cls"
            archive.addfile(link)
    for _ in range(2):  # counted by threads, then from sidecars
        with pytest.warns(wids.WidsWarning, match=r"\.tar: 1 hard links lead to no") as caught:
            assert len(wids.ShardListDataset(names)) == 2
        assert len(caught) == 1


def test_class_names_beside_the_shards_are_kept() -> None:
    """Those in a file are in the new spec; of other shards, none."""
    with wids.ShardWriter("old/a-%d.tar", 2) as writer:
        for number in range(4):
            writer.write({"__key__": f"{number}", ".cls": number % 2})
    Path("old/classes.txt").write_text("cat\ndog\n")
    for new, source in (("whole", "old"), ("part", "old/a-1.tar")):
        assert main(["import", source, "-o", f"{new}/x-%d.tar"]) == 0
        assert wids.ShardListDataset(f"{new}/x.json").class_names == {0: "cat", 1: "dog"}
    Path("other").mkdir()
    Path("old/a-0.tar").rename("other/a.tar")
    assert main(["import", "other", "-o", "new/x-%d.tar"]) == 0
    assert wids.ShardListDataset("new/x.json").class_names == {}
