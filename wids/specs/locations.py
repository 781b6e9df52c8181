"""How a relative location is resolved against the folder or URL that it counts from."""

import os
import posixpath
from urllib.parse import urlsplit, urlunsplit

from wids.base.urls import scheme_of

__all__ = ["folder_of", "join", "join_all"]

# In lines of locations: parts that normalising would remove, or that say where a path begins.
_TO_TAKE_APART = (
    *("//", "/./", "/../", "\n/", "\n./", "\n../"),
    *("/\n", "/.\n", "/..\n", "\n.\n", "\n..\n", "\n~"),
)
_IN_URLS = ("?", "#")


def folder_of(location: str) -> str:
    """Name the folder that a location lies in; a query does not belong to it.

    >>> folder_of("https://host/sets/train.json?key=1"), folder_of("sets/train.json")
    ('https://host/sets', 'sets')
    """
    if not scheme_of(location):
        return os.path.dirname(location)  # noqa: PTH120 (str in, str out)
    parts = urlsplit(location)
    return urlunsplit((parts.scheme, parts.netloc, posixpath.dirname(parts.path), "", ""))


def join(base: str, location: str) -> str:
    """Resolve a location against the folder `base`; one that is absolute stays as it is.

    As in a browser, a path from the root replaces the path of a URL base and keeps its host.

    >>> join("https://host/sets", "../a.tar")
    'https://host/a.tar'
    >>> join("/data", "a.tar"), join("/data", "s3://bucket/a.tar"), join("", "a.tar")
    ('/data/a.tar', 's3://bucket/a.tar', 'a.tar')
    """
    if scheme_of(location) or not base:
        return location
    if not scheme_of(base):
        path = os.path.join(os.path.expanduser(base), os.path.expanduser(location))  # noqa: PTH111, PTH118
        return os.path.normpath(path)
    parts = urlsplit(base)
    relative, query = _split_query(location)
    path = posixpath.normpath(posixpath.join(parts.path or "/", relative))
    # normpath keeps two leading slashes, which POSIX allows and no server expects.
    return f"{parts.scheme}://{parts.netloc}/{path.lstrip('/')}{query}"


def join_all(base: str, locations: list[str]) -> list[str]:
    """Do as `join` for many locations without line breaks, quickly where none is special.

    >>> join_all("/data", ["a.tar", "b.tar"]), join_all("/data", ["https://host/a.tar"])
    (['/data/a.tar', '/data/b.tar'], ['https://host/a.tar'])
    """
    # What the smallest and the largest begin with, all begin with: a scheme, if they have one.
    first, last = min(locations), max(locations)
    head, mark, _ = first.partition("://")
    if not base or (mark and scheme_of(first) and last.startswith(head + mark)):
        return locations
    lines = "\n".join(["", *locations, ""])
    special = (":", *_TO_TAKE_APART, *(_IN_URLS if scheme_of(base) else ()))
    if any(part in lines for part in special):
        return [join(base, location) for location in locations]
    start = join(base, "x")[:-1]
    return [start + location for location in locations]


def _split_query(location: str) -> tuple[str, str]:
    cut = min((i for i in (location.find("?"), location.find("#")) if i >= 0), default=None)
    return (location, "") if cut is None else (location[:cut], location[cut:])
