"""The shards of a dataset: counted, opened wherever they lie, held open, and let go."""

import logging
import operator
import os
import time
from functools import partial
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from wids.base.progress import progress
from wids.base.shardref import ShardRef
from wids.base.threads import DaemonThreadPool
from wids.base.urls import base_name
from wids.caching.cache import ShardCache
from wids.caching.unpack import is_compressed_name
from wids.errors import CacheError, FetchError, SampleCountError, ShardFormatError
from wids.fetching.transport import is_unreachable
from wids.log import logger
from wids.ordering.lookahead import Foreseeable
from wids.reading.fetchahead import FetchAhead, check_foreseeable
from wids.reading.locate import Locator
from wids.reading.opening import count_kept, open_shard
from wids.reading.openshard import OpenShard
from wids.reading.openshards import OpenShards
from wids.reading.rangeshard import RangeShard, fetch_index, sidecar_url
from wids.reading.scanners import Scanners
from wids.reading.spareshard import KnownShard, SpareShard
from wids.reading.streams import StreamedShard
from wids.specs.shardtable import UNKNOWN, ShardTable
from wids.tar.shard import Shard
from wids.tar.sidecar import SIDECAR_SUFFIX, IndexRules

__all__ = ["HeldShards"]

# Longer than thirty sidecars take on a local disk, shorter than anybody notices.
_FIRST_SECONDS = 0.02


class HeldShards:
    """The part of a dataset that has its shards open; `ShardList` is made of it."""

    shards: ShardTable
    cache: ShardCache
    _index_rules: IndexRules
    _by_range: bool
    dataset_name: str
    _locate: Locator
    _opened: OpenShards[OpenShard]
    _ahead: FetchAhead | None
    _spares = False  # whether shards must be read whose file the cache cannot keep

    def locate_sample(self, index: int) -> tuple[Shard | RangeShard, int, ShardRef]:
        """Find where a sample lies: `(shard, place in the shard, the spec's entry of the shard)`.

        Raises:
            IndexError: There is no such sample.
        """
        shard_index, local_index = self._locate(operator.index(index))
        opened = self._opened[shard_index]
        opened.uses += 1
        return opened.shard, local_index, self.shards[shard_index]

    def get_shard(self, index: int) -> tuple[StreamedShard, int, ShardRef]:
        """Do as `locate_sample`, for old code: `shard[place]` has binary streams for fields.

        Raises:
            IndexError: There is no such sample.
        """
        shard, local_index, description = self.locate_sample(index)
        return StreamedShard(shard), local_index, description

    def fetch_ahead(self, sampler: Foreseeable) -> FetchAhead:
        """Fetch the shards that a sampler is coming to while the present ones are read.

        One thread of this process does so from now on, epoch after epoch, as far ahead as
        `cache_size` allows, until `close`. Call it before a DataLoader starts its workers.

        Args:
            sampler: The one that draws the indexes, in this process; one of this library.

        Returns:
            What tells for how long readers had to wait: `waited_seconds`.

        Raises:
            TypeError: The sampler cannot say what comes next.
            ValueError: It draws from other samples, or the dataset fetches no shards.
            CacheError: The cache folder cannot be used.
        """
        check_foreseeable(sampler, self._locate.total, by_range=self._by_range)
        if self._ahead is not None:
            self._ahead.close()
        self._ahead = FetchAhead(self.cache, self.shards, self._locate.ends, sampler)
        self._spares = self._ahead.crowded
        return self._ahead

    def drop_if_changed(self, shard_index: int) -> None:
        """Forget an open shard that was written to or replaced; the next use opens it anew.

        Reading a sample does not look for this, which would cost more than the sample. It is for
        programs that stay open for hours, beside others that write shards.
        """
        opened = self._opened.get(shard_index)
        if opened is not None and opened.shard.was_changed():
            self._opened.drop(lambda each: each is opened)

    def close(self) -> None:
        """Forget the open shards and close connections; reading afterwards opens them again."""
        if self._ahead is not None:
            self._ahead.close()
        self._ahead = None
        self._opened.clear()
        self.cache.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _open_shard(self, shard_index: int) -> OpenShard:
        """Fetch where needed, index where needed, map, and check that the spec counted right."""
        description = self.shards[shard_index]
        ranged = self._spared(description) if self._spares else self._ranged(description)
        # Not by its truth: a shard without samples is as good as any.
        shard = self._mapped(description) if ranged is None else ranged
        expected = int(self.shards.nsamples[shard_index])
        # Before any sample: a wrong count would shift the index of all that follow.
        if expected not in {UNKNOWN, len(shard)}:
            raise SampleCountError(
                f"{description['url']}: shard {shard_index}: the spec says {expected} samples, the "
                f"shard holds {len(shard)}; a new spec (`wids create`) or another key_rule may help"
            )
        dataset = description.dataset or self.dataset_name
        start = int(self._locate.ends[shard_index]) - len(shard)
        return OpenShard(shard, description.url, dataset, start)

    def _ranged(self, description: ShardRef) -> RangeShard | None:
        """Open a remote shard where it lies; None where it has to be fetched."""
        url = description.url
        if not self._by_range or self.cache.is_local(url):
            return None
        # What is here need not come over the wire again.
        if self.cache.holds(description):
            return None
        index_url = description.index or sidecar_url(url, SIDECAR_SUFFIX)
        try:
            index = fetch_index(index_url, SIDECAR_SUFFIX, self.cache, description)
        except (FetchError, ShardFormatError) as error:
            # A server that keeps silent would only be waited for once more, minutes in all.
            if is_unreachable(error) and not description.index:
                raise
            logger.warning("%s: is fetched whole, for want of a sidecar: %s", url, error)
            return None
        if index.source.rules != self._index_rules:
            made_by = index.source.rules
            logger.warning("%s: is fetched whole: its sidecar was made by %s", url, made_by)
            return None
        bound = self.cache.cache_size
        return RangeShard(
            url,
            index,
            self.cache.fetcher,
            partial(self._mapped, description),
            may_fetch=bound is None or index.source.nbytes <= bound,
            fetch_index=partial(
                fetch_index, index_url, SIDECAR_SUFFIX, self.cache, description, anew=True
            ),
            filesize=description.filesize,
        )

    def _spared(self, description: ShardRef) -> SpareShard | None:
        """Open a remote shard so that the cache need not keep it; None where that cannot be."""
        url, cache = description.url, self.cache
        # The bytes of a compressed shard are not those that come over the wire.
        if cache.is_local(url) or is_compressed_name(base_name(url)):
            return None
        path = KnownShard.place(cache.cache_dir, description)
        known, whole = KnownShard.load(path), None
        if known is None or known.index.source.rules != self._index_rules:
            before = cache.num_fetched
            whole = self._mapped(description)
            try:
                known = KnownShard.of(whole, path)
            except OSError as error:
                logger.warning("%s: what is known of it is not kept: %s", url, error)
                return None
            # What was fetched ahead will be used for longer than what is only passing through.
            if cache.num_fetched > before:
                cache.spare(whole.path)
        return SpareShard(
            url,
            known,
            cache,
            partial(self._mapped, description),
            whole=whole,
            is_here=partial(cache.holds, description),
        )

    def _mapped(self, description: ShardRef, scanners: Scanners | None = None) -> Shard:
        # What was evicted keeps its space on the disk for as long as it is mapped.
        if self.cache.cache_size is not None:
            self._opened.drop(_is_evicted, spare_used=True)
            for opened in list(self._opened.values()):
                if isinstance(opened.shard, SpareShard):
                    opened.shard.let_go()
        try:
            return open_shard(description, self.cache, self._index_rules, scanners)
        except CacheError:
            # The disk may be full of what was evicted for this very shard.
            if not self._opened.drop(_is_evicted):
                raise
        return open_shard(description, self.cache, self._index_rules, scanners)

    def _counted(self, shards: ShardTable) -> ShardTable:
        """Fill in how many samples each shard holds, where the spec does not say.

        Threads fetch the shards; processes scan those that have no sidecar yet.
        """
        unknown = np.flatnonzero(shards.nsamples == UNKNOWN).tolist()
        if not unknown:
            return shards
        far = sum(not self.cache.is_local(shards.urls[row]) for row in unknown)
        # Of remote shards it takes a download, which nobody should have to guess.
        logger.log(
            logging.WARNING if far else logging.INFO,
            "the spec does not say how many samples %d shards hold: counting them%s",
            len(unknown),
            f", for which {far} remote ones are fetched; `wids create` makes a spec that says it"
            if far
            else "",
        )
        nsamples = shards.nsamples.copy()
        unknown = self._count_first(shards, nsamples, unknown)
        if unknown:
            cores = os.cpu_count() or 1
            with Scanners(cores) as scanners, DaemonThreadPool(2 * cores, "wids-shards") as crew:
                counts = crew.map(lambda row: self._count_of(shards[row], scanners), unknown)
                shown = progress(counts, total=len(unknown), desc="indexing shards", unit="shard")
                nsamples[unknown] = list(shown)
        return shards.with_nsamples(nsamples)

    def _count_of(self, description: ShardRef, scanners: Scanners) -> int:
        """Count the samples of a shard of which the spec does not say it."""
        return len(self._mapped(description, scanners))

    def _count_first(
        self, shards: ShardTable, nsamples: npt.NDArray[np.int64], unknown: list[int]
    ) -> list[int]:
        """Count shards with a sidecar into `nsamples`, for a moment; return those that are left."""
        # To start threads and hand over to them takes longer than to look into thirty sidecars on
        # a disk of this machine. On a slow one, threads wait side by side.
        give_up = time.monotonic() + _FIRST_SECONDS
        for place, row in enumerate(unknown):
            if time.monotonic() > give_up:
                return unknown[place:]
            count = count_kept(shards[row], self.cache, self._index_rules)
            if count is None:
                return unknown[place:]
            nsamples[row] = count
        return []

    # Handles don't travel: a worker opens its own.

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": self._opened.limit, "_ahead": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({name: value for name, value in state.items() if name != "_opened"})
        self._opened = OpenShards(state["_opened"], self._open_shard)


def _is_evicted(opened: OpenShard) -> bool:
    """Tell whether the file of an open shard was removed."""
    return isinstance(opened.shard, Shard) and not opened.shard.path.exists()
