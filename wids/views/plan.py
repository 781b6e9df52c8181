"""The plan of a view: which rows of which datasets and tables each of its samples is made of.

    slot     a row for each sample: slot 0 has the samples themselves, each further slot what one
             join adds to them, with -1 where there is no counterpart, or one of their neighbours
    source   what a slot reads rows of: a dataset or a table, the name that it gives to its
             samples, and the steps that follow
    step     `Add` merges the fields of another slot, `Rename` gives fields other names, `Surround`
             makes lists of the fields in other slots, `Call` replaces a sample by the result of a
             function

The rows of a slot are addresses in its sources, one after the other, so that one number tells both
the source and the row in it. Whatever is chosen of a view, each slot is chosen alike: no view
refers to another one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from wids.base.arguments import check_extension, to_list
from wids.base.draws import within_sample
from wids.base.urls import display_url
from wids.errors import SpecError
from wids.reading.collate import Window
from wids.reading.pipeline import no_end
from wids.reading.samplesequence import relabelled
from wids.reading.shardlist import ShardList, is_sharded
from wids.views.rows import Rows
from wids.views.tables import TableRows

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

__all__ = [
    "Add",
    "Call",
    "ListLeaf",
    "Rename",
    "Slot",
    "Slots",
    "Source",
    "Step",
    "StoredField",
    "Surround",
    "checked_names",
    "chosen",
    "concatenated",
    "datasets_in",
    "fields_after",
    "fields_of",
    "fields_of_leaf",
    "first_names",
    "has_function",
    "in_both",
    "joined",
    "joined_names",
    "leaves_of",
    "likely_names",
    "names_after",
    "names_at",
    "pruned",
    "shards_of",
    "slots_of",
    "stored_fields",
    "surrounded",
    "window_of",
    "with_options",
    "with_step",
]

Integers = npt.NDArray[np.int64]

# What a dataset has and a list has not.
_OF_DATASETS = {"column_at", "fetch_ahead", "gather", "gather_bytes", "gather_fields"} | {
    *("is_near", "key_at", "key_hashes", "keys_at", "locate", "locate_sample", "stored_at"),
    *("open_field", "read_raw", "with_options"),
}
# `__key__`, `__dataset__`, `__index__`, `__shard__` and `__shardindex__` are in both samples.
_NUM_LABELS = 5
_labels_in = itemgetter("__dataset__", "__index__", "__shard__", "__shardindex__")


class ListLeaf:
    """A list, or anything else with `len` and `[index]`, which has samples and nothing else.

    Args:
        samples: The list.
    """

    batch_kind = "samples"
    class_names: ClassVar[Mapping[int, str]] = {}

    def __init__(self, samples: Any) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def lengths(self) -> Sequence[int]:
        """Number of samples in each shard, where it has any; else it is one run."""
        return getattr(self.samples, "lengths", None) or [len(self.samples)]

    def read_as(self, row: int, number: int, dataset: str | None = None) -> Any:
        """Return a sample; a dict with labels gets new ones."""
        try:
            return relabelled(self.samples[row], number, dataset)
        except StopIteration as error:
            raise no_end(f"while reading sample {number}") from error

    def read_batch_as(
        self, rows: Sequence[int], numbers: Sequence[int], labels: Sequence[str | None] | None
    ) -> list[Any]:
        """Return the samples of a batch."""
        read = getattr(self.samples, "__getitems__", None)
        try:
            found = read(rows) if read else [self.samples[row] for row in rows]
        except StopIteration as error:
            raise no_end(f"while reading samples {list(numbers)}") from error
        names = labels or [None] * len(rows)
        return [relabelled(*each) for each in zip(found, numbers, names, strict=True)]

    def close(self) -> None:
        """Close the list, if it can be closed."""
        close = getattr(self.samples, "close", None)
        if close is not None:
            close()

    def __getattr__(self, name: str) -> Any:
        if name not in _OF_DATASETS:
            raise AttributeError(name)
        raise TypeError(
            f"a {type(self.samples).__name__} is a part of the samples, which has no keys, columns "
            "and shards; of such parts only samples are read, by an index or a loader. "
            "wids.ShardWriter writes them as shards, which have all of these"
        )

    def __repr__(self) -> str:
        return f"{type(self.samples).__name__} of {len(self.samples)}"


class _Step:
    """What follows the reading of a sample: `applied(sample, others, number)` is the one after it.

    `others` are the samples in `slots`, None without a counterpart, and `number` is the index of
    the sample, for messages. A sample is a dict of fields; what is done to it can be done to
    anything by the names of its fields: to their columns, or to where they are stored.

    Attributes:
        slots: Numbers of the slots whose samples are needed, all larger than that of its own.
    """

    slots: tuple[int, ...] = ()

    def moved(self, _numbers: Sequence[int]) -> Self:
        """Return the step in a plan in which the slots have other numbers."""
        return self

    def originals(self, name: str) -> Sequence[str]:
        """Return the fields before the step that a name after it may stand for, in their order."""
        return (name,)


@dataclass(eq=False)
class Add(_Step):
    """Step that merges the fields of the sample in another slot.

    Attributes:
        slot: Number of that slot, which is larger than that of its own.
        rename: New names of fields, by their names there.
        replace: Whether these take the place of fields of the same name.
        absent: Fields that are None without a counterpart, those of the first sample of the right
            side; None: then nothing is added.
        of_table: Whether the slot has the rows of a table, which need not have a key.
        guess: Fields of a counterpart that was read, those of most, probably; None before.
    """

    slot: int
    rename: Mapping[str, str]
    replace: bool = False
    absent: tuple[str, ...] | None = None
    of_table: bool = False
    guess: Sequence[str] | None = None

    def __post_init__(self) -> None:
        self.is_plain = not (self.rename or self.replace)
        self.slots = (self.slot,)

    def moved(self, numbers: Sequence[int]) -> Add:
        """Return the step in a plan in which the slots have other numbers."""
        return replace(self, slot=numbers[self.slot])

    @cached_property
    def _old(self) -> dict[str, str]:
        return {new: old for old, new in self.rename.items()}

    def original(self, name: str) -> str | None:
        """Return the name in the slot of a field of the joined sample; None if it has none."""
        return self._old.get(name) or (None if name in self.rename else name)

    def renamed(self, names: Collection[str]) -> list[str]:
        """Return the names in the joined sample of fields of the slot."""
        return [self.rename.get(name, name) for name in names] if self.rename else list(names)

    def applied(self, sample: Any, others: Sequence[Any], number: int) -> Any:
        """Return a sample with the fields of another one, or anything by their names.

        Raises:
            SpecError: Their keys differ, or both have a field.
            TypeError: A transformation made something else of one of them.
        """
        left, (right,) = sample, others
        try:
            if self.is_plain and left["__key__"] == right["__key__"]:
                _labels_in(left), _labels_in(right)  # which a transformation may have left out
                both: dict[str, Any] = right | left
                # Were a field in both, as the labels are, the lengths would tell.
                if len(both) == len(left) + len(right) - _NUM_LABELS:
                    return both
        except (TypeError, KeyError):
            pass
        if right is None:
            if self.absent is None:
                return left
            right = dict.fromkeys(self.absent)
        elif not (isinstance(right, dict) and ("__key__" in right or self.of_table)):
            raise _not_samples(left, right, number)
        if not (isinstance(left, dict) and "__key__" in left):
            raise _not_samples(left, right, number)
        if left["__key__"] != right.get("__key__", left["__key__"]):
            raise SpecError(
                f"join: sample {number} has the key {left['__key__']!r}, the one joined to it "
                f"{right['__key__']!r}: their shards hold other keys, or in another order; join "
                "them again, without aligned=True"
            )
        renamed = self.rename
        fields = {renamed.get(name, name): right[name] for name in right if name[:2] != "__"}
        twice = [name for name in fields if name in left]
        if twice and not self.replace:
            raise in_both(twice, f"sample {number}, key {left['__key__']!r}: ")
        return {**left, **fields}


@dataclass(eq=False)
class Call(_Step):
    """Step that replaces a sample by the result of a function."""

    function: Callable[[Any], Any]

    def applied(self, sample: Any, _others: Sequence[Any], number: int) -> Any:
        """Return the result of the function."""
        return within_sample(number, self.function, sample)


@dataclass(eq=False)
class Rename(_Step):
    """Step that gives fields other names, each that of the first of several that a sample has.

    The fields in `taken` have their old names no longer. Where a join gives a field as None, the
    next one counts; so in SQL a new name is `coalesce` of the columns of its fields, in their
    order. A sample that has none of the fields lacks the new one, too.

    Attributes:
        names: For each new name the fields that it may stand for, with the preferred one first.
    """

    names: Mapping[str, tuple[str, ...]]

    def __post_init__(self) -> None:
        self.taken = frozenset(chain.from_iterable(self.names.values()))

    def originals(self, name: str) -> tuple[str, ...]:
        """Return the fields that a name of the renamed sample may stand for, in their order."""
        return self.names.get(name) or (() if name in self.taken else (name,))

    def applied(self, sample: Any, _others: Sequence[Any], number: int) -> dict[str, Any]:
        """Return a sample, or anything by the names of its fields, under the new names.

        Raises:
            SpecError: It has another field of a new name.
            TypeError: A transformation made something else of it.
        """
        if not isinstance(sample, dict):
            raise _no_fields("rename", sample, number)
        found = sample.copy()
        values = []
        for new, fields in self.names.items():
            there = [found.pop(name) for name in fields if name in found]
            if there:
                values.append((new, next((each for each in there if each is not None), None)))
        for new, value in values:
            if new in found:
                several = ";".join([*self.names[new], new])
                raise SpecError(
                    f"rename: sample {number} has a field {new!r} already; give that another name, "
                    f"or name it among the fields: {{{new!r}: {several!r}}}"
                )
            found[new] = value
        return found

    def renamed(self, names: Iterable[str]) -> list[str]:
        """Return the new names of fields of one sample."""
        return list(self.applied(dict.fromkeys(names, ""), (), 0))


def checked_names(names: Mapping[Any, Any], where: str) -> dict[str, tuple[str, ...]]:
    """Return the fields that each new name may stand for, as `Rename` takes them.

    Args:
        names: For each new name a field, several in one text with semicolons, or a list of them.
        where: What names them, for messages.

    Raises:
        ValueError: A name is no extension, or a field is there twice.
        TypeError: A name is no text.

    >>> checked_names({".image": ".jpg;.png", ".label": [".cls"]}, "names")
    {'.image': ('.jpg', '.png'), '.label': ('.cls',)}
    """
    found = {}
    for new, old in names.items():
        fields = old.split(";") if isinstance(old, str) else to_list(where, old, "extensions")
        found[new] = tuple(check_extension(where, each) for each in fields)
        if ";" in check_extension(where, new) or not fields:
            raise ValueError(
                f"{where}: expected a new name and the fields that it stands for, as in "
                f"{{'.image': '.jpg;.png'}}, got {{{new!r}: {old!r}}}"
            )
    counts = Counter(chain.from_iterable(found.values()))
    if twice := [name for name, count in counts.items() if count > 1]:
        raise ValueError(
            f"{where}: expected each field once, got {twice[0]!r} {counts[twice[0]]} times; a "
            "field has one new name"
        )
    return found


@dataclass(eq=False)
class Surround(_Step):
    """Step that makes a list of each field: the values in the neighbours of a sample and its own.

    Columns and stored fields are those of the sample itself.

    Attributes:
        before, after: Numbers of the slots with the neighbours, in their order; each is larger than
            that of its own.
    """

    before: tuple[int, ...]
    after: tuple[int, ...]

    def __post_init__(self) -> None:
        self.slots = (*self.before, *self.after)

    @property
    def places(self) -> tuple[int | None, ...]:
        """The slots of all samples of a window in their order; None for the sample itself."""
        return *self.before, None, *self.after

    def moved(self, numbers: Sequence[int]) -> Surround:
        """Return the step in a plan in which the slots have other numbers."""
        before, after = ([numbers[slot] for slot in each] for each in (self.before, self.after))
        return Surround(tuple(before), tuple(after))

    def applied(self, sample: Any, others: Sequence[Any], number: int) -> dict[str, Any]:
        """Return the sample made of those of a window; fields that one of them lacks are None.

        Raises:
            TypeError: A transformation made something else of one of them.
        """
        samples = [*others]
        samples.insert(len(self.before), sample)
        for each in samples:
            if not isinstance(each, dict):
                raise _no_fields("windows", each, number)
        names = [name for each in (sample, *samples) for name in each if name[:2] != "__"]
        found = {name: sample[name] for name in sample if name[:2] == "__"}
        for name in dict.fromkeys(names):
            found[name] = window_of([each.get(name) for each in samples])
        return found


def window_of(values: Sequence[Any]) -> Window | None:
    """Return the list of the values of a field in neighbours; None if it is None in all of them."""
    return None if all(value is None for value in values) else Window(values)


Step = Add | Call | Rename | Surround


class Source(NamedTuple):
    """What a slot reads rows of.

    Attributes:
        leaf: A dataset, a `TableRows` or a `ListLeaf`.
        label: The `__dataset__` of its samples; None for their own.
        steps: The steps that follow, in order.
        offered: Fields that a join was made with; None for all.
    """

    leaf: Any
    label: str | None = None
    steps: tuple[Step, ...] = ()
    offered: frozenset[str] | None = None

    @property
    def identity(self) -> tuple[Any, ...]:
        """What another source must equal to be the same."""
        return id(self.leaf), self.label, self.steps


class Slot:
    """Sources, one after the other, and for each sample an address in them.

    Args:
        sources: The sources.
        rows: The addresses.

    Attributes:
        sources, rows: As given.
        at: Function from the index of a sample to its address.
        starts, ends: Addresses at which each source begins and ends; lists.
        readers: Function that reads a row, label and steps of each source.
        table: The table whose rows alone the slot has; else None.
        read: Function that reads a row of the only source, which has no steps and no label; else
            None.
    """

    def __init__(self, sources: Sequence[Source], rows: Rows) -> None:
        self.sources, self.rows, self.at = tuple(sources), rows, rows.at
        self.ends: list[int] = np.cumsum(
            [len(s.leaf) for s in self.sources], dtype=np.int64
        ).tolist()
        self.starts = [0, *self.ends[:-1]]
        # A source may be there several times, and is read as one.
        firsts: dict[tuple[Any, ...], int] = {}
        self._firsts = [firsts.setdefault(s.identity, n) for n, s in enumerate(self.sources)]
        self.readers = [
            (each.leaf.read_as, each.label, each.steps, start)
            for each, start in zip(self.sources, self.starts, strict=True)
        ]
        only = self.sources[0] if len(self.sources) == 1 else None
        plain = only.leaf if only is not None and not only.steps and only.label is None else None
        self.table: TableRows | None = plain if isinstance(plain, TableRows) else None
        self.read: Callable[..., Any] | None = None if plain is None else plain.read_as

    def with_rows(self, rows: Rows) -> Slot:
        """Return the slot with other rows of the same sources."""
        twin = Slot.__new__(Slot)
        twin.__dict__ = {**self.__dict__, "rows": rows, "at": rows.at}
        return twin

    def place(self, index: int) -> tuple[Source, int]:
        """Return the source of a sample that has one, and the row in it."""
        address = self.at(index)
        number = bisect_right(self.ends, address)
        return self.sources[number], address - self.starts[number]

    def groups(self, indexes: Integers) -> Iterator[tuple[Source | None, Integers, Integers]]:
        """Yield the sources of some samples, the places of these samples, and the rows in each.

        The source is None for the samples without a counterpart.
        """
        addresses = self.rows.take(indexes)
        if not len(addresses):
            return
        least = int(addresses.min())
        if len(self.sources) == 1 and least >= 0:
            yield self.sources[0], np.arange(len(addresses)), addresses
            return
        numbers = np.searchsorted(self.ends, addresses, "right")
        numbers[addresses < 0] = -1
        rows = addresses - np.array([*self.starts, 0])[numbers]
        firsts = np.array([*self._firsts, -1])[numbers]
        for first in np.unique(firsts).tolist():
            (places,) = np.nonzero(firsts == first)
            yield None if first < 0 else self.sources[first], places, rows[places]

    def by_leaf(self, indexes: Integers) -> Iterator[tuple[Any, Integers, Integers, Any]]:
        """Yield each dataset or table, the places of its samples, the rows, and their labels.

        A batch is read so, since reading ahead counts on it. The labels are None if no sample has
        a name other than its own.
        """
        found: dict[int, list[tuple[Source, Integers, Integers]]] = {}
        for source, places, rows in self.groups(indexes):
            if source is not None:
                found.setdefault(id(source.leaf), []).append((source, places, rows))
        for groups in found.values():
            source, places, rows = groups[0]
            if len(groups) > 1:
                places, rows = (np.concatenate([each[part] for each in groups]) for part in (1, 2))
            labels = None
            if any(each[0].label for each in groups):
                labels = [each[0].label for each in groups for _ in each[1]]
            yield source.leaf, places, rows, labels

    def __reduce__(self) -> tuple[Any, ...]:
        return Slot, (self.sources, self.rows)


Slots = tuple[Slot, ...]


class StoredField(NamedTuple):
    """A field of a sample and its storage location.

    Attributes:
        extension: Its name in the sample.
        name: Its name there, which a join may have changed.
        home: The dataset of its shard, or the rows of its table.
        position: Index of the sample there.
        offset, nbytes: Where its bytes are in the shard; -1 for a value of a table.
    """

    extension: str
    name: str
    home: ShardList | TableRows
    position: int
    offset: int = -1
    nbytes: int = -1

    @property
    def location(self) -> str:
        """Location of the shard or the table, without credentials."""
        if isinstance(self.home, TableRows):
            return self.home.table.name
        return display_url(self.home.locate(self.position).shard.url)

    @property
    def version(self) -> str:
        """Text that changes with the content of the shard or the table."""
        if isinstance(self.home, TableRows):
            origin = self.home.table.origin
            return "" if origin is None else origin.stamp.digest
        shard, _, _ = self.home.locate_sample(self.position)
        return f"{shard.nbytes} {shard.version}"

    def size(self) -> int:
        """Return the size in bytes that it has in a shard."""
        return len(self.read()) if isinstance(self.home, TableRows) else self.nbytes

    def read(self, start: int = 0, stop: int | None = None) -> memoryview:
        """Return the bytes `[start, stop)` of the field, as many of them as it has."""
        if isinstance(self.home, TableRows):
            return memoryview(self.home.read_raw(self.position, (self.name,))[self.name])[
                start:stop
            ]
        shard, local_index, _ = self.home.locate_sample(self.position)
        stop = self.nbytes if stop is None else min(stop, self.nbytes)
        return memoryview(shard.read_part(local_index, self.name, min(start, stop), stop))


def slots_of(samples: Any) -> Slots:
    """Return the plan of a view, a dataset or a list."""
    slots: Slots | None = getattr(samples, "slots", None)
    if slots is not None:
        return slots
    leaf = samples if hasattr(samples, "read_as") else ListLeaf(samples)
    return (Slot([Source(leaf)], Rows.over(range(len(leaf)))),)


def leaves_of(samples: Any, *, joined: bool = True) -> list[Any]:
    """Return the distinct datasets, tables and lists of which samples are made, in order.

    Args:
        samples: A view, a dataset or a list.
        joined: Whether those that joins add count.
    """
    slots = slots_of(samples)
    found = [source.leaf for slot in (slots if joined else slots[:1]) for source in slot.sources]
    return list({id(leaf): leaf for leaf in found}.values())


def shards_of(leaf: Any) -> Any:
    """Return what two datasets of the same samples, read with other options, have in common."""
    return leaf.shards if is_sharded(leaf) else leaf


def datasets_in(samples: Any, *, joined: bool = True) -> list[ShardList]:
    """Return the distinct datasets of shards of which samples are made; see `leaves_of`."""
    return [leaf for leaf in leaves_of(samples, joined=joined) if is_sharded(leaf)]


def has_function(samples: Any) -> bool:
    """Return whether samples are results of a function given to `map`, or windows."""
    sources = (source for slot in slots_of(samples) for source in slot.sources)
    return any(isinstance(step, Call | Surround) for source in sources for step in source.steps)


def joined_names(samples: Any) -> list[str]:
    """Return the names of the fields that joins add to samples, those of the first join first."""
    slots = slots_of(samples)
    found = (name for source in slots[0].sources for name in names_after(slots, source, []))
    return list(dict.fromkeys(found))


def names_after(slots: Slots, source: Source, names: Iterable[str]) -> list[str]:
    """Return the names of fields after the steps of a source, with those of first counterparts."""
    for step in source.steps:
        if isinstance(step, Add):
            names = [*names, *step.renamed(likely_names(slots, step) or step.absent or ())]
        elif isinstance(step, Rename):
            names = step.renamed(names)
    return list(dict.fromkeys(names))


def chosen(slots: Slots, places: Rows) -> Slots:
    """Return the plan of the samples at some places."""
    # Lists that are one object are chosen from once: an aligned join costs nothing.
    done: dict[int, Rows] = {}
    for slot in slots:
        if id(slot.rows) not in done:
            done[id(slot.rows)] = slot.rows.chosen(places)
    return tuple(slot.with_rows(done[id(slot.rows)]) for slot in slots)


def with_step(slots: Slots, step: Step) -> Slots:
    """Return the plan in which one more step follows for each sample."""
    base = slots[0]
    sources = [source._replace(steps=(*source.steps, step)) for source in base.sources]
    return (Slot(sources, base.rows), *slots[1:])


def _beside(slots: Slots, other: Slots, places: Rows) -> Slots:
    """Return a plan with the slots of another one behind, of the samples at some places there."""
    numbers = range(len(slots), len(slots) + len(other))
    more = [Slot(_moved(slot.sources, numbers), slot.rows) for slot in chosen(other, places)]
    return (*slots, *more)


def joined(left: Slots, right: Slots, places: Rows, step: Add) -> Slots:
    """Return the plan of samples with the fields of other samples.

    Args:
        left: Plan of the samples.
        right: Plan of the other ones.
        places: Index of the counterpart on the right of each sample, -1 for none.
        step: How they are merged; its `slot` is set here.
    """
    base, *others = left
    plan = _beside((_offered(base), *others), tuple(map(_offered, right)), places)
    return with_step(plan, replace(step, slot=len(left)))


def _offered(slot: Slot) -> Slot:
    """Return a slot whose sources name the fields that they are read with now."""
    known = [source._replace(offered=fields_of_leaf(source.leaf)) for source in slot.sources]
    return Slot(known, slot.rows)


def fields_of_leaf(leaf: Any) -> frozenset[str] | None:
    """Return the fields that a dataset is read with; None for all."""
    if isinstance(leaf, TableRows):
        return frozenset(leaf.fields)
    fields = leaf.pipeline.fields if is_sharded(leaf) else None
    return None if fields is None else frozenset(fields)


def surrounded(slots: Slots, before: Sequence[Rows], after: Sequence[Rows]) -> Slots:
    """Return the plan of samples whose fields are lists of those of their neighbours.

    Args:
        slots: Plan of the samples.
        before: For each neighbour before a sample, the index of that of each sample, in order.
        after: The same for those after it.
    """
    plan, firsts = slots, []
    for places in (*before, *after):
        firsts.append(len(plan))
        plan = _beside(plan, slots, places)
    step = Surround(tuple(firsts[: len(before)]), tuple(firsts[len(before) :]))
    return with_step(plan, step)


def _moved(sources: Iterable[Source], numbers: Sequence[int]) -> list[Source]:
    """Return sources of a plan in which the slots have other numbers."""
    return _with_steps(sources, lambda step: step.moved(numbers))


def _with_steps(sources: Iterable[Source], changed: Callable[[Step], Step]) -> list[Source]:
    """Return sources with changed steps; one step stays one object in all sources that have it."""
    sources = list(sources)
    steps = {id(step): changed(step) for source in sources for step in source.steps}
    return [source._replace(steps=tuple(steps[id(s)] for s in source.steps)) for source in sources]


def pruned(slots: Slots) -> Slots:
    """Return the plan without the sources of which no sample is made, and without unused slots."""
    kept: dict[int, tuple[list[Source], Rows]] = {}
    wanted = {0}
    for number, slot in enumerate(slots):  # steps refer to later slots alone
        if number in wanted:
            kept[number] = _used(slot)
            wanted.update(*(step.slots for source in kept[number][0] for step in source.steps))
    numbers = [list(kept).index(number) if number in kept else -1 for number in range(len(slots))]
    return tuple(Slot(_moved(sources, numbers), rows) for sources, rows in kept.values())


def _used(slot: Slot) -> tuple[list[Source], Rows]:
    """Return the sources of a slot that have rows, at least one, and the rows in these."""
    if len(slot.sources) == 1:
        return [*slot.sources], slot.rows
    is_used = np.zeros(len(slot.sources), np.bool_)
    for block in slot.rows.blocks():
        is_used[np.searchsorted(slot.ends, block[block >= 0], "right")] = True
    if is_used.all():
        return [*slot.sources], slot.rows
    # What is before a source and goes makes its rows smaller.
    gone = np.cumsum(np.where(is_used, 0, np.diff(slot.ends, prepend=0)))
    blocks = [
        np.where(block < 0, -1, block - gone[np.searchsorted(slot.ends, block, "right")])
        for block in slot.rows.blocks()
    ]
    used = np.flatnonzero(is_used).tolist() or [0]
    rows = Rows.of(np.concatenate(blocks)) if blocks else Rows.over(range(0))
    return [slot.sources[each] for each in used], rows


def concatenated(parts: Sequence[Slots], labels: Sequence[str | None]) -> Slots:
    """Return the plan of several sequences, one after the other.

    Args:
        parts: Their plans, of which slots of the same number become one.
        labels: The `__dataset__` of the samples of each; None for their own.
    """
    slots = []
    for number in range(max(map(len, parts))):
        sources: list[Source] = []
        rows: list[Rows] = []
        known: list[tuple[Any, ...]] = []
        start, end, last = 0, 0, -1
        for part, label in zip(parts, labels, strict=True):
            if number >= len(part):
                rows.append(Rows.none(len(part[0].rows)))
                continue
            slot, own = part[number], part[number].sources
            if label is not None and number == 0:
                own = tuple(source._replace(label=label) for source in own)
            added = slot.rows
            # Where rows would descend, sources come once more: ascending rows take less memory.
            descends = added.ascending and added.count and start + added.at(0) <= last
            identities = [source.identity for source in own]
            if descends or identities != known:
                start, known = end, identities
                sources += own
                end += sum(len(source.leaf) for source in own)
            rows.append(added.shifted(start))
            last = rows[-1].at(added.count - 1) if added.ascending and added.count else -1
        slots.append(Slot(sources, Rows.concat(rows)))
    return tuple(slots)


def fields_of(slots: Slots, index: int, number: int = 0, **how: Any) -> dict[str, Any] | None:
    """Return what `fields_after` returns after all steps; None without a counterpart."""
    slot = slots[number]
    return None if slot.at(index) < 0 else fields_after(slots, *slot.place(index), index, **how)


def fields_after(
    slots: Slots,
    source: Source,
    row: int,
    index: int,
    *,
    more: Collection[str] = (),
    windows: bool = False,
) -> dict[str, Any]:
    """Return where the fields of a sample are stored, by the names that it has them under.

    Functions of `map` are passed over.

    Args:
        slots: The plan.
        source: The source, which may have the first of its steps alone.
        row: Row of the sample in it.
        index: Index of the sample.
        more: Further names of fields of the source itself, which its dataset does not read.
        windows: Whether the fields of its neighbours count.

    Returns:
        A `StoredField` for each name, None for a field that a join gives as None; and the key.

    Raises:
        SpecError: The keys of two sides of a join differ, or both have a field.
        WidsError: A shard cannot be opened.
    """
    steps = [
        step for step in source.steps if not isinstance(step, Call if windows else Call | Surround)
    ]
    for step in reversed(steps):
        more = {old for name in more for old in step.originals(name)}
    fields = _stored_in(source.leaf, row, more)
    for step in steps:
        others = [fields_of(slots, index, number, windows=windows) for number in step.slots]
        fields = step.applied(fields, others, index)
    return fields


def _stored_in(leaf: Any, row: int, more: Collection[str]) -> dict[str, Any]:
    """Return the fields of a row of a dataset or a table, and its key if it has one."""
    if isinstance(leaf, TableRows):
        key = {} if leaf.key is None else {"__key__": leaf.read_raw(row, ())["__key__"]}
        held = leaf.values_at(row)
        return key | {n: StoredField(n, n, leaf, row) if n in held else None for n in leaf.fields}
    key, fields = leaf.stored_at(row)
    wanted = leaf.pipeline.fields
    return {"__key__": key} | {
        name: StoredField(name, name, leaf, row, offset, nbytes)
        for name, offset, nbytes in fields
        if wanted is None or name in wanted or name in more
    }


def stored_fields(
    samples: Any, index: int, fields: Collection[str] | None = None
) -> dict[str, StoredField]:
    """Return where the fields of a sample are stored, by name, the left side of a join first.

    Args:
        samples: A dataset, or a view; functions are passed over.
        index: Index of the sample, in `[0, len)`.
        fields: Names of the wanted ones, also of such that a dataset leaves out by `fields=`; None
            for all that are read.

    Raises:
        SpecError: Both sides of a join have a field, or other keys.
        WidsError: A shard cannot be opened.
    """
    slots = slots_of(samples)
    found = fields_of(slots, index) or {}
    if fields is not None and (more := set(fields) - found.keys()):
        found = fields_of(slots, index, more=more) or {}
    return {
        name: field._replace(extension=name)
        for name, field in found.items()
        if isinstance(field, StoredField) and (fields is None or name in fields)
    }


def names_at(slots: Slots, index: int, number: int = 0) -> list[str]:
    """Return the names of the fields of a sample, also of those that a join gives as None."""
    return [name for name in fields_of(slots, index, number) or () if name != "__key__"]


def first_names(slots: Slots) -> list[str]:
    """Return the fields of the first sample; of no samples, those of the first row of the dataset.

    Raises:
        WidsError: The shard of the sample cannot be read.
    """
    if not slots[0].rows.count:
        slots = tuple(
            slot.with_rows(Rows.over(range(1)) if slot.ends[-1:] > [0] else Rows.none(1))
            for slot in slots
        )
    return names_at(slots, 0)


def with_options(slots: Slots, options: Mapping[str, Any]) -> Slots:
    """Return the plan of samples that are read with other options.

    Each field is asked for where it may come from: a join may have renamed it. Datasets in a join
    are asked for those alone with which they were joined.

    Args:
        slots: The plan.
        options: As `ShardListDataset` takes them.
    """
    fields = options.get("fields")
    for name in fields or ():
        if all(_is_renamed(source, name) for source in slots[0].sources):
            raise ValueError(
                f"fields: {name!r} was given another name by rename(); expected the new one"
            )
    # The names that are wanted of each slot; None for all.
    wanted: list[Any] = [None if fields is None else set() for _ in slots]
    if fields is not None:
        wanted[0] = set(fields)
    twins: dict[Any, Any] = {}
    found = []
    for number, slot in enumerate(slots):  # steps refer to later slots alone
        sources = []
        for source in slot.sources:
            names, in_join = wanted[number], number > 0
            optional = set(options.get("missing_ok", ()))
            for step in reversed(source.steps):
                in_join = in_join or isinstance(step, Add)
                if names is None:
                    continue
                if isinstance(step, Add):
                    wanted[step.slot] |= {own for name in names if (own := step.original(name))}
                    optional.update(step.renamed(likely_names(slots, step)))
                elif isinstance(step, Surround):
                    for each in step.slots:
                        wanted[each] |= names
                optional |= {name for name in names if len(step.originals(name)) > 1}
                optional = {old for name in optional for old in step.originals(name)}
                names = {old for name in names for old in step.originals(name)}
            if in_join and source.offered is not None and "fields" in options:
                names = source.offered if names is None else names & source.offered
            key = id(source.leaf), None if names is None else frozenset(names)
            if key not in twins:
                base = next(iter(twins.values()), None)
                optional = names if number and names is not None else optional
                twins[key] = _twin(source.leaf, options, names, optional, base)
            sources.append(source._replace(leaf=twins[key]))
        found.append(Slot(_renewed(sources, wanted), slot.rows))
    return tuple(found)


def _is_renamed(source: Source, name: str) -> bool:
    """Return whether the samples of a source have no field of a name, as that was renamed."""
    names = [name]
    for step in reversed(source.steps):
        if isinstance(step, Add) and any(map(step.original, names)):
            return False
        names = [old for each in names for old in step.originals(each)]
    return not names


def _twin(leaf: Any, options: Mapping[str, Any], names: Any, optional: Any, base: Any) -> Any:
    """Return a dataset or a table that is read with other options; a table as the first dataset."""
    if isinstance(leaf, TableRows):
        return leaf.with_pipeline(base.pipeline if is_sharded(base) else None, names)
    if names is None:
        return leaf.with_options(**options)
    given = [name for name in options.get("fields") or () if name in names]
    listed = [*given, *sorted(names - {*given})]
    asked = {"fields": listed, "missing_ok": [name for name in listed if name in optional]}
    return leaf.with_options(**{**options, **asked})


def _renewed(sources: Sequence[Source], wanted: Sequence[Any]) -> list[Source]:
    """Return sources whose joins give None in the wanted fields alone."""

    def renewed(step: Step) -> Step:
        if not isinstance(step, Add):
            return step
        names, absent = wanted[step.slot], step.absent
        if absent is not None and names is not None:
            absent = tuple(name for name in absent if name in names)
        return replace(step, absent=absent, guess=None)

    return _with_steps(sources, renewed)


def likely_names(slots: Slots, step: Add, indexes: Integers | None = None) -> Sequence[str]:
    """Return the fields of one counterpart, which are those of most; all of a table.

    Args:
        slots: The plan.
        step: The join.
        indexes: Samples of which one is asked; None for all.
    """
    slot = slots[step.slot]
    if step.of_table:
        tables = [source.leaf for source in slot.sources if isinstance(source.leaf, TableRows)]
        return [name for table in tables for name in table.fields]
    if step.guess is not None:
        return step.guess
    start = 0
    for block in slot.rows.blocks() if indexes is None else [slot.rows.take(indexes)]:
        there = np.flatnonzero(block >= 0)
        if len(there):
            first = start + int(there[0]) if indexes is None else int(indexes[there[0]])
            step.guess = names_at(slots, first, step.slot)
            return step.guess
        start += len(block)
    return ()


def in_both(twice: Sequence[str], where: str = "") -> SpecError:
    """Return the error for fields that both sides of a join have."""
    return SpecError(
        f"join: {where}both datasets have {', '.join(map(repr, twice))}; pass "
        f"rename={{{twice[0]!r}: '.other'}}, fields= without it, or replace=True"
    )


def _no_fields(what: str, sample: Any, number: int) -> TypeError:
    return TypeError(
        f"{what}: sample {number}: expected a dict of fields, got {type(sample).__name__}; call "
        f"{what}() before map()"
    )


def _not_samples(left: Any, right: Any, number: int) -> TypeError:
    return TypeError(
        f"join: sample {number}: expected two samples with their keys, got {type(left).__name__} "
        f"and {type(right).__name__}; join the datasets as they are, and give the transformation "
        "to map() of the join"
    )
