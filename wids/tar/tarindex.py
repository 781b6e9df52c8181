"""`TarIndex`, the table of the members and samples of one shard.

Built once by reading the shard's headers (`TarIndex.from_tar`), kept as a sidecar (`save`, `load`),
and from then on mapped by every process that opens the shard (`TarIndex.open`).
"""

import os
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Self

import numpy as np

from wids.base.files import file_lock, write_atomically
from wids.base.shardref import is_newer, outlast_tick
from wids.base.urls import display_url
from wids.base.warn import warn
from wids.errors import ShardFormatError
from wids.log import logger
from wids.tar.grouping import Grouping, KeyRule, group_members, merged_sample
from wids.tar.membertable import MemberTable
from wids.tar.sidecar import (
    IndexRules,
    IndexSource,
    Sidecar,
    fingerprint,
    fingerprinted,
    lay_out,
    pack_sidecar,
    parse_sidecar,
    probed_rows,
    read_sidecar,
)
from wids.tar.tarbytes import TarBytes
from wids.tar.tarheader import BLOCK_SIZE, checksum_matches
from wids.tar.tarscan import LOST_LINK, SYMBOLIC_LINK, opened_tar, scan_bytes

__all__ = ["TarIndex", "losses", "warn_of_losses"]

# Indexing a shard on a slow disk takes a minute. The wait is bounded, because the process that
# holds the lock may have been stopped.
_PATIENCE_SECONDS = 120.0
# Function from a number of bytes to a context within which a file of that size may be written.
Room = Callable[[int], AbstractContextManager[None]]


def no_room_needed(nbytes: int) -> AbstractContextManager[None]:  # noqa: ARG001 (part of `Room`)
    """Return a context that does nothing, for a folder whose size is not limited."""
    return nullcontext()


class TarIndex(MemberTable):
    """The member table of one shard, grouped into samples.

    Made by `from_tar`, `load` or `open`. A loaded index is mapped, so its size does not matter.
    Safe to read from many threads. Can be pickled, a loaded one as its path.

    Args:
        sidecar: The parsed tables.
        path: The sidecar that they are mapped from, if any.
        shard_mtime_ns: As the attribute.

    Attributes:
        source: The shard that it was built from, and the rules.
        shard_mtime_ns: Modification time of the shard that it was made from or verified against,
            nanoseconds since 1970; None if it was loaded without its shard.
        num_samples: Number of samples.
        keys: The samples' keys, each read from the index on access.
        skipped: Number of entries of the tar in no sample, by reason.
        trailing_nbytes: Bytes after the end of the archive that are neither padding nor another
            archive.

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

    __slots__ = ("shard_mtime_ns",)

    def __init__(
        self, sidecar: Sidecar, path: Path | None = None, shard_mtime_ns: int | None = None
    ) -> None:
        super().__init__(sidecar, path)
        self.shard_mtime_ns = shard_mtime_ns

    @classmethod
    def from_tar(
        cls,
        path: str | os.PathLike[str],
        *,
        key_rule: KeyRule = "first_dot",
        grouping: Grouping = "adjacent",
        concatenated: bool = False,
        quiet: bool = False,
    ) -> Self:
        """Build the index by reading a shard's headers.

        Warns of links without data, and of bytes after the end of the archive that may have been
        samples.

        Args:
            path: A local, uncompressed tar.
            key_rule: Dot of a name between key and extension.
            grouping: `"adjacent"`: the members of a sample must be neighbours; `"shard"`: they are
                gathered from the whole shard.
            concatenated: Also read the archives that follow the first one.
            quiet: Do not warn; `skipped` and `source.doubt` describe the same.

        Returns:
            The index.

        Raises:
            ShardFormatError: The shard is damaged, no tar, or has samples that clash; the message
                names file and offset.
            OSError: The shard cannot be opened.
        """
        with opened_tar(path) as source:
            index = cls.from_bytes(
                source, key_rule=key_rule, grouping=grouping, concatenated=concatenated
            )
        if not quiet:
            warn_of_losses(path, index.skipped, index.source)
        return index

    @classmethod
    def from_bytes(
        cls,
        shard: TarBytes,
        *,
        key_rule: KeyRule = "first_dot",
        grouping: Grouping = "adjacent",
        concatenated: bool = False,
    ) -> Self:
        """Build the index of an open shard, local or remote; see `from_tar`."""
        members = scan_bytes(shard, concatenated=concatenated)
        table = group_members(
            members.names, members.spans, shard.path, key_rule=key_rule, grouping=grouping
        )
        for reason, count in members.skipped.items():
            table.skipped[reason] = table.skipped.get(reason, 0) + count
        if shard.changed():
            raise ShardFormatError(
                f"{display_url(str(shard.path))}: at byte 0: expected a file that no process "
                "writes to, found one that was changed while its headers were read; wait until it "
                "is complete"
            )
        probed = table.spans[probed_rows(len(table.spans)), 0].tolist()
        positions = fingerprinted(members.shard_nbytes, members.end, probed)
        source = IndexSource(
            nbytes=members.shard_nbytes,
            end=members.end,
            trailing_nbytes=members.trailing_nbytes,
            key_rule=key_rule,
            grouping=grouping,
            concatenated=concatenated,
            fingerprint=fingerprint(shard.read, positions),
        )
        return cls(lay_out(source, table), shard_mtime_ns=members.shard_mtime_ns)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, tar: str | os.PathLike[str] | None = None
    ) -> Self:
        """Map a sidecar.

        Args:
            path: The sidecar.
            tar: Its shard, to verify it against: size and a few headers must match. If the dates of
                the two files leave it open whether the shard has changed, all headers are read.

        Returns:
            The index, which reads the sidecar as it is used.

        Raises:
            ShardFormatError: It is no sidecar, damaged, or of another shard.
            OSError: A file cannot be opened.
        """
        path = Path(path).absolute()  # the working folder may change before it is pickled
        index = cls(read_sidecar(path), path)
        if tar is None or index.belongs_to(tar):
            return index
        now = cls.from_tar(tar, **index.source.rules, quiet=True)
        if now.digest != index.digest:
            raise index._stale(f"{tar} was changed since, and has other members now")
        # The file may have been replaced since `belongs_to` looked at it.
        index.shard_mtime_ns = now.shard_mtime_ns
        return index

    @classmethod
    def open(
        cls,
        tar: str | os.PathLike[str],
        sidecar: str | os.PathLike[str] | None = None,
        *,
        key_rule: KeyRule = "first_dot",
        grouping: Grouping = "adjacent",
        concatenated: bool = False,
        lock_path: Path | None = None,
        room: Room = no_room_needed,
        quiet: bool = False,
    ) -> Self:
        """Return the index of a shard, from its sidecar if that is valid, else from its headers.

        Warns as `from_tar` does.

        Args:
            tar: The shard.
            sidecar: Path of its sidecar, which is loaded if it is valid for shard and rules, else
                written (a folder that cannot be written to is no error).
            key_rule: As for `from_tar`.
            grouping: As for `from_tar`.
            concatenated: As for `from_tar`.
            lock_path: Lock file, so that one process makes the sidecar while the others wait for
                it; without one, each process makes it.
            room: As for `save`.
            quiet: As for `from_tar`.

        Raises:
            ShardFormatError: The shard cannot be read.
            OSError: The shard cannot be opened.
        """
        rules = IndexRules(key_rule=key_rule, grouping=grouping, concatenated=concatenated)
        path = None if sidecar is None else Path(sidecar).absolute()
        index = None if path is None else cls.kept(tar, path, rules)
        if index is None:
            lock: AbstractContextManager[None] = nullcontext()
            if lock_path is not None:
                # Without the lock, six processes that open thirty new shards at once would each
                # read the headers of all of them.
                shown = display_url(str(tar))
                lock = file_lock(lock_path, shown, patience_seconds=_PATIENCE_SECONDS)
            with lock:
                # Another process may have made the sidecar while this one waited for the lock.
                index = None if path is None else cls.kept(tar, path, rules)
                if index is None:
                    index = cls.from_tar(tar, **rules, quiet=True)
                    if path is not None:
                        try:
                            index.save(path, room=room)
                            outlast_tick(path, Path(tar).stat().st_ctime_ns)
                        except OSError as error:
                            logger.info("%s: not kept: %s", path, error)
        if not quiet:
            warn_of_losses(tar, index.skipped, index.source)
        return index

    @classmethod
    def kept(cls, tar: str | os.PathLike[str], path: Path, rules: IndexRules) -> Self | None:
        """Load a sidecar that is certainly valid for shard and rules.

        Args:
            tar: The shard.
            path: Path of its sidecar, which may be missing.
            rules: The rules by which the shard is to be read.

        Returns:
            The index; None if there is no valid one, and `open` has to make it.

        Raises:
            OSError: The shard cannot be opened.
        """
        try:
            index = cls(read_sidecar(path), path)
        except (ShardFormatError, OSError) as error:
            logger.debug("%s: made again: %s", path, error)
            return None
        try:
            # Rules first, since comparing them does not read the shard.
            fits = index.source.rules == rules and index.belongs_to(tar)
            # Sidecars made by older versions may silently leave out a second archive.
            fits = fits and not index.hides_archive(tar)
        except ShardFormatError as error:
            logger.debug("%s", error)
            return None
        return index if fits else None

    def belongs_to(self, tar: str | os.PathLike[str] | int) -> bool:
        """Compare the index, loaded from a sidecar, with the shard it was made from.

        Args:
            tar: The shard, or an open descriptor of it.

        Returns:
            Whether it is proven to belong to the shard. False if the sidecar is not newer than the
            shard: then the shard may have been changed at bytes that were not checked.

        Raises:
            ShardFormatError: The shard has another size or other headers.
            OSError: The shard cannot be opened.
        """
        if not isinstance(tar, int):
            file_descriptor = os.open(tar, os.O_RDONLY | os.O_NONBLOCK)
            try:
                return self.belongs_to(file_descriptor)
            finally:
                os.close(file_descriptor)
        status, source = os.fstat(tar), self.source
        if status.st_size != source.nbytes:
            raise self._stale(
                f"made for a shard of {source.nbytes} bytes, but it has {status.st_size} now"
            )
        # Dates and sizes alone would accept a sidecar that was copied to another shard of the same
        # size, since the copy is the newer file.
        if not self.matches(partial(os.pread, tar)):
            raise self._stale("its shard has other headers now")
        dated = self._sidecar.status
        if dated is None or not is_newer(dated, status):
            return False
        self.shard_mtime_ns = status.st_mtime_ns
        return True

    def probes(self) -> list[int]:
        """Return the positions of the blocks by which `matches` identifies the shard.

        Raises:
            ShardFormatError: The index is damaged.
        """
        source = self.source
        try:
            return fingerprinted(source.nbytes, source.end, self._sidecar.probed_offsets)
        except ValueError as error:
            raise self._damaged(str(error)) from error

    def matches(self, read: Callable[[int, int], bytes]) -> bool:
        """Return whether a shard of the right size has the headers of this index.

        Args:
            read: Function from a number of bytes and a position to those bytes of the shard.

        Raises:
            ShardFormatError: The index is damaged.
        """
        return fingerprint(read, self.probes()) == self.source.fingerprint

    def hides_archive(self, tar: str | os.PathLike[str]) -> bool:
        """Return whether the shard has a second archive that the index leaves out.

        Raises:
            OSError: The shard cannot be opened.
        """
        if not self.trailing_nbytes:
            return False
        with Path(tar).open("rb") as stream:
            stream.seek(self.source.nbytes - self.trailing_nbytes)
            header = stream.read(BLOCK_SIZE)
        return len(header) == BLOCK_SIZE and checksum_matches(header)

    @classmethod
    def from_pack(cls, image: memoryview, pack: str, status: os.stat_result | None = None) -> Self:
        """Return the index whose sidecar is part of a pack; it is verified like a sidecar.

        Args:
            image: The sidecar.
            pack: Path or URL of the pack, for messages.
            status: Status of the pack's file, whose dates show whether a shard may have changed
                since; None if it is not a file of this machine.

        Raises:
            ShardFormatError: It is no sidecar, or damaged.
        """
        sidecar = replace(parse_sidecar(image, pack), status=status, packed=True)
        return cls(sidecar, Path(pack))

    def _stale(self, why: str) -> ShardFormatError:
        shown = display_url(str(self._path))
        if self._sidecar.packed:
            return ShardFormatError(f"{shown}: a stale index in a pack: {why}; pack again")
        return ShardFormatError(f"{shown}: a stale sidecar: {why}; delete it, and it is made again")

    @property
    def digest(self) -> bytes:
        """Digest of members and samples, 16 bytes, which is equal for shards that read the same."""
        return self._sidecar.digest

    def image(self) -> bytes:
        """Return the index as the bytes of a sidecar."""
        return pack_sidecar(self._sidecar)

    def save(self, path: str | os.PathLike[str], *, room: Room = no_room_needed) -> None:
        """Write the index as a sidecar, atomically.

        The same shard gives the same bytes, on any machine and at any time.

        Args:
            path: The sidecar.
            room: Called with the size in bytes; returns a context within which the file may be
                written.

        Raises:
            OSError: It cannot be written.
        """
        image = pack_sidecar(self._sidecar)
        with room(len(image)):
            write_atomically(Path(path), image, sync=True)
        # A shard whose date is in the future would otherwise always look newer than its sidecar.
        if self.shard_mtime_ns is not None and self.shard_mtime_ns > time.time_ns():
            os.utime(path, ns=(self.shard_mtime_ns, self.shard_mtime_ns))

    def __reduce__(self) -> tuple[Callable[..., "TarIndex"], tuple[object, ...]]:
        if self._path is None or self._sidecar.packed:
            return _from_image, (pack_sidecar(self._sidecar), self.shard_mtime_ns)
        # With the digest, because the sidecar may have been replaced by the time of unpickling.
        return _load_again, (self._path, self.digest, self.shard_mtime_ns)

    @property
    def merged(self) -> str:
        """Description of a sample that may be several whose keys have dots, else ""."""
        # As most shards have none with a second dot, the search takes no time then.
        dotted = any(name.count(".") > 1 for name in self.extensions)
        if not dotted or self.source.key_rule == "last_dot":
            return ""
        rows = np.frombuffer(self._sidecar.rows, "<u4").reshape(-1, 4)
        return merged_sample(self._sidecar.extension_sets, rows[:-1, 2])

    def __repr__(self) -> str:
        return f"TarIndex({self.num_members} members, {self.num_samples} samples)"


def losses(shard: str, skipped: Mapping[str, int], source: IndexSource) -> dict[str, str]:
    """Return what a shard probably lacks, as a message for each cause.

    Args:
        shard: The shard, for the messages.
        skipped: Number of its entries in no sample, by reason.
        source: What its index was made from.

    >>> losses("a.tar", {SYMBOLIC_LINK: 2}, IndexSource(10_240, 2048))[SYMBOLIC_LINK]
    'a.tar: 2 symbolic links have no data in a tar, so their fields or samples are missing; pack \
the shard again with the files that they lead to, as `tar --dereference` does'
    """
    shown, found = display_url(shard), {}
    lost = "so their fields or samples are missing; pack the shard again with the files that they"
    if links := skipped.get(LOST_LINK):
        found[LOST_LINK] = f"{shown}: {links} hard links lead to no earlier member, {lost} link to"
    if links := skipped.get(SYMBOLIC_LINK):
        found[SYMBOLIC_LINK] = (
            f"{shown}: {links} symbolic links have no data in a tar, {lost} lead to, as "
            "`tar --dereference` does"
        )
    if source.doubt:
        found["end of archive"] = (
            f"{shown}: {source.doubt}, where samples may have been; compare the shard with its "
            "source, or fetch it again"
        )
    return found


def warn_of_losses(
    shard: str | os.PathLike[str], skipped: Mapping[str, int], source: IndexSource
) -> None:
    """Warn of what a shard probably lacks; see `losses`."""
    for message in losses(str(shard), skipped, source).values():
        warn(message)


def _from_image(image: bytes, shard_mtime_ns: int | None) -> TarIndex:
    sidecar = parse_sidecar(memoryview(image), "(pickled tar index)")
    return TarIndex(sidecar, shard_mtime_ns=shard_mtime_ns)


def _load_again(path: Path, digest: bytes, shard_mtime_ns: int | None) -> TarIndex:
    """Load a sidecar when an index is unpickled, without verifying its shard again."""
    index = TarIndex.load(path)
    if index.digest == digest:
        index.shard_mtime_ns = shard_mtime_ns
    return index
