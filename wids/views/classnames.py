"""Names of classes: from the spec, or from a file beside it."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wids.urls import is_local, local_path

__all__ = ["find_class_names", "parse_class_names"]

_KEYS = ("class_names", "classes", "labels")
_FILES = ("class_names.json", "classes.json", "class_names.txt", "classes.txt", "labels.txt")
_MOST_NBYTES = 16 << 20
_DIGITS = re.compile("[0-9]{1,18}")


def find_class_names(header: Mapping[str, Any], base: str) -> dict[int, str]:
    """Look for names in the spec's top level and its `info`, then in the dataset's folder.

    Args:
        header: The top-level keys of the spec. `class_names`, `classes` or `labels` is a list
            (class 0 first), or an object from number to name.
        base: The folder that the spec's URLs count from; a remote one is not looked into.

    Returns:
        Names by class number; empty where there are none.

    Raises:
        ValueError: A JSON file of such a name holds something else.
        OSError: It cannot be read.

    >>> find_class_names({"info": {"class_names": ["cat", "dog"]}}, "https://host/data")
    {0: 'cat', 1: 'dog'}
    """
    info = header.get("info")
    for place in (header, info if isinstance(info, Mapping) else {}):
        for key in _KEYS:
            names = _as_names(place.get(key))
            if names:
                return names
    if not is_local(base):
        return {}
    folder = local_path(base)
    for name in _FILES:
        path = folder / name
        if path.is_file() and path.stat().st_size <= _MOST_NBYTES:
            return parse_class_names(path)
    return {}


def parse_class_names(path: Path) -> dict[int, str]:
    """Read names from a file: JSON, a list or an object, or text with one name a line.

    Raises:
        ValueError: It is JSON of another form.
        OSError: It cannot be read.
    """
    text = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix != ".json":
        return dict(enumerate(line.strip() for line in text.splitlines()))
    names = _as_names(json.loads(text))
    if not names:
        raise ValueError(
            f"{path}: expected a list of class names, or an object from number to name"
        )
    return names


def _as_names(value: Any) -> dict[int, str]:
    if isinstance(value, Mapping):
        # Python refuses to read numbers of thousands of digits; no class has such a one.
        pairs = [(key, name) for key, name in value.items() if _DIGITS.fullmatch(str(key))]
        return {int(key): str(name) for key, name in pairs}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return {number: str(name) for number, name in enumerate(value)}
    return {}
