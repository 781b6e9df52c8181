"""Where a shard lies: what is a URL, what a local path, and how a relative one is resolved.

A location is a URL when it starts with `scheme://`, or with `pipe:` or `file:`; anything else is
a local path. Windows drive letters are therefore paths.
"""

import os
import posixpath
import re
from urllib.parse import unquote, urlsplit, urlunsplit

__all__ = ["folder_of", "is_remote", "join", "local_path", "scheme_of", "without_query"]

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://|(pipe|file):")


def scheme_of(location: str) -> str:
    """Name the scheme of a location in lower case; a plain path has the scheme "".

    >>> scheme_of("s3://bucket/a.tar"), scheme_of("/data/a.tar"), scheme_of("pipe:cat a.tar")
    ('s3', '', 'pipe')
    """
    match = _URL.match(location)
    return (match[1] or match[2]).lower() if match else ""


def is_remote(location: str) -> bool:
    """Tell whether a location is anything but a file of this machine.

    >>> is_remote("https://host/a.tar"), is_remote("file:///a.tar"), is_remote("a.tar")
    (True, False, False)
    """
    return scheme_of(location) not in {"", "file"}


def local_path(location: str) -> str:
    """Turn a plain path or a `file:` URL into a path; `~` expands, nothing else changes.

    >>> local_path("file:///data/a%20b.tar"), local_path("a.tar")
    ('/data/a b.tar', 'a.tar')
    """
    if scheme_of(location) == "file":
        return unquote(urlsplit(location).path)
    return os.path.expanduser(location)  # noqa: PTH111 (str in, str out)


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
    location_expanded = os.path.expanduser(location)  # noqa: PTH111
    if not scheme_of(base):
        return os.path.normpath(os.path.join(os.path.expanduser(base), location_expanded))  # noqa: PTH111, PTH118
    parts = urlsplit(base)
    relative, query = _split_query(location)
    path = posixpath.normpath(posixpath.join(parts.path or "/", relative))
    # normpath keeps two leading slashes, which POSIX allows and no server expects.
    return f"{parts.scheme}://{parts.netloc}/{path.lstrip('/')}{query}"


def without_query(location: str) -> str:
    """Cut query and fragment off a URL, for messages and logs: they may hold signatures.

    >>> without_query("https://host/a.tar?signature=secret")
    'https://host/a.tar'
    """
    if not is_remote(location) or scheme_of(location) == "pipe":
        return location
    return _split_query(location)[0]


def _split_query(location: str) -> tuple[str, str]:
    cut = min((i for i in (location.find("?"), location.find("#")) if i >= 0), default=None)
    return (location, "") if cut is None else (location[:cut], location[cut:])
