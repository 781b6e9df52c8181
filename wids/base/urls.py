"""Parts of a URL: scheme, local path, base name, and a form without secrets for messages."""

import os
import re
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from wids.errors import FetchError

__all__ = [
    "base_name",
    "check_url",
    "display_url",
    "hide_credentials",
    "is_local",
    "local_path",
    "scheme_of",
]

# Two slashes are required, since "a:1.tar" is a file name; only `file:` and `pipe:` need none.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://|(file|pipe):", re.IGNORECASE)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_URL_IN_TEXT = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"<>]+(?<![:,;])")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_NAME_LENGTH = 60  # with a digest and a suffix, it must fit into the 255 bytes of a file name


def scheme_of(url: str) -> str:
    """Return the scheme in lower case, or "" for a plain path.

    >>> scheme_of("S3://bucket/a.tar"), scheme_of("pipe:cat a.tar"), scheme_of("data/a:1.tar")
    ('s3', 'pipe', '')
    """
    match = _SCHEME.match(url)
    return "" if match is None else (match[1] or match[2]).lower()


def is_local(url: str) -> bool:
    """Return whether a URL is a plain path or a `file:` URL.

    >>> is_local("/data/a.tar"), is_local("file:///data/a.tar"), is_local("https://host/a.tar")
    (True, True, False)
    """
    return scheme_of(url) in ("", "file")


def local_path(url: str) -> Path:
    """Return the path that a plain path or a `file:` URL names, with `~` expanded.

    Raises:
        FetchError: A `file:` URL names another host, or the location is no path.

    >>> local_path("file:///data/a%20b.tar")
    PosixPath('/data/a b.tar')
    """
    try:
        return _local_path(url)
    except (ValueError, RuntimeError) as error:  # malformed URL, unknown user or no file name
        raise FetchError(f"{display_url(url)!a}: names no file: {error}") from error


def _local_path(url: str) -> Path:
    if scheme_of(url) != "file":
        path = Path(url).expanduser()
        os.fsencode(path)
        return path
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost"):
        raise FetchError(
            f"{display_url(url)}: a file: URL names a file of this machine, got the host "
            f"{parts.netloc!r}; write file:///path"
        )
    name = unquote(parts.path)
    if "\0" in name:
        raise ValueError("embedded null byte")
    return Path(name)


def display_url(url: str) -> str:
    """Return the URL for messages, without user, password, query and fragment.

    Queries may contain signatures and tokens, which must not appear in logs or errors.

    >>> display_url("https://me:secret@host/a.tar?signature=abc")
    'https://host/a.tar?...'
    """
    if scheme_of(url) in ("", "pipe", "file"):
        return _CONTROL.sub("?", url)
    head, separator, rest = url.partition("://")
    rest, query, _ = rest.partition("?")
    host, slash, path = rest.partition("/")
    shown = head + separator + host.rpartition("@")[2] + slash + path.partition("#")[0]
    return _CONTROL.sub("?", shown + ("?..." if query else ""))


def hide_credentials(text: str) -> str:
    """Return a message in which each URL is replaced by its `display_url`.

    Messages of other libraries may quote whole URLs of a spec.

    >>> hide_credentials("no answer from 'https://me:secret@host/a.tar?signature=abc', give up")
    "no answer from 'https://host/a.tar?...', give up"
    >>> hide_credentials("https://host/a.tar?...: no answer")
    'https://host/a.tar?...: no answer'
    """
    return _URL_IN_TEXT.sub(lambda found: display_url(found[0]), text)


def base_name(url: str) -> str:
    """Return a short name for the file at a URL, safe on every file system.

    >>> base_name("https://host/my data/train 01.tar?x=1"), base_name("https://host/")
    ('train_01.tar', 'host')
    """
    path = url if scheme_of(url) == "" else re.split(r"[?#]", url, maxsplit=1)[0]
    name = _UNSAFE.sub("_", unquote(PurePosixPath(path).name)).lstrip(".")
    # The end of the name is kept, since it differs between shards. A leading dot would hide the
    # file.
    return name[-_NAME_LENGTH:].lstrip(".") or "shard"


def check_url(url: str) -> None:
    """Refuse a URL with control characters, which could smuggle lines into a request or a log.

    Raises:
        FetchError: There is one.
    """
    if _CONTROL.search(url):
        shown = display_url(url)
        raise FetchError(f"{shown}: a URL holds no control characters; percent-encode them")
    try:
        url.encode()
    except UnicodeEncodeError as error:
        raise FetchError(f"{display_url(url)!a}: is no text: {error.reason}") from error
