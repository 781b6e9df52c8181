"""Importer of LMDB databases, whose keys follow one of several conventions.

Datasets in LMDB have no common layout. The importer reads keys with an extension (`0001.jpg`,
`0001.cls`), keys without one (each value is a sample of one field), and other keys by a pattern
for the sample and the field in a key (`image-000000001`, `label-000000001`).
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wids.base.omissions import Omissions
from wids.base.optional import load
from wids.importing.layout import clean_key, sniffed
from wids.importing.options import Imported, ImportOptions
from wids.tar.grouping import split_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

__all__ = ["open_lmdb"]

# Keys that describe the whole database: known ones, and names of the same form.
_ABOUT_ALL = {"num-samples", "length", "len", "__len__", "__keys__"}
_SPECIAL = re.compile(r"__.*__")
_NUM_SAMPLES = b"num-samples"
_OCR_KEY = re.compile(r"(?P<ext>[A-Za-z_]+)-(?P<key>\d{9})")
_SHORT_OCR_KEY = re.compile(r"(?P<ext>image|label)-(?P<key>\d+)")
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
        that describe the database (`__len__`, `__keys__`) are left out and counted; `num-samples`
        is compared with the number of samples.

    Raises:
        ModuleNotFoundError: lmdb is not installed.
        ValueError: No key matches, or the pattern lacks a group.
    """
    path, options = Path(sources[0]).expanduser(), options or ImportOptions()
    library = load("lmdb", "lmdb")
    omissions = Omissions(strict=options.strict)
    fields = dict(options.fields)
    try:
        keys = _keys(library, path, omissions)
        pattern = options.pattern
        if pattern is None and (pattern := _ocr_pattern(keys)) is not None:
            fields = {"label": "txt", "image": ""} | fields
        # All keys are read first, since the fields of a sample may be far apart in the database.
        entries = sorted(_entries(keys, None if pattern is None else _compiled(pattern), omissions))
        _note_missing(library, path, entries, omissions)
        if (
            pattern is not None
        ):  # keys with extensions: samples may have different fields, as in a tar
            _note_missing_fields(entries, omissions)
    except library.Error as error:
        raise ValueError(f"{path}: cannot be read as an LMDB ({error})") from error
    if not entries:
        wanted = "keys" if pattern is None else f"keys of the form {pattern!r}"
        raise ValueError(f"{path}: expected {wanted} in it, found none")
    names = {field for _, field, _ in entries}
    for name in options.fields:
        if name not in names:
            raise ValueError(f"{path}: has no field {name!r}; its fields are {names}")
    total = len({key for key, _, _ in entries})
    return Imported(_samples(library, path, entries, fields), total=total, omissions=omissions)


def _ocr_pattern(keys: Collection[str]) -> str | None:
    """Return the pattern of the keys of text recognition; None if there are other keys.

    A few keys of another form, which are then listed, must not tear images from their labels.
    """
    if keys and all(map(_OCR_KEY.fullmatch, keys)):
        return _OCR_KEY.pattern
    for pattern in (_OCR_KEY, _SHORT_OCR_KEY):
        words: dict[str, set[str]] = {}
        for match in filter(None, map(pattern.fullmatch, keys)):
            words.setdefault(match["key"], set()).add(match["ext"])
        if 2 * sum(len(each) for each in words.values() if len(each) > 1) > len(keys):
            return pattern.pattern
    return None


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"pattern {pattern!r}: {error}") from None
    if not {"key", "ext"} <= compiled.groupindex.keys():
        raise ValueError(
            f"pattern {pattern!r}: expected groups named key and ext, as in "
            r"'(?P<ext>\w+)-(?P<key>\d+)'"
        )
    return compiled


@contextmanager
def _reading(library: Any, path: Path) -> Iterator[Any]:
    """Context manager that opens a read transaction, without a lock file."""
    options = {"readonly": True, "lock": False, "subdir": path.is_dir(), "create": False}
    with library.open(str(path), **options, max_dbs=_MOST_NAMED) as database:
        _check_whole(database, path)
        with database.begin() as view:
            _refuse_named(library, database, view, path)
            yield view


def _check_whole(database: Any, path: Path) -> None:
    """Raise for a truncated file: reading beyond its end would kill the process.

    Raises:
        ValueError: The file is truncated.
    """
    file = path / "data.mdb" if path.is_dir() else path
    expected = (database.info()["last_pgno"] + 1) * database.stat()["psize"]
    found = file.stat().st_size
    if found < expected:
        raise ValueError(
            f"{file}: expected {expected} bytes, found {found}: it is truncated; copy it again"
        )


def _refuse_named(library: Any, database: Any, view: Any, path: Path) -> None:
    """Raise if the LMDB contains named databases.

    Raises:
        ValueError: It contains one.
    """
    if database.stat()["entries"] > _MOST_NAMED:
        return
    for name in [bytes(key) for key, value in view.cursor() if len(value) == _NAMED_NBYTES]:
        try:
            database.open_db(name, view, create=False)
        except library.Error:  # a value like any other
            continue
        raise ValueError(
            f"{path}: contains the named database {name!r:.60}, expected keys and values; copy its "
            "content to an LMDB of its own first"
        )


def _keys(library: Any, path: Path, omissions: Omissions) -> dict[str, bytes]:
    """Map each key that belongs to a sample, as text, to its bytes."""
    keys: dict[str, bytes] = {}
    with _reading(library, path) as view:
        # Only keys are read, since the values may be larger than the memory.
        for raw in view.cursor().iternext(keys=True, values=False):
            name = raw.decode("utf-8", "backslashreplace")
            special = name in _ABOUT_ALL or _SPECIAL.fullmatch(name)
            # An image is a sample even under such a key.
            if special and sniffed(view.get(raw) or b"").suffix == ".bin":
                if raw != _NUM_SAMPLES:  # that one is compared with the number of samples
                    omissions.add("keys that describe the whole database", name)
            elif name in keys:
                raise ValueError(
                    f"{path}: the keys {keys[name]!r:.60} and {raw!r:.60} are the same text; "
                    "rename one of them"
                )
            else:
                keys[name] = raw
    return keys


def _entries(
    keys: Mapping[str, bytes], pattern: re.Pattern[str] | None, omissions: Omissions
) -> Iterator[_Entry]:
    """Yield the sample and field of each key of the database."""
    for name, raw in keys.items():
        if pattern is None:
            yield *_split(name), raw
        elif match := pattern.fullmatch(name):
            yield match["key"], match["ext"], raw
        else:
            omissions.add("keys that do not match the pattern", name)


def _note_missing(
    library: Any, path: Path, entries: Sequence[_Entry], omissions: Omissions
) -> None:
    """Count the samples that the database's total includes but no key names."""
    with _reading(library, path) as view:
        stated = bytes(view.get(_NUM_SAMPLES) or b"")
    found = len({key for key, _, _ in entries})
    if stated.isdigit() and int(stated) > found:
        missing = int(stated) - found
        omissions.add(
            f"samples that {_NUM_SAMPLES.decode()} counts and that have no key", str(path), missing
        )


def _note_missing_fields(entries: Sequence[_Entry], omissions: Omissions) -> None:
    """Count the samples without a field that others have."""
    keys_of: dict[str, set[str]] = {}
    for key, field, _ in entries:
        keys_of.setdefault(field, set()).add(key)
    every: set[str] = set().union(*keys_of.values())
    for field, keys in keys_of.items():
        if missing := every - keys:
            omissions.add(f"samples without the field {field!r}", min(missing), len(missing))


def _split(name: str) -> tuple[str, str]:
    """Split a key into sample and field, like the name of a tar member."""
    parts = split_name(name.encode())
    if isinstance(parts, str):  # the reason why it has no extension
        return name, ""
    return parts[0].decode(), parts[1].decode().lstrip(".")


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
