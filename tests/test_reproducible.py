"""The same samples give the same bytes at any time and place, with any Python, without torch."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.shards import REPOSITORY

# Writes one dataset by the writer and one by `wids import`, and a spec by `wids create`.
PROGRAM = """
import sys, time
from pathlib import Path
import numpy as np
from wids import ShardWriter
from wids.cli import main
with ShardWriter("own/x-%04d.tar", maxcount=4, spec="own/x.json", sidecars=True) as writer:
    for number in range(10):
        fields = {
            "txt": f"text {number}, süß", "cls": number, "bin": bytes([number]) * 1500,
            "json": {"z": number, "a": [1.5, None, "é"]},
            "npy": np.arange(number + 1, dtype="<f4"),
        }
        names = sorted(fields, key=lambda name: hash((name, number)))  # an order that may differ
        writer.write({"__key__": f"été/{number:06}", **{name: fields[name] for name in names}})
for number in reversed(range(9)):  # the order of a folder is the file system's choice
    path = Path("tree", ("cat", "dog", "été")[number % 3], f"{number}.ppm")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"P6 300 1 255 " + bytes([number]) * 900)
assert main(["import", "tree", "-o", "made/y-%04d.tar", "--maxcount", "4", "--sidecars"]) == 0
shards = sorted(map(str, Path("own").glob("*.tar")), key=lambda name: hash(name))
assert main(["create", *shards, "-o", "own/again.json", "--sha256", "-n", "x"]) == 0
assert "torch" not in sys.modules
"""

# What the program gives, wherever and whenever it runs.
DIGESTS = {
    "x-0000.tar": "0aa1f40c338d09b6f9b385a68e2ac4c307e295e3126f9e0a86d29c044148c1c6",
    "x-0001.tar": "1ac0aaa9d179ee4094862384960ffa26d21971a268a298ae8eb13f24b1ba6d2b",
    "x-0002.tar": "246b57f35ea96afdfb246bee48c5409dd16fe2edd445951c8089666737bc3242",
    "x.json": "63debd4098f6f61dc35a4dc636bc8b7e37cc4456a689696c64f9aad9ef8168a4",
}


def made_by(python: str, folder: Path, **environment: str) -> dict[str, str]:
    """Run the program in a folder; return the SHA-256 of every written file."""
    folder.mkdir()
    variables = {**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONUTF8": "1", **environment}
    subprocess.run(
        [python, "-c", PROGRAM], cwd=folder, env=variables, check=True, stderr=subprocess.DEVNULL
    )
    written = (path for part in ("own", "made") for path in (folder / part).iterdir())
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(written)}


def other_pythons() -> list[str]:
    """Return installed interpreters of other versions with the required libraries."""
    named = os.environ.get("WIDS_TEST_PYTHONS", "").split(os.pathsep)
    found = [shutil.which(f"python3.{minor}") for minor in range(11, 16)]
    needs = (
        "import bracex, filelock, numpy, PIL, platformdirs, requests, tqdm, urllib3, sys; "
        "sys.exit(sys.argv[1] in sys.version)"
    )
    return [
        python
        for python in filter(None, [*named, *found])
        if not subprocess.run(
            [python, "-c", needs, sys.version.split()[0]], check=False, capture_output=True
        ).returncode
    ]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Run the program once."""
    folder = tmp_path_factory.mktemp("runs") / "a"
    return made_by(sys.executable, folder, PYTHONHASHSEED="1", TZ="UTC", LC_ALL="C")


def test_two_runs_give_the_same_files(made: dict[str, str], tmp_path: Path):
    """Files do not depend on time, place, hash seed, time zone or locale."""
    second = made_by(
        sys.executable, tmp_path / "other", PYTHONHASHSEED="2", TZ="Asia/Tokyo", LC_ALL="C.UTF-8"
    )
    assert second == made
    assert len(made) == 15


def test_writer_and_indexer_say_the_same(made: dict[str, str]):
    """`wids create` makes the writer's own spec, to the byte."""
    assert made["again.json"] == made["x.json"]


def test_bytes_are_those_of_every_other_machine(made: dict[str, str]):
    """The files have the recorded digests with any version of Python and numpy."""
    assert {name: made[name] for name in DIGESTS} == DIGESTS


def test_another_python_makes_the_same_files(made: dict[str, str], tmp_path: Path):
    """Installed versions of Python make the same bytes."""
    pythons = other_pythons()
    if not pythons:
        pytest.skip("no other Python with what writing needs; WIDS_TEST_PYTHONS may name some")
    for number, python in enumerate(pythons):
        assert made_by(python, tmp_path / f"other{number}") == made, python
