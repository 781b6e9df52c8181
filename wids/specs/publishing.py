"""Publication of a spec and its indexes to another folder, or to a bucket."""

from __future__ import annotations

import re
from contextlib import closing
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from wids.base.files import write_output
from wids.base.threads import DaemonThreadPool
from wids.base.urls import display_url, is_local, local_path, scheme_of
from wids.fetching.fetch import Fetcher
from wids.fetching.transport import AbsentError, BeyondEndError, ExistsError
from wids.specs.specedit import read_document

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["check_publishable", "publish"]

_AT_ONCE = 16  # files that are put at once


def check_publishable(
    shards: Sequence[str],
    url: str,
    name: str,
    *,
    replace: bool = False,
    resumed: Path | None = None,
) -> None:
    """Raise unless a spec of these shards can be published.

    Args:
        shards: Locations of the shards.
        url: Folder to publish to.
        name: File name of the spec.
        replace: A spec that is there will be replaced.
        resumed: Spec of an earlier run; where one of the same bytes is there, that run put it.

    Raises:
        ValueError: A shard is local, so that its location means nothing elsewhere.
        ExistsError: There is a spec already.
        FetchError: No file can be put there, or the store does not answer.
    """
    local = next(filter(is_local, shards), None)
    if local is not None:
        raise ValueError(
            f"{display_url(local)}: is a local shard, which readers of a published spec would not "
            "find; upload the shards, and index them where they are then"
        )
    _check_free(_target(url, name), replace=replace, own=resumed)


def _check_free(target: str, *, replace: bool, own: Path | None) -> None:
    """Raise if there is another spec than an own one, which is not to be replaced."""
    if _is_there(target) and not replace and not _is_copy(target, own):
        raise ExistsError(
            f"{display_url(target)}: there is a spec already; publish to another folder, under "
            "another name, or with --overwrite"
        )


def _is_there(url: str) -> bool:
    """Return whether there is a file; raise FetchError if none can be put there."""
    if is_local(url):
        return local_path(url).exists()
    with closing(Fetcher()) as fetcher:
        fetcher.sink(url)
        try:
            fetcher.read_ranges(url, [(0, 1)])
        except AbsentError:
            return False
        except BeyondEndError:  # an empty file
            return True
        return True


def _is_copy(url: str, file: Path | None) -> bool:
    """Return whether a file that is there has the bytes of a local one."""
    if file is None or not file.is_file():
        return False
    if is_local(url):
        return local_path(url).read_bytes() == file.read_bytes()
    with closing(Fetcher()) as fetcher:
        return fetcher.read(url) == file.read_bytes()


def publish(spec: Path, url: str, *, replace: bool = False) -> int:
    """Put a spec, and the indexes that it names by relative paths, to another place.

    The spec comes last, so that it never names an index that is not there.

    Args:
        spec: The spec; files that it names lie below its folder.
        url: Folder to publish to, of this machine or of a bucket.
        replace: Replace a spec that is there.

    Returns:
        Number of files that were put.

    Raises:
        ValueError: An index lies outside of the folder of the spec.
        ExistsError: There is a spec already, and it is not to be replaced.
        FetchError: No file can be put there.
    """
    names = _named_files(spec)
    # Before its indexes replace those of the spec that is there.
    _check_free(_target(url, spec.name), replace=replace, own=spec)
    with closing(Fetcher()) as fetcher, DaemonThreadPool(_AT_ONCE, "wids-publish") as pool:
        # An index is checked against its shard where it is used, so that an older one of the same
        # name is replaced without asking.
        put_index = partial(_put, spec.parent, url, fetcher, replace=True)
        for _ in pool.map(put_index, names):
            pass
        _put(spec.parent, url, fetcher, spec.name, replace=replace)
    return len(names) + 1


def _named_files(spec: Path) -> list[str]:
    """Return the files that a spec names by relative paths."""
    document = read_document(spec)
    entries: list[dict[str, Any]] = [document, *document["shardlist"]]
    named = {entry.get("index") for entry in document["shardlist"]}
    named |= {re.sub(r"#\d+$", "", entry["pack"]) for entry in entries if entry.get("pack")}
    names = sorted(name for name in named if name and not scheme_of(name))
    for name in names:
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise ValueError(
                f"{name}: lies outside of the folder of {spec}, so it would be at another place "
                "when published; name a folder beside the spec by --index or --pack"
            )
    return names


def _put(folder: Path, url: str, fetcher: Fetcher, name: str, *, replace: bool) -> None:
    target = _target(url, name)
    if not is_local(target):
        fetcher.put(target, folder / name, replace=replace)
        return
    path = local_path(target)
    if path.exists() and not replace and path.read_bytes() != (folder / name).read_bytes():
        raise ExistsError(f"{path}: is there already")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_output(path, (folder / name).read_bytes())


def _target(url: str, name: str) -> str:
    return f"{url.rstrip('/')}/{name}"
