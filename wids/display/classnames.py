"""Names of classes: from the spec, or from a file in its folder."""

import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from wids.base.threads import DaemonThreadPool
from wids.base.urls import is_local, local_path
from wids.base.warn import warn
from wids.errors import FetchError, SpecError
from wids.specs.locations import join
from wids.specs.merging import as_class_names, class_names, merged_classes

__all__ = ["fetch_class_names", "find_class_names", "parse_class_names"]

_log = logging.getLogger(__name__)

_FILES = ("class_names.json", "classes.json", "class_names.txt", "classes.txt", "labels.txt")
_MOST_NBYTES = 16 << 20


def find_class_names(header: Mapping[str, Any], *folders: str) -> dict[int, str]:
    """Look for names in the spec's top level and its `info`, then in the dataset's folders.

    Args:
        header: The top-level keys of the spec. `class_names`, `classes` or `labels` is a list
            (class 0 first), or an object from number to name or from name to number.
        folders: Folders that may have a file of names; remote ones and "" are ignored. The first
            takes precedence over the others, which must agree.

    Returns:
        Names by class number; empty if there are none, or if files disagree. That, and a file that
        cannot be read, only gives a warning, since the user did not name the files.

    >>> find_class_names({"info": {"class_names": ["cat", "dog"]}}, "https://host/data")
    {0: 'cat', 1: 'dog'}
    """
    names = class_names(header)
    if names:
        return names
    for group in (folders[:1], folders[1:]):
        local = [folder for folder in dict.fromkeys(group) if folder and is_local(folder)]
        found = {folder: {"classes": _in_folder(local_path(folder))} for folder in local}
        try:
            names = class_names(merged_classes(found))
        except SpecError as error:
            warn(f"classes have no names, as the files beside the shards disagree: {error}")
            return {}
        if names:
            return names
    return {}


def _in_folder(folder: Path) -> dict[int, str]:
    for name in _FILES:
        path = folder / name
        try:
            # Checked first, because opening a pipe of such a name would wait for its writer.
            if path.is_file() and path.stat().st_size <= _MOST_NBYTES:
                return parse_class_names(path)
        except (SpecError, OSError) as error:
            warn(f"classes have no names from a file beside the shards: {error}")
    return {}


def parse_class_names(path: Path) -> dict[int, str]:
    """Read names from a file: a list or an object in JSON, or text with one name per line.

    Raises:
        SpecError: It is damaged JSON, or JSON of another form.
        OSError: It cannot be read.
    """
    return _parsed(str(path), path.read_bytes())


def fetch_class_names(base: str, read: Callable[[str, int], bytes]) -> dict[int, str]:
    """Look for a file of names in a remote folder; request all possible names concurrently.

    Args:
        base: URL of the folder.
        read: Returns the content at a URL; its second argument is the largest size in bytes.

    Returns:
        Names by class number; empty if there is no readable file.
    """

    def look(name: str) -> dict[int, str]:
        try:
            return _parsed(name, read(join(base, name), _MOST_NBYTES))
        except FetchError:
            return {}
        except SpecError as error:
            warn(f"classes have no names from a file beside the shards: {error}")
            return {}

    with DaemonThreadPool(len(_FILES), "wids-class-names") as pool:
        return next((names for names in list(pool.map(look, _FILES)) if names), {})


def _parsed(name: str, data: bytes) -> dict[int, str]:
    # Editors on Windows begin a file with a byte order mark, which is not part of the first name.
    text = data.decode("utf-8-sig", errors="replace")
    if not name.lower().endswith(".json"):
        lines = enumerate(map(str.strip, text.splitlines()))
        return {number: line for number, line in lines if line}
    try:
        names = as_class_names(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise SpecError(f"{name}: expected class names as JSON, found what is none: {error}") from (
            error
        )
    if not names:
        raise SpecError(
            f"{name}: expected a list of class names, or an object from number to name or from "
            f"name to number, found {text.strip()!r:.60}"
        )
    return names
