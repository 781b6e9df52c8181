"""Resumption of a writer: the complete shards of an earlier run, and the samples to skip."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wids.base.hashing import hash_file
from wids.specs.newspec import shard_entry
from wids.tar.shard import Shard
from wids.tar.tarindex import TarIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from pathlib import Path

__all__ = ["WholeShards"]


class WholeShards:
    """Complete shards of an earlier run, whose samples need not be written again.

    Attributes:
        entries: Their spec entries, in order.
        unnoted: Path and entry of each complete shard that the journal does not list.
        num_samples: Number of samples in all of them.
        num_passed: Number of samples skipped so far.
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
            noted: Entries in the journal, by name; a shard without one is read and digested.
            digests: Digests that an entry needs, of "md5" and "sha256".

        Raises:
            ShardFormatError: A shard is not complete, so this writer did not publish it.
        """
        self._paths: list[Path] = []
        self.entries: list[dict[str, Any]] = []
        self.unnoted: list[tuple[Path, dict[str, Any]]] = []
        for path, name in paths:
            # A shard is published before its entry is noted. After a crash in between it exists
            # without an entry, and is read again.
            entry = noted.get(name)
            if entry is None or not _still_says_all(entry, path, digests):
                nsamples = TarIndex.from_tar(path).num_samples
                entry = shard_entry(name, nsamples, path.stat().st_size, hash_file(path, digests))
                self.unnoted.append((path, entry))
            self._paths.append(path)
            self.entries.append(entry)
        self.num_samples: int = sum(entry["nsamples"] for entry in self.entries)
        self.num_passed = 0
        self._samples = self._all_samples()

    def _all_samples(self) -> Iterator[tuple[Path, str, dict[str, Any]]]:
        for path in self._paths:
            # One shard at a time, because the keys of all shards might not fit into memory.
            with Shard(path) as shard:
                for local_index, key in enumerate(shard.keys):
                    yield path, key, shard.read(local_index)

    def pass_by(self, key: Any, members: Callable[[], Iterable[tuple[str, Any]]] = tuple) -> bool:
        """Return whether the next sample is in a complete shard, and count it as skipped.

        Args:
            key: Key of the sample.
            members: Function that returns name and bytes of those of its members that are compared
                with what is there.

        Returns:
            True if the sample need not be written.

        Raises:
            ValueError: The shards hold another sample at this position, or another member of it.
        """
        if self.num_passed == self.num_samples:
            return False
        path, expected, there = next(self._samples)
        # The keys are compared, because samples in another order would silently be lost.
        if key != expected:
            raise ValueError(
                f"resume: sample {self.num_passed} is {key!r}, the shards that are there have "
                f"{expected!r}; give the same samples in the same order, or remove the shards"
            )
        for name, data in members():
            if there.get(name.removeprefix(expected)) != data:
                raise ValueError(
                    f"resume: sample {self.num_passed}: {name} is not what {path} holds, so the "
                    "source has changed since; begin anew without resume (--resume)"
                )
        self.num_passed += 1
        return True

    def skip(self) -> int:
        """Skip all remaining samples at once, and return their number."""
        skipped = self.num_samples - self.num_passed
        self.num_passed = self.num_samples
        return skipped

    def check_all_passed(self) -> None:
        """Raise unless all samples of the complete shards were given again.

        Raises:
            ValueError: Some samples were not given.
        """
        if self.num_passed < self.num_samples:
            raise ValueError(
                f"resume: only {self.num_passed} samples came, the shards that are there hold "
                f"{self.num_samples}; give the same samples again, or remove the shards"
            )


def _still_says_all(entry: dict[str, Any], path: Path, digests: Collection[str]) -> bool:
    """Return whether a journal entry matches a file and has all requested digests."""
    fields = shard_entry(entry["url"], 0, 0, dict.fromkeys(digests, ""))
    # Only the size is compared: a replaced shard almost always has another size, and hashing all
    # shards would take hours.
    return fields.keys() <= entry.keys() and entry["filesize"] == path.stat().st_size
