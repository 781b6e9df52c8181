"""Options of an import, and the opened source."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from wids.base.omissions import Omissions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from wids.tar.grouping import Grouping, KeyRule

__all__ = [
    "SORTED_CLASSES",
    "ImportOptions",
    "Imported",
    "count_missing_parts",
    "is_documentation",
]

SORTED_CLASSES = "auto"  # value of `--classes`: the names that occur, sorted

# Files that document a dataset or that programs leave behind; they have no samples. A license must
# not be followed by an underscore: `license_plates.csv` may be data.
_DOCUMENTATION = re.compile(
    r"((readme|changelog)([-_. ].*)?|(licen[sc]e|citation)([-. ].*)?)", re.IGNORECASE
)
_DOCUMENTATION_SUFFIXES = {"", ".md", ".txt", ".rst", ".html", ".pdf", ".cff", ".bib"}
_LEFT_BEHIND = {".ds_store", "thumbs.db", "desktop.ini", ".gitattributes", ".gitignore"}
_NUMBERED = re.compile(r"(.*)-(\d{5,9})-of-(\d{5,9})(.*)", re.DOTALL)


@dataclass(frozen=True)
class ImportOptions:
    """Options of an import; `importers.IMPORTERS` lists those that each kind of source takes.

    Attributes:
        fields: Column to extension.
        files: Columns with paths of files; None for a column with a usual name, such as `path`.
        key: Column with the keys; None for `__key__`, `key` or `id`, else for numbers.
        classes: Names of the classes in order, or "auto" for the names that occur, sorted.
        split: Name of the split to import.
        pattern: Regular expression that parses the keys of an LMDB.
        grouping: "adjacent" or "shard", for tars.
        key_rule: "first_dot" or "last_dot", for tars.
        concatenated: Whether tars are read beyond the end of their first archive.
        allow_outside: Whether rows may name files outside of the source's folder.
        rekeyed: Whether the caller replaces the keys by numbers, so that keys may occur twice.
        strict: Whether the first omission is an error.
    """

    fields: Mapping[str, str] = field(default_factory=dict)
    files: Sequence[str] | None = None
    key: str | None = None
    classes: Sequence[str] | str | None = None
    split: str | None = None
    pattern: str | None = None
    grouping: Grouping = "adjacent"
    key_rule: KeyRule = "first_dot"
    concatenated: bool = False
    allow_outside: bool = False
    rekeyed: bool = False
    strict: bool = False


@dataclass(frozen=True)
class Imported:
    """Opened source of an import.

    Attributes:
        samples: Its samples for `ShardWriter`, in an order that depends only on the source.
        header: Top-level keys for the spec, such as `classes`.
        total: The number of samples, if the source gives it.
        shards: The tars that are read, which the new ones must not overwrite.
        omissions: Counts of the data left out, complete once all samples were read.
    """

    samples: Iterator[dict[str, Any]]
    header: dict[str, Any] = field(default_factory=dict)
    total: int | None = None
    shards: tuple[str, ...] = ()
    omissions: Omissions = field(default_factory=Omissions)


def is_documentation(name: str) -> bool:
    """Return whether a file is documentation or was left behind by a program.

    >>> is_documentation("README.md"), is_documentation(".DS_Store"), is_documentation("a.jpg")
    (True, True, False)
    >>> is_documentation("license_plates.csv")
    False
    """
    is_text = PurePath(name).suffix.lower() in _DOCUMENTATION_SUFFIXES
    explains = is_text and _DOCUMENTATION.fullmatch(name) is not None
    return explains or name.lower() in _LEFT_BEHIND


def count_missing_parts(paths: Iterable[PurePath], omissions: Omissions) -> None:
    """Count the files missing from numbered sets; `x-00000-of-00003` implies three files.

    Args:
        paths: All files that are to be imported.
        omissions: Counts the missing files.

    Raises:
        ValueError: One is missing, and the omissions are strict.
    """
    found: dict[tuple[str, str, str], set[int]] = {}
    for path in paths:
        if named := _NUMBERED.fullmatch(str(path)):
            start, number, total, end = named.groups()
            found.setdefault((start, total, end), set()).add(int(number))
    for (start, total, end), numbers in found.items():
        missing = int(total) - len(numbers)
        if missing > 0:
            first = next(number for number in range(len(numbers) + 1) if number not in numbers)
            example = f"{start}-{first:0{len(total)}d}-of-{total}{end}"
            omissions.add("files missing from a numbered set", example, missing)
