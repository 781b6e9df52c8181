"""Digests of files, also if the machine's OpenSSL refuses MD5."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.downloads import SHARD
from helpers.server import ShardServer

from wids.base.hashing import DIGESTS, hash_file
from wids.base.shardref import ShardRef
from wids.caching.cache import ShardCache


def test_digests_are_those_of_hashlib(tmp_path: Path) -> None:
    """A file of several blocks has the digests of hashlib in all algorithms."""
    path = tmp_path / "large.bin"
    path.write_bytes(os.urandom(2_500_001))
    digests = hash_file(path, ("md5", "sha256"))
    assert digests["md5"] == hashlib.md5(path.read_bytes()).hexdigest()
    assert digests["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert hash_file(tmp_path / "missing", ()) == {}


@pytest.mark.parametrize("name", DIGESTS)
def test_the_table_has_the_length_of_each_digest(name: str) -> None:
    """The table states the number of digits of each digest."""
    assert len(hashlib.new(DIGESTS[name].algorithm).hexdigest()) == DIGESTS[name].num_hex


@pytest.fixture
def fips(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a Python whose OpenSSL allows MD5 only for purposes other than security."""

    def guarded(name: str, make: Callable[..., Any]) -> Callable[..., Any]:
        def digest(*args: Any, usedforsecurity: bool = True, **options: Any) -> Any:
            if usedforsecurity and "md5" in (name, *args[:1]):
                raise ValueError("[digital envelope routines] unsupported")
            return make(*args, **options)

        return digest

    monkeypatch.setattr(hashlib, "new", guarded("new", hashlib.new))
    monkeypatch.setattr(hashlib, "md5", guarded("md5", hashlib.md5))


@pytest.mark.usefixtures("fips")
def test_md5_is_checked_where_it_may_not_guard_secrets(
    tmp_path: Path, shard_server: ShardServer
) -> None:
    """A FIPS build downloads and verifies a shard with an MD5."""
    md5sum = hashlib.md5(SHARD, usedforsecurity=False).hexdigest()
    cache = ShardCache(tmp_path / "cache")
    path = cache.get(ShardRef.of(shard_server.put("a.tar", SHARD), md5sum=md5sum))
    assert path.read_bytes() == SHARD
    assert cache.verify() == []
    cache.close()
