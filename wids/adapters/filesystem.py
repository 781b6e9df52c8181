"""`SampleFileSystem`: the fields of samples as files of fsspec, for the libraries that use it.

fsspec finds it by the entry point of `wids://` and imports this module when such a URL is opened.
"""

from __future__ import annotations

import errno
import io
from datetime import UTC, datetime
from typing import Any

from fsspec.spec import AbstractFileSystem  # type: ignore[import-untyped]

import wids
from wids.adapters.samplefiles import Entry, SampleFiles
from wids.base.urls import is_local, local_path, scheme_of

__all__ = ["SampleFileSystem"]

_OF_THIS_MACHINE = {None, "", "file", "local"}


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
