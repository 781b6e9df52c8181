"""Joining of datasets: which samples belong together, and what is said of their fields."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from wids.base.warn import warn
from wids.errors import SpecError, WidsError
from wids.reading.samplesequence import is_near
from wids.views.classes import other_classes
from wids.views.plan import Add, Call, Rename, Slots, first_names, in_both, names_after, slots_of
from wids.views.tables import TableRows

__all__ = ["check_fields", "check_new_names", "counterparts", "matching_rows"]

Integers = npt.NDArray[np.int64]

# Runs of samples whose keys are compared before two sequences count as aligned.
_RUNS_COMPARED = 4


def counterparts(left: Any, right: Any, *, aligned: bool | None) -> Integers | None:
    """Return the index of the sample with the same key in another dataset, -1 for none.

    Args:
        left: The samples that get fields.
        right: A dataset or view.
        aligned: Whether both have the same keys in the same order; None to find out.

    Returns:
        None if all of them lie side by side. Their keys are compared as they are read.

    Raises:
        ValueError: Two samples of `right` have one key, or aligned ones are not as many.
    """
    if aligned and len(left) != len(right):
        raise ValueError(
            f"join: aligned datasets have the same samples, got {len(left)} and {len(right)}"
        )
    if aligned or (aligned is None and _are_aligned(left, right)):
        # What is several times in one of them cannot be noted as compared.
        if all(slots_of(side)[0].rows.ascending for side in (left, right)):
            return None
        if np.array_equal(left.key_hashes(), right.key_hashes()):
            return np.arange(len(left), dtype=np.int64)
        if aligned:
            (other,) = np.nonzero(left.key_hashes() != right.key_hashes())
            keys = (side.keys_at(other[:1])[0] for side in (left, right))
            raise ValueError(
                "join: aligned datasets have the same keys in the same order, those of sample "
                f"{other[0]} are {' and '.join(map(repr, keys))}; join with aligned=False"
            )
    return matching_rows(left, right, right._kept_table.of(right.key_hashes))  # noqa: SLF001 (of every `Viewable`)


def matching_rows(left: Any, right: Any, table: Any) -> Integers:
    """Return the index in `right` of the sample with the key of each sample of `left`.

    Args:
        left: The sequence whose keys are looked up.
        right: The sequence in which they are looked up.
        table: Table of the keys of `right`.

    Returns:
        The indexes; -1 for a sample without a counterpart. Only the hashes are compared here;
        reading a sample then compares the keys.

    Raises:
        ValueError: Several samples of `right` have a key that is looked for.
    """
    rows, matches = table.pairs(left.key_hashes())
    (twice,) = np.nonzero(np.diff(rows) == 0)
    if len(twice):
        first, second = matches[twice[0]], matches[twice[0] + 1]
        key = right.key_at(int(first))
        raise ValueError(
            f"join: samples {first} and {second} of the right dataset both have the key {key!r}; "
            "leave one of them out, by select() or exclude()"
        )
    found = np.full(len(left), -1, np.int64)
    found[rows] = matches
    return found


def _are_aligned(left: Any, right: Any) -> bool:
    """Return whether two sequences seem to hold the same keys in the same order.

    Both must lie in shards of the same lengths, and the keys of some shards are compared. The keys
    of the others are compared when their samples are read.
    """
    lengths = np.asarray(left.lengths, np.int64)
    if len(left) != len(right) or not np.array_equal(lengths, np.asarray(right.lengths)):
        return False
    ends = np.cumsum(lengths)
    full = np.flatnonzero(lengths)
    chosen = np.unique(np.linspace(0, len(full) - 1, min(len(full), _RUNS_COMPARED)).astype(int))
    for run in full[chosen].tolist():
        indexes = np.arange(ends[run] - lengths[run], ends[run], dtype=np.int64)
        if left.keys_at(indexes) != right.keys_at(indexes):
            return False
    return True


def check_fields(left: Any, right: Any, step: Add) -> None:
    """Compare the fields of the first samples of two sides of a join, if they are at hand.

    Names that `rename` gives to no field are warned of, and classes that both number differently.

    Args:
        left: The samples that get fields.
        right: Whose fields they get: a dataset, a view or a table.
        step: How they are merged.

    Raises:
        SpecError: Both sides have a field of one name, and none is to replace the other; or fields
            of them differ by case alone.
    """
    from wids.codecs.formats import is_class

    mine, theirs = _fields_at_hand(left), _fields_at_hand(right)
    if theirs and step.rename:
        missing = [name for name in step.rename if name not in theirs]
        if missing:
            warn(
                f"rename: the first sample of the joined dataset has no "
                f"{', '.join(map(repr, missing))}; it has {', '.join(sorted(theirs))}"
            )
    names = step.renamed(theirs or [])
    twice = [name for name in names if name in (mine or ())]
    if twice and not step.replace:
        raise in_both(twice)
    folded = {name.lower(): name for name in mine or ()}
    if alike := [name for name in names if folded.get(name.lower(), name) != name]:
        other = folded[alike[0].lower()]
        raise SpecError(
            f"join: {other!r} and {alike[0]!r} differ by case alone, which SQL cannot tell apart; "
            f"pass rename={{{alike[0]!r}: '.other'}}, or fields= without it"
        )
    if step.of_table:
        return
    if step.replace:
        if message := other_classes([left, right]):
            warn(f"join: {message}")
        return
    classes = [name for name in names if is_class(name)]
    # Names of classes are those of the left alone.
    if (theirs is None or classes) and other_classes([left, right]):
        named = ", ".join(classes) or "its class fields"
        warn(
            "join: the two sides number their classes differently, and names are those of the "
            f"left; filter {named} of the right by number, not by name, and note that shards "
            "written from the join have the names of the left alone"
        )


def check_new_names(slots: Slots, step: Rename) -> None:
    """Compare the fields that are renamed with those of first samples, if they are at hand.

    Args:
        slots: The plan of the samples.
        step: The new names. Those that stand for no field are warned of.

    Raises:
        ValueError: Samples have another field of a new name.
    """
    known: set[str] = set()
    for source in slots[0].sources:
        names = _fields_at_hand(source.leaf) if len(source.leaf) else []
        if names is None or any(isinstance(each, Call) for each in source.steps):
            return
        known.update(names_after(slots, source, names))
    shown = f"the first samples have {', '.join(sorted(known)) or 'no fields'}"
    for new, fields in step.names.items():
        if new in known and new not in step.taken:
            raise ValueError(
                f"rename: {new!r} is a field already: {shown}; expected new names with the old "
                f"ones, as in {{'.caption': '.txt'}}; name a field that may have the new name "
                f"already among the others: {{{new!r}: {';'.join([*fields, new])!r}}}"
            )
        if known and known.isdisjoint(fields):
            warn(f"rename: {new!r} stands for {', '.join(fields)}, and {shown}")


def _fields_at_hand(samples: Any) -> list[str] | None:
    """Return the fields of the first sample; None if that needs a request or runs a function."""
    if isinstance(samples, TableRows):
        return list(samples.fields)
    # A function may give a sample other fields than its shard has.
    if samples.batch_kind == "samples":
        return None
    try:
        slots = slots_of(samples)
        if len(samples):
            return first_names(slots) if is_near(samples, 0) else None
        leaf = slots[0].sources[0].leaf
        return first_names(slots) if len(leaf) and leaf.is_near(0) else None
    except (WidsError, OSError):  # which is raised again where the sample is read
        return None
