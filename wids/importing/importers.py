"""Table of importers, and the choice of one for a source.

A new format is a module with a function from paths and options to an `Imported`, and one entry in
`IMPORTERS`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from fnmatch import fnmatch
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from wids.base.urls import is_local
from wids.importing.options import Imported, ImportOptions, is_documentation

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = [
    "IMPORTERS",
    "Importer",
    "importer_for",
    "open_source",
    "table_files",
    "tfrecord_files",
]

_OPTION_OF = {
    "fields": "--field",
    "files": "--file",
    "rekeyed": "--rekey",
}
_ALWAYS = {"rekeyed", "strict"}
_TABLES = ("*.csv", "*.tsv", "*.jsonl", "*.parquet")
_TFRECORDS = ("*.tfrecord", "*.tfrecords", "*.tfrecord.gz", "*.tfrecords.gz", "*.tfrecord*-*")
# Paths of tables in a repository of the Hugging Face hub, in folders of splits and configurations.
_TABLE_FOLDERS = re.compile(r"data|default|train|training|val|valid|validation|dev|test|testing")
# Names of the table that describes the images of a folder.
_METADATA = ("metadata.csv", "metadata.jsonl", "metadata.parquet")


@dataclass(frozen=True)
class Importer:
    """Importer of one kind of source.

    Attributes:
        kind: Its name, as `--from` takes it.
        opener: Module and function that open such sources, imported when they are needed.
        files: Patterns of the names of its files.
        marks: A folder is of this kind if it has a file that matches one of these patterns; by
            default `files`.
        takes: Names of the attributes of `ImportOptions` that it uses.
        several: Whether several sources can be opened as one.
        counts_files: Whether the importer itself counts the files of a folder that it does not use.
    """

    kind: str
    opener: str
    files: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    takes: frozenset[str] = frozenset()
    several: bool = False
    counts_files: bool = False

    def open(self, sources: Sequence[str], options: ImportOptions) -> Imported:
        """Open sources of this kind.

        Raises:
            ValueError: An option does not apply to this kind, or there are several sources.
        """
        default = ImportOptions()
        for name in (each.name for each in fields(options)):
            given = getattr(options, name) != getattr(default, name)
            if given and name not in self.takes | _ALWAYS:
                raise ValueError(
                    f"{_option(name)} does not apply to a source of the kind {self.kind!r}; it "
                    f"takes {', '.join(map(_option, sorted(self.takes))) or 'no options'}"
                )
        if len(sources) != 1 and not self.several:
            raise ValueError(
                f"{sources[1]}: only one source of the kind {self.kind!r} can be imported at a "
                "time; import each by itself, then wids merge"
            )
        module, _, function = self.opener.partition(":")
        imported: Imported = getattr(import_module(module), function)(sources, options)
        for source in sources:
            self._note_other_files(source, imported)
        return imported

    def _note_other_files(self, source: str, imported: Imported) -> None:
        """Count files and folders in a source folder that its importer does not read."""
        folder = Path(source).expanduser()
        if self.counts_files or not is_local(source) or not folder.is_dir():
            return
        for entry in sorted(folder.iterdir()):
            if entry.name.startswith(".") or is_documentation(entry.name):
                continue
            if entry.is_dir():
                if "split" not in self.takes:  # its folders are splits, and one was chosen
                    imported.omissions.add("folders that are not searched", str(entry))
            elif not _matches(entry.name, (*self.files, *self.marks)):
                imported.omissions.add("files of another kind", str(entry))


IMPORTERS = (
    Importer(
        "mds",
        "wids.importing.mds:open_mds",
        ("index.json", "*.mds", "*.mds.*"),
        marks=("index.json",),
        takes=frozenset({"fields", "key"}),
    ),
    Importer(
        "lmdb",
        "wids.importing.lmdb:open_lmdb",
        ("data.mdb", "lock.mdb", "*.mdb", "*.lmdb"),
        marks=("data.mdb",),
        takes=frozenset({"fields", "pattern"}),
    ),
    Importer(
        "huggingface",
        "wids.importing.huggingface:open_saved",
        ("*.arrow", "dataset_info.json", "dataset_dict.json", "state.json"),
        marks=("dataset_info.json", "dataset_dict.json"),
        takes=frozenset({"fields", "key", "split", "allow_outside"}),
    ),
    Importer(
        "tfrecord",
        "wids.importing.tfrecord:open_tfrecords",
        _TFRECORDS,
        takes=frozenset({"fields", "key"}),
        several=True,
    ),
    Importer(
        "webdataset",
        "wids.importing.shards:open_shards",
        # Also the files beside shards, such as specs and indexes.
        ("*.tar", "*.tar.gz", "*.tgz", "*.tar.zst", "*.json", "*.widx", "*.idx"),
        marks=("*.tar", "*.tar.gz", "*.tgz", "*.tar.zst"),
        takes=frozenset({"grouping", "key_rule", "concatenated"}),
        several=True,
    ),
    Importer(
        "table",
        "wids.importing.tables:open_tables",
        _TABLES,
        takes=frozenset({"fields", "files", "key", "classes", "split", "allow_outside"}),
        several=True,
        counts_files=True,
    ),
    Importer(
        "imagefolder",
        "wids.importing.folders:open_image_folder",
        counts_files=True,
        takes=frozenset({"classes", "split"}),
    ),
    Importer(
        "samples",
        "wids.importing.folders:open_samples",
        takes=frozenset({"split"}),
        counts_files=True,
    ),
)


def open_source(
    sources: Sequence[str], kind: str | None = None, options: ImportOptions | None = None
) -> Imported:
    """Open sources of any kind as one.

    Args:
        sources: Paths or URLs.
        kind: Their kind, as in `IMPORTERS`; by default recognised from the first source.
        options: Options of the import.

    Raises:
        ValueError: The kind is unknown, only one source of the kind can be imported, or an option
            does not apply to it.
    """
    options = options or ImportOptions()
    importer = importer_for(sources[0], options) if kind is None else _named(kind)
    return importer.open(sources, options)


def importer_for(source: str, options: ImportOptions | None = None) -> Importer:
    """Recognise a source by its name and, for a folder, by its contents.

    Raises:
        ValueError: The kind cannot be determined, or two kinds fit.
        FileNotFoundError: The source does not exist.

    >>> importer_for("captions.jsonl").kind, importer_for("https://host/train-{0..9}.tar").kind
    ('table', 'webdataset')
    """
    if source == "-":
        return _named("webdataset")
    path = Path(source).expanduser()
    if is_local(source) and path.is_dir():
        names = _names_in(path)
        for importer in IMPORTERS:
            marks = importer.marks or importer.files
            found = next((name for name in names if _matches(name, marks)), None)
            if found is None:
                continue
            if importer.kind == "table":
                _check_described(path, names, found)
            return importer
        from wids.importing.folders import folder_kind

        return _named(folder_kind(path, options or ImportOptions()))
    name = source.lower()
    for importer in IMPORTERS:
        if _matches(name, importer.files) and not name.endswith(".json"):
            return importer
    if is_local(source) and not path.exists():
        raise FileNotFoundError(f"{source}: no such file or folder")
    raise ValueError(
        f"{source}: unknown kind of source; expected a folder of images by class or of samples, "
        f"a table ({', '.join(_TABLES)}), TFRecords, an LMDB or a tar; name the kind with --from"
    )


def _check_described(folder: Path, names: Iterable[str], table: str) -> None:
    """Raise ValueError for a table beside images, unless its name is that of their metadata."""
    from wids.importing.folders import MEDIA_SUFFIXES

    if Path(table).name.lower() in _METADATA:
        return
    picture = next((name for name in names if name.lower().endswith(MEDIA_SUFFIXES)), None)
    if picture is not None or any(
        entry.is_dir() and not entry.name.startswith(".") and not _is_table_folder(entry)
        for entry in folder.iterdir()
    ):
        raise ValueError(
            f"{folder}: contains {table} beside images or folders; name the table itself if it "
            "lists the images, or say --from imagefolder (or samples) if it does not matter"
        )


def _is_table_folder(folder: Path) -> bool:
    return _TABLE_FOLDERS.fullmatch(folder.name.lower()) is not None


def _names_in(folder: Path, above: str = "") -> list[str]:
    """Return the files of a folder, and the tables in subfolders of a Hugging Face repository."""
    names = []
    for entry in sorted(folder.iterdir()):
        if entry.is_symlink() and not entry.exists():  # the cache of the hub consists of links
            raise FileNotFoundError(
                f"{entry}: the target of this link does not exist; correct or remove the link"
            )
        if entry.is_file() and not entry.name.startswith("."):
            names.append(f"{above}{entry.name}")
        elif entry.is_dir() and _is_table_folder(entry) and above.count("/") < 2:
            below = _names_in(entry, f"{above}{entry.name}/")
            names += [name for name in below if _matches(name, _TABLES)]
    return names


def _matches(name: str, patterns: Iterable[str]) -> bool:
    base = name.lower().rpartition("/")[2]
    return any(fnmatch(base, pattern) for pattern in patterns)


def _named(kind: str) -> Importer:
    for importer in IMPORTERS:
        if importer.kind == kind:
            return importer
    kinds = ", ".join(importer.kind for importer in IMPORTERS)
    raise ValueError(f"expected a kind of source ({kinds}), got {kind!r}")


def _option(name: str) -> str:
    return _OPTION_OF.get(name, f"--{name.replace('_', '-')}")


def tfrecord_files(sources: Iterable[str | Path]) -> list[Path]:
    """Return the TFRecord files of sources, those of a folder sorted."""
    paths: list[Path] = []
    for source in sources:
        path = Path(source).expanduser()
        inside = path.is_dir()
        paths += (
            [path / n for n in _names_in(path) if _matches(n, _TFRECORDS)] if inside else [path]
        )
    return paths


def table_files(folder: Path) -> list[Path]:
    """Return the tables of a folder, and those in subfolders of a Hugging Face repository."""
    return [folder / name for name in _names_in(folder) if _matches(name, _TABLES)]
