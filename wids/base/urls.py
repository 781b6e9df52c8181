"""Parts of a URL: scheme, local path, base name, and a form without secrets for messages."""

import os
import re
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from wids.errors import FetchError

__all__ = [
    "ODD_PORT",
    "base_name",
    "check_url",
    "display_url",
    "file_name",
    "has_odd_port",
    "hide_credentials",
    "is_compressed_name",
    "is_local",
    "local_path",
    "plain_name",
    "resembles_url",
    "scheme_of",
    "without_query",
    "without_secrets",
]

ODD_PORT = (
    "expected a number as the port; in a user or a password, write / ? # and @ as %2F %3F %23 %40"
)
# Two slashes are required, since "a:1.tar" is a file name; only `file:` and `pipe:` need none.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://|(file|pipe):", re.IGNORECASE)
# Elsewhere, as in keys of buckets, ? and # are signs of a name like any other.
_WITH_QUERIES = ("http", "https", "file")
# Suffix of a compressed shard to that of the tar in it.
_COMPRESSED = {".tgz": ".tar", ".tzst": ".tar", ".gz": "", ".zst": ""}
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
# Also as it is mistyped, with one slash or none of a scheme, and percent-encoded. The scheme is
# bounded, since a search in a long text without any would take time by the square of its length.
_URL_IN_TEXT = re.compile(
    r"(?:[A-Za-z][A-Za-z0-9+.-]{0,30}(?::[/\\]|:%2F|%3A%2F)|(?<![\w/:])//(?=[^\s'\"<>/]*@))"
    r"[^\s'\"<>]+(?<![:,;])",
    re.IGNORECASE,
)
# Schemes and slashes, then a user and perhaps a password, which may hold slashes itself. Bounded,
# as a URL of a stranger may be a megabyte of colons.
_LOGIN = re.compile(
    r"((?:[A-Za-z][A-Za-z0-9+.-]*:){0,2}[/\\]{0,4})"
    r"(?:(?:(?<=[/\\]{2})|(?<=:[/\\]))[^?#/\\]*@"
    r"|[^?#/\\:@]*:[^?#/\\@]*@"
    r"|(?:(?<=[/\\]{2})|(?<=:[/\\]))[^?#/\\:@]*:(?!\d*[/\\])[^@]*@"
    # What is left of a login that was cut at a slash or another sign in its password.
    r"|(?<=[/\\]{2})[^?#/\\:@\[\s]*:(?!\d*(?:\W|$))[^?#/\\@\s]*)"
)
_ENCODED_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(?:%3A|:)(?:%2F|/)*%2F", re.IGNORECASE)
# What is left of a location where a path was made of it.
_LOGIN_IN_TEXT = re.compile(r"(?<![^\s'\"/\\(])[^\s'\"/\\:@?]+:[^\s'\"/\\@?]+@(?=[\w\[.])")
# A login that is percent-encoded is taken for a part of the host, which messages quote.
_LOGIN_IN_HOST = re.compile(r"(?<=['\"])[^\s'\"/]*%40(?=[\w.])")
# To the end of the line, since arguments may hold any sign, unless it is hidden already.
_COMMAND_IN_TEXT = re.compile(
    r"(?<!\w)pipe:(?!(?:[A-Za-z0-9._/-]+)(?: \.\.\.)?(?:: |['\")\],;]|:?$))"
    r"[^\s'\"].*?(?=['\"]?$)",
    re.IGNORECASE | re.MULTILINE,
)
_QUERY_IN_TEXT = re.compile(r"(?<=[\w/%.-])\?[^\s'\"/?=]+=[^\s'\"]*")
_QUERY = re.compile(r"[?&;][^/?&;=]*=")
_PROGRAM = re.compile(r"[A-Za-z0-9._/-]+")
# As a path: a scheme whose second slash was dropped, two slashes and a host, or a login.
_MISTYPED = re.compile(
    r"(?:.*[/:])?(?:https?|ftp|file|hf|s3a?|gs|az|ais|abfss?):(?:[/\\]|[^/]*@)|//[^/]*[@:]"
    r"|[^/\\?#:@]*:[^/\\?#@]*@|[a-z][a-z0-9+.-]*%3A%2F",
    re.IGNORECASE | re.DOTALL,
)
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
# A path or URL of plain letters, without login, query or escapes, whose name may stay as it is.
_PLAIN_FILE = re.compile(
    r"(?:(?:https?|s3|gs|az|hf)://[A-Za-z0-9.-]+)?/?(?:[A-Za-z0-9._-]+/)*"
    r"(?<![A-Za-z0-9._-])([A-Za-z0-9_-][A-Za-z0-9._-]{0,59})"
)
# Errors of subclasses, such as UnicodeEncodeError, need more than a message.
_KINDS: tuple[type[Exception], ...] = (OSError, ValueError, RuntimeError)
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


def resembles_url(path: str | os.PathLike[str]) -> bool:
    """Return whether a path looks like a URL, perhaps mistyped or normalised by `Path`.

    >>> resembles_url("https://host/a.json"), resembles_url("//me:secret@host/a.json")
    (True, True)
    >>> resembles_url("/data/a:1@2.json"), resembles_url("data/train@v1.json")
    (False, False)
    """
    text = os.fspath(path)
    return bool(scheme_of(text)) or _MISTYPED.match(text) is not None


def local_path(url: str) -> Path:
    """Return the path that a plain path or a `file:` URL names, with `~` expanded.

    Raises:
        FetchError: A `file:` URL names another host, or the location is no path.

    >>> local_path("file:///data/a%20b.tar")
    PosixPath('/data/a b.tar')
    """
    try:
        if scheme_of(url) != "file":
            path = Path(url).expanduser()
            os.fsencode(path)
            return path
        parts = urlsplit(url)
        if parts.netloc not in ("", "localhost"):
            raise FetchError(
                f"{display_url(url)}: a file: URL names a file of this machine, not of a server; "
                "write file:///path"
            )
        name = unquote(parts.path)
        if "\0" in name:
            raise ValueError("embedded null byte")
        return Path(name)
    except (ValueError, RuntimeError) as error:  # malformed URL, unknown user or no file name
        cause = without_secrets(error)
        raise FetchError(f"{display_url(url)!a}: names no file: {cause}") from cause


def display_url(url: str) -> str:
    """Return the URL for messages, without user, password, query and fragment.

    Queries may contain signatures and tokens, which must not appear in logs or errors. Of a
    command, only the program is shown. A text that only resembles a URL, such as
    `http:/me:secret@host`, is shown like one.

    >>> display_url("https://me:secret@host/a.tar?signature=abc")
    'https://host/a.tar?...'
    >>> display_url("pipe:curl -u me:secret https://host/a.tar")
    'pipe:curl ...'
    """
    scheme = scheme_of(url)
    if scheme == "pipe":
        return _display_command(url)
    url = url.lstrip()
    decoded = unquote(url) if "%" in url else url
    if _ENCODED_URL.match(url) or _secrets_of(decoded) > _secrets_of(url):
        url = decoded
    is_path = scheme in ("", "file")
    shown = _without_secrets(url, is_path=is_path)
    # One URL in another, such as `tar::http://me:secret@host`.
    start = len(scheme) + 3 if scheme else 0
    if "://" in shown[start:]:
        shown = shown[:start] + _URL_IN_TEXT.sub(
            lambda found: _without_secrets(found[0], is_path=False), shown[start:]
        )
    if is_path and "@" in shown:
        shown = _LOGIN_IN_TEXT.sub("...@", shown)
    return _CONTROL.sub("?", shown)


def _secrets_of(url: str) -> int:
    """Return how many parts of a URL may be secret: a user, a query."""
    return (_LOGIN.match(url) is not None) + (_QUERY.search(url) is not None)


def _without_secrets(url: str, *, is_path: bool) -> str:
    """Return a URL or path without user, password, query and fragment."""
    login = _LOGIN.match(url)
    shown = url if login is None else login[1] + url[login.end() :]
    # A file name may hold these signs; a query has pairs of a name and a value.
    query = _QUERY.search(shown)
    if is_path and login is None and query is None:
        return shown
    end = query.start() if query else len(shown)
    path, mark, _ = shown[:end].partition("?")
    return path.partition("#")[0] + ("?..." if mark or query else "")


def _display_command(url: str) -> str:
    """Return a `pipe:` URL with its program only: any argument may be a secret."""
    program, space, _ = url.partition(":")[2].strip().partition(" ")
    shown = program if _PROGRAM.fullmatch(program) else "..."
    return f"pipe:{shown}{' ...' if space else ''}"


def hide_credentials(text: str) -> str:
    """Return a message in which each URL is replaced by its `display_url`.

    Messages of other libraries may quote whole URLs of a spec.

    >>> hide_credentials("no answer from 'https://me:secret@host/a.tar?signature=abc', give up")
    "no answer from 'https://host/a.tar?...', give up"
    >>> hide_credentials("https://host/a.tar?...: no answer")
    'https://host/a.tar?...: no answer'
    """
    text = _COMMAND_IN_TEXT.sub(lambda found: _display_command(found[0]), text)
    text = _URL_IN_TEXT.sub(lambda found: display_url(found[0]), text)
    text = _LOGIN_IN_HOST.sub("...@", _LOGIN_IN_TEXT.sub("...@", text))
    return _QUERY_IN_TEXT.sub("?...", text)


def without_secrets(error: Exception) -> Exception:
    """Return a copy of an error without URLs' secrets, to be the cause of another error.

    A traceback shows the causes of an error, too, and a DataLoader sends the traceback of its
    worker as a message. An error of the system quotes the path that was opened, which may be a
    mistyped URL. The returned error has no cause of its own.

    >>> without_secrets(FileNotFoundError(2, "No such file", "http:/me:secret@host/a.tar"))
    FileNotFoundError(2, 'No such file')
    >>> str(without_secrets(FileNotFoundError(2, "No such file", "http:/me:secret@host/a.tar")))
    "[Errno 2] No such file: 'http:/host/a.tar'"
    >>> without_secrets(ValueError("cannot parse 'http://me:secret@host/a.tar'"))
    ValueError("cannot parse 'http://host/a.tar'")
    """
    if isinstance(error, OSError) and error.errno is not None:
        if error.filename is None:
            return OSError(error.errno, error.strerror)
        return OSError(error.errno, error.strerror, display_url(str(error.filename)))
    kind = next((kind for kind in _KINDS if isinstance(error, kind)), Exception)
    return kind(hide_credentials(str(error)))


def without_query(url: str) -> str:
    """Return a URL without query and fragment, which only `http:` and `file:` URLs have.

    >>> without_query("https://host/a.tar?key=1"), without_query("s3://bucket/a?b.tar")
    ('https://host/a.tar', 's3://bucket/a?b.tar')
    """
    return re.split("[?#]", url, maxsplit=1)[0] if scheme_of(url) in _WITH_QUERIES else url


def file_name(url: str) -> str:
    """Return the name of the file at a path or URL, as its server has it; "" for a command.

    >>> file_name("https://host/my%20data/a%3Fb.tar?x=1"), file_name("s3://bucket/a?b%20.tar")
    ('a?b.tar', 'a?b%20.tar')
    """
    scheme = scheme_of(url)
    if scheme == "pipe":
        return ""
    name = PurePosixPath(without_query(url)).name
    return unquote(name) if scheme in _WITH_QUERIES else name


def base_name(url: str) -> str:
    """Return a short name for the file at a URL, without secrets, safe on every file system.

    It is for people; what kind of file it is, its `file_name` tells.

    >>> base_name("https://host/my data/train 01.tar?x=1"), base_name("https://host/")
    ('train_01.tar', 'host')
    """
    if (plain := _PLAIN_FILE.fullmatch(url)) is not None:
        return plain[1]  # as nearly all are; what follows takes ten times as long
    if scheme_of(url) == "pipe":
        return "pipe"  # a command may hold secrets
    if scheme_of(url) and (login := _LOGIN.match(url)) is not None:
        url = login[1] + url[login.end() :]
    path = url if scheme_of(url) == "" else re.split(r"[?#]|%3[Ff]", url, maxsplit=1)[0]
    name = _UNSAFE.sub("_", unquote(PurePosixPath(path).name)).lstrip(".")
    # The end of the name is kept, since it differs between shards. A leading dot would hide the
    # file.
    return name[-_NAME_LENGTH:].lstrip(".") or "shard"


def is_compressed_name(name: str) -> bool:
    """Return whether a file name is that of a compressed shard.

    >>> is_compressed_name("a.tar.gz"), is_compressed_name("a.TGZ"), is_compressed_name("a.tar")
    (True, True, False)
    """
    return name.lower().endswith(tuple(_COMPRESSED))


def plain_name(name: str) -> str:
    """Return the file name of a shard without the suffix of its compression.

    >>> plain_name("a.tar.zst"), plain_name("a.tgz"), plain_name("a.tar")
    ('a.tar', 'a.tar', 'a.tar')
    """
    for suffix, plain in _COMPRESSED.items():
        if name.lower().endswith(suffix):
            return name[: -len(suffix)] + plain
    return name


def has_odd_port(url: str) -> bool:
    """Return whether a web URL has a port that is no number, as where a password holds a slash.

    >>> has_odd_port("http://me:se/cret@host/a.tar"), has_odd_port("http://host:80/a@b.tar")
    (True, False)
    """
    try:
        return scheme_of(url) in ("http", "https") and urlsplit(url).port == -1
    except ValueError:
        return True


def check_url(url: str) -> None:
    """Refuse a URL with control characters, which could smuggle lines into a request or a log.

    Raises:
        FetchError: There is one, or its port is no number.
    """
    if has_odd_port(url):
        raise FetchError(f"{display_url(url)}: {ODD_PORT}")
    if _CONTROL.search(url):
        shown = display_url(url)
        raise FetchError(f"{shown}: a URL holds no control characters; percent-encode them")
    try:
        url.encode()
    except UnicodeEncodeError as error:
        raise FetchError(f"{display_url(url)!a}: is no text: {error.reason}") from error
