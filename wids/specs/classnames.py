"""Names of classes: from the spec, or from a file in its folder, local or remote."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from pathlib import Path
from typing import Any

from wids.base.threads import DaemonThreadPool
from wids.base.urls import base_name, is_local, local_path, scheme_of
from wids.base.warn import warn
from wids.errors import FetchError, SpecError
from wids.fetching.fetch import Fetcher
from wids.fetching.storesettings import StoreSettings
from wids.fetching.transport import AbsentError, DeniedError, FetchPolicy
from wids.specs.locations import folder_of, join
from wids.specs.merging import as_class_names, class_names, malformed_names, merged_classes
from wids.specs.rows import unique_keys

__all__ = ["find_class_names", "names_beside", "parse_class_names", "warn_of_names_beside"]


_FILES = ("class_names.json", "classes.json", "class_names.txt", "classes.txt", "labels.txt")
_MOST_NBYTES = 16 << 20
_MOST_REMOTE = 4  # folders of shards on servers, each with a request for each of the files
_MOST_SPECS = 32


def find_class_names(
    header: Mapping[str, Any],
    *folders: str,
    remote: bool = True,
    shards: Iterable[str] = (),
    store: StoreSettings | None = None,
) -> dict[int, str]:
    """Return class names from the spec's top level or its `info`, else from the dataset's folders.

    Args:
        header: The top-level keys of the spec. `class_names`, `classes` or `labels` is a list
            (class 0 first), or an object from number to name or from name to number.
        folders: Folders, local or remote, that may have a file of names; "" is none. The first is
            that of the spec and takes precedence over the others, which must agree.
        remote: Look into remote folders; only the first ones are asked.
        shards: Locations of the shards of a dataset without a spec. The names in specs that lie in
            a local folder count, too, if these specs list all of its shards.
        store: Where the buckets of `s3:` URLs are.

    Returns:
        Names by class number; empty if there are none, or if files disagree. That, a file that
        cannot be read, and malformed names in the spec only give a warning.

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
    if names:
        return names
    unlisted: dict[str, set[str]] = {}
    for url in shards if not (folders and folders[0]) else ():
        unlisted.setdefault(folder_of(url) or os.curdir, set()).add(base_name(url))
    # Each folder once: the shards mostly lie beside their spec.
    others = [folder for folder in dict.fromkeys(folders[1:]) if folder not in folders[:1]]
    for group in (folders[:1], others):
        distinct = [folder for folder in group if folder]
        elsewhere = [folder for folder in distinct if scheme_of(folder) and not is_local(folder)]
        try:
            found: dict[str, Mapping[str, Any]] = {
                folder: {"classes": _in_folder(local_path(folder), unlisted.get(folder, set()))}
                for folder in distinct
                if is_local(folder)
            }
            if remote and not any(each["classes"] for each in found.values()):
                found |= _in_remote_folders(elsewhere[:_MOST_REMOTE], store)
            names = class_names(merged_classes(found))
        except SpecError as error:
            warn(f"classes have no names, as the files beside the shards disagree: {error}")
            return {}
        if names:
            return names
    return {}


def names_beside(shards: Sequence[str], *, in_files: bool = True) -> dict[int, str]:
    """Return the class names that lie beside local shards; none if some are remote.

    Args:
        shards: Paths of shards.
        in_files: Whether those in files of names count, too, or only those in specs that together
            list all of the shards, which readers of another spec do not see.
    """
    if not shards or not all(map(is_local, shards)):
        return {}
    folders = dict.fromkeys(folder_of(shard) or os.curdir for shard in shards)
    if not in_files and find_class_names({}, "", *folders, remote=False):
        return {}
    return find_class_names({}, "", *folders, remote=False, shards=shards)


def warn_of_names_beside(spec: Path, header: Mapping[str, Any]) -> None:
    """Warn if a new spec names no classes, and a file in its folder will name those of its shards.

    Args:
        spec: Path of the new spec, whose samples were copied from shards without class names.
        header: Its top-level keys.
    """
    if not class_names(header) and (found := _in_folder(spec.absolute().parent)):
        first = min(found)
        warn(
            f"{spec}: has no class names, and a file in its folder has some, which readers will "
            f"use ({first} is {found[first]!r:.80}); if these are the names of other classes, "
            "remove the file, or write to another folder"
        )


def _in_folder(folder: Path, shards: AbstractSet[str] = frozenset()) -> dict[int, str]:
    for name in _FILES:
        path = folder / name
        try:
            # Checked first, because opening a pipe of such a name would wait for its writer.
            if path.is_file() and path.stat().st_size <= _MOST_NBYTES:
                return parse_class_names(path)
        except (SpecError, OSError) as error:
            warn(f"classes have no names from a file beside the shards: {error}")
    return _in_specs(folder, shards) if shards else {}


def _in_specs(folder: Path, shards: AbstractSet[str]) -> dict[int, str]:
    """Return the names in the specs of a folder that together list some shards in it.

    A spec of other shards must not name the classes of these.
    """
    headers: dict[str, Mapping[str, Any]] = {}
    listed: set[str] = set()
    for path in sorted(folder.glob("*.json"))[:_MOST_SPECS]:
        if not path.is_file():
            continue
        if path.stat().st_size > _MOST_NBYTES:
            warn(f"{path}: is too large to look for names of classes in it; open it as the spec")
            continue
        try:
            document = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError):
            continue  # no spec
        rows = document.get("shardlist") if isinstance(document, dict) else None
        rows = rows if isinstance(rows, list) else []
        urls = (each.get("url") if isinstance(each, dict) else each for each in rows)
        if own := {base_name(url) for url in urls if isinstance(url, str)} & shards:
            headers[str(path)] = document
            listed |= own if class_names(document) else set()
    return class_names(merged_classes(headers)) if shards <= listed else {}


def _in_remote_folders(
    folders: Sequence[str], store: StoreSettings | None
) -> dict[str, Mapping[str, Any]]:
    """Return the names in files of remote folders, all of which are requested at once."""
    found: dict[str, Mapping[str, Any]] = {}
    fetcher = Fetcher(FetchPolicy(attempts=2, limited_attempts=2, store=store))
    try:
        for folder in folders:
            with DaemonThreadPool(len(_FILES), "wids-class-names") as pool:
                look = partial(_in_remote_file, fetcher, folder)
                each = list(pool.map(look, _FILES))
            names: dict[int, str] = next((names for names, _ in each if names), {})
            problem = next((problem for _, problem in each if problem), None)
            if problem and not names:
                warn(f"classes have no names from a file beside the shards: {problem}")
            found[folder] = {"classes": names}
    finally:
        fetcher.close()
    return found


def _in_remote_file(fetcher: Fetcher, folder: str, name: str) -> tuple[dict[int, str], str]:
    """Return the names in a remote file, and the error if it exists but cannot be read."""
    try:
        return _parsed(name, fetcher.read(join(folder, name), _MOST_NBYTES)), ""
    except (AbsentError, DeniedError):  # a store that is not listed denies what is not there
        return {}, ""
    except (FetchError, SpecError) as error:
        return {}, str(error)


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
