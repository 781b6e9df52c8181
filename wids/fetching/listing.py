"""`Listing`: the files of a remote folder, read page by page, within bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wids.base.urls import display_url
from wids.errors import FetchError

if TYPE_CHECKING:
    from wids.fetching.transport import ListedFile, Lister, ListingPage

__all__ = ["Listing"]

_FEWEST_ON_A_PAGE = 100  # on average; stores put a thousand or more on a page


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
