"""`ShardVersions`: the version of each shard of a dataset, as it was when first used."""

from __future__ import annotations

import os
from base64 import b64decode, b64encode
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from wids.base.shardversion import Version, changed_error
from wids.base.system import boot_id

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["ShardVersions"]

_NBYTES = 8  # of the digest of a tar index, as text of twice as many digits in `Version`


class ShardVersions:
    """Versions of the shards of one dataset, by number.

    A pickled copy, and a forked process, know what the original knew.

    Args:
        urls: URL of each shard.

    >>> versions = ShardVersions(["a.tar", "b.tar"])
    >>> versions.require(1, Version(file="10240 17"))
    >>> versions.admits(1, Version(file="10240 18")), versions.admits(0, Version(content="md5:ab"))
    (False, True)
    """

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = urls
        self._known: dict[int, Version] = {}

    def get(self, number: int) -> Version | None:
        """Return what is known of a shard; None if nothing of it was used."""
        return self._known.get(number)

    def items(self) -> Iterator[tuple[int, Version]]:
        """Yield the number and version of each shard of which something is known."""
        return iter(list(self._known.items()))

    def admits(self, number: int, version: Version) -> bool:
        """Record what is known of a shard; return False if it is of another version than before."""
        known = self._known.get(number)
        if known is not None and known.is_other(version):
            return False
        self._known[number] = version if known is None else known.joined(version)
        return True

    def require(self, number: int, version: Version) -> None:
        """Record what is known of a shard.

        Raises:
            ShardChangedError: It is of another version than before.
        """
        if not self.admits(number, version):
            raise changed_error(self._urls[number], self._known[number], version)

    def forget(self, number: int) -> None:
        """Forget a shard, so that any version of it is admitted next."""
        self._known.pop(number, None)

    def saved(self) -> str:
        """Return the tar indexes that were used, as text for a saved view; "" without any."""
        from wids.tar.sidecar import VERSION

        digests = bytearray(_NBYTES * len(self._urls))
        for number, version in self.items():
            if version.index is not None:
                digests[number * _NBYTES : (number + 1) * _NBYTES] = bytes.fromhex(version.index)
        return f"{VERSION}:{b64encode(digests).decode()}" if any(digests) else ""

    def restore(self, saved: str) -> None:
        """Demand the tar indexes that a view was saved with.

        Raises:
            ValueError: They are of another number of shards.
            ShardChangedError: A shard was used already, in another version.
        """
        from wids.tar.sidecar import VERSION

        form, _, text = saved.partition(":")
        digests = b64decode(text, validate=True)
        if len(digests) != _NBYTES * len(self._urls):
            raise ValueError(f"expected {len(self._urls)} shards, found {len(digests) // _NBYTES}")
        if form != str(VERSION):  # indexes of another form have other digests
            return
        for number in range(len(self._urls)):
            digest = digests[number * _NBYTES : (number + 1) * _NBYTES]
            if any(digest):  # zeros stand for a shard that was not used
                self.require(number, Version(index=digest.hex()))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "machine": _machine()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._urls, self._known = state["_urls"], dict(state["_known"])
        if state["machine"] != _machine():  # its file at the same path has a date of its own
            self._known = {number: replace(each, file=None) for number, each in self.items()}


def _machine() -> str:
    return os.uname().nodename + boot_id()
