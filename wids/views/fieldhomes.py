"""Reading one field of samples of a plan, each from the dataset or table that has it.

Fields of a table are known. Those of a dataset are not, as each sample may have others: where
several may have a field, the likely one is read, and samples are asked one by one only for what it
lacks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from wids.errors import DecodeError
from wids.reading.pipeline import note_index
from wids.reading.ragged import Ragged, Values, equals_fill, join, pack, take
from wids.reading.samplesequence import is_sharded
from wids.views.plan import (
    Add,
    Rename,
    Slots,
    Source,
    Surround,
    fields_after,
    fields_of,
    likely_names,
    other_key,
    window_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Reading", "as_bytes", "compare_keys", "in_tables", "may_give", "read_field"]

Integers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Home(NamedTuple):
    """What may give a field to the samples of a source.

    Attributes:
        step: The join that adds it; None for the source itself.
        source: The source with those of its steps that come before.
        names: The name of the field there; or several, of which the first that a sample has counts.
        window: The step that makes lists of it, where these are read.
    """

    step: Add | None
    source: Source
    names: tuple[str, ...]
    window: Surround | None = None


@dataclass(frozen=True)
class Reading:
    """What is read of a field.

    Attributes:
        values: Function that reads rows of a dataset or a table: `values(leaf, rows, name)`.
        fill: Value for samples that lack it; None if that is an error.
        raw: Whether its bytes are read, so that None is no value.
        windows: Whether of a window all values are read, and not that of the sample itself.
        may_be_kept: Whether it may be a kept column, for which no shard is fetched.
    """

    values: Callable[[Any, Integers, str], Values]
    fill: Any = None
    raw: bool = False
    windows: bool = False
    may_be_kept: bool = False


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
        field = _Field(slots, source, indexes[places], rows, name, reading)
        found += [(places[part], values) for part, values in field.values()]
    return _in_order(found)


def _in_order(found: list[tuple[Integers, Values]]) -> Values:
    """Join values that were read group by group, and put them into the order of the samples."""
    order = np.concatenate([places for places, _ in found]) if found else np.zeros(0, np.int64)
    values = found[0][1] if len(found) == 1 else join([each for _, each in found])
    if bool((order[1:] > order[:-1]).all()):
        return values
    return take(values, np.argsort(order, kind="stable"))


class _Field:
    """A field of samples of one source.

    Args:
        slots: The plan.
        source: The source; it may have the first of its steps alone.
        indexes: Indexes of the samples.
        rows: Their rows in the source.
        name: The field.
        reading: What is read of it.

    Attributes:
        homes: What may give it to them, in the order in which they are asked.
    """

    def __init__(
        self,
        slots: Slots,
        source: Source,
        indexes: Integers,
        rows: Integers,
        name: str,
        reading: Reading,
    ) -> None:
        self.slots, self.source, self.indexes, self.rows = slots, source, indexes, rows
        self.name, self.reading = name, reading
        self.homes = _homes(slots, source, name, windows=reading.windows)
        if len(self.homes) > 1:
            self.homes = _by_likelihood(slots, self.homes, indexes)

    def values(self) -> list[tuple[Integers, Values]]:
        """Return places of samples, and their values."""
        rest = np.arange(len(self.indexes))
        if not self.homes:
            if self.reading.fill is not None:
                return [(rest, _fill(self.reading.fill, len(rest)))]
            raise DecodeError(f"field {self.name!r}: rename() gave it another name; read that")
        first = self.homes[0]
        if len(self.homes) == 1:
            return [(rest, self.read(first))]
        own = next((home for home in self.homes if home.step is None), None)
        if self.reading.fill is not None:
            return self._filled(own)
        found: list[tuple[Integers, Values]] = []
        failed = None
        # Nearly always, the likely home has the field of all samples.
        if self.is_open(first).all():
            try:
                return [(rest, self.read(first))]
            except DecodeError as error:
                failed = error
        # What nobody has is missed in the source itself, or else in the last home.
        last = own or self.homes[-1]
        for home in self.homes:
            if home is last:
                continue
            has = self.held(home, rest)
            if home is first and failed is not None and has.all():
                raise failed
            if has.any():
                found.append((rest[has], self.read(home, rest[has])))
            rest = rest[~has]
        if failed is not None and last is first and len(rest) == len(self.indexes):
            raise failed
        return [*found, (rest, self.read(last, rest))] if len(rest) or not found else found

    def _filled(self, own: Home | None) -> list[tuple[Integers, Values]]:
        """Return the values with a fill: what the likely home lacks, another one may have."""
        found: list[tuple[Integers, Values]] = []
        first, fill = self.homes[0], self.reading.fill
        is_open = self.is_open(first)
        some, lacking = np.flatnonzero(is_open), np.flatnonzero(~is_open)
        if len(some):
            values = self.read(first, some)
            gaps = equals_fill(values, fill)
            kept = np.flatnonzero(~gaps)
            found.append((some, values) if not gaps.any() else (some[kept], take(values, kept)))
            asked = some[gaps]
            if first is not own and len(asked):  # it may have it as None
                none = self.held(first, asked)
                found.append((asked[none], _fill(fill, int(none.sum()))))
                asked = asked[~none]
            elif len(asked) and self.held(first, some[:1])[0]:
                # Most likely it is missing everywhere: no shard is fetched to make sure of it.
                near = _near_joined(self.slots, self.homes, self.indexes[asked])
                found.append((asked[~near], _fill(fill, int((~near).sum()))))
                asked = asked[near]
            lacking = np.concatenate([lacking, asked])
        for home in self.homes[1:]:
            has = self.held(home, lacking)
            if has.any():
                found.append((lacking[has], self.read(home, lacking[has])))
            lacking = lacking[~has]
        if len(lacking) or not found:
            found.append((lacking, _fill(fill, len(lacking))))
        return found

    def is_open(self, home: Home) -> Mask:
        """Return which samples a home may have the field of, without asking for their names."""
        there = np.ones(len(self.indexes), np.bool_)
        if home.step is None:
            return there
        (own,) = home.names
        for source, places, _ in self.slots[home.step.slot].groups(self.indexes):
            if source is None:
                # Without a counterpart, None may be given, too.
                there[places] = home.step.absent is not None and own in home.step.absent.names
            else:
                there[places] = _may_have(self.slots, source, own)
        return there

    def held(self, home: Home, some: Integers) -> Mask:
        """Return which of some samples have the field in a home, as None, too."""
        step, source, names, _ = home
        if step is None:
            return _having(self.slots, source, self.indexes[some], self.rows[some], names)
        none = () if step.absent is None else step.absent.names
        fields = (fields_of(self.slots, at, step.slot) for at in self.indexes[some].tolist())
        given = (names[0] in (none if each is None else each) for each in fields)
        return np.fromiter(given, np.bool_, len(some))

    def read(self, home: Home, some: Any = slice(None)) -> Values:
        """Return the field of some samples from one home, after comparing the keys of a join."""
        step, source, names, window = home
        slots, reading = self.slots, self.reading
        indexes, rows = self.indexes[some], self.rows[some]
        if len(names) > 1:
            return _in_order(_first_of(slots, source, indexes, rows, names, reading))
        if window is not None:
            return _windows(slots, home, indexes, rows, reading)
        (own,) = names
        if step is None:
            try:
                return reading.values(source.leaf, rows, own)
            except DecodeError as error:
                found = [] if error.sample is None else indexes[rows == error.sample].tolist()
                if found and found[0] != error.sample:
                    note_index(error, found[0])
                raise
        # A saved view may say of a table that it has no row, and not that its fields are then None.
        must_be_there = step.of_table and step.absent is None and reading.fill is None
        if must_be_there and np.any(slots[step.slot].rows.take(indexes) < 0):
            raise _no_counterpart(own)
        if not reading.may_be_kept:
            compare_keys(slots, step, source, indexes, rows)
        values = read_field(slots, indexes, own, reading, step.slot)
        if reading.may_be_kept:
            # A shard that was fetched for the column can be compared now.
            compare_keys(slots, step, source, indexes, rows, near=True)
        return values


def _windows(
    slots: Slots, home: Home, indexes: Integers, rows: Integers, reading: Reading
) -> Values:
    """Return the windows of a field: an array with one more axis, or a list of lists."""
    (name,) = home.names
    parts = []
    for slot in home.window.places if home.window else ():
        if slot is None:
            own = _Field(slots, home.source, indexes, rows, name, reading)
            parts.append(_in_order(own.values()))
        else:
            parts.append(read_field(slots, indexes, name, reading, slot))
    arrays = [each for each in parts if isinstance(each, np.ndarray)]
    if len(arrays) == len(parts) and len({(each.dtype, each.shape) for each in arrays}) == 1:
        return np.stack(arrays, axis=1)
    return [window_of(each) for each in zip(*parts, strict=True)]


def _first_of(
    slots: Slots,
    source: Source,
    indexes: Integers,
    rows: Integers,
    names: Sequence[str],
    reading: Reading,
) -> list[tuple[Integers, Values]]:
    """Return places of samples, and the first of several fields that each of them has."""
    found: list[tuple[Integers, Values]] = []
    rest = np.arange(len(indexes))
    stored: list[dict[str, Any]] = []
    if reading.fill is None:
        at = zip(rows.tolist(), indexes.tolist(), strict=True)
        stored = [fields_after(slots, source, *each, windows=reading.windows) for each in at]
    for name in names:
        asked = rest
        if reading.fill is None:
            has = (stored[place].get(name) is not None for place in rest.tolist())
            asked = rest[np.fromiter(has, np.bool_, len(rest))]
        if not len(asked):
            continue
        field = _Field(slots, source, indexes[asked], rows[asked], name, reading)
        for places, values in field.values():
            kept = np.arange(len(places))
            if isinstance(values, list) or reading.fill is not None:
                kept = np.flatnonzero(~equals_fill(values, reading.fill))
            some = take(values, kept)
            found.append((asked[places[kept]], pack(some) if isinstance(some, list) else some))
            rest = np.setdiff1d(rest, asked[places[kept]])
    none = np.zeros(len(rest), np.bool_)
    if reading.fill is None and not reading.raw:  # a join may give it as None
        none = _having(slots, source, indexes[rest], rows[rest], names)
        found.append((rest[none], [None] * int(none.sum())))
        rest = rest[~none]
    if reading.fill is not None:
        found.append((rest, _fill(reading.fill, len(rest))))
    elif len(rest):
        try:
            field = _Field(slots, source, indexes[rest], rows[rest], names[-1], reading)
            found += [(rest[places], values) for places, values in field.values()]
        except DecodeError as error:
            error.add_note(f"a field with a new name, which stands for {', '.join(names)}")
            raise
    return found


def _having(
    slots: Slots, source: Source, indexes: Integers, rows: Integers, names: Sequence[str]
) -> Mask:
    """Return which samples of a source have any of some fields, as None, too."""
    at = zip(rows.tolist(), indexes.tolist(), strict=True)
    fields = (fields_after(slots, source, *each) for each in at)
    has = (any(name in each for name in names) for each in fields)
    return np.fromiter(has, np.bool_, len(rows))


def _fill(fill: Any, count: int) -> Values:
    return pack([fill] * count)


def _absent(name: str, count: int, reading: Reading) -> Values:
    """Return the field of samples without a counterpart; raise if there must be one."""
    if reading.fill is not None:
        return _fill(reading.fill, count)
    if reading.raw:
        raise _no_counterpart(name)
    return [None] * count


def _no_counterpart(name: str) -> DecodeError:
    return DecodeError(
        f"field {name!r}: a sample has no counterpart in what was joined; join with "
        'missing="drop", or give column() a value for such samples by fill='
    )


def _homes(slots: Slots, source: Source, name: str, *, windows: bool = False) -> list[Home]:
    """Return what may give a field to the samples of a source, the latest step first."""
    homes: list[Home] = []
    names: tuple[str, ...] = (name,)
    for number in range(len(source.steps) - 1, -1, -1):
        step = source.steps[number]
        if isinstance(step, Rename):
            names = step.originals(names[0])
            if len(names) != 1:
                before = source._replace(steps=source.steps[:number])
                return [*homes, Home(None, before, names)] if names else homes
        elif isinstance(step, Surround):
            if windows:
                before = source._replace(steps=source.steps[:number])
                return [*homes, Home(None, before, names, step)]
        elif (
            isinstance(step, Add)
            and (own := step.original(names[0])) is not None
            and any(_may_have(slots, each, own) for each in slots[step.slot].sources)
        ):
            homes.append(Home(step, source._replace(steps=source.steps[:number]), (own,)))
            if step.of_table:  # each of its rows has the field
                return homes
    if not homes or _leaf_may_have(source, names[0]):
        homes.append(Home(None, source._replace(steps=()) if source.steps else source, names))
    return homes


def _may_have(slots: Slots, source: Source, name: str) -> bool:
    if not source.steps:
        return _leaf_may_have(source, name)
    names = {name}
    for step in reversed(source.steps):
        if isinstance(step, Rename):
            names = {old for each in names for old in step.originals(each)}
        elif isinstance(step, Add):
            theirs = {own for each in names if (own := step.original(each)) is not None}
            under = slots[step.slot].sources
            if any(_may_have(slots, each, own) for each in under for own in theirs):
                return True
    return any(_leaf_may_have(source, each) for each in names)


def _leaf_may_have(source: Source, name: str) -> bool:
    leaf = source.leaf
    if not is_sharded(leaf):
        return name in getattr(leaf, "fields", (name,))
    return leaf.pipeline.fields is None or name in leaf.pipeline.fields


def _by_likelihood(slots: Slots, homes: Sequence[Home], indexes: Integers) -> list[Home]:
    """Return homes in the order in which they are asked.

    Those that replace are first, as their None counts, too; the others have no field in common, so
    that the one which gives it to the first sample is the likely one.
    """
    replacing = [home for home in homes if home.step is not None and home.step.replace]
    others = [home for home in homes if home.step is None or not home.step.replace]
    for home in others if len(others) > 1 else ():
        if home.step is not None and home.names[0] in likely_names(slots, home.step, indexes):
            return [*replacing, home, *(each for each in others if each is not home)]
    return [*replacing, *sorted(others, key=lambda home: home.step is not None)]


def compare_keys(
    slots: Slots,
    step: Add,
    source: Source,
    indexes: Integers,
    rows: Integers,
    *,
    near: bool = False,
) -> None:
    """Compare the two keys of samples of a join that was taken for aligned.

    Once each: from then on, shards that hold other keys are errors.

    Args:
        slots: The plan.
        step: The join.
        source: What the samples are rows of.
        indexes: Indexes of the samples.
        rows: Their rows.
        near: Whether to pass by those that need a whole shard to be fetched.

    Raises:
        SpecError: They differ.
    """
    if step.compared is None:
        return
    for other, places, there in slots[step.slot].groups(indexes):
        if other is None:
            continue
        rest = step.compared.rest(other.leaf, there)
        if near:
            rest &= _near(source.leaf, rows[places]) & _near(other.leaf, there)
        if not rest.any():
            continue
        keys = source.leaf.keys_at(rows[places[rest]])
        others = other.leaf.keys_at(there[rest])
        for index, key, its in zip(indexes[places[rest]].tolist(), keys, others, strict=True):
            if key != its:
                raise other_key(index, key, its)
        step.compared.note(other.leaf, there[rest])


def _near(leaf: Any, rows: Integers) -> Mask:
    """Return which rows of a dataset can be read without fetching a whole shard."""
    if not is_sharded(leaf):
        return np.array([leaf.is_near(row) for row in rows.tolist()], np.bool_)
    shards, of_shard = np.unique(
        np.searchsorted(leaf.cum_lengths, rows, "right"), return_inverse=True
    )
    ends = leaf.cum_lengths[shards].tolist()
    near: Mask = np.array([leaf.is_near(end - 1) for end in ends], np.bool_)[of_shard]
    return near


def _near_joined(slots: Slots, homes: Sequence[Home], indexes: Integers) -> Mask:
    """Return which samples have counterparts that can be read without fetching a whole shard."""
    near = np.ones(len(indexes), np.bool_)
    for step, *_ in homes:
        for source, places, rows in () if step is None else slots[step.slot].groups(indexes):
            if source is not None:
                near[places] &= _near(source.leaf, rows)
    return near


def may_give(slots: Slots, name: str) -> bool:
    """Return whether a join may give a field, or replace one of the samples' own."""
    return any(_may_be_joined(slots, source, name) for source in slots[0].sources)


def _may_be_joined(slots: Slots, source: Source, name: str) -> bool:
    for step, before, names, _ in _homes(slots, source, name):
        if step is None:
            if len(names) > 1 and any(_may_be_joined(slots, before, each) for each in names):
                return True
        elif step.replace or step.of_table or names[0] in likely_names(slots, step):
            return True
    return False


def in_tables(slots: Slots, name: str, number: int = 0) -> bool:
    """Return whether a field of all samples is a column of joined tables."""
    homes = [_homes(slots, source, name)[:1] for source in slots[number].sources]
    return bool(homes) and all(
        home
        and (step := home[0].step) is not None
        and (step.of_table or in_tables(slots, home[0].names[0], step.slot))
        for home in homes
    )


def as_bytes(values: Values) -> Ragged:
    """Return raw fields as one buffer."""
    return values if isinstance(values, Ragged) else Ragged.of(list(values))
