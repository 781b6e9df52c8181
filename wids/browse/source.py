"""Access of the page to a dataset: locates samples, then reads only the bytes that are shown."""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np

from wids.base.urls import display_url, is_local
from wids.browse.failures import RETRY_SECONDS, Failures
from wids.display.classnames import fetch_class_names
from wids.errors import FetchError, ShardFormatError, WidsError
from wids.fetching.fetch import Fetcher
from wids.fetching.transport import FetchPolicy, is_unreachable
from wids.reading.rangeshard import fetch_index, sidecar_url
from wids.specs.locations import folder_of
from wids.tar.sidecar import SIDECAR_SUFFIX

if TYPE_CHECKING:
    from wids.base.shardref import ShardRef
    from wids.reading.columnfile import ColumnPart
    from wids.reading.samplesequence import ShardedSequence
    from wids.tar.shard import ReadableShard
    from wids.tar.tarindex import TarIndex

__all__ = ["PATIENCE", "FieldPlace", "KeptBytes", "SamplePlace", "Source", "Uncounted"]

Uncounted = dict[str, WidsError | OSError]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class KeptBytes(Generic[K, V]):
    """A mapping whose values hold at most so many bytes together; safe to use from threads.

    Args:
        limit_nbytes: Most bytes to keep; a single value larger than this is not kept at all.

    >>> kept = KeptBytes(10)
    >>> kept.put("a", "first", 6), kept.put("b", "second", 6)
    (None, None)
    >>> kept.get("a"), kept.get("b"), kept.nbytes
    (None, 'second', 6)
    """

    def __init__(self, limit_nbytes: int) -> None:
        self.limit_nbytes = limit_nbytes
        self.nbytes = 0
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()
        # Requests run in threads, and an OrderedDict may be torn by two that reorder it.
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        """Return what is kept under a key, or None."""
        with self._lock:
            found = self._values.get(key)
            if found is None:
                return None
            self._values.move_to_end(key)
            return found[0]

    def put(self, key: K, value: V, nbytes: int) -> None:
        """Keep a value that counts as so many bytes."""
        if nbytes > self.limit_nbytes:
            return
        with self._lock:
            replaced = self._values.pop(key, None)
            self.nbytes += nbytes - (replaced[1] if replaced else 0)
            self._values[key] = (value, nbytes)
            while self.nbytes > self.limit_nbytes:
                _, (_, freed) = self._values.popitem(last=False)
                self.nbytes -= freed


# Some pages of small fields: enough to go back without asking the server again.
_KEPT_NBYTES = 64 << 20
# Of a remote sample no more than this is fetched ahead of being asked for.
_MOST_AHEAD_NBYTES = 2 << 20
_PIECE_NBYTES = 1 << 20
_PIECE_FAR_NBYTES = 8 << 20  # each piece of a remote field costs a request
_ROWS_A_REQUEST = 256
# Somebody looks at the page and waits: what a night's training sits out is told at once here.
PATIENCE = FetchPolicy(connect_timeout_seconds=5.0, stall_timeout_seconds=10.0, attempts=2)


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
        by_range: Whether each byte of it comes over the wire when it is asked for.
        version: Which version of the shard this is, in letters that fit into a URL; another one
            once the shard was written anew.
        fields: Its fields, in the order of the tar; a request names one by its number in here,
            since extensions are strangers' text.
    """

    index: int
    key: str
    shard_index: int
    local_index: int
    url: str
    by_range: bool
    version: str
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
        dataset: The dataset; its transformations do not matter. From here on it gives up sooner
            on servers that do not answer.
        uncounted: Errors of shards that could not be counted, by URL.
        patience: How long to wait for servers, and how often to try.
        retry_seconds: How long what failed is not tried again.

    Attributes:
        dataset: The same.
        failures: What went wrong with shards that could not be opened.
        fetched_whole: Remote shards that were fetched whole to be shown, for want of a sidecar.
    """

    def __init__(
        self,
        dataset: ShardedSequence,
        uncounted: Uncounted | None = None,
        *,
        patience: FetchPolicy = PATIENCE,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        self.dataset = dataset
        self.failures = Failures(retry_seconds)
        if uncounted:
            for number, url in enumerate(dataset.shards.urls):
                if url in uncounted:
                    self.failures.note(number, url, uncounted[url])
        self.fetched_whole: set[int] = set()
        self._opened_before: set[int] = set()
        self._waits: dict[int, tuple[int, float]] = {}
        fetcher = dataset.cache.fetcher
        dataset.cache.fetcher = Fetcher(patience, allow_pipe=fetcher.allow_pipe)
        fetcher.close()
        self._salt = secrets.token_hex(4)
        self._kept: KeptBytes[tuple[SamplePlace, int], memoryview] = KeptBytes(_KEPT_NBYTES)

    def __len__(self) -> int:
        return len(self.dataset)

    def class_names(self) -> Mapping[int, str]:
        """Return names of classes by number: of the dataset, or of a file beside remote shards."""
        names = self.dataset.class_names
        first = folder_of(self.dataset.shards.urls[0]) if self.num_shards else ""
        base = self.dataset.base or first
        if names or not base or is_local(base):
            return names
        return fetch_class_names(base, self.dataset.cache.fetcher.read)

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
            shard.memory is None,
            self._version_of(shard),
            fields,
        )

    def _version_of(self, shard: ReadableShard) -> str:
        facts = f"{self._salt} {shard.nbytes} {shard.version}"
        return hashlib.blake2b(facts.encode(), digest_size=8).hexdigest()

    def read(
        self, place: SamplePlace, number: int, start: int = 0, stop: int | None = None
    ) -> memoryview:
        """Return the bytes `[start, stop)` of a field; all of it by default.

        Raises:
            LookupError: There is no such field.
            WidsError: It cannot be read.
        """
        field = place.field(number)
        kept = self._kept.get((place, number))
        if kept is not None:
            return kept[start:stop]
        shard, local_index, entry = self._opened(place.index)
        stop = field.nbytes if stop is None else min(stop, field.nbytes)
        start = min(start, stop)
        with self.failures.noted(place.shard_index, entry["url"], FetchError):
            self._check_place(place, shard)
            return memoryview(shard.read_part(local_index, field.extension, start, stop))

    def pieces(
        self, place: SamplePlace, number: int, start: int = 0, stop: int | None = None
    ) -> Iterator[bytes]:
        """Read a field piece by piece, so that one of gigabytes takes a megabyte of memory.

        Raises:
            LookupError: There is no such field.
            WidsError: It cannot be read.
        """
        stop = place.field(number).nbytes if stop is None else stop
        nbytes = _PIECE_FAR_NBYTES if place.by_range else _PIECE_NBYTES
        for first in range(start, stop, nbytes):
            yield bytes(self.read(place, number, first, min(first + nbytes, stop)))

    def _check_place(self, place: SamplePlace, shard: ReadableShard) -> None:
        """Demand that a sample still is where it was located, since its shard may be another now.

        Raises:
            ShardFormatError: It is not.
        """
        index, fields = (
            shard.index,
            [(each.extension, each.offset, each.nbytes) for each in place.fields],
        )
        there = place.local_index < len(shard) and index.key(place.local_index) == place.key
        if not there or index.fields(place.local_index) != fields:
            raise ShardFormatError(
                f"{place.url}: was replaced since sample {place.index} was looked for; reload the "
                "page"
            )

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
            numbers = [n for n in wanted(place) if self._kept.get((place, n)) is None]
            if numbers and sum(place.fields[n].nbytes for n in numbers) <= _MOST_AHEAD_NBYTES:
                by_shard.setdefault(place.shard_index, []).append((place, numbers))
        for group in by_shard.values():
            try:
                self._fetch_group(group)
            except WidsError:
                continue

    def _fetch_group(self, group: list[tuple[SamplePlace, list[int]]]) -> None:
        """Read the wanted fields of some samples of one shard, if that is a remote one."""
        shard, _, entry = self._opened(group[0][0].index)
        if shard.memory is not None:
            return
        for place, _ in group:
            self._check_place(place, shard)
        extensions = {place.fields[n].extension for place, numbers in group for n in numbers}
        with self.failures.noted(group[0][0].shard_index, entry["url"], FetchError):
            samples = shard.read_many([place.local_index for place, _ in group], extensions)
        for (place, numbers), sample in zip(group, samples, strict=True):
            for number in numbers:
                # A copy, as the view may keep a shard mapped that was fetched whole after all.
                data = memoryview(bytes(sample[place.fields[number].extension]))
                self._kept.put((place, number), data, len(data))

    def is_far(self, entry: ShardRef) -> bool:
        """Return whether a shard is neither a file of this machine nor in the cache."""
        cache = self.dataset.cache
        return not (cache.is_local(entry["url"]) or cache.holds(entry))

    def arrived_nbytes(self, shard_index: int) -> int:
        """Return how many bytes of a shard that is being fetched whole have arrived."""
        entry = self.dataset.shards[shard_index]
        if self.dataset.cache.is_local(entry["url"]):
            return 0
        return self.dataset.cache.arrived_nbytes(entry)

    def tar_index(self, shard_index: int) -> TarIndex | None:
        """Return the tar index of a shard, or None where the shard would have to be fetched.

        What goes through all shards asks here: a search must not download a dataset.

        Raises:
            WidsError: The shard cannot be opened.
        """
        if not self.num_samples(shard_index):
            return None
        entry = self.dataset.shards[shard_index]
        # Opening a remote shard without a sidecar fetches it, so the sidecar is asked for first.
        if self.is_far(entry):
            index_url = entry.get("index") or sidecar_url(entry["url"], SIDECAR_SUFFIX)
            self.failures.check(shard_index, entry["url"])
            try:
                fetch_index(index_url, SIDECAR_SUFFIX, self.dataset.cache, entry)
            except (FetchError, ShardFormatError) as error:
                if not is_unreachable(error):
                    return None
                self.failures.note(shard_index, entry["url"], error)
                raise
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

    def _opened(self, index: int) -> tuple[ReadableShard, int, ShardRef]:
        """Locate a sample in its open shard; a shard that failed just now fails at once."""
        if not -len(self) <= index < len(self):
            raise IndexError(f"sample {index} lies outside a dataset of {len(self)} samples")
        shard_index = self.shard_of(index % len(self))
        url = self.dataset.shards.urls[shard_index]
        self.failures.check(shard_index, url)
        first = shard_index not in self._opened_before
        far = first and self.is_far(self.dataset.shards[shard_index])
        with self.failures.noted(shard_index, url, WidsError, OSError), self._waited(shard_index):
            self.dataset.drop_if_changed(shard_index)
            located = self.dataset.locate_sample(index)
            # Keys, sizes and searches are shown from the sidecar alone.
            located[0].confirm()
        self.failures.forget(shard_index, url)
        self._opened_before.add(shard_index)
        if far and located[0].memory is not None:
            self.fetched_whole.add(shard_index)
        return located

    @contextmanager
    def _waited(self, shard_index: int) -> Iterator[None]:
        """Record for `waits` that a thread waits for a shard."""
        thread = threading.get_ident()
        self._waits[thread] = shard_index, time.monotonic()
        try:
            yield
        finally:
            del self._waits[thread]

    def waits(self) -> dict[int, float]:
        """Return the shards that are being opened, and for how many seconds each."""
        now = time.monotonic()
        # A copy, since other threads begin and end while this one counts.
        return {shard_index: now - since for shard_index, since in list(self._waits.values())}


def _each_row(
    shard: ReadableShard, small: Collection[str], mixed: Collection[str], most_nbytes: int
) -> Iterator[dict[str, Any]]:
    """Read the samples of a shard in order; of `mixed` fields only those that are not too large."""
    for start in range(0, len(shard), _ROWS_A_REQUEST):
        places = range(start, min(start + _ROWS_A_REQUEST, len(shard)))
        rows = shard.read_many(places, small)
        for extension in mixed:
            kept = [place for place in places if _holds(shard, place, extension, most_nbytes)]
            for place, row in zip(kept, shard.read_many(kept, {extension}), strict=True):
                rows[place - start][extension] = row[extension]
        yield from rows


def _holds(shard: ReadableShard, place: int, extension: str, most_nbytes: int) -> bool:
    fields = (FieldPlace(*field) for field in shard.index.fields(place))
    return any(each.extension == extension and each.nbytes <= most_nbytes for each in fields)
