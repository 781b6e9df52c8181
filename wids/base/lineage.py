"""Lineage: the hash key of the splits that samples are a part of.

`split` assigns samples by a hash of their keys. Under the same hash, all samples of a part would be
assigned to one part again; so each split uses a key that is made of the lineage and its own seed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from wids.base.keyhash import hash_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["common_lineage", "lineage_in"]

_LINEAGE = re.compile("[0-9a-f]{16}")


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
