"""Listings of which parts are read at once: all names, each once, in order."""

import threading
from collections.abc import Callable, Iterator
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wids.errors import FetchError
from wids.fetching.listing import names_to_split_at, pages_in_parts
from wids.fetching.transport import ListedFile, ListingPage

ListAfter = Callable[[str | None], Iterator[ListingPage]]


def store_of(names: list[str], length: int, calls: list[str | None] | None = None) -> ListAfter:
    """Return the listing of a store that has these names, so many on a page."""
    names = sorted(names)

    def list_after(after: str | None) -> Iterator[ListingPage]:
        if calls is not None:
            calls.append(after)
        rest = [name for name in names if after is None or name > after]
        for start in range(0, len(rest), length):
            page = rest[start : start + length]
            yield ListingPage([ListedFile(f"s3://b/{name}", 1) for name in page], page[-1])

    return list_after


def names_on(pages: Iterator[ListingPage]) -> list[str]:
    return [file.url.removeprefix("s3://b/") for page in pages for file in page.files]


NUMBERED = st.integers(0, 10**4).map("train/{:05d}.tar".format) | st.integers(0, 400).map(str)


@settings(deadline=None)
@given(
    st.sets(NUMBERED | st.text("ab09é/-", min_size=1, max_size=4), max_size=120),
    st.integers(1, 9),
    st.none() | NUMBERED,
    st.integers(1, 4),
)
def test_each_name_is_listed_once(
    names: set[str], length: int, after: str | None, width: int
) -> None:
    """Whatever the names are, parts make up the listing, in its order."""
    expected = sorted(name for name in names if after is None or name > after)
    assert names_on(pages_in_parts(store_of(list(names), length), after, width)) == expected


def test_numbered_names_are_listed_at_once() -> None:
    """Of numbered names, no request lists more than a tenth."""
    calls: list[str | None] = []
    names = [f"a-{number:04d}.tar" for number in range(5000)]
    assert names_on(pages_in_parts(store_of(names, 10, calls), None, 4)) == names
    assert {"a-0039.tar", "a-01", "a-1", "a-9"} <= set(calls)


def test_names_without_numbers_are_listed_one_page_after_another() -> None:
    """Where names give no hint, or are few, one request follows the other."""
    assert names_to_split_at("aa", "ab") == []
    calls: list[str | None] = []
    names = [f"{letter}{other}" for letter in "abcdefgh" for other in "abcdefgh"]
    assert names_on(pages_in_parts(store_of(names, 5, calls), None, 4)) == names
    assert calls == [None]


def test_a_store_that_begins_at_the_first_name_is_listed_in_order() -> None:
    """A store that ignores the name to begin after gives each name once, too."""
    names = [f"a-{number:04d}.tar" for number in range(500)]
    whole = store_of(names, 10)
    assert names_on(pages_in_parts(lambda _: whole(None), None, 4)) == names


def test_a_part_that_fails_fails_the_listing() -> None:
    """The error of a part is raised in its turn, after the pages before it."""
    names = [f"a-{number:04d}.tar" for number in range(500)]
    whole = store_of(names, 10)

    def list_after(after: str | None) -> Iterator[ListingPage]:
        for page in whole(after):
            if (page.cursor or "") > "a-03":
                raise FetchError("the server refuses")
            yield page

    pages = pages_in_parts(list_after, None, 4)
    assert names_on(islice(pages, 30)) == names[:300]
    with pytest.raises(FetchError, match="the server refuses"):
        next(pages)


def test_a_listing_that_is_left_ends_its_threads() -> None:
    """After a reader that stops early, no thread goes on to list."""
    names = [f"a-{number:04d}.tar" for number in range(5000)]
    before = threading.active_count()
    pages = pages_in_parts(store_of(names, 10), None, 4)
    assert len(names_on(islice(pages, 8))) == 80
    pages.close()  # type: ignore[attr-defined]
    for thread in threading.enumerate():
        if thread.name.startswith("wids-listing"):
            thread.join(60)
    assert threading.active_count() <= before
