"""New specs: the entries and names of their shards."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wids.base.hashing import DIGESTS
from wids.base.urls import is_local, local_path
from wids.specs.rows import check_location
from wids.specs.spec import DatasetSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["name_in_spec", "new_spec", "refuse_overwriting", "shard_entry"]

_KIND = {"__kind__": "wids-shard-index-v1"}  # the old widsindex wrote it into its specs
_DIGEST_FIELDS = {kind.algorithm: name for name, kind in DIGESTS.items()}


def shard_entry(
    url: str, nsamples: int, filesize: int, digests: Mapping[str, str]
) -> dict[str, Any]:
    """Return the entry of one shard in a spec.

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
    """Return a spec of entries.

    Args:
        entries: One per shard, in order.
        header: Top-level keys, such as `name`, `info` and `base`; None leaves one out.
    """
    header = {key: value for key, value in header.items() if value is not None}
    return DatasetSpec(entries, name=header.pop("name", None), header={**_KIND, **header})


def name_in_spec(shard: str, folder: str | os.PathLike[str] | None) -> str:
    """Return the name of a shard in a spec in `folder`, relative where both may move together.

    Args:
        shard: Path or URL, as it was given.
        folder: Where the spec will lie; None leaves every name as it is.

    >>> name_in_spec("data/a.tar", "data"), name_in_spec("a.tar", "specs")
    ('a.tar', '../a.tar')
    >>> name_in_spec("/mnt/a.tar", "/data"), name_in_spec("s3://bucket/a.tar", "data")
    ('/mnt/a.tar', 's3://bucket/a.tar')

    Raises:
        SpecError: No spec can name the shard, since its path holds a line break or the like.
    """
    check_location(shard, "rename the shard", "url")
    if folder is None or not is_local(shard):
        return shard
    # Not resolve(): a link is named, not what it points to.
    path = Path(os.path.abspath(local_path(shard)))  # noqa: PTH100
    home = Path(os.path.abspath(folder))  # noqa: PTH100
    if path.is_relative_to(home):
        return path.relative_to(home).as_posix()
    return str(path) if Path(shard).is_absolute() else Path(os.path.relpath(path, home)).as_posix()


def refuse_overwriting(pattern: str, sources: Iterable[str]) -> None:
    """Refuse to write new shards over those that are still to be read.

    Args:
        pattern: Path of the new shards, with a place for their number.
        sources: Paths and URLs of what is read.

    Raises:
        ValueError: A new shard could get the name of one of them, and replace it.
    """
    try:
        target_name = Path(pattern % 0).name
    except (TypeError, ValueError):
        return  # no pattern at all, which the writer says
    begin = target_name.partition("0")[0]
    for source in sources:
        # Most names differ in their first letters: they are told apart without asking the disk.
        if not is_local(source) or not local_path(source).name.startswith(begin):
            continue
        path = local_path(source)
        for digits in set(re.findall(r"\d+", str(path))):
            target = Path(pattern % int(digits))
            if target.name == path.name and target.resolve() == path.resolve():
                raise ValueError(
                    f"{pattern}: would replace {path}, from which samples are read; write the new "
                    "shards into another folder, or under another name"
                )
