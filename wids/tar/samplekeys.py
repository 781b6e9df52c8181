"""The keys of a shard's samples as a sequence: cut out of the index one by one, never a list."""

from collections.abc import Callable, Iterator, Sequence
from typing import overload

__all__ = ["SampleKeys"]


class SampleKeys(Sequence[str]):
    """The keys of an index.

    Args:
        num_samples: How many there are.
        key: Returns the key of one sample.
        check: Called before many keys are cut; raises where they might overlap.

    >>> keys = SampleKeys(3, "abc".__getitem__, lambda: None)
    >>> keys[-1], keys[:2], list(keys), keys
    ('c', ['a', 'b'], ['a', 'b', 'c'], <3 keys>)
    """

    def __init__(
        self, num_samples: int, key: Callable[[int], str], check: Callable[[], None]
    ) -> None:
        self._num_samples = num_samples
        self._key = key
        self._check = check

    def __len__(self) -> int:
        return self._num_samples

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> str | list[str]:
        # A key by itself is verified where it is cut; only of many could each claim the same
        # megabytes.
        if isinstance(place, slice):
            self._check()
            return [self._key(i) for i in range(*place.indices(len(self)))]
        return self._key(place + len(self) if place < 0 else place)

    def __iter__(self) -> Iterator[str]:
        self._check()
        return map(self._key, range(len(self)))

    def __repr__(self) -> str:
        return f"<{len(self)} keys>"
