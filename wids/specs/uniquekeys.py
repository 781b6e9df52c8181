"""Parsing of JSON that people write: a key that is given twice is refused."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from wids.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["unique_keys"]


def unique_keys(source: str) -> Callable[[list[tuple[str, Any]]], dict[str, Any]]:
    """Return an `object_pairs_hook` for `json.loads` that refuses a key that stands twice.

    Args:
        source: The document, for messages.

    >>> import json
    >>> json.loads('{"classes": ["a"], "classes": ["b"]}', object_pairs_hook=unique_keys("a.json"))
    Traceback (most recent call last):
    wids.errors.SpecError: a.json: expected each key once in an object, found 'classes' twice
    """

    def checked(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
            raise SpecError(
                f"{source}: expected each key once in an object, found {twice!r:.80} twice"
            )
        return found

    return checked
