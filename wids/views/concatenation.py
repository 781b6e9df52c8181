"""`Chain`: the concatenation of several sequences of samples."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from wids.base.arguments import (
    check_choice,
    check_text,
    checked_position,
    checked_positions,
    to_list,
)
from wids.base.warn import warn
from wids.errors import DecodeError, SpecError, WidsError
from wids.reading.pipeline import no_end, note_index
from wids.reading.ragged import Ragged, Values, join, take
from wids.reading.samplesequence import relabelled
from wids.specs.merging import class_names, classes_by_column, merged_classes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from wids.ordering.lookahead import Foreseeable, IndexMap
    from wids.reading.fetchahead import FetchProgress
    from wids.reading.fieldfile import FieldFile
    from wids.reading.gather import Allocate
    from wids.reading.pipeline import BatchKind
    from wids.reading.rangeahead import RangePlanner
    from wids.reading.samplesequence import SampleLocation

__all__ = ["Chain", "Classes", "Together", "checked_parts", "other_classes", "stated_by_column"]

Integers = npt.NDArray[np.int64]
Classes = Literal["same", "any"]


def checked_parts(parts: Any) -> list[Any]:
    """Return sequences of samples as a list; raise TypeError for anything else.

    >>> checked_parts(([1, 2], [3]))
    [[1, 2], [3]]
    """
    # A dataset in place of a list would count each of its samples as a dataset.
    if hasattr(parts, "read_as"):
        raise TypeError(f"parts must be datasets in a list; got one dataset: {parts!r:.80}")
    for number, part in enumerate(listed := to_list("parts", parts, "datasets")):
        sequence = hasattr(part, "__len__") and hasattr(part, "__getitem__")
        if not sequence or isinstance(part, str | bytes | Mapping):
            raise TypeError(
                f"parts[{number}] must be a dataset, or another sequence of samples; got "
                f"{part!r:.80}"
            )
    return listed


def other_classes(parts: Sequence[Any]) -> str:
    """Return a message if the specs of sequences number their classes differently; else "".

    Looking for a file of names may ask a server, so those of parts without a name in their specs
    are looked for only where another part has some. A function that maps samples may number their
    classes anew, so its results have none.
    """
    headers = {
        f"part {number}": {"classes": names} if (names := _stated_in_any_form(part)) else {}
        for number, part in enumerate(parts)
    }
    if any(headers.values()):
        for number, part in enumerate(parts):
            if not headers[f"part {number}"] and (names := _stated(part, beside=True)):
                headers[f"part {number}"] = {"classes": names}
    try:
        merged_classes(headers)
    except SpecError as error:
        return f"the parts number their classes differently, so a class would mix samples: {error}"
    return ""


def _stated(samples: Any, *, beside: bool = False) -> Mapping[int, str]:
    """Return the class names in the specs of the datasets under a sequence.

    Args:
        samples: The sequence.
        beside: Whether those in files beside the shards count, too.
    """
    header = getattr(samples, "header", None)
    if isinstance(header, Mapping):
        names: Mapping[int, str] = samples.class_names if beside else class_names(header)
        return names
    if hasattr(samples, "function") or not hasattr(samples, "read_as"):
        return {}
    if isinstance(samples, Chain):
        return _agreed(_stated(part, beside=beside) for part in samples.parts)[0]
    under = (getattr(samples, name, None) for name in ("base", "left", "right"))
    return next(filter(None, (_stated(each, beside=beside) for each in under)), {})


def stated_by_column(samples: Any) -> tuple[dict[str, list[Any]], bool]:
    """Return the names of several class columns in the specs under a sequence.

    Returns:
        The names by column, none if specs differ in them; and whether they differ.
    """
    header = getattr(samples, "header", None)
    if isinstance(header, Mapping):
        return classes_by_column(header), False
    if hasattr(samples, "function") or not hasattr(samples, "read_as"):
        return {}, False
    if isinstance(samples, Chain):
        found = [stated_by_column(part) for part in samples.parts]
        named = [names for names, _ in found if names]
        differ = any(each for _, each in found) or any(names != named[0] for names in named)
        return (named[0] if named and not differ else {}), differ
    under = (getattr(samples, name, None) for name in ("base", "left", "right"))
    return next((found for found in map(stated_by_column, under) if any(found)), ({}, False))


def _stated_in_any_form(samples: Any) -> Mapping[Any, Any]:
    return _stated(samples) or stated_by_column(samples)[0]


def _agreed(parts: Iterable[Mapping[int, str]]) -> tuple[dict[int, str], set[int]]:
    """Return the names of classes on which parts agree, and the numbers of the others."""
    names: dict[int, str] = {}
    disputed: set[int] = set()
    for each in parts:
        for number, name in each.items():
            if names.setdefault(number, name) != name:
                disputed.add(number)
    return {number: name for number, name in names.items() if number not in disputed}, disputed


class Chain:
    """Reads the samples of several sequences as one sequence.

    Args:
        parts: The sequences. One with only `len` and `[index]` gives single samples only.
        names: The `__dataset__` of the samples of each; None for their own names.
        classes: "same" if the specs of the parts must give a number to the same class; "any" if
            they need not.

    Attributes:
        parts, names, classes: As given.

    Raises:
        TypeError: The parts are no list of sequences.
        ValueError: There is not one name for each part.
        SpecError: The specs number their classes differently.
    """

    def __init__(
        self,
        parts: Sequence[Any],
        names: Sequence[str] | None = None,
        classes: Classes = "same",
    ) -> None:
        self.parts = checked_parts(parts)
        self.names = None if names is None else to_list("names", names, "a name for each part")
        for name in self.names or ():
            check_text("each of names", name)
        if self.names is not None and len(self.names) != len(self.parts):
            raise ValueError(
                f"names: expected one for each of {len(self.parts)} parts, got {names!r}"
            )
        check_choice("classes", classes, ("same", "any"))
        self.classes = classes
        if self.classes == "same" and (message := other_classes(self.parts)):
            raise SpecError(
                f'{message}; map() gives a part other numbers, and classes="any" of wids.concat '
                'and Mixture takes the parts as they are ("classes": "any" beside a "concat")'
            )
        self._ends = np.cumsum([len(part) for part in self.parts], dtype=np.int64)
        self._search: list[int] = self._ends.tolist()
        self._starts = [0, *self._search[:-1]]
        self._readers: list[Callable[..., Any]] = [
            getattr(part, "read_as", None) or partial(_read_plain, part) for part in self.parts
        ]

    def __len__(self) -> int:
        return self._search[-1] if self._search else 0

    def _name(self, number: int, dataset: str | None) -> str | None:
        return self.names[number] if dataset is None and self.names is not None else dataset

    def read_as(self, index: int, number: int, dataset: str | None = None) -> Any:
        """Return a sample with the labels that it has in a view of this sequence."""
        part = bisect_right(self._search, index)
        if self.names is not None and dataset is None:
            dataset = self.names[part]
        return self._readers[part](index - self._starts[part], number, dataset)

    def read_batch_as(
        self, indexes: Sequence[int], numbers: Sequence[int], dataset: str | None = None
    ) -> list[Any]:
        """Return the samples of a batch, each as `read_as(index, number, dataset)`."""
        samples: list[Any] = [None] * len(indexes)
        for part, slots, local_indexes in self._by_part(np.asarray(indexes, np.int64)):
            read = getattr(self.parts[part], "read_batch_as", None)
            name = self._name(part, dataset)
            wanted = [numbers[slot] for slot in slots]
            if read is not None:
                found = read(local_indexes.tolist(), wanted, name)
            else:
                found = _read_plain_batch(self.parts[part], local_indexes.tolist(), wanted, name)
            for slot, sample in zip(slots, found, strict=True):
                samples[slot] = sample
        return samples

    def _by_part(self, positions: Integers) -> Iterator[tuple[int, list[int], Integers]]:
        """Yield the parts of a batch: number, slots in the batch, and indexes in the part."""
        numbers = np.searchsorted(self._ends, positions, "right")
        for number in np.unique(numbers).tolist():
            (slots,) = np.nonzero(numbers == number)
            yield number, slots.tolist(), positions[slots] - self._starts[number]

    def _merged(self, positions: Integers, read: Callable[[Any, Any], Values]) -> Values:
        """Read values of each part of a batch, and put them into the order of the batch."""
        if len(positions) and bool((np.diff(positions) >= 0).all()):
            return self._merged_in_order(positions, read)
        targets, values = [], []
        for number, slots, local_indexes in self._by_part(positions):
            targets += slots
            values.append(self._of_part(number, local_indexes, read))
        if len(values) == 1:
            return values[0]
        return take(join(values), np.argsort(targets, kind="stable"))

    def _merged_in_order(self, positions: Integers, read: Callable[[Any, Any], Values]) -> Values:
        """Read values of each part for ascending positions, so that no reordering is needed."""
        cuts = np.searchsorted(positions, self._ends).tolist()
        values = [
            self._of_part(number, positions[first:stop] - self._starts[number], read)
            for number, (first, stop) in enumerate(pairwise([0, *cuts]))
            if first < stop
        ]
        return values[0] if len(values) == 1 else join(values)

    def _of_part(self, number: int, local: Integers, read: Callable[[Any, Any], Values]) -> Values:
        """Read values of a part; note in an error where in the concatenation the part begins."""
        try:
            return read(self._able(number), local)
        except WidsError as error:
            start = self._starts[number]
            if start and isinstance(error, DecodeError) and error.sample is not None:
                note_index(error, start + error.sample)
            elif start:
                error.add_note(
                    f"in part {number} of a concatenation, whose sample 0 is sample {start} of it"
                )
            raise

    def gather(self, indexes: Sequence[int], extension: str) -> Values:
        """Return one field of a batch, decoded.

        Args:
            indexes: Global indexes; negative ones count from the end.
            extension: The field, such as ".npy".

        Returns:
            An array with a row for each index, a `Ragged`, or a list, as `column` returns it.
        """
        positions = checked_positions(indexes, len(self))
        return self._merged(positions, lambda part, local: part.gather(local, extension))

    def gather_bytes(self, indexes: Sequence[int], extension: str) -> Ragged:
        """Return one raw field of a batch, with all bytes in one buffer.

        Args:
            indexes: Global indexes; negative ones count from the end.
            extension: The field, such as ".jpg".

        Returns:
            A `Ragged` of uint8, whose item `i` is field `i`.
        """
        positions = checked_positions(indexes, len(self))
        if not len(positions):
            return Ragged(np.empty(0, np.uint8), np.zeros(1, np.int64))
        found = self._merged(positions, lambda part, local: part.gather_bytes(local, extension))
        return found if isinstance(found, Ragged) else Ragged.of(list(found))

    @property
    def batch_kind(self) -> BatchKind:
        """Whether batches are made from "raw" or "decoded" fields, or from "samples"."""
        kinds: set[BatchKind] = {getattr(part, "batch_kind", "samples") for part in self.parts}
        return kinds.pop() if len(kinds) == 1 else "samples"

    def gather_fields(
        self,
        indexes: Sequence[int],
        allocate: Callable[[str], Allocate] | None = None,
        turn: AbstractContextManager[Any] | None = None,
    ) -> dict[str, Any] | None:
        """Return a batch made field by field; needs a `batch_kind` other than "samples"."""
        positions = checked_positions(indexes, len(self))
        groups = list(self._by_part(positions))
        batches: list[dict[str, Any]] = []
        for number, _, local_indexes in groups:
            # What several parts gathered is copied once more, so their memory is their own.
            memory = allocate if len(groups) == 1 else None
            batch = self._able(number).gather_fields(local_indexes, memory, turn)
            if batch is None or (batches and batch.keys() != batches[0].keys()):
                return None
            batches.append(batch)
        if len(batches) < 2:
            return (batches or [{"__key__": []}])[0] | {"__index__": positions}
        rows = np.argsort(list(chain.from_iterable(slots for _, slots, _ in groups)), kind="stable")
        merged = {name: _in_order([each[name] for each in batches], rows) for name in batches[0]}
        return merged | {"__index__": positions}

    def column_at(
        self, indexes: Integers, extension: str, *path: str | int, fill: Any = None
    ) -> Values:
        """Return the column of some samples, by their indexes in `[0, len)`, unchecked."""
        return self._merged(
            indexes, lambda part, local: part.column_at(local, extension, *path, fill=fill)
        )

    def keys_at(self, indexes: Integers) -> list[str]:
        """Return the keys of some samples, by their indexes in `[0, len)`, unchecked."""
        return list(self._merged(indexes, lambda part, local: part.keys_at(local)))

    def key_at(self, index: int) -> str:
        """Return the key of one sample, by its index in `[0, len)`, unchecked.

        Args:
            index: Its index.
        """
        part, local_index = self._local(index)
        key: str = part.key_at(local_index)
        return key

    def key_hashes(self) -> npt.NDArray[np.uint64]:
        """Return the hash of each sample's key, as `wids.base.keyhash` makes it."""
        every = [part.key_hashes() for part in map(self._able, range(len(self.parts)))]
        return np.concatenate(every)

    @property
    def _lengths_by_part(self) -> list[Sequence[int]]:
        # A part that does not say is one run.
        return [getattr(part, "lengths", [len(part)]) for part in self.parts]

    @property
    def lengths(self) -> list[int]:
        """Number of samples in each run of adjacent samples from one shard, part after part."""
        return list(chain.from_iterable(self._lengths_by_part))

    @property
    def shard_numbers(self) -> Integers:
        """A number for the shard of each run in `lengths`; runs of one shard have the same."""
        numbers: dict[object, int] = {}
        found: list[int] = []
        for part, lengths in zip(self.parts, self._lengths_by_part, strict=True):
            start = 0
            for length in lengths:
                shard = (_shard_at(part, start) if length else None) or (id(part), start)
                found.append(numbers.setdefault(shard, len(numbers)))
                start += length
        return np.array(found, np.int64)

    def _local(self, index: int) -> tuple[Any, int]:
        position = checked_position(index, len(self))
        part = bisect_right(self._search, position)
        return self._able(part), position - self._starts[part]

    def _able(self, number: int) -> Any:
        """Return a part; raise TypeError if it offers samples alone, without keys and columns.

        Raises:
            TypeError: It is a list or the like, which gives single samples only.
        """
        part = self.parts[number]
        if not hasattr(part, "read_as"):
            raise TypeError(
                f"part {number} of the concatenation is a {type(part).__name__}, which has samples "
                "but no keys, columns and shards; of such parts only samples are read, by an index "
                "or a loader. wids.ShardWriter writes them as shards, which have all of these"
            )
        return part

    def locate(self, index: int) -> SampleLocation:
        """Return the location of a sample; its shard number counts within its part.

        Args:
            index: Global index; a negative one counts from the end.

        Raises:
            IndexError: There is no such sample.
        """
        part, local_index = self._local(index)
        location: SampleLocation = part.locate(local_index)
        return replace(location, index=checked_position(index, len(self)))

    def is_near(self, index: int) -> bool:
        """Return whether a sample can be read without fetching a whole shard for it."""
        part, local_index = self._local(index)
        return bool(part.is_near(local_index))

    def read_raw(self, index: int, fields: Sequence[str] | None = None) -> dict[str, Any]:
        """Return a sample as it is stored: raw fields, and the labels of a sample."""
        part, local_index = self._local(index)
        position = checked_position(index, len(self))
        name = self._name(bisect_right(self._search, position), None)
        sample: dict[str, Any] = relabelled(part.read_raw(local_index, fields), position, name)
        return sample

    def field_sizes(self, index: int) -> dict[str, int]:
        """Return the size in bytes of each wanted field of a sample, in storage order.

        Args:
            index: Global index; a negative one counts from the end.
        """
        part, local_index = self._local(index)
        sizes: dict[str, int] = part.field_sizes(local_index)
        return sizes

    def names_at(self, index: int) -> list[str]:
        """Return the names of the fields of a sample, also of those that a join gives as None.

        Args:
            index: Global index.
        """
        part, local_index = self._local(index)
        names: list[str] = part.names_at(local_index)
        return names

    def open_field(self, index: int, extension: str) -> FieldFile:
        """Open one field of a sample as a file that can be sought in.

        Args:
            index: Global index; a negative one counts from the end.
            extension: The field, such as ".mp4".

        Returns:
            A binary file, read-only, of which only the parts that are used are read.
        """
        part, local_index = self._local(index)
        file: FieldFile = part.open_field(local_index, extension)
        return file

    def fetch_ahead(self, sampler: Foreseeable, index_map: IndexMap | None = None) -> FetchProgress:
        """Fetch the next shards of a sampler in the background, separately for each part.

        Args:
            sampler: Sampler of this library that draws the indexes in this process.
            index_map: For a sampler over a view of this sequence: function from its indexes to
                indexes here, -1 for samples of other sequences.

        Returns:
            Progress of all parts together, with the shards fetched and the seconds that readers
            waited.

        Raises:
            TypeError: The sampler cannot say what comes next.
            ValueError: It draws from other samples, or a part fetches no shards.
        """
        from wids.ordering.lookahead import check_foreseeable

        if index_map is None:
            check_foreseeable(sampler, len(self))
        return Together(
            [
                self._able(number).fetch_ahead(
                    sampler, partial(_mapped_into_part, index_map, *ends)
                )
                for number, ends in enumerate(zip(self._starts, self._search, strict=True))
            ]
        )

    def plan_ranges(self, index_map: IndexMap | None = None) -> list[RangePlanner]:
        """Return the planners that request the byte ranges of coming batches, for each part."""
        planners: list[RangePlanner] = []
        for part, start, end in zip(self.parts, self._starts, self._search, strict=True):
            plan = getattr(part, "plan_ranges", None)
            if plan is not None:
                planners += plan(partial(_mapped_into_part, index_map, start, end))
        return planners

    @property
    def class_names(self) -> Mapping[int, str]:
        """Name of each class by its number, where all parts agree on the name."""
        named = [getattr(part, "class_names", {}) for part in self.parts]
        names, disputed = _agreed(named)
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
        """Close the shards of all parts; reading afterwards opens them again."""
        for part in self.parts:
            close = getattr(part, "close", None)
            if close is not None:
                close()


class Together:
    """Sum of the progress of several parts, each of which fetches its own shards."""

    def __init__(self, parts: Sequence[FetchProgress]) -> None:
        self._parts = list(parts)

    @property
    def num_fetched(self) -> int:
        """Number of shards fetched ahead so far."""
        return sum(part.num_fetched for part in self._parts)

    @property
    def waited_seconds(self) -> float:
        """Seconds that readers waited, in all parts together."""
        return sum(part.waited_seconds for part in self._parts)


def _shard_at(part: Any, index: int) -> object:
    """Return the URL of the shard of a sample of a part; None if it is in no shard."""
    if not hasattr(part, "locate"):
        return None
    try:
        return part.locate(index).shard.url
    except TypeError:  # a concatenation with a list in it
        return None


def _mapped_into_part(
    index_map: IndexMap | None, start: int, end: int, indexes: Integers
) -> Integers:
    """Return indexes counted in the part `[start, end)`; -1 for those outside."""
    found = indexes if index_map is None else index_map(indexes)
    return np.where((found >= start) & (found < end), found - start, -1)


def _in_order(values: list[Any], rows: Integers) -> Any:
    """Join the values that were read part by part, and reorder them as in the batch."""
    from wids.reading.collate import column_of

    arrays = [each for each in values if isinstance(each, np.ndarray)]
    alike = len({(each.dtype, each.shape[1:]) for each in arrays}) == 1
    ragged = [each for each in values if isinstance(each, Ragged)]
    if len(ragged) == len(values) or (len(arrays) == len(values) and alike):
        return take(join(values), rows)
    items = list(chain.from_iterable(values))
    return column_of([items[row] for row in rows.tolist()])


def _read_plain(part: Any, index: int, number: int, dataset: str | None) -> Any:
    """Read a sample of a part that has no `read_as`; a dict with labels gets new ones."""
    try:
        return relabelled(part[index], number, dataset)
    except StopIteration as error:
        raise no_end(f"while reading sample {number}") from error


def _read_plain_batch(
    part: Any, indexes: Sequence[int], numbers: Sequence[int], dataset: str | None
) -> list[Any]:
    read = getattr(part, "__getitems__", None)
    try:
        found = read(indexes) if read else [part[index] for index in indexes]
    except StopIteration as error:
        raise no_end(f"while reading samples {list(numbers)}") from error
    pairs = zip(found, numbers, strict=True)
    return [relabelled(sample, number, dataset) for sample, number in pairs]
