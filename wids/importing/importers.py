"""Table of importers, and the choice of one for a source.

A new format is a module with a function from paths and options to an `Imported`, and one entry in
`IMPORTERS`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from fnmatch import fnmatch
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from wids.base.urls import is_local
from wids.importing.options import Imported, ImportOptions, is_documentation

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["IMPORTERS", "TFRECORDS", "Importer", "files_in", "importer_for", "open_source"]

# Options of the command whose names are not those of the attributes of `ImportOptions`.
_OPTION_OF = {"fields": "--field", "files": "--file", "rekeyed": "--rekey"}
_ALWAYS = {"rekeyed", "strict"}
TFRECORDS = ("*.tfrecord", "*.tfrecords", "*.tfrecord.gz", "*.tfrecords.gz", "*.tfrecord*-*")


@dataclass(frozen=True)
class Importer:
    """Importer of one kind of source.

    Attributes:
        kind: Its name, as `--from` takes it.
        opener: Module and function that open such sources, imported when they are needed.
        files: Patterns of the names of its files; none if files of any name are its.
        marks: A folder is of this kind if it has a file that matches one of these patterns; by
            default `files`.
        takes: Names of the attributes of `ImportOptions` that it uses.
        several: Whether several sources can be opened as one.
    """

    kind: str
    opener: str
    files: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    takes: frozenset[str] = frozenset()
    several: bool = False

    def open(self, sources: Sequence[str], options: ImportOptions) -> Imported:
        """Open sources of this kind, and count what their folders have besides its files.

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
        for source in sources if self.files else ():
            folder = Path(source).expanduser()
            for entry in sorted(folder.iterdir()) if is_local(source) and folder.is_dir() else ():
                if entry.name.startswith(".") or is_documentation(entry.name):
                    continue
                if entry.is_dir():
                    if "split" not in self.takes:  # its folders are splits, and one was chosen
                        imported.omissions.add("folders that are not searched", str(entry))
                elif not _matches(entry.name, self.files):
                    imported.omissions.add("files of another kind", str(entry))
        return imported


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
        TFRECORDS,
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
        ("*.csv", "*.tsv", "*.jsonl", "*.parquet"),
        takes=frozenset({"fields", "files", "key", "classes", "allow_outside"}),
        several=True,
    ),
    Importer(
        "imagefolder",
        "wids.importing.folders:open_image_folder",
        takes=frozenset({"classes", "split"}),
    ),
    Importer("samples", "wids.importing.folders:open_samples", takes=frozenset({"split"})),
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
        for importer in IMPORTERS:
            marks = importer.marks or importer.files
            found = files_in(path, marks)
            if importer.kind == "table" and (path / "data").is_dir():  # as on Hugging Face's hub
                found += files_in(path / "data", marks)
            if found and importer.kind == "table":
                raise ValueError(
                    f"{found[0]}: is a table in a folder; name the tables themselves, as in wids "
                    f"import {found[0].with_stem('*')}, or say --from imagefolder (or samples) if "
                    "they do not matter"
                )
            if found:
                return importer
        from wids.importing.folders import folder_kind

        return _named(folder_kind(path, options or ImportOptions()))
    for importer in IMPORTERS:
        if _matches(source, importer.files) and not source.lower().endswith(".json"):
            return importer
    if is_local(source) and not path.exists():
        raise FileNotFoundError(f"{source}: no such file or folder")
    raise ValueError(
        f"{source}: unknown kind of source; expected a folder of images by class or of samples, "
        f"a table ({', '.join(_named('table').files)}), TFRecords, an LMDB or a tar; name the kind "
        "with --from"
    )


def files_in(folder: Path, patterns: Iterable[str]) -> list[Path]:
    """Return the files of a folder whose names match one of some patterns, sorted.

    Raises:
        FileNotFoundError: One is a link whose target does not exist.
    """
    found = [
        entry
        for entry in sorted(folder.iterdir())
        if _matches(entry.name, patterns) and not entry.name.startswith(".") and not entry.is_dir()
    ]
    for entry in found:
        if not entry.exists():
            raise FileNotFoundError(
                f"{entry}: the target of this link does not exist; correct or remove the link"
            )
    return [entry for entry in found if entry.is_file()]


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
