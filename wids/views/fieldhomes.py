"""Reading one field of samples of a plan, each from the dataset or table that has it.

Fields of a table are known. Those of a dataset are not, as each sample may have others: where
several may have a field, the likely one is read, and samples are asked one by one only for what it
lacks.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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
Mask = npt.NDArray[np.bool_]


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
        part = _of_source(slots, source, indexes[places], rows, name, reading)
        found.append((places, part))
    return _in_order(found)


def _in_order(found: list[tuple[Integers, Values]]) -> Values:
    """Join values that were read group by group, and put them into the order of the samples."""
    order = np.concatenate([places for places, _ in found]) if found else np.zeros(0, np.int64)
    values = found[0][1] if len(found) == 1 else join([each for _, each in found])
    if bool((order[1:] > order[:-1]).all()):
        return values
    return take(values, np.argsort(order, kind="stable"))


def _of_source(
    slots: Slots, source: Source, indexes: Integers, rows: Integers, name: str, reading: Reading
) -> Values:
    """Return a field of samples of one source, which may have the first of its steps alone."""
    for count in range(len(source.steps) - 1, -1, -1):
        step, before = source.steps[count], source._replace(steps=source.steps[:count])
        if isinstance(step, Rename):
            names = step.originals(name)
            if len(names) > 1:
                return _first_of(slots, before, indexes, rows, names, reading)
            if not names and reading.fill is None:
                raise DecodeError(f"field {name!r}: rename() gave it another name; read that")
            if not names:
                return _fill(reading.fill, len(rows))
            name = names[0]
        elif isinstance(step, Surround) and reading.windows:
            return _windows(slots, before, step, indexes, rows, name, reading)
        elif isinstance(step, Add):
            own = step.original(name)
            if own is not None and _may_have(slots, slots[step.slot].sources, own):
                return _of_sides(slots, step, before, indexes, rows, (name, own), reading)
    try:
        return reading.values(source.leaf, rows, name)
    except DecodeError as error:
        found = [] if error.sample is None else indexes[rows == error.sample].tolist()
        if found and found[0] != error.sample:
            note_index(error, found[0])
        raise


def _of_sides(
    slots: Slots,
    step: Add,
    before: Source,
    indexes: Integers,
    rows: Integers,
    names: tuple[str, str],
    reading: Reading,
) -> Values:
    """Return a field that both sides of a join may have, or the right one alone.

    Args:
        slots: The plan.
        step: The join.
        before: The source, with the steps before the join.
        indexes: Indexes of the samples.
        rows: Their rows in the source.
        names: The name of the field on the left, and on the right.
        reading: What is read of it.
    """
    name, own = names

    def left(some: Integers) -> Values:
        return _of_source(slots, before, indexes[some], rows[some], name, reading)

    def right(some: Integers) -> Values:
        return read_field(slots, indexes[some], own, reading, step.slot)

    none = step.absent or ()
    lacking = bool((slots[step.slot].rows.take(indexes) < 0).any())
    is_patch = lacking and step.replace and step.absent is None
    if (step.of_table and not is_patch) or not _may_have(slots, [before], name):
        if own not in none and reading.fill is None and lacking:
            raise _no_counterpart(own)
        return right(np.arange(len(rows)))
    # Fields of datasets are not known, as each sample may have others: the likely side is read, and
    # samples are asked one by one only for what it lacks.
    is_right = step.replace or own in likely_names(slots, step, indexes)
    if reading.fill is None and not is_right:
        with suppress(DecodeError):
            return left(np.arange(len(rows)))
    alone = np.zeros(len(rows), np.bool_)
    for other, at, _ in slots[step.slot].groups(indexes):
        alone[at] = own not in none if other is None else not _may_have(slots, [other], own)
    places, asked = np.flatnonzero(alone), np.flatnonzero(~alone)
    found = [(places, left(places))] if len(places) else []
    if not len(asked):
        return _in_order(found)
    if reading.fill is not None:
        values = (right if is_right else left)(asked)
        gaps = equals_fill(values, reading.fill)
        kept = take(values, np.flatnonzero(~gaps)) if gaps.any() else values
        found.append((asked[~gaps], kept))
        asked = asked[gaps]
    elif is_right:
        with suppress(DecodeError):
            return _in_order([*found, (asked, right(asked))])
    fields = (fields_of(slots, at, step.slot) for at in indexes[asked].tolist())
    has = np.array([own in (none if each is None else each) for each in fields], np.bool_)
    for side, some in ((right, asked[has]), (left, asked[~has])):
        if len(some):
            found.append((some, side(some)))
    return _in_order(found)


def _windows(
    slots: Slots,
    before: Source,
    step: Surround,
    indexes: Integers,
    rows: Integers,
    name: str,
    reading: Reading,
) -> Values:
    """Return the windows of a field: an array with one more axis, or a list of lists."""
    parts = [
        _of_source(slots, before, indexes, rows, name, reading)
        if slot is None
        else read_field(slots, indexes, name, reading, slot)
        for slot in step.places
    ]
    arrays = [each for each in parts if isinstance(each, np.ndarray)]
    if len(arrays) == len(parts) and len({(each.dtype, each.shape) for each in arrays}) == 1:
        return np.stack(arrays, axis=1)
    return [window_of(each) for each in zip(*parts, strict=True)]


def _first_of(
    slots: Slots,
    before: Source,
    indexes: Integers,
    rows: Integers,
    names: Sequence[str],
    reading: Reading,
) -> Values:
    """Return the first of several fields that each sample has."""
    found: list[tuple[Integers, Values]] = []
    rest, fill = np.arange(len(indexes)), reading.fill

    def read(name: str, some: Integers) -> Values:
        return _of_source(slots, before, indexes[some], rows[some], name, reading)

    if fill is not None:
        for name in names:
            values = read(name, rest)
            kept = np.flatnonzero(~equals_fill(values, fill))
            some = take(values, kept)
            found.append((rest[kept], pack(some) if isinstance(some, list) else some))
            rest = np.delete(rest, kept)
        return _in_order([*found, (rest, _fill(fill, len(rest)))])
    at = zip(rows.tolist(), indexes.tolist(), strict=True)
    fields = [fields_after(slots, before, *each, windows=reading.windows) for each in at]
    places: dict[str | None, list[int]] = {}
    for place, each in enumerate(fields):
        there = [name for name in names if name in each]
        stored = [name for name in there if each[name] is not None]
        # A join may give it as None, which are no bytes; the last one says what is missing.
        none = None if there and not reading.raw else names[-1]
        places.setdefault(stored[0] if stored else none, []).append(place)
    for chosen, listed in places.items():
        some = np.array(listed, np.int64)
        try:
            values = [None] * len(some) if chosen is None else read(chosen, some)
        except DecodeError as error:
            error.add_note(f"a field with a new name, which stands for {', '.join(names)}")
            raise
        found.append((some, pack(values) if isinstance(values, list) else values))
    return _in_order(found)


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


def _givers(slots: Slots, source: Source, name: str) -> Iterator[tuple[Add | None, str]]:
    """Yield the joins that may give a field to samples, the latest first, and its name there.

    The join is None for the source itself, which may have the field, too.
    """
    names: Sequence[str] = (name,)
    for step in reversed(source.steps):
        if isinstance(step, Rename):
            names = [old for each in names for old in step.originals(each)]
        elif isinstance(step, Add):
            for own in filter(None, map(step.original, names)):
                if _may_have(slots, slots[step.slot].sources, own):
                    yield step, own
    leaf = source.leaf
    held = leaf.pipeline.fields if is_sharded(leaf) else getattr(leaf, "fields", None)
    for each in names:
        if held is None or each in held:
            yield None, each


def _may_have(slots: Slots, sources: Iterable[Source], name: str) -> bool:
    """Return whether samples of any of some sources may have a field, from a join, too."""
    return any(True for source in sources for _ in _givers(slots, source, name))


def may_give(slots: Slots, name: str) -> bool:
    """Return whether a join may give a field, or replace one of the samples' own."""
    found = (each for source in slots[0].sources for each in _givers(slots, source, name))
    return any(
        step is not None and (step.replace or step.of_table or own in likely_names(slots, step))
        for step, own in found
    )
