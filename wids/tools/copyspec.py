"""The spec of new shards made of old samples: its path, its header, and what the copy would lose.

What is lost are members in no sample, and keys of old spec entries.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.base.omissions import Omissions
from wids.base.urls import display_url, is_local, local_path
from wids.base.warn import warn
from wids.codecs.formats import is_class
from wids.errors import WidsError
from wids.reading.shardlist import is_sharded
from wids.specs.indexrules import USUAL_RULES
from wids.specs.merging import class_names, classes_by_column, listed_classes, merged_header
from wids.specs.newspec import spec_path_for
from wids.specs.shardtable import COLUMNS
from wids.views.classes import stated_by_column
from wids.views.plan import datasets_in, leaves_of
from wids.views.storage import chosen_shards, shards_of_rows

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from wids.base.shardref import ShardRef
    from wids.tar.grouping import KeyRule
    from wids.views.viewable import Viewable

__all__ = [
    "check_none_left_out",
    "header_of",
    "key_rule_of",
    "note_entry_keys",
    "refuse_replacing_spec",
    "skipped_members",
    "stores_class",
]

# Keys of an entry that describe the shard itself, which new shards get again, and the spec's name.
_ENTRY_KEYS = {*COLUMNS, "index", "pack", "name"}


def header_of(samples: Any) -> dict[str, Any]:
    """Return the top-level keys of the spec of new shards: those of the samples' dataset.

    The lineage is not among them, which a view may have and its dataset not, nor are the shards
    that the old spec lacks.

    Args:
        samples: A dataset or a view; of a join, the left side counts.
    """
    bases = leaves_of(samples, joined=False)
    alone = bases[0] if len(bases) == 1 and is_sharded(bases[0]) else None
    header = {} if alone is None else merged_header({"the dataset": alone.header})
    # The members of a new sample are adjacent, in one archive; their names are the old ones.
    not_kept = {"lineage", "left_out", *USUAL_RULES}
    header = {key: value for key, value in header.items() if key not in not_kept}
    if (rule := key_rule_of(samples)) != USUAL_RULES["key_rule"]:
        header["key_rule"] = rule
    if not class_names(header) and samples.class_names:  # of a file beside the shards
        header["classes"] = listed_classes(samples.class_names)
    elif not class_names(header) and not classes_by_column(header):
        names, differ = stated_by_column(samples)
        if differ:
            warn(
                "the parts give different names to the classes of their columns, which the new "
                "spec leaves out; number the classes of all parts alike to keep them"
            )
        header |= {"classes": names} if names else {}
    return header


def key_rule_of(samples: Any) -> KeyRule:
    """Return the key rule of new shards: that of the shards from which the keys come.

    Args:
        samples: A dataset or a view; of a join, the left side has the keys.
    """
    datasets = datasets_in(samples, joined=False)
    rules = [dataset.index_rules["key_rule"] for dataset in datasets]
    return "last_dot" if "last_dot" in rules else "first_dot"


def refuse_replacing_spec(pattern: str, samples: Any) -> None:
    """Raise if the spec of new shards would replace one that is read.

    Args:
        pattern: Path of the new shards.
        samples: A dataset or a view.

    Raises:
        ValueError: It would.
    """
    new = Path(spec_path_for(pattern))
    sources = [dataset.source for dataset in datasets_in(samples)]
    for source in sources if new.exists() else ():
        old = local_path(source) if source is not None and is_local(source) else None
        if old is not None and old.exists() and new.samefile(old):
            raise ValueError(
                f"{pattern}: its spec would replace {source}, which is read; write the new shards "
                "into another folder, or under another name"
            )


def note_entry_keys(shards: Iterable[ShardRef], omissions: Omissions) -> None:
    """Count the keys of old spec entries that new entries cannot have."""
    for shard in shards:
        for key in shard.keys() - _ENTRY_KEYS:
            omissions.add(f"shards' keys {key!r} in the spec", shard["url"])


def skipped_members(
    samples: Viewable, indexes: range | NDArray[np.int64]
) -> dict[str, dict[str, int]]:
    """Return the counts of members in no sample, by reason, for each shard that has any.

    Args:
        samples: A dataset, a view, a join or a concatenation.
        indexes: The samples whose shards are opened. An unreadable shard is skipped, since reading
            its samples raises an error.
    """
    found = {}
    rows = np.asarray(indexes, np.int64)
    for dataset, first in shards_of_rows(samples, rows):
        try:
            shard, _, entry = dataset.locate_sample(first)
        except (WidsError, OSError):
            continue
        if shard.index.skipped:
            found[display_url(entry.url)] = dict(shard.index.skipped)
    return found


def stores_class(samples: Viewable) -> bool:
    """Return whether the first sample has a class field in its shard, even if it is not read."""
    for dataset, first in shards_of_rows(samples, np.zeros(1, np.int64)):
        try:
            shard, local_index, _ = dataset.locate_sample(first)
        except (WidsError, OSError):
            continue
        if any(is_class(extension) for extension, _, _ in shard.index.fields(local_index)):
            return True
    return False


def check_none_left_out(samples: Any, *, entries: bool) -> None:
    """Raise if a copy of samples would lose something that their shards or entries have.

    Args:
        samples: A dataset, a view, a join or a concatenation; its shards are indexed.
        entries: Whether the new shards have a spec, so that keys of entries count.

    Raises:
        ValueError: There are members in no sample, or keys of entries that new ones cannot have.
    """
    omissions = Omissions(strict=True)
    if entries:
        note_entry_keys((shard.ref for shard in chosen_shards(samples)), omissions)
    for url, skipped in skipped_members(samples, range(len(samples))).items():
        omissions.add_members(skipped, url)
