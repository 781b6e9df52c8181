"""64-bit hashes of keys, the same on every machine and in every version of this library.

A key is UTF-8, in words of eight bytes, the last one filled up with zeros. From the length on each
word is xored in, and the result mixed by the finaliser of splitmix64 (Steele, Lea, Flood, OOPSLA
2014). Splits are made by these hashes, so they never change.

`split` assigns samples by the hashes of their keys. Under the same hash, all samples of a part
would be assigned to one part again; so each split uses a key that is made of its own seed and the
lineage: the hash key of the splits that samples are a part of.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["common_lineage", "hash_key", "hash_keys", "hash_packed", "lineage_in"]

Hashes = npt.NDArray[np.uint64]

_MASK = (1 << 64) - 1
_START = 0x9E3779B97F4A7C15
_FACTORS = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_LINEAGE = re.compile("[0-9a-f]{16}")


def hash_key(key: str) -> int:
    """Return the hash of one key.

    >>> hash_key("a") == int(hash_keys(["b", "a"])[1])
    True
    """
    data = _encoded(key)
    value = (len(data) * _START) & _MASK
    for start in range(0, len(data), 8):
        value ^= int.from_bytes(data[start : start + 8], "little")
        value = ((value ^ value >> 30) * _FACTORS[0]) & _MASK
        value = ((value ^ value >> 27) * _FACTORS[1]) & _MASK
        value ^= value >> 31
    return value


def _encoded(key: str) -> bytes:
    try:
        return key.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # asked for by a stranger: no name in a tar becomes such a text
        return key.encode("utf-8", "surrogatepass")


def hash_keys(keys: list[str]) -> Hashes:
    """Return the hashes of several keys."""
    encoded = list(map(_encoded, keys))
    starts = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([len(each) for each in encoded], out=starts[1:])
    return hash_packed(b"".join(encoded), starts)


def hash_packed(packed: bytes, starts: npt.NDArray[np.int64]) -> Hashes:
    """Return the hashes of keys that lie end to end.

    Args:
        packed: The bytes of all keys.
        starts: Where each begins, and the end of the last; shape `(num_keys + 1,)`.
    """
    lengths = np.diff(starts)
    hashes: Hashes = lengths.astype(np.uint64) * np.uint64(_START)
    # Word `i` is the bytes [i, i + 8): words overlap, and the last ones need filling up.
    words: Hashes = np.ndarray((len(packed) + 1,), "<u8", packed + bytes(8), 0, (1,))
    rows = np.arange(len(lengths))
    for done in range(0, int(lengths.max(initial=0)), 8):
        rows = rows[lengths[rows] > done] if done else rows[lengths > 0]
        left = np.minimum(lengths[rows] - done, 8)
        unwanted = (8 * (8 - left)).astype(np.uint64)
        # Shifted out and back in, so that what follows the key does not count.
        word = words[starts[rows] + done] << unwanted >> unwanted
        values = hashes[rows] ^ word
        for shift, factor in zip((30, 27), _FACTORS, strict=True):
            values = (values ^ values >> np.uint64(shift)) * np.uint64(factor)
        hashes[rows] = values ^ values >> np.uint64(31)
    return hashes


def common_lineage(lineages: Iterable[str | None]) -> str | None:
    """Return the lineage of samples that come from several sequences, in any order.

    Samples that are part of no split do not count: every hash is as good as another for them.

    >>> a, b = "00000000000000aa", "00000000000000bb"
    >>> common_lineage([a, None, a]) == a, common_lineage([a, b]) == common_lineage([b, a])
    (True, True)
    """
    distinct = sorted(set(filter(None, lineages)))
    if len(distinct) < 2:
        return distinct[0] if distinct else None
    return f"{hash_key(' '.join(distinct)):016x}"


def lineage_in(header: Mapping[str, Any]) -> str | None:
    """Return the lineage in the top-level keys of a spec or a saved view; None if there is none.

    A value of another form belongs to a program that uses the name for something else.
    """
    lineage = header.get("lineage")
    return lineage if isinstance(lineage, str) and _LINEAGE.fullmatch(lineage) else None
