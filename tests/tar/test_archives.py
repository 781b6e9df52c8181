"""Archives of tar programs and archives built by hand are read exactly, or refused.

What each must give is known: programs packed files that are known, the others were built by hand.
And it is not our word alone: Python's tarfile, GNU tar and libarchive, as far as they are
installed, must read the same.
"""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import archives
from helpers.archives import BAD, ENVIRONMENT, GOOD, STRICT, TREE, Members, installed_readers

from wids.errors import ShardFormatError
from wids.specs.build import build_spec
from wids.tar.tarscan import scan_tar

READERS = installed_readers()
needs_gnu_tar = pytest.mark.skipif("tar" not in READERS, reason="GNU tar is not installed")


def read(path: Path) -> Members:
    """Return the files of an archive as the library reads them."""
    members = scan_tar(path)
    names = members.names.split(b"\0")[:-1]
    data = path.read_bytes()
    spans = members.spans.tolist()
    return [
        (name, data[start : start + size]) for name, (start, size) in zip(names, spans, strict=True)
    ]


def on_disk(members: Members) -> dict[bytes, bytes]:
    """Return the files that extracting the archive leaves on disk."""
    return {os.path.normpath(name.lstrip(b"/")): data for name, data in members}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the files that the programs pack."""
    folder = tmp_path_factory.mktemp("tree")
    archives.make_tree(folder)
    return folder


@pytest.mark.parametrize("writer", archives.installed_writers())
def test_what_programs_pack_is_read(tree: Path, tmp_path: Path, writer: str) -> None:
    """Archives of every program and dialect have the packed files, as in other readers."""
    path = tmp_path / "packed.tar"
    archives.pack(writer, tree, path)
    found = read(path)
    assert found == READERS["tarfile"](path)
    for reader in READERS.values():
        # One that reports an error, over a name that it cannot convert say, is no witness.
        assert (others := reader(path)) is None or on_disk(others) == on_disk(found)
    packed = {name.removeprefix(b"./some/prefix/"): data for name, data in found}
    links = {b"zz-hard.jpg", b"soft.jpg"}  # the latter where links are followed
    assert packed == {name: TREE[b"a.jpg" if name in links else name] for name in packed}
    assert packed.keys() >= {b"zz-hard.jpg", *filter(held_by(writer), TREE)}


def held_by(writer: str) -> Callable[[bytes], bool]:
    """Return the files that a dialect can store."""
    return lambda name: len(name) < 100 or writer.rsplit(maxsplit=1)[-1] not in {"v7", "ustar"}


@pytest.mark.parametrize("case", GOOD)
def test_odd_archives_are_read(tmp_path: Path, case: str) -> None:
    """Unusual but unambiguous archives are read with their known files."""
    content, files = GOOD[case]
    path = tmp_path / "odd.tar"
    path.write_bytes(content)
    assert read(path) == files
    for name, reader in READERS.items():
        others = reader(path)
        assert others is not None, name
        assert on_disk(others) == on_disk(files), name


@pytest.mark.parametrize("case", BAD | STRICT)
def test_damaged_archives_are_refused(tmp_path: Path, case: str) -> None:
    """Damaged or ambiguous archives raise an error that names file and byte."""
    path = tmp_path / "bad.tar"
    path.write_bytes((BAD | STRICT)[case])
    with pytest.raises(ShardFormatError, match=r"bad\.tar: at byte \d+: "):
        read(path)


@pytest.mark.parametrize("case", BAD | STRICT)
def test_others_are_at_odds_over_what_is_refused(tmp_path: Path, case: str) -> None:
    """Only archives on which other readers disagree are refused, with documented exceptions."""
    path = tmp_path / "bad.tar"
    path.write_bytes((BAD | STRICT)[case])
    readings = [reader(path) for reader in READERS.values()]
    alike = None not in readings and all(
        on_disk(reading) == on_disk(readings[0]) for reading in readings
    )
    # Of fewer than three readers, all may happen to agree.
    assert alike if case in STRICT else not alike or len(readings) < 3


@needs_gnu_tar
@pytest.mark.parametrize("dialect", ["gnu", "oldgnu"])
def test_times_in_place_of_the_prefix_are_refused(tree: Path, tmp_path: Path, dialect: str) -> None:
    """Incremental archives of GNU tar are refused, since tarfile would take their times for a
    folder.
    """
    path = tmp_path / "incremental.tar"
    options = [f"--format={dialect}", "--incremental"]
    subprocess.run(["tar", "-C", tree, *options, "-cf", path, "a.jpg", "a.cls"], check=True)
    with pytest.raises(ShardFormatError, match="readers disagree"):
        read(path)


SPARSE = {
    "gnu": "tar -S --format=gnu -cf {out} holes.bin",
    "posix 0.0": "tar -S --format=posix --sparse-version=0.0 -cf {out} holes.bin",
    "posix 0.1": "tar -S --format=posix --sparse-version=0.1 -cf {out} holes.bin",
    "posix 1.0": "tar -S --format=posix --sparse-version=1.0 -cf {out} holes.bin",
    "bsdtar": "bsdtar --read-sparse --format=pax -cf {out} holes.bin",
}


@pytest.mark.parametrize(
    "program", [name for name in SPARSE if archives.is_installed(SPARSE[name])]
)
def test_sparse_files_of_programs_are_refused_by_name(tmp_path: Path, program: str) -> None:
    """A sparse file, whose holes are not stored, is refused with its name."""
    with (tmp_path / "holes.bin").open("wb") as stream:
        stream.seek(10 << 20)
        stream.write(b"end")
    path = tmp_path / "sparse.tar"
    command = SPARSE[program].replace("{out}", str(path)).split()
    subprocess.run(command, cwd=tmp_path, check=True, env=ENVIRONMENT)
    with pytest.raises(ShardFormatError, match="sparse"):
        read(path)


@needs_gnu_tar
def test_an_appended_archive_is_read(tree: Path, tmp_path: Path) -> None:
    """Archives extended by `tar -r` and `tar -A` are read completely."""
    path, other = tmp_path / "one.tar", tmp_path / "other.tar"
    tar = ["tar", "-C", tree]
    subprocess.run([*tar, "-cf", path, "a.jpg"], check=True)
    subprocess.run([*tar, "-rf", path, "--format=posix", "a.cls"], check=True)
    subprocess.run([*tar, "-cf", other, "--format=v7", "tail.txt"], check=True)
    subprocess.run([*tar, "-Af", path, other], check=True)
    names = [b"a.jpg", b"a.cls", b"tail.txt"]
    assert read(path) == READERS["tarfile"](path) == [(name, TREE[name]) for name in names]


@needs_gnu_tar
def test_the_rest_of_a_volume_is_refused(tree: Path, tmp_path: Path) -> None:
    """A single volume of a multi-volume archive is refused."""
    tar = ["tar", "-C", tree, "-cM", "-L", "100", "--format=gnu"]
    volumes = [tmp_path / f"{number}.tar" for number in range(4)]
    files = [option for volume in volumes for option in ("-f", volume)]
    subprocess.run([*tar, *files, "sub/large.bin"], check=True)
    for volume in volumes[:3]:
        with pytest.raises(ShardFormatError):
            read(volume)


@pytest.mark.filterwarnings("ignore:.*follow the end of the archive:wids.WidsWarning")
def test_all_archives_are_indexed_or_named(tmp_path: Path) -> None:
    """Each of hundreds of archives is indexed or reported, and none stops the indexer."""
    contents = [content for content, _ in GOOD.values()] + [*BAD.values(), *STRICT.values()]
    shards = []
    for number, content in enumerate(contents):
        shards.append(str(tmp_path / f"{number}.tar"))
        Path(shards[-1]).write_bytes(content)
    built = build_spec(shards, folder=tmp_path, workers=2, digests=(), skip_broken=True)
    assert len(built.spec.shards) + len(built.failures) == len(shards)
    assert built.failures.keys() >= set(shards[len(GOOD) :])
