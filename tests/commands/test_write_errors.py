"""Errors of a full disk name the file that was being written, in every command that writes."""

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.interpreters import run_python
from helpers.shards import MakeShard

import wids
from wids.base.files import write_output
from wids.cli import main

# Runs a command whose files cannot grow beyond 20 kB, as on a full disk.
LIMITED = """
import resource, sys
from wids.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
sys.exit(main(sys.argv[1:]))
"""
COMMANDS = [
    (["import", "t.csv", "-o", "out/x-%d.tar"], "out/x-"),
    (["reshard", "x.tar", "-o", "out/x-%d.tar", "--workers", "1"], "out/x-0.tar"),
    (["sql", "x.tar", "select txt from samples", "-o", "out/t.csv"], "out/t.csv"),
]


@pytest.mark.parametrize(("command", "name"), COMMANDS)
def test_a_full_disk_is_told_with_the_file(
    make_shard: MakeShard, command: list[str], name: str
) -> None:
    """One line names the file that could not be written, and no part of it is left."""
    path = make_shard("x.tar", [{"__key__": f"{i}", ".txt": "x" * 30_000} for i in range(3)])
    folder = path.parent
    (folder / "t.csv").write_text("text\n" + "y" * 60_000 + "\n")
    run = run_python("-c", LIMITED, *command, cwd=folder)
    assert run.returncode == 1
    assert name in run.stderr, run.stderr
    assert "File too large" in run.stderr
    assert not list((folder / "out").rglob("*.tar"))


@pytest.mark.parametrize("way", ["shard", "tar", "spec"])
def test_a_full_disk_is_told_with_the_file_in_python(tmp_path: Path, way: str) -> None:
    """Writers name the file that they could not write, and leave no part of it."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large: .*x-0.tar") as caught:
            write_something(tmp_path, way, 30_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert caught.value.filename == str(tmp_path / "x-0.tar")
    assert not list(tmp_path.glob("*.tar*"))


def write_something(folder: Path, way: str, nbytes: int) -> None:
    if way == "spec":
        write_output(folder / "x-0.tar", bytes(nbytes))
        return
    writer: wids.ShardWriter | wids.TarWriter
    writer = wids.ShardWriter(folder / "x-%d.tar")
    if way == "tar":
        writer = wids.TarWriter(folder / "x-0.tar")
    with writer:
        writer.write({"__key__": "a", ".bin": bytes(nbytes)})


@pytest.mark.parametrize("command", [["cat", "x.tar", "0", ".txt"], ["ls", "x.tar", "0:"]])
def test_a_full_disk_behind_the_standard_output_is_named(
    make_shard: MakeShard, command: list[str]
) -> None:
    """Printing to a full disk is an error that names standard output."""
    path = make_shard("x.tar", [{"__key__": "a", ".txt": "x" * 30_000}])
    run = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m wids {' '.join(command)} > /dev/full"],
        cwd=path.parent,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(wids.__file__).parents[1])},
    )
    assert (run.returncode, run.stderr) == (1, "wids: standard output: No space left on device\n")


def test_shards_that_no_spec_can_name_are_refused(make_shard: MakeShard, monkeypatch, capsys):
    """A file name with a line break is refused, since no reader would open the spec."""
    path = make_shard("a\nb.tar", [{"__key__": "a", ".txt": "x"}])
    monkeypatch.chdir(path.parent)
    assert main(["create", ".", "-o", "x.json"]) == 1
    assert "expected no control characters" in capsys.readouterr().err
    assert not Path("x.json").exists()
