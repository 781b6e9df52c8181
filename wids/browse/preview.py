"""The first samples of a remote dataset, from the head of its first shard.

A remote shard without a sidecar is fetched whole before a sample of it is read, and shards without
`nsamples` are fetched to be counted. Until then, the page shows the samples in the first megabytes.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wids.base.urls import display_url, is_local
from wids.base.warn import held_warnings
from wids.browse.fieldreader import PATIENCE, FieldReader
from wids.browse.handlers import ApiHandlers
from wids.errors import WidsError
from wids.fetching.fetch import Fetcher
from wids.reading.shardlist import ShardList
from wids.specs.indexrules import rules_of
from wids.specs.merging import class_names
from wids.specs.sources import load_spec
from wids.tar.salvage import keep_whole_samples

if TYPE_CHECKING:
    from collections.abc import Mapping

    from wids.base.shardref import ShardRef
    from wids.specs.spec import DatasetSpec

__all__ = ["Preview", "remote_spec"]

_ENOUGH_NBYTES = 4 << 20
_SOON_SECONDS = 1.5  # after which fewer bytes are enough
_MOST_NBYTES = 64 << 20  # for the first sample
_MOST_LOOKED_AT = 1000  # shards whose arrival is looked up for the progress


def remote_spec(source: str) -> DatasetSpec | None:
    """Return the spec of a dataset whose first shard is remote; None for any other source."""
    try:
        with held_warnings([]):  # they are issued where the dataset is opened
            spec = load_spec(source)
    except (WidsError, OSError, ValueError):
        return None
    return spec if len(spec.shards) and not is_local(spec.shards.urls[0]) else None


class Preview:
    """The first samples of a dataset, as a dataset of their own.

    Args:
        spec: The dataset, whose first shard is remote.
        title: Title of the page.
        names: Names of classes, by number; by default those of the spec.
        cache_dir: Cache folder of the dataset.
        rules: Rules by which members become samples, where they are not those of the spec.

    Attributes:
        handlers: Endpoints over the samples.

    Raises:
        WidsError: The head of the shard cannot be fetched, or holds no whole sample.
        OSError: It cannot be stored.
    """

    def __init__(
        self,
        spec: DatasetSpec,
        title: str,
        *,
        names: Mapping[int, str] | None = None,
        cache_dir: str | None = None,
        rules: Mapping[str, Any],
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="wids-head-")
        self._shards: list[ShardRef] = [
            spec.shards[n] for n in range(min(len(spec.shards), _MOST_LOOKED_AT))
        ]
        self._num_shards = len(spec.shards)
        path = Path(self._folder.name) / "head.tar"
        try:
            used = rules_of(spec.header, **rules)
            _fetch_head(spec.shards.urls[0], path, used["key_rule"])
            self._dataset = ShardList(
                [str(path)], transformations="memoryview", cache_dir=cache_dir, **used
            )
        except BaseException:
            self._folder.cleanup()
            raise
        named = class_names(spec.header) if names is None else names
        self.handlers = ApiHandlers(FieldReader(self._dataset), title, named)

    def progress(self) -> dict[str, Any]:
        """Return how much of the dataset is on this machine, as JSON."""
        cache, here, arrived = self._dataset.cache, 0, 0
        for ref in self._shards:
            if cache.is_local(ref.url) or cache.holds(ref):
                here += 1
            else:
                arrived += cache.arrived_nbytes(ref)
        return {"num_shards": self._num_shards, "shards_here": here, "arrived": arrived}

    def close(self) -> None:
        """Stop its work, and remove the samples."""
        self.handlers.close()
        self._dataset.close()
        with suppress(OSError):
            self._folder.cleanup()


def _fetch_head(url: str, path: Path, key_rule: Any) -> None:
    """Write the samples in the first bytes of a shard: as many as come soon, but at least one."""
    fetcher = Fetcher(PATIENCE)
    began = time.monotonic()
    head = bytearray()
    try:
        for chunk in fetcher.read_head(url, _MOST_NBYTES):
            head += chunk
            soon = time.monotonic() - began < _SOON_SECONDS
            if len(head) < _ENOUGH_NBYTES and soon:
                continue
            path.write_bytes(head)
            if keep_whole_samples(path, key_rule):
                return
        path.write_bytes(head)
        if not keep_whole_samples(path, key_rule):
            raise WidsError(
                f"{display_url(url)}: expected a whole sample in the first {len(head)} bytes"
            )
    finally:
        fetcher.close()
