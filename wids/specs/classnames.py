"""Names of classes: from the spec, or from a file in its folder, local or remote."""

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from wids.base.threads import DaemonThreadPool
from wids.base.urls import is_local, local_path, scheme_of
from wids.base.warn import warn
from wids.errors import FetchError, SpecError
from wids.fetching.fetch import Fetcher
from wids.fetching.storesettings import StoreSettings
from wids.fetching.transport import AbsentError, DeniedError, FetchPolicy
from wids.specs.locations import folder_of, join
from wids.specs.merging import as_class_names, class_names, malformed_names
from wids.specs.rows import unique_keys

__all__ = ["find_class_names", "parse_class_names"]

_FILES = ("class_names.json", "classes.json", "class_names.txt", "classes.txt", "labels.txt")
_MOST_NBYTES = 16 << 20


def find_class_names(
    header: Mapping[str, Any],
    base: str = "",
    shards: Iterable[str] = (),
    *,
    remote: bool = True,
    store: StoreSettings | None = None,
) -> dict[int, str]:
    """Return class names from a spec, else from a file in its folder or in that of the shards.

    Args:
        header: The top-level keys of the spec. `class_names`, `classes` or `labels`, also in its
            `info`, is a list (class 0 first), or an object from number to name or from name to
            number.
        base: Folder of the spec, local or remote; "" for none.
        shards: Locations of the shards. Their folder counts if all of them lie in one.
        remote: Look into remote folders.
        store: Where the buckets of `s3:` URLs are.

    Returns:
        Names by class number; empty if there are none. A file that cannot be read, and malformed
        names in the spec, only give a warning.

    >>> find_class_names({"info": {"class_names": ["cat", "dog"]}}, "https://host/data")
    {0: 'cat', 1: 'dog'}
    """
    names = class_names(header)
    if malformed := malformed_names(header):
        warn(
            f"classes lack names, as the top-level key {malformed}; expected a list of names "
            "(class 0 first), or an object from number to name or from name to number: mend the "
            "spec"
        )
    folders = {folder_of(url) or os.curdir for url in shards} if not names else set()
    for folder in dict.fromkeys([base, *(folders if len(folders) == 1 else ())]):
        if names or not folder:
            continue
        if is_local(folder):
            names = _in_folder(local_path(folder))
        elif remote and scheme_of(folder):
            names = _in_remote_folder(folder, store)
    return names


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


def _in_remote_folder(folder: str, store: StoreSettings | None) -> dict[int, str]:
    """Return the names in the first file of a remote folder; all are requested at once."""

    def look(name: str) -> tuple[dict[int, str], str]:
        try:
            return _parsed(name, fetcher.read(join(folder, name), _MOST_NBYTES)), ""
        except (AbsentError, DeniedError):  # a store that is not listed denies what is not there
            return {}, ""
        except (FetchError, SpecError) as error:
            return {}, str(error)

    with (
        closing(Fetcher(FetchPolicy(attempts=2, limited_attempts=2, store=store))) as fetcher,
        DaemonThreadPool(len(_FILES), "wids-class-names") as pool,
    ):
        found = list(pool.map(look, _FILES))
    names: dict[int, str] = next((names for names, _ in found if names), {})
    problem = next((problem for _, problem in found if problem), None)
    if problem and not names:
        warn(f"classes have no names from a file beside the shards: {problem}")
    return names


def parse_class_names(path: Path) -> dict[int, str]:
    """Parse the names in a file: a list or an object in JSON, or text with one name per line.

    Raises:
        SpecError: It is damaged JSON, or JSON of another form.
        OSError: It cannot be read.
    """
    return _parsed(str(path), path.read_bytes())


def _parsed(name: str, data: bytes) -> dict[int, str]:
    # Editors on Windows begin a file with a byte order mark, which is not part of the first name.
    text = data.decode("utf-8-sig", errors="replace")
    if not name.lower().endswith(".json"):
        lines = enumerate(map(str.strip, text.splitlines()))
        return {number: line for number, line in lines if line}
    try:
        names = as_class_names(json.loads(text, object_pairs_hook=unique_keys(name)))
    except SpecError:
        raise
    except (ValueError, RecursionError) as error:
        raise SpecError(f"{name}: expected class names as JSON, found other text: {error}") from (
            error
        )
    if not names:
        raise SpecError(
            f"{name}: expected a list of class names, or an object from number to name or from "
            f"name to number, found {text.strip()!r:.60}"
        )
    return names
