"""Merging of the top-level keys of several specs, whose class names must agree."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from wids.base.keyhash import common_lineage, lineage_in
from wids.base.warn import warn
from wids.errors import SpecError
from wids.specs.indexrules import USUAL_RULES, common_rules

__all__ = [
    "as_class_names",
    "class_names",
    "classes_by_column",
    "composed_header",
    "left_out",
    "listed_classes",
    "malformed_names",
    "merged_classes",
    "merged_header",
    "without_classes",
]

_KEYS = ("class_names", "classes", "labels", "id2label", "label2id")
_MOST_SHOWN = 5  # names in a message
_DIGITS = re.compile("[0-9]{1,18}")
_OWN_KEYS = {"__kind__", "wids_version", "name", "base", "base_path", "shardlist", "datasets"}
_OF_COMPONENTS = {"weight", "source_url", "dataset"}  # which each shard has from its component


def class_names(header: Mapping[str, Any]) -> dict[int, str]:
    """Return the class names given by the top-level keys of a spec, or else by its `info`.

    >>> class_names({"classes": ["cat", "dog"]})
    {0: 'cat', 1: 'dog'}
    """
    info = header.get("info")
    for source in (header, info if isinstance(info, Mapping) else {}):
        for key in _KEYS:
            names = as_class_names(source.get(key))
            if names:
                return names
    return {}


def malformed_names(header: Mapping[str, Any]) -> str:
    """Describe the first class names in a spec that cannot be used; return "" if all can.

    Args:
        header: Its top-level keys, of which `info` is searched, too.

    >>> malformed_names({"classes": "cat, dog"})
    "'classes' is 'cat, dog', which is no list or object of names"
    >>> malformed_names({"classes": {"0": "cat", "one": "dog"}})
    "'classes' has names without a number, such as 'one'"
    """
    info = header.get("info")
    for source in (header, info if isinstance(info, Mapping) else {}):
        for key in _KEYS:
            value = source.get(key)
            if not value or _is_by_column(value):
                continue
            if not as_class_names(value):
                return f"{key!r} is {value!r:.60}, which is no list or object of names"
            if isinstance(value, Mapping) and (lost := _unnumbered(value)):
                return f"{key!r} has names without a number, such as {lost[0]!r:.60}"
    return ""


def classes_by_column(header: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the names of several class columns in the top-level keys of a spec, by column.

    >>> classes_by_column({"classes": {"label": ["cat", "dog"], "other": ["x", "y"]}})
    {'label': ['cat', 'dog'], 'other': ['x', 'y']}
    >>> classes_by_column({"classes": ["cat", "dog"]})
    {}
    """
    found = (header[key] for key in _KEYS if header.get(key) and _is_by_column(header[key]))
    return dict(next(found, {}))


def _is_by_column(value: Any) -> bool:
    """Return whether a value has lists of names by column, which imports write and readers keep."""
    return isinstance(value, Mapping) and all(isinstance(each, list) for each in value.values())


def _unnumbered(names: Mapping[str, Any]) -> list[str]:
    by_number = any(_DIGITS.fullmatch(str(key)) for key in names)
    return [
        str(key)
        for key, value in names.items()
        if not (_DIGITS.fullmatch(str(key)) if by_number else type(value) is int)
    ]


def without_classes(header: Mapping[str, Any]) -> dict[str, Any]:
    """Return the top-level keys of a spec without its class names, and those of its `info`.

    >>> without_classes({"classes": ["cat"], "info": {"labels": ["cat"], "license": "MIT"}})
    {'info': {'license': 'MIT'}}
    """
    kept = {key: value for key, value in header.items() if key not in _KEYS}
    info = header.get("info")
    if isinstance(info, Mapping) and class_names({"info": info}):
        kept["info"] = {key: value for key, value in info.items() if key not in _KEYS}
    return kept


def merged_classes(headers: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the keys that name the classes of several specs.

    Args:
        headers: The top-level keys of each spec, by its name for messages.

    Returns:
        The keys unchanged if all specs that have them agree; one `classes` key if one spec names
        more classes than another; an empty dict if no spec names any.

    Raises:
        SpecError: Two specs give one number to two classes, or two numbers to one class, or specs
            differ and one has its names in a form that is not understood.

    >>> merged_classes({"a.json": {"classes": ["cat"]}, "b.json": {"classes": ["cat", "dog"]}})
    {'classes': ['cat', 'dog']}
    """
    merged: dict[int, str] = {}
    said_by: dict[int, str] = {}
    for source, header in headers.items():
        for number, name in class_names(header).items():
            if merged.setdefault(number, name) != name:
                raise SpecError(
                    f"{source}: class {number} is {name!r:.80}, in {said_by[number]} it is "
                    f"{merged[number]!r:.80}; give the classes the same numbers first"
                )
            said_by.setdefault(number, source)
    first: dict[str, int] = {}
    for number, name in merged.items():
        other = first.setdefault(name, number)
        if other != number and said_by[other] != said_by[number]:
            raise SpecError(
                f"{said_by[number]}: {name!r:.80} is class {number}, in {said_by[other]} it is "
                f"class {other}; give the classes the same numbers before you merge the specs"
            )
    raw = [{key: header[key] for key in _KEYS if key in header} for header in headers.values()]
    said = [each for each in raw if each]
    if said and all(each == said[0] for each in said) and class_names(said[0]) == merged:
        return dict(said[0])  # unchanged: it may have two columns, or a form that is not understood
    if not merged and not said:
        return {}
    if not merged or any(_has_unread_names(header) for header in headers.values()):
        raise SpecError(
            f"{_listed(headers)}: have different keys for class names, in a form that cannot be "
            "merged; make them equal before you merge the specs"
        )
    return {"classes": listed_classes(merged)}


def _has_unread_names(header: Mapping[str, Any]) -> bool:
    """Return whether a spec has class names, but only in an unknown form."""
    objects = [header[key] for key in _KEYS if isinstance(header.get(key), Mapping)]
    return any(objects) and not class_names(header)


def listed_classes(names: Mapping[int, str]) -> Any:
    """Return class names as a value for a spec: a list if possible, else an object.

    >>> listed_classes({1: "dog", 0: "cat"}), listed_classes({7: "owl"})
    (['cat', 'dog'], {'7': 'owl'})
    """
    if sorted(names) == list(range(len(names))):
        return [names[number] for number in range(len(names))]
    return {str(number): names[number] for number in sorted(names)}


def merged_header(headers: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the top-level keys for the merge of several specs.

    Keys on which the specs differ are left out, with a warning. The rules by which shards are read
    must agree.

    Args:
        headers: The top-level keys of each spec, by its name for messages.

    Raises:
        SpecError: The specs number their classes or read their shards differently.

    >>> merged_header({"a.json": {"license": "MIT"}, "b.json": {"license": "MIT"}})
    {'license': 'MIT'}
    """
    merged = {**merged_classes(headers), **common_rules(headers)}
    _warn_of_silent(headers, "in the new spec")
    every: dict[str, list[Any]] = {}
    for header in headers.values():
        for key, value in header.items():
            if key not in _OWN_KEYS and key not in _KEYS and key not in USUAL_RULES:
                every.setdefault(key, []).append(value)
    lineage = common_lineage(map(lineage_in, headers.values()))
    if lost := [each for header in headers.values() for each in left_out(header)]:
        every["left_out"] = [lost]
    for key, values in every.items():
        if all(value == values[0] for value in values):
            merged[key] = values[0]
        elif key != "lineage" or lineage is None:
            warn(f"{_listed(headers)}: differ in {key!r:.80}, which the new spec leaves out")
    return merged if lineage is None else merged | {"lineage": lineage}


def composed_header(
    own: Mapping[str, Any],
    components: Mapping[str, Mapping[str, Any]],
    names: Sequence[Any],
    source: str,
) -> dict[str, Any]:
    """Return the top-level keys of a spec with `datasets`, those of its components included.

    Args:
        own: The keys of the spec itself, which take precedence.
        components: The top-level keys of each component, by where it stands, for messages.
        names: The name of each component, or None.
        source: The spec, for messages.

    Returns:
        A key that all components give one value has that value; any other is an object from the
        component's name (else `datasets[0]` and so on) to its value.

    Raises:
        SpecError: Two components number their classes or read their shards differently.

    >>> first, second = {"license": "MIT", "info": "old"}, {"license": "MIT"}
    >>> composed_header({}, {"first": first, "second": second}, ["a", "b"], "all.json")
    {'license': 'MIT', 'info': {'a': 'old'}}
    """
    classes = merged_classes({source: own, **components})
    if not class_names(own):
        _warn_of_silent(components, f"in {source}")
    texts = {name for name in names if isinstance(name, str) and name}
    labels = (
        names
        if len(texts) == len(components)
        else [f"datasets[{number}]" for number in range(len(components))]
    )
    every: dict[str, dict[str, Any]] = {}
    for component, header in zip(labels, components.values(), strict=True):
        for key, value in header.items():
            if key not in _OWN_KEYS | _OF_COMPONENTS | USUAL_RULES.keys() and key not in _KEYS:
                every.setdefault(key, {})[component] = value
    composed: dict[str, Any] = {}
    for key, values in every.items():
        first = next(iter(values.values()))
        agreed = len(values) == len(components) and all(each == first for each in values.values())
        composed[key] = first if agreed else values
    rules = common_rules(components)
    if lineage := common_lineage(map(lineage_in, components.values())):
        composed["lineage"] = lineage
    if lost := [each for header in components.values() for each in left_out(header)]:
        composed["left_out"] = lost
    return {**composed, **rules, **own, **classes}


def left_out(header: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the shards that a spec lacks because they could not be read when it was made.

    >>> left_out({"left_out": [{"url": "b.tar", "reason": "is empty"}]})
    [{'url': 'b.tar', 'reason': 'is empty'}]
    """
    listed = header.get("left_out")
    shards = listed if isinstance(listed, list) else []
    return [each for each in shards if isinstance(each, dict) and isinstance(each.get("url"), str)]


def _warn_of_silent(headers: Mapping[str, Mapping[str, Any]], where: str) -> None:
    """Warn of specs without class names beside specs that have some."""
    named = [source for source, header in headers.items() if class_names(header)]
    if silent := [source for source in headers if named and source not in named]:
        warn(
            f"{_listed(silent)}: has no class names; those of {_listed(named)} are used for its "
            f"numbers too, {where}"
        )


def _listed(names: Iterable[str]) -> str:
    """Return the first names for a message, and how many more there are."""
    every = list(names)
    shown = ", ".join(every[:_MOST_SHOWN])
    return f"{shown} and {len(every) - _MOST_SHOWN} more" if len(every) > _MOST_SHOWN else shown


def as_class_names(value: Any) -> dict[int, str]:
    """Return the class names, by number, in a value of a spec; empty for an unknown form.

    Args:
        value: A list (class 0 first), or an object from number to name or from name to number.

    >>> as_class_names(["cat", "dog"]), as_class_names({"cat": 0})
    ({0: 'cat', 1: 'dog'}, {0: 'cat'})
    """
    if isinstance(value, Mapping):
        # At most 18 digits: Python refuses to parse numbers of thousands of digits.
        pairs = [(key, name) for key, name in value.items() if _DIGITS.fullmatch(str(key))]
        if pairs:
            return {int(key): _as_name(name) for key, name in pairs}
        # From name to number, as torchvision's `class_to_idx`. Of two names the first is kept.
        turned = [(number, name) for name, number in value.items() if type(number) is int]
        return {number: str(name) for number, name in reversed(turned)}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return {number: _as_name(name) for number, name in enumerate(value)}
    return {}


def _as_name(value: Any) -> str:
    """Return a class name as text; lists such as ImageNet's `["n01440764", "tench"]` are joined."""
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return " ".join(value)
    return str(value)
