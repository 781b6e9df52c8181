"""Recent failures are not requested again at once, and other shards are not delayed."""

import pytest

from wids.browse.failures import Failures, message_of
from wids.errors import FetchError, ShardFormatError

HOST = "https://host"
URLS = [f"{HOST}/{number}.tar" for number in range(6)]


def test_a_damaged_shard_stands_for_itself() -> None:
    """A damaged shard does not affect others, and its error keeps its type."""
    failures = Failures()
    with pytest.raises(ShardFormatError), failures.noted(0, URLS[0], ShardFormatError):
        raise ShardFormatError("0.tar: at byte 512: no header")
    with pytest.raises(ShardFormatError, match="at byte 512"):
        failures.check(0, URLS[0])
    failures.check(1, URLS[1])


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
