"""Construction of new specs: the entries and names of their shards."""

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

__all__ = [
    "name_in_spec",
    "new_spec",
    "refuse_overwriting",
    "refuse_replacing",
    "shard_entry",
    "spec_path_for",
]

_KIND = {"__kind__": "wids-shard-index-v1"}  # as the old widsindex wrote it
_DIGEST_FIELDS = {kind.algorithm: name for name, kind in DIGESTS.items()}


def shard_entry(
    url: str, nsamples: int, filesize: int, digests: Mapping[str, str]
) -> dict[str, Any]:
    """Return the entry of one shard in a spec.

    Args:
        url: Name of the shard, as returned by `name_in_spec`.
        nsamples: Number of samples.
        filesize: Length in bytes.
        digests: The known hexadecimal digests, by `"md5"` and `"sha256"`.

    >>> shard_entry("a.tar", 2, 3072, {"md5": "d41d8cd98f00b204e9800998ecf8427e"})["md5sum"]
    'd41d8cd98f00b204e9800998ecf8427e'
    """
    named = {_DIGEST_FIELDS[algorithm]: digest for algorithm, digest in digests.items()}
    return {"url": url, "nsamples": nsamples, "filesize": filesize, **named}


def new_spec(entries: Iterable[dict[str, Any]], header: Mapping[str, Any]) -> DatasetSpec:
    """Return the spec made of the given entries.

    Args:
        entries: One per shard, in order.
        header: Top-level keys, such as `name`, `info` and `base`; a key with value None is left
            out.
    """
    header = {key: value for key, value in header.items() if value is not None}
    return DatasetSpec(entries, name=header.pop("name", None), header={**_KIND, **header})


def name_in_spec(shard: str, folder: str | os.PathLike[str] | None) -> str:
    """Return the name of a shard for a spec in `folder`, relative if both may move together.

    Args:
        shard: Path or URL, as given.
        folder: Folder of the spec; None keeps the name unchanged.

    >>> name_in_spec("data/a.tar", "data"), name_in_spec("a.tar", "specs")
    ('a.tar', '../a.tar')
    >>> name_in_spec("/mnt/a.tar", "/data"), name_in_spec("s3://bucket/a.tar", "data")
    ('/mnt/a.tar', 's3://bucket/a.tar')

    Raises:
        SpecError: The name cannot stand in a spec, for example because it holds a line break.
    """
    check_location(shard, "rename the shard", "url")
    if folder is None or not is_local(shard):
        return shard
    # Not resolve(): the name is that of a link, not of its target.
    path = Path(os.path.abspath(local_path(shard)))  # noqa: PTH100
    home = Path(os.path.abspath(folder))  # noqa: PTH100
    if path.is_relative_to(home):
        return path.relative_to(home).as_posix()
    return str(path) if Path(shard).is_absolute() else Path(os.path.relpath(path, home)).as_posix()


def spec_path_for(pattern: str) -> str:
    """Return the path of the spec that belongs to shards of a pattern.

    >>> spec_path_for("out/train-%06d.tar"), spec_path_for("%d.tar")
    ('out/train.json', 'shards.json')
    """
    stem = re.sub(r"[-_.]?%0?\d*d\.tar$", "", pattern)
    return f"{stem}shards.json" if not stem or stem.endswith("/") else f"{stem}.json"


def refuse_overwriting(pattern: str, sources: Iterable[str]) -> None:
    """Raise if new shards could overwrite the shards that are read.

    Args:
        pattern: Path of the new shards, with a %-format for their number.
        sources: Paths and URLs of the shards that are read.

    Raises:
        ValueError: A new shard could replace one of `sources`.
    """
    try:
        target_name = Path(pattern % 0).name
    except (TypeError, ValueError):
        return  # no valid pattern; the writer raises the error
    begin = target_name.partition("0")[0]
    for source in sources:
        # Most names differ in their first letters: no disk access is needed for them.
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


def refuse_replacing(spec: Path, sources: Iterable[str]) -> None:
    """Raise if a new spec would replace a spec or a saved view that is read.

    Args:
        spec: Path of the new spec.
        sources: Paths and URLs of what is read.

    Raises:
        ValueError: It is one of `sources`.
    """
    for source in sources if spec.exists() else ():
        old = local_path(source) if is_local(source) else None
        if old is not None and old.exists() and spec.samefile(old):
            raise ValueError(
                f"{spec}: would replace {source}, which is read; write it into another folder, or "
                "under another name"
            )
