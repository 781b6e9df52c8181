"""Loading of a spec from a JSON file or URL, a folder, a pattern, or a list of shards."""

from __future__ import annotations

import glob
import io
import os
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

from wids.base.urls import display_url, file_name, is_local, local_path
from wids.base.warn import warn
from wids.errors import FetchError, SpecError
from wids.fetching.localfile import read_local
from wids.pack.packformat import is_pack_name
from wids.specs.locations import (
    SHARD_SUFFIXES,
    SPEC_NAMES,
    FoundShards,
    is_shard_name,
    natural_order,
)
from wids.specs.merging import left_out, merged_header
from wids.specs.shardtable import DOUBTFUL_KEYS, ShardTable
from wids.specs.spec import DatasetSpec
from wids.specs.speccache import SpecCache

if TYPE_CHECKING:
    from pathlib import Path

    from wids.fetching.storesettings import StoreSettings

__all__ = ["entries_at", "expand_braces", "find_shards", "load_spec", "warn_of_doubtful_keys"]

_MAX_EXPANSION = 2_000_000
_MAX_EXPANDED = 256 << 20  # characters of all names
_MAX_PATTERN, _MAX_BRACES = 8192, 16  # of one pattern; many braces take hours to tell apart


def load_spec(
    source: Any,
    *,
    base: str | os.PathLike[str] | None = None,
    options: Mapping[str, Any] | None = None,
    allow_local: bool = False,
    cache_dir: str | os.PathLike[str] | None = None,
    store: StoreSettings | None = None,
) -> DatasetSpec:
    """Return the spec of a path, a URL, an open file, a list of shards, or of several specs.

    Args:
        source: One of

            - path or URL of a JSON spec, or an open file that holds one;
            - a folder with shards, a glob (`train-*.tar`), a brace pattern (`train-{000..146}.tar`)
              or one shard;
            - a folder or glob in an object store or on the hub (`s3://bucket/train/`,
              `hf://datasets/owner/name`), which is listed;
            - in any folder, a `wids.json` or `shardindex.json` is used as its spec;
            - a list of shards: `{"url", "nsamples", ...}` dicts, `(url, nsamples)` pairs, paths,
              URLs, patterns;
            - a `DatasetSpec`, or a dict as `json.load` returns it for a spec;
            - a list in which some of these stand for their shards, in its order.
        base: Folder or URL against which relative URLs are resolved.
        options: Top-level keys that replace those of a JSON spec, or that a list is given.
        allow_local: Allow a JSON spec from a server to name files of this machine.
        cache_dir: Cache folder, which keeps large specs as columns that are mapped, not parsed.
        store: Where the buckets of `s3:` URLs are, like everywhere in this module; by default the
            file of settings says it, else the environment.

    Returns:
        The spec; a shard whose number of samples is unknown has `nsamples` None.

    Raises:
        SpecError: The source does not exist, or is malformed.
        FetchError: A URL could not be read.
    """
    if isinstance(source, str) and not source:  # often a variable of a shell that is not set
        raise SpecError("expected the location of a dataset, got an empty text; '.' is this folder")
    try:
        spec = _loaded(source, base, options, allow_local, cache_dir, store)
    except MemoryError:
        named = source if isinstance(source, str | os.PathLike) else getattr(source, "name", None)
        shown = "the list of shards" if named is None else display_url(str(named))
        raise SpecError(f"{shown}: not enough memory to read it as a shard-spec") from None
    if not isinstance(source, str | os.PathLike | Mapping):
        return spec  # each document of a list says it
    if lost := left_out(spec.header):
        named = "the dict" if isinstance(source, Mapping) else display_url(os.fspath(source))
        warn(
            f"{named}: {len(lost)} of {len(lost) + len(spec.shards)} shards are left out, since "
            "they could not be read when the spec was made, such as "
            f"{display_url(lost[0]['url'])} ({lost[0].get('reason')!s:.200}); mend them and run "
            "wids create again with --resume"
        )
    warn_of_doubtful_keys(spec)
    return spec


def warn_of_doubtful_keys(spec: DatasetSpec) -> None:
    """Warn of shards whose samples may be several, as was found when the spec was made."""
    if spec.header.get("key_rule") is not None:
        return
    if rows := spec.shards.extras.rows_with(f'"{DOUBTFUL_KEYS}":'):
        from wids.tar.grouping import DOTTED_KEYS  # imported here, as it is rarely needed

        first = spec.shards[rows[0]]
        warn(
            f"{display_url(first.url)}: {first.extras.get(DOUBTFUL_KEYS)!s:.500}; {DOTTED_KEYS}. "
            f"Such samples are in {len(rows)} of {len(spec.shards)} shards"
        )


def _loaded(
    source: Any,
    base: str | os.PathLike[str] | None,
    options: Mapping[str, Any] | None,
    allow_local: bool,
    cache_dir: str | os.PathLike[str] | None,
    store: StoreSettings | None,
) -> DatasetSpec:
    base = None if base is None else os.fspath(base)
    parse = partial(
        DatasetSpec.parse,
        base=base,
        options=options,
        read=partial(_read_named, store=store),
        allow_local=allow_local,
    )
    if isinstance(source, io.IOBase) or hasattr(source, "read"):
        name = getattr(source, "name", "")
        return parse(source.read(), str(name))
    if isinstance(source, str | os.PathLike):
        location = os.fspath(source)
        if is_pack_name(location):
            raise SpecError(
                f"{display_url(location)}: is a pack, the tar indexes of the shards of a spec; "
                "open the spec, whose key 'pack' names it"
            )
        if (found := find_shards(location, store)) is not None:
            if found.spec is None:
                return DatasetSpec.from_list(found.entries, base=base, options=options)
            spec = parse(read_document(found.spec, store), found.spec)
            found.compare(spec.shards)
            return spec
        # The cache keeps a spec without options only: each set of options would need a copy.
        plain = options is None and not allow_local
        kept = SpecCache.of(location, base, cache_dir) if plain else None
        arguments = None if kept is None else kept.load()
        if arguments is not None:
            return DatasetSpec(**arguments)
        others: list[str] = []

        def read(url: str) -> bytes:
            others.append(url)
            return _read_named(url, store)

        spec = parse(read_document(location, store), location, read=read)
        # A spec that refers to other documents is not cached: they may change while it does not.
        if kept is not None and not others:
            kept.save(spec)
            if (arguments := kept.load()) is not None:  # mapped columns take less memory
                spec = DatasetSpec(**arguments)
        return spec
    if isinstance(source, DatasetSpec):
        header = {**source.header, "name": source.name, **(options or {})}
        if base is not None:
            return DatasetSpec.from_list(
                [dict(shard) for shard in source.shards], base=base, options=header
            )
        name = header.pop("name")
        return DatasetSpec(
            source.shards, name=name, base=source.base, header=header, catalogue=source.catalogue
        )
    if isinstance(source, Mapping):
        return parse(source, "the dict")
    if not isinstance(source, Iterable) or isinstance(source, bytes):
        raise SpecError(
            "shards: expected a path, a URL, an open file, a list, a dict or a DatasetSpec, found "
            f"{source!r:.80}"
        )
    items = list(source)
    if not any(_is_spec(item, store) for item in items):
        shards: list[Any] = []  # each location is replaced by its shards
        for item in items:
            is_location = isinstance(item, str | os.PathLike)
            shards += entries_at(os.fspath(item), store, alone=False) if is_location else [item]
        spec = DatasetSpec.from_list(shards, base=base, options=options)
        if not spec.shards:
            raise SpecError("expected at least one shard, found an empty list")
        return spec
    specs: dict[str, DatasetSpec] = {}
    for is_spec, run in groupby(items, partial(_is_spec, store=store)):
        # The shards between two specs form a spec of their own.
        for item in run if is_spec else [list(run)]:
            name = f"entry {len(specs)} of the list"
            if isinstance(item, str | os.PathLike) and display_url(os.fspath(item)) not in specs:
                name = display_url(os.fspath(item))
            specs[name] = load_spec(item, base=base, store=store)
    header = merged_header({name: spec.header for name, spec in specs.items()})
    names = {spec.name for spec in specs.values()}
    tables = [
        spec.shards.inheriting({"dataset": spec.name} if len(names) > 1 and spec.name else {})
        for spec in specs.values()
    ]
    header |= {"name": names.pop() if len(names) == 1 else None, **(options or {})}
    return DatasetSpec(ShardTable.joined(tables), name=header.pop("name"), header=header)


def find_shards(
    location: str, store: StoreSettings | None = None, *, alone: bool = True
) -> FoundShards | None:
    """Return the shards that a folder, a pattern or the location of one shard stands for.

    Args:
        location: A path, URL or pattern.
        store: Where the buckets of `s3:` URLs are.
        alone: Whether the location stands alone. In a list, one that ends in no slash is a shard.

    Returns:
        The shards, and the spec in their folder; None if `location` is that of a JSON spec.

    Raises:
        SpecError: The folder or pattern has no shards, or a server cannot list it.
        FetchError: A remote folder could not be listed.
    """
    if _is_listed(location, alone=alone):
        from wids.specs.prefixes import list_shards

        return list_shards(_names(location), store)
    path = local_path(location) if is_local(location) else None
    # `Path.is_dir` and `is_file` raise for a name that is too long for any file.
    if path is not None and os.path.isdir(path):  # noqa: PTH112
        return _in_folder(path, location)
    if path is not None and os.path.isfile(path):  # noqa: PTH113
        return FoundShards([{"url": str(path)}]) if is_shard_name(path.name) else None
    if "{" in location and (names := expand_braces(location)) != [location]:
        return FoundShards([entry for name in names for entry in entries_at(name, store)])
    if path is not None and glob.has_magic(str(path)):
        try:
            found = glob.glob(str(path), recursive=True)  # noqa: PTH207 (str in, str out)
        except RecursionError:
            shown = display_url(location)
            raise SpecError(f"{shown:.200}: expected a pattern of fewer folders") from None
        except ValueError as error:  # a name that no file can have
            raise SpecError(f"{display_url(location):.200}: malformed pattern: {error}") from None
        shards = [name for name in found if not os.path.isdir(name)]  # noqa: PTH112 (as above)
        if not shards:
            raise SpecError(f"{display_url(location)}: holds no shards: no file matches")
        return FoundShards([{"url": name} for name in sorted(shards, key=natural_order)])
    return FoundShards([{"url": location}]) if is_shard_name(file_name(location)) else None


def entries_at(
    location: str, store: StoreSettings | None = None, *, alone: bool = True
) -> list[dict[str, Any]]:
    """Return the entries of the shards at a location, as `find_shards`; else one of itself.

    Args:
        location: As for `find_shards`.
        store: As for `find_shards`.
        alone: As for `find_shards`.

    Raises:
        SpecError: There are no shards, or a server cannot list them.
        FetchError: A remote folder could not be listed.
    """
    found = find_shards(location, store, alone=alone)
    if found is None:
        return [{"url": location}]
    if not found.entries:
        raise SpecError(
            f"{display_url(found.folder)}: holds a spec and no shards; name the spec, "
            f"{display_url(str(found.spec))}"
        )
    return found.entries


def _in_folder(folder: Path, location: str) -> FoundShards:
    """Return the shards of a local folder, and the spec in it, as those of a bucket."""
    spec = next((folder / name for name in SPEC_NAMES if (folder / name).is_file()), None)
    # A folder may have the name of the tar that was unpacked into it. Hidden files are
    # metadata of macOS (`._a.tar`) or unfinished copies.
    shards = [
        entry
        for entry in folder.iterdir()
        if is_shard_name(entry.name) and not entry.name.startswith(".") and not entry.is_dir()
    ]
    if spec is None and not shards:
        suffixes = " or ".join(SHARD_SUFFIXES)
        raise SpecError(
            f"{display_url(location)}: holds no shards: no file that ends in {suffixes}; `wids "
            "import` makes shards of other files"
        )
    # As a store's folder is listed: a copy of it must number the samples alike.
    entries: list[dict[str, Any]] = [
        {"url": str(shard)} for shard in sorted(shards, key=lambda path: natural_order(str(path)))
    ]
    for entry in entries if spec is not None else ():  # which is compared with the sizes
        if os.path.isfile(entry["url"]):  # noqa: PTH113 (False for a link to nothing)
            entry["filesize"] = os.stat(entry["url"]).st_size  # noqa: PTH116
    return FoundShards(entries, f"{location.rstrip('/')}/", None if spec is None else str(spec))


def _is_listed(location: str, *, alone: bool) -> bool:
    """Return whether a store must be asked which shards a location stands for."""
    if is_local(location):
        return False
    from wids.specs.prefixes import is_listed

    return any(is_listed(name, alone=alone) for name in _names(location))


def _names(location: str) -> list[str]:
    """Return the locations that a remote one stands for, as far as stores may list them."""
    # Braces may stand for a million names of shards, which nobody has to list.
    plain = "*" not in location and is_shard_name(location)
    return expand_braces(location) if "{" in location and not plain else [location]


def _is_spec(item: Any, store: StoreSettings | None) -> bool:
    """Return whether an entry of a list is a spec, or a remote folder, and not a shard."""
    if isinstance(item, str | os.PathLike):
        location = os.fspath(item)
        if is_pack_name(location) or _is_listed(location, alone=False):
            return True  # there may be a spec in the folder
        if is_local(location) and os.path.isdir(path := local_path(location)):  # noqa: PTH112
            return any((path / name).is_file() for name in SPEC_NAMES)
        return file_name(location).endswith(".json") and find_shards(location, store) is None
    if isinstance(item, Mapping):
        return "url" not in item and ("shardlist" in item or "datasets" in item)
    return isinstance(item, DatasetSpec)


def expand_braces(pattern: str) -> list[str]:
    """Return the names of a brace pattern, expanded as by a shell.

    Raises:
        SpecError: The pattern stands for more than two million names, is longer than any, or has
            more than 16 opening braces.

    >>> expand_braces("train-{08..10}.tar")
    ['train-08.tar', 'train-09.tar', 'train-10.tar']
    """
    # Imported here: few specs have braces, and the import would delay every command.
    import bracex

    if len(pattern) > _MAX_PATTERN:
        raise SpecError(
            f"expected a brace pattern of {_MAX_PATTERN} characters at most, found {len(pattern)}"
        )
    if (num_braces := pattern.count("{")) > _MAX_BRACES:
        raise SpecError(
            f"{display_url(pattern):.200}: expected {_MAX_BRACES} opening braces at most, found "
            f"{num_braces}; list the shards, or give one pattern for each of several datasets"
        )
    names, total = [], 0
    try:
        for name in bracex.iexpand(pattern, limit=_MAX_EXPANSION):
            names.append(name)
            total += len(name)
            if total > _MAX_EXPANDED:
                raise SpecError(
                    f"{display_url(pattern):.200}: expected names of {_MAX_EXPANDED} characters at "
                    "most in all, found more"
                )
    except bracex.ExpansionLimitException as error:
        raise SpecError(f"{display_url(pattern):.200}: {error}") from error
    except (ValueError, RecursionError) as error:  # a number beyond 64 bits; too many braces
        raise SpecError(f"{display_url(pattern):.200}: malformed brace pattern: {error}") from error
    return names


def read_document(location: str, store: StoreSettings | None = None) -> bytes:
    """Return the content of a JSON spec at a path or URL.

    Raises:
        SpecError: The file cannot be read.
        FetchError: The URL could not be read.
    """
    try:
        if is_local(location):
            return read_local(location)
        from wids.fetching.fetch import open_url

        return open_url(location, store)
    except FetchError as error:
        if not is_local(location) or not isinstance(error.__cause__, OSError):
            raise
        raise SpecError(
            f"{display_url(location)}: cannot be read as a shard-spec "
            f"({error.__cause__.strerror}); expected a JSON file, "
            "a folder with .tar shards, a pattern such as train-{000..146}.tar, or a list"
        ) from error


def _read_named(location: str, store: StoreSettings | None) -> bytes:
    """Return the content of a spec that another spec refers to.

    Raises:
        SpecError: A local path is not a regular file; a device or a pipe may have no end.
        FetchError: The URL could not be read.
    """
    if is_local(location) and os.path.exists(path := local_path(location)) and not path.is_file():  # noqa: PTH110 (False for a name that is too long)
        raise SpecError(f"{location}: expected a JSON file, found a folder, pipe or device")
    return read_document(location, store)
