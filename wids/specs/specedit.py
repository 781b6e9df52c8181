"""Editing of the names, bases and folders in a JSON spec, without reading a shard."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from wids.base.files import write_output
from wids.base.urls import display_url
from wids.errors import SpecError
from wids.specs.locations import folder_of, join, natural_order
from wids.specs.rows import unique_keys

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["edit_spec", "read_document", "rebase", "rename_folder"]


def edit_spec(
    path: Path, changes: dict[str, Any], *, folder: str | None = None, rebased: bool = False
) -> dict[str, Any] | None:
    """Edit a spec in place; the old version is kept beside it as `<name>.bak`.

    Args:
        path: The JSON spec.
        changes: Top-level keys to set.
        folder: Folder that replaces that of every shard's URL; "" leaves only file names. None
            leaves the URLs unchanged.
        rebased: Set `base` to the common folder of all shards, and reduce URLs to file names.

    Returns:
        The spec as written; None if nothing had to be changed, and the file was not touched.

    Raises:
        SpecError: The file is not a spec, its shards do not lie in one folder, or two of them have
            the same file name.
        OSError: The file cannot be read or written.
    """
    old = path.read_bytes()
    # The raw JSON, not the parsed spec: parts that the caller did not name must stay as written.
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
    # The backup comes first: a crash between the two writes leaves the old spec under both names.
    write_output(path.with_name(f"{path.name}.bak"), old)
    write_output(path, f"{json.dumps(document, indent=2)}\n".encode())
    return document


def read_document(path: Path) -> dict[str, Any]:
    """Return the JSON of a spec without resolving anything.

    Args:
        path: The JSON spec.

    Raises:
        SpecError: The file is not JSON, has a key twice in an object, or has no `shardlist` of
            objects with a `url`.
    """
    try:
        document = json.loads(path.read_bytes(), object_pairs_hook=unique_keys(str(path)))
    except SpecError:
        raise
    except ValueError as error:
        raise SpecError(f"{path}: expected JSON ({error})") from None
    shardlist = document.get("shardlist") if isinstance(document, dict) else None
    if not isinstance(shardlist, list) or not all(
        isinstance(shard, dict) and isinstance(shard.get("url"), str) for shard in shardlist
    ):
        raise SpecError(f"{path}: expected a 'shardlist' of objects with a 'url'")
    return dict(document)


def rename_folder(shardlist: list[dict[str, Any]], folder: str) -> None:
    """Replace the folder of each shard's URL, and sort the list by name, in place.

    Raises:
        SpecError: Two shards would get one URL.

    >>> shards = [{"url": "https://host/old/a.tar"}]
    >>> rename_folder(shards, "/data")
    >>> shards
    [{'url': '/data/a.tar'}]
    """
    first: dict[str, str] = {}
    for shard in shardlist:
        old = shard["url"]
        location, question_mark, query = old.partition("?")
        file = location.rpartition("/")[2] + question_mark + query
        shard["url"] = f"{folder.rstrip('/')}/{file}" if folder else file
        # Without their folders, `a/0.tar` and `b/0.tar` would both be the shard of one of them.
        if first.setdefault(shard["url"], old) != old:
            raise SpecError(
                f"{display_url(first[shard['url']])} and {display_url(old)} would both become "
                f"{display_url(shard['url'])}; expected distinct file names: rename one of the two"
            )
    shardlist.sort(key=lambda shard: natural_order(str(shard["url"])))


def rebase(shardlist: list[dict[str, Any]], source: str, base: str | None) -> str:
    """Return the common folder of all shards.

    Args:
        shardlist: The shards, with URLs relative to `base`.
        source: Path of the spec.
        base: The spec's own base, if it has one.

    Raises:
        SpecError: The shards lie in several folders, or there are no shards.

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
