"""New shards of old samples: written in parts, with their spec, and what such a copy would lose.

What is lost are members in no sample, and keys of old spec entries.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.base.files import named_write_errors, write_output
from wids.base.omissions import Omissions
from wids.base.urls import display_url
from wids.base.warn import warn
from wids.errors import WidsError
from wids.reading.shardlist import is_sharded
from wids.specs.indexrules import USUAL_RULES
from wids.specs.journal import Journal, remove_set_aside
from wids.specs.merging import class_names, classes_by_column, listed_classes, merged_header
from wids.specs.newspec import new_spec, refuse_overwriting, refuse_replacing, spec_path_for
from wids.specs.shardtable import COLUMNS
from wids.tools.parts import noted_part, write_parts
from wids.views.classes import stated_by_column
from wids.views.plan import datasets_in, leaves_of
from wids.views.storage import chosen_shards, shards_of_rows
from wids.writing.shardfile import NewShard, shard_options, warn_of_older
from wids.writing.shardwriter import ShardWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from wids.tar.grouping import KeyRule
    from wids.tools.parts import Part
    from wids.views.viewable import Viewable
    from wids.writing.memberwriter import SampleArchive
    from wids.writing.shardfile import ShardOptions

__all__ = [
    "NewShards",
    "check_none_left_out",
    "header_of",
    "key_rule_of",
    "note_entry_keys",
    "skipped_members",
]

_PATIENCE_SECONDS = 5
# Keys of an entry that describe the shard itself, which new shards get again, and the spec's name.
_ENTRY_KEYS = {*COLUMNS, "index", "pack", "name"}


class NewShards:
    """New shards of old samples, of a part each, and their spec; picklable, for processes.

    Attributes:
        spec: Path of their spec.
    """

    def __init__(
        self,
        samples: Viewable,
        pattern: str,
        fill: Callable[[Part, SampleArchive], dict[str, Any]],
        options: ShardOptions,
        **bounds: Any,
    ) -> None:
        """Check what can be checked before anything is read or written.

        Args:
            samples: The samples that are read.
            pattern: Path of the shards, with a `%d` for their number.
            fill: Writes the samples of a part to an archive; returns what is to be noted of them,
                for JSON, of which "written" is the number of samples.
            options: Options of the shards, as for `ShardWriter`.
            bounds: `maxcount` and `maxsize`, as for `ShardWriter`.

        Raises:
            ValueError: The pattern, an option or a bound is wrong, or a new shard or the spec would
                replace one that is read.
        """
        ShardWriter(pattern, **bounds).abandon()  # checks them, and writes nothing
        refuse_overwriting(pattern, (shard.ref.url for shard in chosen_shards(samples)))
        read = (dataset.source for dataset in datasets_in(samples))
        refuse_replacing(Path(spec_path_for(pattern)), (each for each in read if each is not None))
        self.spec = Path(spec_path_for(pattern))
        self._journal = Journal(self.spec.with_name(f"{self.spec.name}.journal"))
        self._samples, self._pattern, self._fill = samples, pattern, fill
        self._options = shard_options(**options)

    def path(self, part: Part) -> Path:
        """Return the path of the shard of a part."""
        return Path(self._pattern % part.number)

    def __call__(self, part: Part) -> dict[str, Any]:
        """Write the shard of a part; return what is noted of it, such as its entry in the spec.

        Raises:
            BlockingIOError: Another process is writing the same shard.
            WidsError: A sample cannot be read or written.
            ValueError: Two samples have the same key.
        """
        path = self.path(part)
        patience = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                shard = NewShard(path, self._options)
                break
            except BlockingIOError:
                # Workers of a killed run end within a second and release the lock.
                if time.monotonic() > patience:
                    raise
                time.sleep(0.1)
        try:
            with named_write_errors(path):
                counts = self._fill(part, shard.archive)
                entry = shard.publish(path.parent) if counts["written"] else None
        finally:
            shard.discard()
        return noted_part(self._samples, part, path, {**counts, "entry": entry})

    def write(
        self, parts: Sequence[Part], begun: Mapping[str, Any], *, resume: bool, **run: Any
    ) -> tuple[list[dict[str, Any]], dict[str, Exception]]:
        """Write the shards in parallel.

        Args:
            parts: The parts.
            begun: What the run is begun with, as `begun_with` returns it.
            resume: Keep the shards that an earlier run has finished.
            run: `executor`, `workers` and `desc`, as for `run_each`.

        Returns:
            What is noted of each complete shard, and the errors of the others by path.

        Raises:
            ValueError: A run is resumed that was begun with something else.
        """
        rows, failures = write_parts(
            self,
            parts,
            self._samples,
            self._journal,
            begun,
            resume=resume,
            output=self._pattern,
            spec=self.spec,
            **run,
        )
        return rows, {str(Path(self._pattern % number)): failures[number] for number in failures}

    def publish(
        self, entries: Sequence[dict[str, Any]], header: Mapping[str, Any], num_parts: int
    ) -> None:
        """Write the spec of all shards; remove their journal and the spec that was set aside.

        Warns of shards with numbers beyond those of the parts, which an earlier run has left.
        """
        header = {**header, "name": self.spec.stem}
        write_output(self.spec, f"{new_spec(entries, header).to_json()}\n".encode())
        remove_set_aside(self.spec)
        self._journal.remove()
        warn_of_older(self._pattern, num_parts)


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


def note_entry_keys(samples: Any, omissions: Omissions) -> None:
    """Count the keys of old spec entries that new entries cannot have."""
    for shard in chosen_shards(samples):
        for key in shard.ref.keys() - _ENTRY_KEYS:
            omissions.add(f"shards' keys {key!r} in the spec", shard.ref.url)


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
        note_entry_keys(samples, omissions)
    for url, skipped in skipped_members(samples, range(len(samples))).items():
        omissions.add_members(skipped, url)
