"""Rules by which the members of shards become samples, as top-level keys of a spec give them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from wids.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from wids.tar.sidecar import IndexRules

__all__ = ["USUAL_RULES", "common_rules", "rules_of", "unusual_rules"]

_ALLOWED: dict[str, tuple[Any, ...]] = {
    "key_rule": ("first_dot", "last_dot"),
    "grouping": ("adjacent", "shard"),
    "concatenated": (False, True),
}
# The rules where neither the spec nor the program gives others.
USUAL_RULES = {name: allowed[0] for name, allowed in _ALLOWED.items()}


def rules_of(
    header: Mapping[str, Any], source: str = "the spec", **given: str | bool | None
) -> IndexRules:
    """Return the rules of a dataset: those given, else those of its spec, else the defaults.

    Args:
        header: Top-level keys of the spec.
        source: The spec, for messages.
        given: Rules that take precedence; None for the rule of the spec.

    Raises:
        SpecError: A rule of the spec has no known value.

    >>> rules_of({"grouping": "shard"}, key_rule="last_dot", grouping=None)
    {'key_rule': 'last_dot', 'grouping': 'shard', 'concatenated': False}
    """
    rules: dict[str, Any] = dict(USUAL_RULES)
    for name, allowed in _ALLOWED.items():
        if name in header:
            value = header[name]
            # A list has no hash, and 0 is False in Python, but not in JSON.
            if not any(type(value) is type(each) and value == each for each in allowed):
                expected = " or ".join(repr(each) for each in allowed)
                raise SpecError(f"{source}: {name}: expected {expected}, found {value!r:.60}")
            rules[name] = value
        if given.get(name) is not None:
            rules[name] = given[name]
    return cast("IndexRules", rules)


def unusual_rules(rules: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rules that differ from the defaults, which a spec must therefore state.

    >>> unusual_rules({"key_rule": "last_dot", "grouping": "adjacent", "concatenated": False})
    {'key_rule': 'last_dot'}
    """
    return {name: rules[name] for name, usual in USUAL_RULES.items() if rules[name] != usual}


def common_rules(headers: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the non-default rules of several specs, all of which must have the same rules.

    Args:
        headers: The top-level keys of each spec, by its name for messages.

    Raises:
        SpecError: They differ: the shards of one of them would be read in a wrong way.
    """
    every = {source: rules_of(header, source) for source, header in headers.items()}
    first = next(iter(every), "")
    for source, rules in every.items():
        if rules != every[first]:
            raise SpecError(
                f"{source}: its shards are read with {unusual_rules(rules) or 'the usual rules'}, "
                f"those of {first} with {unusual_rules(every[first]) or 'the usual rules'}; write "
                "one of them anew (wids reshard) before they become one dataset"
            )
    return unusual_rules(every[first]) if every else {}
