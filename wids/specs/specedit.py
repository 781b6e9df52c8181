"""Edits of a JSON spec: names, bases and folders, without reading a shard."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from wids.base.files import write_output
from wids.base.urls import display_url
from wids.errors import SpecError
from wids.specs.locations import folder_of, join

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["edit_spec", "read_document", "rebase", "rename_folder"]


def edit_spec(
    path: Path, changes: dict[str, Any], *, folder: str | None = None, rebased: bool = False
) -> dict[str, Any] | None:
    """Edit a spec in place; the old one stays beside it as `<name>.bak`.

    Args:
        path: The JSON spec.
        changes: Top-level keys to set.
        folder: Put in place of the folder of every shard's URL; "" leaves only file names. None
            leaves the URLs alone.
        rebased: Make the folder that all shards share the `base`, and the URLs file names.

    Returns:
        The spec as it was written; None where it says all this already, and was left alone.

    Raises:
        SpecError: It is no spec, its shards share no folder, or two of them share a file name.
        OSError: It cannot be read or written.
    """
    old = path.read_bytes()
    # As it stands, not as it is understood: what is not asked for must not be rewritten.
    document = read_document(path)
    document |= changes
    document.setdefault("name", path.stem)
    if rebased:
        document["base"] = rebase(document["shardlist"], str(path), document.get("base"))
        folder = ""
    if folder is not None:
        rename_folder(document["shardlist"], folder)
    if document == read_document(path):
        return None
    # First the backup: a crash between the two leaves the old spec under both names.
    write_output(path.with_name(f"{path.name}.bak"), old)
    write_output(path, f"{json.dumps(document, indent=2)}\n".encode())
    return document


def read_document(path: Path) -> dict[str, Any]:
    """Return a JSON spec as it stands, with nothing resolved.

    Args:
        path: The JSON spec.

    Raises:
        SpecError: It is no JSON, or has no `shardlist` of objects with a `url`.
    """
    try:
        document = json.loads(path.read_bytes())
    except ValueError as error:
        raise SpecError(f"{path}: is no JSON ({error})") from None
    shardlist = document.get("shardlist") if isinstance(document, dict) else None
    if not isinstance(shardlist, list) or not all(
        isinstance(shard, dict) and isinstance(shard.get("url"), str) for shard in shardlist
    ):
        raise SpecError(f"{path}: expected a 'shardlist' of objects with a 'url'")
    return dict(document)


def rename_folder(shardlist: list[dict[str, Any]], folder: str) -> None:
    """Replace the folder of each shard's URL, and sort by URL.

    Raises:
        SpecError: Two shards would get one URL.

    >>> shards = [{"url": "https://host/old/a.tar"}]
    >>> rename_folder(shards, "/data")
    >>> shards
    [{'url': '/data/a.tar'}]
    """
    first: dict[str, str] = {}
    for shard in shardlist:
        old, file = shard["url"], _file_of(shard["url"])
        shard["url"] = f"{folder.rstrip('/')}/{file}" if folder else file
        # Without their folders, `a/0.tar` and `b/0.tar` would both be the shard of one of them.
        if first.setdefault(shard["url"], old) != old:
            raise SpecError(
                f"{display_url(first[shard['url']])} and {display_url(old)} would both become "
                f"{display_url(shard['url'])}; expected distinct file names: rename one of the two"
            )
    shardlist.sort(key=lambda shard: str(shard["url"]))


def _file_of(url: str) -> str:
    location, question_mark, query = url.partition("?")
    return location.rpartition("/")[2] + question_mark + query


def rebase(shardlist: list[dict[str, Any]], source: str, base: str | None) -> str:
    """Return the one folder that all shards lie in.

    Args:
        shardlist: The shards, with URLs that count from `base`.
        source: Path of the spec.
        base: The spec's own base, if it has one.

    Raises:
        SpecError: They lie in several folders, or there are none.

    >>> rebase([{"url": "sets/a.tar"}, {"url": "sets/b.tar"}], "/data/x.json", None)
    '/data/sets'
    """
    home = join(folder_of(source), base or "") if base else folder_of(source)
    folders = sorted({folder_of(join(home, shard["url"])) for shard in shardlist})
    if len(folders) != 1:
        raise SpecError(
            f"{source}: expected all shards in one folder, found {len(folders)}: "
            f"{[display_url(each) for each in folders[:5]]}"
        )
    return folders[0]
