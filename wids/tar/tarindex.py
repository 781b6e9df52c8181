"""The tar index of a shard: which bytes are which field of which sample.

Built once by reading the shard's headers (`TarIndex.from_tar`), kept as a sidecar (`save`, `load`),
and from then on mapped by every process that opens the shard (`TarIndex.open`).
"""

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Self

from wids.errors import ShardFormatError
from wids.tar.grouping import Grouping, KeyRule, group_members
from wids.tar.membertable import MemberTable
from wids.tar.sidecar import (
    Sidecar,
    Source,
    lay_out,
    pack_sidecar,
    parse_sidecar,
    read_sidecar,
    write_sidecar,
)
from wids.tar.tarscan import scan_tar

__all__ = ["TarIndex"]

_log = logging.getLogger(__name__)


class TarIndex(MemberTable):
    """The member table of one shard, grouped into samples.

    Made by `from_tar`, `load` or `open`, never by hand. All three serve from the sidecar's layout;
    a loaded one is mapped, so its size does not matter. Safe to read from many threads, pickles
    (a loaded one as its path).

    Attributes:
        source: What it was built from, and by which rules.
        shard_mtime_ns: Modification time of the shard that it was last verified against,
            nanoseconds since 1970; `load` may find another than the source's, and the same headers.
        num_samples: Number of samples.
        keys: The samples' keys; cut out of the index when asked for.
        skipped: How many entries of the tar are in no sample, by reason.
        trailing_nbytes: Bytes behind the end of the archive that are no padding; a second archive
            that was appended, perhaps (`concatenated=True` reads it).

    >>> import io, tarfile, tempfile
    >>> with tempfile.NamedTemporaryFile() as shard:
    ...     with tarfile.open(fileobj=shard, mode="w") as tar:
    ...         for name in ("a.txt", "a.cls", "b.txt"):
    ...             member = tarfile.TarInfo(name)
    ...             member.size = 2
    ...             tar.addfile(member, io.BytesIO(b"42"))
    ...     shard.flush()
    ...     index = TarIndex.from_tar(shard.name)
    >>> index
    TarIndex(3 members, 2 samples)
    >>> index.names, list(index.keys), index.fields(0)
    (['a.txt', 'a.cls', 'b.txt'], ['a', 'b'], [('.txt', 512, 2), ('.cls', 1536, 2)])
    """

    def __init__(self, sidecar: Sidecar, path: Path | None = None) -> None:
        super().__init__(sidecar, path)
        self.shard_mtime_ns = sidecar.source.mtime_ns

    @classmethod
    def from_tar(
        cls,
        path: str | os.PathLike[str],
        *,
        key_rule: KeyRule = "first_dot",
        grouping: Grouping = "adjacent",
        concatenated: bool = False,
    ) -> Self:
        """Build the index by reading a shard's headers.

        Args:
            path: A local, uncompressed tar.
            key_rule: Which dot of a name parts key and extension.
            grouping: `"adjacent"`: the members of a sample must be neighbours; `"shard"`: they are
                gathered from the whole shard.
            concatenated: Read the archives that follow behind the first one's end.

        Raises:
            ShardFormatError: The shard is damaged, no tar, or has samples that clash; the message
                names file and offset.
            OSError: The shard cannot be opened.
        """
        members = scan_tar(path, concatenated=concatenated)
        table = group_members(
            members.names, members.spans, path, key_rule=key_rule, grouping=grouping
        )
        for reason, count in members.skipped.items():
            table.skipped[reason] = table.skipped.get(reason, 0) + count
        source = Source(
            nbytes=members.shard_nbytes,
            mtime_ns=members.shard_mtime_ns,
            trailing_nbytes=members.trailing_nbytes,
            key_rule=key_rule,
            grouping=grouping,
            concatenated=concatenated,
        )
        if source.trailing_nbytes:
            _log.warning(
                "%s: %d bytes follow the end of the archive and are not read; if they are "
                "further archives, concatenated=True reads them",
                path,
                source.trailing_nbytes,
            )
        return cls(lay_out(source, table))

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, tar: str | os.PathLike[str] | None = None
    ) -> Self:
        """Map a sidecar.

        Args:
            path: The sidecar.
            tar: Its shard, to verify it against: size and modification time must be those that
                the sidecar was built from. Where only the time differs, the shard's headers are
                read again, and the sidecar holds if they say the same.

        Raises:
            ShardFormatError: It is no sidecar, damaged, or not that shard's.
            OSError: A file cannot be opened.
        """
        return cls._load(Path(path), tar)[0]

    @classmethod
    def open(
        cls,
        tar: str | os.PathLike[str],
        sidecar: str | os.PathLike[str] | None = None,
        *,
        key_rule: KeyRule = "first_dot",
        grouping: Grouping = "adjacent",
        concatenated: bool = False,
    ) -> Self:
        """Get the index of a shard in the cheapest way that is right.

        Args:
            tar: The shard.
            sidecar: Where its sidecar lies, or shall lie: loaded if it fits shard and rules, else
                made (a folder that cannot be written to is no error).
            key_rule: As for `from_tar`.
            grouping: As for `from_tar`.
            concatenated: As for `from_tar`.

        Raises:
            ShardFormatError: The shard cannot be read.
            OSError: The shard cannot be opened.
        """
        rules = {"key_rule": key_rule, "grouping": grouping, "concatenated": concatenated}
        if sidecar is not None:
            try:
                index, fresh = cls._load(Path(sidecar), tar)
            except (ShardFormatError, FileNotFoundError) as error:
                _log.debug("%s: made anew: %s", sidecar, error)
            else:
                # One that had to be verified is saved again with the shard's time, for the next.
                if fresh and all(getattr(index.source, k) == rules[k] for k in rules):
                    return index
        index = cls.from_tar(tar, key_rule=key_rule, grouping=grouping, concatenated=concatenated)
        if sidecar is not None:
            try:
                index.save(sidecar)
            except OSError as error:
                _log.info("%s: not kept: %s", sidecar, error)
        return index

    @classmethod
    def _load(cls, path: Path, tar: str | os.PathLike[str] | None) -> tuple[Self, bool]:
        """Load a sidecar; say also whether the shard's modification time is the recorded one."""
        index = cls(read_sidecar(path), path)
        if tar is None:
            return index, True
        status = Path(tar).stat()
        source = index.source
        # A sidecar that was made for other bytes is found by their number; for the rest see below.
        if status.st_size != source.nbytes:
            raise ShardFormatError(
                f"{path}: a stale sidecar: made for a shard of {source.nbytes} bytes, but {tar} "
                f"has {status.st_size}; delete it, and it is made anew"
            )
        if status.st_mtime_ns == source.mtime_ns:
            return index, True
        # Copied, fetched or touched shards have another time and the same members; a shard that
        # was written anew has others. The headers tell them apart.
        now = cls.from_tar(
            tar,
            key_rule=source.key_rule,
            grouping=source.grouping,
            concatenated=source.concatenated,
        )
        if now.digest != index.digest:
            raise ShardFormatError(
                f"{path}: a stale sidecar: {tar} was changed since, and has other members now; "
                "delete it, and it is made anew"
            )
        # The time of the file that was read just now, which need not be the one looked at above.
        index.shard_mtime_ns = now.source.mtime_ns
        return index, False

    @property
    def digest(self) -> bytes:
        """Digest of the members and samples: equal where two shards read the same; 16 bytes."""
        return self._sidecar.digest

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the index as a sidecar: whole, or not at all.

        Raises:
            OSError: It cannot be written there.
        """
        write_sidecar(path, pack_sidecar(self._sidecar))

    def __reduce__(self) -> tuple[Callable[..., "TarIndex"], tuple[object, ...]]:
        if self._path is not None:
            if self.shard_mtime_ns == self.source.mtime_ns:
                return TarIndex.load, (self._path,)
            return _load_verified, (self._path, self.digest, self.shard_mtime_ns)
        return _from_image, (pack_sidecar(self._sidecar),)

    def __repr__(self) -> str:
        return f"TarIndex({len(self)} members, {self.num_samples} samples)"


def _from_image(image: bytes) -> TarIndex:
    return TarIndex(parse_sidecar(memoryview(image), "(pickled tar index)"))


def _load_verified(path: Path, digest: bytes, shard_mtime_ns: int) -> TarIndex:
    """Load a sidecar that was verified against a shard's headers, if it is still that one."""
    index = TarIndex.load(path)
    if index.digest == digest:
        index.shard_mtime_ns = shard_mtime_ns
    return index
