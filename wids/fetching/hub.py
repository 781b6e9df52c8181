"""Source of `hf://` URLs: files of the Hugging Face Hub, by its HTTPS interface."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from wids.base.urls import display_url
from wids.errors import FetchError
from wids.fetching.http import HttpSource

if TYPE_CHECKING:
    from collections.abc import Mapping

    from wids.fetching.transport import FetchPolicy, Stream

__all__ = ["HubSource", "hub_location"]

_KINDS = ("datasets", "spaces")


def hub_location(url: str, environment: Mapping[str, str]) -> str:
    """Return the https URL of `hf://datasets/<owner>/<name>[@<revision>]/<path>`.

    Args:
        url: A URL as `huggingface_hub` writes it; without `datasets/` it names a model.
        environment: `HF_ENDPOINT` names another hub.

    Raises:
        FetchError: It names no repository or no file.

    >>> hub_location("hf://datasets/me/birds@v1/train/a.tar", {})
    'https://huggingface.co/datasets/me/birds/resolve/v1/train/a.tar'
    """
    words = url.partition("://")[2].split("/")
    kind = [words.pop(0)] if words[0] in _KINDS else []
    if len(words) < 3 or not all(words[:3]):
        raise FetchError(
            f"{display_url(url)}: expected hf://datasets/<owner>/<name>/<path>, "
            f"or @<revision> after the name"
        )
    owner, name, *path = words
    name, _, revision = name.partition("@")
    # By plain HTTP, not by `huggingface_hub`: ranges, retries and the cache are those of all
    # shards.
    endpoint = environment.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    quoted = [quote(word) for word in path]
    parts = [*kind, owner, name, "resolve", quote(revision or "main", safe="%"), *quoted]
    return "/".join([endpoint, *parts])


class HubSource:
    """Opens `hf://` URLs; the user's token is sent to the hub and to no other host.

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
        token = _token(os.environ)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        location = hub_location(url, os.environ)
        return self._http.open(location, start, stop, validator=validator, headers=headers)


def _token(environment: Mapping[str, str]) -> str:
    """Return the token from where `huggingface_hub` keeps it, "" without one."""
    if environment.get("HF_TOKEN"):
        return environment["HF_TOKEN"]
    home = environment.get("HF_HOME") or "~/.cache/huggingface"
    path = Path(environment.get("HF_TOKEN_PATH") or f"{home}/token").expanduser()
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
