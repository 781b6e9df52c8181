"""What a tar index says, once it is there: names, spans and samples, served from its columns.

How an index is made, kept and verified against its shard is `tarindex`'s business.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import overload
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from wids.errors import ShardFormatError
from wids.tar.indexcolumns import IndexColumns
from wids.tar.sidecar import ROW, Sidecar

__all__ = ["MemberTable"]

_TWO_ROWS = struct.Struct("<8I").unpack_from
_Layout = tuple[tuple[str, ...], Callable[[memoryview], tuple[int, ...]]]


class MemberTable:
    """The members of one shard and the samples they form, cut out of a sidecar's columns.

    Nothing is believed before it is checked: each sample when it is read, all of them by `check`.
    Safe to read from many threads.

    Args:
        sidecar: The columns.
        path: Where they lie, for messages; None for what was scanned in this process.

    Attributes:
        source: What it was built from, and by which rules.
        num_samples: Number of samples.
        keys: The samples' keys; cut out of the index when asked for.
        skipped: How many entries of the tar are in no sample, by reason.
        trailing_nbytes: Bytes behind the end of the archive that are no padding.
    """

    def __init__(self, sidecar: Sidecar, path: Path | None = None) -> None:
        self.source = sidecar.source
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

    def columns(self) -> IndexColumns:
        """Return keys and fields of all samples as columns, for what goes through all of them.

        Raises:
            ShardFormatError: The sidecar is damaged.
        """
        self.check_rows()
        table = self._table()
        names = [
            tuple(each.decode("utf-8", "surrogateescape").split("/"))
            for each in self._sidecar.extension_sets
        ]
        sizes = np.frombuffer(self._spans, "<i8").reshape(-1, 2)[:, 1]
        columns = IndexColumns(
            bytes(self._key_bytes), table[:, 1], table[:, 0], table[:-1, 2], names, sizes
        )
        if not columns.consistent():
            raise self._damaged("its rows do not fit its keys and fields")
        return columns

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


class _Keys(Sequence[str]):
    """The keys of an index, cut out of it one by one."""

    def __init__(self, index: MemberTable) -> None:
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
