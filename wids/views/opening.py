"""Opening of saved views, and of datasets in their place."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from wids.base.arguments import check_text
from wids.base.keyhash import hash_keys, lineage_in
from wids.base.urls import (
    base_name,
    display_url,
    file_name,
    hide_credentials,
    is_local,
    local_path,
    scheme_of,
)
from wids.base.valuesizes import json_nbytes
from wids.base.warn import held_warnings, warn
from wids.errors import SpecError
from wids.specs.indexrules import USUAL_RULES, rules_of
from wids.specs.locations import folder_of, join
from wids.specs.rows import check_location
from wids.specs.shardtable import MOST_SAMPLES
from wids.specs.sources import find_shards, read_document
from wids.specs.spec import DatasetSpec
from wids.specs.uniquekeys import unique_keys
from wids.views.concatenation import other_classes
from wids.views.filling import Filled, first_fields
from wids.views.joining import matching_rows
from wids.views.saved import (
    MOST_NESTED,
    OWN_SHARDS,
    VERSION,
    contents_of,
    digest_of,
    indexes_from,
    too_nested,
)
from wids.views.viewable import (
    Join,
    ShardListDataset,
    View,
    Viewable,
    concat,
    is_plain,
)

if TYPE_CHECKING:
    from wids.views.indexlist import IndexList
    from wids.views.tablerows import TableRows

__all__ = ["Open", "is_joined", "is_saved_view", "open", "shards_and_rows"]

Open = Callable[..., Viewable]

_VERSION = re.compile(rb'"wids_version"\s*:\s*%d\b' % VERSION)
_BASE_KEYS = {"spec", "shardlist", "nsamples", "digest", "options", "fields", *USUAL_RULES} | {
    *("contents", "versions", "concat", "names", "classes", "join", "rename", "replace")
}
_CHOICE_KEYS = {"wids_version", "name", "nsamples", "made", "base"} | {
    *("indexes", "exclude", "patch", "append", "lineage")
}
_MOST_DOCUMENTS = 8  # each of which names the next; one may name itself
# Of one view, since each document may name the next one ten times.
_MOST_IN_ALL = {"documents and datasets": 1000, "bases": 10_000}
_MOST_SHOWN = 8192  # characters in which URLs are looked for
_MOST_VALUES_NBYTES = 1 << 30  # of memory, as estimated before a document is parsed


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < MOST_SAMPLES


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _are_fields(value: Any) -> bool:
    pairs = value.items() if isinstance(value, dict) else ()
    return _are_texts(value) or (
        isinstance(value, dict) and all(name[:1] == "." and _is_text(to) for name, to in pairs)
    )


def _are_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


# What the keys of a document hold, besides locations and bases, which are checked as they are met.
_KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "nsamples": ("a count", _is_count),
    "nbytes": ("a count", _is_count),
    "missing": ("a count", _is_count),
    "digest": ("a text", _is_text),
    "versions": ("a text", _is_text),
    "classes": ("a text", _is_text),
    "names": ("a list of texts", _are_texts),
    "fields": ("a list of extensions, or the column of each", _are_fields),
    "on": (
        "a field and a column",
        lambda on: _are_pair(on) and {*map(type, on)} <= {str, type(None)},
    ),
    "join": ("a list of two bases", _are_pair),
    "concat": ("a list of bases", lambda parts: isinstance(parts, list) and len(parts) > 0),
    "rename": (
        "an object of extensions",
        lambda names: isinstance(names, dict) and _are_texts(list(names.values())),
    ),
    "replace": ("true or false", lambda value: isinstance(value, bool)),
    "shardlist": ("a list of shards", lambda rows: isinstance(rows, list)),
    "contents": ("an object of digests", lambda facts: isinstance(facts, dict)),
    "made": ("a list of texts", _are_texts),
}


def _shown(value: Any) -> str:
    """Return the text of a value of a document for messages, without credentials of URLs."""
    return f"{hide_credentials(repr(value)[:_MOST_SHOWN]):.80}"


def _check_kinds(node: dict[str, Any], where: str) -> None:
    """Raise SpecError unless the keys of an object of a document hold what they should."""
    for key, (kind, holds) in _KINDS.items():
        if node.get(key) is not None and not holds(node[key]):
            raise SpecError(f"{where}: {key}: expected {kind}, found {_shown(node[key])}")


def open(source: Any, **options: Any) -> Any:  # noqa: A001 (it is `wids.open`)
    """Open samples: a dataset or a saved view, of this machine or of a server.

    It does not import torch, which takes seconds. What it returns serves a DataLoader in any case,
    and is a `torch.utils.data.Dataset` if the program has imported torch before.

    Args:
        source: Path or URL of a JSON spec, a pack or a saved view; a folder, glob, brace pattern or
            single tar; an open file that holds a spec; a spec as `json.load` returns it, a saved
            view likewise (its locations are relative to the current folder), or a `DatasetSpec`; or
            a list of these, of `{"url", "nsamples"}` dicts or of `(url, nsamples)` pairs.
        options: As `ShardListDataset` takes them, for every dataset that is opened.

    Returns:
        A `ShardListDataset`; of a saved view, what was saved: a `View`, a `Concatenation` or
        another sequence of samples.

    Raises:
        SpecError: The source does not exist or is malformed; or the dataset of a saved view has
            changed since.
        FetchError: A URL could not be fetched.
        TypeError: The source is open already, or an option is unknown.

    >>> import tempfile, wids
    >>> folder = tempfile.mkdtemp()
    >>> with wids.ShardWriter(f"{folder}/train-%03d.tar") as writer:
    ...     for number in range(5):
    ...         writer.write({"__key__": f"{number}", ".cls": number})
    >>> dataset = wids.open(folder, cache_dir=f"{folder}/cache")
    >>> len(dataset), dataset[-1][".cls"]
    (5, 4)
    >>> dataset.filter(".cls >= 2").save(f"{folder}/some.json")
    >>> view = wids.open(f"{folder}/some.json")
    >>> [sample[".cls"] for sample in view], view.made
    ([2, 3, 4], ("filter('.cls >= 2')",))
    """
    make = ShardListDataset
    if "torch.utils.data" in sys.modules:
        from wids.views import dataset

        make = dataset.ShardListDataset
    try:
        return _Opener(make, options).open(source)
    except MemoryError:  # of billions of samples, perhaps, which a document only claims
        raise SpecError(
            f"{_shown(source)}: not enough memory for the samples that it names"
        ) from None


def is_saved_view(source: Any) -> bool:
    """Return whether a location names a saved view."""
    return _saved_document(source) is not None


def is_joined(samples: Any) -> bool:
    """Return whether the fields of one sample may be in several shards or in a table."""
    if isinstance(samples, View):
        return is_joined(samples.base)
    if is_plain(samples):
        return any(map(is_joined, samples.parts))
    return not isinstance(samples, ShardListDataset)


def shards_and_rows(
    samples: Any, *, leftmost: bool = False, **options: Any
) -> tuple[ShardListDataset, npt.NDArray[np.int64] | None]:
    """Return the dataset that stores the samples of a view, and their indexes in it.

    Programs that copy or inspect shards use it.

    Args:
        samples: A dataset, a view, or a concatenation of these.
        leftmost: Whether the left side of a join stands for it.
        options: Options of the dataset that is opened of all shards of a concatenation.

    Returns:
        The dataset, and the indexes in order; None for all its samples.

    Raises:
        SpecError: A sample has fields of several shards, or the parts differ in the rules by which
            members are grouped.
    """
    if isinstance(samples, ShardListDataset):
        return samples, None
    if leftmost and isinstance(samples, Join):
        return shards_and_rows(samples.left, leftmost=True, **options)
    if isinstance(samples, View):
        dataset, rows = shards_and_rows(samples.base, leftmost=leftmost, **options)
        chosen = samples.rows.array()
        return dataset, chosen if rows is None else rows[chosen]
    if not is_plain(samples):
        raise SpecError(
            f"{samples!r:.200}: expected a dataset, a selection or a concatenation, found a "
            f"{type(samples).__name__}, whose samples are not stored in one dataset; wids reshard "
            "writes them as shards"
        )
    parts = [shards_and_rows(part, leftmost=leftmost, **options) for part in samples.parts]
    datasets = list({id(dataset): dataset for dataset, _ in parts}.values())
    whole = datasets[0] if len(datasets) == 1 else _as_one(datasets, options)
    # The samples of each dataset begin in the whole where those of the one before end.
    starts = np.cumsum([0, *map(len, datasets)]).tolist()
    first = {id(dataset): start for dataset, start in zip(datasets, starts, strict=False)}
    found = [
        first[id(dataset)] + (np.arange(len(dataset)) if rows is None else rows)
        for dataset, rows in parts
    ]
    return whole, np.concatenate(found)


def _as_one(datasets: Sequence[ShardListDataset], options: Mapping[str, Any]) -> ShardListDataset:
    """Return a dataset of the shards of several datasets, one after the other.

    Raises:
        SpecError: They differ in the rules by which members are grouped.
    """
    from wids.specs.merging import merged_header, with_names_beside

    rules = [dict(dataset.index_rules) for dataset in datasets]
    if any(each != rules[0] for each in rules):
        raise SpecError(
            "expected parts that group members into samples by the same rules, found "
            f"{rules}; open all parts with the same key_rule and grouping"
        )
    by_name = {f"part {number}": each for number, each in enumerate(datasets)}
    headers = with_names_beside(
        {name: each.header for name, each in by_name.items()},
        lambda name: by_name[name].class_names,
    )
    rows = [dict(shard) for dataset in datasets for shard in dataset.shards]
    # The parts gave their warnings when they were opened, and may choose from one shard.
    with held_warnings([]):
        return ShardListDataset(rows, **{**options, **rules[0], "options": merged_header(headers)})


class _Opener:
    """Opens documents, and the datasets that they name, with the same options.

    Args:
        make: Function that opens a dataset.
        options: Its options.
        documents: Number of documents, each of which names the next, that led here.
        counts: Numbers of what was opened for the view so far.
    """

    def __init__(
        self,
        make: Open,
        options: dict[str, Any],
        documents: int = 0,
        counts: Counter[str] | None = None,
    ) -> None:
        self._make = make
        self._options = options
        self._documents = documents
        self._counts = Counter() if counts is None else counts

    def open(self, source: Any) -> Any:
        """Open the view or dataset that a location names, or the parts of a list as one."""
        each = source if isinstance(source, list | tuple) else [source]
        for opened in (part for part in each if hasattr(part, "read_as")):
            raise TypeError(
                f"wids.open: expected a location, a list or a dict, got {opened!r:.80}, which is "
                "open already; use it as it is, wids.concat puts several together"
            )
        if isinstance(source, list | tuple) and any(map(is_saved_view, source)):
            return concat([self.open(part) for part in source])
        if isinstance(source, Mapping) and source.get("wids_version") == VERSION:
            return self._document(dict(source), "")
        document = _saved_document(source)
        if document is None:
            return self._make(source, **self._options)
        return self._document(document, os.fspath(source))

    def _document(self, node: dict[str, Any], home: str) -> Any:
        """Open the view of a document."""
        fields = self._options.get("fields")
        if fields is None:
            return self.base(node, home, 0)
        # They are names in the view: a join may have renamed those of its sides.
        options = {name: self._options[name] for name in self._options if name != "fields"}
        whole = _Opener(self._make, options, self._documents, self._counts).base(node, home, 0)
        return whole.with_options(fields=fields)

    def base(self, node: Any, home: str, depth: int) -> Any:
        """Open a base that a document describes.

        Args:
            node: The location or object in the document.
            home: Location of the document.
            depth: Number of bases around it in the document.
        """
        where = display_url(home)
        if self._documents > _MOST_DOCUMENTS:
            raise SpecError(
                f"{where}: saved views nest more than {_MOST_DOCUMENTS} deep, each the base of the "
                "one before; correct a document that names itself, or open an inner one and save "
                "it as a document of its own"
            )
        if depth > MOST_NESTED:
            raise SpecError(f"{where}: {too_nested()}")
        self._count("bases", where)
        if isinstance(node, str):
            self._count("documents and datasets", where)
            return self._inner({}).open(self._located(node, home))
        if not isinstance(node, dict):
            raise SpecError(
                f"{where}: base: expected a location or an object, found {_shown(node)}"
            )
        _check_kinds(node, where)
        known = _CHOICE_KEYS if "base" in node else _BASE_KEYS
        if unknown := [key for key in node if key not in known]:
            warn(
                f"{where}: the key {unknown[0]!r:.80} has no effect; expected some of "
                f"{', '.join(sorted(known))}"
            )
        if "base" in node:
            return self._chosen(node, home, depth)
        if node.get("concat") is not None:
            parts = [self.base(part, home, depth + 1) for part in node["concat"]]
            with _said_of(where):
                return concat(parts, node.get("names"), classes=node.get("classes", "same"))
        if node.get("join") is not None:
            left = self.base(node["join"][0], home, depth + 1)
            right = self._right_side(node["join"][1], left, home, depth)
            _check_count(right, len(left), where)
            return Join(left, right, node.get("rename") or {}, replace=bool(node.get("replace")))
        return self._dataset(node, home)

    def _right_side(self, node: Any, left: Any, home: str, depth: int) -> Any:
        """Open the right side of a join: a base, a table, or a `Filled` sequence."""
        if isinstance(node, dict) and ("table" in node or "tables" in node):
            return self._table(node, left, home)
        if isinstance(node, dict) and "of" in node:
            base = self.base(node["of"], home, depth + 1)
            return Filled(base, self._indexes(node.get("rows"), len(base) + 1, home))
        return self.base(node, home, depth + 1)

    def _table(self, node: dict[str, Any], left: Any, home: str) -> TableRows:
        """Open the rows of a joined table, after checking that the table has not changed."""
        from wids.views.table import FileStamp
        from wids.views.tablejoin import cache_of, joins_folder, rows_as_saved, shards_of
        from wids.views.tablerows import Match
        from wids.views.tablesbeside import beside_shards, table_beside
        from wids.views.tablesources import remote_table, table_source

        where = display_url(home)
        _check_kinds(node, where)
        on, fields = node.get("on"), node.get("fields")
        if (
            on is None
            or not isinstance(fields, dict)
            or None in map(node.get, ("nbytes", "digest"))
        ):
            raise SpecError(
                f"{where}: join: expected a table as it is saved, with on, fields (an object), "
                f"nbytes and digest, found the keys {', '.join(map(repr, node)):.200}"
            )
        stamp = FileStamp(node["nbytes"], node["digest"])
        named = self._located(node.get("table", node.get("tables")), home)
        try:
            if "tables" in node:
                shards, pattern = shards_of(left), node["tables"]
                if scheme_of(pattern) or pattern.startswith(("/", "~")):
                    pattern = named
                # What is relative lies beside the shards, and the name of one may be "file:x".
                for shard in shards:
                    self._check_location(table_beside(pattern, shard), home)
                source = beside_shards(
                    pattern, shards, missing="fill", stamp=stamp, cache=cache_of(left)
                )
            elif is_local(named):
                copies = joins_folder(left)
                source = table_source(local_path(named), copies=copies, stamp=stamp)
            else:
                cache = cache_of(left)
                if cache is None:
                    raise SpecError(f"{display_url(named)}: fetch this table, and join it")
                source = remote_table(named, cache, copies=joins_folder(left), stamp=stamp)
            rows = rows_as_saved(left, source, Match(*on), fields)
        except (ValueError, OSError) as error:
            raise SpecError(f"{where}: {error}") from error
        lost = int((rows.rows.array() == rows.table.num_rows).sum())
        if lost != node.get("missing", 0):
            raise SpecError(
                f"{where}: {source.title}: {lost} samples have no row in it, "
                f"{node.get('missing', 0)} when the view was saved; join the table again"
            )
        return rows

    def _inner(self, options: dict[str, Any]) -> _Opener:
        """Return an opener of the documents inside this one; these options take precedence."""
        return _Opener(self._make, self._options | options, self._documents + 1, self._counts)

    def _count(self, what: str, where: str) -> None:
        """Count what is opened; kilobytes may name each other millions of times."""
        self._counts[what] += 1
        if self._counts[what] > (most := _MOST_IN_ALL[what]):
            raise SpecError(
                f"{where}: expected at most {most} {what} in all, found more; write the samples "
                "as shards (wids.reshard), or merge the specs of datasets (`wids merge`)"
            )

    def _dataset(self, node: dict[str, Any], home: str) -> Any:
        where = display_url(home)
        self._count("documents and datasets", where)
        rules_of(node, where)
        own = {name: node[name] for name in USUAL_RULES if name in node}
        for name, kept in own.items():
            if self._options.get(name) not in (None, kept):
                warn(
                    f"{where}: {name}={self._options[name]!r} has no effect, since the samples of "
                    f"the view were chosen with {kept!r}"
                )
        if options := self._options_kept(node, where):
            own["options"] = options
        if node.get("fields") is not None:
            if not isinstance(node["fields"], list):
                raise SpecError(
                    f"{where}: fields: expected a list of extensions, found "
                    f"{_shown(node['fields'])}"
                )
            own["fields"] = node["fields"]
        opener = self._inner(own)
        if "spec" in node:
            named = node["spec"]
            location = self._located(named, home)
            if is_local(location) and file_name(location).endswith(".json"):
                _check_there(local_path(location), where)
            dataset = opener.open(location)
        elif node.get("shardlist") is not None:
            allow_local = bool(self._options.get("allow_local"))
            listed = {"shardlist": node["shardlist"]}
            spec = DatasetSpec.parse(listed, home, allow_local=allow_local)
            rows = [dict(shard) for shard in spec.shards]
            named = f"{len(rows)} shards"
            dataset = self._make(rows, **self._options | own)
        else:
            raise SpecError(
                f"{where}: base: expected 'spec', 'shardlist', 'concat', 'join' or 'base', found "
                f"{', '.join(map(repr, node)) or 'nothing'}"
            )
        shards = getattr(dataset, "shards", None)
        changed = len(dataset) != node.get("nsamples", len(dataset)) or (
            "digest" in node and shards is not None and digest_of(shards) != node["digest"]
        )
        if changed:
            raise SpecError(
                f"{where}: {display_url(str(named))} has changed since the view was saved: "
                f"expected {node.get('nsamples')} samples in the same shards, found "
                f"{len(dataset)} samples or other shards; make the view again, or restore the "
                "dataset"
            )
        if shards is not None and node.get("contents") is not None:
            _check_contents(node["contents"], shards, f"{where}: {display_url(str(named))}")
        if shards is not None:
            _require_versions(dataset, node.get("versions"), where)
        return dataset

    def _options_kept(self, node: dict[str, Any], where: str) -> dict[str, Any]:
        """Return the options in a document for its dataset, with those given now over them."""
        kept = node.get("options", {})
        if not isinstance(kept, dict) or OWN_SHARDS & kept.keys():
            raise SpecError(
                f"{where}: options: expected an object of top-level keys without shards and base, "
                f"found {_shown(kept)}"
            )
        given = self._options.get("options") or {}
        named = {"name"} if self._options.get("dataset_name") else set()
        return {key: kept[key] for key in kept if key not in named} | given

    def _chosen(self, node: dict[str, Any], home: str, depth: int) -> Any:
        """Apply the `indexes`, `exclude`, `patch` and `append` of a document to its base."""
        where = display_url(home)
        base = samples = self.base(node["base"], home, depth + 1)
        if node.get("indexes") is not None:
            samples = samples.select(self._indexes(node["indexes"], len(samples), home))
            if node.get("lineage") is not None:
                if (lineage := lineage_in(node)) is None:
                    raise SpecError(
                        f"{where}: lineage: expected 16 hexadecimal digits as they were saved, "
                        f"found {_shown(node['lineage'])}"
                    )
                samples = View(samples.base, samples.rows, samples.made, lineage)
        if node.get("exclude") is not None:
            samples = samples.exclude(self._keys(node["exclude"], home), missing="drop")
        patches: list[str] = []
        for patch in _as_list(node.get("patch"), where, "patch"):
            new = self.base(patch, home, depth + 1)
            _check_classes(base, new, f"{where}: patch {_shown(patch)}")
            _warn_of_unknown_keys(base, new, where)
            steps = [*getattr(samples, "made", ()), f"patch({_shown(patch)})"]
            patches.append(steps[-1])
            samples = patched(samples, new)
            if isinstance(samples, View):
                samples = View(samples.base, samples.rows, steps, samples.lineage)
        added = _as_list(node.get("append"), where, "append")
        if added:
            parts = [self.base(each, home, depth + 1) for each in added]
            if node.get("exclude") is not None:
                _warn_of_keys_back(self._keys(node["exclude"], home), parts, where)
            with _said_of(where):
                samples = concat([samples, *parts])
        _check_count(samples, node.get("nsamples", len(samples)), where)
        if isinstance(samples, View) and node.get("made") is not None:
            made = [*node["made"], *patches]
            return View(samples.base, samples.rows, made, samples.lineage)
        return samples

    def _indexes(self, node: Any, total: int, home: str) -> IndexList:
        where = display_url(home)
        if not isinstance(node, dict):
            raise SpecError(f"{where}: indexes: expected an object, found {_shown(node)}")
        _check_kinds(node, where)
        try:
            if "file" not in node:
                rows = indexes_from(node, None, where)
            else:
                location = self._located(node["file"], home)
                with _local_copy(location) as path:
                    rows = indexes_from(node, path, where)
            rows.check(total)
        except (ValueError, OSError) as error:
            raise SpecError(f"{where}: indexes: {error}") from error
        return rows

    def _keys(self, named: Any, home: str) -> list[str]:
        """Return the keys in a list of a document, or in the file that it names."""
        from wids.views.keytable import read_keys

        if isinstance(named, list) and all(isinstance(key, str) for key in named):
            return named
        if not isinstance(named, str):
            listed = named if isinstance(named, list) else [named]
            other = next(key for key in listed if not isinstance(key, str))
            raise SpecError(
                f"{display_url(home)}: exclude: expected a list of keys, which are texts, or the "
                f"location of a file, found {_shown(other)}; write a key that is a number in quotes"
            )
        location = self._located(named, home)
        try:
            with _local_copy(location) as path:
                return read_keys(path)
        except (OSError, ValueError) as error:
            raise SpecError(f"{display_url(home)}: exclude: {error}") from error

    def _located(self, named: Any, home: str) -> str:
        """Resolve a location in a document against the document's folder."""
        check_location(named, display_url(home), "location")
        location = join(folder_of(home), named)
        self._check_location(location, home)
        return location

    def _check_location(self, location: str, home: str) -> None:
        """Raise SpecError for a pipe or a device, and for a local file that a server names."""
        if not is_local(location):
            return
        if not (is_local(home) or self._options.get("allow_local")):
            raise SpecError(
                f"{display_url(home)}: {location!r:.200} is a file of this machine, which a "
                "document from a server may not name; allow_local=True permits it"
            )
        path = local_path(location)
        # By functions of `os.path`, which are False for a name that no file can have.
        if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):  # noqa: PTH110, PTH112, PTH113
            raise SpecError(
                f"{display_url(home)}: {display_url(location):.200}: expected a file or a folder, "
                "found a pipe or a device, which may have no end"
            )


def _warn_of_unknown_keys(base: Any, patch: Any, where: str) -> None:
    """Warn of samples of a patch whose keys the base does not have: a misspelt key, perhaps."""
    from wids.views.keytable import KeyTable

    _, found = KeyTable(patch.key_hashes()).pairs(base.key_hashes())
    lost = np.setdiff1d(np.arange(len(patch)), found)
    if len(lost):
        warn(
            f"{where}: patch: {len(lost)} of {len(patch)} samples change nothing, since no sample "
            f"of the base has their key, such as {patch.key_at(int(lost[0]))!r}; check the keys, "
            "or add new samples by 'append'"
        )


def _warn_of_keys_back(keys: list[str], parts: list[Any], where: str) -> None:
    """Warn of keys that a document leaves out of its base, and that come back with other parts."""
    hashes = hash_keys(keys)
    for part in parts:
        here = np.flatnonzero(np.isin(part.key_hashes(), hashes))
        if len(here):
            warn(
                f"{where}: append: {len(here)} samples have keys that 'exclude' leaves out of the "
                f"base alone, such as {part.key_at(int(here[0]))!r}, and stay; to leave them out "
                'of all, write "base": {"base": ..., "append": [...]} around base and append'
            )


def _check_classes(base: Any, patch: Any, where: str) -> None:
    """Refuse a patch that has class fields, and whose spec numbers the classes otherwise."""
    from wids.codecs.formats import is_class

    message = other_classes([base, patch])
    if message and any(map(is_class, first_fields(patch))):
        raise SpecError(
            f"{where}: {message} (part 0 is the base, part 1 the patch); number the classes of the "
            "patch as the base does"
        )


def patched(samples: Any, patch: Any) -> Any:
    """Replace fields of some samples by those of a patch.

    Args:
        samples: All samples.
        patch: Samples with some of the same keys; their fields replace those of `samples`.
    """
    from wids.views.keytable import KeyTable

    rows, matches = matching_rows(samples, patch, KeyTable(patch.key_hashes()))
    if not len(rows):
        return samples
    joined = Join(samples.select(rows), patch.select(matches), {}, replace=True)
    others = np.setdiff1d(np.arange(len(samples)), rows)
    if not len(others):
        return joined
    order = np.argsort(np.concatenate([rows, others]), kind="stable")
    return concat([joined, samples.select(others)]).select(order)


@contextmanager
def _said_of(where: str) -> Iterator[None]:
    """Context manager that adds the name of the document to errors."""
    try:
        yield
    except ValueError as error:
        raise SpecError(f"{where}: {error}") from error


@contextmanager
def _local_copy(location: str) -> Iterator[Path]:
    """Context manager of a local file with the content of a location."""
    from wids.fetching.fetch import open_url

    if is_local(location):
        yield local_path(location)
        return
    with tempfile.TemporaryDirectory(prefix="wids-indexes-") as folder:
        # The reader maps the file, and a map stays readable after the file is removed.
        path = Path(folder, base_name(location))
        path.write_bytes(open_url(location))
        yield path


def _saved_document(source: Any) -> dict[str, Any] | None:
    """Return the document of a saved view; None if the location names something else."""
    if not isinstance(source, str | os.PathLike):
        return None
    location = os.fspath(source)
    if not file_name(location).endswith(".json") or find_shards(location) is not None:
        return None
    text = read_document(location)
    if _VERSION.search(text) is None:  # a spec may have megabytes, which `load_spec` caches parsed
        return None
    shown = display_url(location)
    if json_nbytes(text, _MOST_VALUES_NBYTES) > _MOST_VALUES_NBYTES:
        raise SpecError(
            f"{shown}: its values could take more than {_MOST_VALUES_NBYTES} bytes of memory; "
            "expected a saved view, with its indexes in a file of their own"
        )
    try:
        document = json.loads(text, object_pairs_hook=unique_keys(shown))
    except SpecError:
        raise
    except RecursionError:
        raise SpecError(f"{shown}: expected a saved view, found JSON nested too deeply") from None
    except ValueError:  # the parser of specs then raises an error with the reason
        return None
    version = document.get("wids_version") if isinstance(document, dict) else None
    if version != VERSION:
        return None
    if "base" not in document:
        raise SpecError(f"{display_url(location)}: expected a 'base', found none")
    return dict(document)


def _check_there(path: Path, where: str) -> None:
    """Refuse a document whose dataset is not where it says."""
    if not path.exists():
        raise SpecError(
            f"{where}: its dataset {display_url(str(path))} is not there; move the document "
            "and the dataset alike, or save the view again"
        )


def _check_contents(then: Mapping[str, Any], shards: Any, where: str) -> None:
    """Refuse shards of the same names and counts whose sizes or digests have changed.

    Only what a spec said then and says now can be compared.
    """
    now = contents_of(shards) if then else {}
    if other := [name for name in then if name in now and now[name] != then[name]]:
        raise SpecError(
            f"{where} has changed since the view was saved: its shards have another "
            f"{' and '.join(map(str, other))}, so their samples may be others; make the view "
            "again, or restore the dataset"
        )


def _require_versions(dataset: Any, saved: Any, where: str) -> None:
    """Make it an error if a shard has changed since samples were chosen by it."""
    if saved is None:
        return
    try:
        dataset.require_versions(check_text("versions", saved, "what save() wrote"))
    except (TypeError, ValueError) as error:
        raise SpecError(f"{where}: versions: {error}") from error


def _as_list(value: Any, where: str, name: str) -> list[Any]:
    if value is None:
        return []
    found = value if isinstance(value, list) else [value]
    if not all(isinstance(each, str | dict) for each in found):
        raise SpecError(f"{where}: {name}: expected locations, found {_shown(value)}")
    return found


def _check_count(samples: Any, expected: Any, where: str) -> None:
    if len(samples) != expected:
        raise SpecError(
            f"{where}: expected {expected} samples, found {len(samples)}: its datasets have "
            "changed since the view was saved; make the view again"
        )
