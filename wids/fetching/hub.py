"""Source of `hf:` URLs: files of the Hugging Face hub, and the listings of its repositories."""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urljoin, urlsplit

from wids.base.urls import display_url
from wids.errors import FetchError
from wids.fetching.http import HttpSource
from wids.fetching.responses import read_bounded
from wids.fetching.transport import AbsentError, DeniedError, ListedFile, ListingPage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from wids.fetching.transport import FetchPolicy, Stream

__all__ = ["HubSource", "hub_location", "names_repository"]

_KINDS = ("datasets", "spaces")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_MOST_PAGE_NBYTES = 64 << 20  # a page of the hub has 1,000 files and some hundred kilobytes


class _HubLocation(NamedTuple):
    """Parts of an `hf:` URL; the revision may be percent-encoded in part, as in the URL."""

    kind: str
    repository: str
    revision: str
    path: tuple[str, ...]

    @classmethod
    def of(cls, url: str) -> _HubLocation:
        words = url.partition("://")[2].split("/")
        kind = words.pop(0) if words[0] in _KINDS else "models"
        if url.startswith("hf://buckets/"):
            raise FetchError(
                f"{display_url(url)}: a bucket of the hub is no repository; open it by the "
                "hub's S3 gateway, as an s3:// URL with AWS_ENDPOINT_URL and the bucket's keys set"
            )
        if len(words) < 2 or not all(words[:2]):
            raise FetchError(
                f"{display_url(url)}: expected hf://datasets/<owner>/<name>/<path>, "
                "or @<revision> after the name"
            )
        owner, name, *path = words
        name, _, revision = name.partition("@")
        return cls(kind, f"{owner}/{name}", revision, tuple(path))

    def url(self, path: str) -> str:
        kind = "" if self.kind == "models" else f"{self.kind}/"
        mark = f"@{self.revision}" if self.revision else ""
        return f"hf://{kind}{self.repository}{mark}/{path}"

    @property
    def quoted_revision(self) -> str:
        return quote(self.revision or "main", safe="%")


def names_repository(url: str) -> bool:
    """Return whether an `hf:` URL names a whole repository, and no file or folder in it.

    >>> names_repository("hf://datasets/me/birds@v1"), names_repository("hf://me/model/a.tar")
    (True, False)
    """
    words = url.partition("://")[2].rstrip("/").split("/")
    return len(words) == (3 if words[0] in _KINDS else 2)


def hub_location(url: str, environment: Mapping[str, str]) -> str:
    """Return the https URL of `hf://datasets/<owner>/<name>[@<revision>]/<path>`.

    Args:
        url: A URL in the form of `huggingface_hub`; without `datasets/` it names a model.
        environment: `HF_ENDPOINT` names another hub.

    Raises:
        FetchError: It names no repository or no file.

    >>> hub_location("hf://datasets/me/birds@v1/train/a.tar", {})
    'https://huggingface.co/datasets/me/birds/resolve/v1/train/a.tar'
    """
    location = _HubLocation.of(url)
    if not location.path or not location.path[0]:
        raise FetchError(
            f"{display_url(url)}: names a repository and no file; expected "
            "hf://datasets/<owner>/<name>/<path>"
        )
    # Plain HTTP in place of `huggingface_hub` gives hub files the same ranges, retries and cache
    # as other shards.
    kind = [] if location.kind == "models" else [location.kind]
    path = [quote(word) for word in location.path]
    parts = [*kind, location.repository, "resolve", location.quoted_revision, *path]
    return "/".join([_endpoint(environment), *parts])


class HubSource:
    """Opens and lists `hf://` URLs; the user's token is sent to the hub and to no other host.

    Args:
        policy: Its time limits.
    """

    def __init__(self, policy: FetchPolicy) -> None:
        self._http = HttpSource(policy)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def open(
        self, url: str, start: int = 0, stop: int | None = None, *, validator: str | None = None
    ) -> Stream:
        """Request a file of the hub; see `Source.open`."""
        location = hub_location(url, os.environ)
        try:
            return self._http.open(location, start, stop, validator=validator, headers=_headers())
        except FetchError as error:  # it names the https URL, which the user has not written
            raise type(error)(f"{display_url(url)}: {error}") from error

    def pin(self, url: str) -> str:
        """Return the URL with the commit that its revision, by default `main`, names now.

        Raises:
            FetchError: There is no such repository or revision, or access is denied.
            ConnectionError: No response, or one that asks to try again.
        """
        location = _HubLocation.of(url)
        if not _COMMIT.fullmatch(location.revision):
            revision = location.quoted_revision.replace("/", "%2F")
            asked = f"{_repository_url(location)}/revision/{revision}"
            document, _ = self._document(url, asked)
            commit = document.get("sha") if isinstance(document, dict) else None
            if not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
                raise FetchError(
                    f"{display_url(url)}: expected the hub to name the commit of its revision, "
                    f"found {document!r:.80}"
                )
            location = location._replace(revision=commit)
        return location.url("/".join(location.path))

    def pages(self, url: str, cursor: str | None = None) -> Iterator[ListingPage]:
        """List the files of a folder of a repository; see `Lister.pages`.

        Raises:
            FetchError: There is no such folder, access is denied, or the response is malformed.
            ConnectionError: No response, or one that asks to try again.
        """
        location = _HubLocation.of(url)
        folder = quote("/".join(location.path).strip("/"))
        tree = f"{_repository_url(location)}/tree/{location.quoted_revision.replace('/', '%2F')}"
        asked: str | None = cursor or f"{tree}{folder and '/'}{folder}?recursive=true"
        while asked is not None:
            document, following = self._document(url, asked)
            asked = following
            yield ListingPage(list(_files(url, location, document)), following)

    def _document(self, url: str, asked: str) -> tuple[Any, str | None]:
        """Return the JSON at a URL of the hub's API, and the URL of the next page."""
        try:
            with self._http.open(asked, headers=_headers()) as stream:
                text = read_bounded(asked, stream, _MOST_PAGE_NBYTES)
                following = stream.next_url and urljoin(asked, stream.next_url)
        except (AbsentError, DeniedError) as error:
            raise type(error)(
                f"{display_url(url)}: the hub has no such repository, revision or folder, or it is "
                f"private and needs a token in HF_TOKEN ({error})"
            ) from error
        # The token must not be sent to another host.
        if following and urlsplit(following)[:2] != urlsplit(asked)[:2]:
            raise FetchError(
                f"{display_url(url)}: expected the next page of its listing on the same host, "
                f"found {display_url(following)}"
            )
        try:
            return json.loads(text), following or None
        except (ValueError, RecursionError):
            raise FetchError(
                f"{display_url(url)}: expected JSON from the hub, found {text[:60]!r}"
            ) from None


def _files(url: str, location: _HubLocation, document: Any) -> Iterator[ListedFile]:
    """Yield the files in a page of a repository's tree."""
    if not isinstance(document, list):
        raise FetchError(f"{display_url(url)}: expected a list of files, found {document!r:.80}")
    for entry in document:
        match entry:
            case {"type": "file", "path": str(path), "size": int(nbytes)} if nbytes >= 0:
                large = entry.get("lfs")
                digest = large.get("oid") if isinstance(large, dict) else None
                known = isinstance(digest, str) and _SHA256.fullmatch(digest)
                yield ListedFile(location.url(path), nbytes, digest if known else None)
            case {"type": str(kind)} if kind != "file":
                pass  # a folder
            case _:
                raise FetchError(
                    f"{display_url(url)}: expected a file with path and size, found {entry!r:.80}"
                )


def _repository_url(location: _HubLocation) -> str:
    return f"{_endpoint(os.environ)}/api/{location.kind}/{location.repository}"


def _endpoint(environment: Mapping[str, str]) -> str:
    return environment.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")


def _headers() -> dict[str, str]:
    """Return the header with the token that `huggingface_hub` has stored; none without a token."""
    token = os.environ.get("HF_TOKEN")
    if not token:
        home = os.environ.get("HF_HOME") or "~/.cache/huggingface"
        path = Path(os.environ.get("HF_TOKEN_PATH") or f"{home}/token").expanduser()
        with suppress(OSError):
            token = path.read_text(encoding="utf-8").strip()
    return {"Authorization": f"Bearer {token}"} if token else {}
