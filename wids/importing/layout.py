"""Mapping of the columns of a source to the fields of a sample, shared by all importers.

`docs/importing.md` has the rules for users. A column of bytes (images, sound, arrays) becomes a
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
from wids.base.omissions import Omissions
from wids.base.text import clean
from wids.codecs.formats import IMAGE_EXTENSIONS
from wids.codecs.headers import breaks_off

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "KEY_COLUMNS",
    "Blob",
    "ColumnMapping",
    "clean_key",
    "family_of",
    "is_label",
    "media_columns",
    "note_cut_pictures",
    "read_listed_file",
    "sniffed",
]

# `__key__` comes first, so that samples exported from shards keep their keys.
_TEXTS = {"plain", "number"}  # kinds of columns that go into the common `.json`
KEY_COLUMNS = ("__key__", "key", "id")
_LABELS = {"class", "cls", "fine_label", "label", "labels", "target"}
# Extensions of image formats that the first bytes identify.
_SNIFFED_PICTURES = {".jpg", ".jpeg", ".png", ".gif", ".tif", ".tiff", ".webp", ".bmp"}
_NO_PICTURES = "images of the column {!r} whose bytes are not an image"
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


def note_cut_pictures(sample: Mapping[str, Any], omissions: Omissions) -> None:
    """Count the pictures of a sample that end before their end mark, as cut downloads do.

    Raises:
        ValueError: There is one, and the omissions are strict.
    """
    for extension, data in sample.items():
        if isinstance(data, bytes | memoryview) and breaks_off(data):
            omissions.add_doubtful(
                "pictures that break off before their end, perhaps cut downloads",
                f"{sample['__key__']}{extension}",
            )


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

    >>> layout = ColumnMapping({"image": "image", "label": "label", "width": "plain"})
    >>> layout.sample(7, {"image": Blob(".png", b"..."), "label": 3, "width": 28})
    {'__key__': '000000007', '.png': b'...', '.cls': 3, '.json': {'width': 28}}
    """

    def __init__(
        self,
        kinds: Mapping[str, str],
        fields: Mapping[str, str] | None = None,
        key: str | None = None,
        where: str = "the source",
        omissions: Omissions | None = None,
        *,
        numbered: bool = False,
        classes: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """Map columns to fields.

        Args:
            kinds: Column to the kind of its values: "label" (an int), "plain" (JSON values),
                "number" (text that becomes a number in the JSON), or a kind of bytes (such as
                "image" or "array"), whose values are a `Blob` or a list of them. The only column of
                a kind of bytes gets the suffix of the bytes as extension. Several columns of a kind
                also get their names: `.left.jpg`, `.right.jpg`.
            fields: Column to extension, for columns that should not get the default extension.
            key: Column with the keys; by default `__key__`, `key` or `id`. Without such a column,
                samples are numbered.
            where: Name of the source, for messages.
            omissions: Counts the samples that lack a field.
            numbered: Whether samples are numbered, so that a column of keys is one like others.
            classes: Column to the names of its classes, for the columns that have names.

        Raises:
            ValueError: A named column does not exist.
        """
        self._omissions = omissions or Omissions()
        self._kinds = dict(kinds)
        self._where = where
        self._fields = {name: f".{text.lstrip('.')}" for name, text in (fields or {}).items()}
        for name in (*self._fields, *([] if key is None else [key])):
            if name not in kinds:
                columns = ", ".join(kinds) or "none"
                raise ValueError(
                    f"{where}: its first row has no column {name!r}; its columns are {columns}"
                )
        guesses = (name for name in KEY_COLUMNS if kinds.get(name) in _TEXTS)
        self._key = None if numbered else key if key is not None else next(guesses, None)
        alone = [kind for kind in kinds.values() if list(kinds.values()).count(kind) == 1]
        self._alone = {name for name, kind in kinds.items() if kind in alone}
        self._have_pictures = {name for name, kind in kinds.items() if kind == "image"}
        self._no_pictures: dict[str, tuple[int, str]] = {}
        self._num_classes = {name: len(names) for name, names in (classes or {}).items()}
        for column, names in (classes or {}).items():
            for name, count in Counter(names).items():
                if count > 1:
                    what = f"names that several classes of the column {column!r} share"
                    self._omissions.add_doubtful(what, name)

    def sample(self, number: int, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return the sample of a row.

        Args:
            number: Number of the row, from 0; the key if no column has keys.
            row: Column to value; None is a missing value.

        Raises:
            ValueError: Two columns would become one field, or the row has no key.
        """
        sample: dict[str, Any] = {"__key__": self._key_of(number, row)}
        rest: dict[str, Any] = {}
        dotted: str | None = None
        self._note_missing(row, sample["__key__"])
        for name, value in row.items():
            if name == self._key and name not in self._fields:
                dotted = str(value) if str(value) != sample["__key__"] else None
                continue
            self._note_form(name, value, sample["__key__"])
            self._note_unnamed(name, value, sample["__key__"])
            for extension, data in self._fields_of(name, value):
                self._note_picture(name, extension, data, sample["__key__"])
                if extension in sample:
                    raise ValueError(
                        f"{self._where}: sample {number}: the column {name!r} becomes "
                        f"{extension!r}, as another does; name one with --field {name}=EXT"
                    )
                sample[extension] = data
            if not self._is_field(name, value):
                rest[name] = (
                    _number(value) if self._kinds.get(name) == "number" else _as_json(value)
                )
        # A key with dots is changed, so its value is kept where a field can hold it.
        if dotted is not None and self._key is not None:
            if ".json" in sample:
                self._omissions.add("keys whose dots became '_'", dotted)
            else:
                rest[self._key] = dotted
        if rest:
            if ".json" in sample:
                raise ValueError(
                    f"{self._where}: sample {number}: the columns {', '.join(rest)} would become "
                    "'.json', as another does; name that one with --field, as in meta=meta.json"
                )
            sample[".json"] = rest
        return sample

    def _note_missing(self, row: Mapping[str, Any], key: str) -> None:
        """Count the columns without a value in this sample."""
        for name, kind in self._kinds.items():
            if row.get(name) is None and (kind not in _TEXTS or name in self._fields):
                self._omissions.add(f"samples without a value in the column {name!r}", key)

    def _note_form(self, name: str, value: Any, key: str) -> None:
        """Count a text in a column of bytes or the reverse, which becomes another field."""
        kind = self._kinds.get(name, "plain")
        other = _is_bytes(value) if kind in _TEXTS else isinstance(value, str) and kind != "label"
        if other and name not in self._fields:
            self._omissions.add_doubtful(
                f"samples with a column {name!r} that is text in some and bytes in others, and so "
                f"two fields (--field {name}=EXT makes it one)",
                key,
            )

    def _note_unnamed(self, name: str, value: Any, key: str) -> None:
        """Count a number that is none of the named classes, such as -1 for an unknown class."""
        number = self._num_classes.get(name)
        if number is not None and isinstance(value, int | np.integer) and not 0 <= value < number:
            self._omissions.add_doubtful(
                f"numbers in the column {name!r} that have no class name", key
            )

    def _note_picture(self, column: str, extension: str, data: Any, key: str) -> None:
        """Count bytes that are not an image, in a column or under an extension of images."""
        if not isinstance(data, bytes | memoryview):
            return
        suffix = f".{extension.rpartition('.')[2]}"
        known = file_type(bytes(data[:16]))
        if known is not None and known.kind == "image":
            self._have_pictures.add(column)
        elif suffix in _SNIFFED_PICTURES:
            self._omissions.add_doubtful(_NO_PICTURES.format(column), key)
        elif suffix == ".bin":
            # The first rows may be the exceptions, so they are counted until an image is seen.
            count, first = self._no_pictures.get(column, (0, key))
            self._no_pictures[column] = (count + 1, first)
        if column in self._have_pictures and column in self._no_pictures:
            count, first = self._no_pictures.pop(column)
            self._omissions.add_doubtful(_NO_PICTURES.format(column), first, count)

    def _key_of(self, number: int, values: Mapping[str, Any]) -> str:
        if self._key is None:
            return f"{number:09d}"
        value = values.get(self._key)
        # As text, "1" and 1 are the same key. Other types, such as lists, are refused rather than
        # converted to text.
        if isinstance(value, bool) or not isinstance(value, str | int | np.integer) or value == "":
            raise ValueError(
                f"{self._where}: sample {number}: the key column {self._key!r} holds {value!r:.60};"
                " expected a text or a whole number in each row"
            )
        return clean_key(str(value))

    def _is_field(self, name: str, value: Any) -> bool:
        if name in self._fields or _is_bytes(value):
            return True
        kind = self._kinds.get(name, "plain")
        # A missing field is counted. Among the other columns, a missing value is null in the JSON.
        return kind == "label" or (value is None and kind not in _TEXTS)

    def _fields_of(self, name: str, value: Any) -> list[tuple[str, Any]]:
        """Return the fields of a value: none if it is missing, several if it is a list of blobs."""
        if value is None:
            return []
        blobs = value if isinstance(value, list) else [value]
        if name in self._fields and not (_is_bytes(value) and len(blobs) > 1):
            extension = self._fields[name]
            return [(extension, _as_field(blobs[0] if _is_bytes(value) else value, extension))]
        if not _is_bytes(value):
            if self._kinds.get(name) != "label":
                return []
            return [
                (".cls" if name in self._alone else f".{_word(name)}.cls", self._one(name, value))
            ]
        if not isinstance(value, list):
            # Bytes in a column of texts, such as text that is not UTF-8, keep its name.
            alone = name in self._alone and self._kinds[name] not in {*_TEXTS, "label"}
            stem = "" if alone else f".{_word(name)}"
            return [(stem + value.suffix, value.data)]
        return [
            (f".{_word(name)}.{number:03d}{blob.suffix}", blob.data)
            for number, blob in enumerate(blobs)
        ]

    def _one(self, name: str, value: Any) -> int:
        """Return the class of a sample; raise ValueError if there are several."""
        if not isinstance(value, int | np.integer):
            raise ValueError(  # noqa: TRY004 (of data)
                f"{self._where}: the column {name!r} is taken for a class, one whole number, and "
                f"holds {value!r:.60}; name it with --field {name}=EXT, such as labels.json"
            )
        return int(value)


def _is_bytes(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(isinstance(each, Blob) for each in value)
    return isinstance(value, Blob)


def _word(name: str) -> str:
    """Return the name of a column without the characters that an extension must not have."""
    return re.sub(r"[^\w-]+", "_", name).strip("_") or "column"


def _as_field(value: Any, extension: str) -> Any:
    """Return a value in the form that the encoder of an extension takes."""
    if isinstance(value, Blob):
        return value.data
    if extension.endswith(".json"):
        return _as_json(value)
    number = isinstance(value, int | float | np.generic)
    return str(value) if number and extension.endswith((".txt", ".text")) else value


def _number(text: Any) -> Any:
    """Parse a text as a number; None for an empty text."""
    if not isinstance(text, str):
        return text
    return (int(text) if text.lstrip("-").isdigit() else float(text)) if text else None


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
