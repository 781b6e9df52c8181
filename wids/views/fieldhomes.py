"""Reading one field of samples of a plan, each from the dataset or table that has it.

Fields of a table are known. Those of a dataset are not, as each sample may have others: where
several may have a field, the likely one is read, and samples are asked one by one only for what it
lacks.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from wids.errors import DecodeError
from wids.reading.pipeline import note_index
from wids.reading.ragged import Values, equals_fill, join, pack, take
from wids.reading.shardlist import is_sharded
from wids.views.plan import (
    Add,
    Rename,
    Slots,
    Source,
    Surround,
    fields_after,
    fields_of,
    likely_names,
    window_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

__all__ = ["Reading", "may_give", "read_field"]

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Reading:
    """What is read of a field.

    Attributes:
        values: Function that reads rows of a dataset or a table: `values(leaf, rows, name)`.
        fill: Value for samples that lack it; None if that is an error.
        raw: Whether its bytes are read, so that None is no value.
        windows: Whether of a window all values are read, and not that of the sample itself.
    """

    values: Callable[[Any, Integers, str], Values]
    fill: Any = None
    raw: bool = False
    windows: bool = False


def read_field(
    slots: Slots, indexes: Integers, name: str, reading: Reading, number: int = 0
) -> Values:
    """Return a field of some samples, in their order.

    Args:
        slots: The plan.
        indexes: Indexes of the samples.
        name: The field.
        reading: What is read of it.
        number: The slot that is read.
    """
    found: list[tuple[Integers, Values]] = []
    for source, places, rows in slots[number].groups(indexes):
        if source is None:
            found.append((places, _absent(name, len(places), reading)))
            continue
        part = _Part(slots, source, indexes[places], rows, reading)
        found.append((places, part.read(name)))
    return _in_order(found)


def _in_order(found: list[tuple[Integers, Values]]) -> Values:
    """Join values that were read group by group, and put them into the order of the samples."""
    order = np.concatenate([places for places, _ in found]) if found else np.zeros(0, np.int64)
    values = found[0][1] if len(found) == 1 else join([each for _, each in found])
    if bool((order[1:] > order[:-1]).all()):
        return values
    return take(values, np.argsort(order, kind="stable"))


class _Part(NamedTuple):
    """Samples of one source, as they are after the first of its steps.

    Attributes:
        slots: The plan.
        source: The source, with these steps alone.
        indexes: Indexes of the samples.
        rows: Their rows in the source.
        reading: What is read of their fields.
    """

    slots: Slots
    source: Source
    indexes: Integers
    rows: Integers
    reading: Reading

    def read(self, name: str) -> Values:
        """Return a field of the samples."""
        steps = self.source.steps
        for count in range(len(steps) - 1, -1, -1):
            step = steps[count]
            before = self._replace(source=self.source._replace(steps=steps[:count]))
            if isinstance(step, Rename):
                names = step.originals(name)
                if len(names) > 1:
                    return _first_of(before, names)
                if not names and self.reading.fill is None:
                    raise DecodeError(f"field {name!r}: rename() gave it another name; read that")
                if not names:
                    return pack([self.reading.fill] * len(self.rows))
                name = names[0]
            elif isinstance(step, Surround) and self.reading.windows:
                return _windows(before, step, name)
            elif isinstance(step, Add):
                own, slot = step.original(name), self.slots[step.slot]
                # Others are of other parts of a concatenation, which may have joined other fields.
                theirs = [each for each, *_ in slot.groups(self.indexes) if each is not None]
                if own is not None and _may_have(self.slots, theirs or slot.sources, own):
                    return _of_sides(before, step, name, own)
        try:
            return self.reading.values(self.source.leaf, self.rows, name)
        except DecodeError as error:
            found = [] if error.sample is None else self.indexes[self.rows == error.sample].tolist()
            if found and found[0] != error.sample:
                note_index(error, found[0])
            raise

    def read_some(self, name: str, places: Integers) -> Values:
        """Return a field of some of the samples, by their place among these."""
        some = self._replace(indexes=self.indexes[places], rows=self.rows[places])
        return some.read(name)


def _of_sides(part: _Part, step: Add, name: str, own: str) -> Values:
    """Return a field that both sides of a join may have, or the right one alone.

    Args:
        part: The samples before the join.
        step: The join.
        name: The name of the field on the left.
        own: That on the right.
    """
    slots, none = part.slots, step.absent or ()

    def read(is_right: bool, places: Integers) -> Values:
        if not is_right:
            return part.read_some(name, places)
        return read_field(slots, part.indexes[places], own, part.reading, step.slot)

    def is_right(place: int) -> bool:
        fields = fields_of(slots, int(part.indexes[place]), step.slot)
        return own in (none if fields is None else fields)

    every = np.arange(len(part.rows))
    lacking = bool((slots[step.slot].rows.take(part.indexes) < 0).any())
    is_patch = lacking and step.replace and step.absent is None
    if (step.of_table and not is_patch) or not _may_have(slots, [part.source], name):
        if own not in none and part.reading.fill is None and lacking:
            raise _no_counterpart(own)
        return read(True, every)
    found: list[tuple[Integers, Values]] = []
    likely = step.replace or own in likely_names(slots, step, part.indexes)
    for other, at, _ in slots[step.slot].groups(part.indexes) if likely else ():
        if other is None or not _may_have(slots, [other], own):
            found.append((at, read(other is None and own in none, at)))
            every[at] = -1
    every = every[every >= 0]
    return _in_order([*found, *_asked(part.reading.fill, every, read, is_right, likely)])


def _first_of(part: _Part, names: Sequence[str]) -> Values:
    """Return the first of several fields that each sample has."""
    reading, rows, indexes = part.reading, part.rows.tolist(), part.indexes.tolist()

    def read(name: str | None, places: Integers) -> Values:
        if name is None:
            return [reading.fill] * len(places)
        try:
            return part.read_some(name, places)
        except DecodeError as error:
            error.add_note(f"a field with a new name, which stands for {', '.join(names)}")
            raise

    def first(place: int) -> str | None:
        at = rows[place], indexes[place]
        fields = fields_after(part.slots, part.source, *at, windows=reading.windows)
        there = [name for name in names if name in fields]
        # A join may give it as None, which are no bytes; the last one says what is missing.
        none = None if there and not reading.raw else names[-1]
        return next((name for name in there if fields[name] is not None), none)

    likely = None if reading.fill is None else names[0]
    return _in_order(_asked(reading.fill, np.arange(len(part.rows)), read, first, likely))


def _asked(
    fill: Any,
    places: Integers,
    read: Callable[[Any, Integers], Values],
    home_of: Callable[[int], Any],
    likely: Any,
) -> list[tuple[Integers, Values]]:
    """Return a field that each sample has in one of several homes, with the places of the values.

    Which fields a sample of a dataset has is not known: the likely home is read, and samples are
    asked one by one only for what it lacks.

    Args:
        fill: Value for samples that lack the field; None if that is an error.
        places: The samples, by their place among those that are read.
        read: Function from a home and places to the values there.
        home_of: Function that asks a sample for the home of its field.
        likely: The home of most, where any value counts; None to ask all samples.
    """
    found: list[tuple[Integers, Values]] = []
    every, values, is_first = places, None, np.ones(len(places), np.bool_)
    if likely is not None and len(places):
        with suppress(*([DecodeError] if fill is None else [])):
            values = read(likely, places)
            if fill is None or not (gaps := equals_fill(values, fill)).any():
                return [(places, values)]
            places = places[gaps]
    homes: dict[Any, list[int]] = {}
    for place in places.tolist():
        homes.setdefault(home_of(place), []).append(place)
    for home, listed in homes.items():
        some = np.array(listed, np.int64)
        given = read(home, some)
        if values is not None:  # whose fill has the shape of arrays beside it
            kept = np.flatnonzero(~equals_fill(given, fill))
            some, given = some[kept], take(given, kept)
            is_first[np.searchsorted(every, some)] = False
        found.append((some, given))
    if values is not None:
        kept = np.flatnonzero(is_first)
        found.append((every[kept], take(values, kept)))
    found = [each for each in found if len(each[0])]
    return [(at, pack(each) if isinstance(each, list) else each) for at, each in found]


def _windows(part: _Part, step: Surround, name: str) -> Values:
    """Return the windows of a field: an array with one more axis, or a list of lists."""
    parts = [
        part.read(name)
        if slot is None
        else read_field(part.slots, part.indexes, name, part.reading, slot)
        for slot in step.places
    ]
    arrays = [each for each in parts if isinstance(each, np.ndarray)]
    if len(arrays) == len(parts) and len({(each.dtype, each.shape) for each in arrays}) == 1:
        return np.stack(arrays, axis=1)
    return [window_of(each) for each in zip(*parts, strict=True)]


def _absent(name: str, count: int, reading: Reading) -> Values:
    """Return the field of samples without a counterpart; raise if there must be one."""
    if reading.fill is not None:
        return pack([reading.fill] * count)
    if reading.raw:
        raise _no_counterpart(name)
    return [None] * count


def _no_counterpart(name: str) -> DecodeError:
    return DecodeError(
        f"field {name!r}: a sample has no counterpart in what was joined; join with "
        'missing="drop", or give column() a value for such samples by fill='
    )


def _givers(slots: Slots, source: Source, name: str) -> Iterator[tuple[Add | None, str]]:
    """Yield the joins that may give a field to samples, the latest first, and its name there.

    The join is None for the source itself, which may have the field, too.
    """
    names: Sequence[str] = (name,)
    for step in reversed(source.steps):
        if isinstance(step, Add):
            for own in filter(None, map(step.original, names)):
                if _may_have(slots, slots[step.slot].sources, own):
                    yield step, own
        names = [old for each in names for old in step.originals(each)]
    leaf = source.leaf
    held = leaf.pipeline.fields if is_sharded(leaf) else getattr(leaf, "fields", None)
    for each in names:
        if held is None or each in held:
            yield None, each


def _may_have(slots: Slots, sources: Iterable[Source], name: str) -> bool:
    """Return whether samples of any of some sources may have a field, from a join, too."""
    return any(True for source in sources for _ in _givers(slots, source, name))


def may_give(slots: Slots, name: str) -> bool:
    """Return whether a field may be another one than that of this name in the samples' own shards.

    A join may give it, or replace it, and `rename` may have given it its name, or another one.
    """
    found = [each for source in slots[0].sources for each in _givers(slots, source, name)]
    return not found or any(
        own != name
        if step is None
        else step.replace or step.of_table or own in likely_names(slots, step)
        for step, own in found
    )
