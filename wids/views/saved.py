"""Saving of a view as a small JSON document: its plan, and what it was made of.

    {"wids_version": 3, "name": "clean", "nsamples": 57, "made": ["filter('.cls == 3')"],
     "datasets": [{"spec": "train.json", "nsamples": 100, "contents": {...}}],
     "slots": [{"sources": [{"dataset": 0}], "rows": {"kind": "runs", "arrays": "rows0", ...}}],
     "arrays": {"file": "clean.rows", "digest": "..."}}

The list of datasets has the datasets and tables, with their state at the time of saving:

    {"spec" or "shardlist", "nsamples", "contents",  a dataset
     "versions", "options", "fields"}
    {"table", "nbytes", "digest", "fields", "key"}   a file of a table, or a list of files

A slot has its sources, each with the steps that follow, and rows: a range, a list, runs of adjacent
ones by their starts and lengths, or arrays in the file of the document.

The version is 3, because readers of others would not see what was chosen.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wids.base.arguments import check_path
from wids.base.arrayfile import write_arrays
from wids.base.files import write_output
from wids.base.urls import base_name, is_local, local_path, scheme_of
from wids.reading.shardlist import ShardList, is_sharded
from wids.specs.indexrules import USUAL_RULES, unusual_rules
from wids.specs.locations import name_of
from wids.views.plan import Add, Call, ListLeaf, Rename, Source, Step, Surround, pruned, slots_of
from wids.views.tables import TableRows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wids.specs.shardtable import ShardTable
    from wids.views.rows import Rows

__all__ = [
    "OWN_SHARDS",
    "ROWS_OF_A_VIEW",
    "VERSION",
    "contents_of",
    "file_digest",
    "save_view",
    "view_document",
]

VERSION = 3
ROWS_OF_A_VIEW = "wids-view-1"  # what a file of another kind does not say of itself
_VERSION_KEY = re.compile(rb'"wids_version"\s*:\s*%d\b' % VERSION)
_HEAD_NBYTES = 1 << 20  # of a document, in which its version is looked for
# Longer lists of rows are written to a file beside the document, so that it stays readable.
_MOST_INLINE = 100
# Keys of a spec by which options replace its shards.
OWN_SHARDS = {"shardlist", "datasets", "base", "base_path"}
_NOT_KEPT = {"wids_version", "__kind__", *OWN_SHARDS, *USUAL_RULES}  # rules have their own keys


def save_view(samples: Any, path: str | os.PathLike[str]) -> None:
    """Write the document of a view, and its long lists of rows to a file in the same folder.

    Args:
        samples: The view.
        path: Path of the document, which ends in `.json`; the file of rows is named after it.

    Raises:
        TypeError: The view has a part that cannot be saved, such as a function.
        ValueError: The path does not end in `.json`, or is that of another file; or a bucket of
            one name is in several stores.
        OSError: A file cannot be written.
    """
    target = Path(check_path("path", path))
    if target.suffix != ".json":
        raise ValueError(f"path {str(target)!r}: expected a name that ends in .json")
    if target.is_file() and target.stat().st_size:
        with target.open("rb") as stream:
            is_document = _VERSION_KEY.search(stream.read(_HEAD_NBYTES)) is not None
        # It may be the spec of the very dataset, without which no view of it can be opened.
        if not is_document:
            raise ValueError(
                f"path {str(target)!r}: is there already, and is no saved view; choose another "
                "name, or remove the file first"
            )
    writer = _Writer(target)
    document = {**_named(samples, target.stem), **writer.plan(samples)}
    writer.check_stores()
    if writer.arrays:
        file = target.with_suffix(".rows")
        write_arrays(file, {"is": ROWS_OF_A_VIEW}, writer.arrays)
        document["arrays"] = {"file": file.name, "digest": file_digest(file)}
    # Written last, so that the document never names a file that does not exist yet.
    write_output(target, f"{json.dumps(document, indent=2)}\n".encode())


def _named(samples: Any, name: str) -> dict[str, Any]:
    lineage = getattr(samples, "lineage", None)
    made = list(getattr(samples, "made", ()))
    known = {"wids_version": VERSION, "name": name, "nsamples": len(samples), "made": made}
    return known | ({} if lineage is None else {"lineage": lineage})


def view_document(samples: Any, name: str, made: Sequence[str] = ()) -> dict[str, Any]:
    """Return the complete document of a view, with all rows and absolute locations.

    It can be stored anywhere on the same machine.

    Args:
        samples: The view.
        name: Name of the view.
        made: Descriptions of the steps that made the view.

    Raises:
        TypeError: The view has a part that cannot be saved, such as a function.
    """
    return {**_named(samples, name), "made": list(made), **_Writer(None).plan(samples)}


class _Writer:
    """Writer of the plan of one document.

    Args:
        target: Path of the document; None for a document without a file of rows.

    Attributes:
        arrays: The arrays of rows that the file of the document holds.
    """

    def __init__(self, target: Path | None) -> None:
        self._target = target
        self.arrays: dict[str, Any] = {}
        self._leaves: dict[int, Any] = {}
        self._with_fields = False

    def plan(self, samples: Any) -> dict[str, Any]:
        """Return the keys of the document that describe a plan."""
        if hasattr(type(samples), "part_lengths"):
            raise TypeError("save: a Mixture cannot be saved, as it has weights: save its parts")
        slots = pruned(slots_of(samples))
        # Where a joined or renamed field comes from depends on the fields that are read.
        steps = (step for slot in slots for source in slot.sources for step in source.steps)
        self._with_fields = any(isinstance(step, Add | Rename) for step in steps)
        said = []
        for slot in slots:
            sources = [self._source(source) for source in slot.sources]
            said.append({"sources": sources, "rows": self._rows(slot.rows)})
        datasets = list(map(self._leaf, self._leaves.values()))
        facts = getattr(samples, "facts", None)
        classes = {"classes": "any"} if facts is not None and facts.any_classes else {}
        return {"datasets": datasets, "slots": said, **classes}

    def check_stores(self) -> None:
        """Refuse buckets of one name in several stores, which the document cannot tell apart.

        Raises:
            ValueError: There is such a bucket.
        """
        stores: dict[str, Any] = {}
        for leaf in filter(is_sharded, self._leaves.values()):
            urls = (url for url in leaf.shards.urls if scheme_of(url) in {"s3", "s3a"})
            for bucket in {"/".join(url.split("/", 3)[:3]) for url in urls}:
                if stores.setdefault(bucket, leaf.cache.store) != leaf.cache.store:
                    raise ValueError(
                        f"save: {bucket} is a bucket of several stores here, and a saved view does "
                        "not keep the store: save the samples of each store as a view of their own"
                    )

    def _number(self, leaf: Any) -> int:
        self._leaves.setdefault(id(leaf), leaf)
        return list(self._leaves).index(id(leaf))

    def _source(self, source: Source) -> dict[str, Any]:
        steps = [self._step(step) for step in source.steps]
        label = {} if source.label is None else {"name": source.label}
        return {"dataset": self._number(source.leaf), **label} | ({"steps": steps} if steps else {})

    @staticmethod
    def _step(step: Step) -> dict[str, Any]:
        if isinstance(step, Surround):
            return {"before": list(step.before), "after": list(step.after)}
        if isinstance(step, Rename):
            return {"names": {new: list(step.names[new]) for new in step.names}}
        if isinstance(step, Call):
            raise TypeError(
                "save: a function cannot be saved: save the view before map(), and call map() on "
                "the opened view"
            )
        said: dict[str, Any] = {"join": step.slot}
        said |= {"rename": dict(step.rename)} if step.rename else {}
        said |= {"replace": True} if step.replace else {}
        said |= {"of_table": True} if step.of_table else {}
        return said | ({} if step.absent is None else {"none": list(step.absent)})

    def _leaf(self, leaf: Any) -> dict[str, Any]:
        if isinstance(leaf, TableRows):
            return self._table(leaf)
        if isinstance(leaf, ListLeaf) or not is_sharded(leaf):
            samples = leaf.samples if isinstance(leaf, ListLeaf) else leaf
            raise TypeError(
                f"save: a {type(samples).__name__} cannot be saved; expected datasets of shards, "
                "and what is made of these: write its samples as shards"
            )
        return self._dataset(leaf)

    def _dataset(self, dataset: ShardList) -> dict[str, Any]:
        rules: dict[str, Any] = {**dataset.index_rules}
        versions = dataset.dataset_shards.versions.saved()
        said = {name: rules[name] for name in rules if name in dataset.header}
        node: dict[str, Any] = {
            "nsamples": len(dataset),
            "contents": contents_of(dataset.shards),
            **({"versions": versions} if versions else {}),
            **unusual_rules(rules),
            **said,  # the view keeps what takes precedence over the spec
        }
        if self._with_fields and (fields := dataset.pipeline.fields) is not None:
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
        named = [
            self._located(os.path.relpath(each) if origin.is_relative and is_local(each) else each)
            for each in origin.locations
        ]
        return {
            "table": named if len(named) > 1 else named[0],
            "nbytes": origin.stamp.nbytes,
            "digest": origin.stamp.digest,
            "fields": rows.fields,
            "key": rows.key,
        }

    def _rows(self, rows: Rows) -> dict[str, Any]:
        if rows.kind == "range":
            return {"range": rows.arrays["bounds"].tolist()}
        if len(rows) > _MOST_INLINE and self._target is not None:
            return rows.add_to(self.arrays)
        if rows.kind == "runs" and (runs := rows.as_runs()) is not None:
            return {"starts": runs[0].tolist(), "lengths": runs[1].tolist()}
        return {"list": rows.array().tolist()}


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file, as hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _options_of(dataset: ShardList, source: str | None) -> dict[str, Any]:
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


def contents_of(shards: ShardTable) -> dict[str, str]:
    """Return digests of the names and counts of shards, of their sizes, and of all their digests.

    Folders are left out, so that the names are the same on another machine. Sizes that the spec
    does not say are those of the files, if all shards are on this machine.

    >>> from wids.specs.shardtable import ShardTable
    >>> list(contents_of(ShardTable.of([{"url": "a.tar", "nsamples": 2, "filesize": 1024}])))
    ['list of shards', 'filesize']
    """
    from wids.specs.shardtable import digest_texts

    named = zip(shards.urls, shards.nsamples.tolist(), strict=True)
    facts: dict[str, Any] = {"list of shards": [f"{base_name(url)} {n}" for url, n in named]}
    sizes = shards.filesize.tolist() if (shards.filesize >= 0).all() else _file_sizes(shards.urls)
    facts |= {} if sizes is None else {"filesize": map(str, sizes)}
    for name, column in shards.digests.items():
        if all(texts := digest_texts(column)):
            facts[name] = texts
    return {
        name: hashlib.sha256("\n".join(texts).encode("utf-8", "surrogateescape")).hexdigest()
        for name, texts in facts.items()
    }


def _file_sizes(urls: Sequence[str]) -> list[int] | None:
    """Return the sizes of local files; None if one is elsewhere, or cannot be read."""
    try:
        return (
            [local_path(url).stat().st_size for url in urls] if all(map(is_local, urls)) else None
        )
    except OSError:
        return None
