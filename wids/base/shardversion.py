"""`Version`: what identifies one version of a shard; and whether what was made of it is newer."""

from __future__ import annotations

import hashlib
import os
import time
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from wids.base.urls import display_url, is_local
from wids.errors import ShardChangedError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Version", "changed_error", "is_newer", "outlast_tick"]

_TICK_SECONDS, _NUM_TICKS = 0.002, 8


@dataclass(frozen=True, slots=True)
class Version:
    """What is known of the version of a file, of a shard, or of what was made of it.

    None stands for what is not known.

    Attributes:
        index: Digest of its tar index, 16 hexadecimal digits: of names, offsets and samples.
        file: Size and date of a local file.
        nbytes: Size of the file as its server states it.
        validator: Strong ETag that its server sent, else the date. Equal ones are of equal bytes.
        weak_etag: Weak ETag that its server sent. Different ones are of different files.
        content: Digest of the bytes of a file that was fetched.

    Source:
        RFC 9110, section 8.8: a weak ETag changes with what a file means.

    >>> before, after = Version(validator='"1"'), Version(validator='"2"')
    >>> before.is_other(after), before.is_other(Version(content="md5:ab"))
    (True, False)
    """

    index: str | None = None
    file: str | None = None
    nbytes: int | None = None
    validator: str | None = None
    weak_etag: str | None = None
    content: str | None = None

    @classmethod
    def of_index(cls, digest: bytes) -> Version:
        """Return the version of a shard whose tar index has a digest."""
        return cls(index=hashlib.blake2b(digest, digest_size=8).hexdigest())

    @property
    def proof(self) -> object:
        """What only files of equal bytes have in common; None if nothing like it is known."""
        served = (self.nbytes, self.validator, self.weak_etag) if self.validator else None
        return self.file or self.content or served

    def is_other(self, version: Version) -> bool:
        """Return whether this is certainly another version than the given one."""

        def differ(name: str) -> bool:
            both = getattr(self, name), getattr(version, name)
            return None not in both and both[0] != both[1]

        # Replicas may give one file different validators, so the bytes count where they are known.
        by_content = self.content is not None and version.content is not None
        served = ("content",) if by_content else ("validator", "weak_etag")
        return any(map(differ, ("index", "file", "nbytes", *served)))

    def continues(self, first: Version) -> bool:
        """Return whether a response is of the same file as the first one, as far as one can tell.

        A server may leave out the size or the weak ETag of a range, but not the validator.
        """
        return self.validator == first.validator and not self.is_other(first)

    def joined(self, version: Version) -> Version:
        """Return what is known of both, the given one first."""
        known = {each.name: getattr(version, each.name) for each in fields(version)}
        return replace(self, **{name: fact for name, fact in known.items() if fact is not None})

    def __str__(self) -> str:
        facts = {
            "tar index": self.index,
            "size and date": self.file,
            "size": self.nbytes,
            "validator": self.validator,
            "weak ETag": self.weak_etag,
            "content": self.content,
        }
        known = [f"{name} {fact}" for name, fact in facts.items() if fact is not None]
        return ", ".join(known) or "nothing that identifies it"


def changed_error(url: str, expected: Version, found: Version) -> ShardChangedError:
    """Return the error for a shard of another version than before."""
    cure = (
        ""
        if is_local(url)
        else (
            "; if several servers behind the URL send different validators for one file, make them "
            'agree, or open the dataset with remote="whole"'
        )
    )
    return ShardChangedError(
        f"{display_url(url)}: the shard was replaced since it was first read or indexed: expected "
        f"{expected}; found {found}; open the dataset again to read the new file, after "
        f"`wids export` if it has a pack, and choose its samples again{cure}"
    )


def is_newer(derived: os.stat_result, original: os.stat_result) -> bool:
    """Return whether a derived file was made after the last change to its original.

    True only if that is certain; on False, the caller reads the original again.

    Args:
        derived: Status of the derived file.
        original: Status of the original.

    >>> from pathlib import Path
    >>> is_newer(Path(__file__).stat(), Path(__file__).stat())
    False
    """
    # The modification time is not enough, because a copy may keep that of its original.
    if derived.st_mtime_ns < original.st_mtime_ns:
        return False
    # Programs cannot set the status change time. It reveals a write that restored the old date, and
    # an older file that was moved here. Clocks tick in milliseconds, so equal times prove nothing.
    return derived.st_ctime_ns > original.st_ctime_ns


def outlast_tick(derived: Path, newest_ns: int) -> None:
    """Make the change time of a derived file later than its original's, for `is_newer`.

    Both may have been written within one tick of the clock of files, which is 4 ms as a rule. Where
    ticks are longer than all attempts, `is_newer` stays False, and the file is made again later.

    Args:
        derived: The file that was made later.
        newest_ns: Change time of its original, or of the newest of them.
    """
    for _ in range(_NUM_TICKS):
        status = derived.stat()
        if status.st_ctime_ns > newest_ns:
            return
        time.sleep(_TICK_SECONDS)
        os.utime(derived, ns=(status.st_atime_ns, status.st_mtime_ns))  # sets the change time
