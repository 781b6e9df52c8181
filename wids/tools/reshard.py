"""Copy of samples into new shards, shuffled, selected or merged.

The tar index gives the size of each sample, so the samples of each new shard are known before a
byte is copied, and the new shards are written in parallel. A sample that does not change is copied
in one piece, headers included. The fields of a joined sample are in several shards or tables, so
such a sample is read and written field by field.
"""

from __future__ import annotations

import os
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, Unpack

import numpy as np

from wids.base.arguments import check_sized, checked_positions
from wids.base.omissions import Omissions
from wids.ordering.permute import derive_key, permute
from wids.reading.openshards import by_shard
from wids.reading.shardlist import is_sharded
from wids.tar.fileshard import FileShard
from wids.tar.shard import Shard
from wids.tools.newshards import (
    NewShards,
    header_of,
    key_rule_of,
    note_entry_keys,
    skipped_members,
)
from wids.tools.parts import Part, begun_with
from wids.views.plan import has_function, slots_of
from wids.views.storage import written_names
from wids.writing.memberwriter import BLOCK, END_NBYTES, member_header, padded
from wids.writing.sampleencoder import SampleEncoder
from wids.writing.shardfile import ShardOptions, shard_options

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from concurrent.futures import Executor

    from numpy.typing import NDArray

    from wids.tar.membertable import IndexColumns
    from wids.views.viewable import Viewable
    from wids.writing.memberwriter import SampleArchive

__all__ = ["Copier", "Resharded", "plan_parts", "reshard", "shuffled", "windows"]

_PLAIN_NAME = 100  # a longer name, or one that is not ASCII, may take a PAX header
# Eleven octal digits; a larger size takes a PAX header.
_PLAIN_NBYTES = 8**11
# Samples read at a time, in the order of the disk, which makes a shuffle fast on cold files.
_WINDOW = 1024
_WINDOW_NBYTES = 128 << 20  # where they are not mapped, this is memory
_ZEROS = bytes(BLOCK)

_Members = list[tuple[str, Any]]


@dataclass(frozen=True)
class Resharded:
    """Result of copying samples into new shards.

    Attributes:
        entries: The spec entries of the new shards, in order.
        failures: The new shards that could not be written: path to error message.
        omissions: Counts of the data of the old shards that the new ones do not have.
    """

    entries: list[dict[str, Any]]
    failures: dict[str, Exception]
    omissions: Omissions


def reshard(
    dataset: Viewable,
    indexes: Sequence[int] | NDArray[np.int64],
    pattern: str | os.PathLike[str],
    *,
    maxcount: int = 100_000,
    maxsize: int = 3_000_000_000,
    rekey: bool = False,
    resume: bool = False,
    executor: Executor | None = None,
    workers: int | None = None,
    strict: bool = False,
    **options: Unpack[ShardOptions],
) -> Resharded:
    """Copy samples into new shards, in the order given.

    The members keep their names, order and bytes; nothing is decoded. The same call always writes
    the same shards. Once all are complete, their spec is written to `spec_path_for(pattern)`, with
    the top-level keys of the dataset, such as class names. A shard that fails does not stop the
    others. Warns of shards with higher numbers that an earlier run has left.

    A sample of a join gets the fields of both sides. Each column of a joined table becomes a field
    of its own, as in the join, as text or JSON.

    Args:
        dataset: Dataset, view, join or concatenation with the samples. Only its `fields` are
            copied, by default all.
        indexes: Global indexes of the samples, in their new order: a list, a range or an array;
            negative ones count from the end.
        pattern: Path of the new shards, with a `%d` for their number.
        maxcount: Most samples in a shard, `>= 1`.
        maxsize: Most bytes in a shard, `>= 1`; a shard with a single larger sample exceeds it.
        rekey: Replace the keys by numbers, `000000000` and so on; needed if samples of different
            shards have the same key.
        resume: Keep the new shards of an earlier run that was stopped or failed in part. They must
            have the samples that would be written, and be made of the same sources and options.
        executor: Executor that writes the shards; a process pool by default.
        workers: Processes of that pool; by default one per core.
        strict: Fail before anything is written if members in no sample or keys of spec entries
            would be left out.
        options: `sidecars`, `digests` and `fsync`, as for `ShardWriter`.

    Raises:
        IndexError: An index lies outside the dataset.
        ValueError: `indexes` is empty, a bound is below 1, the pattern is invalid, a new shard
            would replace one that is read, data would be left out and `strict` is set, a field is
            in both sides of a join, or a run is resumed that was begun with something else.

    >>> import tempfile, wids
    >>> folder = tempfile.mkdtemp()
    >>> with wids.ShardWriter(f"{folder}/old-%d.tar", spec=f"{folder}/old.json") as writer:
    ...     for number in range(5):
    ...         writer.write({"__key__": str(number), ".cls": number})
    >>> dataset = wids.ShardListDataset(f"{folder}/old.json")
    >>> done = wids.reshard(dataset, [4, 0, 2], f"{folder}/new-%d.tar", maxcount=2, workers=1)
    >>> [sample[".cls"] for sample in wids.ShardListDataset(f"{folder}/new.json")]
    [4, 0, 2]
    """
    pattern = os.fspath(pattern)
    lineage = getattr(dataset, "lineage", None)
    dataset, indexes = _stored(dataset, indexes, pattern)
    bounds = {"maxcount": maxcount, "maxsize": maxsize}
    with Copier(dataset, rekey=rekey) as copier:
        shards = NewShards(dataset, pattern, copier, options, **bounds)
        omissions = Omissions(strict=strict)
        note_entry_keys(dataset, omissions)
        parts = plan_parts(dataset, indexes, maxcount, maxsize, omissions, rekey=rekey)
        how = {**bounds, "rekey": rekey, **shard_options(**options)}
        rows, failures = shards.write(
            parts,
            begun_with(dataset, indexes, how),
            resume=resume,
            executor=executor,
            workers=workers,
            desc="writing shards",
        )
    entries = [row["entry"] for row in rows]
    if not failures:
        shards.publish(entries, {**header_of(dataset), "lineage": lineage}, len(parts))
    return Resharded(entries, failures, omissions)


def _stored(
    dataset: Any, indexes: Sequence[int] | NDArray[np.int64], pattern: str
) -> tuple[Any, NDArray[np.int64]]:
    """Return the samples to copy by their indexes in the dataset that stores them, if it is one.

    Raises:
        IndexError: An index lies outside the dataset.
        ValueError: There are no indexes, or the samples are results of a function.
    """
    check_sized("indexes", indexes, "a list, a range or an array of integers")
    if not len(indexes):
        raise ValueError(f"{pattern}: expected at least one sample to copy, got none")
    positions = checked_positions(indexes, len(dataset))
    if has_function(dataset):
        raise ValueError(
            "reshard copies stored fields, and these samples are results of map() or windows(); "
            "give it the dataset as it is without these, or a function to map_samples"
        )
    sources = slots_of(dataset)[0].sources
    if len(sources) == 1 and not sources[0].steps and is_sharded(sources[0].leaf):
        # Samples of one dataset are copied in one piece.
        return sources[0].leaf, slots_of(dataset)[0].rows.take(positions)
    return dataset, positions


def shuffled(indexes: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """Return the indexes in a random order that is the same on every machine.

    Args:
        indexes: The indexes; int64, shape `(n,)`.
        seed: Seed of the order.

    >>> sorted(shuffled(np.arange(5), 7).tolist())
    [0, 1, 2, 3, 4]
    """
    if not len(indexes):
        return indexes
    positions = np.arange(len(indexes), dtype=np.int64)
    return indexes[permute(positions, len(indexes), derive_key(seed))]


def windows(part: Part) -> Iterator[tuple[int, int]]:
    """Yield `[start, stop)` of the samples of a part that are read at a time."""
    if part.nbytes is not None:
        yield from _cuts(part.nbytes, _WINDOW, _WINDOW_NBYTES)
        return
    count = len(part.indexes)
    for start in range(0, count, _WINDOW):
        yield start, min(start + _WINDOW, count)


def plan_parts(
    dataset: Viewable,
    indexes: NDArray[np.int64],
    maxcount: int,
    maxsize: int,
    omissions: Omissions,
    *,
    rekey: bool,
) -> list[Part]:
    """Divide samples into new shards as `ShardWriter` would.

    Args:
        dataset: Dataset with the samples; its shards are fetched and indexed.
        indexes: Global indexes of the samples, `>= 0`, in their new order; int64, shape `(n,)`.
        maxcount: Most samples in a shard.
        maxsize: Most bytes in a shard; a shard with a single larger sample exceeds it.
        omissions: Counts the members of the shards that are in no sample.
        rekey: Whether samples get new numbers as keys.
    """
    nbytes = _written_nbytes(dataset, indexes, omissions, rekey=rekey)
    return [
        Part(number, start, indexes[start:stop], nbytes[start:stop])
        for number, (start, stop) in enumerate(_cuts(nbytes, maxcount, maxsize - END_NBYTES))
    ]


def _cuts(nbytes: NDArray[np.int64], maxcount: int, maxsize: int) -> Iterator[tuple[int, int]]:
    """Yield consecutive `[start, stop)` of so many samples and bytes at most, or of one sample."""
    ends = np.cumsum(nbytes)
    start = 0
    while start < len(nbytes):
        # Bisection of the running sums takes one step per cut rather than one per sample.
        before = int(ends[start - 1]) if start else 0
        fitting = int(np.searchsorted(ends, before + maxsize, side="right"))
        stop = min(max(fitting, start + 1), start + maxcount)
        yield start, stop
        start = stop


def _written_nbytes(
    dataset: Viewable,
    positions: NDArray[np.int64],
    omissions: Omissions,
    *,
    rekey: bool,
) -> NDArray[np.int64]:
    """Return the bytes that each sample takes in a new shard; int64, shape `(n,)`."""
    if not is_sharded(dataset):
        return _joined_nbytes(dataset, positions, omissions, rekey=rekey)
    nbytes = np.empty(len(positions), np.int64)
    # Samples are grouped by old shard, so that each shard is opened once for any order.
    for _, rows, local_indexes in by_shard(dataset.cum_lengths, positions):
        shard, _, entry = dataset.locate_sample(int(positions[rows[0]]))
        omissions.add_members(shard.index.skipped, entry["url"])
        columns = shard.index.columns()
        nbytes[rows] = columns.sum_by_sample(BLOCK + -(-columns.sizes // BLOCK) * BLOCK)[
            local_indexes
        ]
        # Only the headers of a few samples, if any, must be built to know their length.
        odd = _is_odd(columns, rekey=rekey)[local_indexes]
        for row, local_index in zip(rows[odd].tolist(), local_indexes[odd].tolist(), strict=True):
            key = f"{row:09d}" if rekey else shard.index.key(local_index)
            fields = shard.index.fields(local_index)
            nbytes[row] = sum(
                len(member_header(key + extension, size)) + padded(size)
                for extension, _, size in fields
            )
    return nbytes


def _joined_nbytes(
    samples: Viewable, positions: NDArray[np.int64], omissions: Omissions, *, rekey: bool
) -> NDArray[np.int64]:
    """Return the bytes that each sample takes in a new shard, from the sizes of its fields."""
    for url, skipped in skipped_members(samples, positions).items():
        omissions.add_members(skipped, url)
    # A field that is in both sides is found now, rather than by each new shard.
    samples.read_raw(int(positions[0]))
    nbytes = np.empty(len(positions), np.int64)
    for row, position in enumerate(positions.tolist()):
        key = f"{row:09d}" if rekey else samples.key_at(position)
        names = written_names(samples, position)
        nbytes[row] = sum(
            len(member_header(key + names.get(extension, extension), size)) + padded(size)
            for extension, size in samples.field_sizes(position).items()
        )
    return nbytes


def _is_odd(columns: IndexColumns, *, rekey: bool) -> NDArray[np.bool_]:
    """Return which samples of a shard may need more than ustar headers."""
    sets = columns.extension_sets
    longest = np.array([max((len(name) for name in names), default=0) for names in sets], np.int64)
    foreign = np.array([not all(map(str.isascii, names)) for names in sets], np.bool_)
    odd: NDArray[np.bool_] = foreign[columns.set_ids]
    key_lengths: NDArray[np.int64] = np.diff(columns.key_starts)
    if rekey:
        key_lengths = np.full_like(key_lengths, len(f"{0:09d}"))
    else:
        high = np.frombuffer(columns.key_bytes, np.uint8) >= 128
        running = np.concatenate([np.zeros(1, np.int64), np.cumsum(high)])
        odd = odd | (running[columns.key_starts[1:]] > running[columns.key_starts[:-1]])
    odd = odd | (key_lengths + longest[columns.set_ids] > _PLAIN_NAME)
    if (columns.sizes >= _PLAIN_NBYTES).any():
        odd = np.ones_like(odd)
    return odd


class Copier:
    """Function that copies the samples of a part to an archive; thread-safe and picklable.

    It keeps the old shards open from one new shard to the next. A shuffle reads all of them for
    each new shard, and mapping and verifying them again would take as long as the copying.
    """

    def __init__(self, dataset: Viewable, *, rekey: bool) -> None:
        """Create a function, which opens shards only when it is called.

        Args:
            dataset: Dataset with the samples.
            rekey: Whether samples get new numbers as keys.
        """
        self._rekey = rekey
        self._joined = None if is_sharded(dataset) else dataset
        self._encode = SampleEncoder(key_rule=key_rule_of(dataset))
        if is_sharded(dataset):
            # A separate reader leaves the decoder of the caller's dataset unchanged.
            self._reader = copy(dataset)
            self._reader.transformations = "memoryview"

    def __call__(self, part: Part, archive: SampleArchive) -> dict[str, Any]:
        """Copy the samples of a part; return their number.

        Raises:
            WidsError: A shard of the dataset cannot be read.
            ValueError: Two samples have the same key, and keys are kept.
        """
        # Subclasses may compute samples, and remote shards are not mapped; both are read instead.
        if self._joined is not None:
            copying = self._write_joined
        else:
            copying = self._copy if self._reader.batch_kind != "samples" else self._read
        for start, stop in windows(part):
            copying(part.indexes[start:stop], part.first_number + start, archive)
        return {"written": len(part.indexes)}

    def _key(self, number: int, key: str) -> str:
        return f"{number:09d}" if self._rekey else key

    def _copy(self, indexes: NDArray[np.int64], first_number: int, archive: SampleArchive) -> None:
        """Copy samples in the given order, those of local files as they lie there."""
        batch = self._reader.locate_batch(indexes)
        wanted = self._reader.pipeline.fields
        taken: dict[int, tuple[str, memoryview | None, _Members]] = {}
        far: list[int] = []
        with batch.announced(wanted):
            # Samples are read in the order of the disk, so that a window opens each shard once.
            for row, opened, local_index in batch.samples():
                if isinstance(opened.shard, Shard | FileShard):
                    new_key = self._key(first_number + row, "")
                    taken[row] = _take(opened.shard, local_index, new_key, wanted)
                else:
                    far.append(row)
            # Those that are read by byte range share requests.
            for row, sample in zip(
                far, self._reader.__getitems__(indexes[far].tolist()), strict=True
            ):
                key = self._key(first_number + row, sample["__key__"])
                taken[row] = key, None, _named(key, sample)
            for row in range(len(indexes)):
                key, whole, members = taken.pop(row)
                if whole is None:
                    archive.write(key, members, stable=True)
                else:
                    archive.write_raw(key, whole)

    def _read(self, indexes: NDArray[np.int64], first_number: int, archive: SampleArchive) -> None:
        """Read samples through the dataset, and write them."""
        samples = self._reader.__getitems__(indexes.tolist())
        for number, sample in enumerate(samples, first_number):
            key = self._key(number, sample["__key__"])
            archive.write(key, _named(key, sample), stable=True)

    def _write_joined(
        self, indexes: NDArray[np.int64], first_number: int, archive: SampleArchive
    ) -> None:
        """Read joined samples, whose fields are in several shards, and write them."""
        samples: Any = self._joined
        for number, index in enumerate(indexes.tolist(), first_number):
            raw, names = samples.read_raw(index), written_names(samples, index)
            # Names of columns may be none that a member can have, so they are checked.
            sample = {names.get(name, name): raw[name] for name in raw if name[:2] != "__"}
            key = self._key(number, raw["__key__"])
            archive.write(*self._encode({"__key__": key, **sample}), stable=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._joined is None:
            self._reader.close()


def _named(key: str, sample: Mapping[str, Any]) -> _Members:
    """Return the fields of a sample by the names of their members."""
    return [(key + name, data) for name, data in sample.items() if name[0] == "."]


def _take(
    shard: Shard | FileShard, local_index: int, new_key: str, wanted: Collection[str] | None
) -> tuple[str, memoryview | None, _Members]:
    """Return key and members of a sample.

    Args:
        shard: The shard of the sample.
        local_index: Local index in the shard.
        new_key: Its new key; "" keeps the old one.
        wanted: Extensions of the fields to copy; None for all.

    Returns:
        Its key; its members in one piece, headers and all, where they would be written just so;
        else None, and each by name and data.
    """
    old_key, extensions, spans = shard.index.locate(local_index)
    key = new_key or old_key
    members = [
        (key + extension, offset, size)
        for extension, offset, size in zip(extensions, spans[::2], spans[1::2], strict=True)
        if wanted is None or extension in wanted
    ]
    if isinstance(shard, Shard):
        memory, base = shard.memory, 0
    elif (span := _span_of(members)) is not None and span[1] <= shard.nbytes:
        memory, base = shard.read_block(*span), span[0]
    else:
        return key, None, _named(key, shard.read(local_index, wanted))
    whole = _find_whole(memory, members, base) if key == old_key else None
    if whole is not None:
        return key, whole, []
    return (
        key,
        None,
        [(name, memory[offset - base : offset - base + size]) for name, offset, size in members],
    )


def _span_of(members: list[tuple[str, int, int]]) -> tuple[int, int] | None:
    """Return `[start, stop)` of a sample whose members follow each other as a new shard has them.

    Tars of other programs may have other entries between the members, or longer headers.
    """
    start = end = -1
    for name, offset, size in members:
        begin = offset - len(member_header(name, size))
        if end < 0:
            start = end = begin
        if begin != end or begin < 0:
            return None
        end = offset + padded(size)
    return (start, end) if members else None


def _find_whole(
    memory: memoryview, members: list[tuple[str, int, int]], base: int
) -> memoryview | None:
    """Return the stored bytes of a sample if a new shard would have the same; else None.

    Tars of other programs may have dates or owners in their headers, or other entries between the
    members. This comparison takes less time than copying members one by one.

    Args:
        memory: Bytes of the shard.
        members: Name, offset and size of each member.
        base: Offset of the first byte of `memory`.
    """
    start = end = -1
    for name, position, size in members:
        header, offset = member_header(name, size), position - base
        begin, stop, after = offset - len(header), offset + size, offset + padded(size)
        if end < 0:
            start = end = begin
        # Bytes are compared, since memory views compare item by item, which is slow.
        if (
            begin != end
            or begin < 0
            or bytes(memory[begin:offset]) != header
            or bytes(memory[stop:after]) != _ZEROS[: after - stop]
        ):
            return None
        end = after
    return memory[start:end] if members else None
