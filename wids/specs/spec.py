"""`DatasetSpec`: the JSON spec of a dataset, parsed, resolved and checked.

A spec names the shards of a dataset and how many samples each holds:

    {"wids_version": 1,
     "name": "train",
     "shardlist": [{"url": "train-000.tar", "nsamples": 1000}, ...],
     "datasets": [{"source_url": "https://host/more.json"}, ...]}

`docs/formats.md` describes the format. This module reads no file and no socket: the caller of
the parser passes the function that reads the documents to which a spec refers.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from wids.base.urls import display_url, is_local
from wids.base.valuesizes import json_nbytes
from wids.errors import SpecError
from wids.specs import locations
from wids.specs.indexrules import rules_of
from wids.specs.merging import composed_header
from wids.specs.rows import (
    as_row,
    check_location,
    check_name,
    check_shard,
    check_weight,
    columns_if_plain,
    unique_keys,
)
from wids.specs.shardtable import MOST_SAMPLES, ShardTable

__all__ = ["BOUNDS", "DatasetSpec", "SpecBounds"]

_WRITTEN_NBYTES = 16 << 20  # documents up to this size are checked for keys that stand twice
Read = Callable[[str], bytes]


@dataclass(frozen=True)
class SpecBounds:
    """Bounds for specs from untrusted sources, which may refer to themselves or to an endless tree.

    Attributes:
        nesting: Number of levels of `datasets`.
        components: Number of `datasets` of all documents.
        documents_nbytes: Bytes of all documents to which a spec refers.
        shards: Number of shards of all documents.
        values_nbytes: Bytes of memory that the values of one document may take, as estimated before
            it is parsed; a million shards of six keys take 1.3 GB.
        inherited_characters: Characters that bases and inherited fields add to all shards.
    """

    nesting: int = 8
    components: int = 10_000
    documents_nbytes: int = 256 << 20
    shards: int = 2_000_000
    values_nbytes: int = 3 << 30
    inherited_characters: int = 1 << 30


BOUNDS = SpecBounds()


class DatasetSpec:
    """Parsed spec of a dataset: its name and its table of shards.

    Attributes:
        shards: The table of shards, in order, with resolved URLs.
        name: The dataset's name, or None.
        base: Folder or URL against which relative URLs were resolved; "" for the working
            directory.
        header: All other top-level keys of the JSON, unchanged.
        catalogue: Location of the file that has a row for each sample; None without one.

    >>> spec = DatasetSpec.parse('{"shardlist": [{"url": "a.tar", "nsamples": 2}]}', "/data/x.json")
    >>> spec.shards[0]
    ShardRef('/data/a.tar', nsamples=2)
    """

    def __init__(
        self,
        shards: Iterable[Mapping[str, Any]],
        *,
        name: str | None = None,
        base: str = "",
        header: Mapping[str, Any] | None = None,
        catalogue: str | None = None,
    ) -> None:
        self.shards = shards if isinstance(shards, ShardTable) else ShardTable.of(shards)
        self.name = name
        self.base = base
        self.header = dict(header or {})
        self.catalogue = catalogue

    @classmethod
    def parse(
        cls,
        text: str | bytes | Mapping[str, Any],
        source: str = "",
        *,
        base: str | None = None,
        options: Mapping[str, Any] | None = None,
        read: Read | None = None,
        allow_local: bool = False,
        bounds: SpecBounds = BOUNDS,
    ) -> "DatasetSpec":
        """Parse the text of a JSON shard-spec.

        Args:
            text: The JSON, or the dict that it was parsed to.
            source: Path or URL of the JSON; relative URLs are resolved against its folder.
            base: Folder or URL against which relative URLs are resolved instead; it takes
                precedence over the JSON's own `base`.
            options: Top-level keys that replace those of the JSON.
            read: Function that returns the document at a URL; needed if `datasets` refer to other
                specs.
            allow_local: Allow a spec from a server to name files of this machine.
            bounds: Bounds of the spec and of all documents to which it refers.

        Returns:
            The spec, with resolved URLs and the shards of nested datasets concatenated.

        Raises:
            SpecError: The spec is malformed; the message names source, shard, field and value.
        """
        parser = _Parser(read, bounds, allow_local=allow_local)
        shown = display_url(source)
        document = dict(text) if isinstance(text, Mapping) else parser.document(text, shown, shown)
        return parser.dataset({**document, **(options or {})}, source, base)

    @classmethod
    def from_list(
        cls,
        shards: Iterable[Any],
        *,
        base: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> "DatasetSpec":
        """Return the spec of a list of dicts, `(url, nsamples)` pairs, paths or URLs.

        Args:
            shards: `{"url": ..., "nsamples": ...}` dicts, pairs, or plain locations.
            base: Folder or URL against which relative locations are resolved; by default the
                working directory.
            options: Top-level keys, as a JSON spec would have them.

        Raises:
            SpecError: One of them is malformed.

        >>> DatasetSpec.from_list([("a.tar", 3), "b.tar"]).shards[1]
        ShardRef('b.tar')
        """
        source = "the list of shards"
        # The calling program chose these locations, not a server, so local files are allowed.
        parser = _Parser(None, BOUNDS, allow_local=True)
        header = {key: value for key, value in (options or {}).items() if key != "name"}
        name = (options or {}).get("name")
        check_name(name, source)
        return cls(
            parser.shards(list(shards), source, base or ""),
            name=name,
            base=base or "",
            header=header,
        )

    def to_json(self) -> str:
        """Return the spec as JSON v1 with nested datasets flattened, which `parse` can read.

        >>> print(DatasetSpec.from_list([("a.tar", 3)]).to_json())
        {
          "wids_version": 1,
          "shardlist": [
            {
              "url": "a.tar",
              "nsamples": 3
            }
          ]
        }
        """
        document: dict[str, Any] = {"wids_version": 1}
        if self.name is not None:
            document["name"] = self.name
        if self.shards.pack is not None:
            document["pack"] = self.shards.pack
        # Unknown keys are written back, since other programs may use them.
        document |= {key: value for key, value in self.header.items() if key not in document}
        shards = replace(self.shards, pack=None)
        document["shardlist"] = [dict(shard) for shard in shards]
        # Indented, since people read specs, edit them and keep them under version control.
        return json.dumps(document, indent=2)

    def __repr__(self) -> str:
        return f"DatasetSpec(name={self.name!r}, {len(self.shards)} shards)"


class _Parser:
    """Parser of one spec and of all specs to which it refers."""

    def __init__(
        self,
        read: Read | None,
        bounds: SpecBounds,
        *,
        allow_local: bool,
    ) -> None:
        self._read = read
        self._bounds = bounds
        # A document to which several datasets refer is read once.
        self._documents: dict[str, bytes] = {}
        self._num_components = 0
        self._documents_nbytes = 0
        self._num_shards = 0
        self._added = 0
        self._total = 0
        self._allow_local = allow_local

    def document(self, text: str | bytes, source: str, where: str) -> dict[str, Any]:
        """Return the JSON of one document as an object."""
        most = self._bounds.values_nbytes
        # Before parsing: a few kilobytes of JSON can become gigabytes of Python objects.
        if json_nbytes(text, most) > most:
            raise SpecError(
                f"{source}: its values could take more than {most} bytes of memory; "
                "expected a shard-spec with fewer keys and lists"
            )
        return _as_object(_load_json(text, source), where)

    def dataset(
        self, document: dict[str, Any], source: str, base: str | None, depth: int = 0
    ) -> DatasetSpec:
        """Parse one document: its own shards first, then those of its `datasets`."""
        folder = locations.folder_of(source)
        source = display_url(source)  # without credentials: used only in messages below
        version = document.get("wids_version", 1)
        # In Python `True == 1`, but JSON's true is no version number.
        if version != 1 or isinstance(version, bool):
            raise SpecError(
                f"{source}: wids_version: expected 1, found {version!r:.80}; a saved view is "
                "opened by wids.open, and other versions by a newer wids"
            )
        rules_of(document, source)
        check_weight(document.get("weight"), source)
        name = document.get("name")
        check_name(name, source)
        if base is None:
            base = self._own_base(document, folder, source) or folder
        tables = []
        headers, names = {}, []
        if listed := _as_list(document, "shardlist", source):
            table = self.shards(listed, source, base)
            if document.get("pack") is not None:
                # Not against the base, as it is made with the spec; and so is the catalogue.
                pack = self._resolved(document["pack"], folder, source, "pack")
                table = replace(table, pack=pack)
            inherited = _inherited(weight=document.get("weight"), name=name)
            tables.append(self._inheriting(table, inherited, source))
        for number, component in enumerate(_as_list(document, "datasets", source)):
            where = f"{source}: datasets[{number}]"
            spec, table = self._component(_as_object(component, where), where, base, depth + 1)
            headers[where] = spec.header
            names.append(component.get("name") or spec.name)
            tables.append(table)
        if not tables:
            raise SpecError(
                f"{source}: holds no shards; expected a 'shardlist' or 'datasets' with some"
            )
        parsed = ("name", "shardlist", "datasets", "base", "base_path", "pack", "catalogue")
        header = {key: value for key, value in document.items() if key not in parsed}
        if headers:
            header = composed_header(header, headers, names, source)
        catalogue = document.get("catalogue")
        if catalogue is not None:
            catalogue = self._resolved(catalogue, folder, source, "catalogue")
        return DatasetSpec(
            ShardTable.joined(tables), name=name, base=base, header=header, catalogue=catalogue
        )

    def _component(
        self, component: dict[str, Any], where: str, base: str, depth: int
    ) -> tuple["DatasetSpec", ShardTable]:
        """Parse one entry of `datasets`: its shards inline, or the spec at its `source_url`.

        Returns:
            Its spec, and its shards with the fields that they inherit.
        """
        # Checked before the fetch, so that a spec that refers to itself costs no more requests.
        if depth > self._bounds.nesting:
            raise SpecError(
                f"{where}: expected at most {self._bounds.nesting} levels of datasets, found more; "
                "a spec may refer to itself"
            )
        self._num_components += 1
        if self._num_components > self._bounds.components:
            raise SpecError(
                f"{where}: expected at most {self._bounds.components} datasets in all, found more; "
                "merge them (`wids merge`)"
            )
        source_url = component.get("source_url")
        own_base = self._own_base(component, base, where)
        if source_url is None:
            spec = self.dataset(component, where, own_base or base, depth)
            name = component.get("name")
        else:
            check_location(source_url, where, "source_url")
            source_url = locations.join(base, source_url)
            self._refuse_local(source_url, where, "source_url")
            # Its relative URLs are resolved against its own folder, not that of the outer spec.
            if self._read is None:
                shown = display_url(source_url)
                raise SpecError(
                    f"{where}: source_url: {shown!r} is another spec, to which only a spec that "
                    "was read from a path or a URL may refer"
                )
            if source_url not in self._documents:
                self._documents[source_url] = self._read(source_url)
            # Counted at each reference: each parses the document again and adds its shards.
            self._documents_nbytes += len(self._documents[source_url])
            most = self._bounds.documents_nbytes
            if self._documents_nbytes > most:
                raise SpecError(
                    f"{where}: expected documents of at most {most} bytes in all, found more; "
                    "merge them (`wids merge`) and open the merged spec"
                )
            text = self._documents[source_url]
            document = self.document(text, display_url(source_url), where)
            spec = self.dataset(document, source_url, own_base, depth)
            check_name(component.get("name"), where)
            name = component.get("name") or spec.name
        # The outer spec's values for a component take precedence over the component's own.
        weight = component.get("weight", spec.header.get("weight"))
        check_weight(weight, where)
        inherited = _inherited(weight=weight, source_url=source_url, dataset=name)
        return spec, self._inheriting(spec.shards, inherited, where)

    def shards(self, listed: Sequence[Any], source: str, base: str) -> ShardTable:
        """Check shards and resolve their URLs."""
        self._num_shards += len(listed)
        if self._num_shards > self._bounds.shards:
            raise SpecError(
                f"{source}: expected {self._bounds.shards} shards at most, found "
                f"{self._num_shards}; write fewer, larger shards (`wids reshard`)"
            )
        self._add(len(base) * len(listed), source)
        # By column, two microseconds a shard; one by one only if a shard is unusual or malformed.
        table = columns_if_plain(listed, base)
        if table is None or not (
            self._allow_local or is_local(source) or not any(map(is_local, table.urls))
        ):
            return ShardTable.of(
                [self.shard(each, source, number, base) for number, each in enumerate(listed)]
            )
        # As Python integers: a sum of int64 could overflow.
        self._total += sum(count for count in table.nsamples.tolist() if count > 0)
        self._check_total(source, len(listed) - 1)
        return table

    def _inheriting(self, table: ShardTable, fields: dict[str, Any], where: str) -> ShardTable:
        """Return the table with fields that its shards inherit."""
        self._add(len(json.dumps(fields)) * len(table), where)
        return table.inheriting(fields)

    def _add(self, num_characters: int, where: str) -> None:
        """Count inherited characters, since a few kilobytes of JSON may expand to gigabytes."""
        self._added += num_characters
        most = self._bounds.inherited_characters
        if self._added > most:
            raise SpecError(
                f"{where}: expected at most {most} characters of base, name and other fields that "
                "shards inherit, found more; shorten them"
            )

    def shard(self, listed: Any, source: str, number: int, base: str) -> dict[str, Any]:
        """Check one shard and resolve its URL."""
        row = as_row(listed, source, number)
        check_shard(row, source, number)
        self._total += row.get("nsamples") or 0
        self._check_total(source, number)
        row["url"] = self._resolved(row["url"], base, source, f"shard {number}: url")
        for field in ("index", "pack"):
            if (given := row.get(field)) is not None:
                self._add(len(base), source)  # that of the URL is counted in `shards`
                row[field] = self._resolved(given, base, source, f"shard {number}: {field}")
        return row

    def _resolved(self, given: Any, base: str, source: str, field: str) -> str:
        """Return a location that a document names, resolved against its base."""
        check_location(given, source, field)
        location = locations.join(base, given)
        # A downloaded spec may name any file below a folder that the user chose.
        below = bool(base) and not given.startswith(("/", "~"))
        if not (below and location.startswith(base.rstrip("/") + "/")):
            self._refuse_local(location, source, field)
        return location

    def _check_total(self, source: str, number: int) -> None:
        if self._total >= MOST_SAMPLES:
            raise SpecError(
                f"{source}: shard {number}: nsamples: expected fewer than {MOST_SAMPLES} "
                f"samples in all, found {self._total}"
            )

    def _own_base(self, document: dict[str, Any], folder: str, where: str) -> str | None:
        """Return the resolved base that a document itself names, or None."""
        base = document.get("base")
        if base in (None, ""):
            base = document.get("base_path")
        if base in (None, ""):
            return None
        check_location(base, where, "base")
        joined = locations.join(folder, base)
        self._refuse_local(joined, where, "base")
        return joined

    def _refuse_local(self, location: str, source: str, field: str) -> None:
        """Raise if a spec from a server names a local file and `allow_local` is not set."""
        if is_local(location) and not (is_local(source) or self._allow_local):
            raise SpecError(
                f"{source}: {field}: {location!r:.200} is a file of this machine, which a spec "
                "from a server may not name; pass allow_local=True if you trust the server"
            )


def _load_json(text: str | bytes, source: str) -> Any:
    # People write keys twice. Large documents are written by programs, and take long to check.
    hook = unique_keys(source) if len(text) <= _WRITTEN_NBYTES else None
    try:
        return json.loads(text, object_pairs_hook=hook)
    except SpecError:
        raise
    except RecursionError:
        raise SpecError(
            f"{source}: expected a shard-spec, found JSON that is nested too deeply"
        ) from None
    except ValueError as error:  # JSONDecodeError and UnicodeDecodeError
        from wids.base.magic import file_type

        start = text[:60]
        known = file_type(start) if isinstance(start, bytes) else None
        if known is not None and known.kind == "compression":
            raise SpecError(
                f"{source}: expected JSON, found {known.description}; of compressed shards only "
                "those by gzip and zstd are read, named .tar.gz and .tar.zst: pack others again"
            ) from None
        # The list of a folder's files, perhaps, which each server writes in its own way.
        folder = ""
        if isinstance(start, bytes) and start.lstrip()[:1] == b"<":
            folder = (
                "; of a folder a web server gives a page like this: `wids create` makes a spec of "
                "its shards"
            )
        found = f"text that starts with {start!r} ({error})" if start else "an empty file"
        raise SpecError(f"{source}: expected JSON, found {found}{folder}") from None


def _as_object(document: Any, where: str) -> dict[str, Any]:
    """Return a document as an object; a list of shards becomes the `shardlist` of an object."""
    if isinstance(document, list):
        return {"shardlist": document}
    if not isinstance(document, dict):
        raise SpecError(f"{where}: expected a JSON object or list, found {document!r:.60}")
    return document


def _as_list(document: dict[str, Any], field: str, source: str) -> list[Any]:
    value = document.get(field)
    if value is None:
        return []
    if not isinstance(value, list):
        raise SpecError(f"{source}: {field}: expected a list, found {value!r:.60}")
    return value


def _inherited(**fields: Any) -> dict[str, Any]:
    return {field: value for field, value in fields.items() if value is not None}
