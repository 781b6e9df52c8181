"""What a new spec says of its shards, whoever made them: the writer or `wids create`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wids.base.hashing import DIGESTS
from wids.base.urls import is_local, local_path
from wids.specs.spec import DatasetSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["name_in_spec", "new_spec", "shard_entry"]

_KIND = {"__kind__": "wids-shard-index-v1"}  # the old widsindex wrote it into its specs
_DIGEST_FIELDS = {kind.algorithm: name for name, kind in DIGESTS.items()}


def shard_entry(
    url: str, nsamples: int, filesize: int, digests: Mapping[str, str]
) -> dict[str, Any]:
    """Describe one shard as a spec does.

    Args:
        url: The shard, as `name_in_spec` names it.
        nsamples: How many samples it holds.
        filesize: Its length in bytes.
        digests: `"md5"` and `"sha256"` to hexadecimal digest, as far as they are known.

    >>> shard_entry("a.tar", 2, 3072, {"md5": "d41d8cd98f00b204e9800998ecf8427e"})["md5sum"]
    'd41d8cd98f00b204e9800998ecf8427e'
    """
    named = {_DIGEST_FIELDS[algorithm]: digest for algorithm, digest in digests.items()}
    return {"url": url, "nsamples": nsamples, "filesize": filesize, **named}


def new_spec(entries: Iterable[dict[str, Any]], header: Mapping[str, Any]) -> DatasetSpec:
    """Make a spec of entries.

    Args:
        entries: One per shard, in order.
        header: Top-level keys, such as `name`, `info` and `base`; None leaves one out.
    """
    header = {key: value for key, value in header.items() if value is not None}
    return DatasetSpec(entries, name=header.pop("name", None), header={**_KIND, **header})


def name_in_spec(shard: str, folder: str | os.PathLike[str] | None) -> str:
    """Name a shard so that a spec in `folder` finds it, also after both were moved together.

    Args:
        shard: Path or URL, as it was given.
        folder: Where the spec will lie; None leaves every name as it is.

    >>> name_in_spec("data/a.tar", "data"), name_in_spec("a.tar", "specs")
    ('a.tar', '../a.tar')
    >>> name_in_spec("/mnt/a.tar", "/data"), name_in_spec("s3://bucket/a.tar", "data")
    ('/mnt/a.tar', 's3://bucket/a.tar')
    """
    if folder is None or not is_local(shard):
        return shard
    # Not resolve(): a link is named, not what it points to.
    path = Path(os.path.abspath(local_path(shard)))  # noqa: PTH100
    home = Path(os.path.abspath(folder))  # noqa: PTH100
    if path.is_relative_to(home):
        return path.relative_to(home).as_posix()
    return str(path) if Path(shard).is_absolute() else Path(os.path.relpath(path, home)).as_posix()
