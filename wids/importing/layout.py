"""Mapping of the columns of a source to the fields of a sample, shared by all importers.

`docs/writing.md` has the rules for users. A column of bytes (images, sound, arrays) becomes a
field with the same bytes, a class becomes `.cls`, and all other columns together become one
`.json`. The user may name another extension for any column.
"""

from __future__ import annotations

import errno
import os
import re
from collections import Counter
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from wids.base.magic import file_type
from wids.base.text import clean
from wids.codecs.formats import IMAGE_EXTENSIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from wids.base.omissions import Omissions
    from wids.importing.options import ImportOptions

__all__ = [
    "KEY_COLUMNS",
    "Blob",
    "ColumnMapping",
    "clean_key",
    "family_of",
    "is_label",
    "media_columns",
    "read_listed_file",
    "sniffed",
]

# `__key__` comes first, so that samples exported from shards keep their keys.
KEY_COLUMNS = ("__key__", "key", "id")
_LABELS = {"class", "cls", "fine_label", "label", "labels", "target"}
# Kinds of file types that become fields of their own; others stay `.bin`.
_FIELD_KINDS = {"image", "sound", "video", "array", "document"}


class Blob(NamedTuple):
    """Bytes that become a field without being encoded.

    Attributes:
        suffix: File suffix of their type, such as ".jpg".
        data: The bytes.
    """

    suffix: str
    data: bytes | memoryview


def sniffed(data: bytes | memoryview) -> Blob:
    """Return bytes with the suffix of their type, found by their first bytes; else `.bin`.

    >>> sniffed(b"GIF89a...").suffix, sniffed(b"RIFF....WAVE").suffix, sniffed(b"?").suffix
    ('.gif', '.wav', '.bin')
    """
    known = file_type(bytes(data[:16]))
    return Blob(known.suffix if known and known.kind in _FIELD_KINDS else ".bin", data)


def family_of(blob: Blob) -> str:
    """Return the kind of some bytes: "image", "bytes" or their suffix.

    >>> family_of(Blob(".png", b"")), family_of(Blob(".bin", b""))
    ('image', 'bytes')
    """
    if blob.suffix in IMAGE_EXTENSIONS:
        return "image"
    return "bytes" if blob.suffix == ".bin" else blob.suffix


def is_label(column: str) -> bool:
    """Return whether the name of a column of integers is that of a class column.

    >>> is_label("image/class/label"), is_label("label"), is_label("width")
    (True, True, False)
    """
    # The last part of the name counts: TFRecords nest with slashes, tables with dots.
    return re.split(r"[/.]", column)[-1].lower() in _LABELS


def clean_key(text: str) -> str:
    """Return a text as a key, with `_` for the dots of its last path component.

    >>> clean_key("train/img.001")
    'train/img_001'
    """
    # Folders keep their dots, since extensions begin only in the last component.
    folder, slash, name = text.rpartition("/")
    return f"{folder}{slash}{name.replace('.', '_')}"


def media_columns(
    column: str, value: Any, folder: Path, where: str, root: Path | None = None
) -> dict[str, Any]:
    """Return the columns with the bytes and the file name of an image or sound of `datasets`.

    Args:
        column: The column that holds it.
        value: `{"bytes": ..., "path": ...}`, or None. Missing bytes are read from the file at
            `path`.
        folder: Base of a relative path.
        where: The row, for messages.
        root: As for `read_listed_file`.

    Raises:
        ValueError: The path is not that of a local file, or lies outside of `root`.
        FileNotFoundError: The file does not exist.
    """
    path, data = (None, None) if value is None else (value.get("path"), value.get("bytes"))
    if data is None and path is None:
        return {column: None}
    blob = read_listed_file(folder, path, where, root) if data is None else sniffed(data)
    if path is None:
        return {column: blob}
    suffix = PurePath(path).suffix.lower()
    if suffix and blob.suffix == ".bin":
        blob = Blob(suffix, blob.data)
    # An absolute path would describe the machine rather than the sample.
    name = PurePath(path).name if PurePath(path).is_absolute() or "://" in path else path
    return {column: blob, f"{column}.path": name}


def read_listed_file(folder: Path, name: Any, where: str, root: Path | None = None) -> Blob:
    """Read a file that a row names.

    Args:
        folder: Base of a relative path.
        name: The path.
        where: The row, for messages.
        root: Folder that the path must not leave; None allows any file. Links in it are followed,
            since the cache of the Hugging Face hub consists of links.

    Raises:
        ValueError: It is not a path, or it lies outside of `root`.
        FileNotFoundError: The file does not exist.
    """
    if not isinstance(name, str) or not name:
        raise ValueError(f"{where}: expected the path of a file, found {name!r:.60}")
    if "://" in name:
        raise ValueError(
            f"{where}: {name!r:.200} is a URL, and an import reads local files only; download the "
            "files and put their paths into the table"
        )
    path = folder / name
    # A table by a stranger could otherwise copy private files of this machine into shards.
    if root is not None and not Path(os.path.abspath(path)).is_relative_to(root.absolute()):  # noqa: PTH100 (resolves no links)
        raise ValueError(
            f"{where}: expected a file in {clean(root, 200)}, found {clean(name, 200)}, which lies "
            "outside; if you trust the table, allow it (--allow-outside)"
        )
    try:
        return Blob(path.suffix.lower() or ".bin", path.read_bytes())
    except OSError as error:
        # A cell that has the file itself, for example as base64, is too long for a path.
        if error.errno not in (errno.ENOENT, errno.ENAMETOOLONG):
            raise
        shown = clean(path, 200)
        raise FileNotFoundError(f"{where}: names the file {shown}, which does not exist") from error


class ColumnMapping:
    """Mapping of columns to fields, the same for all samples of a source.

    >>> from wids.base.omissions import Omissions
    >>> from wids.importing.options import ImportOptions
    >>> kinds = {"image": "image", "label": "label", "width": "plain"}
    >>> layout = ColumnMapping(kinds, ImportOptions(), "the source", Omissions())
    >>> layout.sample(7, {"image": Blob(".png", b"..."), "label": 3, "width": 28})
    {'__key__': '000000007', '.png': b'...', '.cls': 3, '.json': {'width': 28}}
    """

    def __init__(
        self, kinds: Mapping[str, str], options: ImportOptions, where: str, omissions: Omissions
    ) -> None:
        """Map columns to fields.

        Args:
            kinds: Column to the kind of its values: "label" (an int), "plain" (JSON values), or a
                kind of bytes (such as "image" or "array"), whose values are a `Blob` or a list of
                them. The only column of a kind of bytes gets the suffix of the bytes as extension.
                Several columns of a kind also get their names: `.left.jpg`, `.right.jpg`.
            options: `fields` maps a column to another extension; `key` names the column of keys, by
                default `__key__`, `key` or `id`, and without such a column, or if `rekeyed`,
                samples are numbered.
            where: Name of the source, for messages.
            omissions: Counts the samples that lack a field.

        Raises:
            ValueError: A named column does not exist.
        """
        self._omissions = omissions
        self._kinds = dict(kinds)
        self._where = where
        self._fields = {name: f".{text.lstrip('.')}" for name, text in options.fields.items()}
        keys = [] if options.key is None else [options.key]
        for name in (*self._fields, *keys, *(options.files or ())):
            if name not in kinds:
                raise ValueError(
                    f"{where}: its first row has no column {name!r}; its columns are "
                    f"{', '.join(kinds) or 'none'}"
                )
        usual = (name for name in KEY_COLUMNS if kinds.get(name) == "plain")
        self._key = None if options.rekeyed else options.key or next(usual, None)
        self._counts = Counter(kinds.values())

    def sample(self, number: int, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return the sample of a row.

        Args:
            number: Number of the row, from 0; the key if no column has keys.
            row: Column to value; None is a missing value.

        Raises:
            ValueError: Two columns would become one field, or the row has no key.
        """
        where = f"{self._where}: sample {number}"
        key = f"{number:09d}" if self._key is None else self._key_in(row, where)
        sample: dict[str, Any] = {"__key__": key}
        rest: dict[str, Any] = {}
        for name in dict.fromkeys((*self._kinds, *row)):
            value, kind = row.get(name), self._kinds.get(name, "plain")
            if name == self._key and name not in self._fields:
                if str(value) != key:  # its dots were replaced, so that the value is kept
                    rest[name] = str(value)
                continue
            if value is None:
                if kind != "plain" or name in self._fields:
                    what = f"samples without a value in the column {name!r}"
                    self._omissions.add(what, key)
                elif name in row:
                    rest[name] = None
                continue
            fields = self._fields_of(name, kind, value)
            if not fields:
                rest[name] = _as_json(value)
            for extension, data in fields:
                if extension in sample:
                    raise ValueError(
                        f"{where}: the column {name!r} becomes {extension!r}, as another does; "
                        f"name one with --field {name}=EXT"
                    )
                sample[extension] = data
        if rest and ".json" not in sample:
            sample[".json"] = rest
        elif self._key is not None and rest.keys() == {self._key}:
            self._omissions.add("keys whose dots became '_'", rest[self._key])
        elif rest:
            raise ValueError(
                f"{where}: the columns {', '.join(rest)} would become '.json', as another does; "
                "name that one with --field, as in meta=meta.json"
            )
        return sample

    def _key_in(self, row: Mapping[str, Any], where: str) -> str:
        value = row.get(str(self._key))
        if isinstance(value, bool) or not isinstance(value, str | int | np.integer) or value == "":
            raise ValueError(
                f"{where}: the key column {self._key!r} holds {value!r:.60}; expected a text or a "
                "whole number in each row"
            )
        return clean_key(str(value))

    def _fields_of(self, name: str, kind: str, value: Any) -> list[tuple[str, Any]]:
        """Return the extensions and values that a value becomes; none for one of the JSON."""
        blobs = value if isinstance(value, list) else [value]
        if not all(isinstance(each, Blob) for each in blobs):
            blobs = []
        if name in self._fields and len(blobs) < 2:
            extension = self._fields[name]
            return [(extension, blobs[0].data if blobs else _as_field(value, extension))]
        word = re.sub(r"[^\w-]+", "_", name).strip("_") or "column"
        # Bytes in a column of texts, such as text that is not UTF-8, keep its name.
        stem = "" if kind != "plain" and self._counts[kind] == 1 else f".{word}"
        if isinstance(value, list) and blobs:
            return [(f".{word}.{i:03d}{blob.suffix}", blob.data) for i, blob in enumerate(blobs)]
        if blobs:
            return [(stem + value.suffix, value.data)]
        if kind != "label":
            return []
        if not isinstance(value, int | np.integer):
            raise ValueError(  # noqa: TRY004 (of data)
                f"{self._where}: the column {name!r} is taken for a class, one whole number, and "
                f"holds {value!r:.60}; name it with --field {name}=EXT, such as labels.json"
            )
        return [(f"{stem}.cls", int(value))]


def _as_field(value: Any, extension: str) -> Any:
    """Return a value in the form that the encoder of an extension takes."""
    if extension.endswith(".json"):
        return _as_json(value)
    number = isinstance(value, int | float | np.generic)
    return str(value) if number and extension.endswith((".txt", ".text")) else value


def _as_json(value: Any) -> Any:
    """Return a value for JSON: arrays as lists, dates as text."""
    if isinstance(value, dict):
        return {name: _as_json(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(each) for each in value]
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if value is None or isinstance(value, str | int | float | bytes):
        return value
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
