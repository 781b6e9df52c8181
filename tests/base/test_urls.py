"""Parts of URLs agree with the standard library, and messages contain no secrets."""

import os
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from wids.base.urls import (
    base_name,
    check_url,
    display_url,
    hide_credentials,
    is_local,
    local_path,
    scheme_of,
    without_secrets,
)
from wids.errors import FetchError

WORD = st.text("abcXYZ019-_~.", min_size=1, max_size=8)
SECRET = st.text("abcXYZ019", min_size=12, max_size=16).map("hush".__add__)
PATHS = st.lists(WORD, max_size=3).map("/".join).map("/".__add__)
SCHEMES = st.sampled_from(["http", "https", "s3", "gs", "hf", "HTTPS"])


@st.composite
def urls(draw: st.DrawFn) -> tuple[str, list[str]]:
    """Draw a URL by the standard library's rules, and the secrets in it."""
    user, password, query, fragment = (draw(st.none() | SECRET) for _ in range(4))
    host = draw(st.text("abc", min_size=1, max_size=6)) + draw(st.sampled_from(["", ":8080"]))
    login = f"{user or ''}:{password or ''}@" if user or password else ""
    parts = (draw(SCHEMES), login + host, draw(PATHS), query or "", fragment or "")
    return urlunsplit(parts), [each for each in (user, password, query, fragment) if each]


@given(urls())
def test_a_shown_url_names_host_and_path_and_no_secret(drawn: tuple[str, list[str]]) -> None:
    """The shown URL has scheme, host, port and path, but no user, password, query or fragment."""
    url, secrets = drawn
    shown, parts = display_url(url), urlsplit(url)
    assert not any(secret in shown for secret in secrets)
    again = urlsplit(shown)
    assert (again.scheme, again.hostname, again.port, again.path) == (
        parts.scheme, parts.hostname, parts.port, parts.path,
    )  # fmt: skip
    assert ("?" in shown) is bool(parts.query)


@given(st.lists(urls(), min_size=1, max_size=3), st.sampled_from([" ", "' and '", '", "', "> <"]))
def test_no_message_of_another_library_tells_a_secret(
    drawn: list[tuple[str, list[str]]], between: str
) -> None:
    """All URLs in a text are shown without secrets, and the rest of the text is kept."""
    text = f"cannot open '{between.join(url for url, _ in drawn)}': try again"
    shown = hide_credentials(text)
    assert not any(secret in shown for _, secrets in drawn for secret in secrets)
    assert shown.startswith("cannot open '")
    assert shown.endswith("': try again")
    for url, _ in drawn:
        assert display_url(url) in shown


def test_a_long_message_is_searched_in_one_pass() -> None:
    """A long text without a URL, as a server may send it, comes back; the square takes long."""
    text = "a" * (1 << 18)
    assert hide_credentials(text) == text
    assert hide_credentials(f"{text}://me:secret@host/") == f"{text}://host/"


@given(urls())
def test_the_scheme_is_that_of_the_standard_library(drawn: tuple[str, list[str]]) -> None:
    """The scheme is in lower case; only paths and file URLs are local."""
    url, _ = drawn
    assert scheme_of(url) == urlsplit(url).scheme
    assert not is_local(url)


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1))
def test_any_path_survives_a_file_url(name: str) -> None:
    """The path of a quoted file URL is the original path."""
    path = f"/data/{name}"
    assert local_path(f"file://{quote(path)}") == Path(path)
    assert local_path(f"file://localhost{quote(path)}") == Path(path)
    assert local_path(path) == Path(path)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("file://server/a.tar", ["not of a server", "write file:///path"]),
        ("file:///a%00b.tar", ["names no file", "null"]),
        ("~no-such-user-here/a.tar", ["names no file"]),
    ],
)
def test_what_names_no_file_is_refused(url: str, words: list[str]) -> None:
    """A file URL that names no local path is refused with a remedy."""
    with pytest.raises(FetchError) as raised:
        local_path(url)
    for word in words:
        assert word in str(raised.value)


@given(st.text(max_size=300))
def test_any_url_has_a_safe_file_name(url: str) -> None:
    """The name is short, plain, not hidden, without folders, and always the same."""
    name = base_name(url)
    assert 0 < len(name) <= 60
    assert not name.startswith(".")
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
    assert os.path.basename(name) == name  # noqa: PTH119 (what the system makes of it)
    assert base_name(url) == name


@given(PATHS, WORD, SECRET)
def test_the_name_of_a_file_is_the_end_of_its_path(folder: str, name: str, secret: str) -> None:
    """Query and fragment are not part of the name."""
    assume(not name.startswith(".") and "~" not in name and name.strip("."))
    for end in ("", f"?{secret}", f"#{secret}"):
        assert base_name(f"https://host{folder}/{name}{end}") == name


@given(st.text("ab/:?=&%", max_size=9), st.integers(0, 31) | st.just(127))
def test_control_characters_are_refused_and_not_repeated(url: str, code: int) -> None:
    """A URL with control characters is refused, and the error does not repeat them."""
    location = f"https://host/{url}{chr(code)}x"
    with pytest.raises(FetchError, match="control characters; percent-encode them") as raised:
        check_url(location)
    assert chr(code) not in str(raised.value)
    check_url(location.replace(chr(code), quote(chr(code))))


def test_lone_surrogates_are_no_url() -> None:
    """A URL with lone surrogates is refused."""
    with pytest.raises(FetchError, match="is no text"):
        check_url("https://host/\ud800.tar")


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(2, "No such file", "http:/me:secret@host/a.tar"),
        PermissionError(13, "Permission denied", "a.tar?signature=secret"),
        OSError("cannot open https://me:secret@host/a.tar"),
        ValueError("netloc 'https://me:secret@host' contains invalid characters"),
        UnicodeEncodeError("ascii", "https://me:secret@host/\u00e4", 23, 24, "ordinal"),
        KeyError("https://me:secret@host/a.tar"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_causes_are_named_without_secrets(error: Exception) -> None:
    """The cause of an error keeps its kind and number, and hides what its text quotes."""
    cause = without_secrets(error)
    assert "secret" not in f"{cause} {cause!r} {cause.args}"
    assert cause.__cause__ is cause.__context__ is None
    if isinstance(error, OSError):
        assert (type(cause), getattr(cause, "errno", None)) == (type(error), error.errno)
    else:
        assert isinstance(cause, ValueError) == isinstance(error, ValueError)
