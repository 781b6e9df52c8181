"""Importer of LMDB databases, whose keys follow one of several conventions.

Datasets in LMDB have no common layout. The importer reads keys with an extension (`0001.jpg`,
`0001.cls`), keys without one (each value is a sample of one field), and other keys by a pattern
for the sample and the field in a key (`image-000000001`, `label-000000001`).
"""

from __future__ import annotations

import re
from contextlib import contextmanager, suppress
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wids.base.omissions import Omissions
from wids.base.optional import load
from wids.importing.layout import clean_key, sniffed
from wids.importing.options import Imported, ImportOptions
from wids.tar.grouping import split_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["open_lmdb"]

# Keys that describe the whole database: known ones, and names of the same form.
_ABOUT_ALL = re.compile(r"num-samples|length|len|__.*__")
_OCR_KEY = r"(?P<ext>image|label)-(?P<key>\d+)"
_MOST_NAMED = 128  # most named databases in one file
_NAMED_NBYTES = 48  # size of a value that describes a named database

_Entry = tuple[str, str, bytes]  # key of the sample, name of the field, key in the database


def open_lmdb(sources: Sequence[str | Path], options: ImportOptions | None = None) -> Imported:
    r"""Open an LMDB.

    Args:
        sources: The folder with its `data.mdb`, or the file itself.
        options: `fields` maps a field to an extension, such as `{"image": "jpg", "label": "cls"}`.
            `pattern` is a regular expression with the groups `key` and `ext` (the field) that must
            match a whole key, such as `(?P<ext>\w+)-(?P<key>\d+)`; other keys are left out.

    Returns:
        Samples sorted by key, with unchanged values. Without a pattern, keys such as
        `image-000000001` and `label-000000001`, which text recognition uses, are fields of one
        sample, the label as `.txt`. In other keys, the extension begins after the first dot; a key
        without a dot is a sample of one field, whose extension is found from the first bytes. Keys
        that describe the database (`__len__`, `num-samples`) are left out and counted.

    Raises:
        ModuleNotFoundError: lmdb is not installed.
        ValueError: No key matches, or the pattern lacks a group.
    """
    path, options = Path(sources[0]).expanduser(), options or ImportOptions()
    library = load("lmdb", "lmdb")
    omissions = Omissions(strict=options.strict)
    fields, pattern = dict(options.fields), options.pattern
    try:
        keys: dict[str, bytes] = {}
        with _reading(library, path) as view:
            # Only keys are read, since the values may be larger than the memory.
            for raw in view.cursor().iternext(keys=True, values=False):
                name = raw.decode("utf-8", "backslashreplace")
                # An image is a sample even under such a key.
                if _ABOUT_ALL.fullmatch(name) and sniffed(view.get(raw) or b"").suffix == ".bin":
                    omissions.add("keys that describe the whole database", name)
                elif name in keys:
                    raise ValueError(
                        f"{path}: the keys {keys[name]!r:.60} and {raw!r:.60} are the same text; "
                        "rename one of them"
                    )
                else:
                    keys[name] = raw
    except library.Error as error:
        raise ValueError(f"{path}: cannot be read as an LMDB ({error})") from error
    # Most of the keys: a few of another form, which are listed, tear no image from its label.
    if pattern is None and 2 * sum(bool(re.fullmatch(_OCR_KEY, key)) for key in keys) > len(keys):
        pattern, fields = _OCR_KEY, {"label": "txt", "image": ""} | fields
    # All keys are sorted first, since the fields of a sample may be far apart in the database.
    entries = sorted(_entries(keys, pattern, omissions))
    if not entries:
        wanted = "keys" if pattern is None else f"keys of the form {pattern!r}"
        raise ValueError(f"{path}: expected {wanted} in it, found none")
    names: dict[str, set[str]] = {}
    for key, field, _ in entries:
        names.setdefault(field, set()).add(key)
    every = {key for key, _, _ in entries}
    # Of keys with extensions, samples may have different fields, as in a tar.
    for field, held in names.items() if pattern is not None else ():
        if missing := every - held:
            omissions.add(f"samples without the field {field!r}", min(missing), len(missing))
    for name in options.fields:
        if name not in names:
            raise ValueError(f"{path}: has no field {name!r}; its fields are {sorted(names)}")
    samples = _samples(library, path, entries, fields)
    return Imported(samples, total=len(every), omissions=omissions)


@contextmanager
def _reading(library: Any, path: Path) -> Iterator[Any]:
    """Context manager that opens a read transaction, without a lock file.

    Raises:
        ValueError: The file is truncated, and reading beyond its end would kill the process; or it
            contains other databases.
    """
    options = {"readonly": True, "lock": False, "subdir": path.is_dir(), "create": False}
    with library.open(str(path), **options, max_dbs=_MOST_NAMED) as database:
        file = path / "data.mdb" if path.is_dir() else path
        expected = (database.info()["last_pgno"] + 1) * database.stat()["psize"]
        if file.stat().st_size < expected:
            raise ValueError(
                f"{file}: expected {expected} bytes, found {file.stat().st_size}: it is truncated; "
                "copy it again"
            )
        with database.begin() as view:
            few = database.stat()["entries"] <= _MOST_NAMED
            cursor = view.cursor() if few else ()
            for name in [bytes(key) for key, value in cursor if len(value) == _NAMED_NBYTES]:
                with suppress(library.Error):  # a value like any other
                    database.open_db(name, view, create=False)
                    raise ValueError(
                        f"{path}: contains the named database {name!r:.60}, expected keys and "
                        "values; copy its content to an LMDB of its own first"
                    )
            yield view


def _entries(
    keys: Mapping[str, bytes], pattern: str | None, omissions: Omissions
) -> Iterator[_Entry]:
    """Yield the sample and field of each key of the database."""
    try:
        compiled = None if pattern is None else re.compile(pattern)
    except re.error as error:
        raise ValueError(f"pattern {pattern!r}: {error}") from None
    if compiled and not {"key", "ext"} <= compiled.groupindex.keys():
        raise ValueError(
            f"pattern {pattern!r}: expected groups named key and ext, as in "
            r"'(?P<ext>\w+)-(?P<key>\d+)'"
        )
    for name, raw in keys.items():
        if compiled is None:
            parts = split_name(name.encode())
            if isinstance(parts, str):  # the reason why it has no extension
                yield name, "", raw
            else:
                yield parts[0].decode(), parts[1].decode().lstrip("."), raw
        elif match := compiled.fullmatch(name):
            yield match["key"], match["ext"], raw
        else:
            omissions.add("keys that do not match the pattern", name)


def _samples(
    library: Any, path: Path, entries: list[_Entry], fields: dict[str, str]
) -> Iterator[dict[str, Any]]:
    with _reading(library, path) as view:
        for key, group in groupby(entries, key=lambda entry: entry[0]):
            sample: dict[str, Any] = {"__key__": clean_key(key)}
            for _, field, raw in group:
                data = view.get(raw)
                if data is None:
                    raise ValueError(
                        f"{path}: is damaged: it lists the key {raw!r:.60} and has no value for it"
                    )
                extension = fields.get(field, field).lstrip(".")
                if not extension:
                    extension = sniffed(data).suffix.lstrip(".")
                if f".{extension}" in sample:
                    raise ValueError(f"{path}: sample {key!r} has two fields .{extension}")
                sample[f".{extension}"] = data
            yield sample
