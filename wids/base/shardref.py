"""`ShardRef`: the entry of one shard in a spec, as a value."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from wids.base.hashing import DIGESTS
from wids.base.urls import display_url
from wids.errors import IntegrityError

__all__ = ["ShardRef"]


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
    >>> ref.check_size("a.tar", 9)
    Traceback (most recent call last):
    wids.errors.IntegrityError: a.tar: 9 bytes, the spec says 10; nothing of it was kept
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

    def check_size(self, name: str, nbytes: int, *, remedy: str = "nothing of it was kept") -> None:
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
                    f"{name}: {algorithm} {digests[algorithm]}, the spec says {promised}; nothing "
                    f"of it was kept. The file was changed after the spec was made, or on its way"
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


_FIELDS = ("url", "nsamples", "filesize", "index", "pack", "dataset")
