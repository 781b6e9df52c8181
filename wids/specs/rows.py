"""Checks of the shards that a spec lists: all at once where they are alike, else one by one.

A list of a million shards nearly always holds a million of the same kind. Looked at column by
column they take two microseconds each. Where anything is unusual or wrong, `columns_if_plain` says
no more than that, and checking each by itself finds which one it is, and what.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence
from itertools import count, repeat
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np

from wids.base.hashing import DIGESTS
from wids.base.urls import display_url
from wids.errors import SpecError
from wids.specs import locations
from wids.specs.shardtable import (
    COLUMNS,
    MOST_SAMPLES,
    UNKNOWN,
    ShardTable,
    extras_of,
)
from wids.specs.textcolumns import BytesColumn, Parts, TextColumn

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["as_row", "check_location", "check_shard", "check_weight", "columns_if_plain"]

_URL = re.compile(r"[a-z][a-z0-9+.-]*://[^\s'\"]+", re.IGNORECASE)
_CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f]")
_SINGLY = {"weight", "index"}  # each value of these needs a check of its own
_MOST_KEY_SETS = 16  # a list with more sets of keys is not of one kind


def columns_if_plain(shards: Sequence[Any], base: str) -> ShardTable | None:
    """Check and resolve shards all at once.

    Args:
        shards: What the `shardlist` of a JSON holds.
        base: What relative URLs count from.

    Returns:
        Their table, or None where at least one needs a look by itself: it is malformed, or says
        something that counts from the base or is checked value by value.
    """
    if not shards or set(map(type, shards)) != {dict}:
        return None
    key_sets = set(map(tuple, shards))
    keys = set().union(*key_sets)
    if len(key_sets) > _MOST_KEY_SETS or keys & _SINGLY:
        return None
    try:
        urls = _plain_urls([shard["url"] for shard in shards], base)
        nsamples, filesize = (_plain_counts(shards, name) for name in ("nsamples", "filesize"))
        filesize[filesize == 0] = UNKNOWN  # as in check_shard
        digests = {
            field: _plain_digests([shard.get(field) for shard in shards], kind.num_hex)
            for field, kind in DIGESTS.items()
            if field in keys
        }
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    extras = TextColumn(map(extras_of, shards, count())) if keys - {*COLUMNS} else None
    return ShardTable.of_columns(TextColumn(urls), nsamples, filesize, digests, extras)


def _plain_urls(urls: list[str], base: str) -> list[str]:
    """Return the resolved URLs; a ValueError or TypeError where one is not printable text."""
    text = "".join(urls)  # a TypeError where one is no text
    # No control character is printable; what else is not, a lone surrogate say, is looked at.
    if not text.isprintable() or "" in urls:
        raise ValueError("a URL needs a look")
    return locations.join_all(base, urls)


def _plain_counts(shards: Sequence[Mapping[str, Any]], field: str) -> NDArray[np.int64]:
    found = [shard.get(field) for shard in shards]
    if not set(map(type, found)) <= {int, type(None)}:  # bool is a type of its own
        raise TypeError("a count needs a look")
    said = [each for each in found if each is not None]
    if said and not 0 <= min(said) <= max(said) < MOST_SAMPLES:
        raise ValueError("a count needs a look")
    if len(said) == len(found):
        return np.array(said, np.int64)
    return np.array([UNKNOWN if each is None else each for each in found], np.int64)


def _plain_digests(found: list[Any], ndigits: int) -> BytesColumn:
    """Return a column of digests; a ValueError or TypeError where a shard has none."""
    if all(map(operator.eq, map(len, found), repeat(ndigits))):
        blob = bytes.fromhex("".join(found))  # a TypeError for a list, a ValueError for no digits
        if 2 * len(blob) == ndigits * len(found):  # else there were spaces among the digits
            return BytesColumn(Parts(len(found), b"", b"", blob, None))
    raise ValueError("a digest needs a look")


def as_row(shard: Any, source: str, number: int) -> dict[str, Any]:
    """Return the entry that a dict, a `(url, nsamples)` pair or a location stands for.

    Raises:
        SpecError: It is none of these.
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
    """Check the entry of a shard, and convert its counts to plain integers.

    Raises:
        SpecError: Something is malformed; the message names source, shard, field and value.
    """
    where = f"{source}: shard {number}"
    if "url" not in row:
        raise SpecError(f"{where}: url: is missing; its entry has the keys {list(row)!r:.80}")
    check_location(row["url"], where, "url")
    for field in ("nsamples", "filesize"):
        if row.get(field) is not None:
            row[field] = _checked_count(row[field], where, field)
    # No tar has 0 bytes: writers of old specs put 0 where they did not know the size.
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
    """Refuse a value that is neither path nor URL.

    Raises:
        SpecError: It is no text, empty, or holds control characters.
    """
    if not isinstance(location, str) or not location:
        raise SpecError(f"{where}: {field}: expected a path or URL, found {_shown(location)}")
    if _CONTROL_CHARACTER.search(location):
        raise SpecError(f"{where}: {field}: {_shown(location)} holds control characters")
    try:
        location.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise SpecError(f"{where}: {field}: {_shown(location)} is no text") from None
    try:
        urlsplit(location)
    except ValueError as error:
        raise SpecError(f"{where}: {field}: {_shown(location)} is no URL: {error}") from None


def _shown(value: Any) -> str:
    """Return a value as messages show it: shortened, and URLs without credentials."""
    return f"{_URL.sub(lambda found: display_url(found[0]), repr(value)):.80}"


def check_weight(weight: Any, where: str) -> None:
    """Raise SpecError for a weight that is no number from 0 on; None is none given."""
    number = isinstance(weight, int | float | np.number) and not isinstance(weight, bool)
    if weight is not None and not (number and 0 <= weight < float("inf")):
        raise SpecError(f"{where}: weight: expected a number from 0 on, found {weight!r:.80}")


def _checked_count(count: Any, where: str, field: str) -> int:
    try:
        value = operator.index(count)  # lets NumPy integers in, keeps floats and strings out
    except TypeError:
        value = UNKNOWN
    if isinstance(count, bool) or not 0 <= value < MOST_SAMPLES:
        raise SpecError(f"{where}: {field}: expected a count from 0 on, found {count!r:.80}")
    return value
