"""Counts of the data that a copy of samples leaves out."""

from collections import Counter
from collections.abc import Mapping

__all__ = ["Omissions"]


class Omissions:
    """Counts of the data that a source has and its copy will not have, by reason.

    >>> omissions = Omissions()
    >>> omissions.add("files that belong to no sample", "notes.txt")
    >>> omissions.add("files that belong to no sample", "log.txt")
    >>> omissions.lines()
    ['files that belong to no sample: 2, such as notes.txt']
    """

    def __init__(self, *, strict: bool = False) -> None:
        """Start without omissions.

        Args:
            strict: Raise an error for the first one instead of counting.
        """
        self.strict = strict
        self._counts: Counter[str] = Counter()
        self._examples: dict[str, str] = {}
        self._doubtful: set[str] = set()

    def add(self, what: str, example: str, count: int = 1) -> None:
        """Count something that is left out.

        Args:
            what: What is left out and why, in the plural.
            example: Name of one such item.
            count: Number of items.

        Raises:
            ValueError: The omissions are strict.
        """
        self._refuse_if_strict(example, f"would be left out ({what})")
        self._count(what, example, count)

    def add_doubtful(self, what: str, example: str, count: int = 1) -> None:
        """Count an item that is copied but is probably not what the user expects.

        Args:
            what: What is doubtful, in the plural.
            example: Name of one such item.
            count: Number of items.

        Raises:
            ValueError: The omissions are strict.
        """
        self._refuse_if_strict(example, f"is one of the {what}")
        self._doubtful.add(what)
        self._count(what, example, count)

    def add_members(self, skipped: Mapping[str, int], shard: str) -> None:
        """Count the members of a shard that are in no sample, by reason, except directories.

        Raises:
            ValueError: There is one, and the omissions are strict.
        """
        for reason, count in skipped.items():
            if reason != "directory":
                self.add(f"members of tars that are in no sample ({reason})", shard, count)

    def lines(self) -> list[str]:
        """Return one line per reason for what is left out, the most frequent first."""
        return self._listed(doubtful=False)

    def remarks(self) -> list[str]:
        """Return one line for each kind of doubtful items that are copied."""
        return self._listed(doubtful=True)

    def _refuse_if_strict(self, example: str, finding: str) -> None:
        if self.strict:
            raise ValueError(
                f"{example}: {finding}, which --strict forbids; mend the source, or leave out "
                "--strict"
            )

    def _count(self, what: str, example: str, count: int) -> None:
        self._counts[what] += count
        self._examples.setdefault(what, example)

    def _listed(self, *, doubtful: bool) -> list[str]:
        return [
            f"{what}: {count}, such as {self._examples[what]}"
            for what, count in self._counts.most_common()
            if (what in self._doubtful) == doubtful
        ]
