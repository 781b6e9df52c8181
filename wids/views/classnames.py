"""The names of classes, where a spec gives them."""

from collections.abc import Mapping
from typing import Any

from wids.views.fieldview import ClassNames

__all__ = ["class_names_of"]


def class_names_of(header: Mapping[str, Any]) -> ClassNames | None:
    """Find the names of the classes in a spec.

    Args:
        header: The top level of the JSON. Its key `class_names`, or that of its `info`, holds a
            list (class 0 first) or an object whose keys are numbers.

    Returns:
        The names, or None where there are none that make sense.

    >>> class_names_of({"info": {"class_names": ["cat", "dog"]}})
    ['cat', 'dog']
    """
    info = header.get("info")
    places = (header, info if isinstance(info, Mapping) else {})
    found = next((place["class_names"] for place in places if "class_names" in place), None)
    if not isinstance(found, Mapping | list):
        return None
    names = found.values() if isinstance(found, Mapping) else found
    return found if all(isinstance(name, str) for name in names) else None
