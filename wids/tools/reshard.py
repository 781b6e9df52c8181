"""Copy of samples into new shards: shuffled, selected, merged or split."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from wids.base.arguments import check_sized, checked_positions
from wids.base.files import remove_parts, write_output
from wids.base.omissions import Omissions
from wids.base.processes import run_each
from wids.ordering.permute import derive_key, permute
from wids.reading.shardlist import is_sharded
from wids.specs.journal import Journal, is_left_over, remove_set_aside, set_aside
from wids.specs.newspec import new_spec, refuse_overwriting, spec_path_for
from wids.tar.sidecar import SIDECAR_SUFFIX
from wids.tools.begun import begun_with, refuse_other_options, refuse_other_sources
from wids.tools.copying import Part, PartWriter, Target, plan_parts
from wids.tools.copyspec import header_of, note_entry_keys, refuse_replacing_spec
from wids.views.plan import Add, Slot, Source, has_function, slots_of
from wids.views.storage import chosen_shards
from wids.views.tables import TableRows
from wids.views.viewable import View
from wids.writing.shardfile import ShardOptions, shard_options, warn_of_older
from wids.writing.shardwriter import ShardWriter, WholeShards

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from concurrent.futures import Executor

    from numpy.typing import NDArray

    from wids.views.viewable import Viewable

__all__ = ["Resharded", "reshard", "shuffled", "split_order"]


@dataclass(frozen=True)
class Resharded:
    """Result of copying samples into new shards.

    Attributes:
        entries: The spec entries of the new shards, in order.
        failures: The new shards that could not be written: path to error message.
        omissions: Counts of the data of the old shards that the new ones do not have.
    """

    entries: list[dict[str, Any]]
    failures: dict[str, Exception]
    omissions: Omissions


def reshard(
    dataset: Viewable,
    indexes: Sequence[int] | NDArray[np.int64],
    pattern: str | os.PathLike[str],
    *,
    columns_as: str | None = None,
    maxcount: int = 100_000,
    maxsize: int = 3_000_000_000,
    rekey: bool = False,
    resume: bool = False,
    executor: Executor | None = None,
    workers: int | None = None,
    strict: bool = False,
    **options: Unpack[ShardOptions],
) -> Resharded:
    """Copy samples into new shards, in the order given.

    The members keep their names, order and bytes; nothing is decoded. The same call always writes
    the same shards. Once all are complete, their spec is written to `spec_path_for(pattern)`, with
    the top-level keys of the dataset, such as class names. A shard that fails does not stop the
    others. Warns of shards with higher numbers that an earlier run has left.

    A sample of a join gets the fields of both sides. Each column of a joined table becomes a field
    of its own, as in the join, as text or JSON; `columns_as` puts all but those of bytes into one.

    Args:
        dataset: Dataset, view, join or concatenation with the samples. Only its `fields` are
            copied, by default all.
        indexes: Global indexes of the samples, in their new order: a list, a range or an array;
            negative ones count from the end.
        pattern: Path of the new shards, with a `%d` for their number.
        columns_as: Name of a field, such as ".json", for all columns of a joined table.
        maxcount: Most samples in a shard, `>= 1`.
        maxsize: Most bytes in a shard, `>= 1`; a shard with a single larger sample exceeds it.
        rekey: Replace the keys by numbers, `000000000` and so on; needed if samples of different
            shards have the same key.
        resume: Keep the new shards of an earlier run that was stopped or failed in part. They must
            have the samples that would be written, and be made of the same sources and options.
        executor: Executor that writes the shards; a process pool by default.
        workers: Processes of that pool; by default one per core.
        strict: Fail before anything is written if members in no sample or keys of spec entries
            would be left out.
        options: `sidecars`, `digests` and `fsync`, as for `ShardWriter`.

    Raises:
        IndexError: An index lies outside the dataset.
        ValueError: `indexes` is empty, a bound is below 1, the pattern is invalid, a new shard
            would replace one that is read, data would be left out and `strict` is set, a field is
            in both sides of a join, or a run is resumed that was begun with something else.

    >>> import tempfile, wids
    >>> folder = tempfile.mkdtemp()
    >>> with wids.ShardWriter(f"{folder}/old-%d.tar", spec=f"{folder}/old.json") as writer:
    ...     for number in range(5):
    ...         writer.write({"__key__": str(number), ".cls": number})
    >>> dataset = wids.ShardListDataset(f"{folder}/old.json")
    >>> done = wids.reshard(dataset, [4, 0, 2], f"{folder}/new-%d.tar", maxcount=2, workers=1)
    >>> [sample[".cls"] for sample in wids.ShardListDataset(f"{folder}/new.json")]
    [4, 0, 2]
    """
    pattern = os.fspath(pattern)
    lineage = getattr(dataset, "lineage", None)
    dataset, indexes = _stored(dataset, indexes, pattern)
    if columns_as is not None:
        dataset = _columns_together(dataset, columns_as)
    spec = Path(spec_path_for(pattern))
    written = shard_options(**options)
    # `ShardWriter` checks the pattern and the bounds before anything is fetched; this one writes
    # nothing.
    ShardWriter(pattern, maxcount, maxsize).abandon()
    refs = dataset.shards if is_sharded(dataset) else [s.ref for s in chosen_shards(dataset)]
    read = list(refs)
    refuse_overwriting(pattern, (ref.url for ref in read))
    refuse_replacing_spec(pattern, dataset)
    journal = Journal(spec.with_name(f"{spec.name}.journal"))
    omissions = Omissions(strict=strict)
    note_entry_keys(read, omissions)
    parts = plan_parts(dataset, indexes, maxcount, maxsize, rekey=rekey, omissions=omissions)
    target = Target(pattern, rekey, written)
    bounds = {"maxcount": maxcount, "maxsize": maxsize, "rekey": rekey, "columns_as": columns_as}
    begun = begun_with(dataset, indexes % len(dataset), {**bounds, **written})
    entries: dict[int, dict[str, Any]] = {}
    if resume:
        refuse_other_options(pattern, journal.begun, begun)
        noted, left = journal.entries(), journal.left_over()
        paths = [target.path(part) for part in parts]
        # A killed run may have left a truncated sidecar.
        sidecars = [f"{path.name}{SIDECAR_SUFFIX}" for path in paths]
        remove_parts(paths[0].parent, sidecars, of_living=True)
        for part, path in zip(parts, paths, strict=True):
            if path.exists() and (path.name in noted or not is_left_over(path, left)):
                whole = WholeShards([(path, path.name)], noted, target.options["digests"])
                for number, index in enumerate(part.indexes.tolist(), part.first_number):
                    whole.pass_by(target.key(number, dataset.key_at(index % len(dataset))))
                whole.check_all_passed()
                if whole.num_samples != len(part.indexes):
                    raise ValueError(
                        f"resume: {path} holds {whole.num_samples} samples, expected "
                        f"{len(part.indexes)}; call with the same bounds as before, or remove it"
                    )
                entries[part.number] = whole.entries[0]
        finished = (part for part in parts if part.number in entries)
        made = ((target.path(part), part.indexes % len(dataset)) for part in finished)
        refuse_other_sources(journal.begun, begun, dataset, made)
    else:
        journal.begin(target.path(part) for part in parts)
    journal.note({"begun": begun})
    # Existing shards are compared by key, sample by sample, before they count as done.
    missing = [part for part in parts if part.number not in entries]
    old = set_aside(spec, map(target.path, missing))

    def note(part: Part, outcome: dict[str, Any] | Exception) -> None:
        if not isinstance(outcome, Exception):
            entries[part.number] = outcome
            journal.note(outcome)

    with PartWriter(dataset, target) as write:
        outcomes = run_each(
            write, missing, executor=executor, workers=workers, desc="writing shards", done=note
        )
    failures = {
        str(target.path(part)): outcome
        for part, outcome in zip(missing, outcomes, strict=True)
        if isinstance(outcome, Exception)
    }
    rows = [entries[number] for number in sorted(entries)]
    if not failures:
        header = header_of(dataset) | {"name": spec.stem, "lineage": lineage}
        write_output(spec, f"{new_spec(rows, header).to_json()}\n".encode())
        if old is not None or resume:
            remove_set_aside(spec)
        journal.remove()
        warn_of_older(pattern, len(parts))
    return Resharded(rows, failures, omissions)


def _stored(
    dataset: Any, indexes: Sequence[int] | NDArray[np.int64], pattern: str
) -> tuple[Any, NDArray[np.int64]]:
    """Return the samples to copy by their indexes in the dataset that stores them, if it is one.

    Raises:
        IndexError: An index lies outside the dataset.
        ValueError: There are no indexes, or the samples are results of a function.
    """
    check_sized("indexes", indexes, "a list, a range or an array of integers")
    if not len(indexes):
        raise ValueError(f"{pattern}: expected at least one sample to copy, got none")
    positions = checked_positions(indexes, len(dataset))
    if has_function(dataset):
        raise ValueError(
            "reshard copies stored fields, and these samples are results of map() or windows(); "
            "give it the dataset as it is without these, or a function to map_samples"
        )
    sources = slots_of(dataset)[0].sources
    if len(sources) == 1 and not sources[0].steps and is_sharded(sources[0].leaf):
        # Samples of one dataset are copied in one piece.
        return sources[0].leaf, slots_of(dataset)[0].rows.take(positions)
    return dataset, positions


def _columns_together(samples: Any, field: str) -> Any:
    """Return samples in which the columns of a joined table, except bytes, form one field.

    Args:
        samples: A join, or a view of one.
        field: Name of the field, with a dot, such as ".json".

    Raises:
        ValueError: The name is none of a field of JSON, or there is no table, or more than one for
            a sample.
    """
    if not (field.startswith(".") and field.lower().endswith(".json")):
        raise ValueError(f"columns_as: expected a field of JSON, such as '.meta.json', got {field}")
    slots = slots_of(samples)
    counts = [_num_tables(slots, source) for source in slots[0].sources]
    if not any(counts):
        raise ValueError("columns_as: no table is joined, and fields of shards stay as they are")
    if max(counts) > 1:
        raise ValueError(
            f"columns_as: {max(counts)} tables are joined, and one field would be in each; leave "
            "it out, or write the samples with one table first"
        )
    together = {
        id(source.leaf): source.leaf.together(field)
        for slot in slots
        for source in slot.sources
        if isinstance(source.leaf, TableRows)
    }
    found = [
        Slot(
            [each._replace(leaf=together.get(id(each.leaf), each.leaf)) for each in slot.sources],
            slot.rows,
        )
        for slot in slots
    ]
    return View(tuple(found), samples.facts)


def _num_tables(slots: Sequence[Slot], source: Source) -> int:
    """Return how many tables a sample of a source is made of at most."""
    under = [step.slot for step in source.steps if isinstance(step, Add)]
    counts = [max(_num_tables(slots, each) for each in slots[slot].sources) for slot in under]
    return sum(counts) + isinstance(source.leaf, TableRows)


def shuffled(indexes: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """Return the indexes in a random order that is the same on every machine.

    Args:
        indexes: The indexes; int64, shape `(n,)`.
        seed: Seed of the order.

    >>> sorted(shuffled(np.arange(5), 7).tolist())
    [0, 1, 2, 3, 4]
    """
    if not len(indexes):
        return indexes
    positions = np.arange(len(indexes), dtype=np.int64)
    return indexes[permute(positions, len(indexes), derive_key(seed))]


def split_order(
    indexes: NDArray[np.int64], fractions: Mapping[str, float]
) -> dict[str, NDArray[np.int64]]:
    """Divide indexes into consecutive parts by fractions; each index is in one part.

    Args:
        indexes: The indexes in any order, such as a shuffled one; int64, shape `(n,)`.
        fractions: Name and share of each part; the shares are relative to their sum.

    Raises:
        ValueError: A share is not positive.

    >>> parts = split_order(np.arange(10), {"train": 0.85, "val": 0.15})
    >>> {name: len(part) for name, part in parts.items()}
    {'train': 8, 'val': 2}
    """
    shares = np.array(list(fractions.values()), np.float64)
    if not len(shares) or not (shares > 0).all():
        raise ValueError(f"the shares of a split must be positive, got {dict(fractions)}")
    # Each border of the running sum is rounded once and used twice, so that no sample is lost.
    ends = np.rint(np.cumsum(shares) / shares.sum() * len(indexes)).astype(np.int64)
    return dict(zip(fractions, np.split(indexes, ends[:-1]), strict=True))
