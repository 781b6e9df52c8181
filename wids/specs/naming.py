"""What a dataset is called that nobody gave a name: after what it was opened from."""

import base64
import hashlib
import os
import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

from wids.base.urls import display_url, is_local, local_path, scheme_of
from wids.specs.locations import folder_of

__all__ = ["name_of"]

_SUFFIX = re.compile(r"\.(json|tar|tar\.gz|tgz|tar\.zst)$", re.IGNORECASE)
_SLASH_IN_BRACES = re.compile(r"\{[^}]*/")
_TELLING = re.compile(r"[^\W_]")  # "*" and "{}" alone say nothing


def name_of(source: Any, urls: Sequence[str]) -> str:
    """Name a dataset after its spec, folder, pattern or shard; after the folder of a list.

    The name is for people: two datasets may well have the same.

    Args:
        source: What the dataset was opened from, as for `wids.specs.sources.load_spec`.
        urls: Its shards.

    Returns:
        The name; 16 characters of a digest of the URLs where nothing tells one.

    >>> name_of("https://host/cats/train.json?key=1", []), name_of("cats/*.tar", [])
    ('train', 'cats')
    >>> name_of(["/cats/a.tar", "/cats/b.tar"], ["/cats/a.tar", "/cats/b.tar"])
    'cats'
    """
    if not isinstance(source, str | os.PathLike):
        # An open file knows its path, unless it was opened by number or lies in memory.
        source = getattr(source, "name", None)
    found = _from_location(os.fspath(source)) if isinstance(source, str | os.PathLike) else ""
    return found or _from_urls(urls) or _digest(urls)


def _from_urls(urls: Sequence[str]) -> str:
    if len(urls) == 1:
        return _from_location(urls[0])
    # The first and the last stand for all: a list may hold a million.
    folder, other = folder_of(urls[0]), folder_of(urls[-1])
    return _from_location(folder or os.curdir) if folder == other else ""


def _from_location(location: str) -> str:
    """Take the last part of a location that says something, without its suffix."""
    if scheme_of(location) == "pipe":  # a command, which may hold secrets
        return ""
    if is_local(location):
        # Not resolve(): who opened a link called "train" thinks of it as that.
        path = os.path.abspath(local_path(location))  # noqa: PTH100
    else:
        path = unquote(urlsplit(display_url(location)).path)
    # Where braces hold slashes, no part is a name; the folder of the shards may be.
    parts = [] if _SLASH_IN_BRACES.search(path) else path.split("/")
    names = (_SUFFIX.sub("", part) for part in reversed(parts))
    return next(filter(_TELLING.search, names), "")


def _digest(urls: Sequence[str]) -> str:
    digest = hashlib.sha256("\n".join(urls).encode("utf-8", "surrogateescape")).digest()
    return base64.urlsafe_b64encode(digest)[:16].decode("ascii")
