"""Saving of a view as a small JSON document, which names its dataset and the chosen indexes.

    {"wids_version": 2, "name": "clean", "nsamples": 57, "made": ["filter('.cls == 3')"],
     "base": {"spec": "train.json", "nsamples": 100, "digest": "..."},
     "indexes": {"file": "clean.indexes", "nsamples": 57}}

A base is the location of a dataset, or one of these objects:

    {"spec" or "shardlist", "nsamples", "digest",    a dataset, with its state at the time of saving
     "contents", "versions"}
    {..., "options"}                                 the same, with top-level keys of a spec for it
    {..., "fields"}                                  the same, in a join: the fields that it has
    {"concat": [bases], "names", "classes"}          a concatenation
    {"join": [left, right], "rename", "replace"}     a join
    {"base", "indexes", "exclude", "patch", "append"}    a selection; all keys but "base" are
                                                     optional, and are applied in this order
    {..., "lineage"}                                 the same: a part of a split, or of its parts

The right side of a join may also be

    {"table" or "tables", "nbytes", "digest",        a file of a table, or the pattern of tables
     "fields", "on", "missing"}                      that lie beside shards
    {"of": base, "rows": indexes}                    a sample for each, or none

The version is 2, because a reader of version 1 would ignore the selection and return all samples.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.base.arguments import check_path
from wids.base.files import write_output
from wids.base.urls import base_name, is_local, local_path
from wids.reading.samplesequence import ShardedSequence, is_sharded
from wids.specs.indexrules import USUAL_RULES, unusual_rules
from wids.specs.locations import name_of
from wids.specs.shardtable import MOST_SAMPLES
from wids.views.concatenation import Chain
from wids.views.filling import Filled
from wids.views.indexlist import IndexList
from wids.views.joining import Pairing
from wids.views.selection import Mapped, Selection
from wids.views.tablerows import TableRows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wids.specs.shardtable import ShardTable

__all__ = [
    "MOST_NESTED",
    "OWN_SHARDS",
    "VERSION",
    "digest_of",
    "indexes_from",
    "save_view",
    "too_nested",
    "view_document",
]

VERSION = 2
MOST_NESTED = (
    100  # bases around a base; more would exceed the depth to which Python calls functions
)
_VERSION_KEY = re.compile(rb'"wids_version"\s*:\s*%d\b' % VERSION)
_HEAD_NBYTES = 1 << 20  # of a document, in which its version is looked for
# A longer list of indexes is written to a file of its own, so that the document stays readable.
_MOST_INLINE = 100
# Keys of a spec by which options replace its shards.
OWN_SHARDS = {"shardlist", "datasets", "base", "base_path"}
_NOT_KEPT = {"wids_version", "__kind__", *OWN_SHARDS, *USUAL_RULES}  # rules have their own keys


def save_view(samples: Any, path: str | os.PathLike[str], made: Sequence[str] = ()) -> None:
    """Write the document of a view, and its indexes to files in the same folder.

    Args:
        samples: The view.
        path: Path of the document, which ends in `.json`; the files of indexes are named after it.
        made: Descriptions of the steps that made the view.

    Raises:
        TypeError: The view has a part that cannot be saved, such as a function.
        ValueError: The path does not end in `.json`, or the view is nested too deeply.
        OSError: A file cannot be written.
    """
    target = Path(check_path("path", path))
    if target.suffix != ".json":
        raise ValueError(f"path {str(target)!r}: expected a name that ends in .json")
    if target.is_file() and target.stat().st_size and not _is_document(target):
        # Such as the spec of the very dataset, without which no view of it can be opened.
        raise ValueError(
            f"path {str(target)!r}: is there already, and is no saved view; choose another name, "
            "or remove the file first"
        )
    node = _Writer(target).node(samples)
    if "base" not in node:
        node = {"base": node}
    document = {
        "wids_version": VERSION,
        "name": target.stem,
        "nsamples": len(samples),
        "made": list(made),
        **node,
    }
    # Written last, so that the document never names a file that does not exist yet.
    write_output(target, f"{json.dumps(document, indent=2)}\n".encode())


def _is_document(path: Path) -> bool:
    """Return whether a file is the document of a view."""
    with path.open("rb") as stream:
        return _VERSION_KEY.search(stream.read(_HEAD_NBYTES)) is not None


def view_document(samples: Any, name: str, made: Sequence[str] = ()) -> dict[str, Any]:
    """Return the complete document of a view, with all indexes and absolute locations.

    It can be stored anywhere on the same machine.

    Args:
        samples: The view.
        name: Name of the view.
        made: Descriptions of the steps that made the view.

    Raises:
        TypeError: The view has a part that cannot be saved, such as a function.
    """
    node = _Writer(None).node(samples)
    return {
        "wids_version": VERSION,
        "name": name,
        "nsamples": len(samples),
        "made": list(made),
        **(node if "base" in node else {"base": node}),
    }


class _Writer:
    """Writer of the files of indexes of one document, and of its objects.

    Args:
        target: Path of the document; None for a document without files.
    """

    def __init__(self, target: Path | None) -> None:
        self._target = target
        self._num_files = 0
        self._depth = 0
        self._num_joins = 0  # around the object that is written

    def node(self, samples: Any) -> dict[str, Any]:
        """Return the object that describes a sequence in the document."""
        # The complete document has a base around it where this object is none.
        if self._depth >= MOST_NESTED:
            raise ValueError(f"save: {too_nested()}")
        self._depth += 1
        try:
            return self._object(samples)
        finally:
            self._depth -= 1

    def _object(self, samples: Any) -> dict[str, Any]:
        if isinstance(samples, Mapped):
            raise TypeError(
                "save: a function cannot be saved: save the view before map(), and call map() on "
                "the opened view"
            )
        if isinstance(samples, Selection):
            lineage = getattr(samples, "lineage", None)
            return {
                "base": self.node(samples.base),
                "indexes": self._indexes(samples.rows),
                **({} if lineage is None else {"lineage": lineage}),
            }
        if isinstance(samples, Chain) and not hasattr(samples, "part_lengths"):
            names = {} if samples.names is None else {"names": samples.names}
            classes = {} if samples.classes == "same" else {"classes": samples.classes}
            return {"concat": [self.node(part) for part in samples.parts], **names, **classes}
        if isinstance(samples, TableRows):
            return self._table(samples)
        if isinstance(samples, Filled):
            return {"of": self.node(samples.base), "rows": self._indexes(samples.rows)}
        if isinstance(samples, Pairing):
            self._num_joins += 1
            sides = [self.node(samples.left), self.node(samples.right)]
            self._num_joins -= 1
            return {"join": sides, "rename": samples.rename, "replace": samples.replace}
        if is_sharded(samples):
            return self._dataset(samples)
        raise TypeError(
            f"save: a {type(samples).__name__} cannot be saved; expected a dataset, a selection, a "
            "concatenation or a join: save its parts"
        )

    def _dataset(self, dataset: ShardedSequence) -> dict[str, Any]:
        rules: dict[str, Any] = {**dataset.index_rules}
        said = {name: rules[name] for name in rules if name in dataset.header}
        node: dict[str, Any] = {
            "nsamples": len(dataset),
            "digest": digest_of(dataset.shards),
            "contents": contents_of(dataset.shards),
            **({"versions": versions} if (versions := dataset.used_versions) else {}),
            **unusual_rules(rules),
            **said,  # the view keeps what takes precedence over the spec
        }
        # Which side a field comes from depends on the fields of both.
        if self._num_joins and (fields := dataset.pipeline.fields) is not None:
            node["fields"] = list(fields)
        source = None if OWN_SHARDS & dataset.options.keys() else dataset.source
        if options := _options_of(dataset, source):
            node["options"] = options
        if source is not None:
            return {"spec": self._located(source), **node}
        rows = [dict(shard) for shard in dataset.shards]
        for row in rows:
            named = ("url", "index", "pack")
            row |= {key: self._located(row[key]) for key in named if key in row}
        return {"shardlist": rows, **node}

    def _located(self, location: str) -> str:
        from wids.specs.newspec import name_in_spec

        if self._target is not None:
            return name_in_spec(location, self._target.absolute().parent)
        return str(local_path(location).absolute()) if is_local(location) else location

    def _table(self, rows: TableRows) -> dict[str, Any]:
        origin = rows.table.origin
        if origin is None:
            raise TypeError(
                "save: a table in memory cannot be saved: write it to a file, such as Parquet, "
                "and join that"
            )
        missing = int((rows.rows.array() == rows.table.num_rows).sum())
        location = os.path.relpath(origin.location) if origin.is_relative else origin.location
        named = location if origin.is_pattern else self._located(location)
        return {
            "tables" if origin.is_pattern else "table": named,
            "nbytes": origin.stamp.nbytes,
            "digest": origin.stamp.digest,
            "fields": rows.fields,
            "on": list(rows.match),
            "missing": missing,
        }

    def _indexes(self, rows: IndexList) -> dict[str, Any]:
        if rows.kind == "range":
            return {"range": rows.arrays["bounds"].tolist()}
        if len(rows) <= _MOST_INLINE or self._target is None:
            return {"list": rows.array().tolist()}
        number = f".{self._num_files}" if self._num_files else ""
        path = self._target.with_name(f"{self._target.stem}{number}.indexes")
        self._num_files += 1
        rows.save(path)
        return {"file": path.name, "nsamples": len(rows), "digest": _file_digest(path)}


def _file_digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def too_nested() -> str:
    """Return the message for a view that is nested too deeply in other views."""
    return (
        f"the view is made of more than {MOST_NESTED} concatenations, joins and selections, each "
        "of the one before; write its samples as shards (wids.reshard), and go on with these, or "
        "give all parts to one wids.concat"
    )


def _options_of(dataset: ShardedSequence, source: str | None) -> dict[str, Any]:
    """Return the top-level keys that a dataset has besides those of its spec.

    Args:
        dataset: The dataset.
        source: Location of the spec; None if the document lists the shards in place of a spec.

    Raises:
        TypeError: One of them cannot be written as JSON.
    """
    options = dataset.header if source is None else dict(dataset.options)
    options = {key: options[key] for key in options if key not in _NOT_KEPT}
    usual = source and (dataset.header["name"] or name_of(source, dataset.shards.urls))
    if dataset.dataset_name != usual:
        options["name"] = dataset.dataset_name
    try:
        json.dumps(options)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"save: options of the dataset must be as in a JSON spec, got {options!r:.200} "
            f"({error}); open the dataset without the option that JSON cannot hold"
        ) from error
    return options


def digest_of(shards: ShardTable) -> str:
    """Return a digest of the names and sample counts of shards, in order.

    Their folders are left out, so that the digest is the same on another machine.
    """
    digest = hashlib.sha256()
    for url, nsamples in zip(shards.urls, shards.nsamples.tolist(), strict=True):
        digest.update(f"{base_name(url)} {nsamples}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def contents_of(shards: ShardTable) -> dict[str, str]:
    """Return a digest of all file sizes, and one for each digest algorithm that all shards have.

    Sizes that the spec does not say are those of the files, if all shards are on this machine.

    >>> from wids.specs.shardtable import ShardTable
    >>> list(contents_of(ShardTable([{"url": "a.tar", "nsamples": 2, "filesize": 1024}])))
    ['filesize']
    """
    sizes = shards.filesize.tolist() if (shards.filesize >= 0).all() else _file_sizes(shards.urls)
    facts: dict[str, Any] = {} if sizes is None else {"filesize": map(str, sizes)}
    for name, column in shards.digests.items():
        if all(column):
            facts[name] = (each.hex() for each in column)
    return {
        name: hashlib.sha256("\n".join(texts).encode()).hexdigest() for name, texts in facts.items()
    }


def _file_sizes(urls: Sequence[str]) -> list[int] | None:
    """Return the sizes of local files; None if one is elsewhere, or cannot be read."""
    try:
        return (
            [local_path(url).stat().st_size for url in urls] if all(map(is_local, urls)) else None
        )
    except OSError:
        return None


def indexes_from(node: Any, path: Path | None, where: str) -> IndexList:
    """Return the indexes that a document contains, or those in the file that it names.

    Args:
        node: The `indexes` of the document.
        path: The file of indexes; None if the document holds them.
        where: Name of the document in messages.

    Raises:
        ValueError: The indexes are malformed.
        OSError: The file cannot be read.
    """
    forms = [form for form in ("range", "list", "file") if form in node]
    if len(forms) > 1:
        raise ValueError(f"{where}: found several forms: {', '.join(forms)}; keep one of them")
    if path is not None:
        loaded = IndexList.load(path)
        if len(loaded) != node.get("nsamples"):
            raise ValueError(
                f"{where}: expected {node.get('nsamples')} indexes, {path} holds {len(loaded)}"
            )
        # A document that was written by hand, or before, states no digest.
        if node.get("digest") is not None and node["digest"] != _file_digest(path):
            raise ValueError(
                f"{where}: {path} holds the indexes of another view, or was changed: its SHA-256 "
                "differs from the one in the document; restore the file, or save the view again"
            )
        return loaded
    numbers = node.get("range", node.get("list"))
    whole = isinstance(numbers, list) and all(
        type(number) is int and abs(number) < MOST_SAMPLES for number in numbers
    )
    if not whole or ("range" in node and (len(numbers) != 3 or numbers[2] == 0)):
        raise ValueError(
            f"{where}: indexes: expected a range, a list or a file, found {node!r:.80}"
        )
    if "range" in node:
        return IndexList.over(range(*numbers))
    return IndexList.of(np.array(numbers, np.int64))
