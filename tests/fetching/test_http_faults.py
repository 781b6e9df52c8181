"""Every way a server can fail: the shard comes right, or a clear error does; never a wrong byte."""

import hashlib
import time
from dataclasses import replace
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from helpers.downloads import IMPATIENT, MD5, QUICK, SEGMENTS, SHARD, leftovers, tar_of
from helpers.server import Faults, ShardServer

from wids.base.shardref import ShardRef
from wids.caching.cache import ShardCache
from wids.errors import FetchError, IntegrityError
from wids.fetching.fetch import Fetcher, FetchPolicy

MEMBER_BOUNDARY = 512 * 5 * 50  # header and four blocks for each of 50 members


@pytest.fixture
def impatient_cache(tmp_path: Path) -> ShardCache:
    """A cache in a folder of its own that soon gives up on a silent server."""
    return ShardCache(tmp_path / "cache", fetcher=Fetcher(IMPATIENT))


HEALING = {
    "cut once": Faults(times=1, cut_at=len(SHARD) // 2),
    "cut twice": Faults(times=2, cut_at=50_000),
    "cut at a member": Faults(times=1, cut_at=MEMBER_BOUNDARY),
    "cut in the headers' length": Faults(times=1, cut_at=0),
    "cut, then another ETag": Faults(times=2, cut_at=50_000, change_etag=True),
    "cut, no ETag": Faults(times=1, cut_at=50_000, no_etag=True),
    "refused": Faults(times=3, refuse=True),
    "500": Faults(times=1, status=500),
    "503": Faults(times=2, status=503),
    "503, wait a moment": Faults(times=1, status=503, retry_after="0"),
    "429, wait long": Faults(times=1, status=429, retry_after="1000000000"),
    "429, shared by many ranks": Faults(times=30, status=429, retry_after="0"),
    "408": Faults(times=1, status=408),
    "compressed, cut": Faults(times=1, gzip=True, cut_at=50_000),
    "compressed, chunked, cut": Faults(times=1, gzip=True, chunked=True, cut_at=50_000),
    "chunked, cut": Faults(times=1, chunked=True, cut_at=50_000),
}


@pytest.mark.parametrize("fault", HEALING)
@pytest.mark.parametrize("promise", ["md5", "size", "nothing"])
def test_passing_faults_are_survived(
    cache: ShardCache, shard_server: ShardServer, fault: str, promise: str
) -> None:
    """After a temporary fault the request is repeated, and the shard is complete."""
    url = shard_server.put("a.tar", SHARD)
    shard_server.faults = Faults(**vars(HEALING[fault]))
    promised = {"md5": {"md5sum": MD5}, "size": {"filesize": len(SHARD)}, "nothing": {}}[promise]
    path = cache.get(ShardRef.of(url, **promised))
    assert path.read_bytes() == SHARD
    assert leftovers(cache) == [path.name, f"{path.name}.ok"]


@pytest.mark.parametrize("promise", [{"md5sum": MD5}, {"filesize": len(SHARD)}, {}])
def test_a_stalled_download_goes_on(
    impatient_cache: ShardCache, shard_server: ShardServer, promise: dict[str, Any]
) -> None:
    """The rest of a shard is requested again after the server stalls."""
    # A busy machine may stall, too.
    impatient_cache.fetcher = Fetcher(replace(IMPATIENT, attempts=100))
    url = shard_server.put("a.tar", SHARD)
    shard_server.faults = Faults(times=1, stall_at=50_000)
    path = impatient_cache.get(ShardRef.of(url, **promise))
    assert path.read_bytes() == SHARD
    assert leftovers(impatient_cache) == [path.name, f"{path.name}.ok"]


def test_a_cut_download_goes_on_where_it_ended(
    cache: ShardCache, shard_server: ShardServer
) -> None:
    """After a cut, one more request fetches only the rest."""
    url = shard_server.put("a.tar", SHARD)
    shard_server.faults = Faults(times=1, cut_at=100_000)
    cache.get(url)
    assert len(shard_server.requests) == 2
    assert shard_server.requests[1].headers["If-Range"] == f'"{MD5}"'
    assert shard_server.nbytes <= len(SHARD) + 512


ALWAYS = {
    "404": (Faults(status=404), 1, "HTTP status 404"),
    "403": (Faults(status=403), 1, "HTTP status 403"),
    "401": (Faults(status=401), 1, "netrc"),
    "410": (Faults(status=410), 1, "HTTP status 410"),
    "501": (Faults(status=501), 1, "HTTP status 501"),
    "416 to no range": (Faults(status=416), 2, "HTTP status 416"),
    "503": (Faults(status=503), 5, "gave up after 5 attempts"),
    "429": (Faults(status=429), 50, "gave up after 50 attempts; the last: HTTP status 429"),
    "refused": (Faults(refuse=True), 5, "gave up after 5 attempts"),
    "cut, no ranges": (Faults(cut_at=50_000, ignore_range=True), 5, "gave up after 5 attempts"),
    "login page": (Faults(html=True), 1, "expected a tar archive"),
    "login page, chunked": (Faults(html=True, chunked=True), 1, "text/html"),
    "redirect loop": (Faults(location="/a.tar"), 11, "redirects"),
    "redirect to a file": (Faults(location="file:///etc/passwd"), 1, "file"),
}


@pytest.mark.parametrize("fault", ALWAYS)
def test_lasting_faults_are_clear_errors(
    cache: ShardCache, shard_server: ShardServer, fault: str
) -> None:
    """The error names the URL without its query, and nothing is left in the cache."""
    url = shard_server.put("a.tar", SHARD)
    faults, requests, message = ALWAYS[fault]
    shard_server.faults = Faults(**vars(faults))
    with pytest.raises(FetchError, match=message) as caught:
        cache.get(ShardRef.of(f"{url}?token=secret", md5sum=None))
    assert url in str(caught.value)
    assert "secret" not in str(caught.value)
    assert len(shard_server.requests) == requests
    assert leftovers(cache) == []
    shard_server.heal()
    assert cache.get(f"{url}?token=secret").read_bytes() == SHARD


def test_a_server_that_keeps_silent_is_a_clear_error(
    impatient_cache: ShardCache, shard_server: ShardServer
) -> None:
    """After five tries without an answer the error says so, and nothing is left in the cache."""
    url = shard_server.put("a.tar", SHARD)
    shard_server.faults = Faults(stall_at=0)
    with pytest.raises(FetchError, match=r"a\.tar.*timed out"):
        impatient_cache.get(url)
    assert shard_server.wait_for_requests(5) == 5
    assert leftovers(impatient_cache) == []
    shard_server.heal()
    impatient_cache.fetcher = Fetcher(QUICK)
    assert impatient_cache.get(url).read_bytes() == SHARD


WRONG_CONTENT = {
    "bits flipped": (Faults(), SHARD[:70_000] + bytes([SHARD[70_000] ^ 3]) + SHARD[70_001:]),
    "shorter on the server": (Faults(), SHARD[:MEMBER_BOUNDARY]),
    "longer on the server": (Faults(), SHARD + bytes(512)),
    "cut without length": (
        Faults(no_length=True, cut_at=len(SHARD) // 2, ignore_range=True),
        SHARD,
    ),
    "cut at a member without length": (
        Faults(no_length=True, cut_at=MEMBER_BOUNDARY, ignore_range=True),
        SHARD,
    ),
    "claims less": (Faults(length=MEMBER_BOUNDARY, ignore_range=True), SHARD),
    "empty": (Faults(), b""),
    "another shard": (Faults(), tar_of(100, seed=1)),
}


@pytest.mark.parametrize(
    ("fault", "promise"),
    [
        (fault, promise)
        for fault in WRONG_CONTENT
        for promise in ("md5sum", "sha256", "filesize")
        # Other bytes of the same number are not told by the size.
        if promise != "filesize" or fault not in {"bits flipped", "another shard"}
    ],
)
def test_other_bytes_than_promised_are_never_served(
    cache: ShardCache, shard_server: ShardServer, fault: str, promise: str
) -> None:
    """Size and digests of the spec are checked before the shard is published."""
    faults, served = WRONG_CONTENT[fault]
    promised = {
        "md5sum": MD5,
        "sha256": hashlib.sha256(SHARD).hexdigest(),
        "filesize": len(SHARD),
    }[promise]
    url = shard_server.put("a.tar", served)
    shard_server.faults = Faults(**vars(faults))
    with pytest.raises(FetchError) as caught:
        cache.get(ShardRef.of(url, **{promise: promised}))
    assert url in str(caught.value)
    assert leftovers(cache) == []
    shard_server.heal()
    shard_server.put("a.tar", SHARD)
    assert cache.get(ShardRef.of(url, **{promise: promised})).read_bytes() == SHARD


@pytest.mark.parametrize("end", [len(SHARD) // 2, MEMBER_BOUNDARY, 1000, 0])
def test_a_cut_that_nothing_tells_is_seen_at_the_end_of_the_archive(
    cache: ShardCache, shard_server: ShardServer, end: int
) -> None:
    """Without length, size and digest, a shard must end as a tar does."""
    url = shard_server.put("a.tar", SHARD)
    shard_server.faults = Faults(no_length=True, cut_at=end, ignore_range=True)
    with pytest.raises(FetchError, match=r"does not end as a tar|expected a tar archive"):
        cache.get(url)
    assert leftovers(cache) == []


@pytest.mark.parametrize("lie", ["start", "bytes", "total"])
@pytest.mark.parametrize("promise", [{}, {"md5sum": MD5}], ids=["nothing", "md5"])
def test_lies_about_ranges_do_no_harm(
    cache: ShardCache, shard_server: ShardServer, lie: str, promise: dict[str, str]
) -> None:
    """If a range has other bytes than requested, the whole file is fetched again."""
    url = shard_server.put("a.tar", SHARD)
    shard_server.faults = Faults(times=3, cut_at=150_000, lie_range=lie)
    assert cache.get(ShardRef.of(url, **promise)).read_bytes() == SHARD


def test_a_file_that_changes_in_mid_download_comes_whole(
    cache: ShardCache, shard_server: ShardServer
) -> None:
    """If the file changes during the download, all of the new file is fetched."""
    old, new = SHARD, tar_of(100, seed=2)
    url = shard_server.put("a.tar", old)
    shard_server.faults = Faults(times=1, cut_at=100_000, rate=1e6, piece=10_000)
    changing = iter([new])
    take = shard_server.take_faults

    def take_and_change() -> Faults:
        if shard_server.requests:
            shard_server.files["/a.tar"] = next(changing, new)
        return take()

    shard_server.take_faults = take_and_change  # type: ignore[method-assign]
    assert cache.get(url).read_bytes() == new


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_retry_after_is_waited_for(
    tmp_path: Path, shard_server: ShardServer, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """The waiting time of Retry-After is used instead of ours."""
    waits: list[float] = []
    monkeypatch.setattr("wids.fetching.fetch.time.sleep", waits.append)
    policy = FetchPolicy(backoff_seconds=0.0, max_wait_seconds=1000.0)
    cache = ShardCache(tmp_path / "cache", fetcher=Fetcher(policy))
    url = shard_server.put("a.tar", SHARD)
    later = "500" if form == "seconds" else formatdate(time.time() + 500, usegmt=True)
    shard_server.faults = Faults(times=1, status=503, retry_after=later)
    cache.get(url)
    assert 300 < sum(waits) < 500.1  # of the date, what is left when it was read


@pytest.mark.parametrize("faults", [Faults(), Faults(cut_at=100_000)], ids=["whole", "cut"])
def test_parallel_segments_are_put_in_order(
    tmp_path: Path, shard_server: ShardServer, faults: Faults
) -> None:
    """A large shard fetched over several connections is complete, also after cuts."""
    cache = ShardCache(tmp_path / "cache", fetcher=Fetcher(SEGMENTS))
    data = tar_of(500)
    url = shard_server.put("a.tar", data)
    shard_server.faults = faults
    path = cache.get(ShardRef.of(url, sha256=hashlib.sha256(data).hexdigest()))
    assert path.read_bytes() == data
    assert len(shard_server.requests) > 3
    assert shard_server.nbytes <= len(data) + 512 * len(shard_server.requests)


@pytest.mark.parametrize("faults", [Faults(cut_at=100_000), Faults(most_of_range=100_000)])
def test_a_range_that_comes_in_parts_is_put_together(
    shard_server: ShardServer, faults: Faults
) -> None:
    """A range takes as many requests as it needs, if each brings some of it."""
    data = tar_of(60, 20_000)
    url = shard_server.put("a.tar", data)
    shard_server.faults = faults
    fetcher = Fetcher(QUICK)
    assert fetcher.read_ranges(url, [(5_000, 1_105_000)]) == [data[5_000:1_105_000]]
    assert len(shard_server.requests) == 11
    fetcher.close()


BAD_FOR_PARALLEL = {
    "another ETag each time": Faults(change_etag=True),
    "no ETag": Faults(no_etag=True),
    "no ranges": Faults(ignore_range=True),
    "lies about the start": Faults(lie_range="start"),
}


@pytest.mark.parametrize("fault", BAD_FOR_PARALLEL)
def test_servers_unfit_for_segments_are_asked_for_the_whole(
    tmp_path: Path, shard_server: ShardServer, fault: str
) -> None:
    """A server without reliable ranges is asked for the whole file."""
    cache = ShardCache(tmp_path / "cache", fetcher=Fetcher(SEGMENTS))
    url = shard_server.put("a.tar", SHARD)
    shard_server.faults = BAD_FOR_PARALLEL[fault]
    assert cache.get(url).read_bytes() == SHARD


def test_segments_of_the_wrong_place_are_caught_by_the_digest(
    tmp_path: Path, shard_server: ShardServer
) -> None:
    """Segments with wrong bytes fail the digest of the spec."""
    cache = ShardCache(tmp_path / "cache", fetcher=Fetcher(SEGMENTS))
    url = shard_server.put("a.tar", SHARD)
    shard_server.faults = Faults(lie_range="bytes")
    with pytest.raises(IntegrityError, match=r"md5 .*, the spec says .*; put the right file there"):
        cache.get(ShardRef.of(url, md5sum=MD5))
    assert leftovers(cache) == []


def test_a_file_of_another_size_is_shown_as_it_begins(
    tmp_path: Path, shard_server: ShardServer
) -> None:
    """The error says what to do and how the response begins, without the zeros of a header."""
    url = shard_server.put("a.tar", b"name.txt".ljust(2048, b"\0"))
    with pytest.raises(IntegrityError, match="2048 bytes, the spec says 9") as caught:
        ShardCache(tmp_path / "cache").get(ShardRef.of(url, filesize=9))
    assert "create the spec again" in str(caught.value)
    assert str(caught.value).endswith("begins with b'name.txt'")
