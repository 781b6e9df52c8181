"""`SampleFileSystem`: the fields of samples as files of fsspec, for the libraries that use it.

fsspec finds it by the entry point of `wids://` and imports this module when such a URL is opened.
"""

from __future__ import annotations

import errno
import io
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from fsspec.spec import AbstractFileSystem  # type: ignore[import-untyped]

import wids
from wids.base.urls import base_name, is_local, local_path, scheme_of
from wids.reading.shardlist import is_sharded

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from wids.reading.fieldfile import FieldFile
    from wids.views.viewable import Viewable

__all__ = ["SampleFileSystem", "SampleFiles"]

_OF_THIS_MACHINE = {None, "", "file", "local"}
# The keys of a shard take about a megabyte, and a walk needs those of one shard at a time.
_KEPT_SHARDS = 8
# A key of a hostile shard may have thousands of slashes; those behind make no folders.
_MOST_NESTED = 64
_ODD = re.compile(r"[^\w.-]", re.ASCII)
_NO_NAMES = {"", ".", ".."}
_DANGEROUS = {"": "%", ".": "%2E", "..": "%2E%2E"}


class SampleFileSystem(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Read-only file system of the fields of samples: `wids://SHARD/KEY.EXTENSION::DATASET`.

    Args:
        fo: The dataset: its path or URL, as `wids.open` takes it, or an open dataset or view.
        target_protocol: Scheme of the path, which fsspec takes from the URL.
        target_options: Options of fsspec for that scheme; refused, since wids reads by itself.
        options: For `wids.open`. Without `remote=`, remote shards are read by range.

    Raises:
        ValueError: There is no dataset, or options are given that have no effect.

    >>> import tempfile, wids
    >>> folder = tempfile.mkdtemp()
    >>> with wids.ShardWriter(f"{folder}/a-%03d.tar") as writer:
    ...     writer.write({"__key__": "1", ".txt": "one", ".cls": 7})
    >>> files = SampleFileSystem(wids.ShardListDataset(folder))
    >>> files.glob("*/*.txt"), files.cat("a-000.tar/1.txt"), files.size("a-000.tar/1.cls")
    (['a-000.tar/1.txt'], b'one', 1)
    """

    protocol = "wids"
    root_marker = ""
    # Instances are found by the text of their arguments, which two views may have in common.
    cachable = False

    def __init__(
        self,
        fo: Any = "",
        target_protocol: str | None = None,
        target_options: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        if isinstance(fo, str) and not fo:
            raise ValueError(
                "wids://: expected wids://SHARD/KEY.EXTENSION::DATASET, with the path or URL of a "
                "spec, or fsspec.filesystem('wids', fo=dataset); got no dataset"
            )
        if target_options:
            raise ValueError(
                f"wids://: expected no options for {target_protocol}://, got "
                f"{sorted(target_options)}: wids reads specs and shards by itself, with the "
                "credentials that the environment has"
            )
        if hasattr(fo, "open_field"):
            if options:
                raise ValueError(
                    f"wids://: expected a path with options, got {sorted(options)} for a dataset "
                    "that is open already; open it with them"
                )
        else:
            if target_protocol not in _OF_THIS_MACHINE and not scheme_of(fo):
                fo = f"{target_protocol}://{fo}"  # as fsspec found it, which it does not say
            fo = wids.open(fo, **{"remote": "range"} | options)
        self._files = SampleFiles(fo)

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        """Return what is in a folder: at the top one folder a shard, in that the fields."""
        path = self._strip_protocol(path)
        entry = self._files.find(path)
        found = [entry] if entry.size is not None else list(self._files.entries(path))
        return [_info(each) for each in found] if detail else [each.path for each in found]

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Return name, type and size of a file or folder; the size comes from the tar index."""
        return _info(self._files.find(self._strip_protocol(path)))

    def modified(self, path: str) -> datetime:
        """Return when the shard of a file was changed; 1970 where that is not known.

        DuckDB needs a date of each file that it reads whole.
        """
        entry = self._files.find(self._strip_protocol(path))
        url = self._files.samples.locate(entry.sample).shard.url if entry.extension else ""
        known = url and is_local(url) and (shard := local_path(url)).exists()
        return datetime.fromtimestamp(shard.stat().st_mtime if known else 0, UTC)

    def _open(self, path: str, mode: str = "rb", **_: Any) -> io.BufferedReader:
        if mode != "rb":
            raise OSError(errno.EROFS, f"wids:// is read-only, opened with mode {mode!r}", path)
        entry = self._files.find(path)
        if entry.size is None:
            raise IsADirectoryError(errno.EISDIR, "is a folder of samples", path)
        return _SizedReader(self._files.open(entry), entry.size)


class _SizedReader(io.BufferedReader):
    """Buffered file with its size, which `read_block` and `cat_file` of fsspec need."""

    def __init__(self, file: io.RawIOBase, size: int) -> None:
        super().__init__(file)
        self.size = size


def _info(entry: Entry) -> dict[str, Any]:
    kind = "directory" if entry.size is None else "file"
    return {"name": entry.path, "size": entry.size or 0, "type": kind}


class Entry(NamedTuple):
    """A folder, or a file, which is one field of a sample.

    Attributes:
        path: Its path, without a slash at either end; "" is the folder of all shards.
        size: Number of bytes; None for a folder.
        sample: Index of the sample; -1 for a folder.
        extension: The field; "" for a folder.
    """

    path: str
    size: int | None = None
    sample: int = -1
    extension: str = ""


class SampleFiles:
    """The fields of a sequence of samples as files.

    The file of a field is called `SHARD/KEY.EXTENSION`, where slashes in the key make further
    folders. Shards of one name are told apart by a number: the second `a.tar` is `a.tar~2`. Of a
    key that occurs several times in a shard, or a sample that occurs several times in a view, only
    the first is a file. Names and sizes come from the tar index of the one shard that a path names;
    no other is opened, and no field is read.

    Args:
        samples: A dataset or a view.

    >>> import tempfile, wids
    >>> folder = tempfile.mkdtemp()
    >>> with wids.ShardWriter(f"{folder}/a-%03d.tar") as writer:
    ...     writer.write({"__key__": "1", ".txt": "one", ".cls": 7})
    >>> files = SampleFiles(wids.ShardListDataset(folder))
    >>> [entry.path for entry in files.entries("")]
    ['a-000.tar']
    >>> [(entry.path, entry.size) for entry in files.entries("a-000.tar")]
    [('a-000.tar/1.cls', 1), ('a-000.tar/1.txt', 3)]
    >>> files.open(files.find("a-000.tar/1.txt")).read()
    b'one'
    """

    def __init__(self, samples: Viewable) -> None:
        self.samples = samples
        self._shard = lru_cache(_KEPT_SHARDS)(self._read_shard)

    def find(self, path: str) -> Entry:
        """Return the file or folder of a path.

        Raises:
            FileNotFoundError: There is none.
            WidsError: The shard cannot be read.
        """
        if not path:
            return Entry("")
        name, _, rest = path.partition("/")
        if name not in self._runs.numbers:
            raise FileNotFoundError(
                f"{path!r}: expected SHARD/KEY.EXTENSION, found no shard {name!r:.80}; the folder "
                "above lists all of them"
            )
        shard = self._shard(name) if rest else None
        if shard is None or rest in shard.folders:
            return Entry(path)
        start = rest.rfind("/") + 1
        for dot in (position for position in range(start, len(rest)) if rest[position] == "."):
            if (index := shard.indexes.get(rest[:dot])) is not None:
                size = self.samples.field_sizes(index).get(rest[dot:])
                if size is not None:
                    return Entry(path, size, index, rest[dot:])
        raise FileNotFoundError(
            f"{path!r}: expected SHARD/KEY.EXTENSION, found no such field in {name}"
        )

    def entries(self, path: str) -> Iterator[Entry]:
        """Yield what is in a folder: of a shard, its fields in the order of storage.

        Raises:
            FileNotFoundError: There is no such folder.
            NotADirectoryError: It is a file.
            WidsError: The shard cannot be read.
        """
        if self.find(path).size is not None:
            raise NotADirectoryError(f"{path!r}: expected a folder, found a field")
        if not path:
            yield from map(Entry, self._runs.numbers)
            return
        name, _, rest = path.partition("/")
        shard = self._shard(name)
        inner = f"{rest}/" if rest else ""
        yield from (Entry(f"{name}/{inner}{each}") for each in shard.folders[rest])
        for key in shard.keys[rest]:
            index = shard.indexes[key]
            for extension, size in self.samples.field_sizes(index).items():
                yield Entry(f"{name}/{key}{extension}", size, index, extension)

    def open(self, entry: Entry) -> FieldFile:
        """Open a file that `find` or `entries` returned."""
        return self.samples.open_field(entry.sample, entry.extension)

    @cached_property
    def _runs(self) -> _Runs:
        samples = self.samples
        if not is_sharded(samples):
            lengths = np.array(samples.lengths, np.int64)
            starts = zip((np.cumsum(lengths) - lengths).tolist(), lengths.tolist(), strict=True)
            urls = [samples.locate(start).shard.url if count else "" for start, count in starts]
            return _Runs.of(lengths, urls)
        lengths, names = samples.shards.nsamples, _plain_names(samples.shards.urls)
        plain = None if names is None or not lengths.all() else _Runs.named(lengths, names)
        return plain or _Runs.of(lengths, samples.shards.urls)

    def _read_shard(self, name: str) -> _Keys:
        indexes = self._runs.indexes_in(name)
        return _Keys.of(self.samples.keys_at(indexes), indexes.tolist())


@dataclass(frozen=True, slots=True)
class _Runs:
    """Runs of samples from one shard, by the name of its folder; there may be a million.

    Attributes:
        stops: Index after the last sample of each run.
        lengths: Number of samples of each run.
        numbers: Number of the first run of each name.
        further: Numbers of the other runs of a name, if it has any.
    """

    stops: NDArray[np.int64]
    lengths: NDArray[np.int64]
    numbers: dict[str, int]
    further: dict[str, list[int]]

    @classmethod
    def named(cls, lengths: NDArray[np.int64], names: list[str]) -> _Runs | None:
        """Return runs with these names; None if two are equal."""
        numbers = dict(zip(names, range(len(names)), strict=True))
        return cls(np.cumsum(lengths), lengths, numbers, {}) if len(numbers) == len(names) else None

    @classmethod
    def of(cls, lengths: NDArray[np.int64], urls: Iterable[str]) -> _Runs:
        """Return the runs of shards by their URLs; runs without samples have no name."""
        made = cls(np.cumsum(lengths), lengths, {}, {})
        names: dict[str, str] = {}  # by URL
        uses: dict[str, int] = {}
        for run, (length, url) in enumerate(zip(lengths.tolist(), urls, strict=True)):
            if not length:
                continue
            if url not in names:
                base = base_name(url)
                uses[base] = number = uses.get(base, 0) + 1
                names[url] = base if number == 1 else f"{base}~{number}"
            if made.numbers.setdefault(names[url], run) != run:
                made.further.setdefault(names[url], []).append(run)
        return made

    def indexes_in(self, name: str) -> NDArray[np.int64]:
        """Return the indexes of the samples below a name."""
        runs = np.array([self.numbers[name], *self.further.get(name, [])])
        stops = self.stops[runs].tolist()
        starts = (self.stops[runs] - self.lengths[runs]).tolist()
        return np.concatenate([np.arange(*run) for run in zip(starts, stops, strict=True)])


def _plain_names(urls: Sequence[str]) -> list[str] | None:
    """Return the last path component of each URL; None if a shard may be named otherwise."""
    names = [url.rpartition("/")[2] for url in urls]
    if not names or names[0] != base_name(urls[0]) or _ODD.search("".join(names)):
        return None
    longest = max(names, key=len)  # names are cut at a length
    return names if base_name(longest) == longest and not _NO_NAMES & {*names} else None


@dataclass(frozen=True, slots=True)
class _Keys:
    """Keys of one shard.

    Attributes:
        indexes: Index of the sample of each key, which is written as a path.
        folders: Names of the folders in each folder that the slashes in keys make.
        keys: The keys in each of these folders.
    """

    indexes: dict[str, int]
    folders: dict[str, dict[str, None]]
    keys: dict[str, list[str]]

    @classmethod
    def of(cls, keys: list[str], indexes: list[int]) -> _Keys:
        """Sort keys into folders; of equal keys, the first counts."""
        made = cls({}, {"": {}}, {"": []})
        for key, index in zip(keys, indexes, strict=True):
            path = _safe(key) if "/" in key else key
            if made.indexes.setdefault(path, index) == index:
                made.keys[made._folder_of(path)].append(path)
        return made

    def _folder_of(self, path: str) -> str:
        """Return the folder of a key, which is made unless it is there."""
        folder = path.rpartition("/")[0]
        if folder not in self.folders:
            above = ""
            for name in folder.split("/", _MOST_NESTED)[:_MOST_NESTED]:
                self.folders[above][name] = None
                above = f"{above}/{name}" if above else name
                self.folders.setdefault(above, {})
                self.keys.setdefault(above, [])
            folder = above
        return folder


def _safe(key: str) -> str:
    """Return a key as a path that cannot lead out of its folder when it is copied.

    >>> _safe("train/0001"), _safe("../a"), _safe("/a//b")
    ('train/0001', '%2E%2E/a', '%/a/%/b')
    """
    *folders, name = key.split("/")
    return "/".join([*(_DANGEROUS.get(folder, folder) for folder in folders), name])
