"""Reading one field of samples of a plan, each from the dataset or table that has it.

Fields of a table are known. Those of a dataset are not, as each sample may have others: where
several may have a field, the likely one is read, and samples are asked one by one only for what it
lacks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from wids.errors import DecodeError
from wids.reading.pipeline import note_index
from wids.reading.ragged import Ragged, Values, equals_fill, join, pack, take
from wids.reading.samplesequence import is_sharded
from wids.views.plan import (
    Add,
    Slots,
    Source,
    given_names,
    likely_names,
    names_at,
    other_key,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Reading", "as_bytes", "compare_keys", "in_tables", "may_give", "read_field"]

Integers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
# The step that gives a field, None for the source itself, and the name of the field there.
Home = tuple[Add | None, str]


@dataclass(frozen=True)
class Reading:
    """What is read of a field.

    Attributes:
        values: Function that reads rows of a dataset or a table: `values(leaf, rows, name)`.
        fill: Value for samples that lack it; None if that is an error.
        raw: Whether its bytes are read, so that None is no value.
        may_be_kept: Whether it may be a kept column, for which no shard is fetched.
    """

    values: Callable[[Any, Integers, str], Values]
    fill: Any = None
    raw: bool = False
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
        parts = _of_source(slots, source, indexes[places], rows, name, reading)
        found += [(places[part], values) for part, values in parts]
    return _in_order(found)


def _in_order(found: list[tuple[Integers, Values]]) -> Values:
    """Join values that were read group by group, and put them into the order of the samples."""
    if len(found) == 1:  # all samples, in their order
        return found[0][1]
    order = np.concatenate([places for places, _ in found]) if found else np.zeros(0, np.int64)
    values = join([each for _, each in found])
    if bool((order[1:] > order[:-1]).all()):
        return values
    return take(values, np.argsort(order, kind="stable"))


def _of_source(
    slots: Slots, source: Source, indexes: Integers, rows: Integers, name: str, reading: Reading
) -> list[tuple[Integers, Values]]:
    """Return a field of the samples of one source: places of samples, and their values."""
    homes = _homes(slots, source, name)
    rest = np.arange(len(indexes))
    order = _by_likelihood(slots, homes, indexes) if len(homes) > 1 else [0]
    first, failed = order[0], None
    if homes[first][0] is None and (len(homes) == 1 or reading.fill is None):
        # Nearly always, the source itself has the field of all samples.
        try:
            return [(rest, _read_home(slots, source, homes[first], indexes, rows, reading))]
        except DecodeError as error:
            if len(homes) == 1:
                raise
            failed = error
    open_to: dict[int, Mask] = {}  # which samples have a counterpart, by the number of the home
    for which, (step, own) in enumerate(homes):
        if step is None:
            continue
        open_to[which] = there = np.ones(len(indexes), np.bool_)
        for each, places, _ in slots[step.slot].groups(indexes):
            if each is None:
                # Without a counterpart, None may be given, too.
                there[places] = step.absent is not None and own in step.absent.names
            else:
                there[places] = _may_have(slots, each, own)

    def read(which: int, some: Integers) -> Values:
        return _read_home(slots, source, homes[which], indexes[some], rows[some], reading)

    def held(which: int, some: Integers) -> Mask:
        step, own = homes[which]
        if step is None:
            asked = (own in source.leaf.names_at(row) for row in rows[some].tolist())
        else:
            given = (given_names(slots, step, at) for at in indexes[some].tolist())
            asked = (own in names for names in given)
        return np.fromiter(asked, np.bool_, len(some))

    if len(homes) == 1:
        return [(rest, read(0, rest))]
    mine = open_to[first][rest] if first in open_to else np.ones(len(rest), np.bool_)
    if reading.fill is not None:
        return _filled(rest, mine, order, read, held, reading, slots, source, homes, indexes, rows)
    found: list[tuple[Integers, Values]] = []
    if mine.all() and failed is None:
        try:
            return [(rest, read(first, rest))]
        except DecodeError as error:
            failed = error
    # What nobody has is missed in the source itself, or else in the likely home.
    asked = [which for which in order if homes[which][0] is not None]
    last = next((which for which in order if homes[which][0] is None), None)
    if last is None:
        last = asked.pop()
    for which in asked:
        has = held(which, rest)
        if which == first and failed is not None and has.all():
            raise failed
        if has.any():
            found.append((rest[has], read(which, rest[has])))
        rest = rest[~has]
    if failed is not None and last == first and len(rest) == len(mine):
        raise failed
    return [*found, (rest, read(last, rest))] if len(rest) or not found else found


def _filled(
    rest: Integers,
    mine: Mask,
    order: Sequence[int],
    read: Callable[[int, Integers], Values],
    held: Callable[[int, Integers], Mask],
    reading: Reading,
    slots: Slots,
    source: Source,
    homes: Sequence[Home],
    indexes: Integers,
    rows: Integers,
) -> list[tuple[Integers, Values]]:
    """Return a field with a fill: what the likely home lacks, another one may have."""
    found: list[tuple[Integers, Values]] = []
    first, fill = order[0], reading.fill
    lacking = rest[~mine]
    some = rest[mine]
    if len(some):
        values = read(first, some)
        gaps = equals_fill(values, fill)
        if gaps.any():
            kept = np.flatnonzero(~gaps)
            found.append((some[kept], take(values, kept)))
            asked = some[gaps]
            if homes[first][0] is not None:  # it may have it as None
                none = held(first, asked)
                found.append((asked[none], _fill(fill, int(none.sum()))))
                asked = asked[~none]
            if homes[first][0] is None and homes[first][1] in source.leaf.names_at(
                int(rows[some[0]])
            ):
                # Most likely it is missing everywhere: no shard is fetched to make sure of it.
                near = _near_joined(slots, homes, indexes[asked])
                found.append((asked[~near], _fill(fill, int((~near).sum()))))
                asked = asked[near]
            lacking = np.concatenate([lacking, asked])
        else:
            found.append((some, values))
    for which in order[1:]:
        has = held(which, lacking)
        if has.any():
            found.append((lacking[has], read(which, lacking[has])))
        lacking = lacking[~has]
    if len(lacking) or not found:
        found.append((lacking, _fill(fill, len(lacking))))
    return found


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


def _homes(slots: Slots, source: Source, name: str) -> list[Home]:
    """Return what may give a field to the samples of a source, the latest step first."""
    homes: list[Home] = []
    for step in reversed(source.steps):
        if not isinstance(step, Add) or (own := step.original(name)) is None:
            continue
        if any(_may_have(slots, each, own) for each in slots[step.slot].sources):
            homes.append((step, own))
            if step.of_table:  # each of its rows has the field
                return homes
    if not homes or _leaf_may_have(source, name):
        homes.append((None, name))
    return homes


def _may_have(slots: Slots, source: Source, name: str) -> bool:
    return _leaf_may_have(source, name) or any(
        isinstance(step, Add)
        and (own := step.original(name)) is not None
        and any(_may_have(slots, each, own) for each in slots[step.slot].sources)
        for step in source.steps
    )


def _leaf_may_have(source: Source, name: str) -> bool:
    leaf = source.leaf
    if not is_sharded(leaf):
        return name in getattr(leaf, "fields", (name,))
    return leaf.pipeline.fields is None or name in leaf.pipeline.fields


def _by_likelihood(slots: Slots, homes: Sequence[Home], indexes: Integers) -> list[int]:
    """Return the numbers of homes in the order in which they are asked.

    Those that replace are first, as their None counts, too; the others have no field in common, so
    that the one which gives it to the first sample is the likely one.
    """
    replacing = [n for n, (step, _) in enumerate(homes) if step is not None and step.replace]
    others = [n for n in range(len(homes)) if n not in replacing]
    for which in others if len(others) > 1 else ():
        step, own = homes[which]
        if step is not None and own in _guessed(slots, step, indexes):
            return [*replacing, which, *(each for each in others if each != which)]
    return [*replacing, *sorted(others, key=lambda which: homes[which][0] is not None)]


def _guessed(slots: Slots, step: Add, indexes: Integers) -> Sequence[str]:
    """Return the fields of one counterpart: of most samples, probably."""
    if step.guess is None:
        there = indexes[slots[step.slot].rows.take(indexes) >= 0]
        if not len(there):
            return ()
        step.guess = names_at(slots, int(there[0]), step.slot)
    return step.guess


def _read_home(
    slots: Slots,
    source: Source,
    home: Home,
    indexes: Integers,
    rows: Integers,
    reading: Reading,
) -> Values:
    """Return a field of samples from one home, after comparing the keys of those of a join."""
    step, own = home
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
    if step.compared is None:
        return read_field(slots, indexes, own, reading, step.slot)
    if not reading.may_be_kept:
        compare_keys(slots, step, source, indexes, rows)
        return read_field(slots, indexes, own, reading, step.slot)
    values = read_field(slots, indexes, own, reading, step.slot)
    # A shard that was fetched for the column can be compared now.
    compare_keys(slots, step, source, indexes, rows, near=True)
    return values


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
    for step, _ in homes:
        for source, places, rows in () if step is None else slots[step.slot].groups(indexes):
            if source is not None:
                near[places] &= _near(source.leaf, rows)
    return near


def may_give(slots: Slots, name: str) -> bool:
    """Return whether a join may give a field, or replace one of the samples' own."""
    for source in slots[0].sources:
        homes = _homes(slots, source, name)
        for step, own in homes:
            if step is not None and (
                step.replace or step.of_table or own in likely_names(slots, step)
            ):
                return True
    return False


def in_tables(slots: Slots, name: str, number: int = 0) -> bool:
    """Return whether a field of all samples is a column of joined tables."""
    homes = [_homes(slots, source, name)[0] for source in slots[number].sources]
    return bool(homes) and all(
        step is not None and (step.of_table or in_tables(slots, own, step.slot))
        for step, own in homes
    )


def as_bytes(values: Values) -> Ragged:
    """Return raw fields as one buffer."""
    return values if isinstance(values, Ragged) else Ragged.of(list(values))
