"""`ShardCache`: where files lie, who may write there, what is kept and what goes."""

import dataclasses
import errno
import hashlib
import json
import mmap
import os
import shutil
import signal
import socket
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from helpers.cache_worker import held_nbytes
from helpers.downloads import MD5, QUICK, SHARD, leftovers, tar_of
from helpers.interpreters import run_python
from helpers.server import Faults, ShardServer

from wids import ShardListDataset
from wids.base.files import new_part_path
from wids.base.shardref import ShardRef, Version
from wids.caching.cache import ShardCache
from wids.caching.cachefolder import Entry
from wids.errors import CacheError, FetchError, IntegrityError, WidsError
from wids.fetching.fetch import Fetcher, FetchPolicy
from wids.fetching.partfile import PartFile

NOBODY = 65534


# Local shards


@pytest.mark.parametrize("form", ["{}", "file://{}", "file://localhost{}", "file:{}"])
def test_local_shards_are_used_where_they_lie(cache: ShardCache, tmp_path: Path, form: str) -> None:
    """A local path is returned unchanged, without copy, lock and folder."""
    path = tmp_path / "a b.tar"
    path.write_bytes(SHARD)
    url = form.format(str(path).replace(" ", "%20") if form != "{}" else path)
    assert cache.get(ShardRef.of(url, filesize=len(SHARD))) == path
    assert not cache.cache_dir.exists()


def test_a_missing_local_shard_is_named(cache: ShardCache) -> None:
    """A path without a file is an error that names it."""
    with pytest.raises(FetchError, match=r"/no/such\.tar: No such file"):
        cache.get("/no/such.tar")


def test_a_local_shard_of_another_size_is_refused(cache: ShardCache, tmp_path: Path) -> None:
    """The spec's filesize counts for local shards too."""
    path = tmp_path / "a.tar"
    path.write_bytes(SHARD)
    with pytest.raises(IntegrityError, match=f"{len(SHARD)} bytes, the spec says 7") as caught:
        cache.get(ShardRef.of(str(path), filesize=7))
    assert "create the spec again" in str(caught.value)
    assert "kept" not in str(caught.value)  # nothing was fetched, and the file stays
    assert path.read_bytes() == SHARD


# Names


def test_equal_base_names_do_not_collide(cache: ShardCache, shard_server: ShardServer) -> None:
    """URLs that differ in folder or query get different files with readable names."""
    other = tar_of(100, seed=5)
    first = cache.get(shard_server.put("x/a.tar", SHARD))
    second = cache.get(shard_server.put("y/a.tar", other))
    third = cache.get(f"{shard_server.url}/y/a.tar?version=2")
    assert len({first, second, third}) == 3
    assert first.read_bytes() == SHARD
    assert second.read_bytes() == third.read_bytes() == other
    assert all(path.name.endswith("-a.tar") for path in (first, second, third))


@pytest.mark.parametrize(
    "path",
    ["a" * 3000 + ".tar", "..%2F..%2Fetc.tar", "ä ö.tar", ".hidden.tar", "%00x.tar", "x;y.tar"],
)
def test_no_url_leaves_the_folder(cache: ShardCache, shard_server: ShardServer, path: str) -> None:
    """Any URL gives a plain file name in the cache folder."""
    got = cache.get(shard_server.put(path, SHARD))
    assert got.parent == cache.cache_dir
    assert len(got.name) < 120
    assert set(got.name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def test_a_new_digest_means_a_new_shard(cache: ShardCache, shard_server: ShardServer) -> None:
    """Another md5 for the same URL makes the cache fetch the shard again."""
    url = shard_server.put("a.tar", SHARD)
    cache.get(ShardRef.of(url, md5sum=MD5))
    new = tar_of(100, seed=6)
    shard_server.put("a.tar", new)
    assert cache.get(ShardRef.of(url, md5sum=hashlib.md5(new).hexdigest())).read_bytes() == new
    assert cache.get(ShardRef.of(url, md5sum=MD5.upper())).read_bytes() == SHARD


# The folder


def test_the_folder_is_chosen_by_argument_environment_and_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """cache_dir wins over WIDS_CACHE, which wins over the user's cache folder."""
    monkeypatch.setenv("WIDS_CACHE", str(tmp_path / "environment"))
    assert ShardCache(str(tmp_path / "argument")).cache_dir == tmp_path / "argument"
    assert ShardCache().cache_dir == tmp_path / "environment"
    monkeypatch.delenv("WIDS_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    assert ShardCache().cache_dir == tmp_path / "user" / "wids"


@pytest.mark.parametrize("mode", [0o770, 0o777, 0o1777, 0o702])
def test_a_folder_that_others_can_write_to_is_refused(
    cache: ShardCache, shard_server: ShardServer, mode: int
) -> None:
    """A folder that others can write to is refused by name, and nothing is fetched."""
    cache.cache_dir.mkdir()
    cache.cache_dir.chmod(mode)
    with pytest.raises(CacheError, match=rf"{cache.cache_dir}.*chmod go-w.*shared=True"):
        cache.get(shard_server.put("a.tar", SHARD))
    assert shard_server.requests == []


def test_a_folder_below_a_writable_one_is_refused(
    tmp_path: Path, shard_server: ShardServer
) -> None:
    """A folder whose parent others can write to is refused."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(CacheError, match=r"chmod o-w or \+t"):
        ShardCache(tmp_path / "open" / "cache").get(shard_server.put("a.tar", SHARD))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_another_users_folder_is_refused(cache: ShardCache, shard_server: ShardServer) -> None:
    """A folder of another user is refused."""
    cache.cache_dir.mkdir()
    os.chown(cache.cache_dir, NOBODY, NOBODY)
    with pytest.raises(CacheError, match=f"belongs to user {NOBODY}, not to you"):
        cache.get(shard_server.put("a.tar", SHARD))


def test_a_file_in_place_of_the_folder_is_named(tmp_path: Path, shard_server: ShardServer) -> None:
    """A cache folder must be a folder."""
    (tmp_path / "cache").write_bytes(b"")
    with pytest.raises(CacheError, match="is not a folder"):
        ShardCache(tmp_path / "cache").get(shard_server.put("a.tar", SHARD))


OTHER_KINDS: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "link to itself": lambda path: path.symlink_to(path.name),
    "link to a folder": lambda path: path.symlink_to("."),
    "link to another file": lambda path: path.symlink_to("other.tar"),
}


@pytest.mark.parametrize("kind", OTHER_KINDS)
@pytest.mark.parametrize("recorded", [True, False])
def test_what_is_no_file_gives_way_to_the_shard(
    cache: ShardCache, shard_server: ShardServer, kind: str, recorded: bool
) -> None:
    """A pipe or link in place of a shard is replaced without waiting, and its target stays."""
    url = shard_server.put("a.tar", SHARD)
    path = cache.get(url)
    other = path.with_name("other.tar")
    other.write_bytes(tar_of(100, seed=5))
    cache.close()
    path.unlink()
    if not recorded:
        path.with_name(path.name + ".ok").unlink()
    OTHER_KINDS[kind](path)
    assert cache.get(url).read_bytes() == SHARD
    assert (path.is_symlink(), path.is_file()) == (False, True)
    assert other.read_bytes() == tar_of(100, seed=5)
    assert len(shard_server.requests) == 2


@pytest.mark.parametrize("folder", ["s3://bucket/cache", "//me:secret@host/cache", "http:/host/c"])
def test_a_url_is_refused_as_cache_folder(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A URL as cache folder is refused."""
    with pytest.raises(CacheError, match="is a URL; set cache_dir or WIDS_CACHE") as caught:
        ShardCache(folder)
    assert "secret" not in str(caught.value)
    monkeypatch.setenv("WIDS_CACHE", folder)
    with pytest.raises(CacheError, match="is a URL"):
        ShardCache()


def test_a_folder_in_the_place_of_a_shard_is_named(
    cache: ShardCache, shard_server: ShardServer
) -> None:
    """A folder in place of a shard raises an error before anything is fetched."""
    url = shard_server.put("a.tar", SHARD)
    path = cache.get(url)
    path.unlink()
    path.mkdir()
    with pytest.raises(CacheError, match="expected a shard, found a folder") as caught:
        cache.get(url)
    assert str(caught.value).startswith(f"{url}: {path}: ")
    assert len(shard_server.requests) == 1


READ_ONLY = """
import encodings.ascii, filelock, os, sys
import requests
from wids.base.files import new_part_path
from wids.base.shardref import ShardRef
from wids.caching.cache import ShardCache
cache = ShardCache(sys.argv[1])
cache.make_ready([sys.argv[3]])
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
for url in sys.argv[3:]:
    print(len(cache.get(ShardRef.of(url, md5sum=sys.argv[2])).read_bytes()), flush=True)
"""


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that every user can reach."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755)
    shutil.rmtree(folder)


def test_a_read_only_cache_serves_what_it_holds(
    public_folder: Path, shard_server: ShardServer
) -> None:
    """A cached shard is returned from a read-only folder; another is an error with its name."""
    urls = [shard_server.put(name, SHARD) for name in ("a.tar", "b.tar")]
    with closing(ShardCache(public_folder)) as cache:
        cache.get(ShardRef.of(urls[0], md5sum=MD5))
    for path in [public_folder, *public_folder.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    done = run_python("-c", READ_ONLY, public_folder, MD5, *urls)
    assert done.stdout == f"{len(SHARD)}\n"
    assert len(shard_server.requests) == 1
    assert "wids.errors.CacheError" in done.stderr
    assert "Permission denied" in done.stderr
    assert str(public_folder) in done.stderr


# Finding damage


DAMAGE: dict[str, Callable[[Path], object]] = {
    "cut": lambda path: os.truncate(path, 1000),
    "overwritten": lambda path: path.write_bytes(b"x" * len(SHARD)),
    "emptied": lambda path: path.write_bytes(b""),
    "record gone": lambda path: path.with_name(path.name + ".ok").unlink(),
    "record is nonsense": lambda path: path.with_name(path.name + ".ok").write_text("[1, {"),
    "record is another": lambda path: path.with_name(path.name + ".ok").write_text('{"size": 1}'),
    "exchanged": lambda path: path.write_bytes(tar_of(100, seed=9)),
    "record is deep": lambda path: record_of(path).write_text("[" * 100_000),
    "record is a pipe": lambda path: (record_of(path).unlink(), os.mkfifo(record_of(path))),
    "no digests": lambda path: change_record(path, digests=5),
    "digests in a list": lambda path: change_record(path, digests=["md5"]),
    "an unknown digest": lambda path: change_record(path, digests={"best": "ab"}),
    "size in words": lambda path: change_record(path, size="large"),
}


def record_of(path: Path) -> Path:
    """Return where the record of a cached shard lies."""
    return path.with_name(path.name + ".ok")


def change_record(path: Path, **fields: object) -> None:
    """Exchange fields of a shard's record, its date too, so that the digest is asked for."""
    fields = {**json.loads(record_of(path).read_text()), "mtime_ns": 0, **fields}
    record_of(path).write_text(json.dumps(fields))


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_fetched_anew(
    cache: ShardCache, shard_server: ShardServer, damage: str
) -> None:
    """A file that differs from its record is fetched again."""
    url = shard_server.put("a.tar", SHARD)
    path = cache.get(url)
    cache.close()  # or the record is written once more when the disk has the shard
    DAMAGE[damage](path)
    assert cache.get(url).read_bytes() == SHARD
    assert len(shard_server.requests) == 2


def test_a_copied_cache_is_believed_by_its_digests(
    cache: ShardCache, tmp_path: Path, shard_server: ShardServer
) -> None:
    """A copied folder without dates is used after its digests are checked."""
    url = shard_server.put("a.tar", SHARD)
    path = cache.get(url)
    os.utime(path, (1, 1))
    assert cache.get(url).read_bytes() == SHARD
    assert len(shard_server.requests) == 1


def test_verify_finds_silent_damage(cache: ShardCache, shard_server: ShardServer) -> None:
    """`verify` finds changed bytes under the same size and date."""
    good = cache.get(shard_server.put("a.tar", SHARD))
    bad = cache.get(shard_server.put("b.tar", SHARD))
    before = bad.stat()
    bad.write_bytes(SHARD[:-1] + b"x")
    os.utime(bad, ns=(before.st_atime_ns, before.st_mtime_ns))
    cache.close()
    assert [shard.path for shard in cache.verify()] == [bad]
    assert good.exists()
    assert not bad.exists()


# Bounds


def fetch_many(cache: ShardCache, server: ShardServer, count: int) -> list[Path]:
    """Fetch shards of one size under different names, one after the other."""
    paths = [cache.get(server.put(f"{number}.tar", SHARD)) for number in range(count)]
    cache.close()
    return paths


def test_a_used_shard_stays_longer(tmp_path: Path, shard_server: ShardServer) -> None:
    """The least recently used shard is evicted, not the oldest."""
    cache = ShardCache(tmp_path / "cache", cache_size=3 * len(SHARD) + 20_000)
    first, second, _ = fetch_many(cache, shard_server, 3)
    os.utime(second.with_name(second.name + ".ok"), (1e9, 1e9))
    cache.get(f"{shard_server.url}/0.tar")
    cache.get(shard_server.put("9.tar", SHARD))
    assert first.exists()
    assert not second.exists()


@pytest.mark.parametrize(("claimed", "lost_nbytes"), [(2**62, 0), (10**9, 9 << 20)])
def test_a_false_size_evicts_next_to_nothing(
    tmp_path: Path, shard_server: ShardServer, claimed: int, lost_nbytes: int
) -> None:
    """A false stated size evicts few shards, since room is made as bytes come."""
    bound = 45 * len(SHARD)
    cache = ShardCache(tmp_path / "cache", cache_size=bound, fetcher=Fetcher(QUICK))
    fetch_many(cache, shard_server, 43)
    before = held_nbytes(cache.cache_dir)
    url = shard_server.put("false.tar", SHARD)
    shard_server.faults = Faults(length=claimed, ignore_range=True)
    with pytest.raises((CacheError, FetchError), match=r"false\.tar|no space"):
        cache.get(url)
    assert before - held_nbytes(cache.cache_dir) <= lost_nbytes


def test_an_open_shard_outlives_what_takes_its_place(
    cache: ShardCache, shard_server: ShardServer
) -> None:
    """A reader of an open shard continues after its file is replaced."""
    url = shard_server.put("a.tar", SHARD)
    path = cache.get(url)
    cache.close()  # the record is not written again, once the disk has the shard
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        path.with_name(f"{path.name}.ok").unlink()
        other = shard_server.put("a.tar", tar_of(3)[:-512])
        assert cache.get(other).stat().st_size < len(SHARD)
        assert mapped[:] == SHARD


def test_a_shard_just_given_to_another_thread_is_not_evicted(
    tmp_path: Path, shard_server: ShardServer
) -> None:
    """A shard is not evicted between `get` and the opening of its file."""
    cache = ShardCache(tmp_path / "cache", cache_size=1000)
    given, done = threading.Event(), threading.Event()
    found: list[bool] = []

    def reader() -> None:
        path = cache.get(shard_server.put("a.tar", SHARD))
        given.set()
        done.wait()
        found.append(path.exists())

    thread = threading.Thread(target=reader)
    thread.start()
    given.wait()
    cache.get(shard_server.put("b.tar", SHARD))
    done.set()
    thread.join()
    assert found == [True]


def test_what_a_forked_process_was_not_given_is_evicted(
    tmp_path: Path, shard_server: ShardServer
) -> None:
    """A worker that was forked between two shards does not keep the first one, nor does it free it.

    It lives on and reads nothing, as a process that writes logs does.
    """
    cache = ShardCache(tmp_path / "cache")
    path = cache.get(shard_server.put("a.tar", SHARD))
    ended, end = os.pipe()
    if (idle := os.fork()) == 0:
        os.close(end)
        os.read(ended, 1)
        os._exit(0)
    if (brief := os.fork()) == 0:
        cache.close()
        os._exit(0)
    os.waitpid(brief, 0)
    try:
        ShardCache(tmp_path / "cache").trim(0)
        assert path.exists()
        cache.close()
        ShardCache(tmp_path / "cache").trim(0)
        assert not path.exists()
    finally:
        os.close(end)
        os.close(ended)
        os.waitpid(idle, 0)


def test_keep_pins(tmp_path: Path, shard_server: ShardServer) -> None:
    """A shard that a cache with keep=True returned is never evicted."""
    early = ShardCache(tmp_path / "cache").get(shard_server.put("0.tar", SHARD))
    keeping = ShardCache(tmp_path / "cache", keep=True)
    kept = [keeping.get(shard_server.put(f"{number}.tar", SHARD)) for number in range(3)]
    assert kept[0] == early
    keeping.close()
    bounded = ShardCache(tmp_path / "cache", cache_size=1000)
    for number in range(5, 8):
        bounded.get(shard_server.put(f"{number}.tar", SHARD))
    assert all(path.exists() for path in kept)
    bounded.close()
    bounded.clear()
    assert leftovers(bounded) == []


def test_a_sidecar_goes_with_its_shard(tmp_path: Path, shard_server: ShardServer) -> None:
    """What lies beside a shard counts to the bound and is evicted with it."""
    cache = ShardCache(tmp_path / "cache", cache_size=2 * len(SHARD))
    url = shard_server.put("a.tar", SHARD)
    sidecar = cache.sidecar_path(url, cache.get(url), ".idx")
    assert sidecar is not None
    sidecar.write_bytes(bytes(len(SHARD)))
    path = cache.get(shard_server.put("b.tar", SHARD))
    assert not sidecar.exists()
    assert leftovers(cache) == [path.name, f"{path.name}.ok"]


# Sidecars


def test_sidecars_of_local_shards_lie_in_the_cache(cache: ShardCache, tmp_path: Path) -> None:
    """A shard used in place has its sidecar in the cache folder, until the shard changes."""
    path = tmp_path / "a.tar"
    path.write_bytes(SHARD)
    first = cache.sidecar_path(str(path), path, ".idx")
    assert first is not None
    assert first.parent == cache.cache_dir
    assert first.name.endswith("-a.tar.idx")
    assert cache.sidecar_path(str(path), path, ".idx") == first
    os.utime(path, (5, 5))
    assert cache.sidecar_path(str(path), path, ".idx") != first


def test_a_sidecar_beside_a_local_shard_is_found(cache: ShardCache, tmp_path: Path) -> None:
    """What the user put beside the shard is used."""
    path = tmp_path / "a.tar"
    path.write_bytes(SHARD)
    beside = tmp_path / "a.tar.idx"
    beside.write_bytes(b"")
    assert cache.sidecar_path(str(path), path, ".idx") == beside
    assert not cache.cache_dir.exists()


def test_local_shards_need_no_usable_folder(
    cache: ShardCache, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the cache folder is not safe, a local dataset works on without sidecars."""
    path = tmp_path / "a.tar"
    path.write_bytes(SHARD)
    cache.cache_dir.mkdir()
    cache.cache_dir.chmod(0o777)
    assert cache.sidecar_path(str(path), path, ".idx") is None
    assert "its sidecar cannot be cached" in caplog.text


# localname


def test_localname_names_where_to_fetch_to(tmp_path: Path, shard_server: ShardServer) -> None:
    """A missing file is fetched to the path of `localname`, checked and used there."""
    cache = ShardCache(
        tmp_path / "cache", localname=lambda url: tmp_path / "mine" / url.rpartition("/")[2]
    )
    url = shard_server.put("a.tar", SHARD)
    for _ in range(2):
        assert cache.get(ShardRef.of(url, md5sum=MD5)) == tmp_path / "mine" / "a.tar"
    assert len(shard_server.requests) == 1
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["a.tar"]
    with pytest.raises(IntegrityError):
        cache.get(ShardRef.of(shard_server.put("b.tar", SHARD), md5sum="0" * 32))
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["a.tar"]


# Full disks


@pytest.mark.parametrize("announced", [True, False])
def test_a_full_disk_is_a_clear_error(
    small_disk: Path, shard_server: ShardServer, announced: bool
) -> None:
    """The error has path, needed and free bytes; cached shards stay."""
    cache = ShardCache(small_disk / "cache", fetcher=Fetcher(QUICK))
    first = cache.get(shard_server.put("a.tar", SHARD))
    large = tar_of(1500)
    shard_server.faults = Faults(chunked=not announced, ignore_range=not announced)
    with pytest.raises(CacheError, match=r"no space for a shard .* bytes are free") as caught:
        cache.get(f"{shard_server.put('b.tar', large)}?signature=secret")
    assert str(caught.value).startswith(f"{shard_server.url}/b.tar?...: {cache.cache_dir}: ")
    assert (str(len(large)) in str(caught.value)) == announced
    assert leftovers(cache) == [first.name, f"{first.name}.ok"]
    assert cache.get(f"{shard_server.url}/a.tar").read_bytes() == SHARD


def test_a_full_quota_that_only_closing_tells_is_the_same_error(
    cache: ShardCache, shard_server: ShardServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS may tell of it when a file is closed; nothing is left in the cache."""
    url, real_close = shard_server.put("a.tar", SHARD), os.close

    def close(descriptor: int) -> None:
        is_shard = os.fstat(descriptor).st_size == len(SHARD)
        real_close(descriptor)
        if is_shard:
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    with monkeypatch.context() as patch:
        patch.setattr(os, "close", close)
        with pytest.raises(CacheError, match=r"no space for a shard .*quota"):
            cache.get(url)
    assert leftovers(cache) == []
    assert cache.get(url).read_bytes() == SHARD


def test_a_folder_that_is_removed_is_made_anew(
    cache: ShardCache, shard_server: ShardServer
) -> None:
    """Fetching continues after the cache folder was removed."""
    url = shard_server.put("a.tar", SHARD)
    cache.get(url)
    cache.close()
    shutil.rmtree(cache.cache_dir)
    assert cache.get(url).read_bytes() == SHARD


def test_a_folder_is_safe_whatever_the_umask(tmp_path: Path, shard_server: ShardServer) -> None:
    """With a umask of 0, no folder is made that others can write to."""
    before = os.umask(0)
    try:
        cache = ShardCache(tmp_path / "new" / "folders" / "cache")
        assert cache.get(shard_server.put("a.tar", SHARD)).read_bytes() == SHARD
    finally:
        os.umask(before)
    made = [cache.cache_dir, cache.cache_dir.parent, cache.cache_dir.parent.parent]
    assert [stat.S_IMODE(path.stat().st_mode) for path in made] == [0o700, 0o755, 0o755]


# Leftovers


def leave_part(cache: ShardCache, url: str, data: bytes, validator: str | None) -> Path:
    """Leave what a process leaves that is killed in the middle of a download."""
    if (process := os.fork()) == 0:
        cache.cache_dir.mkdir(exist_ok=True, mode=0o700)
        path = Entry.of(cache.cache_dir, url, "").path
        part = PartFile(new_part_path(path), ShardRef("a"))
        part.begin(Version(nbytes=len(SHARD), validator=validator))
        part.append(data)
        part.tail(0)  # written out
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(process, 0)
    (left,) = (path for path in cache.cache_dir.iterdir() if path.suffix == ".part")
    return left


def test_a_killed_download_is_resumed(cache: ShardCache, shard_server: ShardServer) -> None:
    """The part of a killed process is continued if the server has the same file."""
    url = shard_server.put("a.tar", SHARD)
    leave_part(cache, url, SHARD[:200_000], f'"{MD5}"')
    path = cache.get(url)
    assert path.read_bytes() == SHARD
    assert shard_server.nbytes < 70_000
    assert leftovers(cache) == [path.name, f"{path.name}.ok"]


@pytest.mark.parametrize("validator", ['"of an older file"', None])
def test_a_part_of_another_file_is_thrown_away(
    cache: ShardCache, shard_server: ShardServer, validator: str | None
) -> None:
    """A part that may belong to another file is discarded."""
    url = shard_server.put("a.tar", SHARD)
    leave_part(cache, url, tar_of(100, seed=3)[:200_000], validator)
    path = cache.get(url)
    assert path.read_bytes() == SHARD
    assert leftovers(cache) == [path.name, f"{path.name}.ok"]


def test_a_living_process_keeps_its_part(cache: ShardCache, shard_server: ShardServer) -> None:
    """Without locks, two downloads of one shard use different files."""
    url = shard_server.put("a.tar", SHARD)
    part = leave_part(cache, url, SHARD[:1000], f'"{MD5}"')
    words = part.name.split(".")
    words[-4] = str(os.getppid())
    living = part.rename(part.with_name(".".join(words)))
    assert cache.get(url).read_bytes() == SHARD
    assert living.stat().st_size == 1000


def test_old_parts_are_swept(cache: ShardCache, shard_server: ShardServer) -> None:
    """Abandoned parts are removed by the next process that fetches."""
    part = leave_part(cache, shard_server.put("a.tar", SHARD), SHARD[:1000], '"x"')
    os.utime(part, (1e9, 1e9))
    os.utime(part.with_name(part.name + ".json"), (1e9, 1e9))
    path = cache.get(shard_server.put("b.tar", SHARD))
    assert leftovers(cache) == [path.name, f"{path.name}.ok"]


@pytest.mark.parametrize(("validator", "kept"), [('"x"', True), (None, False)])
def test_a_part_is_kept_as_long_as_its_download_may_go_on(
    cache: ShardCache, shard_server: ShardServer, validator: str | None, kept: bool
) -> None:
    """The part of a killed process stays only if a changed file would be noticed."""
    part = leave_part(cache, shard_server.put("a.tar", SHARD), SHARD[:1000], validator)
    cache.get(shard_server.put("b.tar", SHARD))
    assert part.exists() == kept


def test_trim_and_clear_leave_what_they_say(cache: ShardCache, shard_server: ShardServer) -> None:
    """`trim` evicts down to a bound, `clear` removes everything."""
    paths = fetch_many(cache, shard_server, 4)
    assert cache.trim(2 * len(SHARD) + 20_000) == 0
    assert [path.exists() for path in paths] == [False, False, True, True]
    specs = cache.cache_dir / "specs"
    specs.mkdir()
    (specs / f"{'0a' * 16}.columns").write_bytes(b"kept")
    cache.clear()
    assert leftovers(cache) == []
    assert list(specs.iterdir()) == []


def test_clearing_takes_nothing_that_is_not_the_caches(tmp_path: Path) -> None:
    """`clear` keeps files that the cache did not make."""
    names = ["a.tar", "specs/train.json", "specs/a.columns", "specs/old/b.json", ".hidden.part"]
    for name in names:
        path = tmp_path / "mine" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"mine")
    ShardCache(tmp_path / "mine").clear()
    assert all((tmp_path / "mine" / name).read_bytes() == b"mine" for name in names)


def test_an_unused_cache_can_be_listed(cache: ShardCache) -> None:
    """Listing a missing folder gives nothing, and does not make it."""
    assert cache.shards() == cache.verify() == []
    assert cache.trim(0) == 0
    cache.clear()
    assert not cache.cache_dir.exists()


# Failing disks


def test_a_shard_that_the_disk_cannot_keep_is_fetched_anew(
    cache: ShardCache,
    shard_server: ShardServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """If writing back fails after a shard was returned, it is fetched again."""
    url = shard_server.put("a.tar", SHARD)

    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        path = cache.get(url)
        cache.close()
    assert "cannot be flushed to the disk" in caplog.text
    assert path.read_bytes() == SHARD
    assert cache.get(url).read_bytes() == SHARD
    assert len(shard_server.requests) == 2


POWER_CUTS = {
    "nothing lost": lambda path: None,
    "end lost": lambda path: os.truncate(path, len(SHARD) // 2),
    "blocks zeroed": lambda path: overwrite(path, 4096, bytes(8192)),
    "all zeroed": lambda path: overwrite(path, 0, bytes(len(SHARD))),
    "record empty": lambda path: os.truncate(path.with_name(path.name + ".ok"), 0),
    "record lost": lambda path: path.with_name(path.name + ".ok").unlink(),
    "shard lost": lambda path: path.unlink(),
}


def overwrite(path: Path, offset: int, data: bytes) -> None:
    """Change bytes as a lost write leaves them: size and date stay."""
    before = path.stat()
    with path.open("r+b") as stream:
        stream.seek(offset)
        stream.write(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def set_boot(path: Path, boot: str) -> None:
    """Have the record of a shard say in which boot it was written, as if the disk lacked it."""
    entry = Entry(path.parent, path.name)
    record = entry.load_record()
    assert record is not None
    assert record.boot == ""
    entry.save_record(dataclasses.replace(record, boot=boot), used=False)


@pytest.mark.parametrize("cut", POWER_CUTS)
def test_a_power_cut_serves_no_wrong_byte(
    cache: ShardCache, shard_server: ShardServer, cut: str
) -> None:
    """A shard that was perhaps not written before a power cut is checked after the boot."""
    url = shard_server.put("a.tar", SHARD)
    path = cache.get(url)
    cache.close()
    set_boot(path, "an earlier boot")  # the power went before the disk had it
    POWER_CUTS[cut](path)
    after = ShardCache(cache.cache_dir, fetcher=cache.fetcher)
    assert after.get(url).read_bytes() == SHARD
    assert len(shard_server.requests) == (1 if cut == "nothing lost" else 2)


# Processes


def test_threads_fetch_a_shard_once(cache: ShardCache, shard_server: ShardServer) -> None:
    """Sixteen threads that need one shard make one request."""
    url = shard_server.put("a.tar", SHARD)
    shard_server.faults = Faults(rate=2e6)
    found: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: found.append(cache.get(url).read_bytes()))
        for _ in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [SHARD] * 16
    assert len(shard_server.requests) == 1


ODD_URLS = [
    "s3://b%60/k`",
    "~nouser/x.tar",
    "az://[c/k",
    "file:///%00a",
    "http://[::1/a.tar",
    "http://host:99999/a",
    "file://[x/a",
    "http://\x00/a.tar",
    "http://\ud800/a.tar",
    "/tmp/\ud800.tar",
]


@pytest.mark.filterwarnings("ignore:.*are fetched whole:wids.WidsWarning")
@pytest.mark.usefixtures("no_waits")
@pytest.mark.parametrize("url", ODD_URLS)
def test_an_odd_location_is_an_error_of_ours(tmp_path: Path, url: str, monkeypatch) -> None:
    """Odd locations raise our errors only."""

    def resolve(host: str, *_: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, f"no host {host!r}")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)  # as servers of names do, some of them late
    policy = FetchPolicy(attempts=1, connect_timeout_seconds=2.0, stall_timeout_seconds=2.0)
    cache = ShardCache(tmp_path / "cache", fetcher=Fetcher(policy))
    with pytest.raises(WidsError):
        cache.get(url)
    assert not cache.holds(url)
    assert not list(cache.cache_dir.rglob("*.part"))
    with pytest.raises(WidsError):
        cache.fetcher.read_ranges(url, [(0, 5)])
    with pytest.raises(WidsError):
        ShardListDataset([url], cache_dir=tmp_path / "cache")
