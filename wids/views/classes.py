"""Names of classes of samples that come from several datasets, whose specs may not agree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wids.errors import SpecError
from wids.reading.shardlist import ShardList, is_sharded
from wids.specs.merging import class_names, classes_by_column, merged_classes
from wids.views.plan import Add, Call, Slots, Source, slots_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

__all__ = ["agreed", "names_of_classes", "other_classes", "stated_by_column"]


def other_classes(parts: Sequence[Any]) -> str:
    """Return a message if the specs of sequences number their classes differently; else "".

    Looking for a file of names may ask a server, so those of parts without a name in their specs
    are looked for only where another part has some. A function that maps samples may number their
    classes anew, so its results have none.
    """
    stated = [
        agreed(_named(part, lambda leaf: class_names(leaf.header)))[0] or stated_by_column(part)[0]
        for part in parts
    ]
    if any(stated):
        stated = [
            names or agreed(_named(part, lambda leaf: leaf.class_names))[0]
            for names, part in zip(stated, parts, strict=True)
        ]
    headers = {
        f"part {number}": {"classes": names} if names else {} for number, names in enumerate(stated)
    }
    try:
        merged_classes(headers)
    except SpecError as error:
        return f"the parts number their classes differently, so a class would mix samples: {error}"
    return ""


def stated_by_column(samples: Any) -> tuple[dict[str, list[Any]], bool]:
    """Return the names of several class columns in the specs of the datasets of samples.

    Returns:
        The names by column, none if specs differ in them; and whether they differ.
    """
    named = list(filter(None, _named(samples, lambda leaf: classes_by_column(leaf.header))))
    differ = any(names != named[0] for names in named)
    return (dict(named[0]) if named and not differ else {}), differ


def names_of_classes(
    slots: Slots,
    source: Source,
    names_in: Callable[[Any], Mapping[Any, Any]] = lambda leaf: getattr(leaf, "class_names", {}),
) -> Mapping[Any, Any]:
    """Return the names of the classes of a source; if it has none, those on which a join agrees.

    Args:
        slots: The plan.
        source: What samples are rows of.
        names_in: Function from a dataset or a table to its names.
    """
    names = names_in(source.leaf)
    for step in source.steps:
        if not names and isinstance(step, Add):
            under = slots[step.slot].sources
            names = agreed(names_of_classes(slots, each, names_in) for each in under)[0]
    return names


def _named(
    samples: Any, names_in: Callable[[ShardList], Mapping[Any, Any]]
) -> Iterator[Mapping[Any, Any]]:
    """Yield the names that each source of samples has in its spec; a function may give others."""
    slots = slots_of(samples)
    for source in slots[0].sources:
        is_mapped = any(isinstance(step, Call) for step in source.steps)
        yield (
            {}
            if is_mapped
            else names_of_classes(
                slots, source, lambda leaf: names_in(leaf) if is_sharded(leaf) else {}
            )
        )


def agreed(parts: Iterable[Mapping[int, str]]) -> tuple[dict[int, str], set[int]]:
    """Return the names of classes on which parts agree, and the numbers of the others."""
    names: dict[int, str] = {}
    disputed: set[int] = set()
    for each in parts:
        for number, name in each.items():
            if names.setdefault(number, name) != name:
                disputed.add(number)
    return {number: name for number, name in names.items() if number not in disputed}, disputed
