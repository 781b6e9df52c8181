"""Tars as others wrote them: from files, servers and pipes, their members in any order."""

import gzip
import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import wids
from wids.cli import main
from wids.tar.tarindex import TarIndex
from wids.wids_mmtar import MMIndexedTar


def tar_of(names: list[str]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(name), 1.5
            archive.addfile(member, io.BytesIO(os.fsencode(name)))
    return stream.getvalue()


PLAIN = [f"{i:02}.{ext}" for i in range(4) for ext in ("cls", "jpg")]
APART = [f"{i:02}.{ext}" for ext in ("jpg", "cls") for i in range(4)]


def keys_of(spec: Path) -> list[str]:
    with wids.ShardListDataset(spec, transformations="bytes") as dataset:
        for sample in dataset:
            for extension in (".cls", ".jpg"):
                assert sample[extension].decode() == sample["__key__"] + extension
        return [sample["__key__"] for sample in dataset]


@pytest.mark.parametrize(
    "data", [tar_of(APART), gzip.compress(tar_of(PLAIN)), tar_of(PLAIN[:4]) + tar_of(PLAIN[4:])]
)
def test_a_pipe_becomes_shards(tmp_path: Path, data: bytes) -> None:
    """A tar from standard input is imported: its members in any order, packed, joined by `cat`."""
    command = [sys.executable, "-m", "wids", "import", "-", "-o", str(tmp_path / "x-%d.tar")]
    run = subprocess.run(
        [*command, "--maxcount", "3", "--grouping", "shard"],
        input=data,
        capture_output=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert keys_of(tmp_path / "x.json") == ["00", "01", "02", "03"]
    assert len(list(tmp_path.glob("x-*.tar"))) == 2


def test_shards_of_a_server_become_others(tmp_path: Path, shard_server) -> None:
    """A brace pattern of URLs is imported; equal keys become numbers on request."""
    for number in range(2):
        url = shard_server.put(f"x-{number}.tar", tar_of(["a.cls", "a.jpg"]))
    source = url.replace("x-1", "x-{0..1}")
    output = ["-o", str(tmp_path / "y-%d.tar")]
    assert main(["import", source, *output]) == 1
    assert main(["import", source, *output, "--rekey"]) == 0
    with wids.ShardListDataset(tmp_path / "y.json", transformations="bytes") as dataset:
        assert [sample["__key__"] for sample in dataset] == ["000000000", "000000001"]


def test_keys_with_dots_are_numbered_on_request(tmp_path: Path, capsys) -> None:
    """Keys that shards cannot have are refused by a message with the option that numbers them."""
    (tmp_path / "dots.tar").write_bytes(tar_of(["v1.0001.txt", "v1.0002.txt"]))
    command = ["import", str(tmp_path / "dots.tar"), "-o", str(tmp_path / "x-%d.tar")]
    command += ["--key-rule", "last_dot"]
    assert main(command) == 1
    assert "the key has a dot in its last part" in (said := capsys.readouterr().err)
    assert "--rekey" in said
    assert main([*command, "--rekey"]) == 0
    with wids.ShardListDataset(tmp_path / "x.json") as dataset:
        assert list(dataset.keys) == ["000000000", "000000001"]


def test_members_that_lie_apart_are_named(tmp_path: Path, capsys) -> None:
    """Without --grouping shard, members that are not adjacent are an error."""
    (tmp_path / "old.tar").write_bytes(tar_of(APART))
    assert main(["import", str(tmp_path / "old.tar"), "-o", str(tmp_path / "x-%d.tar")]) == 1
    assert "old.tar" in capsys.readouterr().err
    assert list(tmp_path.glob("x*")) == []


@pytest.mark.parametrize("data", [b"", b"<html>Not found</html>", tar_of(PLAIN)[:3000]])
def test_what_is_no_whole_tar_is_refused(tmp_path: Path, data: bytes) -> None:
    """An empty pipe, a page and a truncated tar are refused, and no shard is written."""
    command = [sys.executable, "-m", "wids", "import", "-", "-o", str(tmp_path / "x-%d.tar")]
    run = subprocess.run(command, input=data, capture_output=True, text=False, check=False)
    assert run.returncode == 1
    assert run.stderr.startswith(b"wids: ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["import", "reshard"])
def test_a_concatenated_file_is_read_whole_or_refused(tmp_path: Path, command: str, capsys) -> None:
    """A file of two archives is refused by a message with the option that reads both."""
    (tmp_path / "ab.tar").write_bytes(tar_of(["a.cls", "a.jpg"]) + tar_of(["b.cls", "b.jpg"]))
    run = [command, str(tmp_path / "ab.tar"), "-o", str(tmp_path / "out" / "x-%d.tar")]
    assert main(run) == 1
    assert f"wids {command} --concatenated" in capsys.readouterr().err
    assert main([*run, "--concatenated"]) == 0
    assert keys_of(tmp_path / "out" / "x.json") == ["a", "b"]


def test_what_a_folder_of_shards_holds_besides_is_listed(tmp_path: Path, capsys) -> None:
    """Subfolders with shards and other files are listed; indexes and specs are ignored."""
    (tmp_path / "in" / "more").mkdir(parents=True)
    (tmp_path / "in" / "a.tar").write_bytes(tar_of(["a.cls", "a.jpg"]))
    (tmp_path / "in" / "labels.csv").write_text("a\n")
    (tmp_path / "in" / "a.json").write_text("{}")
    command = [
        "import",
        "--from",
        "webdataset",
        str(tmp_path / "in"),
        "-o",
        str(tmp_path / "x-%d.tar"),
    ]
    assert main(command) == 0
    said = capsys.readouterr().err
    assert f"folders that are not searched: 1, such as {tmp_path / 'in' / 'more'}" in said
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
    tmp_path: Path, keys: list[str], expected: list[str], capsys
) -> None:
    """What `webdataset.TarWriter` wrote becomes samples, or is counted and refused by --strict."""
    webdataset = pytest.importorskip("webdataset")
    with webdataset.TarWriter(str(tmp_path / "old.tar")) as writer:
        for number, key in enumerate(keys):
            writer.write({"__key__": key, "cls": number, "seg.txt": key})
    command = ["import", str(tmp_path / "old.tar"), "-o", str(tmp_path / "new" / "x-%d.tar")]
    assert main([*command, "--strict"]) == (1 if expected else 0)
    assert (tmp_path / "new").exists() is not bool(expected)
    capsys.readouterr()
    assert main(command) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if "left out: " in line]
    found = [line.partition(", such as ")[0].removeprefix("wids: left out: ") for line in lines]
    assert found == expected
    with wids.ShardListDataset(tmp_path / "new" / "x.json", transformations="bytes") as dataset:
        assert len(dataset) == len(keys) - len(expected and keys[1:])
        for sample in dataset:
            assert sample[".seg.txt"].decode() == sample["__key__"]
            assert keys[int(sample[".cls"])] == sample["__key__"]


@pytest.mark.filterwarnings("always::wids.WidsWarning")
def test_an_end_that_became_zeros_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Opening with and without a sidecar, indexing and importing name the shard."""
    monkeypatch.chdir(tmp_path)
    data = tar_of([f"{i:04}.{ext}" for i in range(100) for ext in ("cls", "jpg")])
    Path("cut.tar").write_bytes(data[:102_400] + bytes(len(data) - 102_400))
    for _ in range(2):  # the second one finds the sidecar in the cache
        with pytest.warns(wids.WidsWarning, match=r"cut\.tar: \d+ zero bytes follow .* been"):
            assert len(wids.ShardListDataset("cut.tar", cache_dir=tmp_path / "cache")) == 25
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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No spec is written; with `--resume` the import goes on, and an export writes no file."""
    monkeypatch.chdir(tmp_path)
    Path("a.tar").write_bytes(tar_of(PLAIN))
    Path("b.tar").write_bytes(tar_of(["04.cls", "04.jpg", "README"]))
    command = ["import", "a.tar", "b.tar", "-o", "out/x-%d.tar", "--maxcount", "1"]
    assert main([*command, "--strict"]) == 1
    said = capsys.readouterr().err
    assert "out/x.json: not written; 3 complete shards stay, x-0.tar to x-2.tar" in said
    assert not Path("out/x.json").exists()
    assert main([*command, "--resume"]) == 0
    assert keys_of(Path("out/x.json")) == ["00", "01", "02", "03", "04"]
    assert main(["create", "a.tar", "b.tar", "-o", "all.json"]) == 0
    assert "members of tars that are in no sample (no extension): 1" in capsys.readouterr().err
    assert main(["export", "all.json", "files/", "--strict"]) == 1
    assert "b.tar: would be left out" in capsys.readouterr().err
    assert not Path("files").exists()


def test_keys_of_tars_of_a_folder_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`tar -C folder .` begins each name with "./", which import keeps; a table needs UTF-8."""
    monkeypatch.chdir(tmp_path)
    Path("a.tar").write_bytes(tar_of(["./0.cls", "./0.jpg", "./b/1.cls", "./b/1.jpg"]))
    assert main(["import", "a.tar", "-o", "out/x-%d.tar"]) == 0
    assert list(wids.ShardListDataset("out/x.json").keys) == ["./0", "./b/1"]
    Path("b.tar").write_bytes(tar_of(["\udcff.bin"]))
    assert main(["export", "a.tar", "-"]) == 1
    assert not Path("-").exists()
    assert main(["export", "b.tar", "b.csv"]) == 0
    assert "keys whose bytes that are not UTF-8 are lost: 1" in capsys.readouterr().err
    assert main(["export", "b.tar", "b.csv", "--members"]) == 1
    assert r"b.tar: sample 0: the key '\udcff' is not UTF-8" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["./a.txt", "a.txt"], "sample 1: 'a.txt' was written for sample 0 already"),
        (["a//b.txt", "a/b.txt"], "sample 1: 'a/b.txt' was written for sample 0 already"),
        (["a.txt", "a.txt/b.txt"], "sample 1: no file can be named a.txt/b.txt here"),
        ([f"{'x' * 300}.txt"], "sample 0: no file can be named xxx"),
    ],
)
def test_files_of_an_export_never_replace_each_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], names: list[str], said: str
) -> None:
    """Two names of one path are an error that names both samples, as are impossible names."""
    (tmp_path / "a.tar").write_bytes(tar_of(names))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a.txt").write_text("of an earlier export")
    assert main(["export", str(tmp_path / "a.tar"), str(tmp_path / "out")]) == 1
    assert said in (message := capsys.readouterr().err)
    assert "(wids reshard --rekey)" in message


def test_a_link_that_leads_to_nothing_is_said_once(tmp_path: Path) -> None:
    """A dataset warns of a hard link whose file is not in the tar, once."""
    names = [tmp_path / name for name in ("a.tar", "b.tar")]
    for name in names:
        with tarfile.open(name, "w") as archive:
            archive.addfile(tarfile.TarInfo(f"{name.stem}.cls"))
            link = tarfile.TarInfo("lost.cls")
            link.type, link.linkname = tarfile.LNKTYPE, "gone.cls"
            archive.addfile(link)
    for _ in range(2):  # counted by threads, then from sidecars
        with pytest.warns(wids.WidsWarning, match=r"\.tar: 1 hard links lead to no") as caught:
            assert len(wids.ShardListDataset(list(map(str, names)))) == 2
        assert len(caught) == 1


def test_class_names_beside_the_shards_are_kept(tmp_path: Path) -> None:
    """Those in a file are in the new spec; of other shards, none."""
    folder = tmp_path / "old"
    with wids.ShardWriter(folder / "a-%d.tar", 2) as writer:
        for number in range(4):
            writer.write({"__key__": f"{number}", ".cls": number % 2})
    (folder / "classes.txt").write_text("cat\ndog\n")
    for number, source in enumerate((folder, folder / "a-1.tar")):
        new = tmp_path / f"new-{number}"
        assert main(["import", str(source), "-o", f"{new}/x-%d.tar"]) == 0
        assert wids.ShardListDataset(new / "x.json").class_names == {0: "cat", 1: "dog"}
    (tmp_path / "other").mkdir()
    (folder / "a-0.tar").rename(tmp_path / "other" / "a.tar")
    assert main(["import", f"{tmp_path}/other", "-o", f"{tmp_path}/new/x-%d.tar"]) == 0
    assert wids.ShardListDataset(tmp_path / "new" / "x.json").class_names == {}
