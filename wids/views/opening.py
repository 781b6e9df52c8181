"""Opening of saved views, and of datasets in their place."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from wids.base.arguments import check_text
from wids.base.keyhash import lineage_in
from wids.base.urls import (
    base_name,
    display_url,
    file_name,
    hide_credentials,
    is_local,
    local_path,
)
from wids.base.valuesizes import json_nbytes
from wids.base.warn import held_warnings, warn
from wids.errors import DecodeError, SampleCountError, ShardFormatError, SpecError
from wids.fetching.storesettings import StoreSettings
from wids.specs.indexrules import USUAL_RULES, rules_of
from wids.specs.locations import folder_of, join
from wids.specs.rows import check_location, unique_keys
from wids.specs.shardtable import MOST_SAMPLES
from wids.specs.sources import find_shards, read_document
from wids.specs.spec import DatasetSpec
from wids.views.classes import other_classes
from wids.views.plan import (
    Add,
    Rename,
    Slot,
    Source,
    Step,
    Surround,
    checked_names,
    fields_of_leaf,
    slots_of,
)
from wids.views.planned import Facts
from wids.views.rows import Rows
from wids.views.saved import (
    OWN_SHARDS,
    ROWS_OF_A_VIEW,
    VERSION,
    contents_of,
    file_digest,
)
from wids.views.viewable import ShardListDataset, View, Viewable, concat

if TYPE_CHECKING:
    from wids.views.tables import TableRows

__all__ = ["Open", "is_joined", "is_saved_view", "open", "refuse_view", "shards_and_rows"]

Open = Callable[..., Viewable]

_VERSION = re.compile(rb'"wids_version"\s*:\s*%d\b' % VERSION)
_MOST = {"datasets": 1000, "sources": 10_000}  # of one view
_MOST_WORK = 1000  # reads of datasets and tables for one sample, and steps
_MOST_SHOWN = 8192  # characters in which URLs are looked for
_MOST_VALUES_NBYTES = 1 << 30  # of memory, as estimated before a document is parsed


class _Object(dict[str, Any]):
    """Keys that an object of a document may have, and what each holds.

    That is a type; a range, for whole numbers in it; [kind], a list of such items; {str: kind}, an
    object of such values; `object` for what is checked where it is used.
    """


_COUNT, _NUMBER = range(MOST_SAMPLES), range(1 - MOST_SAMPLES, MOST_SAMPLES)
_SAID = {"wids_version": object, "name": str, "nsamples": _COUNT, "made": [str]}
_SAID |= {"lineage": object, "classes": str}
_LEAF = _Object(dict.fromkeys(["spec", "versions", "table", *USUAL_RULES], object))
_LEAF |= {"shardlist": list, "nsamples": _COUNT, "nbytes": _COUNT, "digest": str, "options": dict}
_LEAF |= {"fields": object, "contents": dict, "key": str}
_STEP = _Object({"names": {str: [str]}, "before": [_COUNT], "after": [_COUNT], "join": _COUNT})
_STEP |= {"none": [str], "rename": {str: str}}
_STEP |= dict.fromkeys(["replace", "of_table"], bool)
_SOURCE = _Object({"dataset": _COUNT, "name": str, "steps": [_STEP]})
_ROWS = _Object({key: [_NUMBER] for key in ["range", "list", "starts", "lengths"]})
_ROWS |= {"kind": str, "count": _COUNT, "ascending": bool, "arrays": str}
_SLOT = _Object({"sources": [_SOURCE], "rows": _ROWS})
_PLAN = _Object(_SAID | {"datasets": [_LEAF], "slots": [_SLOT], "arrays": dict})
_KINDS: dict[Any, str] = {str: "a text", bool: "true or false", list: "a list", dict: "an object"}
_KINDS |= {_COUNT: "a count", _NUMBER: "a whole number"}


def _named(kind: Any) -> str:
    if isinstance(kind, list):
        return f"a list, each item {_named(kind[0])}"
    if isinstance(kind, dict) and not isinstance(kind, _Object):
        return f"an object, each value {_named(kind[str])}"
    return _KINDS[dict if isinstance(kind, _Object) else kind]


def _shown(value: Any) -> str:
    """Return the text of a value of a document for messages, without credentials of URLs."""
    return f"{hide_credentials(repr(value)[:_MOST_SHOWN]):.80}"


def _check(value: Any, kind: Any, where: str) -> None:
    """Raise SpecError unless a value is what it should be; warn of a key that has no effect."""
    if isinstance(kind, _Object) and isinstance(value, dict):
        for key, each in value.items():
            if key not in kind:
                expected = ", ".join(sorted(kind))
                warn(f"{where}: the key {_shown(key)} has no effect; expected some of {expected}")
            elif each is not None:
                _check(each, kind[key], f"{where}: {key}")
    elif isinstance(kind, list | dict) and isinstance(value, type(kind)):
        for each in value if isinstance(value, list) else value.values():
            _check(each, kind[0] if isinstance(kind, list) else kind[str], where)
    elif not (
        type(value) is int and value in kind
        if isinstance(kind, range)
        else isinstance(kind, type) and isinstance(value, kind)
    ):
        raise SpecError(f"{where}: expected {_named(kind)}, found {_shown(value)}")


def open(source: Any, **options: Any) -> Any:  # noqa: A001 (it is `wids.open`)
    """Open samples: a dataset or a saved view, of this machine or of a server.

    It does not import torch, which takes seconds. What it returns serves a DataLoader in any case,
    and is a `torch.utils.data.Dataset` if the program has imported torch before.

    The options serve every dataset that is opened. They are plain arguments, since most programs
    give one or two; no spec can set those of safety.

    Args:
        source: Path or URL of a JSON spec or a saved view; a folder, glob, brace pattern or
            single tar; an open file that holds a spec; a spec as `json.load` returns it, a saved
            view likewise (its locations are relative to the current folder), or a `DatasetSpec`; or
            a list of these, of `{"url", "nsamples"}` dicts or of `(url, nsamples)` pairs. Shards
            without `nsamples` are fetched and counted first.
        options: Arguments by name: those of `ShardListDataset`, and the following.

            Samples and shards:

            - `fields`: Extensions to read; all by default. Other fields are not read.
            - `decoders`: Functions that decode some extensions, as for `SampleDecoder`.
            - `on_error`: Handling of fields that cannot be decoded, as for `SampleDecoder`:
              "raise", "collect", placeholders by extension, or a function.
            - `key_rule`: "first_dot" (`a.seg.png` is field `.seg.png` of `a`) or "last_dot"; by
              default that of the spec, else "first_dot".
            - `grouping`: "adjacent" (members of a sample follow each other) or "shard" (they may be
              anywhere in the shard); by default that of the spec, else "adjacent".
            - `concatenated`: Read archives that follow the first one in a shard, which otherwise
              are an error; by default as the spec says, else False.

            Remote shards and network file systems:

            - `remote`: "whole" fetches a shard when its first sample is read. "range" reads single
              samples of remote shards by byte range, through the sidecar of each shard (its URL
              with `.widx` appended, or `index` in the spec). A shard without a sidecar, or on a
              server without byte ranges, is fetched whole. "auto" reads by range, and a `Loader`
              over the dataset, or its `as_iterable`, fetches whole shards ahead if this machine
              uses most of each and can keep them.
            - `memory`: With remote="range", bound of the bytes of samples that a `Loader` requests
              ahead; by default 1/32 of the machine's memory, from 64 MiB to 1 GiB.
            - `store`: Where the buckets of `s3:` URLs are, where one run reads several stores: some
              of `endpoint`, `region`, `profile` (of `~/.aws`) and `anonymous` (True for a public
              bucket), such as `{"endpoint": "https://host:9000", "profile": "minio"}`. It comes in
              place of the file of stores, which commands read; what it does not say comes from the
              environment. A saved view does not keep it.
            - `access`: "mmap" maps the files of shards. "pread" reads them by position, which
              network file systems answer faster; a file that becomes shorter meanwhile is then an
              error, where a map would end the process. "auto" reads files on network file systems
              by position, as far as Linux tells, and maps all others.

            Safety:

            - `shared`: Trust everyone who can write to the cache folder. Otherwise, a folder to
              which another user could write is refused.
            - `allow_pipe`: Permit `pipe:` URLs, which run a command.
            - `allow_pickle`: Permit fields that run code when decoded (`.pkl`, pickled `.pth`).
            - `allow_local`: Permit a spec from a server to name files of this machine.
            - `on_uncounted`: Called with the URL and the error of a shard without `nsamples` that
              cannot be read; the shard then has no samples. By default the error is raised. This is
              for tools that show damaged datasets.

    Returns:
        A `ShardListDataset`; of a saved view, a `View`.

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
    >>> dataset.filter("cls >= 2").save(f"{folder}/some.json")
    >>> view = wids.open(f"{folder}/some.json")
    >>> [sample[".cls"] for sample in view], view.made
    ([2, 3, 4], ("filter('cls >= 2')",))
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


def refuse_view(source: str, cure: str) -> None:
    """Raise ValueError if a location names a saved view, which is no spec.

    Args:
        source: The location.
        cure: End of the message: what to do in its place.
    """
    if is_saved_view(source):
        raise ValueError(f"{source}: is a saved view, and {cure}")


def is_joined(samples: Any) -> bool:
    """Return whether the fields of one sample may be in several shards or in a table."""
    slots = slots_of(samples)
    known = all(isinstance(source.leaf, ShardListDataset) for source in slots[0].sources)
    return any(source.steps for source in slots[0].sources) or not known


def shards_and_rows(
    samples: Any, *, leftmost: bool = False, **options: Any
) -> tuple[ShardListDataset, npt.NDArray[np.int64] | None]:
    """Return the dataset that stores the samples of a view, and their indexes in it.

    Programs that copy or inspect shards use it.

    Args:
        samples: A dataset or a view.
        leftmost: Whether to pass over what joins add.
        options: Options of the dataset that is opened of all shards of several datasets.

    Returns:
        The dataset, and the indexes in order; None for all its samples.

    Raises:
        SpecError: A sample has fields of several shards, or the datasets differ in the rules by
            which members are grouped.
    """
    if isinstance(samples, ShardListDataset):
        return samples, None
    if is_joined(samples) and not leftmost:
        raise SpecError(
            f"{samples!r:.200}: expected samples that are stored in one dataset, found some that "
            "have fields of several, or results of a function; wids reshard writes them as shards"
        )
    slot = slots_of(samples)[0]
    leaves = {id(source.leaf): source.leaf for source in slot.sources}
    datasets = list(leaves.values())
    whole = datasets[0] if len(datasets) == 1 else _as_one(datasets, options)
    # The samples of each dataset begin in the whole where those of the one before end.
    starts = dict(zip(leaves, np.cumsum([0, *map(len, datasets)]).tolist(), strict=False))
    found = np.empty(len(samples), np.int64)
    for leaf, places, rows, _ in slot.by_leaf(np.arange(len(samples), dtype=np.int64)):
        found[places] = rows + starts[id(leaf)]
    return whole, found


def _as_one(datasets: Sequence[ShardListDataset], options: Mapping[str, Any]) -> ShardListDataset:
    """Return a dataset of the shards of several datasets, one after the other.

    Raises:
        SpecError: They differ in the rules by which members are grouped.
    """
    from wids.specs.merging import merged_header

    rules = [dict(dataset.index_rules) for dataset in datasets]
    if any(each != rules[0] for each in rules):
        raise SpecError(
            "expected parts that group members into samples by the same rules, found "
            f"{rules}; open all parts with the same key_rule and grouping"
        )
    headers = {f"part {number}": each.header for number, each in enumerate(datasets)}
    rows = [dict(shard) for dataset in datasets for shard in dataset.shards]
    # The parts gave their warnings when they were opened, and may choose from one shard.
    with held_warnings([]):
        return ShardListDataset(rows, **{**options, **rules[0], "options": merged_header(headers)})


@dataclass(frozen=True)
class _Opener:
    """Opens a document, and the datasets and documents that it names, with the same options.

    Args:
        make: Function that opens a dataset.
        options: Its options.
        home: Location of the document; "" for a dict.
        opened: The datasets of this document that were opened so far.
    """

    make: Open
    options: dict[str, Any]
    home: str = ""
    opened: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def where(self) -> str:
        """What messages call the document."""
        return display_url(self.home) or "the dict"

    @cached_property
    def store(self) -> StoreSettings | None:
        """Where the buckets of `s3:` URLs are, as the options say."""
        given = self.options.get("store")
        return None if given is None else StoreSettings.of(given, "store")

    def open(self, source: Any) -> Any:
        """Open the view or dataset that a location names, or the parts of a list as one."""
        each = source if isinstance(source, list | tuple) else [source]
        for opened in (part for part in each if isinstance(part, Viewable)):
            raise TypeError(
                f"wids.open: expected a location, a list or a dict, got {opened!r:.80}, which is "
                "open already; use it as it is, wids.concat puts several together"
            )
        if isinstance(source, list | tuple) and any(
            _saved_document(part, self.store) is not None for part in source
        ):
            return concat([self.open(part) for part in source])
        document: dict[str, Any] | None
        if isinstance(source, Mapping) and source.get("wids_version") == VERSION:
            document, home = dict(source), ""
        else:
            document, home = _saved_document(source, self.store), source
        if document is None:
            return self.make(source, **self.options)
        # Fields are names in the view: a join may have renamed those of its sides.
        options = {name: self.options[name] for name in self.options if name != "fields"}
        view = replace(self, home=os.fspath(home), options=options, opened={}).view(document)
        fields = self.options.get("fields")
        return view if fields is None else view.with_options(fields=fields)

    def view(self, node: dict[str, Any]) -> View:
        """Open the view that a document describes."""
        try:
            _check(node, _PLAN, self.where)
            samples = self._planned(node)
            expected = node.get("nsamples", len(samples))
            if len(samples) != expected:
                raise SpecError(
                    f"expected {expected} samples, found {len(samples)}: its datasets have changed "
                    "since the view was saved; make the view again"
                )
        except ValueError as error:
            is_of_shard = isinstance(error, DecodeError | SampleCountError | ShardFormatError)
            if is_of_shard or str(error).startswith(self.where):
                raise
            raise SpecError(f"{self.where}: {error}") from error
        return samples

    def _planned(self, node: dict[str, Any]) -> View:
        """Open the view of a document that holds its plan."""
        entries, plan = node.get("datasets") or [], node.get("slots") or []
        num_sources = sum(len(slot.get("sources") or ()) for slot in plan)
        for what, count in (("datasets", len(entries)), ("sources", num_sources)):
            if count > _MOST[what]:
                raise SpecError(
                    f"expected at most {_MOST[what]} {what}, found {count}; write the samples as "
                    "shards (wids.reshard), or merge the specs of datasets (`wids merge`)"
                )
        if not plan:
            raise SpecError("slots: expected at least one, found none: save() writes views")
        leaves = [None if "table" in each else self._dataset(each) for each in entries]
        first = next((leaf for leaf in leaves if leaf is not None), None)
        leaves = [
            self._table(each, first) if "table" in each else leaf
            for each, leaf in zip(entries, leaves, strict=True)
        ]
        arrays = self._arrays(node.get("arrays"))
        slots: list[Slot] = []
        steps: dict[str, Step] = {}
        for number, said in enumerate(plan):
            try:
                sources = [
                    _source(source, leaves, range(number + 1, len(plan)), steps)
                    for source in said.get("sources") or []
                ]
                rows = _rows_from(said.get("rows") or {}, arrays)
                if slots and len(rows) != len(slots[0].rows):
                    raise ValueError(f"expected {len(slots[0].rows)} rows, found {len(rows)}")
                rows.check(sum(len(source.leaf) for source in sources), gaps=number > 0)
            except (ValueError, IndexError) as error:
                raise SpecError(f"slot {number}: {error}") from error
            slots.append(Slot(sources, rows))
        _check_work(slots)
        any_classes = node.get("classes") == "any"
        based = list({id(s.leaf): s.leaf for s in slots[0].sources}.values())
        if not any_classes and len(based) > 1 and (message := other_classes(based)):
            raise SpecError(message)
        facts = Facts(tuple(node.get("made") or ()), _lineage(node), any_classes)
        return View(tuple(slots), facts)

    def _arrays(self, named: dict[str, Any] | None) -> Mapping[str, Any]:
        """Return the arrays in the file that a document names."""
        from wids.base.arrayfile import read_arrays

        if named is None:
            return {}
        try:
            with _local_copy(self._located(named.get("file")), self.store) as path:
                about, arrays = read_arrays(path)
                if not isinstance(about, dict) or about.get("is") != ROWS_OF_A_VIEW:
                    raise ValueError(f"expected the rows of a view, found {about!r:.80}")
                if file_digest(path) != named.get("digest"):
                    raise ValueError(
                        f"{path} holds the rows of another view, or was changed: its SHA-256 "
                        "differs from the one in the document; restore the file, or save the view "
                        "again"
                    )
        except (ValueError, OSError) as error:
            raise SpecError(f"arrays: {error}") from error
        return arrays

    def _table(self, node: dict[str, Any], first: Any) -> TableRows:
        """Open a joined table, after checking that it has not changed.

        Args:
            node: Its description.
            first: The first dataset, as which it is cached and decoded; None if there is none.
        """
        from wids.views.joining import used_columns
        from wids.views.tablefiles import open_table
        from wids.views.tables import FileStamp, TableRows

        fields: Any = node.get("fields")
        whole = all(map(node.get, ("table", "nbytes", "digest"))) and isinstance(fields, dict)
        if not whole or any(name[:1] != "." for name in fields):
            raise SpecError(
                "expected a table as it is saved, with fields (a column for each extension), "
                f"nbytes and digest, found {_shown(node)}"
            )
        stamp = FileStamp(node["nbytes"], node["digest"])
        named = node["table"]
        located = [self._located(each) for each in (named if isinstance(named, list) else [named])]
        cache, pipeline = (None, None) if first is None else (first.cache, first.pipeline)
        try:
            source = located if isinstance(named, list) else located[0]
            table = open_table(source, cache=cache, stamp=stamp)
            table = table.only(used_columns(table, fields, node.get("key")))
        except OSError as error:
            raise SpecError(str(error)) from error
        return TableRows(table, fields, node.get("key"), pipeline)

    def _dataset(self, node: dict[str, Any]) -> Any:
        """Open a dataset, after checking that it has not changed."""
        fields = node.get("fields")
        _check(fields or [], [str], f"{self.where}: fields")
        # What differs in its fields alone is opened once.
        known = json.dumps({key: node[key] for key in node if key != "fields"}, default=str)
        if known not in self.opened:
            self.opened[known] = self._dataset_anew(node)
        dataset = self.opened[known]
        return dataset if fields is None else dataset.with_options(fields=fields, missing_ok=fields)

    def _dataset_anew(self, node: dict[str, Any]) -> Any:
        rules_of(node, self.where)
        own = {name: node[name] for name in USUAL_RULES if name in node}
        for name, kept in own.items():
            if self.options.get(name) not in (None, kept):
                warn(
                    f"{self.where}: {name}={self.options[name]!r} has no effect, since the samples "
                    f"of the view were chosen with {kept!r}"
                )
        kept = node.get("options") or {}
        if OWN_SHARDS & kept.keys():
            raise SpecError(
                f"options: expected top-level keys without shards and base, found {_shown(kept)}"
            )
        if self.options.get("dataset_name"):
            kept = {key: kept[key] for key in kept if key != "name"}
        if options := kept | (self.options.get("options") or {}):  # those given now count
            own["options"] = options
        if "spec" in node:
            source: Any = self._located(node["spec"])
            shown = display_url(str(node["spec"]))
            if file_name(source).endswith(".json") and is_local(source):
                path = local_path(source)
                if not path.exists():
                    raise SpecError(
                        f"its dataset {display_url(str(path))} is not there; move the document and "
                        "the dataset alike, or save the view again"
                    )
        elif node.get("shardlist") is not None:
            allow_local = bool(self.options.get("allow_local"))
            listed = {"shardlist": node["shardlist"]}
            spec = DatasetSpec.parse(listed, self.home, allow_local=allow_local)
            source = [dict(row) for row in spec.shards]
            shown = f"{len(source)} shards"
        else:
            raise SpecError(
                "expected a dataset with 'spec' or 'shardlist', found "
                f"{', '.join(map(_shown, node)) or 'nothing'}"
            )
        dataset: Any = self.make(source, **self.options | own)
        then = {"number of samples": node.get("nsamples"), **(node.get("contents") or {})}
        now = {"number of samples": len(dataset), **contents_of(dataset.shards)}
        # Only what a spec said then and says now can be compared.
        if other := [name for name in now if then.get(name) not in (None, now[name])]:
            raise SpecError(
                f"{shown} has changed since the view was saved: it has another "
                f"{' and '.join(other)} (expected {_shown(then[other[0]])}, found "
                f"{_shown(now[other[0]])}), so its samples may be others; make the view again, or "
                "restore the dataset"
            )
        if node.get("versions") is not None:
            try:
                saved = check_text("versions", node["versions"])
                dataset.dataset_shards.versions.restore(saved)
            except (TypeError, ValueError) as error:
                raise SpecError(f"versions: {error}") from error
        return dataset

    def _located(self, named: Any) -> str:
        """Resolve a location in the document against its folder.

        Raises:
            SpecError: It is a pipe or a device, or a local file that a server names.
        """
        check_location(named, self.where, "location")
        location = join(folder_of(self.home), named)
        if not is_local(location):
            return location
        if not (is_local(self.home) or self.options.get("allow_local")):
            raise SpecError(
                f"{location!r:.200} is a file of this machine, which a document from a server may "
                "not name; allow_local=True permits it"
            )
        path = local_path(location)
        # By functions of `os.path`, which are False for a name that no file can have.
        if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):  # noqa: PTH110, PTH112, PTH113
            raise SpecError(
                f"{display_url(location):.200}: expected a file or a folder, found a pipe or a "
                "device, which may have no end"
            )
        return location


def _lineage(node: dict[str, Any]) -> str | None:
    """Return the lineage that a document states."""
    lineage = lineage_in(node)
    if node.get("lineage") is not None and lineage is None:
        raise SpecError(
            "lineage: expected 16 hexadecimal digits as they were saved, found "
            f"{_shown(node['lineage'])}"
        )
    return lineage


def _source(
    said: dict[str, Any], leaves: list[Any], later: range, known: dict[str, Step]
) -> Source:
    """Return a source of a slot as a document describes it.

    Args:
        said: The description.
        leaves: The datasets and tables.
        later: Numbers of the slots that its steps may read.
        known: The steps so far, as one step is one object in all sources that have it.
    """
    which = said.get("dataset", -1)
    if not 0 <= which < len(leaves):
        raise SpecError(f"no dataset has the number {_shown(which)}")
    leaf = leaves[which]
    steps = [
        known.setdefault(json.dumps(each, sort_keys=True), _step(each, later))
        for each in said.get("steps") or []
    ]
    return Source(leaf, said.get("name"), tuple(steps), fields_of_leaf(leaf))


def _step(said: dict[str, Any], later: range) -> Step:
    """Return a step of a source as a document describes it.

    Args:
        said: The description.
        later: Numbers of the slots that it may read.
    """
    if said.get("names") is not None:
        return Rename(checked_names(said["names"], "names"))
    step: Step
    if said.get("before") is not None or said.get("after") is not None:
        step = Surround(tuple(said.get("before") or ()), tuple(said.get("after") or ()))
    else:
        step = Add(
            said.get("join", -1),
            said.get("rename") or {},
            bool(said.get("replace")),
            None if said.get("none") is None else tuple(said["none"]),
            bool(said.get("of_table")),
        )
    for slot in step.slots:
        if slot not in later:
            found = _shown(None if slot == -1 else slot)
            raise SpecError(f"expected the number of a later slot to join, found {found}")
    return step


def _rows_from(node: dict[str, Any], arrays: Mapping[str, Any]) -> Rows:
    """Return the rows of a slot, which a document holds or its file."""
    if "arrays" in node:
        return Rows.found_in(arrays, node, "arrays")
    bounds, numbers, starts, lengths = map(node.get, ("range", "list", "starts", "lengths"))
    if numbers is not None:
        return Rows.of(np.array(numbers, np.int64))
    if bounds is not None and len(bounds) == 3 and bounds[2]:
        return Rows.over(range(*bounds))
    if starts and lengths and len(starts) == len(lengths) and min(lengths) > 0:
        return Rows.of_runs(starts, lengths)
    raise ValueError(f"expected a range, a list, runs or arrays, found {_shown(node)}")


def _check_work(slots: Sequence[Slot]) -> None:
    """Refuse a plan of which one sample takes very long: slots may name each other."""
    work = [1] * len(slots)
    for number in range(len(slots) - 1, -1, -1):
        for source in slots[number].sources:
            reads = [sum(work[slot] for slot in step.slots) for step in source.steps]
            work[number] = max(work[number], 1 + sum(reads) + len(reads))
        if work[number] > _MOST_WORK:
            raise SpecError(
                f"slot {number}: expected at most {_MOST_WORK} reads and steps for one sample, "
                f"found {work[number]}; write the samples as shards (wids.reshard)"
            )


@contextmanager
def _local_copy(location: str, store: StoreSettings | None) -> Iterator[Path]:
    """Context manager of a local file with the content of a location."""
    from wids.fetching.fetch import open_url

    if is_local(location):
        yield local_path(location)
        return
    with tempfile.TemporaryDirectory(prefix="wids-indexes-") as folder:
        # The reader maps the file, and a map stays readable after the file is removed.
        path = Path(folder, base_name(location))
        path.write_bytes(open_url(location, store))
        yield path


def _saved_document(source: Any, store: StoreSettings | None = None) -> dict[str, Any] | None:
    """Return the document of a saved view; None if the location names something else."""
    if not isinstance(source, str | os.PathLike):
        return None
    location = os.fspath(source)
    if not file_name(location).endswith(".json") or find_shards(location, store) is not None:
        return None
    text = read_document(location, store)
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
    return dict(document)
