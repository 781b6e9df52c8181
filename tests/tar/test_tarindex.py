"""Tar indexes are built, stored, verified against their shard, and rebuilt when stale."""

import os
import pickle
import shutil
import time

import pytest
from helpers.tarbytes import END, member
from helpers.waiting import write_later

import wids
from wids.errors import ShardFormatError, WidsWarning
from wids.tar.tarindex import TarIndex
from wids.wids_mmtar import MMIndexedTar


@pytest.fixture
def shard(tmp_path):
    """Write a shard of two samples."""
    path = tmp_path / "x.tar"
    path.write_bytes(b"".join(member(n, n) for n in (b"a.cls", b"a.txt", b"b.cls", b"b.txt")) + END)
    return path


@pytest.fixture
def sidecar(tmp_path):
    """Return the path of a sidecar that does not exist yet."""
    return tmp_path / "x.tar.widx"


@pytest.mark.parametrize("first", [b"a", b"\xc3", "ä".encode()])
def test_names_of_any_bytes(tmp_path, first):
    """Keys that end and begin within a character of UTF-8 are not joined to one."""
    names = [first + b".cls", first + b".txt", b"\xa9.cls", b"zz/b.cls", b"README"]
    path = tmp_path / "x.tar"
    path.write_bytes(b"".join(member(name, b"x") for name in names) + END)
    index = TarIndex.from_tar(path)
    assert [os.fsencode(name) for name in index.names] == names
    assert [os.fsencode(key) for key in index.keys] == [first, b"\xa9", b"zz/b"]


def touch(shard, sidecar):
    """Give a shard another date; it is looked through once, then its sidecar is the newer file."""
    os.utime(shard)
    TarIndex.open(shard, sidecar)


def come_from_the_future(shard, sidecar):
    """Date a shard tomorrow, and index it."""
    sidecar.unlink()
    os.utime(shard, (time.time() + 86400,) * 2)
    TarIndex.open(shard, sidecar)


def copy_without_dates(shard, sidecar):
    """Copy first a shard, then its sidecar, as a program does that keeps no dates."""
    contents = shard.read_bytes(), sidecar.read_bytes()
    shard.unlink()
    shard.write_bytes(contents[0])
    sidecar.unlink()
    write_later(sidecar, contents[1], than=shard)


@pytest.mark.parametrize(
    "happens", [lambda *_: None, touch, come_from_the_future, copy_without_dates]
)
def test_a_sidecar_that_fits_is_used(shard, sidecar, monkeypatch, happens):
    """The first open writes the sidecar; later ones read no headers, whatever dates say."""
    first = TarIndex.open(shard, sidecar)
    happens(shard, sidecar)
    monkeypatch.setattr("wids.tar.tarindex.scan_bytes", None)
    second = TarIndex.open(shard, sidecar)
    assert second.names == first.names
    assert second.fields(1) == first.fields(1)


NAMES = [b"%03d.txt" % i for i in range(100)]  # of which a fingerprint covers only a few
OTHERS = [*NAMES[:50], b"odd.txt", *NAMES[51:]]


def packed(names):
    """Return a shard of small members."""
    return b"".join(member(name, b"x") for name in names) + END


def write_in_place(path, content, later_ns=0):
    """Write a file over, with its old date or a later one."""
    before = path.stat()
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + later_ns))


def move_an_older_one_into_place(path):
    """Replace a shard by a file that is older than it."""
    other = path.with_name("other.tar")
    other.write_bytes(packed(OTHERS))
    os.utime(other, (5, 5))
    other.replace(path)


CHANGES = {
    "another size": lambda path: path.write_bytes(packed(NAMES[:9])),
    "in place, at a later date": lambda path: write_in_place(path, packed(NAMES[::-1]), 10**9),
    "one header, under the old date": lambda path: write_in_place(path, packed(OTHERS)),
    "an older file": move_an_older_one_into_place,
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_shard_is_indexed_anew(tmp_path, sidecar, change):
    """After a shard changed, `load` refuses the sidecar and `open` replaces it."""
    path = tmp_path / "large.tar"
    path.write_bytes(packed(NAMES))
    TarIndex.open(path, sidecar)
    CHANGES[change](path)
    with pytest.raises(ShardFormatError, match="stale|was changed since"):
        TarIndex.load(sidecar, tar=path)
    names = TarIndex.open(path, sidecar).names
    assert names == TarIndex.from_tar(path).names != [name.decode() for name in NAMES]
    assert TarIndex.load(sidecar, tar=path).names == names


def test_a_member_appended_into_the_padding_is_noticed(tmp_path, sidecar):
    """A member that is appended within the padding, which keeps the size, is noticed."""
    path = tmp_path / "padded.tar"
    first = member(b"a.txt", b"x")
    path.write_bytes(first.ljust(10240, b"\0"))
    os.utime(path, ns=(10**18, 10**18))
    TarIndex.open(path, sidecar)
    shutil.copystat(path, sidecar)
    path.write_bytes((first + member(b"b.txt", b"y")).ljust(10240, b"\0"))
    os.utime(path, ns=(10**18, 10**18))
    later = tmp_path / "later.widx"  # copied after the change, so that dates tell nothing
    shutil.copy(sidecar, later)
    with pytest.raises(ShardFormatError, match="other headers"):
        TarIndex.load(later, tar=path)


def test_a_shard_that_grows_while_it_is_indexed_is_refused(shard, monkeypatch):
    """A shard that changes while it is indexed is refused."""
    from wids.tar.tarscan import scan_bytes

    def scan_while_written(source, **options):
        members = scan_bytes(source, **options)
        os.truncate(source.path, 100_000)
        return members

    monkeypatch.setattr("wids.tar.tarindex.scan_bytes", scan_while_written)
    with pytest.raises(ShardFormatError, match="that no process writes to"):
        TarIndex.from_tar(shard)


def test_pickles(shard, sidecar):
    """An index can be pickled; a mapped one is pickled as its path."""
    built = TarIndex.open(shard, sidecar)
    loaded = TarIndex.load(sidecar)
    for index in (built, loaded, pickle.loads(pickle.dumps(built))):
        copy = pickle.loads(pickle.dumps(index))
        assert (copy.names, copy.fields(1)) == (built.names, built.fields(1))
    assert len(pickle.dumps(loaded)) < 300


def test_a_sidecar_that_leaves_an_archive_out_is_not_used(shard):
    """An old sidecar that covers half of a concatenated shard is not used."""
    first = TarIndex.from_tar(shard)
    sidecar = shard.with_name("x.tar.widx")
    shard.write_bytes(shard.read_bytes() + bytes(512) + b"tape" * 128)
    with pytest.warns(WidsWarning, match="512 bytes that are no padding follow"):
        index = TarIndex.open(shard, sidecar)
    assert (index.num_samples, index.trailing_nbytes) == (first.num_samples, 512)
    content = shard.read_bytes()
    header = member(b"c.txt", b"x")[:512]
    shard.write_bytes(content[:-512] + header)
    sidecar.touch()
    with pytest.raises(ShardFormatError, match="another archive"):
        TarIndex.open(shard, sidecar)


@pytest.mark.parametrize(
    ("archive", "message"),
    [
        (member(b"a.cls", b"1") + END + b"junk" * 300, "1200 bytes that are no padding follow"),
        (member(b"a.cls", b"1") + member(b"a.txt", b"", kind=b"2"), "1 symbolic links have no"),
        (member(b"a.cls", b"1") + member(b"a.txt", b"", kind=b"1"), "1 hard links lead to no"),
    ],
    ids=["junk", "symbolic link", "hard link"],
)
def test_what_a_shard_may_lack_is_warned_of_wherever_it_is_opened(tmp_path, archive, message):
    """Datasets, indexes with and without a sidecar, shards and the old tar reader warn alike."""
    path = tmp_path / "x.tar"
    path.write_bytes(archive if b"junk" in archive else archive + END)
    openings = [
        lambda: wids.ShardListDataset([str(path)]),
        lambda: TarIndex.open(path),
        lambda: TarIndex.open(path, tmp_path / "x.widx"),
        lambda: TarIndex.open(path, tmp_path / "x.widx"),  # which is there now
        lambda: TarIndex.from_tar(path),
        lambda: wids.Shard(path),
        lambda: MMIndexedTar(path),
    ]
    for opening in openings:
        with pytest.warns(WidsWarning, match=rf"x\.tar: {message}") as caught:
            opened = opening()
        assert getattr(opened, "num_members", None) == 1 or len(opened) == 1
        assert len(caught) == 1
    path.write_bytes(member(b"a.cls", b"1") + END + member(b"b.cls", b"2") + END)
    for opening in openings:
        with pytest.raises(
            ShardFormatError, match=r"another archive.*concatenated=True reads both"
        ):
            len(opening())
