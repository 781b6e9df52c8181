"""`OutputFile`: the file gets its name when it is complete, with one writer at a time."""

import errno
import multiprocessing
import os
from pathlib import Path

import pytest

import wids
from wids.base.files import OutputFile, write_output


def test_second_writer_is_told_and_the_first_goes_on(tmp_path: Path, no_fd_leaks: None):
    """A second writer gets an error, and the first one continues."""
    first = OutputFile(tmp_path / "a.txt")
    with pytest.raises(BlockingIOError, match=r"a\.txt\.part: another process"):
        OutputFile(tmp_path / "a.txt")
    first.stream.write(b"first")
    first.publish()
    assert (tmp_path / "a.txt").read_bytes() == b"first"


def test_error_while_writing_leaves_nothing(tmp_path: Path, monkeypatch):
    """An error while writing leaves neither the temporary file nor the file."""

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="No space"):
        write_output(tmp_path / "a.txt", b"data")
    assert list(tmp_path.iterdir()) == []


def test_an_error_that_only_closing_tells_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_fd_leaks: None
) -> None:
    """NFS and FUSE tell of a full disk when a file is closed; the half file gets no name."""
    real_close = os.close

    def close(descriptor: int) -> None:
        named = Path(f"/dev/fd/{descriptor}").samefile(tmp_path / "a.txt.part")
        real_close(descriptor)
        if named:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "close", close)
        with pytest.raises(OSError, match=r"No space left on device: '.*a\.txt'"):
            write_output(tmp_path / "a.txt", b"content")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("plant", [Path.symlink_to, Path.hardlink_to])
def test_a_planted_link_is_not_written_through(tmp_path: Path, plant, no_fd_leaks: None):
    """A link in place of the temporary file is not written through."""
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    plant(tmp_path / "a.txt.part", victim)
    with pytest.raises(OSError, match=r"a\.txt\.part: .*link.*remove it"):
        write_output(tmp_path / "a.txt", b"new")
    assert victim.read_bytes() == b"precious"
    assert not (tmp_path / "a.txt").exists()


def test_a_pipe_in_the_place_of_the_part_is_refused(tmp_path: Path, no_fd_leaks: None):
    """A pipe in place of the temporary file is refused."""
    os.mkfifo(tmp_path / "a.txt.part")
    with pytest.raises(OSError, match="found a link or device"):
        write_output(tmp_path / "a.txt", b"new")


def write_often(path: Path, letter: bytes, results: "multiprocessing.Queue[int]") -> None:
    """Write a file many times; return how often another writer held the lock."""
    refused = 0
    for _ in range(200):
        try:
            write_output(path, letter * 50_000)
        except BlockingIOError:
            refused += 1
    results.put(refused)


def test_writers_in_a_race_never_mix_and_never_truncate(tmp_path: Path):
    """With concurrent writers, every reader sees 50,000 equal letters."""
    path = tmp_path / "a.txt"
    results: multiprocessing.Queue[int] = multiprocessing.Queue()
    writers = [
        multiprocessing.Process(target=write_often, args=(path, letter, results))
        for letter in (b"a", b"b", b"c")
    ]
    for writer in writers:
        writer.start()
    seen = set()
    while any(writer.is_alive() for writer in writers):
        if path.exists():
            content = path.read_bytes()
            assert len(content) == 50_000
            seen |= set(content)
            assert len(set(content)) == 1
    for writer in writers:
        writer.join()
    assert sum(results.get() for _ in writers) < 600
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.txt"]


def test_permissions_follow_the_umask(tmp_path: Path):
    """A published file has the permissions of the umask."""
    old = os.umask(0o027)
    try:
        write_output(tmp_path / "a.txt", b"")
    finally:
        os.umask(old)
    assert (tmp_path / "a.txt").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(
    "location",
    [
        "http://me:secret@host/x.json",
        "http:/me:secret@host/x.json",
        "http:me:secret@host/x.json",
        "//me:secret@host/x.json",
        "//host:8080/x.json",
        "s3://bucket/x.json",
        "me:secret@host/x.json",
        "http%3A%2F%2Fme%3Asecret%40host/x.json",
    ],
)
def test_a_url_is_no_place_for_output(
    location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its path would be a folder named "http:", or one at the root of the disk."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="looks like a URL") as caught:
        write_output(Path(location), b"data")
    assert "secret" not in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("way", ["shards", "tar", "spec"])
def test_a_folder_at_the_place_of_a_file_is_refused_at_once(way: str, tmp_path: Path) -> None:
    """Nobody writes a shard of hours to learn at its end that its name is taken by a folder."""
    (tmp_path / "x-0.tar").mkdir()
    expected = r"x-0\.tar: expected the name of a file .* folder"
    sample = {"__key__": "a", ".txt": "one"}
    ways = {
        "shards": lambda: wids.ShardWriter(tmp_path / "x-%d.tar").write(sample),
        "tar": lambda: wids.TarWriter(tmp_path / "x-0.tar").write(sample),
        "spec": lambda: write_output(tmp_path / "x-0.tar", b"data"),
    }
    with pytest.raises(IsADirectoryError, match=expected):
        ways[way]()
    assert [path.name for path in tmp_path.rglob("*")] == ["x-0.tar"]


@pytest.mark.parametrize("name", ["a@b.json", "a:1.json", "sets/a:1@b.json", "x.tar?a=1"])
def test_signs_of_urls_may_be_in_file_names(name: str, tmp_path: Path) -> None:
    """Names with colons, ats and question marks are names, and written as they are."""
    write_output(tmp_path / name, b"data")
    assert (tmp_path / name).read_bytes() == b"data"
