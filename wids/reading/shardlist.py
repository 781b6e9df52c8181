"""`ShardList`: a list of shards as one sequence of samples, without torch.

`ShardList.__getitem__` shows all steps of reading a sample. It converts the global index to a shard
and a local index, opens the shard (which may first be fetched and indexed), slices the fields out
of the memory map, and applies the transformations.
"""

from __future__ import annotations

import logging
import operator
import os
from copy import copy
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, Never, Self, TypeGuard, Unpack, get_args

import numpy as np

from wids.base.arguments import (
    check_callable,
    check_extension,
    check_flag,
    check_integer,
    check_mapping,
    check_path,
    check_text,
    checked_position,
    checked_positions,
    each_position,
    plain_index,
    refuse_unknown,
)
from wids.base.files import allow_pickling_views
from wids.base.urls import display_url, is_local
from wids.base.warn import warn
from wids.caching.cache import ShardCache
from wids.fetching.storesettings import StoreSettings
from wids.log import logger, show_if_verbose
from wids.reading.collate import explain_missing
from wids.reading.datasetshards import (
    DatasetShards,
    ShardVersions,
    WantedFields,
    warn_of_doubtful,
)
from wids.reading.openshards import Locator, by_shard, default_max_open_shards
from wids.reading.pipeline import Pipeline, StreamedShard, no_end
from wids.reading.samplesequence import SampleLocation, relabelled
from wids.reading.shardopener import Access, ShardOpener
from wids.reading.tarindexes import TarIndexes
from wids.specs.indexrules import rules_of
from wids.specs.locations import name_of
from wids.specs.shardtable import UNKNOWN
from wids.specs.sources import load_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    import numpy.typing as npt

    from wids.base.shardref import ShardRef
    from wids.codecs.decode import Decoder, ErrorHandler
    from wids.ordering.lookahead import IndexMap
    from wids.ordering.samplers import ChunkedSampler
    from wids.pack.packfile import Pack
    from wids.reading.columns import ColumnReader
    from wids.reading.fetchahead import FetchAhead
    from wids.reading.fieldfile import FieldFile
    from wids.reading.gather import Allocate, Gathering, PageAnnouncer
    from wids.reading.openshards import OpenShard, ShardSamples
    from wids.reading.pipeline import (
        BatchKind,
        ReadingOptions,
        Sample,
        Transformation,
        Transformations,
    )
    from wids.reading.prefetch import Prefetch
    from wids.reading.ragged import Ragged, Values
    from wids.reading.remotechoice import RemoteChoice
    from wids.reading.shardopener import OnUncounted
    from wids.tar.grouping import Grouping, KeyRule
    from wids.tar.shard import ReadableShard
    from wids.tar.sidecar import IndexRules
    from wids.tar.tarindex import TarIndex

__all__ = ["ShardList", "is_sharded"]

# Attributes of the hot path, kept in slots. In a class with cached properties, Python 3.11 takes
# far longer to find other attributes.
_HOT = ("_locator", "_opened", "_pipeline")

allow_pickling_views()  # on import, because a spawned worker only unpickles a dataset


class ShardList:
    """Sequence of the samples of a list of tar shards, with random access: a `SampleSequence`.

    A sample is a dict of fields by extension (`.jpg`, `.cls`), plus `__key__`, `__index__` (its
    global number), `__shard__` (the shard's URL), `__shardindex__` (its index in the shard) and
    `__dataset__`.

    `wids.open` describes the arguments, which are its options, and has an example. What it gives is
    this class with the methods of views.
    """

    __slots__ = (*_HOT, "__dict__", "__weakref__")

    def __init__(
        self,
        shards: Any,
        *,
        cache_size: int | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        lru_size: int | None = None,
        dataset_name: str | None = None,
        localname: Callable[[str], str | os.PathLike[str]] | None = None,
        transformations: Transformations = "PIL",
        decoders: Mapping[str, Decoder | None] | None = None,
        on_error: str | Mapping[str, Any] | ErrorHandler = "raise",
        keep: bool = False,
        base: str | os.PathLike[str] | None = None,
        options: Mapping[str, Any] | None = None,
        fields: Collection[str] | None = None,
        key_rule: KeyRule | None = None,
        grouping: Grouping | None = None,
        concatenated: bool | None = None,
        allow_pipe: bool = False,
        allow_pickle: bool = False,
        allow_local: bool = False,
        shared: bool = False,
        remote: Literal["whole", "range", "auto"] = "whole",
        memory: int | None = None,
        access: Access = "auto",
        store: Mapping[str, Any] | None = None,
        on_uncounted: OnUncounted | None = None,
        **_unknown: Never,
    ) -> None:
        show_if_verbose()
        refuse_unknown(type(self).__name__, _unknown, ShardList.__init__.__kwdefaults__ or {})
        check_flag("allow_local", allow_local)
        if dataset_name is not None:
            check_text("dataset_name", dataset_name)
        if options is not None:
            check_mapping("options", options, "top-level keys of a spec")
        if base is not None:
            check_path("base", base)
        if on_uncounted is not None:
            check_callable("on_uncounted", on_uncounted)
        if concatenated is not None:
            check_flag("concatenated", concatenated)
        if remote not in ("whole", "range", "auto"):  # a set would ask for a hash
            raise ValueError(f'remote: expected "whole", "range" or "auto", got {remote!r}')
        if access not in get_args(Access):
            raise ValueError(f'access: expected "auto", "mmap" or "pread", got {access!r:.60}')
        settings = None if store is None else StoreSettings.of(store, "store")
        spec = load_spec(
            shards,
            base=base,
            options=options,
            allow_local=allow_local,
            cache_dir=cache_dir,
            store=settings,
        )
        self.dataset_name = dataset_name or spec.name or name_of(shards, spec.shards.urls)
        # By which a saved view may name the shards.
        named = isinstance(shards, str | os.PathLike) and base is None
        self.source: str | None = os.fspath(shards) if named else None
        self.options = dict(options or {})
        self.base, self._header = spec.base, spec.header | {"name": spec.name}
        self.catalogue = spec.catalogue
        self.cache = ShardCache(
            cache_dir,
            cache_size=cache_size,
            keep=keep,
            allow_pipe=allow_pipe,
            localname=localname,
            shared=shared,
            store=settings,
        )
        # The program's rules come before those of the spec.
        rules = rules_of(
            spec.header, key_rule=key_rule, grouping=grouping, concatenated=concatenated
        )
        self._opener = ShardOpener(
            TarIndexes(self.cache, rules),
            # With `localname`, a shard has a path of its own and is fetched to it.
            by_range=remote != "whole" and localname is None,
            access=access,
            key_rule_stated="key_rule" in spec.header or key_rule is not None,
        )
        self._chooses = self._opener.by_range and remote == "auto"
        # The settings are checked before the shards are counted, which may take long.
        self._pipeline = Pipeline.of_options(
            transformations,
            fields=fields,
            decoders=decoders,
            on_error=on_error,
            allow_pickle=allow_pickle,
        )
        limit = 0 if lru_size is None else check_integer("lru_size", lru_size, 0)
        self.lru_size = limit or default_max_open_shards()
        self._memory = None if memory is None else check_integer("memory", memory, 1)
        table = spec.shards
        warn_of_doubtful(table)  # first, since counting may take long
        unknown = np.flatnonzero(table.nsamples == UNKNOWN).tolist()
        if unknown:
            nsamples = table.nsamples.copy()
            nsamples[unknown] = self._opener.count([table[row] for row in unknown], on_uncounted)
            table = replace(table, nsamples=nsamples)
        self.shards = table
        self._locator = Locator(table.nsamples)
        self._wanted = WantedFields(list(self._pipeline.fields or ()))
        self._opened = DatasetShards(
            table,
            self._locator.ends,
            self._opener,
            dataset_name=self.dataset_name,
            wanted=self._wanted,
            versions=ShardVersions(table.urls),
            limit=self.lru_size,
        )
        self._ahead: FetchAhead | None = None
        self.remote_choice: RemoteChoice | None = None
        if logger.isEnabledFor(logging.INFO):
            logger.info("%s", self.data_info)

    @cached_property
    def _announcer(self) -> PageAnnouncer:
        from wids.reading.gather import PageAnnouncer

        return PageAnnouncer()

    # Samples.

    def __len__(self) -> int:
        return self._locator.total

    def __getitem__(self, index: int) -> Any:
        """Return the sample with a global index; a negative one counts from the end.

        Raises:
            IndexError: There is no such sample; the message names index and length.
            SampleCountError: The shard holds another number of samples than the spec says.
            ShardFormatError: The shard is no tar, or breaks off.
            FetchError: The shard could not be fetched, or is not what the spec promised.
            DecodeError: A field could not be decoded.
        """
        # The hot path repeats a few lines of other methods, because each call costs time.
        locate = self._locator
        if type(index) is not int or not 0 <= index < locate.total:
            try:
                index = checked_position(plain_index(index), locate.total)
            except TypeError:
                return self._view(index)
        shard_of = locate.shard_of  # in two steps: `a.b()` is a slower method lookup
        shard_index = shard_of(index)
        opened = self._opened.by_number.get(shard_index) or self._opened.open(shard_index)
        opened.uses += 1
        local_index = index - opened.start
        pipeline = self._pipeline
        sample = opened.shard.read(local_index, pipeline.fields, pipeline.copies)
        sample["__dataset__"] = opened.dataset
        sample["__index__"] = index
        sample["__shard__"] = opened.url
        sample["__shardindex__"] = local_index
        if pipeline.transformations or pipeline.raw_kind is None:
            return pipeline.finish(sample)
        return sample

    def _view(self, chosen: Any) -> Any:
        """Return `self[chosen]` for anything but an integer; a subclass may return a view."""
        raise TypeError(f"expected an integer as the index of a sample, got {chosen!r:.80}")

    def read_as(self, index: int, number: int, dataset: str | None = None) -> Any:
        """Return a sample with the labels that it has in a view of this sequence.

        Args:
            index: Its index here, in `[0, len)`, unchecked.
            number: Its index in the other sequence, which becomes `__index__`.
            dataset: The value of `__dataset__`; None to keep the name that it has here.
        """
        if type(self).__getitem__ is not _GETITEM:
            try:
                return relabelled(self[index], number, dataset)
            except StopIteration as error:
                raise no_end(f"while reading sample {number}") from error
        # Repeats `__getitem__`, where a call of this method would make each sample a tenth slower.
        shard_of = self._locator.shard_of
        shard_index = shard_of(index)
        opened = self._opened.by_number.get(shard_index) or self._opened.open(shard_index)
        opened.uses += 1
        local_index = index - opened.start
        pipeline = self._pipeline
        sample = opened.shard.read(local_index, pipeline.fields, pipeline.copies)
        sample["__dataset__"] = opened.dataset if dataset is None else dataset
        sample["__index__"] = number
        sample["__shard__"] = opened.url
        sample["__shardindex__"] = local_index
        if pipeline.transformations or pipeline.raw_kind is None:
            return pipeline.finish(sample)
        return sample

    def __getitems__(self, indexes: Sequence[int]) -> list[Any]:
        """Return the samples of a batch in the order of the indexes; torch's DataLoader calls this.

        They are read in the order of storage, so that each shard is opened once. Every sample
        equals `self[index]`, also in a subclass that overrides `__getitem__`.

        Raises:
            IndexError: One of them is out of range.
        """
        from wids.ordering.randomseeds import reading_batch

        # All indexes are checked first, so that one out of range fails before a shard is fetched.
        wanted = each_position(indexes, self._locator.total)
        with reading_batch(indexes, len(self)):
            return explain_missing(self.read_batch_as(wanted, wanted))

    def read_batch_as(
        self,
        indexes: Sequence[int],
        numbers: Sequence[int],
        labels: Sequence[str | None] | None = None,
    ) -> list[Any]:
        """Return the samples of a batch, each as `read_as(index, number, label)`."""
        from wids.reading.loaderstats import counted_apart, counted_each, is_counted

        # In the order of storage, so that each shard is opened once.
        slots = sorted(range(len(indexes)), key=indexes.__getitem__)
        samples: list[Any] = [None] * len(indexes)
        if self._overrides_getitem:
            for slot in slots:
                label = None if labels is None else labels[slot]
                samples[slot] = self.read_as(indexes[slot], numbers[slot], label)
            return samples
        pipeline = self._pipeline
        finishing = pipeline.batch_kind != "raw"
        if not (self._opener.by_range or self._announcer.is_needed or is_counted()):
            # From memory, where grouping by shard would take longer than it saves.
            fields, copies = pipeline.fields, pipeline.copies
            use, shard_of, stop = self._opened.use, self._locator.shard_of, -1
            with self._announcer.batch(()):
                for slot in slots:
                    index = indexes[slot]
                    if index >= stop:
                        opened = use(shard_of(index))
                        name, url, start = opened.dataset, opened.url, opened.start
                        cut, data = opened.shard.cutter(copies)
                        stop = start + opened.shard.index.num_samples
                    local_index = index - start
                    sample = cut(local_index, data, fields)
                    sample["__dataset__"] = name if labels is None else labels[slot] or name
                    sample["__index__"] = numbers[slot]
                    sample["__shard__"] = url
                    sample["__shardindex__"] = local_index
                    samples[slot] = pipeline.finish(sample) if finishing else sample
            return samples
        coming = iter(slots)
        read = self._read_sorted([indexes[slot] for slot in slots])
        for opened, local_indexes, found in counted_each("storage", read):
            # Views that stay raw may be used in part, so that their pages are not touched here.
            raw, finish = counted_apart(found, pipeline.finish, mapped=pipeline.raw_kind is None)
            for sample, local_index, slot in zip(raw, local_indexes, coming, strict=False):
                opened.label(sample, local_index)
                sample["__index__"] = numbers[slot]
                if labels is not None and labels[slot] is not None:
                    sample["__dataset__"] = labels[slot]
                samples[slot] = finish(sample) if finishing else sample
        return samples

    @property
    def _overrides_getitem(self) -> bool:
        # A subclass that overrides one method must see its effect in batches, too.
        return type(self).__getitem__ is not _GETITEM

    def _read_sorted(
        self, indexes: list[int]
    ) -> Iterator[tuple[OpenShard, list[int], list[Sample]]]:
        """Read a batch that is in the order of storage; yield each shard and its raw samples."""
        fields, copies = self._pipeline.fields, self._pipeline.copies
        if self._opener.by_range:
            from wids.reading.rangeshard import read_groups

            self._open_concurrently(indexes)
            for groups in self._by_shard(indexes):
                yield from read_groups(groups, fields, copy=copies)
            return
        for groups in self._by_shard(indexes):
            with self._announcer.batch(groups, fields):
                for opened, local_indexes in groups:
                    found = opened.shard.read_many(local_indexes, fields, copy=copies)
                    yield opened, local_indexes, found

    def _open_concurrently(self, indexes: list[int]) -> None:
        """Open the shards of a batch concurrently, since each may need a round trip."""
        from wids.base.threads import DaemonThreadPool
        from wids.reading.rangeshard import MOST_SHARDS_AT_ONCE

        wanted = dict.fromkeys(map(self._locator.shard_of, indexes))  # ascending
        closed = [number for number in wanted if number not in self._opened.by_number]
        # Not more than may be open at once, since further ones would close the first again.
        if len(closed) > 1:
            with DaemonThreadPool(MOST_SHARDS_AT_ONCE, "wids-shards") as pool:
                list(pool.map(self._opened.open, closed[: self._opened.limit]))

    def _by_shard(self, indexes: list[int]) -> Iterator[list[ShardSamples]]:
        """Yield the shards that hold ascending indexes, with the local indexes in each.

        Each list has at most as many shards as may be open at once, which usually are all.
        """
        groups: list[ShardSamples] = []
        for number, _, rows in by_shard(self._locator.ends, np.array(indexes, np.int64)):
            if len(groups) == self._opened.limit:
                yield groups
                groups = []
            groups.append((self._opened.use(number), rows.tolist()))
        yield groups

    def __iter__(self) -> Iterator[Any]:
        # The default by the sequence protocol would request one sample beyond the end.
        return (self[index] for index in range(len(self)))

    # What is made of the fields of a sample.

    @property
    def transformations(self) -> list[Transformation]:
        """Callables applied to a raw sample, in order; assignable."""
        return self._pipeline.transformations

    @transformations.setter
    def transformations(self, transformations: Transformations) -> None:
        self._pipeline = self._pipeline.with_options(transformations=transformations)

    def add_transform(self, transformation: Transformation) -> Self:
        """Append a callable to the transformations.

        Args:
            transformation: Function that gets the sample of the one before it, and returns a
                sample.

        Returns:
            This dataset, so that calls chain.
        """
        self.transformations.append(check_callable("transformation", transformation))
        return self

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline that makes a sample of its raw fields."""
        return self._pipeline

    # One field, or several, of many samples.

    def column(self, extension: str, *path: str | int, fill: Any = None) -> Values:
        """Return one field of all samples, decoded, without reading the others.

        Columns of numbers, strings or arrays are cached per shard in the cache folder, and a later
        process reads them from there. If a shard changes, its column is computed again.

        Args:
            extension: The field, such as ".cls".
            path: Keys and indexes that lead to a value within the field, such as `"label"` in
                `.json`. For images, sound and video also what their headers state: "width" and
                "height", "duration" (in seconds), "nframes", "rate", "channels".
            fill: Value for samples without this field or value, or with null.

        Returns:
            An array with a row for each sample if the values are numbers or arrays of one type and
            shape; a `Ragged` for arrays of different lengths, a `RaggedText` for strings; else a
            list. Images are arrays, whatever type the dataset decodes them to.

        Raises:
            DecodeError: A field is damaged and `on_error` of the dataset gives no replacement, or
                it is missing and there is no `fill`. The message names sample, shard and field.
        """
        return self.column_reader(extension, *path).read(fill)

    def column_at(
        self, indexes: npt.NDArray[np.int64], extension: str, *path: str | int, fill: Any = None
    ) -> Values:
        """Return the column of some samples; no other shards than theirs are read.

        Args:
            indexes: Their indexes in `[0, len)`, unchecked, in any order.
            extension: The field, and so on, as for `column`.
            path: Keys and indexes that lead to a value in it.
            fill: What stands for a value that a sample lacks.

        Raises:
            DecodeError: As for `column`.
        """
        return self.column_reader(extension, *path).read_at(indexes, fill)

    def keys_at(self, indexes: npt.NDArray[np.int64]) -> list[str]:
        """Return the keys of some samples, in the order of their indexes."""
        keys = [""] * len(indexes)
        # Shard by shard, so that one index is in memory at a time.
        for number, slots, rows in by_shard(self._locator.ends, indexes):
            there = self._opened.index(number).keys_at(rows)
            for slot, key in zip(slots.tolist(), there, strict=True):
                keys[slot] = key
        return keys

    def key_at(self, index: int) -> str:
        """Return the key of one sample, by its index in `[0, len)`, unchecked.

        Args:
            index: Its index.
        """
        shard_index, local_index = self._locator(operator.index(index))
        return self._opened.index(shard_index).key(local_index)

    def remote_index(self, shard_index: int) -> TarIndex:
        """Return the tar index of a remote shard from a pack, else its sidecar.

        Raises:
            UnusableIndexError: There is none, so that the whole shard has to be fetched.
            FetchError: The server does not respond.
            CacheError: The cache folder cannot be used.
        """
        indexes, ref = self._opener.indexes, self.shards[shard_index]
        return indexes.of_remote(ref, indexes.packed(ref))

    def packed_keys(self) -> Pack | None:
        """Return the pack that has the keys of this dataset; None if none has."""
        return self._opener.indexes.packed_keys(self.shards)

    def key_hashes(self) -> npt.NDArray[np.uint64]:
        """Return the hash of each sample's key, as `wids.base.keyhash` makes it."""
        packed = self.packed_keys()
        if packed is not None:
            return packed.key_hashes()
        from wids.base.progress import progress
        from wids.reading.columns import read_key_hashes

        hashes = np.empty(self._locator.total, np.uint64)
        shards = np.flatnonzero(self.shards.nsamples).tolist()
        for number in progress(shards, desc="reading keys", unit="shard"):
            start = int(self._locator.ends[number - 1]) if number else 0
            hashes[start : int(self._locator.ends[number])] = read_key_hashes(self._opened, number)
        return hashes

    def with_options(self, **options: Unpack[ReadingOptions]) -> Self:
        """Return the same samples, in the same open shards, to be read with other options.

        Args:
            options: `transformations`, `fields`, `decoders` and `on_error`, as this class takes
                them; what is not given stays as it is. `missing_ok` names those of `fields` that no
                sample need have, so that no warning is given.

        Raises:
            ValueError: An option cannot be used.
        """
        twin = type(self).__new__(type(self))
        pipeline = self._pipeline.with_options(**options)
        # Both share the set of open shards; a pickled copy would have a set of its own.
        twin.__setstate__({**self.__getstate__(), "_opened": self._opened, "_pipeline": pipeline})
        if "fields" in options:
            optional = options.get("missing_ok", ())
            expected = [name for name in pipeline.fields or () if name not in optional]
            self._wanted.want(expected, self._opened.by_number)
        return twin

    def column_reader(self, extension: str, *path: str | int) -> ColumnReader:
        """Return the reader that `column` uses, to read a column shard by shard.

        Args:
            extension: The field.
            path: As for `column`.
        """
        from wids.reading.columns import ColumnReader

        return ColumnReader(
            check_extension("extension", extension),
            path,
            self._pipeline.decoder,
            self._opened,
        )

    def gather(self, indexes: Sequence[int], extension: str) -> Values:
        """Return one field of some samples, decoded, in any order.

        Fields `.npy` of one type and shape and `.cls` are decoded for the whole batch at once.

        Args:
            indexes: Global indexes; negative ones count from the end.
            extension: The field, such as ".npy".

        Returns:
            An array with a row for each index, a `Ragged`, or a list, as `column` returns it.

        Raises:
            IndexError: One of them is out of range.
            DecodeError: A sample lacks the field, or it is damaged and `on_error` of the dataset
                gives no replacement.
        """
        check_extension("extension", extension)
        gathering = self.locate_batch(indexes)
        with gathering.announced((extension,)):
            return gathering.decode(extension, self._pipeline.array_decoder)

    def gather_bytes(self, indexes: Sequence[int], extension: str) -> Ragged:
        """Return one raw field of a batch: all bytes in one buffer, and the offset of each field.

        Args:
            indexes: Global indexes; negative ones count from the end.
            extension: The field, such as ".jpg".

        Returns:
            A `Ragged` of uint8: `values` is the buffer, `offsets` has the start of each field, and
            item `i` is field `i` as an array.

        Raises:
            IndexError: One of them is out of range.
            DecodeError: A sample lacks the field.
        """
        check_extension("extension", extension)
        gathering = self.locate_batch(indexes)
        with gathering.announced((extension,)):
            return gathering.copy_bytes(extension)

    def gather_fields(
        self,
        indexes: Sequence[int],
        allocate: Callable[[str], Allocate] | None = None,
        turn: AbstractContextManager[Any] | None = None,
    ) -> dict[str, Any] | None:
        """Return a batch made field by field; needs a `batch_kind` other than "samples".

        Args:
            indexes: Global indexes; negative ones count from the end.
            allocate: Function from the name of a field to its allocator; None: new memory.
            turn: Lock that is held while raw bytes are copied.

        Returns:
            `__key__`, `__index__` and each field as a column; None if the samples have different
            fields.

        Raises:
            IndexError: One of them is out of range.
            DecodeError: A field is damaged and `on_error` of the dataset gives no replacement.
        """
        from wids.reading.gather import gather_fields
        from wids.reading.loaderstats import counted_as

        with counted_as("storage"):
            gathering = self.locate_batch(indexes)
        return gather_fields(gathering, self._pipeline, allocate, turn)

    @property
    def batch_kind(self) -> BatchKind:
        """Whether batches are made from "raw" or "decoded" fields, or from "samples"."""
        return "samples" if self._overrides_getitem else self._pipeline.batch_kind

    def locate_batch(self, indexes: Sequence[int] | npt.NDArray[np.int64]) -> Gathering:
        """Find the shards of a batch, to read several of its fields.

        Raises:
            IndexError: One of the indexes is out of range.
        """
        from wids.reading.gather import Gathering

        positions = checked_positions(indexes, self._locator.total)
        return Gathering(positions, self._locator.ends, self._opened, self._announcer)

    # Shards.

    def locate(self, index: int) -> SampleLocation:
        """Return where a sample lies, without opening its shard.

        Args:
            index: Global index; a negative one counts from the end.

        Raises:
            IndexError: There is no such sample.
        """
        position = checked_position(operator.index(index), self._locator.total)
        shard_index, local_index = self._locator(position)
        return SampleLocation(position, shard_index, local_index, self.shards[shard_index])

    def places(
        self, indexes: npt.NDArray[np.int64]
    ) -> Iterator[tuple[int, Self, npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
        """Yield this dataset, with all of some indexes as the rows in it."""
        yield 0, self, np.arange(len(indexes)), indexes

    def read_raw(self, index: int, fields: Collection[str] | None = None) -> Sample:
        """Return a sample as it is stored: raw fields, and the labels of a sample.

        Args:
            index: Global index; a negative one counts from the end.
            fields: Extensions to read; None for those that the dataset reads.

        Raises:
            IndexError: There is no such sample.
            WidsError: Its shard cannot be read.
        """
        opened, local_index = self._opened_at(index)
        wanted = self._pipeline.fields if fields is None else fields
        return opened.label(opened.shard.read(local_index, wanted), local_index)

    def field_sizes(self, index: int) -> dict[str, int]:
        """Return the size in bytes of each wanted field of a sample, in storage order.

        Args:
            index: Global index; a negative one counts from the end.

        Raises:
            IndexError: There is no such sample.
            WidsError: Its shard cannot be read.
        """
        opened, local_index = self._opened_at(index)
        wanted = self._pipeline.fields
        found = opened.shard.index.fields(local_index)
        return {name: size for name, _, size in found if wanted is None or name in wanted}

    def stored_at(self, index: int) -> tuple[str, list[tuple[str, int, int]]]:
        """Return the key of a sample, and name, offset and size of each of its fields.

        Args:
            index: Its index.
        """
        opened, local_index = self._opened_at(index)
        members = opened.shard.index
        return members.key(local_index), members.fields(local_index)

    def open_field(self, index: int, extension: str) -> FieldFile:
        """Open one field of a sample as a file, of which only the parts that are used are read.

        For large fields, such as videos, and libraries that read files. With `remote="range"` the
        parts are fetched by byte range, so that a clip does not cost the whole video.

        Args:
            index: Global index; a negative one counts from the end.
            extension: The field, such as ".mp4", also one that `fields=` leaves out.

        Returns:
            A binary file, read-only. Reading it fails if the shard was replaced meanwhile.

        Raises:
            IndexError: There is no such sample.
            KeyError: It has no such field.
            WidsError: Its shard cannot be read.
        """
        from wids.reading.fieldfile import FieldFile

        opened, local_index = self._opened_at(index)
        shard = opened.shard
        sizes = {name: size for name, _, size in shard.index.fields(local_index)}
        if extension not in sizes:
            raise KeyError(
                f"sample {index}: no field {extension!r}; it has {', '.join(sizes) or 'none'}, and "
                "extensions begin with a dot"
            )
        name = f"{shard.index.key(local_index)}{extension}"
        return FieldFile(partial(shard.read_part, local_index, extension), sizes[extension], name)

    def _opened_at(self, index: int) -> tuple[OpenShard, int]:
        shard_index, local_index = self._locator(operator.index(index))
        return self._opened.use(shard_index), local_index

    def locate_sample(self, index: int) -> tuple[ReadableShard, int, ShardRef]:
        """Return `(open shard, local index, ShardRef)` of a sample.

        Args:
            index: Global index; a negative one counts from the end.

        Raises:
            IndexError: There is no such sample.
        """
        shard_index, _ = self._locator(operator.index(index))
        opened, local_index = self._opened_at(index)
        return opened.shard, local_index, self.shards[shard_index]

    def get_shard(self, index: int) -> tuple[StreamedShard, int, ShardRef]:
        """Return `(shard, local index, ShardRef)` for 0.1.11 code: fields are binary streams.

        Args:
            index: Global index; a negative one counts from the end.

        Raises:
            IndexError: There is no such sample.
        """
        shard, local_index, ref = self.locate_sample(check_integer("index", index))
        return StreamedShard(shard), local_index, ref

    def drop_if_changed(self, shard_index: int) -> bool:
        """Drop a shard that was written to or replaced; the next use opens it as it is then.

        Reading a sample does not check for this, since the check takes longer than the sample. Call
        it in programs that run for hours while other programs write shards. What was chosen by its
        keys or values is to be chosen again then.

        Args:
            shard_index: Number of the shard in the dataset.

        Returns:
            Whether it was replaced.
        """
        return self._opened.drop_if_changed(shard_index)

    def fetch_ahead(self, sampler: ChunkedSampler, index_map: IndexMap | None = None) -> FetchAhead:
        """Fetch the next shards of a sampler in the background.

        Threads of this process fetch shards in all following epochs until `close`, as far
        ahead as `cache_size` allows. Call it before a DataLoader starts its workers.

        Args:
            sampler: Sampler of this library that draws the indexes in this process.
            index_map: For a sampler over a view: function from its indexes to those of this
                dataset, -1 for samples of other datasets.

        Returns:
            Progress of the thread, with the shards fetched and the seconds that readers waited.

        Raises:
            TypeError: The next indexes of the sampler are not known.
            ValueError: It draws from other samples, or the dataset fetches no shards.
            CacheError: The cache folder cannot be used.
        """
        from wids.ordering.lookahead import check_foreseeable
        from wids.reading.fetchahead import FetchAhead

        if index_map is not None:
            check_callable("index_map", index_map)
        length = self._locator.total if index_map is None else None
        by_range = self._opener.by_range and not self._chooses
        check_foreseeable(sampler, length, by_range=by_range)
        if self._ahead is not None:
            self._ahead.close()
        self._ahead = FetchAhead(self._opener, self.shards, self._locator.ends, sampler, index_map)
        return self._ahead

    def choose_remote(self, sampler: Any) -> None:
        """With remote="auto", choose once how the samples of a sampler are read.

        The choice is logged and shown by `repr`. If it is whole shards, they are fetched ahead.

        Args:
            sampler: What draws from this dataset.
        """
        from wids.reading.remotechoice import choose_remote, room_in_cache

        if not self._chooses or self.remote_choice is not None:
            return
        far = [row for row, url in enumerate(self.shards.urls) if not is_local(url)]
        sizes = self.shards.filesize[far]
        nbytes = None if (sizes == UNKNOWN).any() else int(sizes.sum())
        room = room_in_cache(self.cache.cache_dir, self.cache.cache_size)
        choice = choose_remote(sampler, self._locator.total, nbytes, room)
        logger.info('remote="auto": %s', choice)
        self.remote_choice = choice
        if choice.whole and far:
            self._open_anew(by_range=False)
            self.fetch_ahead(sampler)

    def _open_anew(self, *, by_range: bool) -> None:
        """Open shards in another way from now on; they must be of the versions seen so far."""
        self._opener = replace(self._opener, by_range=by_range)
        self._opened = copy(self._opened)  # with none of them open
        self._opened.opener = self._opener

    def prefetches(self, index_map: IndexMap | None = None) -> list[Prefetch]:
        """Return what prefetches coming batches by byte range; empty if that is not needed.

        Args:
            index_map: Function from the indexes of the batches to those of this dataset, -1 for
                samples of other datasets; None if they are the same.
        """
        from wids.reading.prefetch import Prefetch, default_memory

        near = not self._opener.by_range or all(map(is_local, self.shards.urls))
        if near or self._overrides_getitem:
            return []
        memory = default_memory() if self._memory is None else self._memory
        fields, fetcher = self._pipeline.fields, self.cache.fetcher
        return [Prefetch(self._opened, self._locator, fields, fetcher, memory, index_map)]

    def close(self) -> None:
        """Close the open shards and connections; reading afterwards opens them again.

        A shard that another thread is fetching meanwhile is an error there. Later reads demand the
        versions of the shards that were read before.
        """
        if self._ahead is not None:
            self._ahead.close()
        self._ahead = self.remote_choice = None
        self._opened.clear()
        if self._chooses:
            self._open_anew(by_range=True)
        self.cache.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        # A thread belongs to one process, and open shards to one dataset: a copy has none open.
        hot = {name: getattr(self, name) for name in _HOT} | {"_opened": copy(self._opened)}
        return {**self.__dict__, **hot, "_ahead": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name in state.keys() & set(_HOT):
            setattr(self, name, state[name])
        self.__dict__.update((name, each) for name, each in state.items() if name not in _HOT)

    # To look at.

    @cached_property
    def class_names(self) -> dict[int, str]:
        """Name of each class by its number, from the spec or a file in its folder; may be empty."""
        from wids.specs.classnames import find_class_names

        return find_class_names(
            self._header,
            self.base,
            self.shards.urls,
            # With `localname` the URLs name local files, and need no server.
            remote=self.cache.localname is None,
            store=self.cache.store,
        )

    @property
    def header(self) -> dict[str, Any]:
        """The top-level keys of the spec without its shards; `name` is None if it has none."""
        return dict(self._header)

    @property
    def dataset_shards(self) -> DatasetShards:
        """The shards by number, each of one version."""
        return self._opened

    @property
    def index_rules(self) -> IndexRules:
        """The rules by which the members of a shard are grouped into samples."""
        return self._opener.indexes.rules

    def is_near(self, index: int) -> bool:
        """Return whether a sample can be read without fetching a whole shard for it."""
        shard_index, _ = self._locator(operator.index(index))
        return self._opener.is_near(self.shards[shard_index])

    def __repr__(self) -> str:
        from wids.reading import describe

        return describe.summary_line(self)

    def _repr_html_(self) -> str:
        from wids.reading import describe

        return describe.html_page(self)

    # Names that code for wids 0.1.11 uses. Cached properties, because subclasses assign to them.

    @cached_property
    def lengths(self) -> list[int]:
        """Number of samples of each shard."""
        lengths: list[int] = self.shards.nsamples.tolist()
        return lengths

    @cached_property
    def cum_lengths(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Running total of `lengths`; int64, shape `(num_shards,)`."""
        return self._locator.ends

    @cached_property
    def total_length(self) -> int:
        """Number of samples."""
        return self._locator.total

    @cached_property
    def cache_dir(self) -> Path:
        """Folder of the fetched shards."""
        return self.cache.cache_dir

    @cached_property
    def spec(self) -> dict[str, Any]:
        """The JSON spec, with URLs resolved and nested datasets flattened."""
        return {
            "wids_version": 1,
            **self._header,
            "base": self.base,
            "shardlist": [dict(shard) for shard in self.shards],
        }

    @cached_property
    def data_info(self) -> str:
        """One line that describes the dataset."""
        from wids.reading import describe

        nbytes = describe.nbytes_of(self.shards, look=self.cache.localname is None)
        name = display_url(str(self.dataset_name))
        return (
            f"{name} base: {display_url(self.base)} name: {self._header['name']} "
            f"nfiles: {len(self.shards)} "
            f"nbytes: {'unknown' if nbytes is None else nbytes} samples: {self._locator.total} "
            f"cache: {display_url(str(self.cache_dir))}"
        )

    def get_stats(self) -> tuple[int, int]:
        """Return the number of shard accesses, and of those to shards not open: `(n, misses)`."""
        # Counted in this process only; workers count their own accesses.
        return self._opened.accesses, self._opened.misses

    def check_cache_misses(self) -> None:
        """Warn when more than 3 of 10 accesses had to open a shard first."""
        accesses, misses = self.get_stats()
        # As in 0.1.11, only from a hundred accesses on: below, most of them open a shard first.
        if accesses > 100 and misses > 0.3 * accesses:
            warn(
                f"{100 * misses / accesses:.1f} % of {accesses} accesses had to open a shard; a "
                f"larger lru_size (now {self._opened.limit}) or a sampler that stays longer on a "
                "shard would help"
            )


# Compared with that of a subclass, which may override it.
_GETITEM = ShardList.__getitem__


def is_sharded(samples: Any) -> TypeGuard[ShardList]:
    """Return whether a sequence is a list of shards, one after another."""
    return isinstance(samples, ShardList)
