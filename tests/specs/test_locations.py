"""How relative locations resolve."""

from pathlib import Path
from urllib.parse import urljoin

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wids.base.urls import local_path, scheme_of
from wids.specs import locations

SEGMENT = st.text("abcXYZ019-_", min_size=1, max_size=4)


@given(st.lists(SEGMENT, max_size=3), st.lists(SEGMENT | st.just(".."), min_size=1, max_size=4))
def test_relative_urls_resolve_as_the_standard_library_does(
    base: list[str], relative: list[str]
) -> None:
    """Joining below an http base equals RFC 3986 resolution."""
    base_url = "/".join(["https://host", *base])
    location = "/".join([*relative, "a.tar"])
    assert locations.join(base_url, location) == urljoin(base_url + "/", location)


@pytest.mark.parametrize(
    ("base", "location", "expected"),
    [
        ("https://host/a", "/root.tar", "https://host/root.tar"),
        ("https://host/a", "b.tar?sig=1", "https://host/a/b.tar?sig=1"),
        ("https://host/a", "http://other/b.tar", "http://other/b.tar"),
        ("s3://bucket/set", "b.tar", "s3://bucket/set/b.tar"),
        ("s3://bucket/set#1/a?", "../b?c#.tar", "s3://bucket/set#1/b?c#.tar"),
        ("/data/sets", "../b.tar", "/data/b.tar"),
        ("/data", "/other/b.tar", "/other/b.tar"),
        ("sub", "b#1.tar", "sub/b#1.tar"),
        ("", "b.tar", "b.tar"),
        ("/data", "pipe:cat b.tar", "pipe:cat b.tar"),
    ],
)
def test_each_kind_of_location_joins_as_it_should(base: str, location: str, expected: str) -> None:
    """Absolute locations are unchanged, and hosts, queries and local names are kept."""
    assert locations.join(base, location) == expected


def test_home_folders_expand(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leading tilde means the home folder, in base and location."""
    monkeypatch.setenv("HOME", "/home/ada")
    assert locations.join("/data", "~/b.tar") == "/home/ada/b.tar"
    assert locations.join("~/sets", "b.tar") == "/home/ada/sets/b.tar"
    assert local_path("~/b.tar") == Path("/home/ada/b.tar")


@pytest.mark.parametrize("location", ["c:/data/a.tar", "a:b.tar", "/data/x.tar"])
def test_a_colon_does_not_make_a_url(location: str) -> None:
    """Only `scheme://`, `file:` and `pipe:` begin a URL."""
    assert scheme_of(location) == ""
