"""Importer of tars, local or remote, plain or compressed, with members in any order."""

from __future__ import annotations

import shutil
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING, Any

from wids.base.omissions import Omissions
from wids.base.urls import display_url
from wids.caching.cache import local_copy
from wids.caching.download import compression_of
from wids.errors import ShardFormatError
from wids.importing.options import Imported, ImportOptions
from wids.specs.classnames import find_class_names
from wids.specs.merging import listed_classes
from wids.specs.sources import entries_at
from wids.tar.shard import Shard
from wids.tar.tarindex import TarIndex

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
__all__ = ["open_shards"]

_SUFFIXES = {"gzip": ".tar.gz", "zstd": ".tar.zst"}


def open_shards(
    sources: Sequence[str],
    options: ImportOptions | None = None,
    *,
    stdin: IO[bytes] | None = None,
) -> Imported:
    """Open shards as one source.

    Args:
        sources: Paths, URLs, folders and patterns of tars, plain or compressed; `-` is the standard
            input.
        options: With the grouping "shard", the members of a sample may be anywhere in their shard;
            with "adjacent", members that do not follow each other are an error. `concatenated`
            also reads archives after the end of the first one, as is always done for `-`.
        stdin: Stream that `-` reads, with one archive or several joined by `cat`; by default the
            standard input.

    Returns:
        Samples with unchanged fields, in the order of the shards. The header has the class names
        that lie beside local shards.

    Raises:
        FetchError: While the samples are read: a shard cannot be downloaded.
        ShardFormatError: While the samples are read: a shard is damaged, or the members of a
            sample are not adjacent.
    """
    options = options or ImportOptions()
    shards = [entry["url"] for source in sources for entry in entries_at(source)]
    omissions = Omissions(strict=options.strict)
    samples = _samples(shards, stdin or sys.stdin.buffer, options, omissions)
    names = {} if "-" in shards else find_class_names({}, shards=shards, remote=False)
    header = {"classes": listed_classes(names)} if names else {}
    return Imported(samples, header, shards=tuple(shards), omissions=omissions)


def _samples(
    sources: Sequence[str], stdin: IO[bytes], options: ImportOptions, omissions: Omissions
) -> Iterator[dict[str, Any]]:
    for source in sources:
        with ExitStack() as stack:
            # Tars are read by random access, so a stream is copied to a temporary file first.
            path = stack.enter_context(_spooled(stdin) if source == "-" else local_copy(source))
            # `cat a.tar b.tar | ...` is one stream; in a file, a second archive may be a mistake.
            concatenated = options.concatenated or source == "-"
            index = TarIndex.from_tar(
                path,
                grouping=options.grouping,
                key_rule=options.key_rule,
                concatenated=concatenated,
                quiet=True,  # counted below
            )
            omissions.add_members(index.skipped, source)
            if index.source.doubt:
                what = "ends of tars, where samples may have been"
                omissions.add(what, f"{display_url(source)} ({index.source.doubt})")
            shard = stack.enter_context(Shard(path, index))
            for local_index in range(len(shard)):
                yield shard.read(local_index)


@contextmanager
def _spooled(stream: IO[bytes]) -> Iterator[Path]:
    """Context manager that copies a stream to a temporary plain tar."""
    with TemporaryDirectory(prefix="wids-") as folder:
        head = stream.read(512)
        suffix = _SUFFIXES.get(compression_of(head) or "", ".tar")
        path = Path(folder, f"stdin{suffix}")
        with path.open("wb") as file:
            file.write(head)
            shutil.copyfileobj(stream, file, 1 << 20)
        if not head:
            raise ShardFormatError("the standard input is empty; expected a tar archive")
        if suffix == ".tar":
            yield path
            return
        with local_copy(str(path), Path(folder, "unpacked")) as unpacked:
            yield unpacked
