"""Names of classes of samples that come from several datasets, whose specs may not agree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wids.errors import SpecError
from wids.reading.shardlist import is_sharded
from wids.specs.merging import class_names, classes_by_column, merged_classes
from wids.views.plan import Add, Call, Slots, Source, slots_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["agreed", "names_of_classes", "other_classes", "stated_by_column"]


def other_classes(parts: Sequence[Any]) -> str:
    """Return a message if the specs of sequences number their classes differently; else "".

    Looking for a file of names may ask a server, so those of parts without a name in their specs
    are looked for only where another part has some. A function that maps samples may number their
    classes anew, so its results have none.
    """
    headers = {
        f"part {number}": {"classes": names} if (names := _stated_in_any_form(part)) else {}
        for number, part in enumerate(parts)
    }
    if any(headers.values()):
        for number, part in enumerate(parts):
            if not headers[f"part {number}"] and (names := _stated(part, beside=True)):
                headers[f"part {number}"] = {"classes": names}
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
    slots = slots_of(samples)
    named = [names for source in slots[0].sources if (names := _columns(slots, source))]
    differ = any(names != named[0] for names in named)
    return (named[0] if named and not differ else {}), differ


def _columns(slots: Slots, source: Source) -> dict[str, list[Any]]:
    if any(isinstance(step, Call) for step in source.steps):
        return {}
    found = classes_by_column(source.leaf.header) if is_sharded(source.leaf) else {}
    under = [step for step in source.steps if isinstance(step, Add)]
    for each in (each for step in under for each in slots[step.slot].sources):
        found = found or _columns(slots, each)
    return found


def names_of_classes(slots: Slots, source: Source) -> Mapping[int, str]:
    """Return the names of the classes of a source; if it has none, those of what is joined to it.

    Args:
        slots: The plan.
        source: What samples are rows of.
    """
    names: Mapping[int, str] = getattr(source.leaf, "class_names", {})
    for step in source.steps:
        if not names and isinstance(step, Add):
            under = slots[step.slot].sources
            names = agreed(names_of_classes(slots, each) for each in under)[0]
    return names


def _stated_in_any_form(samples: Any) -> Mapping[Any, Any]:
    return _stated(samples) or stated_by_column(samples)[0]


def _stated(samples: Any, *, beside: bool = False) -> Mapping[int, str]:
    """Return the class names in the specs of the datasets of samples.

    Args:
        samples: The samples.
        beside: Whether those in files beside the shards count, too.
    """
    slots = slots_of(samples)
    return agreed(_named(slots, source, beside=beside) for source in slots[0].sources)[0]


def _named(slots: Slots, source: Source, *, beside: bool) -> Mapping[int, str]:
    if any(isinstance(step, Call) for step in source.steps):
        return {}
    names: Mapping[int, str] = {}
    if is_sharded(source.leaf):
        names = source.leaf.class_names if beside else class_names(source.leaf.header)
    under = [step for step in source.steps if isinstance(step, Add)]
    for each in (each for step in under for each in slots[step.slot].sources):
        names = names or _named(slots, each, beside=beside)
    return names


def agreed(parts: Iterable[Mapping[int, str]]) -> tuple[dict[int, str], set[int]]:
    """Return the names of classes on which parts agree, and the numbers of the others."""
    names: dict[int, str] = {}
    disputed: set[int] = set()
    for each in parts:
        for number, name in each.items():
            if names.setdefault(number, name) != name:
                disputed.add(number)
    return {number: name for number, name in names.items() if number not in disputed}, disputed
