"""Member table of a shard: names, spans and samples, one by one, as columns, or many at once.

`tarindex` makes and keeps indexes, and verifies them against their shards.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, overload
from zlib import crc32

import numpy as np

from wids.base.urls import display_url
from wids.errors import ShardFormatError
from wids.tar.sidecar import ROW, Sidecar
from wids.tar.tarheader import BLOCK_SIZE

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = [
    "IndexColumns",
    "MemberTable",
    "SampleKeys",
    "SpanTable",
    "find_damage",
    "rows_ascend",
    "table_of",
]

# Read from a row and the next one: first field, start of the key, extension set; end of the key.
_ROW = struct.Struct("<3I8xI").unpack_from
_SPAN = struct.Struct("<2q")
_Layout = tuple[tuple[str, ...], Callable[[memoryview, int], tuple[int, ...]]]

# The least number of samples that are checked one by one before the whole sidecar is.
_FEW_SAMPLES = 64

# Rows that are checked at a time: the numbers of one block fit into the CPU cache.
_BLOCK = 1 << 16


class MemberTable:
    """Members of one shard and the samples they form, read from a sidecar's columns.

    Each sample is verified when it is read, all of them by `check`. Safe to read from many threads.

    Args:
        sidecar: The columns.
        path: The sidecar, for messages; None for a shard that was scanned in this process.

    Attributes:
        source: The shard that it was built from, and the rules.
        num_samples: Number of samples.
        keys: The samples' keys, each read from the index on access.
        skipped: Number of entries of the tar in no sample, by reason.
        trailing_nbytes: Bytes after the end of the archive that are no padding.
    """

    # Slots make reading a sample a tenth faster.
    __slots__ = (
        *("source", "num_samples", "skipped", "trailing_nbytes"),
        *("_ascending", "_enough_checked", "_key_bytes", "_layouts", "_num_checked", "_path"),
        *(
            "_ends",
            "_index_of_key",
            "_rows",
            "_sidecar",
            "_span_table",
            "_spans",
            "_starts",
            "_trusted",
            "_verified",
        ),
    )

    def __init__(self, sidecar: Sidecar, path: Path | None = None) -> None:
        self.source = sidecar.source
        self.num_samples = sidecar.num_samples
        self.skipped = sidecar.skipped
        self.trailing_nbytes = sidecar.source.trailing_nbytes
        self._sidecar = sidecar
        self._path = path
        # An index that was scanned in this process has no checksums before it is saved.
        self._verified = sidecar.image is None
        self._trusted = sidecar.image is None
        self._num_checked = 0
        self._enough_checked = max(_FEW_SAMPLES, self.num_samples // 8)
        self._ascending = sidecar.image is None
        self._rows = sidecar.rows
        self._spans = sidecar.spans
        self._key_bytes = sidecar.keys
        # By set of extensions, so that all samples with one set share its strings.
        self._layouts: dict[int, _Layout] = {}
        self._index_of_key: dict[str, int] | None = None
        self._ends: NDArray[np.int64] | None = None
        self._starts: NDArray[np.int64] | None = None
        self._span_table: SpanTable | None = None

    @property
    def num_members(self) -> int:
        """Number of members, which is that of all fields of all samples."""
        return self._sidecar.num_members

    @property
    def names(self) -> list[str]:
        """Names of all members as stored, in archive order; undecodable bytes as surrogates."""
        order = self._order()
        located = map(self.locate, range(self.num_samples))
        names = [key + extension for key, extensions, _ in located for extension in extensions]
        others = bytes(self._sidecar.other_names).decode("utf-8", "surrogateescape")
        names += others.split("\0")[:-1]
        return names if order is None else [names[row] for row in order.tolist()]

    @property
    def extensions(self) -> set[str]:
        """The extensions of all samples together."""
        return {name for names in self._sidecar.extension_sets for name in _names_in(names)}

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
        return SampleKeys(self.num_samples, self.key, self.check_rows)

    def find(self, key: str) -> int:
        """Return the index of a sample in the shard, given its key.

        Args:
            key: Its key.

        Raises:
            KeyError: No sample has this key.
            ShardFormatError: The sidecar is damaged.
        """
        # Made on first use: it takes memory, and most datasets never look up a key.
        if self._index_of_key is None:
            # Keys were distinct when the sidecar was made, so equal ones mean a forged sidecar.
            index_of_key = {key: index for index, key in enumerate(self.keys)}
            if len(index_of_key) < self.num_samples:
                raise self._damaged("two samples have one key")
            self._index_of_key = index_of_key
        return self._index_of_key[key]

    def fields(self, local_index: int) -> list[tuple[str, int, int]]:
        """Return the fields of one sample as `(extension, offset, size)`, in archive order.

        Args:
            local_index: Index of the sample in the shard, in `[0, num_samples)`.

        Raises:
            IndexError: There is no such sample.
            ShardFormatError: The sidecar is damaged there.
        """
        _, extensions, spans = self.locate(local_index)
        return list(zip(extensions, spans[::2], spans[1::2], strict=True))

    def span(self, local_index: int, extension: str) -> tuple[int, int]:
        """Return the offset and size of one field of one sample, in bytes.

        Args:
            local_index: Index of the sample in the shard, in `[0, num_samples)`.
            extension: The field, such as ".jpg".

        Raises:
            IndexError: There is no such sample.
            KeyError: The sample has no such field.
            ShardFormatError: The sidecar is damaged there.
        """
        # Not by `locate`, which unpacks the spans of all fields: a sample may have a million.
        self.check_sample(local_index)
        first, _, set_id, _ = _ROW(self._rows, ROW.size * local_index)
        extensions, _ = self._layout(set_id)
        if extension not in extensions:
            raise KeyError(extension)
        offset, size = _SPAN.unpack_from(self._spans, 16 * (first + extensions.index(extension)))
        return offset, size

    def key(self, local_index: int) -> str:
        """Return the key of one sample.

        Args:
            local_index: Index of the sample in the shard, in `[0, num_samples)`.

        Raises:
            IndexError: There is no such sample.
            ShardFormatError: The sidecar is damaged there.
        """
        self.check_sample(local_index)
        _, start, _, end = _ROW(self._rows, ROW.size * local_index)
        return str(self._key_bytes[start:end], "utf-8", "surrogateescape")

    def keys_at(self, local_indexes: NDArray[np.int64]) -> list[str]:
        """Return the keys of several samples.

        Args:
            local_indexes: Indexes of the samples in the shard, each in `[0, num_samples)`.

        Raises:
            IndexError: There is no such sample.
            ShardFormatError: The sidecar is damaged there.
        """
        if not self._trusted:
            return [self.key(index) for index in local_indexes.tolist()]
        starts, ends = self._table_of_spans.find_keys(local_indexes)
        keys = self._key_bytes
        return [
            str(keys[start:end], "utf-8", "surrogateescape")
            for start, end in zip(starts, ends, strict=True)
        ]

    def extensions_at(self, local_indexes: NDArray[np.int64]) -> list[tuple[str, ...]]:
        """Return the distinct sets of extensions of several samples.

        Args:
            local_indexes: Indexes of the samples in the shard, each in `[0, num_samples)`.

        Raises:
            IndexError: There is no such sample.
            ShardFormatError: The sidecar is damaged there.
        """
        if not self._trusted:
            return list({self.locate(index)[1] for index in local_indexes.tolist()})
        return [self._layout(set_id)[0] for set_id in self._table_of_spans.sets_at(local_indexes)]

    def locate(self, local_index: int) -> tuple[str, tuple[str, ...], tuple[int, ...]]:
        """Return key, extensions, and `(offset, size, offset, size, ...)` of one sample.

        Every span lies within the shard.

        Args:
            local_index: Index of the sample in the shard, in `[0, num_samples)`.

        Raises:
            IndexError: There is no such sample.
            ShardFormatError: The sidecar is damaged there.
        """
        self.check_sample(local_index)
        first, start, set_id, end = _ROW(self._rows, ROW.size * local_index)
        extensions, unpack = self._layout(set_id)
        key = str(self._key_bytes[start:end], "utf-8", "surrogateescape")
        return key, extensions, unpack(self._spans, 16 * first)

    def cut(
        self, local_index: int, data: Any, fields: Collection[str] | None = None
    ) -> dict[str, Any]:
        """Slice one sample out of its shard: the key as `__key__`, and the fields by extension.

        Args:
            local_index: Index of the sample in the shard, in `[0, num_samples)`.
            data: All bytes of the shard; the fields are slices of it.
            fields: The extensions wanted; those that the sample lacks are left out. None: all.

        Returns:
            A dict with `__key__`, and with each field by its extension.

        Raises:
            IndexError: There is no such sample.
            ShardFormatError: The sidecar is damaged there.
        """
        # The hot path of the library. It repeats `locate` and counts by hand, because a call and a
        # `zip` would each cost a tenth of the time.
        if not (self._trusted and 0 <= local_index < self.num_samples):
            self.check_sample(local_index)
        first, start, set_id, end = _ROW(self._rows, 16 * local_index)
        extensions, unpack = self._layouts.get(set_id) or self._layout(set_id)
        spans = unpack(self._spans, 16 * first)
        sample: dict[str, Any] = {
            "__key__": str(self._key_bytes[start:end], "utf-8", "surrogateescape")
        }
        position = 0
        for extension in extensions:
            if fields is None or extension in fields:
                offset = spans[position]
                sample[extension] = data[offset : offset + spans[position + 1]]
            position += 2
        return sample

    def find_spans(
        self, local_indexes: NDArray[np.int64], extensions: tuple[str, ...]
    ) -> NDArray[np.int64]:
        """Find some fields of many samples in a few operations.

        Args:
            local_indexes: Indexes of the samples in the shard, each in `[0, num_samples)`.
            extensions: The fields, such as `(".jpg",)`.

        Returns:
            Offset and size of each field in bytes, all within the shard, shape
            `(num_samples, num_fields, 2)`; both are -1 where a sample lacks a field.

        Raises:
            IndexError: There is no such sample.
            ShardFormatError: The sidecar is damaged there.
        """
        if not self._trusted:
            for local_index in local_indexes.tolist():
                self.check_sample(local_index)
        return self._table_of_spans.find(local_indexes, extensions)

    def headers_start(self, offset: int) -> int:
        """Return the offset of the first header of a member, extended headers included.

        This is where the data of the previous member ends. The sidecar is not verified here.

        Args:
            offset: First data byte of the member.
        """
        if self._ends is None:
            spans = np.frombuffer(self._spans, "<i8").reshape(-1, 2)
            self._ends = np.sort(spans[:, 0] + spans[:, 1] + -spans[:, 1] % BLOCK_SIZE)
        row = int(np.searchsorted(self._ends, offset - BLOCK_SIZE, side="right")) - 1
        return max(0, int(self._ends[row])) if row >= 0 else 0

    def next_header_end(self, position: int) -> int:
        """Return the end of the next headers that begin at or after a position.

        That is where the data of the next member begins, or the first block after the archive ends,
        by the sidecar, which is not verified here.

        Args:
            position: Where the data of a member ends, padding included.
        """
        if self._starts is None:
            self._starts = np.sort(np.frombuffer(self._spans, "<i8")[::2])
        row = int(np.searchsorted(self._starts, position + BLOCK_SIZE))
        if row < len(self._starts):
            return int(self._starts[row])
        return min(self.source.end + BLOCK_SIZE, self.source.nbytes)

    def is_linked(self, offset: int) -> bool:
        """Return whether several members share the data at an offset, as hard links do."""
        offsets = np.frombuffer(self._spans, "<i8")[::2]
        return int(np.count_nonzero(offsets == offset)) > 1

    @property
    def _table_of_spans(self) -> SpanTable:
        if self._span_table is None:
            self._span_table = SpanTable(self._sidecar)
        return self._span_table

    def check_sample(self, local_index: int) -> None:
        """Verify the checksum and the bounds of one sample.

        After an eighth of the samples, all are verified together, which costs a fraction of
        verifying each by itself; from then on, reads need no check.

        Raises:
            IndexError: There is no such sample.
            ShardFormatError: The sidecar is damaged there.
        """
        if not 0 <= local_index < self.num_samples:
            raise IndexError(
                f"sample {local_index} lies outside [0, {self.num_samples}) of this shard"
            )
        if self._trusted:
            return
        self._num_checked += 1
        # "Equal" and not "at least", so that a check that fails is not repeated for each sample.
        if self._num_checked == self._enough_checked:
            # A damaged sidecar still serves the samples whose rows are intact.
            self._trusted = self._sidecar.intact() and self._table_of_spans.holds()
        at = ROW.size * local_index
        first, start, set_id, check = ROW.unpack_from(self._rows, at)
        last, end, _, _ = ROW.unpack_from(self._rows, at + ROW.size)
        spans = self._spans[16 * first : 16 * last]
        nbytes = self.source.nbytes
        fits = (
            set_id < len(self._sidecar.extension_sets)
            and len(spans) == 16 * (last - first) == 16 * len(self._layout(set_id)[0])
            and crc32(spans, crc32(self._key_bytes[start:end], set_id)) == check
            # The checksum finds accidents; a forged row must not reach outside the shard, either.
            and all(
                0 <= offset <= nbytes and 0 <= size <= nbytes - offset
                for offset, size in _SPAN.iter_unpack(spans)
            )
        )
        if not fits:
            raise self._damaged(f"the row of sample {local_index} does not fit")

    def _layout(self, set_id: int) -> _Layout:
        """Return the extensions of a set, and a function that unpacks its samples' spans."""
        layout = self._layouts.get(set_id)
        if layout is None:
            extensions = _names_in(self._sidecar.extension_sets[set_id])
            if len(set(extensions)) < len(extensions) or not all(e[:1] == "." for e in extensions):
                raise self._damaged(f"extension set {set_id} is malformed")
            layout = extensions, struct.Struct(f"<{2 * len(extensions)}q").unpack_from
            self._layouts[set_id] = layout
        return layout

    def columns(self) -> IndexColumns:
        """Return keys and fields of all samples as columns.

        Raises:
            ShardFormatError: The sidecar is damaged.
        """
        self.check_rows()
        table = table_of(self._sidecar)
        names = list(map(_names_in, self._sidecar.extension_sets))
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
            ShardFormatError: The sidecar is damaged or forged.
        """
        if self._verified:
            return
        damage = find_damage(self._sidecar)
        if damage is not None:
            raise self._damaged(damage)
        self._verified = True

    def check_rows(self) -> None:
        """Verify that fields and keys of the samples are in ascending order; reads the rows only.

        Otherwise, many rows could name the same megabytes of key. Code that goes through all
        samples calls this; reading one sample does not.

        Raises:
            ShardFormatError: The sidecar is damaged or forged.
        """
        if self._ascending:
            return
        if not rows_ascend(self._sidecar):
            raise self._damaged("its rows do not ascend")
        self._ascending = True

    def _order(self) -> NDArray[np.uint32] | None:
        self.check()
        order = np.frombuffer(self._sidecar.order, "<u4")
        return order if len(order) else None

    def _column(self, column: int) -> NDArray[np.int64]:
        order = self._order()
        rows = np.frombuffer(self._spans, "<i8").reshape(-1, 2)[:, column]
        return (rows if order is None else rows[order]).astype(np.int64)

    def _damaged(self, what: str) -> ShardFormatError:
        if self._sidecar.packed:
            return ShardFormatError(
                f"{display_url(str(self._path))}: a damaged index in a pack: {what}; make the pack "
                "again (`wids export`)"
            )
        return ShardFormatError(
            f"{display_url(str(self._path))}: a damaged sidecar: {what}; delete it, and it is made "
            "again from its shard, or fetched again; `wids create --sidecars` makes one anew that "
            "is damaged on its server"
        )


def _names_in(extension_set: bytes) -> tuple[str, ...]:
    """Return the extensions of a set, which the sidecar joins by `/`."""
    return tuple(extension_set.decode("utf-8", "surrogateescape").split("/"))


class SampleKeys(Sequence[str]):
    """Sequence of the keys of an index, each read on access.

    Args:
        num_samples: Number of samples.
        key: Returns the key of one sample.
        check: Called before many keys are read; raises an error if they overlap.

    >>> keys = SampleKeys(3, "abc".__getitem__, lambda: None)
    >>> keys[-1], keys[:2], list(keys), keys
    ('c', ['a', 'b'], ['a', 'b', 'c'], <3 keys>)
    """

    def __init__(
        self, num_samples: int, key: Callable[[int], str], check: Callable[[], None]
    ) -> None:
        self._num_samples = num_samples
        self._key = key
        self._check = check

    def __len__(self) -> int:
        return self._num_samples

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        # A single key is verified when it is read. Many keys could each name the same megabytes.
        if isinstance(index, slice):
            self._check()
            return [self._key(i) for i in range(*index.indices(len(self)))]
        return self._key(index + len(self) if index < 0 else index)

    def __iter__(self) -> Iterator[str]:
        self._check()
        return map(self._key, range(len(self)))

    def __repr__(self) -> str:
        return f"<{len(self)} keys>"


# Bounds of the memory of all names, which repeat keys: far more than keys of up to 1 KiB need.
_MAX_NAMES_NBYTES = 64 << 20
_MAX_NAMES_RATIO = 64


def table_of(sidecar: Sidecar) -> NDArray[np.int64]:
    """Return the rows as numbers; shape `(num_samples + 1, 4)`."""
    return np.frombuffer(sidecar.rows, "<u4").reshape(-1, 4).astype(np.int64)


def rows_ascend(sidecar: Sidecar) -> bool:
    """Return whether fields and keys of the samples are in ascending order; reads the rows only."""
    starts = table_of(sidecar)[:, :2]
    return not (starts[0].any() or (starts[1:] < starts[:-1]).any())


def find_damage(sidecar: Sidecar) -> str | None:
    """Verify the digest, spans, order, rows, names and keys; return what is wrong, or None.

    Reads all of the sidecar, and nothing of the shard.
    """
    # The digest finds all accidental damage; a sidecar that fails only a later check is forged.
    if not sidecar.intact():
        return "the digest does not fit"
    offsets, sizes = np.frombuffer(sidecar.spans, "<i8").reshape(-1, 2).T
    # Subtracted, since the sum of an offset and a size near 2**63 would overflow.
    room = sidecar.source.nbytes - offsets
    if ((offsets < 0) | (sizes < 0) | (room < 0) | (sizes > room)).any():
        return "a member lies outside its shard"
    order = np.frombuffer(sidecar.order, "<u4")
    if len(order) and not np.array_equal(np.sort(order), np.arange(sidecar.num_members)):
        return "its order is no permutation"
    if not rows_ascend(sidecar):
        return "its rows do not ascend"
    rows = table_of(sidecar)
    widths = np.array([names.count(b"/") + 1 for names in sidecar.extension_sets], np.int64)
    set_ids = rows[:-1, 2]
    if (set_ids >= len(widths)).any() or (widths[set_ids] != np.diff(rows[:, 0])).any():
        return "a sample has another number of fields than of extensions"
    num_names = rows[-1, 0] + bytes(sidecar.other_names).count(b"\0")
    if num_names != sidecar.num_members:
        return f"expected names for {sidecar.num_members} members, found {num_names}"
    # The sidecar holds a key once; the names repeat it for each field.
    extension_nbytes = np.array(list(map(len, sidecar.extension_sets)), np.int64)
    nbytes = (np.diff(rows[:, 1]) * widths[set_ids] + extension_nbytes[set_ids]).sum()
    bound = max(_MAX_NAMES_NBYTES, _MAX_NAMES_RATIO * len(sidecar.image or b""))
    if nbytes > bound:
        return f"its names would take {nbytes} bytes, more than {bound}"
    keys = bytes(sidecar.keys)
    if len({keys[start:end] for start, end in pairwise(rows[:, 1].tolist())}) < len(set_ids):
        return "two samples have one key"
    return None


@dataclass(frozen=True, eq=False)
class IndexColumns:
    """Keys and fields of a shard's samples, in the order of the samples.

    Sample `i` has the key `key_bytes[key_starts[i] : key_starts[i + 1]]`, and its fields are rows
    `first_fields[i]` to `first_fields[i + 1]` of `sizes`, named by `extension_sets[set_ids[i]]`.

    Attributes:
        key_bytes: All keys end to end, UTF-8; undecodable bytes as they were in the tar.
        key_starts: Shape `(num_samples + 1,)`, int64.
        first_fields: Shape `(num_samples + 1,)`, int64.
        set_ids: Shape `(num_samples,)`, int64.
        extension_sets: The distinct sets of extensions.
        sizes: Bytes of each field, int64.
    """

    key_bytes: bytes
    key_starts: NDArray[np.int64]
    first_fields: NDArray[np.int64]
    set_ids: NDArray[np.int64]
    extension_sets: list[tuple[str, ...]]
    sizes: NDArray[np.int64]

    def sum_by_sample(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Sum a value of each field, in the order of `sizes`, over each sample's fields.

        Args:
            values: One value for each field, int64.

        Returns:
            The sums; shape `(num_samples,)`.
        """
        # `np.add.reduceat` would give a sample without fields the size of its neighbour.
        running = np.concatenate([np.zeros(1, np.int64), np.cumsum(values)])
        sums: NDArray[np.int64] = running[self.first_fields[1:]] - running[self.first_fields[:-1]]
        return sums

    def consistent(self) -> bool:
        """Return whether rows, keys and fields fit together, so that every read stays in bounds."""
        widths = np.array([len(names) for names in self.extension_sets], np.int64)
        return bool(
            # The last bounds suffice, since `check_rows` has verified that all bounds ascend.
            self.key_starts[-1] <= len(self.key_bytes)
            and self.first_fields[-1] <= self.sizes.size
            and (self.set_ids < widths.size).all()
            and (widths[self.set_ids] == np.diff(self.first_fields)).all()
            and all(len(set(names)) == len(names) for names in self.extension_sets)
        )


class SpanTable:
    """Table that finds fields of many samples at once.

    The arrays are views of the sidecar, so making the table costs the same for any shard.
    `find` verifies nothing: its caller must have checked those samples, or all of them.

    Args:
        sidecar: A sidecar that was read or laid out.

    Attributes:
        rows: First span, first key byte, extension set and check of each sample, then a row of
            ends; shape `(num_samples + 1, 4)`, uint32.
        spans: Offset and size of each field, in bytes; shape `(num_members, 2)`, int64.
    """

    def __init__(self, sidecar: Sidecar) -> None:
        self.rows: NDArray[np.uint32] = np.frombuffer(sidecar.rows, "<u4").reshape(-1, 4)
        self.spans: NDArray[np.int64] = np.frombuffer(sidecar.spans, "<i8").reshape(-1, 2)
        # Columns of `rows`: indexing one of them takes a tenth of the time of `rows[indexes, 0]`,
        # which counts for the few samples that a shuffled batch has in a shard.
        self._first_spans, self._key_starts, self._set_ids = self.rows.T[:3]
        self._keys_nbytes = len(sidecar.keys)
        self._shard_nbytes = sidecar.source.nbytes
        self._sets = list(map(_names_in, sidecar.extension_sets))
        # Maps the extensions of one request to their positions in each extension set, and to
        # whether these are the same for all samples.
        self._positions: dict[tuple[str, ...], tuple[NDArray[np.int64], bool]] = {}

    def find(
        self, local_indexes: NDArray[np.int64], extensions: tuple[str, ...]
    ) -> NDArray[np.int64]:
        """Return the spans of some fields of several samples.

        Args:
            local_indexes: Indexes of the samples in the shard, each in `[0, num_samples)`.
            extensions: The fields, such as `(".jpg",)`.

        Returns:
            Offset and size of each field in bytes, shape `(num_samples, num_fields, 2)`; both are
            -1 where a sample lacks a field.
        """
        positions, are_alike = self._positions.get(extensions) or self._positions_of(extensions)
        first = self._first_spans[local_indexes][:, None]
        # Fast path: in most shards all samples have the same fields.
        if are_alike:
            spans: NDArray[np.int64] = self.spans.take(first + positions, 0)
            return spans
        chosen = positions[self._set_ids[local_indexes]]
        spans = self.spans.take(first + np.maximum(chosen, 0), 0)
        spans[chosen < 0] = -1
        return spans

    def _positions_of(self, extensions: tuple[str, ...]) -> tuple[NDArray[np.int64], bool]:
        found = [
            [names.index(name) if name in names else -1 for name in extensions]
            for names in self._sets
        ]
        # positions: (num_sets, num_fields); position of each field in each set, or -1.
        positions = np.array(found, np.int64)
        are_alike = len(positions) == 1 and bool((positions >= 0).all())
        self._positions[extensions] = positions, are_alike
        return positions, are_alike

    def find_keys(self, local_indexes: NDArray[np.int64]) -> tuple[list[int], list[int]]:
        """Return the bounds of the keys of several samples among the key bytes."""
        starts = self._key_starts
        return starts[local_indexes].tolist(), starts[local_indexes + 1].tolist()

    def sets_at(self, local_indexes: NDArray[np.int64]) -> list[int]:
        """Return the distinct extension sets of several samples."""
        if len(self._sets) == 1:
            return [0]
        numbers: list[int] = np.unique(self._set_ids[local_indexes]).tolist()
        return numbers

    def holds(self) -> bool:
        """Return whether every sample has the fields of its set, all of them inside the shard."""
        widths = np.array([len(names) for names in self._sets], np.int64)
        last = self.rows[-1]
        return (
            not self.rows[0, :2].any()
            and int(last[0]) <= len(self.spans)
            and int(last[1]) == self._keys_nbytes
            and all(self._rows_hold(start, widths) for start in range(0, len(self.rows), _BLOCK))
            and all(self._spans_hold(start) for start in range(0, len(self.spans), _BLOCK))
        )

    def _rows_hold(self, start: int, widths: NDArray[np.int64]) -> bool:
        # Signed, because a negative difference of unsigned numbers would wrap to a huge one.
        rows = self.rows[start : start + _BLOCK + 1].astype(np.int64)
        fields, keys, set_ids = np.diff(rows[:, 0]), np.diff(rows[:, 1]), rows[:-1, 2]
        if (keys < 0).any() or (set_ids >= len(widths)).any():
            return False
        return bool((widths[set_ids] == fields).all())

    def _spans_hold(self, start: int) -> bool:
        offsets, sizes = self.spans[start : start + _BLOCK].T
        room = self._shard_nbytes - offsets
        return bool(((offsets >= 0) & (sizes >= 0) & (room >= 0) & (sizes <= room)).all())
