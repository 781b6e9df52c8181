"""`Planned`: reads the samples of a plan, and their keys, shards and raw fields."""

from __future__ import annotations

from bisect import bisect_right
from contextlib import nullcontext
from functools import cached_property, partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from wids.base.arguments import checked_position, checked_positions
from wids.base.warn import warn
from wids.errors import SpecError
from wids.reading.pipeline import no_end, note_decoded_field, note_missing_dot, while_reading
from wids.reading.ragged import Ragged, Values, join, take
from wids.reading.shardlist import is_sharded
from wids.views.classes import agreed, names_of_classes
from wids.views.fieldhomes import Reading, read_field
from wids.views.plan import (
    Add,
    Call,
    Slot,
    Slots,
    Source,
    Step,
    Surround,
    has_function,
    leaves_of,
    shards_of,
    stored_fields,
)
from wids.views.tables import TableRows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from wids.ordering.lookahead import IndexMap
    from wids.ordering.samplers import ChunkedSampler
    from wids.reading.fetchahead import FetchAhead
    from wids.reading.gather import Allocate
    from wids.reading.pipeline import BatchKind
    from wids.reading.prefetch import Prefetch
    from wids.reading.shardlist import ShardList

__all__ = ["Facts", "Planned"]

Integers = npt.NDArray[np.int64]


class Facts(NamedTuple):
    """What is known of the samples of a view besides its plan.

    Attributes:
        made: Description of each step that made the view.
        lineage: Key of the splits by hash that the samples are a part of; None if there are none.
        any_classes: Whether the datasets may number their classes differently.
        draws: Of a mixture and what is made of it: whether a sampler draws by the weights.
    """

    made: tuple[str, ...] = ()
    lineage: str | None = None
    any_classes: bool = False
    draws: Any = None


class Planned:
    """Samples by index, in any order and with repetitions, of any datasets and tables.

    Args:
        slots: The plan.
        facts: What else is known of the samples.

    Attributes:
        slots, facts: As given.
    """

    __slots__ = ("__dict__", "__weakref__", "_at", "_count", "_read", "facts", "slots")

    def __init__(self, slots: Slots, facts: Facts = Facts()) -> None:  # noqa: B008 (a constant)
        self.slots, self.facts = tuple(slots), facts
        base = self.slots[0]
        self._count, self._at = base.rows.count, base.at
        self._read = base.read

    def __len__(self) -> int:
        return self._count

    # Samples.

    def _sample(self, slot: Slot, index: int, number: int) -> Any:
        """Return the sample of a slot, as number `number` of the view; None without one."""
        address = slot.at(index)
        if address < 0:
            return None
        if slot.read is not None:
            return slot.read(address, number)
        which = bisect_right(slot.ends, address)
        read, label, steps, start = slot.readers[which]
        sample = read(address - start, number, label)
        for step in steps:
            if type(step) is Add:
                other = self.slots[step.slot]
                if other.table is not None and step.is_plain and type(sample) is dict:
                    # A row of a table is read straight into the sample.
                    row = other.at(index)
                    merged = other.table.extended(sample, row, number) if row >= 0 else None
                    if merged is not None:
                        sample = merged
                        continue
                sample = step.applied(sample, (self._sample(other, index, number),), number)
                continue
            # Without slots, the list would take a tenth of what such a sample takes.
            others = step.slots and [self._sample(self.slots[n], index, number) for n in step.slots]
            sample = _after(step, sample, others, number, slot.sources[which], address - start)
        return sample

    def _samples(self, slot: Slot, indexes: Integers, numbers: list[int]) -> list[Any]:
        """Return the samples of a batch: one read of each dataset, as reading ahead expects."""
        from wids.reading.loaderstats import counted_as

        samples: list[Any] = [None] * len(indexes)
        for leaf, places, rows, labels in slot.by_leaf(indexes):
            listed = places.tolist()
            found = leaf.read_batch_as(rows.tolist(), [numbers[place] for place in listed], labels)
            for place, sample in zip(listed, found, strict=True):
                samples[place] = sample
        groups = slot.groups(indexes) if any(source.steps for source in slot.sources) else ()
        for source, places, rows in groups:
            if source is None:
                continue
            listed, at = places.tolist(), rows.tolist()
            shown = [numbers[place] for place in listed]
            for step in source.steps:
                others = [self._samples(self.slots[n], indexes[places], shown) for n in step.slots]
                theirs = zip(*others, strict=True) if others else [()] * len(listed)
                with counted_as("decode") if isinstance(step, Call) else nullcontext():
                    for place, row, number, given in zip(listed, at, shown, theirs, strict=True):
                        sample = samples[place]
                        samples[place] = _after(step, sample, given, number, source, row)
        return samples

    # Fields, one by one.

    def gather(self, indexes: Sequence[int], extension: str) -> Values:
        """Return one field of a batch, decoded.

        Args:
            indexes: Global indexes; negative ones count from the end.
            extension: The field, such as ".npy".

        Returns:
            An array with a row for each index, a `Ragged`, or a list, as `column` returns it.
        """
        positions = checked_positions(indexes, self._count)
        reading = Reading(lambda leaf, rows, name: leaf.gather(rows, name), windows=True)
        return read_field(self.slots, positions, extension, reading)

    def gather_bytes(self, indexes: Sequence[int], extension: str) -> Ragged:
        """Return one raw field of a batch, with all bytes in one buffer.

        Args:
            indexes: Global indexes; negative ones count from the end.
            extension: The field, such as ".jpg".

        Returns:
            A `Ragged` of uint8, whose item `i` is field `i`.
        """
        positions = checked_positions(indexes, self._count)
        if not len(positions):
            return Ragged(np.empty(0, np.uint8), np.zeros(1, np.int64))
        reading = Reading(lambda leaf, rows, name: leaf.gather_bytes(rows, name), raw=True)
        values = read_field(self.slots, positions, extension, reading)
        return values if isinstance(values, Ragged) else Ragged.of(list(values))

    def column_at(
        self, indexes: Integers, extension: str, *path: str | int, fill: Any = None
    ) -> Values:
        """Return the column of some samples, by their indexes in `[0, len)`, unchecked.

        Args:
            indexes: Their indexes, in any order.
            extension: The field, such as ".cls".
            path: Keys and indexes that lead to a value in it.
            fill: Value for samples without this field or value, or with null.
        """

        def values(leaf: Any, rows: Integers, name: str) -> Values:
            found: Values = leaf.column_at(rows, name, *path, fill=fill)
            return found

        return read_field(self.slots, indexes, extension, Reading(values, fill=fill))

    @property
    def batch_kind(self) -> BatchKind:
        """Whether batches are made from "raw" or "decoded" fields, or from "samples"."""
        kinds: set[BatchKind] = {leaf.batch_kind for leaf in leaves_of(self)}
        return kinds.pop() if len(kinds) == 1 and not has_function(self) else "samples"

    def gather_fields(
        self,
        indexes: Sequence[int],
        allocate: Callable[[str], Allocate] | None = None,
        turn: AbstractContextManager[Any] | None = None,
    ) -> dict[str, Any] | None:
        """Return a batch made field by field; needs a `batch_kind` other than "samples".

        Args:
            indexes: Global indexes.
            allocate: Function from the name of a field to its allocator; None: new memory.
            turn: Lock that is held while raw bytes are copied.

        Returns:
            `__key__`, `__index__` and each field as a column; None if the samples have different
            fields.
        """
        positions = checked_positions(indexes, self._count)
        batch = self._fields(self.slots[0], positions, allocate, turn)
        return None if batch is None else batch | {"__index__": positions}

    def _fields(self, slot: Slot, indexes: Integers, allocate: Any, turn: Any) -> Any:
        """Return a batch of a slot made field by field; None if that cannot be done."""
        sources = [source for source, _, _ in slot.groups(indexes)]
        steps = {() if source is None else source.steps for source in sources}
        if None in sources or len(steps) > 1:
            return None
        groups = list(slot.by_leaf(indexes))
        # What several datasets gathered is copied once more, so their memory is their own.
        memory = allocate if len(groups) == 1 else None
        batches = [leaf.gather_fields(rows, memory, turn) for leaf, _, rows, _ in groups]
        if any(each is None or each.keys() != batches[0].keys() for each in batches):
            return None
        batch = _in_order(batches, [places for _, places, _, _ in groups])
        for step in next(iter(steps), ()):
            others = [self._fields(self.slots[n], indexes, allocate, turn) for n in step.slots]
            if isinstance(step, Call | Surround) or any(each is None for each in others):
                return None
            try:
                batch = step.applied(batch, others, 0)
            except SpecError:  # the samples one by one say where
                return None
        return batch

    # Samples as they are stored.

    def read_raw(self, index: int, fields: Sequence[str] | None = None) -> dict[str, Any]:
        """Return a sample as it is stored: raw fields, and the labels of a sample.

        Args:
            index: Global index.
            fields: Extensions to read; None for those that the datasets read.
        """
        position = checked_position(index, self._count)
        source, row = self.slots[0].place(position)
        sample: dict[str, Any] = source.leaf.read_raw(row, ())
        if "__index__" in sample:
            sample["__index__"] = position
            if source.label is not None:
                sample["__dataset__"] = source.label
        wanted = stored_fields(self, position, fields)
        # One read of each dataset and table.
        names: dict[Any, list[str]] = {}
        for field in wanted.values():
            names.setdefault((field.home, field.position), []).append(field.name)
        raw = {place: place[0].read_raw(place[1], names[place]) for place in names}
        found = {name: raw[each.home, each.position][each.name] for name, each in wanted.items()}
        return sample | found

    def field_sizes(self, index: int) -> dict[str, int]:
        """Return the size in bytes of each field of a sample, in storage order.

        Args:
            index: Global index; a negative one counts from the end.
        """
        fields = stored_fields(self, checked_position(index, self._count))
        return {name: field.size() for name, field in fields.items()}

    # Keys and shards.

    def keys_at(self, indexes: Integers) -> list[str]:
        """Return the keys of some samples, by their indexes in `[0, len)`, unchecked.

        Args:
            indexes: Their indexes, in any order.
        """
        keys = [""] * len(indexes)
        for leaf, places, rows, _ in self.slots[0].by_leaf(indexes):
            for place, key in zip(places.tolist(), leaf.keys_at(rows), strict=True):
                keys[place] = key
        return keys

    @cached_property
    def _shards(self) -> tuple[Integers, Integers]:
        """Addresses at which the shards under slot 0 end, and a number for each shard.

        Sources of one dataset, also with other options, have the same shards.
        """
        ends, numbers = [], []
        firsts: dict[int, int] = {}
        for number, (source, start) in enumerate(
            zip(self.slots[0].sources, self.slots[0].starts, strict=True)
        ):
            leaf = source.leaf
            own = leaf.cum_lengths if is_sharded(leaf) else np.cumsum(leaf.lengths, dtype=np.int64)
            first = firsts.setdefault(id(shards_of(leaf)), number << 32)
            ends.append(own + start)
            numbers.append(first + np.arange(len(own)))
        return np.concatenate(ends), np.concatenate(numbers)

    @cached_property
    def lengths(self) -> Integers:
        """Number of samples in each run of adjacent samples from one shard, in order."""
        ends, numbers = self._shards
        rows = self.slots[0].rows
        if rows.ascending:
            counts = np.diff(rows.count_below(ends), prepend=0)
            full = np.flatnonzero(counts)
            apart = np.flatnonzero(np.diff(numbers[full], prepend=-1))
            return counts[:0] if not len(full) else np.add.reduceat(counts[full], apart)
        cuts, before, done = [], -1, 0
        for addresses in rows.blocks():
            shards = numbers[np.searchsorted(ends, addresses, "right")]
            cuts.append(done + np.flatnonzero(np.diff(shards, prepend=before)))
            before, done = int(shards[-1]), done + len(shards)
        return np.diff(np.append(np.concatenate(cuts), done)).astype(np.int64)

    def places(self, indexes: Integers) -> Iterator[tuple[int, Any, Integers, Integers]]:
        """Yield what some samples are made of: slot, dataset or table, samples and their rows.

        Args:
            indexes: Indexes of the samples in `[0, len)`.

        Yields:
            Number of the slot, 0 for the samples themselves; a dataset, a `TableRows` or a list;
            which of `indexes` are read from it; and their rows there.
        """
        for number, slot in enumerate(self.slots):
            for leaf, at, rows, _ in slot.by_leaf(indexes):
                yield number, leaf, at, rows

    def _followed(self) -> Iterator[tuple[ShardList, IndexMap]]:
        """Yield each dataset of each slot, with the function from indexes here to its rows."""
        for slot in self.slots:
            for leaf in {id(source.leaf): source.leaf for source in slot.sources}.values():
                if not isinstance(leaf, TableRows):
                    yield leaf, partial(_rows_in, slot, leaf)

    def fetch_ahead(self, sampler: ChunkedSampler) -> Together:
        """Fetch the next shards of a sampler in the background; see `ShardListDataset`.

        Args:
            sampler: Sampler of this library that draws the indexes in this process.

        Returns:
            Progress of all datasets together, with the shards fetched and the seconds that readers
            waited.

        Raises:
            TypeError: The sampler cannot say what comes next.
            ValueError: It draws from other samples, or a dataset fetches no shards.
        """
        from wids.ordering.lookahead import check_foreseeable

        check_foreseeable(sampler, self._count)
        return Together([leaf.fetch_ahead(sampler, rows) for leaf, rows in self._followed()])

    def prefetches(self) -> list[Prefetch]:
        """Return what prefetches coming batches by byte range; empty if that is not needed."""
        planned = [leaf.prefetches(rows) for leaf, rows in self._followed() if is_sharded(leaf)]
        return list(chain.from_iterable(planned))

    @property
    def class_names(self) -> Mapping[int, str]:
        """Name of each class by its number, where all datasets agree on the name."""
        sources = {source.identity: source for source in self.slots[0].sources}
        named = [names_of_classes(self.slots, source) for source in sources.values()]
        names, disputed = agreed(named)
        silent = [number for number, each in enumerate(named) if names and not each]
        if silent:
            warn(
                f"part {silent[0]} has no class names; those of other parts are used for its "
                "numbers, too; give its spec `classes` if its numbers mean other classes"
            )
        if disputed:
            warn(
                f"the parts give different names to class {min(disputed)} and {len(disputed) - 1} "
                "more: these classes are shown by number; number the classes of all parts alike"
            )
        return names

    def close(self) -> None:
        """Close the shards of all datasets; reading afterwards opens them again."""
        for leaf in leaves_of(self):
            leaf.close()


def _after(
    step: Step, sample: Any, others: Sequence[Any], number: int, source: Source, row: int
) -> Any:
    """Return a sample after a step; errors of functions say which sample it was."""
    try:
        return step.applied(sample, others, number)
    except Exception as error:
        if not isinstance(step, Call):
            raise
        action = f"while reading sample {number}"
        if is_sharded(source.leaf):
            url = source.leaf.locate(row).shard.url
            action = while_reading(number, source.leaf.key_at(row), url)
        if isinstance(error, StopIteration):
            raise no_end(action) from error
        error.add_note(action)
        note_decoded_field(error)
        note_missing_dot(error, sample)
        raise


class Together:
    """Sum of the progress of several datasets, each of which fetches its own shards."""

    def __init__(self, parts: Sequence[FetchAhead]) -> None:
        self._parts = list(parts)

    @property
    def num_fetched(self) -> int:
        """Number of shards fetched ahead so far."""
        return sum(part.num_fetched for part in self._parts)

    @property
    def waited_seconds(self) -> float:
        """Seconds that readers waited, in all datasets together."""
        return sum(part.waited_seconds for part in self._parts)


def _rows_in(slot: Slot, leaf: Any, indexes: Integers) -> Integers:
    """Return the rows of samples in a dataset; -1 for those that are not read from it."""
    there = indexes >= 0
    addresses = np.where(there, slot.rows.take(np.where(there, indexes, 0)), -1)
    which = np.minimum(np.searchsorted(slot.ends, addresses, "right"), len(slot.sources) - 1)
    mine = np.array([source.leaf is leaf for source in slot.sources])[which]
    return np.where((addresses >= 0) & mine, addresses - np.array(slot.starts)[which], -1)


def _in_order(batches: list[dict[str, Any]], places: list[Integers]) -> dict[str, Any]:
    """Join the fields that were read dataset by dataset, in the order of the batch."""
    from wids.reading.collate import column_of

    if not batches:
        return {"__key__": []}
    order = np.concatenate(places)
    # Sources of one dataset are read together, one after the other.
    if len(batches) == 1 and bool((order[1:] > order[:-1]).all()):
        return dict(batches[0])
    rows = np.argsort(order, kind="stable")
    merged = {}
    for name in batches[0]:
        values = [batch[name] for batch in batches]
        arrays = [(v.dtype, v.shape[1:]) for v in values if isinstance(v, np.ndarray)]
        alike = len(arrays) == len(values) and len(set(arrays)) == 1
        if alike or all(isinstance(each, Ragged) for each in values):
            merged[name] = take(join(values), rows)
        else:
            items = list(chain.from_iterable(values))
            merged[name] = column_of([items[row] for row in rows.tolist()])
    return merged
