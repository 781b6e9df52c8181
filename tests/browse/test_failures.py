"""Recent failures are not requested again at once, and other shards are not delayed."""

import pytest
from helpers.downloads import QUICK, SHARD
from helpers.server import Faults, ShardServer

from wids.browse.failures import Failures, message_of
from wids.caching.cache import ShardCache
from wids.errors import FetchError, ShardFormatError, WidsError
from wids.fetching.fetch import Fetcher

HOST = "https://host"
URLS = [f"{HOST}/{number}.tar" for number in range(6)]
OTHER = "https://other/0.tar"


def fetch_error(server: ShardServer, tmp_path, faults: Faults, path: str = "a.tar") -> Exception:
    """Return the error of a real failed download."""
    server.faults = faults
    cache = ShardCache(tmp_path / "cache", fetcher=Fetcher(QUICK))
    with pytest.raises(FetchError) as raised:
        cache.get(f"{server.url}/{path}")
    cache.close()
    return raised.value


@pytest.mark.parametrize(
    ("faults", "kind", "unreachable"),
    [
        (Faults(refuse=True), "silent", True),
        (Faults(status=503), "failing", True),
        (Faults(status=404), "missing", False),
        (Faults(status=403), "denied", False),
    ],
    ids=["silent", "failing", "missing", "denied"],
)
def test_errors_of_downloads_are_told_apart(
    faults: Faults, kind: str, unreachable: bool, tmp_path, shard_server: ShardServer
) -> None:
    """No response, a server error, a missing file and denied access are different kinds."""
    shard_server.put("a.tar", SHARD)
    failures = Failures()
    failures.note(0, f"{shard_server.url}/a.tar", fetch_error(shard_server, tmp_path, faults))
    failure = failures.of_shard(0, f"{shard_server.url}/a.tar")
    assert failure is not None
    assert (failure.kind, failure.unreachable) == (kind, unreachable)
    with pytest.raises(FetchError):
        failures.check(0, f"{shard_server.url}/a.tar")


def test_a_silent_server_fails_for_all_its_shards(tmp_path, shard_server: ShardServer) -> None:
    """A silent server counts for all its shards, and other servers do not."""
    error = fetch_error(shard_server, tmp_path, Faults(refuse=True))
    failures = Failures()
    failures.note(0, URLS[0], error)
    for number, url in enumerate(URLS):
        with pytest.raises(WidsError):
            failures.check(number, url)
    failures.check(9, OTHER)
    failures.check(9, "/data/a.tar")


def test_a_failing_server_is_given_up_after_several_shards(
    tmp_path, shard_server: ShardServer
) -> None:
    """After three failed shards, the server counts as failing."""
    error = fetch_error(shard_server, tmp_path, Faults(status=503))
    failures = Failures()
    for number in range(2):
        failures.note(number, URLS[number], error)
        failures.note(number, URLS[number], error)  # the same shard counts once
    failures.check(5, URLS[5])
    failures.note(2, URLS[2], error)
    with pytest.raises(WidsError):
        failures.check(5, URLS[5])


def test_what_opened_is_forgotten_with_its_server(tmp_path, shard_server: ShardServer) -> None:
    """A shard that could be opened clears the failures of its server."""
    error = fetch_error(shard_server, tmp_path, Faults(refuse=True))
    failures = Failures()
    failures.note(0, URLS[0], error)
    failures.note(1, URLS[1], error)
    failures.forget(0, URLS[0])
    for number, url in enumerate(URLS):
        failures.check(number, url)
        assert failures.of_shard(number, url) is None


def test_a_damaged_shard_stands_for_itself() -> None:
    """A damaged shard does not affect others, and its error keeps its type."""
    failures = Failures()
    with pytest.raises(ShardFormatError), failures.noted(0, URLS[0], ShardFormatError):
        raise ShardFormatError("0.tar: at byte 512: no header")
    with pytest.raises(ShardFormatError, match="at byte 512"):
        failures.check(0, URLS[0])
    failures.check(1, URLS[1])


def test_other_errors_are_not_noted() -> None:
    """Only errors of the given kinds are recorded; all of them propagate."""
    failures = Failures()
    with pytest.raises(KeyError), failures.noted(0, URLS[0], ShardFormatError):
        raise KeyError("x")
    assert failures.of_shard(0, URLS[0]) is None


def test_after_its_time_a_shard_is_tried_again() -> None:
    """A failure no longer counts after its time."""
    failures = Failures(retry_seconds=0.0)
    failures.note(0, URLS[0], ShardFormatError("torn"))
    failures.check(0, URLS[0])
    assert failures.of_shard(0, URLS[0]) is not None
    failures.retry_seconds = 3600.0
    with pytest.raises(ShardFormatError, match="torn"):
        failures.check(0, URLS[0])


def test_messages_are_fit_for_a_page() -> None:
    """Messages have no credentials, lone surrogates or quotes, and a bounded length."""
    assert message_of(KeyError("no field '.jpg'")) == "no field '.jpg'"
    assert "hush" not in message_of(FetchError("s3://me:hush@host/a.tar?token=hush: denied"))
    message_of(ValueError("\ud800 name")).encode()
    assert len(message_of(ValueError("x" * 10_000))) <= 2001
