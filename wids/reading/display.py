"""What a dataset shows of itself: in one line, in a notebook, and one sample at a time."""

from __future__ import annotations

import io
import os
import tarfile
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

from wids.base.text import clean, format_nbytes
from wids.base.urls import display_url, is_local, local_path
from wids.specs.locations import folder_of
from wids.specs.shardtable import UNKNOWN
from wids.tar.grouping import split_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from wids.base.shardref import ShardRef
    from wids.caching.cache import ShardCache
    from wids.display.notebook import DatasetFacts
    from wids.display.sampleview import SampleView
    from wids.reading.locate import Locator
    from wids.specs.shardtable import ShardTable
    from wids.tar.grouping import KeyRule
    from wids.tar.sidecar import IndexRules

__all__ = ["Displayed", "first_fields", "nbytes_of"]

# A glance, and little enough to be read for every `repr` in a notebook.
GRID_SAMPLES = 12
GRID_FIELD_NBYTES = 8 << 20  # larger fields are left out of the grid, unread
MAX_STATS = 10_000  # files whose size is asked for; in a tenth of a second or so
# More fields than samples have; a `repr` must not read a shard whose samples are never complete.
PEEKED_MEMBERS = 32
MAX_HEADER_NBYTES = 1 << 16  # of what names the next member of a tar, where a repr looks


class Displayed:
    """The part of a dataset that shows it; `ShardList` is made of it.

    Nothing here fetches a shard unless `show` is asked for a sample of it.
    """

    shards: ShardTable
    cache: ShardCache
    base: str
    dataset_name: str
    _fields: tuple[str, ...] | None
    _header: Mapping[str, Any]
    _index_rules: IndexRules
    _by_range: bool
    _locate: Locator

    def show(self, index: int = 0) -> SampleView:
        """Show one sample: in a notebook as a table with pictures, else as lines of text.

        The fields are shown as they are stored, whatever the transformations would make of them.

        Args:
            index: Global index; a negative one counts from the end.

        Raises:
            IndexError: There is no such sample.
            FetchError: Its shard is remote, and could not be fetched.
            ShardFormatError: Its shard is no tar, or breaks off.
        """
        return self._view_sample(index, None)

    def _view_sample(self, index: int, most_nbytes: int | None) -> SampleView:
        """View a sample, perhaps without its larger fields."""
        from wids.display.sampleview import SampleView

        shard, local_index, entry = self.locate_sample(index)
        fields = self._fields
        if most_nbytes is not None:
            fields = tuple(
                extension
                for extension, _, size in shard.index.fields(local_index)
                if size <= most_nbytes and (fields is None or extension in fields)
            )
        sample = shard.read(local_index, fields)
        sample["__index__"] = index if index >= 0 else index + self._locate.total
        sample["__shard__"] = display_url(entry["url"])
        sample["__shardindex__"] = local_index
        return SampleView.of(sample, self.class_names)

    @cached_property
    def class_names(self) -> dict[int, str]:
        """Name of each class by its number, from the spec or a file beside it; may be empty."""
        from wids.display.classnames import find_class_names

        # A folder or a list of shards has no base, and files may lie beside its shards.
        first = folder_of(self.shards.urls[0]) or os.curdir if len(self.shards) else ""
        return find_class_names(self._header, self.base, first)

    def locate_sample(self, index: int) -> tuple[Any, int, ShardRef]:
        """Find where a sample lies; a dataset says how."""
        raise NotImplementedError

    def __repr__(self) -> str:
        facts = self._facts()
        counts = ((facts.nsamples, "sample"), (facts.nshards, "shard"))
        parts = [
            repr(facts.name),
            *(f"{count} {noun}{'s' * (count != 1)}" for count, noun in counts),
        ]
        if facts.nbytes is not None:
            parts.append(format_nbytes(facts.nbytes))
        if facts.fields:
            parts.append(" ".join(clean(name, 40) for name, _ in facts.fields))
        return f"{facts.kind}({', '.join(parts)})"

    def _repr_html_(self) -> str:
        from wids.display.notebook import dataset_html

        first = range(min(GRID_SAMPLES, self._locate.total))
        near = [index for index in first if self._is_near(index)]
        note = None
        if len(near) < len(first):
            note = "The first shard is not here yet; show(0) fetches it and shows a sample."
        samples = [self._sample_or_error(index) for index in near]
        return dataset_html(self._facts(), samples, note)

    def _sample_or_error(self, index: int) -> SampleView | Exception:
        try:
            return self._view_sample(index, GRID_FIELD_NBYTES)
        except Exception as error:  # noqa: BLE001 (a damaged shard is shown as such)
            return error

    def _is_near(self, index: int) -> bool:
        """Tell whether a sample can be shown without fetching a whole shard for it."""
        shard_index, _ = self._locate(index)
        entry = self.shards[shard_index]
        url = entry["url"]
        return is_local(url) or self._by_range or self.cache.holds(entry)

    def _facts(self) -> DatasetFacts:
        from wids.display.notebook import DatasetFacts

        return DatasetFacts(
            kind=type(self).__name__,
            name=str(self.dataset_name),
            nsamples=self._locate.total,
            nshards=len(self.shards),
            nbytes=nbytes_of(self.shards, look=self.cache.localname is None),
            fields=self._first_fields(),
        )

    def _first_fields(self) -> list[tuple[str, int]] | None:
        """Peek at the fields of the first sample, where its shard is a file of this machine.

        Of a remote shard nothing is said, even when it is in the cache: loaders such as Grain's
        compare the `repr` of a dataset with that of an earlier run.
        """
        # With members all over the shard, its first headers say nothing of a whole sample.
        if not self._locate.total or self._index_rules["grouping"] != "adjacent":
            return None
        url = self.shards.urls[self._locate(0)[0]]
        if not is_local(url) or self.cache.localname is not None:
            return None
        try:
            path = self.cache.starting_folder.path_of(url)
            found = first_fields(path, self._index_rules["key_rule"])
        except (OSError, ValueError, tarfile.TarError):
            return None
        wanted = self._fields
        return [field for field in found if wanted is None or field[0] in wanted]


def nbytes_of(shards: ShardTable, *, look: bool = True) -> int | None:
    """Add up the bytes of all shards: as the spec says them, else of the files of this machine.

    Args:
        shards: The shards.
        look: Whether to ask for sizes that the spec does not say.

    Returns:
        The sum; None where some are remote, missing, or too many to look at.
    """
    unknown = (shards.filesize == UNKNOWN).nonzero()[0].tolist()
    urls = [shards.urls[row] for row in unknown[: MAX_STATS + 1]]
    if urls and (not look or len(urls) > MAX_STATS or not all(map(is_local, urls))):
        return None
    try:
        found = sum(local_path(url).stat().st_size for url in urls)
    except OSError:
        return None
    return found + int(shards.filesize[shards.filesize != UNKNOWN].sum())


def first_fields(path: Path, key_rule: KeyRule) -> list[tuple[str, int]]:
    """Read the fields of the first sample of a shard from its first few headers.

    Args:
        path: A tar. One that is compressed, or whose headers are strange, has no fields here.
        key_rule: Which dot parts key and extension.

    Returns:
        `(extension, bytes)` of each, in archive order.

    Raises:
        OSError: It cannot be read.
        tarfile.TarError: It is no tar.
    """
    first_key, fields = None, []
    for name, size in islice(_members(path), PEEKED_MEMBERS):
        parts = split_name(name.encode("utf-8", "surrogateescape"), key_rule)
        if isinstance(parts, str):
            continue
        if first_key not in {None, parts[0]}:
            break
        first_key = parts[0]
        fields.append((parts[1].decode("utf-8", "surrogateescape"), size))
    return fields


def _members(path: Path) -> Iterator[tuple[str, int]]:
    """Yield name and size of the files in a tar, one header at a time."""
    with _Headers(path) as stream, tarfile.open(fileobj=stream, mode="r:") as archive:
        for member in archive:
            if member.isfile():
                yield member.name, member.size


class _Headers(io.FileIO):
    """A file of which only headers are read: tarfile would take a gigabyte for a name."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Read as files do, within a bound."""
        if size is None or not 0 <= size <= MAX_HEADER_NBYTES:
            raise tarfile.ReadError(f"a header of {size} bytes")
        return super().read(size)
