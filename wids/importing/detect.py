"""What a source is, and the importer that reads it."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from wids.base.urls import is_local
from wids.importing.imagefolder import open_image_folder
from wids.importing.mds import INDEX_NAME, open_mds
from wids.importing.tables import TABLE_SUFFIXES, open_table
from wids.importing.tfrecord import TFRECORD_SUFFIXES, open_tfrecords
from wids.specs.sources import SHARD_SUFFIXES, find_shards

if TYPE_CHECKING:
    from wids.importing.layout import Imported
    from wids.tar.grouping import Grouping

__all__ = ["Wanted", "kind_of", "open_source"]

_LMDB_FILES = ("data.mdb", ".mdb", ".lmdb")


@dataclass(frozen=True)
class Wanted:
    """What a user asked of an import, apart from the source.

    Attributes:
        fields: Column to extension.
        files: Columns that hold paths; None to guess one.
        key: Column with the keys; None for `__key__`, `key` or `id`, or numbers.
        split: Which part of a dataset.
        pattern: How keys of an LMDB are made.
        grouping: "adjacent" or "shard", for tars.
        concatenated: Whether tars are read beyond the end of their first archive.
        rekeyed: Whether the samples get new keys, so that those they have may clash.
    """

    fields: dict[str, str] = field(default_factory=dict)
    files: list[str] | None = None
    key: str | None = None
    split: str | None = None
    pattern: str | None = None
    grouping: Grouping = "adjacent"
    concatenated: bool = False
    rekeyed: bool = False


def open_source(
    sources: list[str], kind: str | None = None, wanted: Wanted | None = None
) -> Imported:
    """Open what a user named.

    Args:
        sources: One path or URL; several for TFRecord files and tars.
        kind: What they are, as `kind_of` tells it; None to look at the first source.
        wanted: What to make of it.

    Raises:
        ValueError: The source is of no known kind, or several were named where one can be read.
    """
    wanted = wanted or Wanted()
    kind = kind or kind_of(sources[0])
    if kind == "webdataset":
        from wids.importing.shards import open_shards

        shards = [shard for source in sources for shard in find_shards(source) or [source]]
        return open_shards(
            shards,
            stdin=sys.stdin.buffer,
            grouping=wanted.grouping,
            concatenated=wanted.concatenated,
        )
    if kind == "tfrecord":
        return open_tfrecords(_tfrecords(sources), wanted.fields, wanted.key)
    if len(sources) != 1:
        raise ValueError(
            f"{sources[1]}: only one source of the kind {kind!r} can be imported at a time; import "
            "each by itself, then wids merge"
        )
    return _open_one(sources[0], kind, wanted)


def _open_one(source: str, kind: str, wanted: Wanted) -> Imported:
    path = Path(source).expanduser()
    if kind == "imagefolder":
        return open_image_folder(path, rekeyed=wanted.rekeyed)
    if kind == "table":
        return open_table(path, wanted.fields, wanted.files, wanted.key)
    if kind == "mds":
        return open_mds(path, wanted.fields, wanted.key)
    if kind == "lmdb":
        from wids.importing.lmdb import open_lmdb

        return open_lmdb(path, wanted.fields, wanted.pattern)
    from wids.importing.huggingface import load_saved, open_huggingface

    return open_huggingface(load_saved(source, wanted.split), wanted.fields, wanted.key)


def kind_of(source: str) -> str:
    """Tell the kind of a source by its name and, for a folder, by what lies in it.

    Raises:
        ValueError: Nothing shows it.

    >>> kind_of("captions.jsonl"), kind_of("https://host/train-{000..009}.tar"), kind_of("-")
    ('table', 'webdataset', 'webdataset')
    """
    name = source.lower()
    path = Path(source).expanduser()
    if source == "-" or name.endswith(SHARD_SUFFIXES):
        return "webdataset"
    if is_local(source) and path.is_dir():
        return _kind_of_folder(path)
    if name.endswith(_LMDB_FILES):
        return "lmdb"
    if _is_tfrecord(name):
        return "tfrecord"
    if name.endswith(TABLE_SUFFIXES):
        return "table"
    if is_local(source) and not path.exists():
        raise FileNotFoundError(f"{source}: there is no such file or folder")
    raise ValueError(
        f"{source}: nothing shows what it is; expected a folder of images by class, a table "
        f"({', '.join(TABLE_SUFFIXES)}), TFRecords, an LMDB or a tar; --from says it"
    )


def _kind_of_folder(folder: Path) -> str:
    # The surest marks first; a folder of pictures is what anything else may be.
    if (folder / INDEX_NAME).is_file():
        return "mds"
    if (folder / "data.mdb").is_file():
        return "lmdb"
    if any((folder / name).is_file() for name in ("dataset_info.json", "dataset_dict.json")):
        return "huggingface"
    names = [entry.name.lower() for entry in folder.iterdir() if entry.is_file()]
    if any(map(_is_tfrecord, names)):
        return "tfrecord"
    if any(name.endswith(SHARD_SUFFIXES) for name in names):
        return "webdataset"
    return "imagefolder"


def _is_tfrecord(name: str) -> bool:
    """Tell TFRecord files by their suffix, or by `.tfrecord-00000-of-00010`."""
    return name.endswith(TFRECORD_SUFFIXES) or ".tfrecord-" in name or ".tfrecords-" in name


def _tfrecords(sources: list[str]) -> list[Path]:
    """List the files that are meant, those of a folder sorted."""
    paths: list[Path] = []
    for source in sources:
        path = Path(source).expanduser()
        if path.is_dir():
            paths += sorted(each for each in path.iterdir() if _is_tfrecord(each.name.lower()))
        else:
            paths.append(path)
    return paths
