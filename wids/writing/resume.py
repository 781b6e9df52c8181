"""Resuming a writer: the complete shards of an earlier run, and the samples to skip."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wids.base.hashing import hash_file
from wids.specs.newspec import shard_entry
from wids.tar.tarindex import TarIndex

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from pathlib import Path

__all__ = ["WholeShards"]


class WholeShards:
    """Complete shards of an earlier run, whose samples need not be written again.

    Attributes:
        entries: Their spec entries, in order.
        unnoted: Path and entry of those that were finished and not noted any more.
        num_samples: How many samples they hold.
        num_passed: How many of them have been passed by.
    """

    def __init__(
        self,
        paths: Iterable[tuple[Path, str]],
        noted: Mapping[str, dict[str, Any]],
        digests: Collection[str],
    ) -> None:
        """Read the entries of complete shards.

        Args:
            paths: Each shard with its name in the spec, in order.
            noted: What a journal says of them; others are read and digested.
            digests: Which of "md5" and "sha256" an entry needs.

        Raises:
            ShardFormatError: One of them is not whole, so it is none of ours.
        """
        self._paths: list[Path] = []
        self.entries: list[dict[str, Any]] = []
        self.unnoted: list[tuple[Path, dict[str, Any]]] = []
        for path, name in paths:
            # A shard is renamed before it is noted: after a crash in between it is there, and read
            # once more.
            entry = noted.get(name)
            if entry is None or not _still_says_all(entry, path, digests):
                entry = _read_entry(path, name, digests)
                self.unnoted.append((path, entry))
            self._paths.append(path)
            self.entries.append(entry)
        self.num_samples: int = sum(entry["nsamples"] for entry in self.entries)
        self.num_passed = 0
        self._keys = self._all_keys()

    def _all_keys(self) -> Iterator[str]:
        for path in self._paths:
            # One shard at a time, and when its turn comes: the keys of all would fill the memory.
            yield from TarIndex.from_tar(path).keys

    def pass_by(self, key: Any) -> bool:
        """Return whether a sample was written already, and count it.

        Args:
            key: Its key.

        Returns:
            Whether it need not be written.

        Raises:
            ValueError: Another sample stands in its place.
        """
        if self.num_passed == self.num_samples:
            return False
        # By key, as a loop that gives its samples in another order would leave some out for ever.
        expected = next(self._keys)
        if key != expected:
            raise ValueError(
                f"resume: sample {self.num_passed} is {key!r}, the shards that are there have "
                f"{expected!r}; give the same samples in the same order, or remove the shards"
            )
        self.num_passed += 1
        return True

    def skip(self) -> int:
        """Skip all remaining samples at once; return how many they are."""
        skipped = self.num_samples - self.num_passed
        self.num_passed = self.num_samples
        return skipped

    def check_all_passed(self) -> None:
        """Check that all samples of the complete shards were given again.

        Raises:
            ValueError: Some did not.
        """
        if self.num_passed < self.num_samples:
            raise ValueError(
                f"resume: only {self.num_passed} samples came, the shards that are there hold "
                f"{self.num_samples}; give the same samples again, or remove the shards"
            )


def _still_says_all(entry: dict[str, Any], path: Path, digests: Collection[str]) -> bool:
    """Return whether a noted entry is of this file and has the digests wanted now."""
    fields = shard_entry(entry["url"], 0, 0, dict.fromkeys(digests, ""))
    # The size is what a shard replaced by hand would hardly share; to digest it again takes hours.
    return fields.keys() <= entry.keys() and entry["filesize"] == path.stat().st_size


def _read_entry(path: Path, name: str, digests: Collection[str]) -> dict[str, Any]:
    nsamples = TarIndex.from_tar(path).num_samples
    return shard_entry(name, nsamples, path.stat().st_size, hash_file(path, digests))
