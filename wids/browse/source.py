"""A dataset as the page reads it: first where things lie, then only the bytes that are shown."""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from wids.browse.keptbytes import KeptBytes
from wids.errors import FetchError, ShardFormatError, WidsError
from wids.reading.columnfile import ColumnPart
from wids.reading.rangeshard import RangeShard, fetch_index, sidecar_url
from wids.reading.shardlist import ShardList
from wids.tar.shard import Shard
from wids.tar.sidecar import SIDECAR_SUFFIX
from wids.tar.tarindex import TarIndex
from wids.urls import display_url

__all__ = ["FieldPlace", "SamplePlace", "Source"]

_KEPT_NBYTES = 64 << 20
# Of a remote sample no more than this is fetched ahead of being asked for.
_MOST_AHEAD_NBYTES = 2 << 20
_ROWS_A_REQUEST = 256
# A shard that failed is not tried again for each of its tiles, and yet soon after it was mended.
_RETRY_SECONDS = 10.0


class FieldPlace(NamedTuple):
    """A field of a sample: its extension, and where in the shard its bytes lie."""

    extension: str
    offset: int
    nbytes: int


@dataclass(frozen=True)
class SamplePlace:
    """A sample that was located but not read.

    Attributes:
        index: Its global number.
        key: Its key.
        shard_index: Which shard it is in.
        local_index: Its place there.
        url: The shard, fit to be shown.
        fields: Its fields, in the order of the tar; a request names one by its number in here,
            since extensions are strangers' text.
    """

    index: int
    key: str
    shard_index: int
    local_index: int
    url: str
    fields: tuple[FieldPlace, ...]

    def field(self, number: int) -> FieldPlace:
        """Return a field by its number.

        Raises:
            LookupError: The sample has no such field.
        """
        if not 0 <= number < len(self.fields):
            raise LookupError(
                f"sample {self.index} has {len(self.fields)} fields, counted from 0; there is no "
                f"field {number}"
            )
        return self.fields[number]


class Source:
    """Locates samples and reads parts of their fields; never a whole sample unasked.

    Safe to use from many threads, as the dataset is.

    Args:
        dataset: The dataset; its transformations do not matter.

    Attributes:
        dataset: The same.
        failures: What went wrong with shards that could not be opened, by number; for the list
            of shards.
    """

    def __init__(self, dataset: ShardList) -> None:
        self.dataset = dataset
        self.failures: dict[int, str] = {}
        self._failed_at: dict[int, float] = {}
        self._kept: KeptBytes[tuple[int, int], memoryview] = KeptBytes(_KEPT_NBYTES)

    def __len__(self) -> int:
        return len(self.dataset)

    @property
    def num_shards(self) -> int:
        """Number of shards."""
        return len(self.dataset.shards)

    def num_samples(self, shard_index: int) -> int:
        """Return how many samples the spec counts in a shard."""
        return int(self.dataset.shards.nsamples[shard_index])

    def first_index(self, shard_index: int) -> int:
        """Return the global number of a shard's first sample, or of the next where it has none."""
        return int(self.dataset.cum_lengths[shard_index - 1]) if shard_index else 0

    def shard_of(self, index: int) -> int:
        """Return which shard a sample is in."""
        return int(np.searchsorted(self.dataset.cum_lengths, index, side="right"))

    def place(self, index: int) -> SamplePlace:
        """Locate a sample.

        Raises:
            IndexError: There is no such sample.
            WidsError: Its shard cannot be opened.
        """
        shard, local_index, entry = self._opened(index)
        fields = tuple(FieldPlace(*field) for field in shard.index.fields(local_index))
        index = index if index >= 0 else index + len(self)
        return SamplePlace(
            index,
            shard.index.key(local_index),
            self.shard_of(index),
            local_index,
            display_url(entry["url"]),
            fields,
        )

    def read(
        self, place: SamplePlace, number: int, start: int = 0, stop: int | None = None
    ) -> memoryview:
        """Return the bytes `[start, stop)` of a field; all of it by default.

        Raises:
            LookupError: There is no such field.
            WidsError: It cannot be read.
        """
        field = place.field(number)
        kept = self._kept.get((place.index, number))
        if kept is not None:
            return kept[start:stop]
        shard, local_index, _ = self._opened(place.index)
        if isinstance(shard, RangeShard):
            stop = field.nbytes if stop is None else min(stop, field.nbytes)
            with self._failing_once(place.shard_index, FetchError):
                return memoryview(shard.read_part(local_index, field.extension, start, stop))
        # A view of the mapped shard: however large the field, only what is sliced is touched.
        view: memoryview = shard.read(local_index, (field.extension,))[field.extension]
        return view[start:stop]

    def fetch_ahead(
        self, places: Iterable[SamplePlace], wanted: Callable[[SamplePlace], Iterable[int]]
    ) -> None:
        """Read small fields of remote samples in a few requests, and keep them for `read`.

        What fails here fails again, and is told, when the field is asked for.

        Args:
            places: The samples of a page.
            wanted: Gives the numbers of the fields that the page will ask for.
        """
        by_shard: dict[int, list[tuple[SamplePlace, list[int]]]] = {}
        for place in places:
            numbers = [n for n in wanted(place) if self._kept.get((place.index, n)) is None]
            if numbers and sum(place.fields[n].nbytes for n in numbers) <= _MOST_AHEAD_NBYTES:
                by_shard.setdefault(place.shard_index, []).append((place, numbers))
        for group in by_shard.values():
            try:
                self._fetch_group(group)
            except WidsError:
                continue

    def _fetch_group(self, group: list[tuple[SamplePlace, list[int]]]) -> None:
        """Read the wanted fields of some samples of one shard, if that is a remote one."""
        shard = self._opened(group[0][0].index)[0]
        if not isinstance(shard, RangeShard):
            return
        extensions = {place.fields[n].extension for place, numbers in group for n in numbers}
        with self._failing_once(group[0][0].shard_index, FetchError):
            samples = shard.read_many([place.local_index for place, _ in group], extensions)
        for (place, numbers), sample in zip(group, samples, strict=True):
            for number in numbers:
                # A copy, as the view may keep a shard mapped that was fetched whole after all.
                data = memoryview(bytes(sample[place.fields[number].extension]))
                self._kept.put((place.index, number), data, len(data))

    def tar_index(self, shard_index: int) -> TarIndex | None:
        """Return the tar index of a shard, or None where the shard would have to be fetched.

        What goes through all shards asks here: a search must not download a dataset.

        Raises:
            WidsError: The shard cannot be opened.
        """
        if not self.num_samples(shard_index):
            return None
        entry = self.dataset.shards[shard_index]
        cache = self.dataset.cache
        # Opening a remote shard without a sidecar fetches it, so the sidecar is asked for first.
        if not cache.is_local(entry["url"]):
            index_url = entry.get("index") or sidecar_url(entry["url"], SIDECAR_SUFFIX)
            try:
                fetch_index(index_url, SIDECAR_SUFFIX, cache, entry)
            except (FetchError, ShardFormatError):
                return None
        return self._opened(self.first_index(shard_index))[0].index

    def rows(
        self, shard_index: int, extensions: Collection[str], most_nbytes: int
    ) -> Iterator[dict[str, Any]] | None:
        """Read some small fields of all samples of a shard, one after the other.

        Args:
            shard_index: Which shard.
            extensions: The fields wanted.
            most_nbytes: A field beyond this is left out of its sample, and of no other.

        Returns:
            For each sample its `__key__` and the fields it has; None where the shard would have
            to be fetched whole.
        """
        index = self.tar_index(shard_index)
        if index is None:
            return None
        shard = self._opened(self.first_index(shard_index))[0]
        sizes = index.columns().sizes_by_extension()
        there = {extension for extension in extensions if extension in sizes}
        small = {each for each in there if sizes[each].max(initial=0) <= most_nbytes}
        return _each_row(shard, small, there - small, most_nbytes)

    def column_part(self, shard_index: int, extension: str, path: tuple[str, ...]) -> ColumnPart:
        """Read one field, or one value in it, of all samples of a shard; kept for the next time.

        Raises:
            WidsError: The shard cannot be read, or a field of it is damaged.
        """
        reader = self.dataset.column_reader(extension, *path)
        entry = self.dataset.shards[shard_index]
        return reader.read_shard(shard_index, entry)

    def _opened(self, index: int) -> tuple[Shard | RangeShard, int, dict[str, Any]]:
        """Locate a sample in its open shard; a shard that failed just now fails at once."""
        if not -len(self) <= index < len(self):
            raise IndexError(f"sample {index} lies outside a dataset of {len(self)} samples")
        shard_index = self.shard_of(index % len(self))
        failed_at = self._failed_at.get(shard_index)
        if failed_at is not None and time.monotonic() - failed_at < _RETRY_SECONDS:
            raise ShardFormatError(self.failures[shard_index])
        with self._failing_once(shard_index, WidsError, OSError):
            located = self.dataset.locate_sample(index)
        self.failures.pop(shard_index, None)
        return located

    @contextmanager
    def _failing_once(self, shard_index: int, *kinds: type[Exception]) -> Iterator[None]:
        """Note what fails, since each try of a server that is down takes many seconds."""
        try:
            yield
        except kinds as error:
            self.failures[shard_index] = str(error)
            self._failed_at[shard_index] = time.monotonic()
            raise


def _each_row(
    shard: Shard | RangeShard, small: Collection[str], mixed: Collection[str], most_nbytes: int
) -> Iterator[dict[str, Any]]:
    """Read the samples of a shard in order; of `mixed` fields only those that are not too large."""
    for start in range(0, len(shard), _ROWS_A_REQUEST):
        places = range(start, min(start + _ROWS_A_REQUEST, len(shard)))
        rows = _rows_at(shard, places, small)
        for extension in mixed:
            kept = [place for place in places if _holds(shard, place, extension, most_nbytes)]
            for place, row in zip(kept, _rows_at(shard, kept, {extension}), strict=True):
                rows[place - start][extension] = row[extension]
        yield from rows


def _rows_at(
    shard: Shard | RangeShard, places: Sequence[int], extensions: Collection[str]
) -> list[dict[str, Any]]:
    """Read some samples; of a remote shard many in a request."""
    if isinstance(shard, Shard):
        return [shard.read(place, extensions) for place in places]
    return shard.read_many(places, extensions)


def _holds(shard: Shard | RangeShard, place: int, extension: str, most_nbytes: int) -> bool:
    fields = (FieldPlace(*field) for field in shard.index.fields(place))
    return any(each.extension == extension and each.nbytes <= most_nbytes for each in fields)
