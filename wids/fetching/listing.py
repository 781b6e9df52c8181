"""`Listing`: the files of a remote folder, read page by page, or in parts, within bounds."""

from __future__ import annotations

import threading
from itertools import pairwise
from queue import Empty, Full, Queue
from typing import TYPE_CHECKING

from wids.base.threads import DaemonThreadPool
from wids.base.urls import display_url
from wids.errors import FetchError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from wids.fetching.transport import ListedFile, Lister, ListingPage

__all__ = ["Listing", "names_to_split_at", "pages_in_parts"]

_FEWEST_ON_A_PAGE = 100  # on average; stores put a thousand or more on a page
_FIRST_PAGES = 4  # of a folder, after which parts of the rest are listed at once
_MOST_WAITING = 16  # pages of a part that wait for those before
_POLL_SECONDS = 0.1


class Listing:
    """Files of a remote folder and of all folders in it.

    Args:
        folder: URL of the folder, in one revision.
        most_files: Largest number of files; a server may list files without end.

    Attributes:
        folder: URL of the folder, with a slash at its end.
        files: The files by their path in the folder, in the order of the server.
        num_pages: Number of pages that were read.
    """

    def __init__(self, folder: str, most_files: int) -> None:
        self.folder = f"{folder.rstrip('/')}/"
        self.files: dict[str, ListedFile] = {}
        self.num_pages = 0
        self._most_files = most_files
        self._cursor: str | None = None

    def read(self, source: Lister) -> None:
        """Read the pages that are missing.

        Raises:
            FetchError: The server refuses, or its listing is too long or repeats files.
            ConnectionError: The listing broke off; another call continues it.
        """
        for page in source.pages(self.folder, self._cursor):
            self._add(page)

    def _add(self, page: ListingPage) -> None:
        shown = display_url(self.folder)
        for file in page.files:
            name = file.url.removeprefix(self.folder)
            if not file.url.startswith(self.folder):
                # A store also lists the object that has the name of the folder.
                if file.url == self.folder[:-1]:
                    continue
                raise FetchError(
                    f"{shown}: expected a listing of files in it, found {display_url(file.url)}"
                )
            if name in self.files:
                # A store's client leaves out the slash that ends the key of a folder's marker.
                if not file.nbytes:
                    continue
                raise FetchError(
                    f"{shown}: the server lists {name!r:.200} twice, perhaps without end; list a "
                    "smaller folder, or name a spec or the shards"
                )
            self.files[name] = file
        self._cursor = page.cursor
        self.num_pages += 1
        most = self._most_files
        if len(self.files) > most or self.num_pages * _FEWEST_ON_A_PAGE > most + 1000:
            raise FetchError(
                f"{shown}: expected a listing of {most} files at most, found {len(self.files)} on "
                f"{self.num_pages} pages and more to come; list a smaller folder, or name a spec "
                "or the shards"
            )


def names_to_split_at(first: str, last: str) -> list[str]:
    """Return texts after `last`, ascending, between which there are perhaps equally many names.

    Args:
        first: A name.
        last: A later name of the same folder. Its number is assumed to have the digits of all.

    >>> names_to_split_at("a-000.tar", "a-041.tar")[::4]
    ['a-05', 'a-09', 'a-4', 'a-8']
    """
    pairs = enumerate(zip(first, last, strict=False))
    end = next((position for position, (a, b) in pairs if a != b), None)
    if end is None or not last[end].isdecimal() or not last.isascii():
        return []
    start = end
    while start and last[start - 1].isdecimal():
        start -= 1
    return [
        f"{last[:position]}{digit}"
        for position in range(end, start - 1, -1)
        for digit in range(int(last[position]) + 1, 10)
    ]


def pages_in_parts(
    list_after: Callable[[str | None], Iterator[ListingPage]], after: str | None, width: int
) -> Iterator[ListingPage]:
    """Yield the pages of a folder in order, where a store lists what follows any name.

    A page tells where the next one begins, so each takes a round trip. The first pages come one
    after the other; then parts of the rest are listed at once, if their names are numbered.

    Args:
        list_after: Function that lists the names after the given one, in the order of their code
            points; the cursor of a page is the last name on it.
        after: Where to begin; None for the first name.
        width: Number of parts at once.

    Raises:
        FetchError: A part cannot be listed, or is not in order.
        ConnectionError: Another try may help, from the cursor of the last page on.
    """
    pages, cursors = list_after(after), []
    for page in pages:
        yield page
        cursors.append(page.cursor or "")
        if len(cursors) == _FIRST_PAGES and width > 1 and cursors == sorted(cursors):
            break
    else:
        return
    points = names_to_split_at(cursors[0], cursors[-1])
    # A server that does not know how to begin after a name begins at the first one.
    probe = next(list_after(points[0]), None) if points else None
    if not points or (probe is not None and not _lies_after(probe, points[0])):
        yield from pages
        return
    starts = [cursors[-1], *points]
    parts = [_Part(list_after, start, stop) for start, stop in pairwise([*starts, None])]
    pool = DaemonThreadPool(width, "wids-listing")
    try:
        for part in parts:
            pool.submit(part.run)
        for part in parts:
            yield from part.pages()
    finally:
        for part in parts:
            part.stop()
        pool.close()


class _Part:
    """Part of a listing: the names after one and up to another, read by a thread of its own."""

    def __init__(
        self,
        list_after: Callable[[str | None], Iterator[ListingPage]],
        start: str | None,
        stop: str | None,
    ) -> None:
        self._list_after = list_after
        self._start = start or ""
        self._stop = stop
        self._came: Queue[ListingPage | Exception | None] = Queue(_MOST_WAITING)
        self._stopped = threading.Event()

    def run(self) -> None:
        """List the names."""
        end: Exception | None = None
        try:
            for page in self._list_after(self._start):
                self._check(page)
                inside = page if self._stop is None else _up_to(page, self._stop)
                self._put(inside)
                if inside is not page or self._stopped.is_set():
                    break
        except Exception as error:  # noqa: BLE001 (raised where the pages are read)
            end = error
        self._put(end)

    def _check(self, page: ListingPage) -> None:
        """Raise FetchError if the server does not list what follows a name."""
        if not _lies_after(page, self._start):
            raise FetchError(
                f"{display_url(page.files[-1].url)}: expected the server to list names after "
                f"{self._start!r:.200}, found this one"
            )

    def _put(self, item: ListingPage | Exception | None) -> None:
        while not self._stopped.is_set():
            try:
                self._came.put(item, timeout=_POLL_SECONDS)
            except Full:
                continue
            return

    def pages(self) -> Iterator[ListingPage]:
        """Yield the pages as they come; raise what the thread raised."""
        while True:
            try:
                item = self._came.get(timeout=_POLL_SECONDS)
            except Empty:
                continue
            if isinstance(item, Exception):
                raise item
            if item is None:
                return
            if item.files:
                yield item

    def stop(self) -> None:
        """Let the thread end."""
        self._stopped.set()


def _lies_after(page: ListingPage, start: str) -> bool:
    """Return whether all names of a page follow another name, as far as its cursor says."""
    return not page.files or (page.cursor or "") > start


def _up_to(page: ListingPage, stop: str) -> ListingPage:
    """Return a page without the names after another name; the page itself if there are none."""
    cursor = page.cursor or ""
    if cursor <= stop or not page.files:
        return page
    folder = len(page.files[-1].url) - len(cursor)  # all URLs begin with that of the bucket
    files = [file for file in page.files if file.url[folder:] <= stop]
    return page._replace(files=files, cursor=files[-1].url[folder:] if files else stop)
