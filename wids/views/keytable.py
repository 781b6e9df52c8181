"""Lookup of samples by key, through a table of 64-bit hashes.

The hashes are sorted, with the position of each. Two keys may share a hash, so the key itself is
compared, too.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt

from wids.base.arguments import checked_position, plain_index
from wids.base.keyhash import hash_keys
from wids.base.urls import display_url, scheme_of

if TYPE_CHECKING:
    from collections.abc import Callable


__all__ = ["KeyTable", "Keys", "find_all", "read_keys"]

Integers = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

_BLOCK = 1 << 16  # keys that are read at a time
_PAIRED = 1 << 20  # hashes that are looked for at a time


class KeyTable:
    """Sorted table of hashes, with the position that each had before.

    Args:
        hashes: One for each position; shape `(n,)`.

    >>> table = KeyTable(hash_keys(["a", "b", "a"]))
    >>> table.indexes_of(int(hash_keys(["a"])[0])), table.indexes_of(7)
    ([0, 2], [])
    """

    def __init__(self, hashes: Hashes) -> None:
        order = np.argsort(hashes)
        self._indexes = order.astype(np.uint32 if len(order) < 1 << 32 else np.int64)
        self._hashes = hashes[order]
        del order  # of many keys, the memory counts
        self._search = self._hashes.data
        # Hashes are even: where those begin that share some upper bits is near each.
        self._shift = 64 - max(1, min(16, len(hashes).bit_length() - 4))
        bounds = np.arange(1 << 64 - self._shift, dtype=np.uint64) << np.uint64(self._shift)
        self._starts = [*np.searchsorted(self._hashes, bounds).tolist(), len(hashes)]

    def indexes_of(self, wanted: int) -> list[int]:
        """Return the positions that have a hash, ascending."""
        part = wanted >> self._shift
        low, high = self._starts[part], self._starts[part + 1]
        first = bisect_left(self._search, wanted, low, high)
        stop = bisect_right(self._search, wanted, first, high)
        return sorted(self._indexes[first:stop].tolist())

    def pairs(self, wanted: Hashes) -> tuple[Integers, Integers]:
        """Return all pairs of equal hashes: positions in `wanted`, and positions in the table."""
        first = np.searchsorted(self._hashes, wanted, "left")
        counts = np.searchsorted(self._hashes, wanted, "right") - first
        rows = np.repeat(np.arange(len(wanted)), counts)
        begins = np.repeat(first - (np.cumsum(counts) - counts), counts)
        indexes = self._indexes[begins + np.arange(len(rows))].astype(np.int64)
        order = np.lexsort((indexes, rows))
        return rows[order], indexes[order]

    def first_indexes(self, wanted: Hashes) -> Integers:
        """Return the first position of each hash, -1 for a hash not in the table."""
        found = np.full(len(wanted), -1, np.int64)
        for start in range(0, len(wanted) if len(self._hashes) else 0, _PAIRED):
            block = wanted[start : start + _PAIRED]
            # Sorted, neighbours are found in the same pages.
            order = np.argsort(block)
            ordered = block[order]
            slots = np.searchsorted(self._hashes, ordered)
            slots[slots == len(self._hashes)] = 0
            held = self._hashes[slots] == ordered
            found[start + order[held]] = self._indexes[slots[held]]
        return found

    def doubles(self, wanted: Hashes) -> Iterator[list[int]]:
        """Yield the positions of each of some hashes that occurs at several, ascending."""
        doubles = np.unique(self._hashes[1:][self._hashes[1:] == self._hashes[:-1]])
        for each in doubles[np.isin(doubles, wanted)].tolist() if len(doubles) else ():
            yield self.indexes_of(each)


class Keys(Sequence[str]):
    """Sequence of the keys of samples, with fast lookup by `key in keys`.

    Args:
        samples: The sequence.
        find: From a key to the index of the first sample that has it; None if none has.
    """

    def __init__(self, samples: Any, find: Callable[[str], int | None]) -> None:
        self._samples = samples
        self._find = find

    def __len__(self) -> int:
        return len(self._samples)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            keys: list[str] = self._samples.keys_at(np.array(range(len(self))[index], np.int64))
            return keys
        return str(self._samples.key_at(checked_position(plain_index(index), len(self))))

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), _BLOCK):
            yield from self[start : start + _BLOCK]

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self._find(key) is not None

    def __repr__(self) -> str:
        return f"Keys({len(self)} keys of {self._samples!r})"


def find_all(
    wanted: Sequence[str], table: KeyTable, texts_at: Callable[[Integers], Sequence[Any]]
) -> tuple[Integers, Integers]:
    """Return the positions of wanted keys, and the samples that have them.

    Args:
        wanted: The keys.
        table: Table of the hashes of all keys.
        texts_at: Function from positions to the keys there.

    Returns:
        Pairs of a position in the list and the position of a sample that has the key there. A
        missing key is in none of them, a key of several samples in several.
    """
    rows, indexes = table.pairs(hash_keys(list(wanted)))
    texts = texts_at(indexes)
    pairs = zip(rows.tolist(), texts, strict=True)
    same = np.fromiter((str(text) == wanted[row] for row, text in pairs), np.bool_, len(rows))
    return rows[same], indexes[same]


def _read_lines(path: Path) -> list[str]:
    if path.suffix.lower() == ".json":
        raise ValueError(
            f"{path}: expected a text file with one key a line, or a .npy file; for a spec or a "
            "saved view, give wids.open(path).keys"
        )
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}: expected a text file with one key a line, or a .npy file; found {error}. For "
            "a table, give the list of its keys, or join it"
        ) from error
    return [line for line in lines if line]


def read_keys(keys: Any, *, numbers: bool = False) -> list[str]:
    """Return the keys in a list or a file.

    Args:
        keys: Texts, also in a column of pyarrow, or the `Keys` of a sequence; or the path of a
            file: text with a key a line, or a `.npy` of texts, or of pairs of 64-bit numbers, as
            DataComp's lists of uids are, which are read as 32 hexadecimal digits.
        numbers: Whether whole numbers stand for their text.

    Raises:
        TypeError: They are no texts.
        ValueError: A file holds no keys, but numbers perhaps.
        OSError: A file cannot be read.
    """
    path = None
    if isinstance(keys, Path) or (isinstance(keys, str) and Path(keys).is_file()):
        path = Path(keys)
        if path.suffix != ".npy":
            return _read_lines(path)
        try:
            keys = np.load(path, mmap_mode="r", allow_pickle=False)
        except ValueError as error:
            raise ValueError(
                f"{path}: expected an array of numbers or texts: {error} Save objects such as "
                "those of pandas as texts: np.save(path, keys.astype(str))"
            ) from error
    if isinstance(keys, str):
        where = f"and there is no such file: {keys!r:.80}"
        if scheme_of(keys):
            where = f"on this machine, got the URL {display_url(keys)!r:.200}; fetch it first"
        raise TypeError(f"keys: expected a list of keys, or a file of them, {where}")
    if isinstance(keys, np.ndarray):
        if keys.dtype.names is not None and len(keys.dtype) == 2:
            keys = np.stack([keys[name] for name in keys.dtype.names], axis=1)
        if keys.ndim == 2 and keys.dtype.kind == "u" and keys.shape[1] == 2:
            return [f"{high:016x}{low:016x}" for high, low in keys.tolist()]
        keys = keys.tolist()
    elif hasattr(keys, "to_pylist"):  # a column of pyarrow, whose items are no texts of Python
        keys = keys.to_pylist()
    elif isinstance(keys, set | frozenset):
        keys = sorted(keys, key=str)
    found = list(keys) if isinstance(keys, Iterable) else [keys]
    return [_as_text(key, path, numbers=numbers) for key in found]


def _as_text(key: Any, path: Path | None, *, numbers: bool) -> str:
    """Return a key, or the text of a number if numbers may be keys.

    Raises:
        TypeError: It is no key.
        ValueError: Nor was it in a file.
    """
    if isinstance(key, str):
        return key
    if numbers and isinstance(key, int | np.integer) and not isinstance(key, bool):
        return str(key)
    if path is None:
        raise TypeError(f"keys: expected a list of texts, got {key!r:.80}")
    raise ValueError(
        f"{path}: expected keys, which are texts, got {key!r:.80}; save keys that are numbers as "
        "texts, by numpy.save(path, keys.astype(str)), and read indexes by numpy.load, for "
        "select() and exclude()"
    )
