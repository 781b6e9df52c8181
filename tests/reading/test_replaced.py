"""Shards and sidecars that are replaced while they are read by range: right bytes or an error."""

import gzip
import hashlib
import io
import tarfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from helpers.server import Faults, ShardServer
from helpers.shards import tar_bytes
from helpers.sidecarbytes import sidecar_of as sidecar_at

from wids import ShardListDataset
from wids.browse.fieldreader import FieldReader
from wids.errors import (
    FetchError,
    IntegrityError,
    ShardChangedError,
    ShardFormatError,
    WidsWarning,
)
from wids.fetching.fetch import Fetcher, FetchPolicy
from wids.tar.sidecar import SIDECAR_SUFFIX

PATIENCE = FetchPolicy(backoff_seconds=0.0, attempts=3)
KEYS = [f"{number:03d}" for number in range(6)]
LONG_NAME = "ein-sehr-langer-name-" * 8


def content(version: str, name: str, nbytes: int = 900) -> bytes:
    """Return the bytes of a field, which say of which version and member they are."""
    return hashlib.shake_128(f"{version}/{name}".encode()).digest(nbytes)


def tar_of(
    version: str,
    keys: Sequence[str],
    *,
    tar_format: int = tarfile.USTAR_FORMAT,
    extensions: Sequence[str] = (".bin", ".cls"),
    nbytes: int = 900,
) -> bytes:
    """Write a shard whose fields all have one size, so that versions differ in names alone."""
    members = [key + extension for key in keys for extension in extensions]
    return files_of(version, members, nbytes, tar_format)


def files_of(
    version: str,
    members: Sequence[str],
    nbytes: int = 900,
    tar_format: int = tarfile.USTAR_FORMAT,
) -> bytes:
    """Write a shard of these members, all of one size."""
    return tar_bytes(((name, content(version, name, nbytes)) for name in members), tar_format)


def sidecar_of(tar: bytes, folder: Path) -> bytes:
    """Return the sidecar of a shard."""
    path = folder / f"{hashlib.md5(tar).hexdigest()}.tar"
    path.write_bytes(tar)
    return sidecar_at(path)


@pytest.fixture
def put(shard_server: ShardServer, tmp_path: Path) -> Callable[..., str]:
    """Returns what serves a shard, its sidecar, or both, and gives the shard's URL."""

    def serve(shard: bytes | None = None, sidecar_for: bytes | None = None) -> str:
        if shard is not None:
            shard_server.put("a.tar", shard)
        if sidecar_for is not None:
            shard_server.put(f"a.tar{SIDECAR_SUFFIX}", sidecar_of(sidecar_for, tmp_path))
        return f"{shard_server.url}/a.tar"

    return serve


def open_by_range(
    folder: Path, url: str, nsamples: int = len(KEYS), *, roomy: bool = False, **promises: Any
) -> Any:
    """Open a shard by range, with a cache that has no room for it, or has."""
    row = {"url": url, "nsamples": nsamples, **promises}
    options = {"transformations": "bytes", "cache_dir": folder}
    options |= {} if roomy else {"cache_size": 1000}
    dataset = ShardListDataset([row], remote="range", **options)
    dataset.cache.fetcher = Fetcher(PATIENCE)
    return dataset


def check(sample: dict[str, Any], versions: Sequence[str], nbytes: int = 900) -> set[str]:
    """Demand that each field is its own member's in some version; return the versions seen."""
    seen = set()
    for extension, data in sample.items():
        if extension.startswith("."):
            name = sample["__key__"] + extension
            found = [each for each in versions if content(each, name, nbytes) == bytes(data)]
            assert found, f"{name}: bytes of another member"
            seen.add(found[0])
    return seen


OLD = tar_of("old", KEYS)
NEW = tar_of("new", KEYS[::-1])
DIGESTS = {
    "nothing": {},
    "the old one": {"filesize": len(OLD), "md5sum": hashlib.md5(OLD).hexdigest()},
    "the new one": {"filesize": len(NEW), "md5sum": hashlib.md5(NEW).hexdigest()},
}


@pytest.mark.parametrize("promised", list(DIGESTS))
@pytest.mark.parametrize("kept", [False, True], ids=["sidecar beside", "sidecar kept"])
def test_members_of_the_same_sizes_in_another_order(
    put: Callable[..., str], tmp_path: Path, kept: bool, promised: str
) -> None:
    """A shard of the same sizes in another order is no sample's bytes under another key."""
    url = put(OLD, OLD)
    folder = tmp_path / "cache"
    if kept:
        with open_by_range(folder, url, **DIGESTS[promised]) as dataset:
            assert check(dataset[0], ["old"]) == {"old"}
    put(NEW)
    with open_by_range(folder, url, **DIGESTS[promised]) as dataset:
        for index in range(len(KEYS)):
            with pytest.raises(ShardChangedError, match=r"a\.tar: .*was replaced since"):
                dataset[index]
        with pytest.raises(ShardChangedError, match="was replaced since"):
            dataset.__getitems__([3, 1])
        with pytest.raises(ShardChangedError, match="was replaced since"):
            dataset.gather_bytes([3, 1], ".bin")


def at_request(shard_server: ShardServer, number: int, action: Callable[[], object]) -> None:
    """Do something before the shard is asked for the `number`-th time from now on."""
    passed = len(shard_server.requests)

    def before_answer() -> None:
        asked = [each for each in shard_server.requests[passed:] if each.path.endswith(".tar")]
        if len(asked) == number and shard_server.requests[-1] is asked[-1]:
            action()

    shard_server.before_answer = before_answer


@pytest.mark.parametrize(
    "kind",
    [
        {},
        {"dated": True},
        {"ignore_if_range": True},
        {"no_etag": True},
        {"weak": "alone"},
        {"weak": "dated"},
    ],
    ids=str,
)
def test_a_field_that_is_resumed_is_of_one_version(
    put: Callable[..., str], shard_server: ShardServer, tmp_path: Path, kind: dict[str, bool]
) -> None:
    """A large field whose connection breaks is never half the old file and half the new."""
    size = 300_000
    old, new = (tar_of(each, ["a"], extensions=[".bin"], nbytes=size) for each in ("old", "new"))
    url = put(old, old)
    with open_by_range(tmp_path / "cache", url, 1) as dataset:
        shard, place, _ = dataset.locate_sample(0)
        shard_server.requests.clear()
        shard_server.faults = faults = Faults(cut_at=100_000, **kind)

        def replace() -> None:
            put(new)
            faults.cut_at = None

        at_request(shard_server, 2, replace)
        if "no_etag" in kind:  # it comes again from its first byte
            assert check(shard.read(place), ["new"], size)
        else:
            with pytest.raises(ShardChangedError, match=r"a\.tar: the file was replaced"):
                shard.read(place)
    assert len([each for each in shard_server.requests if each.path.endswith(".tar")]) == 2


@pytest.mark.parametrize("weak", ["alone", "dated"])
def test_weak_etags_that_differ_are_of_two_files(
    put: Callable[..., str], shard_server: ShardServer, tmp_path: Path, weak: str
) -> None:
    """A weak ETag proves no two responses alike, and those with different ones are never mixed."""
    shard_server.faults = faults = Faults(weak=weak)
    with open_by_range(tmp_path / "ranges", put(OLD, OLD)) as dataset:
        assert check(dataset[0], ["old"]) == {"old"}
        put(NEW)
        with pytest.raises(ShardChangedError, match=r"a\.tar: the file was replaced"):
            dataset[1]
    # A download that breaks off is not resumed with the rest of another file.
    shard_server.requests.clear()
    faults.cut_at = 6000
    put(OLD)

    def replace() -> None:
        put(NEW)
        faults.cut_at = None

    at_request(shard_server, 2, replace)
    rows = [{"url": f"{shard_server.url}/a.tar", "nsamples": len(KEYS)}]
    with ShardListDataset(rows, transformations="bytes", cache_dir=tmp_path / "whole") as dataset:
        dataset.cache.fetcher = Fetcher(PATIENCE)
        assert {version for sample in dataset for version in check(sample, ["old", "new"])} == {
            "new"
        }


def test_a_server_need_not_repeat_its_date(
    put: Callable[..., str], shard_server: ShardServer, tmp_path: Path
) -> None:
    """An answer to If-Range that leaves out the date is of the file that the date is of."""
    size = 300_000
    old, new = (tar_of(each, ["a"], extensions=[".bin"], nbytes=size) for each in ("old", "new"))
    with open_by_range(tmp_path / "cache", put(old, old), 1) as dataset:
        dataset.locate_sample(0)
        shard_server.requests.clear()
        shard_server.faults = faults = Faults(cut_at=100_000, terse=True)
        at_request(shard_server, 2, lambda: setattr(faults, "cut_at", None))
        assert check(dataset[0], ["old"], size)
        assert check(dataset[0], ["old"], size)
        assert len(shard_server.requests) == 3
        put(new)
        with pytest.raises(ShardChangedError, match=r"a\.tar: the file was replaced"):
            dataset[0]


@pytest.mark.parametrize("filesize", [12_345, len(OLD) + 10_240])
@pytest.mark.filterwarnings("ignore:.*fetched whole:wids.errors.WidsWarning")
def test_the_size_that_the_spec_says_counts(
    put: Callable[..., str], tmp_path: Path, filesize: int
) -> None:
    """A shard and a sidecar of another size than the spec's are refused, parts of fields too."""
    with open_by_range(tmp_path / "cache", put(OLD, OLD), filesize=filesize) as dataset:
        for read in (dataset.__getitem__, dataset.locate_sample):
            with pytest.raises(IntegrityError, match=f"{len(OLD)} bytes, .* {filesize}"):
                read(0)


def test_a_server_with_a_longer_file_is_refused_at_the_first_sample(
    put: Callable[..., str], tmp_path: Path
) -> None:
    """A shard that members were appended to is not the one that was indexed."""
    put(tar_of("old", [*KEYS, *(f"{number}" for number in range(90, 99))]))
    with open_by_range(tmp_path / "cache", put(None, OLD)) as dataset:
        message = rf"a\.tar: expected a file of {len(OLD)} bytes, the server has one of \d+ bytes"
        with pytest.raises(ShardChangedError, match=message):
            dataset[0]


@pytest.mark.parametrize(
    "tar_format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]
)
def test_long_names_are_compared_to_their_end(
    put: Callable[..., str], shard_server: ShardServer, tmp_path: Path, tar_format: int
) -> None:
    """Names that need a prefix or headers of their own cost no request more, and are compared."""
    folders = "folder/" * 16 if tar_format == tarfile.USTAR_FORMAT else LONG_NAME
    keys = [f"{folders}{number}" for number in range(4)]
    old, new = (
        tar_of("old", keys, tar_format=tar_format),
        tar_of("new", keys[::-1], tar_format=tar_format),
    )
    url = put(old, old)
    with open_by_range(tmp_path / "cache", url, 4) as dataset:
        dataset[0]
        shard_server.requests.clear()
        assert dataset[2]["__key__"] == keys[2]
        assert check(dataset[2], ["old"]) == {"old"}
        assert len(shard_server.requests) == 2
        shard, place, _ = dataset.locate_sample(1)
        assert shard.read_part(place, ".cls", 3, 9) == content("old", f"{keys[1]}.cls")[3:9]
    put(new)
    with open_by_range(tmp_path / "other", url, 4) as dataset:
        for index in range(4):
            with pytest.raises(
                ShardChangedError, match=r"expected the headers of .*, found those of"
            ):
                dataset[index]


def test_hard_links_are_read_from_the_whole_shard(put: Callable[..., str], tmp_path: Path) -> None:
    """The name of a link does not stand before its data; so no range can prove it."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, target in (("a.bin", None), ("b.bin", None), ("c.bin", "a.bin")):
            member = tarfile.TarInfo(name)
            if target is None:
                member.size = 900
                archive.addfile(member, io.BytesIO(content("old", name)))
            else:
                member.type, member.linkname = tarfile.LNKTYPE, target
                archive.addfile(member)
    with open_by_range(tmp_path / "cache", put(stream.getvalue(), stream.getvalue()), 3) as dataset:
        assert check(dataset[1], ["old"])
        assert not list((tmp_path / "cache").glob("*.tar"))
        with pytest.warns(WidsWarning, match="fetched whole"):
            assert dataset[2][".bin"] == content("old", "a.bin")
        assert list((tmp_path / "cache").glob("*.tar"))


@pytest.mark.filterwarnings("ignore:.*fetched whole:wids.errors.WidsWarning")
def test_a_part_of_a_field_is_of_one_version_without_validators(
    put: Callable[..., str], shard_server: ShardServer, tmp_path: Path
) -> None:
    """Where a server says nothing by which files are known, the shard is fetched for a part."""
    size = 200_000
    tars = [
        tar_of("old", keys, extensions=[".bin"], nbytes=size) for keys in (["a", "b"], ["b", "a"])
    ]
    url = put(tars[0], tars[0])
    shard_server.faults = Faults(no_etag=True)
    right = content("old", "a.bin", size)[100_000:100_100]
    for number in range(1, 5):
        put(tars[0])
        with open_by_range(tmp_path / f"cache{number}", url, 2) as dataset:
            shard, place, _ = dataset.locate_sample(0)
            at_request(shard_server, number, lambda: put(tars[1]))
            with suppress(ShardChangedError):
                assert shard.read_part(place, ".bin", 100_000, 100_100) == right


@pytest.mark.filterwarnings("ignore:.*fetched whole:wids.errors.WidsWarning")
def test_a_part_far_inside_of_a_field_takes_no_memory_without_validators(
    put: Callable[..., str], shard_server: ShardServer, tmp_path: Path
) -> None:
    """What stands before the part is not taken into memory: the shard is fetched to the disk."""
    size = 20 << 20
    shard = tar_of("old", ["a"], extensions=[".bin"], nbytes=size)
    right = content("old", "a.bin", size)
    shard_server.faults = Faults(no_etag=True)
    with open_by_range(tmp_path / "cache", put(shard, shard), 1) as dataset:
        opened, place, _ = dataset.locate_sample(0)
        for start in (1 << 20, size - 100):
            assert opened.read_part(place, ".bin", start, start + 100) == right[start : start + 100]
    whole = [request for request in shard_server.requests if "Range" not in request.headers]
    assert {request.path for request in whole} == {f"/a.tar{SIDECAR_SUFFIX}", "/a.tar"}


@pytest.mark.parametrize("at", [0, 300, -5], ids=["magic", "span", "key"])
def test_a_kept_sidecar_that_is_damaged_is_fetched_anew(
    put: Callable[..., str], shard_server: ShardServer, tmp_path: Path, at: int
) -> None:
    """Damage in the copy of this machine costs a request, and at most an error when it is found."""
    url = put(OLD, OLD)
    with open_by_range(tmp_path / "cache", url) as dataset:
        dataset[0]
    (kept,) = (tmp_path / "cache").glob(f"*{SIDECAR_SUFFIX}")
    right = kept.read_bytes()
    wrong = bytearray(right)
    wrong[at] ^= 0xFF
    kept.write_bytes(wrong)
    shard_server.requests.clear()
    with open_by_range(tmp_path / "cache", url) as dataset:
        for index in range(len(KEYS)):
            try:
                assert dataset[index]["__key__"] == KEYS[index]
            except ShardFormatError:
                break
    with open_by_range(tmp_path / "cache", url) as dataset:
        for index in range(len(KEYS)):
            assert dataset[index]["__key__"] == KEYS[index]
            assert check(dataset[index], ["old"]) == {"old"}
    assert kept.read_bytes() == right
    asked = [request.path for request in shard_server.requests]
    assert asked.count(f"/a.tar{SIDECAR_SUFFIX}") == 1


MANY = [f"{number:03d}" for number in range(40)]
MANY_OLD = tar_of("old", MANY)
MANY_SWAPPED = tar_of("new", [MANY[0], MANY[2], MANY[1], *MANY[3:]])


@pytest.mark.filterwarnings("ignore:.*fetched whole:wids.errors.WidsWarning")
def test_a_shard_fetched_whole_that_its_sidecar_does_not_fit_is_refused(
    put: Callable[..., str], shard_server: ShardServer, tmp_path: Path
) -> None:
    """A swap of two samples, which the few headers that a fingerprint is made of do not show."""
    url = put(MANY_SWAPPED, MANY_OLD)
    shard_server.faults = Faults(ignore_range=True)
    with open_by_range(tmp_path / "cache", url, len(MANY)) as dataset:
        with pytest.raises(ShardChangedError, match="replaced"):
            dataset.gather_fields([1, 2])
        with pytest.raises(ShardChangedError, match="replaced"):
            dataset[1]


@pytest.mark.filterwarnings("ignore:.*fetched whole:wids.errors.WidsWarning")
@pytest.mark.parametrize("roomy", [False, True], ids=["without ranges", "in steady use"])
def test_a_shard_that_is_fetched_whole_numbers_its_samples_as_before(
    put: Callable[..., str], shard_server: ShardServer, tmp_path: Path, roomy: bool
) -> None:
    """After samples were served, a shard with two of them swapped is refused."""
    url = put(MANY_OLD, MANY_OLD)
    shard_server.faults = Faults(no_etag=True)
    with open_by_range(tmp_path / "cache", url, len(MANY), roomy=roomy) as dataset:
        shard, _, _ = dataset.locate_sample(0)
        while shard.nbytes_read <= len(MANY_OLD) // 2:
            dataset[0]
        put(MANY_SWAPPED)
        shard_server.faults.ignore_range = not roomy
        for read in (dataset.gather_fields, dataset.__getitems__):
            with pytest.raises(ShardChangedError, match="the shard was replaced since"):
                read([1, 2])


def test_a_shard_that_grew_with_its_spec_is_read_by_its_new_sidecar(
    put: Callable[..., str], shard_server: ShardServer, tmp_path: Path
) -> None:
    """A kept sidecar that counts other samples than the spec is fetched again, once."""
    with open_by_range(tmp_path / "cache", put(OLD, OLD)) as dataset:
        dataset[0]
    grown = tar_of("new", [*KEYS, "006", "007"])
    url = put(grown, grown)
    shard_server.requests.clear()
    for _ in range(2):
        with open_by_range(tmp_path / "cache", url, 8) as dataset:
            assert dataset[7]["__key__"] == "007"
            assert check(dataset[0], ["new"])
    asked = [request.path for request in shard_server.requests]
    assert asked.count(f"/a.tar{SIDECAR_SUFFIX}") == 1


def test_the_page_shows_one_version_of_a_sample(put: Callable[..., str], tmp_path: Path) -> None:
    """Once a field shows that the shard is new, the page shows it only after another start."""
    new = tar_of("new", KEYS)  # of the same names and sizes
    with open_by_range(tmp_path / "cache", put(OLD, OLD)) as dataset:
        reader = FieldReader(dataset, retry_seconds=0.0)
        first = reader.locate(2)
        reader.fetch_ahead([first], lambda _: [0])
        url = put(new, new)
        with pytest.raises(FetchError, match="replaced"):
            reader.read(first, 1)
        with pytest.raises(ShardChangedError, match="start it again"):
            reader.locate(2)
    with open_by_range(tmp_path / "cache", url) as dataset:
        reader = FieldReader(dataset, retry_seconds=0.0)
        read = [bytes(reader.read(reader.locate(2), number)) for number in (0, 1)]
    assert read == [content("new", f"{KEYS[2]}{extension}") for extension in (".bin", ".cls")]


@pytest.mark.filterwarnings("ignore:.*fetched whole:wids.errors.WidsWarning")
def test_a_compressed_shard_with_a_sidecar_is_fetched_whole(
    shard_server: ShardServer, tmp_path: Path
) -> None:
    """The places in a sidecar are those in the unpacked tar."""
    url = shard_server.put("a.tgz", gzip.compress(OLD))
    shard_server.put(f"a.tgz{SIDECAR_SUFFIX}", sidecar_of(OLD, tmp_path))
    with open_by_range(tmp_path / "cache", f"{url}?token=1") as dataset:
        assert dataset[3]["__key__"] == KEYS[3]
        assert check(dataset[3], ["old"]) == {"old"}
        assert FieldReader(dataset).locate(4).key == KEYS[4]


def test_a_column_is_kept_for_the_version_that_it_is_of(
    put: Callable[..., str], shard_server: ShardServer, tmp_path: Path
) -> None:
    """A spec that is newer than the shard on the server does not keep the old column for good."""
    new = tar_of("new", KEYS)  # of the same names and sizes
    folder = tmp_path / "cache"
    promised = {"filesize": len(new), "md5sum": hashlib.md5(new).hexdigest()}

    def labels(remote: str) -> list[bytes]:
        row = {"url": f"{shard_server.url}/a.tar", "nsamples": len(KEYS), **promised}
        with ShardListDataset([row], remote=remote, cache_dir=folder) as dataset:
            return [bytes(value) for value in dataset.column(".bin")]

    for version, tar in (("old", OLD), ("new", new)):
        put(tar, tar)
        expected = [content(version, f"{key}.bin") for key in KEYS]
        for asked in (None, 1):
            shard_server.requests.clear()
            assert labels("range") == expected
            assert asked in (None, len(shard_server.requests))
    assert labels("whole") == expected


# Of one size each, and alike up to the third sample.
PLAIN = ["0.bin", "1.bin", "2.bin", "2.cls", "3.bin", "4.bin"]
MORE_BEHIND = ["0.bin", "1.bin", "1.txt", "2.bin", "3.bin", "4.bin"]
MORE_BEFORE = ["0.bin", "1.aaa", "1.bin", "2.bin", "3.bin", "4.bin"]
MORE_AT_THE_END = ["0.bin", "1.bin", "2.bin", "2.cls", "3.bin", "4.bin", "4.txt"]
LESS = ["0.bin", "1.bin", "2.bin", "3.bin", "4.bin", "4.cls"]


@pytest.mark.filterwarnings("ignore:.*fetched whole:wids.errors.WidsWarning")
@pytest.mark.parametrize(
    ("there", "index"), [(MORE_BEHIND, 1), (MORE_BEFORE, 1), (MORE_AT_THE_END, 4), (LESS, 2)]
)
@pytest.mark.parametrize(
    "read",
    [
        lambda dataset, index: dataset[index],
        lambda dataset, index: dataset.__getitems__([index, 0]),
        lambda dataset, index: dataset.gather_fields([index]),
        lambda dataset, index: dataset.locate_sample(index)[0].read_part(index, ".bin", 5, 6),
        lambda dataset, index: dataset.locate_sample(index)[0].read(index, {".bin", ".txt"}),
    ],
    ids=["sample", "batch", "gathered", "part", "fields"],
)
def test_a_field_more_or_less_is_never_silent(
    put: Callable[..., str],
    shard_server: ShardServer,
    tmp_path: Path,
    there: list[str],
    index: int,
    read: Callable[[Any, int], Any],
) -> None:
    """A stale sidecar is noticed at each sample that has other fields than it says."""
    old, new = files_of("new", PLAIN), files_of("new", there)
    nbytes = max(len(old), len(new))
    put(new.ljust(nbytes, b"\0"), old.ljust(nbytes, b"\0"))
    with open_by_range(tmp_path / "cache", f"{shard_server.url}/a.tar", 5) as dataset:
        assert check(dataset[0], ["new"]) == {"new"}
        for _ in range(2):
            with pytest.raises(ShardChangedError, match=r"a\.tar: .*was replaced"):
                read(dataset, index)
