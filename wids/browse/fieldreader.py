"""`FieldReader`: locates samples for the page and reads only the bytes that it shows."""

from __future__ import annotations

import secrets
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.base.urls import display_url, is_local
from wids.browse.failures import RETRY_SECONDS, Failures
from wids.browse.keptbytes import KeptBytes
from wids.codecs.formats import field_kind, wrapper_of
from wids.errors import FetchError, ShardChangedError, SpecError, WidsError
from wids.fetching.fetch import Fetcher
from wids.fetching.transport import FetchPolicy
from wids.reading.samplesequence import SampleLocation
from wids.reading.shardlist import is_sharded
from wids.reading.tarindexes import UnusableIndexError
from wids.views.fieldhomes import may_give
from wids.views.plan import StoredField, datasets_in, slots_of, stored_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from wids.base.shardref import ShardRef
    from wids.codecs.formats import Kind
    from wids.ordering.permute import Integers
    from wids.reading.shardlist import ShardList
    from wids.tar.shard import Data, ReadableShard
    from wids.tar.tarindex import TarIndex

__all__ = [
    "MOST_LOOKED_AT",
    "PATIENCE",
    "FieldReader",
    "JoinedFields",
    "LocatedSample",
    "Uncounted",
]

Uncounted = dict[str, WidsError | OSError]


MOST_LOOKED_AT = 1000  # fields of a sample among which those to show are chosen
# Memory for the small fields of some pages, so that going back sends no requests.
_KEPT_NBYTES = 64 << 20
# Most bytes of a remote sample that are fetched before the page requests them.
_MOST_AHEAD_NBYTES = 2 << 20
_PIECE_NBYTES = 1 << 20
_PIECE_FAR_NBYTES = 8 << 20  # each piece of a remote field costs a request
# A user waits for the page, so an early error is better than the many retries of a training run.
PATIENCE = FetchPolicy(
    connect_timeout_seconds=5.0, stall_timeout_seconds=10.0, attempts=2, limited_attempts=2
)


@dataclass(frozen=True)
class LocatedSample(SampleLocation):
    """Sample that was located but not read.

    Attributes:
        key: Its key.
        by_range: Whether its bytes are read from a server by byte range.
        fields: Its fields, in tar order; requests name a field by its number in this tuple, as
            extensions are untrusted text. Those of its shard have the dataset of the page as their
            `home`.
    """

    key: str
    by_range: bool
    fields: tuple[StoredField, ...]

    def field(self, number: int) -> StoredField:
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

    def first(self, *kinds: Kind, most_nbytes: int | None = None) -> int | None:
        """Return the number of the first field of the first kind that the sample has, or None.

        Compressed text, JSON and sound do not count, as they would have to be unpacked.
        """
        for kind in kinds:
            unpacked = kind in ("text", "json", "audio")
            for number, field in enumerate(self.fields[:MOST_LOOKED_AT]):
                fits = most_nbytes is None or field.nbytes <= most_nbytes
                fits = fits and not (unpacked and wrapper_of(field.extension))
                if fits and field_kind(field.extension) == kind:
                    return number
        return None


class JoinedFields:
    """Lookup of the fields that a join adds to the samples of its leftmost dataset.

    The page shows samples by the shards of that dataset. Here are found the fields of these samples
    that are stored in shards of other datasets or in tables.

    Args:
        samples: The join, or what was chosen of it.
        rows: For each of its samples, the index in the leftmost dataset; None for the same.

    Attributes:
        samples: As given.
        rows: For each sample of the join, the index in the leftmost dataset.

    Raises:
        SpecError: One sample of the dataset is in several samples of the join.
    """

    def __init__(self, samples: Any, rows: Integers | None) -> None:
        self.samples = samples
        self.rows = np.arange(len(samples)) if rows is None else rows
        self._order = np.argsort(self.rows, kind="stable")
        self._sorted = self.rows[self._order]
        (twice,) = np.nonzero(np.diff(self._sorted) == 0)
        if len(twice):
            raise SpecError(
                f"sample {self._sorted[twice[0]]} of the left dataset is several times in the "
                "join, and the page shows each once; choose it once, or write the join as shards "
                "by wids reshard"
            )

    def at(self, indexes: Integers) -> Integers:
        """Return the positions in the join of the samples with some left indexes; -1 for none."""
        places = np.searchsorted(self._sorted, indexes)
        is_there = np.append(self._sorted, -1)[places] == indexes
        found: Integers = np.append(self._order, -1)[np.where(is_there, places, -1)]
        return found

    def fields(self, where: SampleLocation, dataset: ShardList) -> list[StoredField] | None:
        """Return the fields of a sample of the leftmost dataset; None if the join lacks it.

        Args:
            where: The sample.
            dataset: The dataset, from which the fields in the shard of the sample are read.

        Raises:
            WidsError: A shard cannot be opened, or a field is in both sides of the join.
        """
        position = int(np.searchsorted(self._sorted, where.index))
        if position == len(self._sorted) or self._sorted[position] != where.index:
            return None
        found = []
        for stored in stored_fields(self.samples, int(self._order[position])).values():
            field, home = stored._replace(nbytes=stored.size()), stored.home
            if is_sharded(home) and home.locate(stored.position).shard.url == where.shard.url:
                field = field._replace(home=dataset, position=where.index)
            found.append(field)
        return found


class FieldReader:
    """Locates samples and reads parts of their fields; thread-safe, as the dataset is.

    Args:
        dataset: The dataset; its transformations are not used. Its fetcher is replaced by one with
            `patience`.
        uncounted: Errors of shards whose samples could not be counted, by URL.
        joined: Fields that a join adds to the samples of the dataset; None without a join.
        patience: Timeouts and number of attempts of requests.
        retry_seconds: Time for which a shard or server that failed is not tried again.

    Attributes:
        dataset, joined, patience: As given.
        samples: The join, or without one the dataset.
        failures: Errors of shards that could not be opened.
        fetched_whole: Remote shards that were fetched whole, because they have no sidecar.
        num_uncounted: Number of shards whose samples could not be counted.
        version: Text for URLs of what browsers keep, another one for each reader: a shard has one
            version as long as it lives.
    """

    def __init__(
        self,
        dataset: ShardList,
        uncounted: Uncounted | None = None,
        *,
        joined: JoinedFields | None = None,
        patience: FetchPolicy = PATIENCE,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        self.dataset = dataset
        self.joined = joined
        self.samples: Any = dataset if joined is None else joined.samples
        self.patience = patience
        self.failures = Failures(retry_seconds)
        if uncounted:
            for number, url in enumerate(dataset.shards.urls):
                if url in uncounted:
                    self.failures.note(number, url, uncounted[url])
        self.num_uncounted = len(uncounted or ())
        self.fetched_whole: set[int] = set()
        self.version = secrets.token_hex(8)
        every = [dataset, *datasets_in(self.samples)]
        for cache in {id(each.cache): each.cache for each in every}.values():
            fetcher = cache.fetcher
            its = replace(patience, store=cache.store)
            cache.fetcher = Fetcher(its, allow_pipe=fetcher.allow_pipe)
            fetcher.close()
        self._kept: KeptBytes[tuple[int, int], memoryview] = KeptBytes(_KEPT_NBYTES)

    def __len__(self) -> int:
        return len(self.dataset)

    @property
    def num_shards(self) -> int:
        """Number of shards."""
        return len(self.dataset.shards)

    def num_samples(self, shard_index: int) -> int:
        """Return the number of samples of a shard."""
        return int(self.dataset.shards.nsamples[shard_index])

    def first_index(self, shard_index: int) -> int:
        """Return the global index of a shard's first sample; if it has none, that of the next."""
        return int(self.dataset.cum_lengths[shard_index - 1]) if shard_index else 0

    def locate(self, index: int) -> LocatedSample:
        """Locate a sample.

        Raises:
            IndexError: There is no such sample.
            WidsError: Its shard cannot be opened.
        """
        shard, where = self._opened(index)
        fields = None if self.joined is None else self.joined.fields(where, self.dataset)
        if fields is None:
            fields = [
                StoredField(name, name, self.dataset, where.index, offset, nbytes)
                for name, offset, nbytes in shard.index.fields(where.local_index)
            ]
        return LocatedSample(
            where.index,
            where.shard_index,
            where.local_index,
            where.shard,
            shard.index.key(where.local_index),
            shard.is_by_range,
            tuple(fields),
        )

    def read(
        self, located: LocatedSample, number: int, start: int = 0, stop: int | None = None
    ) -> memoryview:
        """Return the bytes `[start, stop)` of a field; by default all of them.

        Raises:
            LookupError: There is no such field.
            WidsError: It cannot be read.
        """
        field = located.field(number)
        kept = self._kept.get((located.index, number))
        if kept is not None:
            return kept[start:stop]
        if field.home is not self.dataset:
            return field.read(start, stop)
        self._opened(located.index)
        with self.failures.noted(located.shard_index, located.shard.url, FetchError):
            return field.read(start, stop)

    def pieces(
        self, located: LocatedSample, number: int, start: int = 0, stop: int | None = None
    ) -> Iterator[bytes]:
        """Yield a field in pieces, so that a field of gigabytes takes a megabyte of memory.

        Raises:
            LookupError: There is no such field.
            WidsError: It cannot be read.
        """
        stop = located.field(number).nbytes if stop is None else stop
        nbytes = _PIECE_FAR_NBYTES if located.by_range else _PIECE_NBYTES
        for first in range(start, stop, nbytes):
            yield bytes(self.read(located, number, first, min(first + nbytes, stop)))

    def fetch_ahead(
        self, samples: Iterable[LocatedSample], wanted: Callable[[LocatedSample], Iterable[int]]
    ) -> None:
        """Read small fields of remote samples in a few requests, and keep them for `read`.

        Errors are ignored: `read` raises them again.

        Args:
            samples: The samples of a page.
            wanted: Returns the numbers of the fields of a sample that the page will read.
        """
        by_shard: dict[int, list[tuple[LocatedSample, list[int]]]] = {}
        for located in samples:
            own = [n for n in wanted(located) if located.fields[n].home is self.dataset]
            numbers = [n for n in own if self._kept.get((located.index, n)) is None]
            nbytes = sum(located.fields[n].nbytes for n in numbers)
            if located.by_range and numbers and nbytes <= _MOST_AHEAD_NBYTES:
                by_shard.setdefault(located.shard_index, []).append((located, numbers))
        for shard_index, group in by_shard.items():
            names = {located.fields[n].name for located, numbers in group for n in numbers}
            with suppress(WidsError):
                shard, where = self._opened(group[0][0].index)
                with self.failures.noted(shard_index, where.shard.url, FetchError):
                    found = shard.read_many([located.local_index for located, _ in group], names)
                for (located, numbers), sample in zip(group, found, strict=True):
                    for number in numbers:
                        # Copied, as a view would keep the shard mapped if it was fetched whole.
                        data = memoryview(bytes(sample[located.fields[number].name]))
                        self._kept.put((located.index, number), data, len(data))

    def is_far(self, ref: ShardRef) -> bool:
        """Return whether a shard is neither a file of this machine nor in the cache."""
        return not (is_local(ref.url) or self.dataset.cache.holds(ref))

    def tar_index(self, shard_index: int) -> TarIndex | None:
        """Return the tar index of a shard; None if the whole shard would have to be fetched.

        Used by scans of all shards, since a search must not download the dataset.

        Raises:
            WidsError: The shard cannot be opened.
        """
        if not self.num_samples(shard_index):
            return None
        ref = self.dataset.shards[shard_index]
        # Opening a remote shard without a tar index would fetch it, so that is looked for first.
        if self.is_far(ref):
            self.failures.check(shard_index, ref.url)
            try:
                with self.failures.noted(shard_index, ref.url, FetchError):
                    self.dataset.remote_index(shard_index)
            except UnusableIndexError:
                return None
        return self._opened(self.first_index(shard_index))[0].index

    def column(
        self, shard_index: int, indexes: Integers, extension: str, most_nbytes: int
    ) -> list[Data | None]:
        """Return one field of some samples of a shard, read together.

        Args:
            shard_index: Number of the shard.
            indexes: Indexes of samples of that shard in the dataset.
            extension: The field.
            most_nbytes: Bytes of the largest field that is read.

        Returns:
            The bytes; None for a sample without the field, or with a larger one, or whose field
            lies in the shard of a join that cannot be read.

        Raises:
            WidsError: The shard cannot be read.
        """
        shard, where = self._opened(self.first_index(shard_index))
        found: list[Data | None] = [None] * len(indexes)
        if self.joined is not None and may_give(slots_of(self.samples), extension):
            there: dict[int, LocatedSample] = {}
            # Each may lie in a shard of its own, whose errors concern no other.
            for place, index in enumerate(indexes.tolist()):
                with suppress(WidsError, OSError):
                    there[place] = self.locate(index)

            def numbers(located: LocatedSample) -> list[int]:
                its = enumerate(located.fields)
                return [n for n, f in its if f.extension == extension and f.nbytes <= most_nbytes]

            self.fetch_ahead(there.values(), numbers)
            for place, located in there.items():
                with suppress(WidsError, OSError):
                    for number in numbers(located):
                        found[place] = self.read(located, number)
            return found
        rows = indexes - self.first_index(shard_index)
        sizes = shard.index.find_spans(rows, (extension,))[:, 0, 1]
        (places,) = np.nonzero((sizes >= 0) & (sizes <= most_nbytes))
        with self.failures.noted(shard_index, where.shard.url, FetchError):
            samples = shard.read_many(rows[places].tolist(), (extension,))
        for place, sample in zip(places.tolist(), samples, strict=True):
            found[place] = sample[extension]
        return found

    def failing(self) -> list[tuple[int, str]]:
        """Return the shards that just failed, each with the reason."""
        found = (
            (n, self.failures.recent(n, url)) for n, url in enumerate(self.dataset.shards.urls)
        )
        return [(number, failure.message) for number, failure in found if failure]

    def _opened(self, index: int) -> tuple[ReadableShard, SampleLocation]:
        """Return the open shard of a sample, and where it is; fail at once if that just failed."""
        where = self.dataset.locate(index)
        shard_index, ref = where.shard_index, where.shard
        self.failures.check(shard_index, ref.url)
        is_far = self.is_far(ref)
        with self.failures.noted(shard_index, ref.url, WidsError, OSError):
            # What was found in a shard holds for one version of it.
            if self.dataset.dataset_shards.was_changed(shard_index):
                raise ShardChangedError(
                    f"{display_url(ref.url)}: was replaced since it was read first; end "
                    "`wids browse` and start it again"
                )
            shard = self.dataset.dataset_shards.use(shard_index).shard
            # Keys and sizes come from the sidecar alone, so the shard itself is not opened.
            shard.confirm()
        self.failures.forget(shard_index, ref.url)
        if is_far and not shard.is_by_range:
            self.fetched_whole.add(shard_index)
        return shard, where
