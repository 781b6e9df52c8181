"""Resolution of the locations in specs against a base, and default names of datasets."""

import base64
import hashlib
import os
import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from wids.base.urls import display_url, is_local, local_path, scheme_of, without_query
from wids.base.warn import warn

__all__ = [
    "SHARD_SUFFIXES",
    "SPEC_NAMES",
    "FoundShards",
    "folder_of",
    "is_shard_name",
    "join",
    "join_all",
    "name_of",
    "natural_order",
    "with_suffix",
]

SHARD_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.zst")
# Of a spec in a folder. The second is what `wids create` calls it by default, as widsindex did.
SPEC_NAMES = ("wids.json", "shardindex.json")

# In lines of locations: parts that normalisation would remove, or that make a path absolute.
_TO_TAKE_APART = (
    *("//", "/./", "/../", "\n/", "\n./", "\n../"),
    *("/\n", "/.\n", "/..\n", "\n.\n", "\n..\n", "\n~"),
)
_IN_URLS = ("?", "#")
_SUFFIX = re.compile(r"\.(json|tar|tar\.gz|tgz|tar\.zst)$", re.IGNORECASE)
_SLASH_IN_BRACES = re.compile(r"\{[^}]*/")
_NUMBER = re.compile(r"([0-9]+)")
_TELLING = re.compile(r"[^\W_]")  # a name needs a letter or digit: "*" and "{}" are none


def natural_order(name: str) -> tuple[list[str | int], str]:
    """Return the key by which names are sorted, with numbers in them by value.

    >>> sorted(["a-10.tar", "a-9.tar", "a-09.tar"], key=natural_order)
    ['a-09.tar', 'a-9.tar', 'a-10.tar']
    """
    # Texts and numbers alternate, so that texts are compared with texts only.
    parts = _NUMBER.split(name)
    return [int(part) if i % 2 else part for i, part in enumerate(parts)], name


@dataclass(frozen=True)
class FoundShards:
    """Shards that a location stands for.

    Attributes:
        entries: The entry of each shard in a spec, in natural order. One in a folder with a spec,
            or in a store, has its size; one in a store also its digest if that is known, and
            `index` if a sidecar lies beside it.
        folder: Folder that was listed, in one revision, with a slash at its end; "" for none.
        spec: Location of a spec in the folder, or None.
    """

    entries: list[dict[str, Any]]
    folder: str = ""
    spec: str | None = None

    def compare(self, shards: Iterable[Mapping[str, Any]]) -> None:
        """Warn if the spec in the folder does not match the shards in the folder.

        Args:
            shards: The shards of the spec.
        """
        listed = {entry["url"]: entry.get("filesize") for entry in self.entries}
        named = {shard["url"]: shard.get("filesize") for shard in shards}
        if not listed.keys() & named.keys():
            return  # a spec of shards in other places
        faults = {
            "are not in the spec, so the dataset leaves them out": listed.keys() - named.keys(),
            "have another size than the spec says": {
                url
                for url, nbytes in named.items()
                if nbytes is not None and listed.get(url) not in {None, nbytes}
            },
        }
        found = [
            f"{len(urls)} shards of the folder {what} (for example "
            f"{display_url(min(urls, key=natural_order))})"
            for what, urls in faults.items()
            if urls
        ]
        if found:
            folder, spec = display_url(self.folder), display_url(str(self.spec))
            output = spec if is_local(spec) else "wids.json"
            warn(
                f"{spec}: {'; '.join(found)}; make the spec again (`wids create {folder} -o "
                f"{output}`), or open {folder}*.tar to read all shards without it"
            )


def is_shard_name(name: str) -> bool:
    """Return whether a file has the name of a shard.

    >>> is_shard_name("a.TAR"), is_shard_name("a.tar.json")
    (True, False)
    """
    return name.lower().endswith(SHARD_SUFFIXES)


def folder_of(location: str) -> str:
    """Return the folder of a location, without the query of a URL.

    >>> folder_of("https://host/sets/train.json?key=1"), folder_of("sets/train.json")
    ('https://host/sets', 'sets')
    """
    if not scheme_of(location):
        return os.path.dirname(location)  # noqa: PTH120 (str in, str out)
    host, path = _host_and_path(location)
    return f"{host}{posixpath.dirname(path)}"


def with_suffix(url: str, suffix: str) -> str:
    """Return the URL of a file beside a remote shard, with the shard's query.

    >>> with_suffix("https://host/a.tar?key=1", ".widx")
    'https://host/a.tar.widx?key=1'
    """
    # Only URLs of web servers have queries; elsewhere a question mark is a character of a name.
    web = scheme_of(url) in ("http", "https")
    path, mark, query = url.partition("?") if web else (url, "", "")
    return f"{path}{suffix}{mark}{query}"


def _host_and_path(url: str) -> tuple[str, str]:
    """Return the scheme and host of a URL, and its path without query."""
    # Not by urlsplit, which takes a # in the key of a bucket for the mark of a fragment.
    scheme = scheme_of(url)
    path = without_query(url)[len(scheme) + 1 :]
    if not path.startswith("//"):  # as in file:/data/a.tar
        return f"{scheme}://", path
    host, slash, path = path[2:].partition("/")
    return f"{scheme}://{host}", slash + path


def join(base: str, location: str) -> str:
    """Return a location resolved against the folder `base`, unless it is absolute.

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
    host, folder = _host_and_path(base)
    cut = min((i for i in (location.find("?"), location.find("#")) if i >= 0), default=None)
    relative, query = (location, "") if cut is None else (location[:cut], location[cut:])
    path = posixpath.normpath(posixpath.join(folder or "/", relative))
    # normpath keeps two leading slashes, since POSIX gives them a meaning; servers do not.
    return f"{host}/{path.lstrip('/')}{query}"


def join_all(base: str, locations: list[str]) -> tuple[str, list[str]]:
    """Resolve many locations as `join` does, but faster; none may hold a line break.

    Returns:
        Their common beginning, which may be "", and the rest of each.

    >>> join_all("/data", ["a.tar", "b.tar"]), join_all("/data", ["https://host/a.tar"])
    (('/data/', ['a.tar', 'b.tar']), ('', ['https://host/a.tar']))
    """
    # A prefix of both the smallest and the largest string is a prefix of all: here the scheme.
    first, last = min(locations), max(locations)
    head, mark, _ = first.partition("://")
    if not base or (mark and scheme_of(first) and last.startswith(head + mark)):
        return "", locations
    lines = "\n".join(["", *locations, ""])
    special = (":", *_TO_TAKE_APART, *(_IN_URLS if scheme_of(base) else ()))
    if any(part in lines for part in special):
        return "", [join(base, location) for location in locations]
    # Not copied into each: the base of a stranger's spec may be long.
    return join(base, "x")[:-1], locations


def name_of(source: Any, urls: Sequence[str]) -> str:
    """Return the default name of a dataset, taken from its spec, folder, pattern or shard.

    The name is meant for people and need not be unique.

    Args:
        source: Source of the dataset, as for `wids.specs.sources.load_spec`.
        urls: Locations of its shards.

    Returns:
        The name; if neither source nor shards give one, 16 characters of a digest of the URLs.

    >>> name_of("https://host/cats/train.json?key=1", []), name_of("cats/*.tar", [])
    ('train', 'cats')
    >>> name_of(["/cats/a.tar", "/cats/b.tar"], ["/cats/a.tar", "/cats/b.tar"])
    'cats'
    """
    if not isinstance(source, str | os.PathLike):
        # An open file has its path as `name`, unless it was opened by descriptor or is in memory.
        source = getattr(source, "name", None)
    found = _from_location(os.fspath(source)) if isinstance(source, str | os.PathLike) else ""
    if not found and len(urls) == 1:
        found = _from_location(urls[0])
    elif not found:
        # Only the first and the last are compared: a list may hold a million.
        folder, other = folder_of(urls[0]), folder_of(urls[-1])
        found = _from_location(folder or os.curdir) if folder == other else ""
    return found or _digest(urls)


def _from_location(location: str) -> str:
    """Return the last part of a location that has letters or digits, without its suffix."""
    if scheme_of(location) == "pipe":  # a command, which may hold secrets
        return ""
    if is_local(location):
        # Not resolve(): a dataset opened by a link called "train" is called "train".
        path = os.path.abspath(local_path(location))  # noqa: PTH100
    else:
        # Not by urlsplit, which raises for a malformed URL; the fetch raises a better error.
        shown = re.split(r"[?#]", display_url(location))[0]
        path = unquote(shown.partition("://")[2].partition("/")[2])
    # Braces that hold slashes span several parts, so none is a name; the shards' folder may be.
    parts = [] if _SLASH_IN_BRACES.search(path) else path.split("/")
    names = (_SUFFIX.sub("", part) for part in reversed(parts))
    return next(filter(_TELLING.search, names), "")


def _digest(urls: Sequence[str]) -> str:
    digest = hashlib.sha256("\n".join(urls).encode("utf-8", "surrogateescape")).digest()
    return base64.urlsafe_b64encode(digest)[:16].decode("ascii")
