"""`ShardRef`: what a spec says of a shard; `Version`: which version of its file was found."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from wids.base.hashing import DIGESTS
from wids.base.urls import display_url, is_local
from wids.errors import IntegrityError, ShardChangedError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "ShardRef",
    "Version",
    "changed_error",
    "is_newer",
    "outlast_tick",
]

_FIELDS = ("url", "nsamples", "filesize", "index", "pack", "dataset")
_TICK_SECONDS, _NUM_TICKS = 0.002, 8
_REMEDY = (
    "nothing of it was kept; put the right file there, or create the spec again (`wids create`)"
)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ShardRef(Mapping[str, Any]):
    """Reference to a shard: its URL and the size, digests and count that its spec promises.

    It can also be read like the shard's entry in the JSON: `ref["url"]`, `dict(ref)`; and it equals
    the dict of that entry. Keys that the spec leaves out are missing here, too.

    Attributes:
        url: Path or URL of the shard.
        nsamples: Number of its samples, or None where the spec does not say.
        filesize: Its size in bytes, or None.
        digests: Field of the spec ("md5sum", "sha256") to hexadecimal digest.
        index: URL of its sidecar, or None for the usual one next to it.
        pack: Location of the pack that has its tar index, "#" and the number of its row there; or
            None.
        dataset: Name of the dataset that the shard came from, or None for the spec's own.
        extras: All other keys of its entry.

    >>> ref = ShardRef("a.tar", filesize=10, digests={"md5sum": "AB12"})
    >>> ref["filesize"], "sha256" in ref, ref.version
    (10, False, 'ab12')
    >>> ref.check_size("a.tar", 9, remedy="fetch it again")
    Traceback (most recent call last):
    wids.errors.IntegrityError: a.tar: 9 bytes, the spec says 10; fetch it again
    """

    url: str
    nsamples: int | None = None
    filesize: int | None = None
    digests: Mapping[str, str] = field(default_factory=dict)
    index: str | None = None
    pack: str | None = None
    dataset: str | None = None
    extras: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls, shard: ShardRef | Mapping[str, Any] | str | os.PathLike[str], **fields: Any
    ) -> ShardRef:
        """Return the reference for an entry of a spec, or for a bare path or URL.

        Args:
            shard: The entry, the path or the URL.
            fields: Keys of the entry, added to it.

        >>> ShardRef.of({"url": "a.tar", "md5sum": "", "weight": 2})
        ShardRef('a.tar', weight=2)
        >>> ShardRef.of("a.tar", filesize=10)
        ShardRef('a.tar', filesize=10)
        """
        if isinstance(shard, ShardRef) and not fields:
            return shard
        entry: dict[str, Any] = (
            dict(shard) if isinstance(shard, Mapping) else {"url": os.fspath(shard)}
        )
        entry |= fields
        named = {name: entry.pop(name, None) for name in _FIELDS}
        digests = {name: digest for name in DIGESTS if (digest := entry.pop(name, None))}
        return cls(**named, digests=digests, extras=entry)

    @property
    def version(self) -> str:
        """Text that changes with the content of the shard; "" if the spec promises nothing."""
        # A digest is preferred to the size, because shards of one size may differ.
        return next(iter(self.digest_to_check.values()), "") or str(self.filesize or "")

    @property
    def digest_to_check(self) -> dict[str, str]:
        """The strongest promised digest, as `{algorithm: digest in lower case}`; {} without any.

        >>> ShardRef("a.tar", digests={"md5sum": "ab12", "sha256": "CD34"}).digest_to_check
        {'sha256': 'cd34'}
        """
        # If SHA-256 is checked, MD5 adds nothing and takes three times as long.
        for name in reversed(DIGESTS):
            if digest := self.digests.get(name):
                return {DIGESTS[name].algorithm: digest.lower()}
        return {}

    def check_size(self, name: str, nbytes: int, *, remedy: str = _REMEDY) -> None:
        """Refuse a size that differs from `filesize`.

        Args:
            name: Name of the file or URL in the message.
            nbytes: The size found.
            remedy: End of the message.

        Raises:
            IntegrityError: It differs.
        """
        if self.filesize is not None and nbytes != self.filesize:
            raise IntegrityError(f"{name}: {nbytes} bytes, the spec says {self.filesize}; {remedy}")

    def check(self, name: str, nbytes: int, digests: Mapping[str, str]) -> None:
        """Compare size and digest of a whole file with the promised ones.

        Args:
            name: Name of the file or URL in the message.
            nbytes: Its size.
            digests: Algorithm to the digest found, at least for that of `digest_to_check`.

        Raises:
            IntegrityError: Size or digest differ.
        """
        self.check_size(name, nbytes)
        for algorithm, promised in self.digest_to_check.items():
            if digests[algorithm] != promised:
                raise IntegrityError(
                    f"{name}: {algorithm} {digests[algorithm]}, the spec says {promised}: the file "
                    f"was changed after the spec was made, or on its way; {_REMEDY}"
                )

    def __getitem__(self, key: str) -> Any:
        if key in self.digests:
            return self.digests[key]
        value = getattr(self, key) if key in _FIELDS else self.extras[key]
        if value is None and key in _FIELDS:
            raise KeyError(key)
        return value

    def __iter__(self) -> Iterator[str]:
        for name in ("url", "nsamples", "filesize"):
            if getattr(self, name) is not None:
                yield name
        yield from self.digests
        yield from self.extras
        for name in ("index", "pack", "dataset"):
            if getattr(self, name) is not None:
                yield name

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __hash__(self) -> int:
        return hash((self.url, self.nsamples, self.filesize))

    def __repr__(self) -> str:
        # Both URLs, that of the sidecar, too, may contain credentials.
        shown = {
            name: display_url(value) if isinstance(value, str) else value
            for name, value in self.items()
        }
        url = shown.pop("url")
        said = [f"{name}={value!r}" for name, value in shown.items()]
        return f"ShardRef({', '.join([repr(url), *said])})"


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
