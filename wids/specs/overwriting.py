"""Keeping new shards off the files that they are made of."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from wids.base.urls import is_local, local_path

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["refuse_overwriting"]


def refuse_overwriting(pattern: str, sources: Iterable[str]) -> None:
    """Refuse to write shards where some stand that are still to be read.

    Args:
        pattern: Path of the new shards, with a place for their number.
        sources: Paths and URLs of what is read.

    Raises:
        ValueError: A new shard could get the name of one of them, and replace it.
    """
    try:
        target_name = Path(pattern % 0).name
    except (TypeError, ValueError):
        return  # no pattern at all, which the writer says
    begin = target_name.partition("0")[0]
    for source in sources:
        # Most names differ in their first letters: they are told apart without asking the disk.
        if not is_local(source) or not local_path(source).name.startswith(begin):
            continue
        path = local_path(source)
        for digits in set(re.findall(r"\d+", str(path))):
            target = Path(pattern % int(digits))
            if target.name == path.name and target.resolve() == path.resolve():
                raise ValueError(
                    f"{pattern}: would replace {path}, from which samples are read; write the new "
                    "shards into another folder, or under another name"
                )
