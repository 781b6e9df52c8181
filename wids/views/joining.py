"""`Pairing`: two sequences side by side, whose samples have the fields of both.

The right one may also be the rows of a table (`TableRows`).
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from wids.base.arguments import checked_position, checked_positions
from wids.base.warn import warn
from wids.errors import DecodeError, SpecError, WidsError
from wids.reading.ragged import Ragged, equals_fill, join, take
from wids.reading.samplesequence import is_sharded
from wids.views.concatenation import Chain, Together, other_classes
from wids.views.filling import Filled, first_fields
from wids.views.selection import Selection
from wids.views.tablerows import TableRows

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from wids.ordering.lookahead import Foreseeable, IndexMap
    from wids.reading.fetchahead import FetchProgress
    from wids.reading.fieldfile import FieldFile
    from wids.reading.gather import Allocate
    from wids.reading.pipeline import BatchKind
    from wids.reading.ragged import Values
    from wids.reading.rangeahead import RangePlanner
    from wids.reading.samplesequence import SampleLocation, SampleSequence
    from wids.views.keytable import KeyTable

__all__ = [
    "Offered",
    "Pairing",
    "are_aligned",
    "chosen_fields",
    "counterparts",
    "in_table",
    "joined_names",
    "matching_rows",
    "may_be_joined",
]

Integers = npt.NDArray[np.int64]
# Chosen fields: None for all, a tuple for the parts of a concatenation.
Offered: TypeAlias = "frozenset[str] | tuple[Offered, ...] | None"
# Function that reads a field of some samples of one side of a join.
Read: TypeAlias = "Callable[[Any, str, Integers], Values]"

# `__key__`, `__dataset__`, `__index__`, `__shard__` and `__shardindex__` are in both samples.
_NUM_LABELS = 5
# Runs of samples whose keys are compared before two sequences count as aligned.
_RUNS_COMPARED = 4


class Pairing:
    """Reads the samples of two sequences with equal keys as one sequence.

    The labels of a sample, and its location, come from the left sequence. Whenever a sample is
    read, its two keys are compared.

    Args:
        left: The sequence whose samples get more fields.
        right: Has them, for the same keys in the same order.
        rename: New names of fields of `right`, by their names there.
        replace: Whether a field of `right` takes the place of one of `left`. A warning says so if
            their specs number the classes differently.
        matched: Whether the samples of `right` were found by the keys of all.

    Attributes:
        left, right, rename, replace: As given.
        offered: Fields that `right` was joined with; None for all, a tuple for each part of a
            concatenation.
        left_chosen: Whether `left` was joined with chosen fields.
    """

    def __init__(
        self,
        left: SampleSequence,
        right: SampleSequence | TableRows | Filled,
        rename: Mapping[str, str],
        *,
        replace: bool,
        matched: bool = False,
    ) -> None:
        self.left, self.right = left, right
        self.offered = chosen_fields(right)
        self.left_chosen = chosen_fields(left) is not None
        self._compared = Compared(len(left), everything=matched)
        self.rename, self.replace = dict(rename), replace
        self._read_left, self._read_right = left.read_as, right.read_as
        if replace and (message := other_classes([left, right])):
            warn(f"join: {message}")
        self._unchecked = list(self.rename)
        self._count, self._strict = len(left), not (rename or replace)
        # A row of a table is read straight into the sample.
        self._extended = None
        if isinstance(right, TableRows) and self._strict:
            self._extended = right.extended

    def __len__(self) -> int:
        return self._count

    def read_as(self, index: int, number: int, dataset: str | None = None) -> Any:
        """Return a sample with the labels that it has in a view of this sequence."""
        # In steps, as what is called at once is looked up as a method.
        read_left, extended = self._read_left, self._extended
        left = read_left(index, number, dataset)
        if extended is not None and type(left) is dict:
            merged = extended(left, index, number)
            if merged is not None:
                return merged
        right = self._read_right(index, number)
        try:
            if self._strict and left["__key__"] == right["__key__"]:
                merged = right | left
                # The labels are in both; were a field, the lengths would tell.
                if len(merged) == len(left) + len(right) - _NUM_LABELS:
                    return merged
        except (TypeError, KeyError):
            pass
        return self._merged(left, right, number)

    def _merged(self, left: Any, right: Any, number: int, *, whole: bool = True) -> dict[str, Any]:
        """Return the merged fields of two samples; `whole` says that all their fields were read.

        Raises:
            ValueError: Their keys differ, or both have a field.
            TypeError: A transformation made something else of one of them.
        """
        # Which have a key only if it is to be compared.
        is_row = isinstance(self.right, TableRows | Filled)
        if not (isinstance(left, dict) and isinstance(right, dict)) or not (
            "__key__" in left and ("__key__" in right or is_row)
        ):
            raise TypeError(
                f"join: sample {number}: expected two samples with their keys, got "
                f"{type(left).__name__} and {type(right).__name__}; join the datasets as they "
                "are, and give the transformation to map() of the join"
            )
        if left["__key__"] != right.get("__key__", left["__key__"]):
            raise _other_key(number, left["__key__"], right["__key__"])
        raw = {name: right[name] for name in right if name[:2] != "__"}
        fields = self._renamed(raw, whole=whole)
        twice = [name for name in fields if name in left]
        if twice and not self.replace:
            raise _in_both(twice, f"sample {number}, key {left['__key__']!r}: ")
        return {**left, **fields}

    def _without_replaced(self, left: dict[str, Any], index: int) -> dict[str, Any]:
        """Return raw fields of the left side without those that the right one gives, even as None.

        What is stored has no None, so that the right side alone would bring back an old value.
        """
        if not self.replace:
            return left
        given = self._renamed(dict.fromkeys(self.right.names_at(index)), whole=False)
        return {name: value for name, value in left.items() if name not in given}

    def checked(self) -> Self:
        """Compare the fields of the first samples if they are on this machine; return the join.

        Names that `rename` gives to no field are warned of.

        Raises:
            ValueError: Both sides have a field of one name, and none is to replace the other.
        """
        from wids.codecs.formats import is_class

        left, right = _fields_at_hand(self.left), _fields_at_hand(self.right)
        if right and self._unchecked:
            self._check_names(right)
        joined = [self.rename.get(name, name) for name in right or ()]
        twice = [name for name in joined if name in (left or ())]
        if twice and not self.replace:
            raise _in_both(twice)
        self._warn_of_classes([name for name in joined if is_class(name)], known=right is not None)
        return self

    def _warn_of_classes(self, extensions: Collection[str], *, known: bool) -> None:
        """Warn if both sides number their classes differently, since only names of the left count.

        Args:
            extensions: Class fields of the right, under their new names.
            known: Whether these are all of them, or its fields are not known yet.
        """
        if isinstance(self.right, TableRows) or self.replace or (known and not extensions):
            return
        if other_classes([self.left, self.right]):
            named = ", ".join(extensions) or "its class fields"
            warn(
                "join: the two sides number their classes differently, and names are those of the "
                f"left; filter {named} of the right by number, not by name, and note that shards "
                "written from the join have the names of the left alone"
            )

    def names_chosen(self) -> Self:
        """Return the join without its check of renamed fields, since some fields were left out."""
        self._unchecked.clear()
        return self

    def _check_names(self, fields: Collection[str]) -> None:
        """Warn of renamed fields that the first sample lacks, probably misspelt."""
        missing = [name for name in self._unchecked if name not in fields]
        self._unchecked.clear()
        if missing:
            warn(
                f"rename: the first sample that is read of the joined dataset has no "
                f"{', '.join(map(repr, missing))}; it has {', '.join(sorted(fields))}"
            )

    def _renamed(self, fields: dict[str, Any], *, whole: bool = True) -> dict[str, Any]:
        if not self.rename:
            return fields
        if self._unchecked and fields and whole:
            self._check_names(fields)
        return {self.rename.get(name, name): value for name, value in fields.items()}

    def read_batch_as(
        self, indexes: Sequence[int], numbers: Sequence[int], dataset: str | None = None
    ) -> list[Any]:
        """Return the samples of a batch, each as `read_as(index, number, dataset)`."""
        left = self.left.read_batch_as(indexes, numbers, dataset)
        right = self.right.read_batch_as(indexes, numbers)
        return [self._merged(*each) for each in zip(left, right, numbers, strict=True)]

    @property
    def lengths(self) -> Sequence[int]:
        """Number of samples in each run of adjacent samples from one shard of the left sequence."""
        return self.left.lengths

    def locate(self, index: int) -> SampleLocation:
        """Return the location of the left sample, without opening its shard."""
        return self.left.locate(index)

    def is_near(self, index: int) -> bool:
        """Return whether a sample can be read without fetching a whole shard for it."""
        return self.left.is_near(index) and self.right.is_near(index)

    def read_raw(self, index: int, fields: Sequence[str] | None = None) -> dict[str, Any]:
        """Return a sample as it is stored: raw fields, and the labels of a sample."""
        position = checked_position(index, len(self))
        mine = theirs = fields
        if fields is not None:
            # Each side is asked for its own, as it may leave fields of the same name unread.
            at = np.array([position])
            sides = {name: bool(self._from_right(at, name)[0]) for name in fields}
            mine = [name for name in fields if not sides[name]]
            theirs = [self.original(name) or name for name in fields if sides[name]]
        left = self.left.read_raw(position, mine)
        right = self.right.read_raw(position, theirs)
        left = self._without_replaced(left, position)
        return self._merged(left, right, position, whole=fields is None)

    def field_sizes(self, index: int) -> dict[str, int]:
        """Return the size in bytes of each wanted field of a sample, in storage order."""
        left = self._without_replaced(self.left.field_sizes(index), index)
        return left | self._renamed(self.right.field_sizes(index))

    def names_at(self, index: int) -> list[str]:
        """Return the names of the fields of a sample, also of those that a join gives as None.

        Args:
            index: Global index.
        """
        right = dict.fromkeys(self.right.names_at(index))
        return list(dict.fromkeys([*self.left.names_at(index), *self._renamed(right)]))

    def open_field(self, index: int, extension: str) -> FieldFile:
        """Open one field of a sample as a file that can be sought in."""
        position = checked_position(index, len(self))
        ((home, name, _),) = self._sides(np.array([position]), extension)
        self._compare_keys(home, np.array([position]))
        file: FieldFile = home.open_field(position, name)
        return file

    @cached_property
    def _in_right(self) -> dict[str, str]:
        """Dict from the joined name to the original name of each field of the right side."""
        if isinstance(self.right, TableRows | Filled):
            names = list(self.right.fields)
        else:
            names = first_fields(self.right)
        return {self.rename.get(name, name): name for name in names}

    @cached_property
    def _originals(self) -> dict[str, str]:
        """Dict from the new to the original name of each field that is renamed."""
        return {new: old for old, new in self.rename.items()}

    def original(self, extension: str) -> str | None:
        """Return the name on the right of a joined field; None if it cannot come from there."""
        name = self._originals.get(extension)
        if name is None and extension not in self.rename:
            name = extension
        if isinstance(self.right, TableRows):
            return name if name in self.right.fields else None
        return name if name is not None and _is_offered(name, self.offered) else None

    def may_give(self, extension: str) -> bool:
        """Return whether the right side may give a field in place of the left one."""
        return extension in self._in_right or (
            self.replace and self.original(extension) is not None
        )

    def _from_right(self, indexes: Integers, extension: str) -> npt.NDArray[np.bool_]:
        """Return for each sample whether a field is that of the right side.

        This is found for each sample, as fields may be missing in some, the first one too.
        """
        name, names_at = self.original(extension), self.right.names_at
        if name is None or isinstance(self.right, TableRows):
            return np.full(len(indexes), name is not None)
        found = (name in names_at(index) for index in indexes.tolist())
        return np.fromiter(found, np.bool_, len(indexes))

    def _sides(self, indexes: Integers, extension: str) -> list[Side]:
        """Return the sides that have a field of some samples, one side of no samples."""
        of_right = self._from_right(indexes, extension)
        mine, theirs = np.flatnonzero(~of_right), np.flatnonzero(of_right)
        sides = [Side(self.left, extension, mine)] if len(mine) or not len(theirs) else []
        if len(theirs):
            sides.append(Side(self.right, self.original(extension) or extension, theirs))
        return sides

    def _read(
        self, indexes: Integers, extension: str, read: Read, *, may_be_kept: bool = False
    ) -> Values:
        """Return values of a field of some samples, each from the side that has it.

        Args:
            indexes: Indexes of the samples.
            extension: The field.
            read: Function that reads a field of some samples of a side.
            may_be_kept: Whether the field may be a kept column, for which no shard is fetched.
        """
        if isinstance(self.right, TableRows) or not (
            self.replace or isinstance(self.offered, tuple)
        ):
            # Only one side has it, for nearly always all samples: then nothing else is looked up.
            (home, name), _ = self._by_likelihood(extension)
            try:
                return self._read_side(home, name, indexes, read, may_be_kept=may_be_kept)
            except DecodeError:
                sides = self._sides(indexes, extension)
                if len(sides) == 1 and sides[0].samples is home:
                    raise
        else:
            sides = self._sides(indexes, extension)
        values = [
            self._read_side(home, name, indexes[slots], read, may_be_kept=may_be_kept)
            for home, name, slots in sides
        ]
        if len(values) == 1:
            return values[0]
        slots = np.concatenate([side.slots for side in sides])
        return take(join(values), np.argsort(slots, kind="stable"))

    def _by_likelihood(self, extension: str) -> list[tuple[Any, str]]:
        """Return both sides with the name of a field there, first the one that probably has it."""
        original = self.original(extension)
        left, right = (self.left, extension), (self.right, original or extension)
        is_right = original is not None and (self.replace or extension in self._in_right)
        return [right, left] if is_right else [left, right]

    def _lacking(
        self, indexes: Integers, is_fill: npt.NDArray[np.bool_], first: Any, extension: str
    ) -> Integers:
        """Return which of some samples have a field from the other side than the first one.

        Args:
            indexes: Indexes of the samples.
            is_fill: Which of them the first side gave no value.
            first: That side.
            extension: The field.
        """
        (slots,) = np.nonzero(is_fill)
        is_left = first is self.left
        if len(slots) and is_left and not self.replace and extension in first_fields(self.left):
            # It is most likely missing on both sides: no shard is fetched to make sure of it.
            near = np.isin(indexes[slots], self._near(indexes[slots]))
            slots = slots[near]
        others: Integers = slots[self._from_right(indexes[slots], extension) == is_left]
        return others

    def _read_side(
        self, home: Any, name: str, indexes: Integers, read: Read, *, may_be_kept: bool
    ) -> Values:
        if not may_be_kept:
            self._compare_keys(home, indexes)
            return read(home, name, indexes)
        values = read(home, name, indexes)
        # A shard that was fetched for the column can be compared now.
        self._compare_keys(home, indexes, may_be_kept=True)
        return values

    @property
    def right_names(self) -> list[str]:
        """Joined names of the fields of the first sample of the right side."""
        return list(self._in_right)

    def fields_of_sides(self, fields: Sequence[str]) -> tuple[list[str], list[str]]:
        """Return which of some fields to read from the left sequence, and which from the right.

        The names for the right one are those before renaming. Samples may lack fields that the
        first one has, so a field is read from both sides, unless one of them left it unread when
        they were joined.
        """
        theirs = {name: original for name in fields if (original := self.original(name))}
        if isinstance(self.right, TableRows):  # each of its rows has all of its fields
            mine = [name for name in fields if name not in theirs]
        else:
            mine = [name for name in fields if not (self.left_chosen and name in self._in_right)]
        return mine, list(theirs.values())

    def gather(self, indexes: Sequence[int], extension: str) -> Values:
        """Return one field of a batch, decoded."""
        positions = checked_positions(indexes, len(self))
        return self._read(positions, extension, lambda home, name, at: home.gather(at, name))

    def gather_bytes(self, indexes: Sequence[int], extension: str) -> Ragged:
        """Return one raw field of a batch, with all bytes in one buffer."""
        positions = checked_positions(indexes, len(self))
        found = self._read(positions, extension, lambda home, name, at: home.gather_bytes(at, name))
        return found if isinstance(found, Ragged) else Ragged.of(list(found))

    @property
    def batch_kind(self) -> BatchKind:
        """Whether batches are made from "raw" or "decoded" fields, or from "samples"."""
        kind = self.left.batch_kind
        return kind if self.right.batch_kind == kind else "samples"

    def gather_fields(
        self,
        indexes: Sequence[int],
        allocate: Callable[[str], Allocate] | None = None,
        turn: AbstractContextManager[Any] | None = None,
    ) -> dict[str, Any] | None:
        """Return a batch made field by field; needs a `batch_kind` other than "samples"."""
        left = self.left.gather_fields(indexes, allocate, turn)
        right = None if left is None else self.right.gather_fields(indexes, allocate, turn)
        if left is None or right is None:
            return None
        if left["__key__"] != right.get("__key__", left["__key__"]):
            return None  # the samples one by one say which keys differ
        fields = self._renamed({name: right[name] for name in right if name[:2] != "__"})
        if fields.keys() & left.keys() and not self.replace:
            return None
        return {**left, **fields}

    def column_at(
        self, indexes: Integers, extension: str, *path: str | int, fill: Any = None
    ) -> Values:
        """Return the column of some samples, by their indexes in `[0, len)`, unchecked."""

        def read(home: Any, name: str, at: Integers) -> Values:
            values: Values = home.column_at(at, name, *path, fill=fill)
            return values

        # Parts of a concatenation may have left different fields unread.
        if fill is None or isinstance(self.right, TableRows) or isinstance(self.offered, tuple):
            return self._read(indexes, extension, read, may_be_kept=True)
        (first, name), (other, other_name) = self._by_likelihood(extension)
        values = self._read_side(first, name, indexes, read, may_be_kept=True)
        # What one side lacks, the other one may have.
        slots = self._lacking(indexes, equals_fill(values, fill), first, extension)
        if not len(slots):
            return values
        found = self._read_side(other, other_name, indexes[slots], read, may_be_kept=True)
        sources = np.arange(len(indexes))
        sources[slots] = len(indexes) + np.arange(len(slots))
        return take(join([values, found]), sources)

    def _compare_keys(self, home: Any, indexes: Integers, *, may_be_kept: bool = False) -> None:
        """Compare the two keys of samples of which one field of the right side is read.

        Once each: from then on, shards that hold other keys are errors.

        Args:
            home: The side that has the field.
            indexes: Indexes of the samples.
            may_be_kept: Whether the field may be a kept column, for which no shard is fetched.

        Raises:
            ValueError: They differ.
        """
        if isinstance(self.right, TableRows | Filled):
            return
        compared, rest = self._compared, self._compared.rest(indexes)
        if home is not self.right:
            # The other field of some samples may have been read without a look at their keys.
            rest, may_be_kept = compared.owed(rest), True
        if may_be_kept and len(rest):
            near = self._near(rest)
            compared.owe(rest if len(near) < len(rest) else rest[:0])
            rest = near
        if not len(rest):
            return
        if len(rest) == len(self):  # in order or not, all of them are compared
            other = np.flatnonzero(self.left.key_hashes() != self.right.key_hashes())
        else:
            pairs = zip(self.left.keys_at(rest), self.right.keys_at(rest), strict=True)
            other = rest[np.fromiter((mine != theirs for mine, theirs in pairs), np.bool_)]
        if len(other):
            index = int(other[0])
            raise _other_key(index, self.left.key_at(index), self.right.key_at(index))
        compared.note(rest)

    def _near(self, indexes: Integers) -> Integers:
        """Return which of some samples can be read without fetching a whole shard for them."""
        ends = np.cumsum(np.asarray(self.lengths, np.int64))
        runs, of_run = np.unique(np.searchsorted(ends, indexes, "right"), return_inverse=True)
        near = np.array([self.is_near(int(ends[run]) - 1) for run in runs.tolist()], np.bool_)
        return indexes[near[of_run]]

    def keys_at(self, indexes: Integers) -> list[str]:
        """Return the keys of some samples, by their indexes in `[0, len)`, unchecked."""
        return self.left.keys_at(indexes)

    def key_at(self, index: int) -> str:
        """Return the key of one sample, by its index in `[0, len)`, unchecked."""
        return self.left.key_at(index)

    def key_hashes(self) -> npt.NDArray[np.uint64]:
        """Return the hash of each sample's key, as `wids.base.keyhash` makes it."""
        return self.left.key_hashes()

    def fetch_ahead(self, sampler: Foreseeable, index_map: IndexMap | None = None) -> FetchProgress:
        """Fetch the next shards of a sampler in the background, for both sequences."""
        from wids.ordering.lookahead import check_foreseeable

        if index_map is None:
            check_foreseeable(sampler, len(self))
        follow: IndexMap = _unchanged if index_map is None else index_map
        sides = [side for side in (self.left, self.right) if not isinstance(side, TableRows)]
        return Together([side.fetch_ahead(sampler, follow) for side in sides])

    def plan_ranges(self, index_map: IndexMap | None = None) -> list[RangePlanner]:
        """Return the planners that request byte ranges of coming batches, for both sequences."""
        follow: IndexMap = _unchanged if index_map is None else index_map
        sides = [side for side in (self.left, self.right) if not isinstance(side, TableRows)]
        return [planner for side in sides for planner in side.plan_ranges(follow)]

    @property
    def class_names(self) -> Mapping[int, str]:
        """Name of each class by its number; may be empty."""
        names = self.left.class_names
        return names if names or isinstance(self.right, TableRows) else self.right.class_names

    def close(self) -> None:
        """Close the shards of both sequences; reading afterwards opens them again."""
        self.left.close()
        if not isinstance(self.right, TableRows):
            self.right.close()


class Side(NamedTuple):
    """Side of a join that has a field of some samples.

    Attributes:
        samples: The sequence, or the rows of a table.
        name: Name of the field there.
        slots: Which of the samples these are.
    """

    samples: Any
    name: str
    slots: Integers


class Compared:
    """Samples of a join whose two keys were compared; a pickled copy begins anew.

    Args:
        count: Number of samples.
        everything: Whether all of them were.

    >>> compared = Compared(3)
    >>> compared.note(np.array([2, 0]))
    >>> compared.rest(np.array([2, 1, 1])).tolist()
    [1]
    """

    def __init__(self, count: int, *, everything: bool = False) -> None:
        self._count, self._everything = count, everything
        self._samples: npt.NDArray[np.bool_] | None = None
        self._owed: npt.NDArray[np.bool_] | None = None

    def owe(self, indexes: Integers) -> None:
        """Note samples of which a field was read before their keys could be compared."""
        if len(indexes):
            self._owed = np.zeros(self._count, np.bool_) if self._owed is None else self._owed
            self._owed[indexes] = True

    def owed(self, indexes: Integers) -> Integers:
        """Return which of some samples were noted by `owe`."""
        return indexes[:0] if self._owed is None else indexes[self._owed[indexes]]

    def note(self, indexes: Integers) -> None:
        """Note that the keys of some samples were compared."""
        if self._samples is None:
            self._samples = np.zeros(self._count, np.bool_)
        self._samples[indexes] = True
        self._everything = len(indexes) >= self._count and bool(self._samples.all())

    def rest(self, indexes: Integers) -> Integers:
        """Return which of some samples were not compared yet, ascending."""
        if self._everything:
            return indexes[:0]
        rest = indexes if self._samples is None else indexes[~self._samples[indexes]]
        return np.unique(rest)

    def __reduce__(self) -> tuple[Any, ...]:
        # What was found by keys stays so, since versions are pickled, too.
        return _compared, (self._count, self._everything)


def chosen_fields(samples: Any) -> Offered:
    """Return the fields that a dataset, or a view of one, is read with.

    Returns:
        None for all; for a concatenation with chosen fields in a part, a tuple of those of each.
    """
    while (base := getattr(samples, "base", None)) is not None and not is_sharded(samples):
        samples = base
    if isinstance(samples, Chain):
        parts = tuple(map(chosen_fields, samples.parts))
        return None if all(part is None for part in parts) else parts
    fields = samples.pipeline.fields if is_sharded(samples) else None
    return None if fields is None else frozenset(fields)


def _is_offered(name: str, offered: Offered) -> bool:
    if isinstance(offered, tuple):
        return any(_is_offered(name, part) for part in offered)
    return offered is None or name in offered


def _compared(count: int, everything: bool) -> Compared:
    return Compared(count, everything=everything)


def _unchanged(indexes: Integers) -> Integers:
    return indexes


def _other_key(number: int, key: str, other: str) -> SpecError:
    """Return the error for a sample to which one with another key is joined."""
    return SpecError(
        f"join: sample {number} has the key {key!r}, the one joined to it {other!r}: their shards "
        "hold other keys, or in another order; join with aligned=False"
    )


def _in_both(twice: Sequence[str], where: str = "") -> SpecError:
    """Return the error for fields that both sides of a join have."""
    return SpecError(
        f"join: {where}both datasets have {', '.join(map(repr, twice))}; pass "
        f"rename={{{twice[0]!r}: '.other'}}, fields= without it, or replace=True"
    )


def _fields_at_hand(samples: SampleSequence | TableRows | Filled) -> list[str] | None:
    """Return the fields of the first sample; None if that needs a request or runs a function."""
    if isinstance(samples, TableRows):
        return list(samples.fields)
    if isinstance(samples, Filled):
        return _fields_at_hand(samples.base)
    while isinstance(samples, Selection) and not len(samples):
        samples = samples.base
    # A function may give a sample other fields than its shard has.
    if samples.batch_kind == "samples" or not len(samples):
        return None
    try:
        return first_fields(samples) if samples.is_near(0) else None
    except (WidsError, OSError):  # which is raised again where the sample is read
        return None


def in_table(samples: Any, extension: str) -> bool:
    """Return whether a field of a sequence is a column of a joined table."""
    if isinstance(samples, Pairing):
        right, name = samples.right, samples.original(extension)
        of_right = name is not None and (isinstance(right, TableRows) or in_table(right, name))
        return of_right or in_table(samples.left, extension)
    if isinstance(samples, Selection):
        return in_table(samples.base, extension)
    parts = samples.parts if isinstance(samples, Chain) else []
    return bool(parts) and all(in_table(part, extension) for part in parts)


def may_be_joined(samples: Any, extension: str) -> bool:
    """Return whether a join may give a field, or replace one of the shards, in some sample."""
    return any(join.may_give(extension) for join in _joins_in(samples))


def joined_names(samples: Any) -> list[str]:
    """Return the names of the fields that joins add to the samples of a sequence."""
    names = (name for join in _joins_in(samples) for name in join.right_names)
    return list(dict.fromkeys(names))


def _joins_in(samples: Any) -> Iterator[Pairing]:
    """Yield the joins that add fields to the samples of a sequence, the first one first."""
    if isinstance(samples, Pairing):
        yield from _joins_in(samples.left)
        yield samples
    elif isinstance(samples, Selection):
        yield from _joins_in(samples.base)
    elif isinstance(samples, Chain):
        for part in samples.parts:
            yield from _joins_in(part)


def are_aligned(left: SampleSequence, right: SampleSequence) -> bool:
    """Return whether two sequences seem to hold the same keys in the same order.

    Both must lie in shards of the same lengths, and the keys of some shards are compared. The keys
    of the others are compared when their samples are read.
    """
    lengths = list(left.lengths)
    if len(left) != len(right) or lengths != list(right.lengths):
        return False
    ends = np.cumsum(lengths, dtype=np.int64)
    full = np.flatnonzero(np.asarray(lengths, np.int64))
    chosen = np.unique(np.linspace(0, len(full) - 1, min(len(full), _RUNS_COMPARED)).astype(int))
    for run in full[chosen].tolist():
        indexes = np.arange(ends[run] - lengths[run], ends[run], dtype=np.int64)
        if left.keys_at(indexes) != right.keys_at(indexes):
            return False
    return True


def counterparts(
    left: SampleSequence, right: Any, *, missing: str, aligned: bool | None
) -> tuple[Integers, Integers] | None:
    """Return the indexes of samples with equal keys in two datasets.

    Args:
        left: The sequence whose samples get fields.
        right: A dataset or view.
        missing: "error"; "drop" to leave out samples that `right` does not have; "fill" to return
            `len(right)` for them.
        aligned: Whether both have the same keys in the same order; None to find out.

    Returns:
        Indexes into both; None if all of them lie side by side.

    Raises:
        ValueError: Samples are missing, or two of `right` have one key.
    """
    if aligned is None:
        aligned = are_aligned(left, right)
    elif aligned and len(left) != len(right):
        raise ValueError(
            f"join: aligned datasets have the same samples, got {len(left)} and {len(right)}"
        )
    if aligned:
        return None
    rows, matches = matching_rows(left, right, right._kept_table.of(right.key_hashes))  # noqa: SLF001 (of every `Viewable`)
    if len(rows) < len(left) and missing == "error":
        lost = np.setdiff1d(np.arange(len(left)), rows)
        raise ValueError(
            f"join: {len(lost)} of {len(left)} samples have no counterpart, the first has the key "
            f'{left.key_at(int(lost[0]))!r}; missing="drop" leaves them out, "fill" gives them None'
        )
    if missing == "fill":
        absent = np.full(len(left), len(right), np.int64)
        absent[rows] = matches
        return np.arange(len(left), dtype=np.int64), absent
    return rows, matches


def matching_rows(
    left: SampleSequence, right: SampleSequence, table: KeyTable
) -> tuple[Integers, Integers]:
    """Return the index in `right` of the sample with the key of each sample of `left`.

    Args:
        left: The sequence whose keys are looked up.
        right: The sequence in which they are looked up.
        table: Table of the keys of `right`.

    Returns:
        Indexes into `left` of the samples that were found, ascending, and into `right`. Only the
        hashes are compared here; reading a sample then compares the keys.

    Raises:
        ValueError: Several samples of `right` have a key that is looked for.
    """
    rows, matches = table.pairs(left.key_hashes())
    (twice,) = np.nonzero(np.diff(rows) == 0)
    if len(twice):
        first, second = matches[twice[0]], matches[twice[0] + 1]
        key = right.key_at(int(first))
        raise ValueError(
            f"join: samples {first} and {second} of the right dataset both have the key {key!r}; "
            "leave one of them out, by select() or exclude()"
        )
    return rows, matches
