"""The tar index of a shard: which bytes are which field of which sample.

Built once by reading the shard's headers (`TarIndex.from_tar`), kept as a sidecar (`save`, `load`),
and from then on mapped by every process that opens the shard (`TarIndex.open`).
"""

import logging
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Self, overload
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from wids.errors import ShardFormatError
from wids.tar.grouping import Grouping, KeyRule, group_members
from wids.tar.sidecar import (
    ROW,
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

_TWO_ROWS = struct.Struct("<8I").unpack_from
_Layout = tuple[tuple[str, ...], Callable[[memoryview], tuple[int, ...]]]


class TarIndex:
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
        self.source = sidecar.source
        self.shard_mtime_ns = sidecar.source.mtime_ns
        self.num_samples = sidecar.num_samples
        self.skipped = sidecar.skipped
        self.trailing_nbytes = sidecar.source.trailing_nbytes
        self._sidecar = sidecar
        self._path = path
        # What was scanned in this process needs no checksums, and has none until it is saved.
        self._verified = sidecar.image is None
        self._checked = sidecar.image is not None
        self._ascending = sidecar.image is None
        self._rows = sidecar.rows
        self._spans = sidecar.spans
        self._key_bytes = sidecar.keys
        # One entry for each distinct set of extensions, so that all samples share the strings.
        self._layouts: dict[int, _Layout] = {}
        self._places: dict[str, int] | None = None

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

    def __len__(self) -> int:
        return self._sidecar.num_members

    @property
    def names(self) -> list[str]:
        """Names of all members as stored, in archive order; undecodable bytes as surrogates."""
        order = self._order()
        names = []
        for place in range(self.num_samples):
            key, extensions, _ = self.locate(place)
            names += [key + extension for extension in extensions]
        others = bytes(self._sidecar.other_names).decode("utf-8", "surrogateescape")
        names += others.split("\0")[:-1]
        return names if order is None else [names[row] for row in order.tolist()]

    @property
    def offsets(self) -> NDArray[np.int64]:
        """First data byte of each member, in archive order; shape `(num_members,)`, bytes."""
        return self._column(0)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Data length of each member, in archive order; shape `(num_members,)`, bytes."""
        return self._column(1)

    @property
    def keys(self) -> Sequence[str]:
        """The samples' keys."""
        return _Keys(self)

    def find(self, key: str) -> int:
        """Return the place of a sample in the shard, given its key.

        Raises:
            KeyError: There is none.
            ShardFormatError: The sidecar is damaged.
        """
        # A dict of all keys takes memory; most datasets never look up a key.
        if self._places is None:
            places = {key: place for place, key in enumerate(self.keys)}
            if len(places) < self.num_samples:
                raise self._damaged("two samples have one key")
            self._places = places
        return self._places[key]

    def fields(self, local_index: int) -> list[tuple[str, int, int]]:
        """Return the fields of one sample as `(extension, offset, size)`, in archive order.

        Args:
            local_index: Place of the sample, in `[0, num_samples)`.

        Raises:
            IndexError: There is no such place.
            ShardFormatError: The sidecar is damaged there.
        """
        _, extensions, spans = self.locate(local_index)
        fields = list(zip(extensions, spans[::2], spans[1::2], strict=True))
        for _, offset, size in fields:
            if offset < 0 or size < 0 or offset + size > self.source.nbytes:
                raise self._damaged(f"sample {local_index} lies outside its shard")
        return fields

    def key(self, local_index: int) -> str:
        """Return the key of one sample.

        Raises:
            IndexError: There is no such place.
            ShardFormatError: The sidecar is damaged there.
        """
        return self.locate(local_index)[0]

    def locate(self, local_index: int) -> tuple[str, tuple[str, ...], tuple[int, ...]]:
        """Return key, extensions, and `(offset, size, offset, size, ...)` of one sample."""
        if not 0 <= local_index < self.num_samples:
            raise IndexError(
                f"sample {local_index} lies outside [0, {self.num_samples}) of this shard"
            )
        first, key_start, set_id, check, last, key_end, _, _ = _TWO_ROWS(
            self._rows, ROW.size * local_index
        )
        spans = self._spans[16 * first : 16 * last]
        key = self._key_bytes[key_start:key_end]
        if self._checked and crc32(spans, crc32(key, set_id)) != check:
            raise self._damaged(f"the row of sample {local_index} does not fit")
        layout = self._layouts.get(set_id)
        if layout is None:
            layout = self._layout(set_id, local_index)
        extensions, unpack = layout
        try:
            return str(key, "utf-8", "surrogateescape"), extensions, unpack(spans)
        except struct.error as error:
            raise self._damaged(f"the row of sample {local_index} does not fit") from error

    def _layout(self, set_id: int, local_index: int) -> _Layout:
        """Return the extensions of a set, and what unpacks the spans of a sample that has it."""
        sets = self._sidecar.extension_sets
        if set_id >= len(sets):
            raise self._damaged(f"the row of sample {local_index} does not fit")
        extensions = tuple(sets[set_id].decode("utf-8", "surrogateescape").split("/"))
        if len(set(extensions)) < len(extensions) or not all(e[:1] == "." for e in extensions):
            raise self._damaged(f"extension set {set_id} is none")
        layout = extensions, struct.Struct(f"<{2 * len(extensions)}q").unpack
        self._layouts[set_id] = layout
        return layout

    def check(self) -> None:
        """Verify the whole index: its digest, rows, names and keys, and that all members fit.

        Reading one sample verifies that sample only; `names`, `offsets` and `sizes` call this.

        Raises:
            ShardFormatError: The sidecar is damaged, or was never right.
        """
        if self._verified:
            return
        if not self._sidecar.intact():
            raise self._damaged("the digest does not fit")
        offsets, sizes = np.frombuffer(self._spans, "<i8").reshape(-1, 2).T
        room = self.source.nbytes - offsets
        if ((offsets < 0) | (sizes < 0) | (room < 0) | (sizes > room)).any():
            raise self._damaged("a member lies outside its shard")
        order = np.frombuffer(self._sidecar.order, "<u4")
        if len(order) and not np.array_equal(np.sort(order), np.arange(len(self))):
            raise self._damaged("its order is no permutation")
        self.check_rows()
        self._check_names()
        self._verified = True

    def check_rows(self) -> None:
        """Verify that fields and keys of the samples follow one another; reads the rows only.

        Else a few megabytes of rows could each have the same megabytes of key. What goes through
        all samples calls this; reading one sample does not.

        Raises:
            ShardFormatError: The sidecar is damaged, or was never right.
        """
        if self._ascending:
            return
        starts = self._table()[:, :2]
        if starts[0].any() or (starts[1:] < starts[:-1]).any():
            raise self._damaged("its rows do not ascend")
        self._ascending = True

    def _check_names(self) -> None:
        """Verify that each member has one name, and each sample a key of its own."""
        rows, sidecar = self._table(), self._sidecar
        widths = np.array([names.count(b"/") + 1 for names in sidecar.extension_sets], np.int64)
        set_ids = rows[:-1, 2]
        if (set_ids >= len(widths)).any() or (widths[set_ids] != np.diff(rows[:, 0])).any():
            raise self._damaged("a sample has another number of fields than of extensions")
        num_others = bytes(sidecar.other_names).count(b"\0")
        if rows[-1, 0] + num_others != len(self):
            raise self._damaged(
                f"expected names for {len(self)} members, found {rows[-1, 0] + num_others}"
            )
        keys = bytes(self._key_bytes)
        if len({keys[start:end] for start, end in pairwise(rows[:, 1].tolist())}) < len(set_ids):
            raise self._damaged("two samples have one key")

    def _table(self) -> NDArray[np.int64]:
        """Return the rows as numbers; shape `(num_samples + 1, 4)`."""
        return np.frombuffer(self._rows, "<u4").reshape(-1, 4).astype(np.int64)

    def _order(self) -> NDArray[np.uint32] | None:
        self.check()
        order = np.frombuffer(self._sidecar.order, "<u4")
        return order if len(order) else None

    def _column(self, column: int) -> NDArray[np.int64]:
        order = self._order()
        rows = np.frombuffer(self._spans, "<i8").reshape(-1, 2)[:, column]
        return (rows if order is None else rows[order]).astype(np.int64)

    def _damaged(self, what: str) -> ShardFormatError:
        return ShardFormatError(
            f"{self._path}: a damaged sidecar: {what}; delete it, and it is made anew from its "
            "shard"
        )

    def __reduce__(self) -> tuple[Callable[..., "TarIndex"], tuple[object, ...]]:
        if self._path is not None:
            if self.shard_mtime_ns == self.source.mtime_ns:
                return TarIndex.load, (self._path,)
            return _load_verified, (self._path, self.digest, self.shard_mtime_ns)
        return _from_image, (pack_sidecar(self._sidecar),)

    def __repr__(self) -> str:
        return f"TarIndex({len(self)} members, {self.num_samples} samples)"


class _Keys(Sequence[str]):
    """The keys of an index, cut out of it one by one."""

    def __init__(self, index: TarIndex) -> None:
        self._index = index

    def __len__(self) -> int:
        return self._index.num_samples

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, slice):
            self._index.check_rows()
            return [self._index.key(i) for i in range(*place.indices(len(self)))]
        return self._index.key(place + len(self) if place < 0 else place)

    def __iter__(self) -> Iterator[str]:
        self._index.check_rows()
        return map(self._index.key, range(len(self)))

    def __repr__(self) -> str:
        return f"<{len(self)} keys>"


def _from_image(image: bytes) -> TarIndex:
    return TarIndex(parse_sidecar(memoryview(image), "(pickled tar index)"))


def _load_verified(path: Path, digest: bytes, shard_mtime_ns: int) -> TarIndex:
    """Load a sidecar that was verified against a shard's headers, if it is still that one."""
    index = TarIndex.load(path)
    if index.digest == digest:
        index.shard_mtime_ns = shard_mtime_ns
    return index
