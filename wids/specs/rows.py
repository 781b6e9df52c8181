"""Checks of the shards in a spec: by column if all are alike, else one by one.

The entries of a list of a million shards nearly always have the same form. Checking them by column
takes two microseconds each. If any entry is unusual or wrong, `columns_if_plain` returns None, and
the checks of single entries then report which entry is wrong, and why.
"""

from __future__ import annotations

import operator
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np

from wids.base.hashing import DIGESTS
from wids.base.urls import ODD_PORT, display_url, has_odd_port, without_secrets
from wids.errors import SpecError
from wids.specs import locations
from wids.specs.shardtable import (
    COLUMNS,
    MOST_SAMPLES,
    UNKNOWN,
    ShardTable,
    TextColumn,
    digest_rows,
    extras_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = [
    "as_row",
    "check_location",
    "check_name",
    "check_shard",
    "check_weight",
    "columns_if_plain",
    "unique_keys",
]

_URL = re.compile(r"[a-z][a-z0-9+.-]*://[^\s'\"]+", re.IGNORECASE)
_CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f]")
_SINGLY = {"weight", "index", "pack"}  # keys whose values are checked one by one
_MOST_LOCATION = 8192  # characters; servers refuse longer URLs
_MOST_NAME = 1000  # characters; each shard would repeat a longer name
_MOST_KEY_SETS = 16  # for more different sets of keys, checks by column are not faster


def columns_if_plain(shards: Sequence[Any], base: str) -> ShardTable | None:
    """Check and resolve all shards by column.

    Args:
        shards: The items of a JSON's `shardlist`.
        base: Folder or URL against which relative URLs are resolved.

    Returns:
        The table, or None if the shards must be checked one by one, because one is malformed or has
        a `weight` or an `index`.
    """
    if not shards or set(map(type, shards)) != {dict}:
        return None
    key_sets = set(map(tuple, shards))
    keys = set().union(*key_sets)
    if len(key_sets) > _MOST_KEY_SETS or keys & _SINGLY:
        return None
    try:
        urls = [shard["url"] for shard in shards]
        text = "".join(urls)  # raises TypeError if one is not text
        # Control characters are not printable. Other characters that are not printable, such as
        # lone surrogates, may be valid in a path: then the shards are checked one by one.
        if not text.isprintable() or "" in urls or max(map(len, urls)) > _MOST_LOCATION:
            raise ValueError("a URL has to be checked by itself")
        start, urls = locations.join_all(base, urls)
        nsamples, filesize = (_plain_counts(shards, name) for name in ("nsamples", "filesize"))
        filesize[filesize == 0] = UNKNOWN  # as in check_shard
        digests = {
            field: digest_rows([shard.get(field) for shard in shards], field)
            for field in DIGESTS
            if field in keys
        }
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    extras = TextColumn.constant("", len(urls))
    if keys - {*COLUMNS}:
        extras = TextColumn.of(map(extras_of, shards, count()))
    return ShardTable(TextColumn.of(urls, start=start), nsamples, filesize, digests, extras)


def _plain_counts(shards: Sequence[Mapping[str, Any]], field: str) -> NDArray[np.int64]:
    found = [shard.get(field) for shard in shards]
    if not set(map(type, found)) <= {int, type(None)}:  # not isinstance, which accepts bool
        raise TypeError("a count has to be checked by itself")
    said = [each for each in found if each is not None]
    if said and not 0 <= min(said) <= max(said) < MOST_SAMPLES:
        raise ValueError("a count has to be checked by itself")
    if len(said) == len(found):
        return np.array(said, np.int64)
    return np.array([UNKNOWN if each is None else each for each in found], np.int64)


def as_row(shard: Any, source: str, number: int) -> dict[str, Any]:
    """Return the entry of a shard that is given as a dict, a `(url, nsamples)` pair or a location.

    Raises:
        SpecError: The value is none of these.
    """
    if isinstance(shard, Mapping):
        row = dict(shard)
    elif isinstance(shard, list | tuple) and len(shard) == 2:
        row = {"url": shard[0], "nsamples": shard[1]}
    elif isinstance(shard, str) or hasattr(shard, "__fspath__"):
        row = {"url": shard}
    else:
        raise SpecError(
            f"{source}: shard {number}: expected an object with 'url' and 'nsamples', "
            f"found {_shown(shard)}"
        )
    if hasattr(row.get("url"), "__fspath__"):
        row["url"] = row["url"].__fspath__()
    return row


def check_shard(row: dict[str, Any], source: str, number: int) -> None:
    """Check the entry of a shard, and convert its counts to Python integers.

    Raises:
        SpecError: A field is malformed; the message names source, shard, field and value.
    """
    where = f"{source}: shard {number}"
    if "url" not in row:
        raise SpecError(f"{where}: url: expected a path or URL, found the keys {list(row)!r:.80}")
    for field in ("nsamples", "filesize"):
        if row.get(field) is not None:
            count = row[field]
            try:
                value = operator.index(count)  # accepts NumPy integers, rejects floats and strings
            except TypeError:
                value = UNKNOWN
            if isinstance(count, bool) or not 0 <= value < MOST_SAMPLES:
                raise SpecError(
                    f"{where}: {field}: expected a count from 0 on, found {count!r:.80}"
                )
            row[field] = value
    # A tar never has 0 bytes: old writers of specs wrote 0 for an unknown size.
    if row.get("filesize") == 0:
        del row["filesize"]
    check_weight(row.get("weight"), where)
    for field, kind in DIGESTS.items():
        digest = row.get(field)
        if digest not in (None, "") and not (
            isinstance(digest, str) and re.fullmatch(f"[0-9a-fA-F]{{{kind.num_hex}}}", digest)
        ):
            raise SpecError(
                f"{where}: {field}: expected {kind.num_hex} hex digits, found {digest!r:.80}"
            )


def check_location(location: Any, where: str, field: str) -> None:
    """Raise SpecError unless a value is a path or a URL.

    Raises:
        SpecError: The value is not text, is empty or too long, holds control characters, or is not
            a valid URL.
    """
    if not isinstance(location, str) or not location:
        raise SpecError(f"{where}: {field}: expected a path or URL, found {_shown(location)}")
    if len(location) > _MOST_LOCATION:
        raise SpecError(
            f"{where}: {field}: expected {_MOST_LOCATION} characters at most, found {len(location)}"
        )
    if _CONTROL_CHARACTER.search(location):
        raise SpecError(
            f"{where}: {field}: expected no control characters, found {_shown(location)}"
        )
    try:
        location.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise SpecError(
            f"{where}: {field}: expected text that UTF-8 can encode, found {_shown(location)}"
        ) from None
    try:
        urlsplit(location)
    except ValueError as error:
        raise SpecError(
            f"{where}: {field}: expected a valid URL, found {_shown(location)}: "
            f"{without_secrets(error)}"
        ) from None
    if has_odd_port(location):
        raise SpecError(f"{where}: {field}: {_shown(location)}: {ODD_PORT}")


def _shown(value: Any) -> str:
    """Return the text of a value for messages: shortened, and without credentials of URLs."""
    text = repr(value)
    if len(text) > _MOST_LOCATION + 2:  # 2 for the quotes
        # Not cut: the pattern would not recognise half a URL, and its password would be shown.
        return f"a {type(value).__name__} of {len(text)} characters"
    return f"{_URL.sub(lambda found: display_url(found[0]), text):.80}"


def check_name(name: Any, where: str) -> None:
    """Raise SpecError unless the name of a dataset is None or a text that is not too long."""
    if name is not None and not isinstance(name, str):
        raise SpecError(f"{where}: name: expected a string, found {name!r:.80}")
    if name is not None and len(name) > _MOST_NAME:
        raise SpecError(
            f"{where}: name: expected {_MOST_NAME} characters at most, found {len(name)}: "
            f"{name!r:.80}"
        )


def check_weight(weight: Any, where: str) -> None:
    """Raise SpecError unless a weight is None or a finite number that is not negative."""
    number = isinstance(weight, int | float | np.number) and not isinstance(weight, bool)
    if weight is not None and not (number and 0 <= weight < float("inf")):
        raise SpecError(f"{where}: weight: expected a number from 0 on, found {weight!r:.80}")


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
