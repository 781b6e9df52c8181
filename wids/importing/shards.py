"""Shards as others wrote them: any tar, from anywhere, its members in any order."""

from __future__ import annotations

import shutil
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING, Any

from wids.caching.unpack import compression_of
from wids.errors import ShardFormatError
from wids.importing.layout import Imported
from wids.specs.build import local_copy
from wids.tar.shard import Shard
from wids.tar.sidecar import IndexRules
from wids.tar.tarindex import TarIndex

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from wids.tar.grouping import Grouping, KeyRule

__all__ = ["open_shards"]

_SUFFIXES = {"gzip": ".tar.gz", "zstd": ".tar.zst"}


def open_shards(
    sources: Sequence[str],
    *,
    stdin: IO[bytes] | None = None,
    key_rule: KeyRule = "first_dot",
    grouping: Grouping = "adjacent",
    concatenated: bool = False,
) -> Imported:
    """Open shards, one after the other.

    Args:
        sources: Paths and URLs of tars, packed or not; `-` is the standard input.
        stdin: What `-` reads: one archive, or several end to end as `cat` joins them.
        key_rule: "first_dot" (`a.seg.png` is field `.seg.png` of `a`) or "last_dot".
        grouping: "shard" brings the members of a sample together from all over their shard;
            "adjacent" takes it for an error that they do not follow each other.
        concatenated: Read the archives behind the end of the first; for `-` that is always so.

    Returns:
        Samples with their fields as they are, in the order of the shards.

    Raises:
        FetchError: While the samples are read: a shard could not be fetched.
        ShardFormatError: While the samples are read: one is damaged, or members of a sample lie
            apart.
    """
    rules = IndexRules(key_rule=key_rule, grouping=grouping, concatenated=concatenated)
    return Imported(_samples(sources, stdin, rules), shards=tuple(sources))


def _samples(
    sources: Sequence[str], stdin: IO[bytes] | None, rules: IndexRules
) -> Iterator[dict[str, Any]]:
    for source in sources:
        with ExitStack() as stack:
            # A tar is read at random, so what comes as a stream lies on the disk for a while.
            here = _spooled(stdin) if source == "-" and stdin is not None else local_copy(source)
            path = stack.enter_context(here)
            # `cat a.tar b.tar | ...` is one stream; in a file, a second archive may be a mistake.
            if source == "-":
                rules = {**rules, "concatenated": True}
            index = TarIndex.from_tar(path, **rules)
            shard = stack.enter_context(Shard(path, index))
            for place in range(len(shard)):
                yield shard.read(place)


@contextmanager
def _spooled(stream: IO[bytes]) -> Iterator[Path]:
    """Have a stream as a file for a while, unpacked if need be."""
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
