"""Listing of the shards in folders and patterns of object stores and the Hugging Face hub."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from wids.base.urls import display_url, scheme_of
from wids.errors import SpecError
from wids.fetching.fetch import Fetcher, FetchPolicy
from wids.fetching.hub import names_repository
from wids.fetching.objectstore import OBJECT_SCHEMES
from wids.log import logger
from wids.specs.locations import (
    SPEC_NAMES,
    FoundShards,
    is_shard_name,
    natural_order,
)
from wids.tar.sidecar import SIDECAR_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from wids.fetching.storesettings import StoreSettings
    from wids.fetching.transport import Listing

__all__ = ["is_listed", "list_shards"]

_LISTABLE = {*OBJECT_SCHEMES, "hf"}
_MOST_SHOWN = 5
_STARS = re.compile(r"((?<![^/])\*\*/|\*+)")
_REGEXES = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*"}


def is_listed(location: str, *, alone: bool = True) -> bool:
    """Return whether a location without braces must be listed by a store.

    Args:
        location: A path, URL or pattern.
        alone: Whether the location stands alone. In a list, one that ends in no slash is a shard.

    Raises:
        SpecError: A web server would have to list them.

    >>> is_listed("s3://bucket/train/"), is_listed("s3://bucket/train-*.tar"), is_listed("train/")
    (True, True, False)
    >>> is_listed("s3://bucket/train.json"), is_listed("hf://datasets/me/birds")
    (False, True)
    """
    scheme = scheme_of(location)
    if scheme in ("http", "https"):
        _refuse_listing(location)
    if scheme not in _LISTABLE:
        return False
    path = location.partition("://")[2]
    if path.endswith("/") or "*" in path or "/" not in path:
        return True
    if scheme == "hf" and names_repository(location):
        return True
    return alone and not (is_shard_name(path) or path.lower().endswith(".json"))


def _refuse_listing(location: str) -> None:
    """Raise if a location would have to be listed by a web server, which cannot do that."""
    path = location.partition("?")[0]
    if not path.endswith("/") and "*" not in path:
        return
    if "?" in location and "*" not in path:
        return  # a document that a program makes
    shown = display_url(location)
    folder = shown[: shown.rfind("/", 0, shown.find("*") if "*" in shown else None)]
    raise SpecError(
        f"{shown}: a web server cannot be asked which files it has; name a spec "
        f"({folder}/wids.json or shardindex.json, made by `wids create`), a brace pattern "
        f"({folder}/train-{{000..146}}.tar) or a list of shards"
    )


def list_shards(locations: Sequence[str], store: StoreSettings | None = None) -> FoundShards:
    """List the shards of remote folders and patterns.

    Args:
        locations: The names that a location with braces expands to; without braces, one.
        store: Where the buckets of `s3:` URLs are.

    Raises:
        SpecError: A folder or pattern has no shards.
        FetchError: A folder could not be listed.
    """
    fetcher = Fetcher(FetchPolicy(store=store))
    listings: dict[str, Listing] = {}
    try:
        for location in locations:
            folder = _folder(location)
            if is_listed(location) and folder not in listings:
                listings[folder] = fetcher.list_folder(folder)
    finally:
        fetcher.close()
    if len(locations) == 1 and "*" not in locations[0]:
        return _of_folder(locations[0], listings[_folder(locations[0])])
    entries: dict[str, dict[str, Any]] = {}
    for location in locations:
        for entry in _matching(location, listings.get(_folder(location))):
            entries.setdefault(entry["url"], entry)  # patterns may overlap
    return FoundShards(list(entries.values()), next(iter(listings.values())).folder)


def _folder(location: str) -> str:
    """Return the folder that has to be listed for a location, without a slash at its end."""
    star = location.find("*")
    return (location if star < 0 else location[: location.rfind("/", 0, star)]).rstrip("/")


def _matching(location: str, listing: Listing | None) -> list[dict[str, Any]]:
    """Return the entries of one location of several."""
    if listing is None:
        return [{"url": location}]
    if "*" not in location:
        return _of_folder(location, listing).entries
    pattern = location[len(_folder(location)) :].lstrip("/")
    start = pattern.partition("*")[0]
    parts = (_REGEXES.get(part) or re.escape(part) for part in _STARS.split(pattern))
    regex = re.compile("".join(parts), re.DOTALL)
    beginning = (name for name in listing.files if name.startswith(start))
    names = _shards(listing, filter(regex.fullmatch, beginning))
    if not names:
        raise SpecError(
            f"{display_url(location)}: no shard matches among {len(listing.files)} files in "
            f"{display_url(listing.folder)}; ** stands for folders, too"
        )
    return [_entry(listing, name) for name in names]


def _of_folder(location: str, listing: Listing) -> FoundShards:
    """Return the shards directly in a folder, or else in its only subfolder with shards."""
    shards = _shards(listing, listing.files)
    counts = Counter(map(_folder_in, shards))
    inner = "" if counts[""] or len(counts) != 1 else f"{next(iter(counts))}/"
    spec = next(
        (
            listing.files[path].url
            for folder in dict.fromkeys(["", inner])
            for name in SPEC_NAMES
            if (path := folder + name) in listing.files
        ),
        None,
    )
    entries = [_entry(listing, name) for name in shards if _folder_in(name) == inner[:-1]]
    if not entries and spec is None:
        shown = display_url(location).rstrip("/")
        if not counts:
            specs = [name for name in listing.files if name.lower().endswith(".json")]
            some = sorted(specs, key=natural_order)[:_MOST_SHOWN]
            more = f" and {len(specs) - len(some)} more" if len(specs) > len(some) else ""
            named = ", ".join(display_url(listing.files[name].url) for name in some)
            advice = f"if one of these is the dataset, name it: {named}{more}"
            raise SpecError(
                f"{shown}/: holds no shards: none of the {len(listing.files)} files in it ends in "
                ".tar, .tar.gz, .tgz or .tar.zst, and none is called wids.json or "
                f"shardindex.json; {advice if some else 'check the location'} (the name of a "
                "spec has to end in .json)"
            )
        some = sorted(counts, key=natural_order)[:_MOST_SHOWN]
        named = ", ".join(f"{folder:.100}/ ({counts[folder]})" for folder in some)
        more = f" and {len(counts) - len(some)} more" if len(counts) > len(some) else ""
        raise SpecError(
            f"{shown}/: its shards lie in {len(counts)} folders, {named}{more}; name one of them, "
            f"such as {shown}/{some[0]}/, or {shown}/**/*.tar for all"
        )
    if inner:
        logger.info("%s: its shards lie in %s", display_url(location), inner)
    return FoundShards(entries, listing.folder + inner, spec)


def _shards(listing: Listing, names: Iterable[str]) -> list[str]:
    """Return the shards among the names of a listing, in natural order."""
    # A folder may have the name of the tar that was unpacked into it, and stores list it, too.
    # Hidden files are metadata of macOS (`._a.tar`).
    shards = [name for name in names if is_shard_name(name) and name[name.rfind("/") + 1] != "."]
    folders = set(map(_folder_in, listing.files))
    return sorted((name for name in shards if name not in folders), key=natural_order)


def _entry(listing: Listing, name: str) -> dict[str, Any]:
    file = listing.files[name]
    entry: dict[str, Any] = {"url": file.url, "filesize": file.nbytes}
    if file.sha256 is not None:
        entry["sha256"] = file.sha256
    if (sidecar := listing.files.get(name + SIDECAR_SUFFIX)) is not None:
        entry["index"] = sidecar.url
    return entry


def _folder_in(name: str) -> str:
    return posixpath.dirname(name) if "/" in name else ""
